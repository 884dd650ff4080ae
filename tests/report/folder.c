/* folder - makes a folder under /tmp for one test and enters it; text files are read and written
 * whole. */
#include "folder.h"

#include "../remove_tree.h"
#include "../test.h"

#include <unistd.h>

#include "base/alloc.h"

int folder_setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char *path = xasprintf("%s/dptrain-report-XXXXXX", tmp ? tmp : "/tmp");

    assert_non_null(mkdtemp(path));
    assert_int_equal(chdir(path), 0);
    *state = path;
    return 0;
}

int folder_teardown(void **state)
{
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(remove_tree(*state), 0);
    free(*state);
    return 0;
}

char *read_text(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = xcalloc(1, 1 << 20);

    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
    fclose(f);
    return text;
}

void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

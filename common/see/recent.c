/* A ring of lines, and the reader of a file's end.  A line whose beginning is before that end is
 * not taken, nor one that is still being written. */
#include "see/recent.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

void recent_add(struct recent *r, const char *line, size_t n)
{
    char **place = &r->line[r->n++ % RECENT_MOST];

    free(*place);
    *place = xmalloc(n + 1);
    memcpy(*place, line, n);
    (*place)[n] = '\0';
}

/* The last RECENT_TAIL bytes of the file; returns how many, and is_cut: the file has more. */
static size_t recent_tail(int fd, char *text, int *is_cut)
{
    struct stat st;
    off_t from;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return 0;
    from = max_i64(0, st.st_size - RECENT_TAIL);
    n = pread(fd, text, RECENT_TAIL, from);
    *is_cut = from > 0;
    return n > 0 ? (size_t)n : 0;
}

static int recent_is_object(const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const int is = json_is_object(o);

    json_decref(o);
    return is;
}

void recent_read(struct recent *r, const char *run_dir)
{
    char *path = xasprintf("%s/events.jsonl", run_dir), *text = xmalloc(RECENT_TAIL);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int is_cut = 0;
    const size_t n = fd < 0 ? 0 : recent_tail(fd, text, &is_cut);
    const char *at = text, *end;

    for (; (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1)
        if ((at > text || !is_cut) && recent_is_object(at, (size_t)(end - at)))
            recent_add(r, at, (size_t)(end - at));
    if (fd >= 0)
        close(fd);
    free(text);
    free(path);
}

int64_t recent_first(const struct recent *r) { return max_i64(0, r->n - RECENT_MOST); }

const char *recent_line(const struct recent *r, int64_t i) { return r->line[i % RECENT_MOST]; }

void recent_fini(struct recent *r)
{
    for (int i = 0; i < RECENT_MOST; i++)
        free(r->line[i]);
    *r = (struct recent){0};
}

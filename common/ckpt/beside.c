/* beside - the files of a tokenizer, copied into a generation.  They have no hash: training reads
 * none of them. */
#include "ckpt/beside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/file.h"

enum { BESIDE_BLOCK = 1 << 20 };

static const char *const beside_names[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "generation_config.json"};

int beside_is_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(beside_names); i++)
        if (!strcmp(beside_names[i], name))
            return 1;
    return 0;
}

static int beside_put(int from, const char *from_path, int64_t n, int to, const char *to_path,
                      struct err *err)
{
    char *block = xmalloc(BESIDE_BLOCK);
    int rc = 0;

    for (int64_t at = 0; at < n && rc == 0; at += BESIDE_BLOCK) {
        const size_t size = (size_t)min_i64(n - at, BESIDE_BLOCK);

        rc = file_read_at(from, from_path, block, size, at, err);
        if (rc == 0)
            rc = file_put(to, to_path, block, size, err);
    }
    free(block);
    return rc;
}

static int beside_copy_one(const char *from_path, const char *to_path, struct err *err)
{
    int64_t n;
    int from, to, rc = file_open(from_path, &from, &n, err);

    if (rc < 0)
        return rc;
    rc = file_create(to_path, &to, err);
    if (rc == 0) {
        rc = beside_put(from, from_path, n, to, to_path, err);
        if (rc == 0)
            rc = file_finish(to, to_path, err);
        else
            close(to);
    }
    close(from);
    return rc;
}

/* A copy that fails costs a warning, and not the checkpoint. */
static void beside_try_one(const char *source, const char *copy)
{
    struct err err;

    if (beside_copy_one(source, copy, &err) == 0)
        return;
    unlink(copy);
    log_warn("the checkpoint has no copy of %s: %s", source, err.msg);
}

int beside_copy(const char *from, const char *folder, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(beside_names); i++) {
        char *source = xasprintf("%s/%s", from, beside_names[i]);
        char *copy = xasprintf("%s/%s", folder, beside_names[i]);
        struct stat st;

        if (stat(source, &st) == 0 && S_ISREG(st.st_mode))
            beside_try_one(source, copy);
        free(source);
        free(copy);
    }
    return file_sync_folder(folder, err);
}

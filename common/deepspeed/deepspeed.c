/* DeepSpeed's file as text: its comments, and whether a text is such a file.  deepspeed/keys.c
 * collects its values, and deepspeed/job.c gives them to the job. */
#include "deepspeed/deepspeed.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "config/document.h"
#include "deepspeed/impl.h"

/* ---- comments and commas ---- */

/* The length of the comment at text[0], or 0. */
static size_t comment_len(const char *text, size_t len)
{
    const char *end;

    if (text[0] == '#' || (len > 1 && text[0] == '/' && text[1] == '/')) {
        end = memchr(text, '\n', len);
        return end ? (size_t)(end - text) : len;
    }
    if (len < 2 || text[0] != '/' || text[1] != '*')
        return 0;
    end = memmem(text + 2, len - 2, "*/", 2);
    return end ? (size_t)(end + 2 - text) : len;
}

static size_t string_len(const char *text, size_t len)
{
    size_t n = 1;

    while (n < len && text[n] != '"')
        n += text[n] == '\\' ? 2 : 1;
    return n < len ? n + 1 : len;
}

/* The text with a space for each byte of a comment, so that lines and columns stay.  YAML itself
 * takes a comma before a closing bracket. */
static char *without_comments(const char *text, size_t len)
{
    char *out = xmalloc(len + 1);

    memcpy(out, text, len);
    out[len] = '\0';
    for (size_t i = 0; i < len;) {
        size_t n = text[i] == '"' ? string_len(text + i, len - i) : comment_len(text + i, len - i);

        for (size_t k = 0; text[i] != '"' && k < n; k++)
            out[i + k] = text[i + k] == '\n' ? '\n' : ' ';
        i += n ? n : 1;
    }
    return out;
}

/* ---- the file ---- */

static int is_one(struct ds_file *f)
{
    static const char *const marks[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                        "zero_optimization"};
    const yaml_node_t *root = yaml_document_get_root_node(&f->doc);

    for (size_t i = 0; root && i < ARRAY_LEN(marks); i++)
        if (ds_member(f, root, marks[i]))
            return 1;
    return 0;
}

static int is_json(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && !strcasecmp(path + n - 5, ".json");
}

static int deepspeed_recognizes(const char *path, const char *text, size_t len)
{
    struct ds_file f = {0};
    struct err ignored;
    char *plain;
    int is;

    if (!is_json(path))
        return 0;
    plain = without_comments(text, len);
    is = plain[strspn(plain, " \t\r\n")] == '{' &&
         document_load("", plain, len, &f.doc, &ignored) == 0;
    if (is) {
        is = is_one(&f);
        yaml_document_delete(&f.doc);
    }
    free(plain);
    return is;
}

static int read_deepspeed(struct reader *r, const char *text, size_t len, int64_t n_ranks,
                          struct buf *notes, struct err *err)
{
    struct ds_file f = {.r = r, .notes = notes, .n_ranks = n_ranks};
    char *plain = without_comments(text, len);
    int rc = document_load(r->origin, plain, len, &f.doc, err);

    if (rc == 0) {
        rc = ds_collect(&f, err);
        if (rc == 0)
            rc = ds_give(&f, err);
        yaml_document_delete(&f.doc);
    }
    for (int i = 0; i < N_IDS; i++)
        free(f.value[i].text);
    free(plain);
    return rc;
}

int deepspeed_load(int64_t n_ranks, const char *path, const char *const *sets, size_t n_sets,
                   struct job **out, struct buf *notes, struct err *err)
{
    const struct job_form form = {deepspeed_recognizes, read_deepspeed, n_ranks, notes};

    return job_load_form(&form, path, sets, n_sets, out, err);
}

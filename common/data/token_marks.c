/* token_marks - finds the end token in the files beside a tokenizer.json.  A file that is not there
 * says nothing, and neither does a key that is absent or null. */
#include "data/token_marks.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"

enum { MARKS_MOST_BYTES = 64 << 20 };

static const struct {
    const char *name, *key;
} marks_files[] = {
    {"tokenizer_config.json", "eos_token"},
    {"special_tokens_map.json", "eos_token"},
    {"generation_config.json", "eos_token_id"},
    {"config.json", "eos_token_id"},
};

/* *root: the file's mapping; NULL: there is no such file. */
static int marks_load(const char *path, json_t **root, struct err *err)
{
    json_error_t at;
    struct stat st;

    *root = NULL;
    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "file %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > MARKS_MOST_BYTES)
        return err_set(err, ERR_CONFIG, "%s is no regular file of at most %d bytes", path,
                       MARKS_MOST_BYTES);
    *root = json_load_file(path, 0, &at);
    if (json_is_object(*root))
        return 0;
    err_set(err, ERR_CONFIG, "%s:%d:%d: %s; want the file that transformers wrote", path, at.line,
            at.column, *root ? "no mapping" : at.text);
    json_decref(*root);
    return err->code;
}

/* Take what a key says: a text, a mapping with `content`, a number, or a list of numbers. */
static void marks_take(struct token_marks *m, const json_t *value)
{
    const json_t *const first = json_is_array(value) ? json_array_get(value, 0) : value;
    const char *const text = json_is_object(value)
                                 ? json_string_value(json_object_get(value, "content"))
                                 : json_string_value(value);

    if (text)
        m->end = xstrdup(text);
    else if (json_is_integer(first) && json_integer_value(first) >= 0)
        m->end_number = json_integer_value(first);
}

static int marks_is_found(const struct token_marks *m) { return m->end || m->end_number >= 0; }

static int marks_read_beside(struct token_marks *m, const char *tokenizer, struct err *err)
{
    const char *const slash = strrchr(tokenizer, '/');
    const int len = slash ? (int)(slash - tokenizer) + 1 : 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(marks_files) && !marks_is_found(m); i++) {
        char *path = xasprintf("%.*s%s", len, tokenizer, marks_files[i].name);
        json_t *root;

        rc = marks_load(path, &root, err);
        if (rc == 0 && root)
            marks_take(m, json_object_get(root, marks_files[i].key));
        if (marks_is_found(m))
            m->found = xasprintf("%s of %s", marks_files[i].key, path);
        if (rc == 0)
            json_decref(root);
        free(path);
    }
    return rc;
}

int token_marks_read(struct token_marks *out, const char *tokenizer, const char *named,
                     struct err *err)
{
    int rc = 0;

    *out = (struct token_marks){.end_number = -1};
    if (!named)
        rc = marks_read_beside(out, tokenizer, err);
    else if (strcmp(named, TOKEN_MARKS_NONE) != 0)
        out->end = xstrdup(named);
    if (named)
        out->found = xstrdup("data.end_token");
    if (rc < 0)
        token_marks_fini(out);
    return rc;
}

void token_marks_fini(struct token_marks *m)
{
    free(m->end);
    free(m->found);
    *m = (struct token_marks){.end_number = -1};
}

int token_marks_end(const struct token_marks *m, const struct tokenizer *t, int32_t *number,
                    struct err *err)
{
    const int64_t vocab = tokenizer_vocab(t);

    *number = m->end ? tokenizer_number(t, m->end) : (int32_t)min_i64(m->end_number, vocab);
    if (m->end && *number < 0)
        return err_set(
            err, ERR_CONFIG,
            "%s is \"%.40s\", which is no token of data.tokenizer; want the text of one, "
            "or data.end_token none",
            m->found, m->end);
    if (*number >= vocab)
        return err_set(err, ERR_CONFIG,
                       "%s is %lld, but data.tokenizer has the numbers 0 to %lld; want the text of "
                       "one of its tokens as data.end_token, or none",
                       m->found, (long long)m->end_number, (long long)vocab - 1);
    return 0;
}

void token_marks_print(const struct token_marks *m, struct hasher *h)
{
    hasher_add_text(h, m->end ? m->end : "");
    hasher_add_i64(h, m->end_number);
}

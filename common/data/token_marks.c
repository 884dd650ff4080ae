/* token_marks - finds the end token, and the template, in the files beside a tokenizer.json.  A
 * file that is not there says nothing, and neither does a key that is absent or null. */
#include "data/token_marks.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/mapped.h"

enum { MARKS_MOST_BYTES = 64 << 20 };

static const struct {
    const char *name, *key;
} marks_files[] = {
    {"tokenizer_config.json", "eos_token"},
    {"special_tokens_map.json", "eos_token"},
    {"generation_config.json", "eos_token_id"},
    {"config.json", "eos_token_id"},
};

/* *root: the file's mapping, with integers as reals, because transformers writes a model_max_length
 * of 1e30 as one; NULL: there is no such file. */
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
    *root = json_load_file(path, JSON_DECODE_INT_AS_REAL, &at);
    if (json_is_object(*root))
        return 0;
    err_set(err, ERR_CONFIG, "%s:%d:%d: %s; want the file that transformers wrote", path, at.line,
            at.column, *root ? "no mapping" : at.text);
    json_decref(*root);
    return err->code;
}

/* The text of a token: a text, or a mapping with `content`; NULL: it is none. */
static const char *marks_text(const json_t *value)
{
    return json_is_object(value) ? json_string_value(json_object_get(value, "content"))
                                 : json_string_value(value);
}

/* Take what a key says: a token's text, its number, or a list of numbers. */
static void marks_take(struct token_marks *m, const json_t *value)
{
    const json_t *const first = json_is_array(value) ? json_array_get(value, 0) : value;
    const char *const text = marks_text(value);

    if (text)
        m->end = xstrdup(text);
    else if (json_is_number(first) && json_number_value(first) >= 0 &&
             json_number_value(first) < INT32_MAX)
        m->end_number = (int64_t)json_number_value(first);
}

static int marks_is_found(const struct token_marks *m) { return m->end || m->end_number >= 0; }

/* The path of a file beside the tokenizer; for free(). */
static char *marks_beside(const char *tokenizer, const char *name)
{
    const char *const slash = strrchr(tokenizer, '/');

    return xasprintf("%.*s%s", slash ? (int)(slash - tokenizer) + 1 : 0, tokenizer, name);
}

static int marks_find_end(struct token_marks *m, const char *tokenizer, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(marks_files) && !marks_is_found(m); i++) {
        char *path = marks_beside(tokenizer, marks_files[i].name);
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

/* ---- conversations ---- */

static void marks_keep(char **to, const char *text)
{
    if (!*to && text)
        *to = xstrdup(text);
}

/* The template of a file of JSON: a text, or that of a list's item whose name is "default". */
static const char *marks_template_of(const json_t *root)
{
    const json_t *const value = json_object_get(root, "chat_template");

    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *const item = json_array_get(value, i);
        const char *const name = json_string_value(json_object_get(item, "name"));

        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

/* A template in a file of its own. */
static int marks_read_jinja(struct token_marks *m, const char *path, struct err *err)
{
    struct mapped file;

    if (access(path, F_OK) < 0)
        return 0;
    if (mapped_open(&file, path, err) < 0)
        return err->code;
    m->template = xcalloc(file.n_bytes + 1, 1);
    if (file.bytes)
        memcpy(m->template, file.bytes, file.n_bytes);
    m->template_path = xstrdup(path);
    mapped_close(&file);
    return 0;
}

static int marks_read_chat(struct token_marks *m, const char *tokenizer, struct err *err)
{
    static const char *const names[] = {"chat_template.json", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    char *jinja = marks_beside(tokenizer, "chat_template.jinja");
    int rc = marks_read_jinja(m, jinja, err);

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++) {
        char *path = marks_beside(tokenizer, names[i]);
        json_t *root;

        rc = marks_load(path, &root, err);
        if (rc == 0) {
            marks_keep(&m->bos, marks_text(json_object_get(root, "bos_token")));
            marks_keep(&m->eos, marks_text(json_object_get(root, "eos_token")));
            marks_keep(&m->template, marks_template_of(root));
            if (m->template)
                marks_keep(&m->template_path, path);
            json_decref(root);
        }
        free(path);
    }
    free(jinja);
    return rc;
}

int token_marks_read(struct token_marks *out, const char *tokenizer, const char *named,
                     struct err *err)
{
    int rc = 0;

    *out = (struct token_marks){.end_number = -1};
    if (!named)
        rc = marks_find_end(out, tokenizer, err);
    else if (strcmp(named, TOKEN_MARKS_NONE) != 0)
        out->end = xstrdup(named);
    if (named)
        out->found = xstrdup("data.end_token");
    if (rc == 0)
        rc = marks_read_chat(out, tokenizer, err);
    if (rc < 0)
        token_marks_fini(out);
    return rc;
}

void token_marks_fini(struct token_marks *m)
{
    free(m->end);
    free(m->found);
    free(m->bos);
    free(m->eos);
    free(m->template);
    free(m->template_path);
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
    const char *const texts[] = {m->end, m->bos, m->eos, m->template};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        hasher_add_text(h, texts[i] ? texts[i] : "");
    hasher_add_i64(h, m->end_number);
}

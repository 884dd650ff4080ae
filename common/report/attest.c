/* attest - one table says which member stands where, for writing and for reading.  Keys that are
 * not in it, as a later version may write them, are passed over. */
#include "report/attest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"

enum { FORMAT = 1 };

enum attest_kind { NUMBER, TEXT, LINE, HEX }; /* LINE: shown on a terminal as it is */

static const struct attest_row {
    const char *section, *key;
    enum attest_kind kind;
    size_t at;
    int may_lack;
    size_t n_digits; /* of HEX */
} attest_rows[] = {
#define ROW(section, key, kind, member, ...)                             \
    {                                                                    \
        section, key, kind, offsetof(struct attest, member), __VA_ARGS__ \
    }
    ROW("program", "version", LINE, version, 0, 0),
    ROW("program", "sha256", HEX, program, 0, 64),
    ROW("job", "yaml", TEXT, job, 0, 0),
    ROW("network", "sha256", HEX, network, 1, 64),
    ROW("data", "fingerprint", HEX, data, 0, 32),
    ROW("plan", "ranks", NUMBER, n_ranks, 0, 0),
    ROW("plan", "device", LINE, device, 0, 0),
    ROW("plan", "strategy", LINE, strategy, 0, 0),
    ROW("plan", "shards", NUMBER, n_shares, 0, 0),
    ROW("plan", "share_threads", NUMBER, share_threads, 0, 0),
    ROW("plan", "global_batch", NUMBER, batch, 0, 0),
    ROW("plan", "steps_per_epoch", NUMBER, steps_per_epoch, 0, 0),
    ROW("hashes", "rows", NUMBER, n_rows, 0, 0),
    ROW("hashes", "step", NUMBER, last_step, 0, 0),
    ROW("hashes", "sha256", HEX, hashes, 1, 64),
    ROW("checkpoint", "step", NUMBER, checkpoint, 0, 0),
    ROW("checkpoint", "model_sha256", HEX, model, 1, 64),
#undef ROW
};

static int64_t *attest_number(struct attest *a, const struct attest_row *r)
{
    return (int64_t *)(void *)((char *)a + r->at);
}

static char **attest_string(struct attest *a, const struct attest_row *r)
{
    return (char **)(void *)((char *)a + r->at);
}

void attest_fini(struct attest *a)
{
    for (size_t i = 0; i < ARRAY_LEN(attest_rows); i++)
        if (attest_rows[i].kind != NUMBER)
            free(*attest_string(a, &attest_rows[i]));
    *a = (struct attest){0};
}

/* ---- writing ---- */

char *attest_text(const struct attest *a)
{
    struct attest *from = (struct attest *)a; /* only read */
    json_t *o = json_object();
    char *text, *line;

    json_object_set_new(o, "format", json_integer(FORMAT));
    for (size_t i = 0; i < ARRAY_LEN(attest_rows); i++) {
        const struct attest_row *r = &attest_rows[i];
        const char *string = r->kind == NUMBER ? NULL : *attest_string(from, r);
        json_t *section = json_object_get(o, r->section);

        if (r->kind != NUMBER && !string)
            continue;
        if (!section) {
            section = json_object();
            json_object_set_new(o, r->section, section);
        }
        json_object_set_new(section, r->key,
                            r->kind == NUMBER ? json_integer(*attest_number(from, r))
                                              : json_string(string));
    }
    text = json_dumps(o, JSON_INDENT(1));
    json_decref(o);
    ASSERT(text);
    line = xasprintf("%s\n", text);
    free(text);
    return line;
}

/* ---- reading ---- */

int attest_read_file(const char *path, char **out, size_t *len, struct err *err)
{
    int64_t n_bytes;
    void *data = NULL;
    int fd, rc = file_open(path, &fd, &n_bytes, err);

    if (rc < 0)
        return rc;
    if (n_bytes > ATTEST_MOST_BYTES)
        rc = err_set(err, ERR_CORRUPT, "%s: %lld bytes, want at most %d", path, (long long)n_bytes,
                     ATTEST_MOST_BYTES);
    if (rc == 0)
        rc = try_alloc(&data, (size_t)n_bytes + 1, path, err);
    if (rc == 0)
        rc = file_read_at(fd, path, data, (size_t)n_bytes, 0, err);
    close(fd);
    if (rc < 0) {
        free(data);
        return rc;
    }
    ((char *)data)[n_bytes] = 0;
    *out = data;
    *len = (size_t)n_bytes;
    return 0;
}

static int attest_is_hex(const char *text, size_t n_digits)
{
    return strlen(text) == n_digits && strspn(text, "0123456789abcdef") == n_digits;
}

static int attest_is_line(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return 0;
    return 1;
}

static int attest_take(struct attest *a, const struct attest_row *r, const json_t *o,
                       struct err *err)
{
    const json_t *v = json_object_get(json_object_get(o, r->section), r->key);
    const char *text = json_string_value(v);
    const json_int_t number = json_integer_value(v);

    if (!v && r->may_lack)
        return 0;
    if (r->kind == NUMBER && json_is_integer(v) && number >= 0 && number < INT64_MAX / 4) {
        *attest_number(a, r) = number;
        return 0;
    }
    if (text && (r->kind == TEXT || (r->kind == LINE && attest_is_line(text)) ||
                 (r->kind == HEX && attest_is_hex(text, r->n_digits)))) {
        *attest_string(a, r) = xstrdup(text);
        return 0;
    }
    if (r->kind == HEX)
        return err_set(err, ERR_CORRUPT, "%s.%s: want %zu hex digits", r->section, r->key,
                       r->n_digits);
    return err_set(err, ERR_CORRUPT, "%s.%s: want a %s", r->section, r->key,
                   r->kind == NUMBER ? "number, 0 or more"
                   : r->kind == LINE ? "line of printable ASCII"
                                     : "text");
}

int attest_parse(const char *text, size_t len, struct attest *out, struct err *err)
{
    json_error_t why;
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    const json_int_t format = json_integer_value(json_object_get(o, "format"));
    int rc = 0;

    *out = (struct attest){0};
    if (!o)
        return err_set(err, ERR_CORRUPT, "line %d: %s", why.line, why.text);
    if (format != FORMAT)
        rc = err_set(err, ERR_CORRUPT, "format is %lld, want %d", (long long)format, FORMAT);
    for (size_t i = 0; i < ARRAY_LEN(attest_rows) && rc == 0; i++)
        rc = attest_take(out, &attest_rows[i], o, err);
    json_decref(o);
    if (rc < 0)
        attest_fini(out);
    return rc;
}

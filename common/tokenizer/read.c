/* read - tokenizer.json: the file, its model, and the tokens that are added to it.
 *
 * The happy path: load the JSON; read normalizers and pre-tokenizers, since these say if the model
 * is one of bytes; then the vocabulary, the merges, the added tokens, and what comes afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

enum { MOST_FILE = 1 << 30, MOST_MERGES = 1 << 26, MOST_TEXT = 1 << 16 };

/* ---- texts and numbers ---- */

const char *tokenizer_text(const json_t *object, const char *key, size_t *len)
{
    const json_t *const j = json_object_get(object, key);

    *len = json_string_length(j);
    return json_string_value(j);
}

static int read_grow_texts(struct tokenizer *t, int64_t number, struct err *err)
{
    const int64_t room = max_i64(number + 1, max_i64(2 * t->room_texts, 1024));

    if (number < t->room_texts)
        return 0;
    if (try_realloc((void **)&t->text, (size_t)room * sizeof *t->text, "a vocabulary", err) < 0)
        return err->code;
    memset(t->text + t->room_texts, 0, (size_t)(room - t->room_texts) * sizeof *t->text);
    t->room_texts = room;
    return 0;
}

/* Keep a token.  *at: its text, in the arena. */
static int read_token(struct tokenizer *t, const char *text, size_t len, json_int_t number,
                      const char **at, struct err *err)
{
    if (number < 0 || number >= TOKENIZER_MOST_TOKENS)
        return err_set(err, ERR_CORRUPT, "token \"%.40s\" has the number %lld, want 0 to %d", text,
                       (long long)number, TOKENIZER_MOST_TOKENS - 1);
    if (len > MOST_TEXT)
        return err_set(err, ERR_CORRUPT, "token %lld has %zu bytes, want at most %d",
                       (long long)number, len, MOST_TEXT);
    *at = arena_copy(&t->arena, text, len + 1);
    if (read_grow_texts(t, number, err) < 0 ||
        vocab_add(&t->vocab, *at, len, (int32_t)number, err) < 0)
        return err->code;
    t->text[number] = (struct token_text){*at, (uint32_t)len, 0};
    t->n_texts = max_i64(t->n_texts, number + 1);
    return 0;
}

static int read_vocab(struct tokenizer *t, const json_t *model, struct err *err)
{
    json_t *const vocab = json_object_get(model, "vocab");
    const char *at;

    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return err_set(err, ERR_CORRUPT, "model.vocab is no mapping from texts to numbers");
    for (void *i = json_object_iter(vocab); i; i = json_object_iter_next(vocab, i)) {
        const json_t *const number = json_object_iter_value(i);

        if (!json_is_integer(number))
            return err_set(err, ERR_CORRUPT, "model.vocab: \"%.40s\" has no whole number",
                           json_object_iter_key(i));
        if (read_token(t, json_object_iter_key(i), json_object_iter_key_len(i),
                       json_integer_value(number), &at, err) < 0)
            return err_wrap(err, "model.vocab");
    }
    t->n_model = t->vocab.n;
    return 0;
}

/* ---- merges ---- */

struct read_side {
    const char *text;
    size_t len;
};

/* The two sides of a merge: ["a", "b"], or "a b". */
static int read_sides(const json_t *j, struct read_side side[2])
{
    const char *const whole = json_string_value(j);
    const size_t len = json_string_length(j);
    const char *const space = whole ? memchr(whole, ' ', len) : NULL;

    if (space) {
        side[0] = (struct read_side){whole, (size_t)(space - whole)};
        side[1] = (struct read_side){space + 1, len - side[0].len - 1};
        return !memchr(side[1].text, ' ', side[1].len);
    }
    for (size_t k = 0; k < 2; k++) {
        const json_t *const one = json_array_get(j, k);

        side[k] = (struct read_side){json_string_value(one), json_string_length(one)};
    }
    return json_array_size(j) == 2 && side[0].text && side[1].text;
}

static int32_t read_side_number(const struct tokenizer *t, const struct read_side *side, size_t i,
                                struct err *err)
{
    const int32_t number = vocab_find(&t->vocab, side->text, side->len);

    if (number < 0)
        (void)err_set(err, ERR_CORRUPT,
                      "model.merges: item %zu has \"%.*s\", which is not in model.vocab", i,
                      (int)side->len, side->text);
    return number;
}

static int read_merge(struct tokenizer *t, const json_t *j, size_t i, struct buf *both,
                      struct err *err)
{
    struct read_side side[2], whole;
    int32_t number[3];

    if (!read_sides(j, side))
        return err_set(err, ERR_CORRUPT,
                       "model.merges: item %zu is no pair of texts, [\"a\", \"b\"] or \"a b\"", i);
    buf_clear(both);
    buf_append(both, side[0].text, side[0].len);
    buf_append(both, side[1].text, side[1].len);
    whole = (struct read_side){(const char *)both->data, both->len};
    for (int k = 0; k < 3; k++) {
        number[k] = read_side_number(t, k < 2 ? &side[k] : &whole, i, err);
        if (number[k] < 0)
            return err->code;
    }
    pairs_put(&t->pairs, number[0], number[1], (int32_t)i, number[2]);
    return 0;
}

static int read_merges(struct tokenizer *t, const json_t *model, struct err *err)
{
    const json_t *const merges = json_object_get(model, "merges");
    const size_t n = json_array_size(merges);
    const int is_text = json_is_string(json_array_get(merges, 0));
    struct buf both = {0};
    int rc = 0;

    if (!json_is_array(merges) || n > MOST_MERGES)
        return err_set(err, ERR_CORRUPT, "model.merges is no list of at most %d pairs",
                       MOST_MERGES);
    rc = pairs_init(&t->pairs, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *const j = json_array_get(merges, i);

        rc = json_is_string(j) == is_text
                 ? read_merge(t, j, i, &both, err)
                 : err_set(err, ERR_CORRUPT,
                           "model.merges: item %zu is of another form than item 0", i);
    }
    buf_fini(&both);
    return rc;
}

/* ---- the model ---- */

static const char mark[] = "\xe2\x96\x81"; /* U+2581 */

/* 1: the mark follows another character in the text. */
static int read_has_inner_mark(const char *s, size_t n)
{
    int other = 0;

    for (size_t at = 0; at < n; at += utf8_len(s[at])) {
        const int is_mark = utf8_len(s[at]) == 3 && !memcmp(s + at, mark, 3);

        if (is_mark && other)
            return 1;
        other |= !is_mark;
    }
    return 0;
}

static int read_may_cut(const struct tokenizer *t)
{
    if (t->is_bytes || t->whole.n || vocab_find(&t->vocab, mark, 3) < 0)
        return 0;
    for (size_t i = 0; i < t->pairs.n_slots; i++) {
        const struct pair *const p = &t->pairs.slot[i];

        if (p->key != UINT64_MAX &&
            read_has_inner_mark(t->text[p->number].text, t->text[p->number].len))
            return 0;
    }
    return 1;
}

static int read_bytes(struct tokenizer *t)
{
    int n_missing = 0;

    for (int b = 0; b < 256; b++) {
        char text[8];
        const size_t len = t->is_bytes
                               ? utf8_write(tokenizer_char_of_byte((uint8_t)b), text)
                               : (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);

        t->byte[b] = vocab_find(&t->vocab, text, len);
        n_missing += t->byte[b] < 0;
    }
    return n_missing;
}

/* The tokens that a piece may be as a whole, by their bytes. */
static int read_whole(struct tokenizer *t, struct err *err)
{
    struct buf bytes = {0};

    for (int64_t i = 0; i < t->n_texts; i++) {
        const struct token_text *const text = &t->text[i];
        int is_piece = text->text != NULL;

        buf_clear(&bytes);
        for (size_t at = 0; is_piece && at < text->len; at += utf8_len(text->text[at])) {
            const int byte = tokenizer_byte_of_char(utf8_code(text->text + at));

            if (!t->is_bytes)
                buf_append(&bytes, text->text + at, utf8_len(text->text[at]));
            else if (byte >= 0)
                buf_append(&bytes, &(uint8_t){(uint8_t)byte}, 1);
            is_piece = !t->is_bytes || byte >= 0;
        }
        if (is_piece && bytes.len > 0 &&
            vocab_add(&t->whole, arena_copy(&t->arena, bytes.data, bytes.len), bytes.len,
                      (int32_t)i, err) < 0)
            break;
    }
    buf_fini(&bytes);
    return err->code < 0 ? err->code : 0;
}

static int read_unknown(struct tokenizer *t, const json_t *model, int n_missing, struct err *err)
{
    size_t len;
    const char *const text = tokenizer_text(model, "unk_token", &len);

    t->unknown = text ? vocab_find(&t->vocab, text, len) : -1;
    if (text && t->unknown < 0 && n_missing > 0)
        return err_set(err, ERR_CORRUPT,
                       "model.unk_token is \"%.40s\", which is not in model.vocab", text);
    return 0;
}

static int read_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* Refuse what changes numbers and is not known. */
static int read_model_keys(const json_t *model, struct err *err)
{
    static const char *const known[] = {"type",     "vocab",         "merges",        "unk_token",
                                        "fuse_unk", "byte_fallback", "ignore_merges", NULL};
    static const char *const kinds[] = {"Unigram", "WordPiece", "WordLevel"};
    const char *const type = json_string_value(json_object_get(model, "type"));
    const char *key;
    json_t *value;

    for (size_t i = 0; type && i < ARRAY_LEN(kinds); i++)
        if (!strcmp(type, kinds[i]))
            return err_set(err, ERR_CONFIG,
                           "model.type %s is not supported, want BPE (byte pair encoding); the "
                           "text can be tokenized elsewhere, for data.format: tokens",
                           type);
    if (type && strcmp(type, "BPE") != 0)
        return err_set(err, ERR_CONFIG, "model.type is \"%.40s\", want BPE", type);
    json_object_foreach((json_t *)(uintptr_t)model, key, value)
    {
        int i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && !json_is_null(value) && !json_is_false(value) &&
            !(json_is_string(value) && json_string_length(value) == 0) &&
            !(json_is_number(value) && json_number_value(value) == 0))
            return err_set(err, ERR_CONFIG, "model.%.40s is set, which is not supported", key);
    }
    return 0;
}

static int read_model(struct tokenizer *t, const json_t *model, struct err *err)
{
    int n_missing, rc;

    if (!json_is_object(model))
        return err_set(err, ERR_CORRUPT, "there is no mapping \"model\"; is it a tokenizer.json?");
    rc = read_model_keys(model, err);
    if (rc == 0)
        rc = read_vocab(t, model, err);
    if (rc == 0)
        rc = read_merges(t, model, err);
    if (rc < 0)
        return rc;
    t->has_fallback = read_true(model, "byte_fallback") && !t->is_bytes;
    t->fuses_unknown = read_true(model, "fuse_unk");
    n_missing = read_bytes(t);
    if (read_unknown(t, model, t->is_bytes || t->has_fallback ? n_missing : 1, err) < 0)
        return err->code;
    if (read_true(model, "ignore_merges") && read_whole(t, err) < 0)
        return err->code;
    t->cuts_at_mark = read_may_cut(t);
    return 0;
}

/* ---- added tokens ---- */

/* The number that the library gives to a token which the model does not have: it ignores the one in
 * the file. */
static int64_t read_free_number(const struct tokenizer *t, int64_t highest_added)
{
    return max_i64(highest_added + 1, (int64_t)t->n_model);
}

static int take_text(void *arg, const char *s, size_t n)
{
    buf_append(arg, s, n);
    return 0;
}

/* Those that are looked for in normalized text are normalized, too. */
static int read_added_text(struct tokenizer *t, struct added_token *a, int is_normalized,
                           struct err *err)
{
    struct tokenizer_work *w;
    const char *s = a->text;
    size_t n = a->len;

    if (!is_normalized || t->n_normal == 0)
        return 0;
    w = tokenizer_work_new(t);
    if (normal_apply(w, &s, &n, err) == 0) {
        struct buf b = {0};

        (void)take_text(&b, s, n);
        a->text = arena_copy(&t->arena, b.data, b.len);
        a->len = b.len;
        buf_fini(&b);
    }
    tokenizer_work_free(w);
    return err->code < 0 ? err->code : 0;
}

static int read_added_one(struct tokenizer *t, const json_t *j, int64_t *highest, struct err *err)
{
    const int is_normalized = read_true(j, "normalized");
    struct added_tokens *const list = is_normalized ? &t->normalized : &t->raw;
    const json_t *const number = json_object_get(j, "id");
    struct added_token a = {.is_single_word = read_true(j, "single_word"),
                            .takes_left = read_true(j, "lstrip"),
                            .takes_right = read_true(j, "rstrip")};
    const char *const text = tokenizer_text(j, "content", &a.len);

    if (!text || a.len == 0 || !json_is_integer(number))
        return err_set(err, ERR_CORRUPT, "it has no text \"content\" or no number \"id\"");
    a.number = vocab_find(&t->vocab, text, a.len);
    a.text = text;
    if (a.number < 0) {
        a.number = (int32_t)read_free_number(t, *highest);
        if (a.number != json_integer_value(number))
            log_warn("tokenizer: token \"%.40s\" has the id %lld in the file, but is number %d, "
                     "which the tokenizers library gives it",
                     text, (long long)json_integer_value(number), (int)a.number);
        if (read_token(t, text, a.len, a.number, &a.text, err) < 0)
            return err->code;
    } else {
        a.text = t->text[a.number].text;
    }
    *highest = max_i64(*highest, a.number);
    t->text[a.number].is_special = read_true(j, "special");
    if (read_added_text(t, &a, is_normalized, err) < 0 || a.len == 0)
        return err->code < 0 ? err->code : 0;
    list->token[list->n++] = a;
    return 0;
}

static int read_added(struct tokenizer *t, const json_t *added, struct err *err)
{
    const size_t n = json_array_size(added);
    int64_t highest = -1;

    t->raw.token = arena_alloc(&t->arena, (n + 1) * sizeof *t->raw.token);
    t->normalized.token = arena_alloc(&t->arena, (n + 1) * sizeof *t->normalized.token);
    for (size_t i = 0; i < n; i++)
        if (read_added_one(t, json_array_get(added, i), &highest, err) < 0)
            return err_wrap(err, "added_tokens: item %zu", i);
    added_index(&t->raw);
    added_index(&t->normalized);
    return 0;
}

/* ---- the whole ---- */

/* The post-processor adds tokens of the file alone. */
static int read_check_around(const struct tokenizer *t, const int32_t *token, size_t n,
                             struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (token[i] >= t->n_texts || !t->text[token[i]].text)
            return err_set(
                err, ERR_CORRUPT,
                "post_processor: number %d is no token's, of model.vocab or added_tokens",
                (int)token[i]);
    return 0;
}

static int tokenizer_read_root(struct tokenizer *t, const json_t *root, struct err *err)
{
    const char *const version = json_string_value(json_object_get(root, "version"));
    int rc;

    if (!json_is_object(root))
        return err_set(err, ERR_CORRUPT, "it is no mapping; is it a tokenizer.json?");
    if (version && strcmp(version, "1.0") != 0)
        return err_set(err, ERR_CONFIG, "version is \"%.40s\", want \"1.0\"", version);
    rc = tokenizer_read_parts(t, root, err);
    if (rc == 0)
        rc = read_model(t, json_object_get(root, "model"), err);
    if (rc == 0)
        rc = read_added(t, json_object_get(root, "added_tokens"), err);
    if (rc == 0)
        rc = read_check_around(t, t->before, t->n_before, err);
    return rc == 0 ? read_check_around(t, t->after, t->n_after, err) : rc;
}

int tokenizer_parse(struct tokenizer **out, const char *text, size_t n, struct err *err)
{
    struct tokenizer *const t = xcalloc(1, sizeof *t);
    json_error_t at;
    json_t *const root = json_loadb(text, n, JSON_ALLOW_NUL, &at);
    int rc;

    err->code = 0;
    t->hash = hash_of(text, n);
    rc = root ? tokenizer_read_root(t, root, err)
              : err_set(err, ERR_CORRUPT, "line %d, column %d: %s; want a tokenizer.json, whole",
                        at.line, at.column, at.text);
    json_decref(root);
    if (rc < 0)
        tokenizer_free(t);
    else
        *out = t;
    return rc;
}

static int read_file(int fd, char **bytes, size_t *n, struct err *err)
{
    struct stat st;
    size_t got = 0;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "reading it");
    if (!S_ISREG(st.st_mode) || st.st_size > MOST_FILE)
        return err_set(err, ERR_ARG, "it is no regular file of at most %d bytes", MOST_FILE);
    *n = (size_t)st.st_size;
    if (try_realloc((void **)bytes, *n + 1, "a tokenizer.json", err) < 0)
        return err->code;
    while (got < *n) {
        const ssize_t len = read(fd, *bytes + got, *n - got);

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno, "reading it");
        if (len == 0)
            return err_set(err, ERR_CORRUPT, "it became shorter while it was read");
        got += (size_t)len;
    }
    return 0;
}

int tokenizer_read(struct tokenizer **out, const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is no reason to wait */
    char *bytes = NULL;
    size_t n = 0;
    int rc;

    if (fd < 0)
        return err_sys(err, errno, "file %s (of data.tokenizer)", path);
    rc = read_file(fd, &bytes, &n, err);
    close(fd);
    if (rc == 0)
        rc = tokenizer_parse(out, bytes, n, err);
    free(bytes);
    return rc < 0 ? err_wrap(err, "%s", path) : 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_normal; i++)
        pattern_free(t->normal[i].pattern);
    for (int i = 0; i < t->n_piece; i++)
        pattern_free(t->piece[i].pattern);
    for (int i = 0; i < t->n_decode; i++)
        pattern_free(t->decode[i].pattern);
    pairs_fini(&t->pairs);
    vocab_fini(&t->vocab);
    vocab_fini(&t->whole);
    free(t->text);
    arena_fini(&t->arena);
    free(t);
}

int64_t tokenizer_vocab(const struct tokenizer *t) { return t->n_texts; }

int32_t tokenizer_number(const struct tokenizer *t, const char *text)
{
    return vocab_find(&t->vocab, text, strlen(text));
}

struct hash128 tokenizer_hash(const struct tokenizer *t) { return t->hash; }

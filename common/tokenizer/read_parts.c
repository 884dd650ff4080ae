/* read_parts - the steps of a tokenizer.json: normalizers, pre-tokenizers, the post-processor and
 * decoders.  Each is a mapping with a type, and a Sequence is a list of them; a table says which
 * types there are. */
#include <string.h>

#include <utf8proc.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

/* The expression of ByteLevel, GPT-2's. */
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct part_type {
    const char *name;
    int (*read)(struct tokenizer *t, const json_t *part, struct err *err);
};

/* A kind of steps: its member in the file, and in a Sequence; its types. */
struct part_kind {
    const char *key, *list;
    const struct part_type *type; /* a NULL name at the end */
};

static int part_names(const struct part_type *type, char *to, size_t room)
{
    size_t len = 0;

    for (; type->name && len < room; type++)
        len += (size_t)snprintf(to + len, room - len, "%s, ", type->name);
    return len < room;
}

static int part_read_any(struct tokenizer *t, const struct part_kind *kind, const json_t *part,
                         int depth, struct err *err)
{
    const char *const name = json_string_value(json_object_get(part, "type"));
    const json_t *const list = json_object_get(part, kind->list);
    char names[256];

    if (!name)
        return err_set(err, ERR_CORRUPT, "it has no text \"type\"");
    if (!strcmp(name, "Sequence") && json_is_array(list) && depth < 4) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (part_read_any(t, kind, json_array_get(list, i), depth + 1, err) < 0)
                return err->code;
        return 0;
    }
    for (const struct part_type *type = kind->type; type->name; type++)
        if (!strcmp(type->name, name))
            return type->read(t, part, err) < 0 ? err_wrap(err, "%s", name) : 0;
    (void)part_names(kind->type, names, sizeof names);
    return err_set(err, ERR_CONFIG, "%.40s is not supported, want %sor a Sequence of them", name,
                   names);
}

static int part_read(struct tokenizer *t, const struct part_kind *kind, const json_t *root,
                     struct err *err)
{
    const json_t *const part = json_object_get(root, kind->key);

    if (!part || json_is_null(part))
        return 0;
    return part_read_any(t, kind, part, 0, err) < 0 ? err_wrap(err, "%s", kind->key) : 0;
}

/* Room for one more step. */
static int part_next(int n, struct err *err)
{
    return n < TOKENIZER_MOST_STEPS
               ? 0
               : err_set(err, ERR_CONFIG, "more than %d steps, which is not supported",
                         TOKENIZER_MOST_STEPS);
}

/* The text `key`, in the arena. */
static int part_text(struct tokenizer *t, const json_t *part, const char *key, const char **text,
                     size_t *len, struct err *err)
{
    const char *const s = tokenizer_text(part, key, len);

    if (!s)
        return err_set(err, ERR_CORRUPT, "it has no text \"%s\"", key);
    *text = arena_copy(&t->arena, s, *len + 1);
    return 0;
}

/* {"Regex": "..."}, {"String": "..."}, or the text alone.  *text: that of a String. */
static int part_pattern(const json_t *part, struct pattern **out, const char **text, size_t *len,
                        struct err *err)
{
    const json_t *const pattern = json_object_get(part, "pattern");
    const char *const regex = tokenizer_text(pattern, "Regex", len);

    *text = NULL;
    if (regex)
        return pattern_new(out, regex, *len, 0, err);
    *text = json_is_string(pattern) ? tokenizer_text(part, "pattern", len)
                                    : tokenizer_text(pattern, "String", len);
    if (!*text)
        return err_set(err, ERR_CORRUPT, "it has no \"pattern\" with a Regex or a String");
    return pattern_new(out, *text, *len, 1, err);
}

static int part_bool(const json_t *part, const char *key, int missing)
{
    const json_t *const j = json_object_get(part, key);

    return json_is_boolean(j) ? json_is_true(j) : missing;
}

/* ---- normalizers ---- */

static int normal_add_form(struct tokenizer *t, int form, struct err *err)
{
    if (part_next(t->n_normal, err) < 0)
        return err->code;
    t->normal[t->n_normal++] =
        (struct normal_step){.kind = NORMAL_FORM, .form = form | UTF8PROC_STABLE, .byte = -1};
    return 0;
}

static int normal_read_nfc(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return normal_add_form(t, UTF8PROC_COMPOSE, err);
}

static int normal_read_nfd(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return normal_add_form(t, UTF8PROC_DECOMPOSE, err);
}

static int normal_read_nfkc(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return normal_add_form(t, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, err);
}

static int normal_read_nfkd(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return normal_add_form(t, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, err);
}

static int normal_read_prepend(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct normal_step p = {.kind = NORMAL_PREPEND, .byte = -1};

    if (part_next(t->n_normal, err) < 0 || part_text(t, part, "prepend", &p.text, &p.len, err) < 0)
        return err->code;
    t->normal[t->n_normal++] = p;
    return 0;
}

static int normal_read_replace(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct normal_step p = {.kind = NORMAL_REPLACE, .byte = -1};
    const char *literal;
    size_t len;

    if (part_next(t->n_normal, err) < 0 ||
        part_text(t, part, "content", &p.text, &p.len, err) < 0 ||
        part_pattern(part, &p.pattern, &literal, &len, err) < 0)
        return err->code;
    if (literal && len == 1)
        p.byte = (uint8_t)literal[0];
    t->normal[t->n_normal++] = p;
    return 0;
}

static const struct part_type normal_types[] = {{"NFC", normal_read_nfc},
                                                {"NFD", normal_read_nfd},
                                                {"NFKC", normal_read_nfkc},
                                                {"NFKD", normal_read_nfkd},
                                                {"Prepend", normal_read_prepend},
                                                {"Replace", normal_read_replace},
                                                {NULL, NULL}};

/* ---- pre-tokenizers ---- */

/* A cut by an expression of ours, or by the text of a Metaspace. */
static int piece_add_split(struct tokenizer *t, const char *text, int is_literal,
                           enum piece_behavior behavior, int is_inverted, struct err *err)
{
    struct piece_step p = {.kind = PIECE_SPLIT, .behavior = behavior, .is_inverted = is_inverted};

    if (part_next(t->n_piece, err) < 0 ||
        pattern_new(&p.pattern, text, strlen(text), is_literal, err) < 0)
        return err->code;
    t->piece[t->n_piece++] = p;
    return 0;
}

static int piece_check_bytes(const struct tokenizer *t, struct err *err)
{
    return t->is_bytes ? err_set(err, ERR_CONFIG, "behind ByteLevel it is not supported") : 0;
}

static int piece_read_bytes(struct tokenizer *t, const json_t *part, struct err *err)
{
    if (piece_check_bytes(t, err) < 0)
        return err->code;
    if (part_bool(part, "add_prefix_space", 1)) {
        if (part_next(t->n_piece, err) < 0)
            return err->code;
        t->piece[t->n_piece++] = (struct piece_step){.kind = PIECE_PREFIX, .text = " ", .len = 1};
    }
    if (part_bool(part, "use_regex", 1) && piece_add_split(t, gpt2, 0, PIECE_ISOLATED, 0, err) < 0)
        return err->code;
    t->is_bytes = 1;
    return 0;
}

static int piece_behavior_named(const char *name)
{
    static const char *const names[] = {[PIECE_REMOVED] = "Removed",
                                        [PIECE_ISOLATED] = "Isolated",
                                        [PIECE_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [PIECE_WITH_NEXT] = "MergedWithNext",
                                        [PIECE_CONTIGUOUS] = "Contiguous"};

    for (int i = 0; name && i < (int)ARRAY_LEN(names); i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

static int piece_read_split(struct tokenizer *t, const json_t *part, struct err *err)
{
    const char *const name = json_string_value(json_object_get(part, "behavior")), *literal;
    const int behavior = piece_behavior_named(name);
    struct piece_step p = {.kind = PIECE_SPLIT, .is_inverted = part_bool(part, "invert", 0)};
    size_t len;

    if (behavior < 0)
        return err_set(err, ERR_CORRUPT,
                       "behavior is \"%.40s\", want Removed, Isolated, MergedWithPrevious, "
                       "MergedWithNext or Contiguous",
                       name ? name : "");
    if (piece_check_bytes(t, err) < 0 || part_next(t->n_piece, err) < 0 ||
        part_pattern(part, &p.pattern, &literal, &len, err) < 0)
        return err->code;
    p.behavior = (enum piece_behavior)behavior;
    t->piece[t->n_piece++] = p;
    return 0;
}

static int piece_read_digits(struct tokenizer *t, const json_t *part, struct err *err)
{
    if (piece_check_bytes(t, err) < 0)
        return err->code;
    return piece_add_split(
        t, "\\p{N}", 0, part_bool(part, "individual_digits", 0) ? PIECE_ISOLATED : PIECE_CONTIGUOUS,
        0, err);
}

static int piece_read_white(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    if (piece_check_bytes(t, err) < 0)
        return err->code;
    return piece_add_split(t, "\\s+", 0, PIECE_REMOVED, 0, err);
}

static int piece_read_words(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    if (piece_check_bytes(t, err) < 0)
        return err->code;
    return piece_add_split(t, "\\w+|[^\\w\\s]+", 0, PIECE_REMOVED, 1, err);
}

/* prepend_scheme, or add_prefix_space of older files. */
static int piece_prepend_named(const json_t *part, struct err *err)
{
    const char *const name = json_string_value(json_object_get(part, "prepend_scheme"));
    const int prefix = part_bool(part, "add_prefix_space", 1);

    if (!name || !strcmp(name, "always"))
        return name || prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!strcmp(name, "first"))
        return PREPEND_FIRST;
    if (!strcmp(name, "never"))
        return PREPEND_NEVER;
    return err_set(err, ERR_CORRUPT, "prepend_scheme is \"%.40s\", want always, first or never",
                   name);
}

static int piece_read_spaces(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct piece_step p = {.kind = PIECE_SPACES};
    const int prepend = piece_prepend_named(part, err);

    if (prepend < 0 || piece_check_bytes(t, err) < 0 || part_next(t->n_piece, err) < 0 ||
        part_text(t, part, "replacement", &p.text, &p.len, err) < 0)
        return err->code;
    p.prepend = (enum piece_prepend)prepend;
    t->piece[t->n_piece++] = p;
    return part_bool(part, "split", 1) ? piece_add_split(t, p.text, 1, PIECE_WITH_NEXT, 0, err) : 0;
}

static const struct part_type piece_types[] = {{"ByteLevel", piece_read_bytes},
                                               {"Split", piece_read_split},
                                               {"Digits", piece_read_digits},
                                               {"Metaspace", piece_read_spaces},
                                               {"Whitespace", piece_read_words},
                                               {"WhitespaceSplit", piece_read_white},
                                               {NULL, NULL}};

/* ---- the post-processor ---- */

static int post_read_bytes(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)t, (void)part, (void)err; /* it changes offsets alone */
    return 0;
}

/* Append the tokens of one special token of a template. */
static int post_add_special(struct buf *to, const json_t *part, const char *name, struct err *err)
{
    const json_t *const special = json_object_get(json_object_get(part, "special_tokens"), name);
    const json_t *const ids = json_object_get(special, "ids");

    if (!json_is_array(ids))
        return err_set(err, ERR_CORRUPT, "special_tokens has no list ids for \"%.40s\"", name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));

        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id >= TOKENIZER_MOST_TOKENS)
            return err_set(err, ERR_CORRUPT, "special_tokens: \"%.40s\" has an id that is no token",
                           name);
        buf_append(to, &(int32_t){(int32_t)id}, sizeof(int32_t));
    }
    return 0;
}

static int post_read_items(const json_t *part, struct buf side[2], struct err *err)
{
    const json_t *const single = json_object_get(part, "single");
    int n_texts = 0;

    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *const item = json_array_get(single, i);
        const json_t *const special = json_object_get(item, "SpecialToken");
        const char *const name = json_string_value(json_object_get(special, "id"));

        if (name && post_add_special(&side[n_texts > 0], part, name, err) < 0)
            return err->code;
        n_texts += !name;
    }
    return n_texts == 1
               ? 0
               : err_set(err, ERR_CONFIG, "single has the text %d times, want once", n_texts);
}

/* Of several post-processors each goes around what those before it made. */
static int post_keep(struct tokenizer *t, const struct buf side[2])
{
    int32_t *const before = arena_alloc(&t->arena, side[0].len + t->n_before * sizeof *before + 4);
    int32_t *const after = arena_alloc(&t->arena, side[1].len + t->n_after * sizeof *after + 4);
    const size_t n[2] = {side[0].len / sizeof *before, side[1].len / sizeof *after};

    for (size_t i = 0; i < n[0]; i++)
        before[i] = ((const int32_t *)side[0].data)[i];
    for (size_t i = 0; i < t->n_before; i++)
        before[n[0] + i] = t->before[i];
    for (size_t i = 0; i < t->n_after; i++)
        after[i] = t->after[i];
    for (size_t i = 0; i < n[1]; i++)
        after[t->n_after + i] = ((const int32_t *)side[1].data)[i];
    t->before = before;
    t->after = after;
    t->n_before += n[0];
    t->n_after += n[1];
    return 0;
}

static int post_read_template(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct buf side[2] = {0};
    int rc = post_read_items(part, side, err);

    if (rc == 0)
        rc = post_keep(t, side);
    buf_fini(&side[0]);
    buf_fini(&side[1]);
    return rc;
}

static const struct part_type post_types[] = {
    {"ByteLevel", post_read_bytes}, {"TemplateProcessing", post_read_template}, {NULL, NULL}};

/* ---- decoders ---- */

static int decode_add(struct tokenizer *t, enum decode_kind kind, struct err *err)
{
    if (part_next(t->n_decode, err) < 0)
        return err->code;
    t->decode[t->n_decode++] = (struct decode_step){.kind = kind};
    return 0;
}

static int decode_read_bytes(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return decode_add(t, DECODE_BYTES, err);
}

static int decode_read_fallback(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return decode_add(t, DECODE_FALLBACK, err);
}

static int decode_read_fuse(struct tokenizer *t, const json_t *part, struct err *err)
{
    (void)part;
    return decode_add(t, DECODE_FUSE, err);
}

static int decode_read_replace(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct decode_step d = {.kind = DECODE_REPLACE};
    const char *literal;
    size_t len;

    if (part_next(t->n_decode, err) < 0 ||
        part_text(t, part, "content", &d.text, &d.len, err) < 0 ||
        part_pattern(part, &d.pattern, &literal, &len, err) < 0)
        return err->code;
    t->decode[t->n_decode++] = d;
    return 0;
}

static int decode_read_strip(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct decode_step d = {.kind = DECODE_STRIP};

    if (part_next(t->n_decode, err) < 0 || part_text(t, part, "content", &d.text, &d.len, err) < 0)
        return err->code;
    if (d.len == 0)
        return err_set(err, ERR_CORRUPT, "content is empty, want a character");
    d.n_start = json_integer_value(json_object_get(part, "start"));
    d.n_stop = json_integer_value(json_object_get(part, "stop"));
    t->decode[t->n_decode++] = d;
    return 0;
}

static int decode_read_spaces(struct tokenizer *t, const json_t *part, struct err *err)
{
    struct decode_step d = {.kind = DECODE_SPACES};
    const int prepend = piece_prepend_named(part, err);

    if (prepend < 0 || part_next(t->n_decode, err) < 0 ||
        part_text(t, part, "replacement", &d.text, &d.len, err) < 0)
        return err->code;
    if (d.len == 0)
        return err_set(err, ERR_CORRUPT, "replacement is empty, want a character");
    d.drops_first = prepend != PREPEND_NEVER;
    t->decode[t->n_decode++] = d;
    return 0;
}

static const struct part_type decode_types[] = {{"ByteLevel", decode_read_bytes},
                                                {"ByteFallback", decode_read_fallback},
                                                {"Fuse", decode_read_fuse},
                                                {"Replace", decode_read_replace},
                                                {"Strip", decode_read_strip},
                                                {"Metaspace", decode_read_spaces},
                                                {NULL, NULL}};

/* ---- bytes as characters ---- */

static int part_byte_is_shown(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Bytes that are printable in Latin-1 stand for themselves, the others follow from U+0100 on. */
uint32_t tokenizer_char_of_byte(uint8_t byte)
{
    uint32_t code = 0x100;

    if (part_byte_is_shown(byte))
        return byte;
    for (int b = 0; b < byte; b++)
        code += !part_byte_is_shown(b);
    return code;
}

int tokenizer_byte_of_char(uint32_t code)
{
    uint32_t hidden = 0x100;

    if (code < 0x100)
        return part_byte_is_shown((int)code) ? (int)code : -1;
    for (int b = 0; b < 256; b++) {
        if (!part_byte_is_shown(b) && hidden == code)
            return b;
        hidden += !part_byte_is_shown(b);
    }
    return -1;
}

int tokenizer_read_parts(struct tokenizer *t, const json_t *root, struct err *err)
{
    static const struct part_kind kinds[] = {
        {"normalizer", "normalizers", normal_types},
        {"pre_tokenizer", "pretokenizers", piece_types},
        {"post_processor", "processors", post_types},
        {"decoder", "decoders", decode_types},
    };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (part_read(t, &kinds[i], root, err) < 0)
            return err->code;
    return 0;
}

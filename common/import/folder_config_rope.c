/* folder_config_rope - the rotary positions of config.json.
 *
 * Version 5 of transformers has rope_parameters, and in it an object for each type of layers, if
 * the types differ; version 4 has rope_theta, rope_local_base_freq and rope_scaling.  rope_scaling
 * wins over rope_parameters, as in transformers. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/folder_json.h"

static const char *const rope_keys[] = {"attention_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "rope_theta",
                                        "rope_type",
                                        "type",
                                        "factor",
                                        "long_factor",
                                        "short_factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "partial_rotary_factor",
                                        "original_max_position_embeddings",
                                        NULL};

static int rope_number(const struct config_read *r, const json_t *rope, const char *key, double *to)
{
    const json_t *v = json_object_get(rope, key);

    if (!json_is_number(v) || !(json_number_value(v) > 0) || !isfinite(json_number_value(v)))
        return config_bad(r, ERR_CONFIG, "rope_parameters: %s is %s, want a number above 0", key,
                          v ? "no such number" : "missing");
    *to = json_number_value(v);
    return 0;
}

/* As rope_number, of a key that may be missing, in which case *to stays. */
static int rope_optional(const struct config_read *r, const json_t *rope, const char *key,
                         double *to)
{
    const json_t *v = json_object_get(rope, key);

    return !v || json_is_null(v) ? 0 : rope_number(r, rope, key, to);
}

/* The bounds of the columns that are mixed. */
static int rope_bounds(const struct config_read *r, struct folder_rope *to, const char *low,
                       const char *high)
{
    return to->high > to->low
               ? 0
               : config_bad(r, ERR_CONFIG, "rope_parameters: %s is %g, want more than %s, %g", high,
                            to->high, low, to->low);
}

static int rope_read_plain(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    (void)r;
    (void)rope;
    (void)to;
    return 0;
}

static int rope_read_linear(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    return rope_number(r, rope, "factor", &to->factor);
}

/* Up to max_position_embeddings, beyond which no context goes, its factor changes nothing. */
static int rope_read_dynamic(const struct config_read *r, const json_t *rope,
                             struct folder_rope *to)
{
    double unused;

    (void)to;
    return rope_number(r, rope, "factor", &unused);
}

static int rope_read_llama3(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    to->kind = ROPE_LLAMA3;
    if (rope_number(r, rope, "factor", &to->factor) < 0 ||
        rope_number(r, rope, "low_freq_factor", &to->low) < 0 ||
        rope_number(r, rope, "high_freq_factor", &to->high) < 0 ||
        rope_number(r, rope, "original_max_position_embeddings", &to->positions) < 0)
        return r->err->code;
    return rope_bounds(r, to, "low_freq_factor", "high_freq_factor");
}

static int rope_read_yarn(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    to->kind = ROPE_YARN;
    to->low = 1;
    to->high = 32;
    if (rope_number(r, rope, "factor", &to->factor) < 0 ||
        rope_optional(r, rope, "beta_slow", &to->low) < 0 ||
        rope_optional(r, rope, "beta_fast", &to->high) < 0 ||
        rope_number(r, rope, "original_max_position_embeddings", &to->positions) < 0 ||
        rope_bounds(r, to, "beta_slow", "beta_fast") < 0)
        return r->err->code;
    to->scale = to->factor > 1 ? 0.1 * log(to->factor) + 1 : 1;
    return rope_optional(r, rope, "attention_factor", &to->scale);
}

/* The factors of a list, one for each column of half a head. */
static int rope_columns(const struct config_read *r, const json_t *rope, const char *key, float *to)
{
    const json_t *list = json_object_get(rope, key);
    const size_t n = (size_t)r->c->head_dim / 2;

    if (!json_is_array(list) || json_array_size(list) != n)
        return config_bad(r, ERR_CONFIG,
                          "rope_parameters: %s is no list of %lld numbers, half of head_dim", key,
                          (long long)n);
    for (size_t i = 0; i < n; i++) {
        const double v = json_number_value(json_array_get(list, i));

        if (!(v > 0) || !isfinite(v))
            return config_bad(r, ERR_CONFIG,
                              "rope_parameters: %s: element %lld is no number above 0", key,
                              (long long)i);
        to[i] = (float)v;
    }
    return 0;
}

/* The positions of pre-training may stand beside rope_parameters, as in Phi-3's files. */
static int rope_read_long(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    struct folder_config *c = r->c;
    double factor;

    to->kind = ROPE_LONG;
    to->positions = (double)c->positions;
    if (rope_columns(r, rope, "short_factor", c->column[0]) < 0 ||
        rope_columns(r, rope, "long_factor", c->column[1]) < 0 ||
        rope_optional(r, rope, "original_max_position_embeddings", &to->positions) < 0 ||
        rope_optional(r, r->root, "original_max_position_embeddings", &to->positions) < 0)
        return r->err->code;
    factor = (double)c->positions / to->positions;
    if (rope_optional(r, rope, "factor", &factor) < 0)
        return r->err->code;
    to->scale = factor > 1 ? sqrt(1 + log(factor) / log(to->positions)) : 1;
    return rope_optional(r, rope, "attention_factor", &to->scale);
}

static const struct {
    const char *type;
    int (*read)(const struct config_read *r, const json_t *rope, struct folder_rope *to);
} rope_types[] = {
    {"default", rope_read_plain}, {"linear", rope_read_linear}, {"dynamic", rope_read_dynamic},
    {"llama3", rope_read_llama3}, {"yarn", rope_read_yarn},     {"longrope", rope_read_long},
};

/* Numbers of the file may give logarithms of 1 or less, by which others are divided. */
static int rope_check(const struct config_read *r, const struct folder_rope *to)
{
    const int is_log = to->kind == ROPE_LONG || to->kind == ROPE_YARN;

    if (is_log && !(to->positions > 1))
        return config_bad(r, ERR_CONFIG,
                          "rope_parameters: original_max_position_embeddings is %g, want a number "
                          "above 1",
                          to->positions);
    if (!isfinite(to->scale) || !(to->scale > 0))
        return config_bad(r, ERR_CONFIG,
                          "rope_parameters: they scale positions by %g, want a number above 0",
                          to->scale);
    return 0;
}

static int rope_type(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    const json_t *v = json_object_get(rope, "rope_type");
    const char *type = "default";

    v = v ? v : json_object_get(rope, "type");
    if (v && !json_is_string(v))
        return config_bad(r, ERR_CONFIG, "rope_parameters: rope_type is no text");
    type = v ? json_string_value(v) : type;
    for (size_t i = 0; i < ARRAY_LEN(rope_types); i++)
        if (!strcmp(rope_types[i].type, type))
            return rope_types[i].read(r, rope, to) < 0 ? r->err->code : rope_check(r, to);
    return config_bad(r, ERR_UNSUPPORTED,
                      "rope_type %.40s is not supported; want default, linear, dynamic, llama3, "
                      "yarn or longrope, or export the network with torch.export.save",
                      type);
}

/* An object of rope_parameters, or rope_scaling. */
static int rope_object(const struct config_read *r, const json_t *rope, struct folder_rope *to)
{
    const json_t *part;
    const char *key;
    json_t *v;

    if (!rope || json_is_null(rope))
        return 0;
    if (!json_is_object(rope))
        return config_bad(r, ERR_CONFIG, "rope_parameters is no object");
    json_object_foreach((json_t *)(uintptr_t)rope, key, v)
    {
        if (!folder_is_in(rope_keys, key))
            return config_bad(r, ERR_UNSUPPORTED, "rope_parameters: key %.60s is not known", key);
    }
    if (rope_optional(r, rope, "rope_theta", &to->theta) < 0)
        return r->err->code;
    part = json_object_get(rope, "partial_rotary_factor");
    if (part && !json_is_null(part) && json_number_value(part) != 1)
        return config_bad(r, ERR_UNSUPPORTED,
                          "rope_parameters: partial_rotary_factor is %g, want 1: all columns turn",
                          json_number_value(part));
    return rope_type(r, rope, to);
}

/* rope_parameters with an object for each type of layers. */
static int rope_by_type(const struct config_read *r, const json_t *rope)
{
    static const char *const types[] = {"full_attention", "sliding_attention", NULL};
    const char *key;
    json_t *v;

    if (rope && !json_is_object(rope))
        return config_bad(r, ERR_CONFIG, "rope_parameters is no object");
    json_object_foreach((json_t *)(uintptr_t)rope, key, v)
    {
        if (!folder_is_in(types, key))
            return config_bad(r, ERR_UNSUPPORTED,
                              "rope_parameters: key %.60s is not known; want full_attention and "
                              "sliding_attention",
                              key);
    }
    for (int i = 0; i < 2; i++)
        if (rope_object(r, json_object_get(rope, types[i]), &r->c->rope[i]) < 0)
            return r->err->code;
    return 0;
}

int folder_config_rope(const struct config_read *r)
{
    struct folder_rope *rope = r->c->rope;
    const struct folder_family *family = r->c->family;
    const json_t *old = folder_key(r, "rope_scaling"), *new = folder_key(r, "rope_parameters");

    rope[0] = (struct folder_rope){.theta = family->theta, .factor = 1, .scale = 1};
    rope[1] = (struct folder_rope){.theta = family->sliding_theta, .factor = 1, .scale = 1};
    if (rope_optional(r, r->root, "rope_theta", &rope[0].theta) < 0 ||
        rope_optional(r, r->root, "rope_local_base_freq", &rope[1].theta) < 0)
        return r->err->code;
    if (family->sliding_theta == 0)
        return rope_object(r, old ? old : new, &rope[0]);
    if (rope_by_type(r, new) < 0 || rope_object(r, old, &rope[0]) < 0)
        return r->err->code;
    return rope[0].kind != ROPE_LONG && rope[1].kind != ROPE_LONG
               ? 0
               : config_bad(r, ERR_UNSUPPORTED, "rope_type longrope is not supported for %s",
                            family->type);
}

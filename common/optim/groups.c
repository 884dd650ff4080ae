/* groups - finds the settings of each parameter, and marks the frozen parameters.
 *
 * Kinds come from optimizer.no_decay, patterns of names from optimizer.groups. */
#include "optim/groups.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define AT(field) offsetof(struct optimizer_group, field)

static const struct option keys[] = {
    {"match", OPT_STRING, AT(match), NULL, .flags = OPT_REQUIRED,
     .help = "A pattern of parameters' names; * stands for any characters."},
    {"lr_scale", OPT_REAL, AT(lr_scale), NULL, 0, 1e6, .help = "Multiplies the learning rate."},
    {"weight_decay", OPT_REAL, AT(weight_decay), NULL, 0, 1e3,
     .help = "Replaces the optimizer's weight decay."},
    {"frozen", OPT_BOOL, AT(frozen), "false", .help = "Not trained."},
};

const struct option_item optimizer_group_item = {
    .option = keys, .n_options = ARRAY_LEN(keys), .size = sizeof(struct optimizer_group)};

enum { KIND_BIAS, KIND_NORM, KIND_EMBEDDING };

const char *const optimizer_kinds[] = {
    [KIND_BIAS] = "bias", [KIND_NORM] = "norm", [KIND_EMBEDDING] = "embedding", NULL};

/* The bits of no_decay that name this kind of parameter.  A norm's bias is also a bias. */
static unsigned kinds_of(const char *name, enum param_kind kind)
{
    const char *dot = strrchr(name, '.');
    const int is_bias = kind == PARAM_BIAS || !strcmp(dot ? dot + 1 : name, "bias");

    return (unsigned)is_bias << KIND_BIAS | (unsigned)(kind == PARAM_NORM) << KIND_NORM |
           (unsigned)(kind == PARAM_EMBEDDING) << KIND_EMBEDDING;
}

static int groups_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

/* The settings of a parameter that no group names, whatever its kind. */
static struct settings own_settings(const struct optimizer_options *o, const char *name,
                                    enum param_kind kind, const struct shape *shape)
{
    const struct optimizer_matrices *m = o->kind->matrices;

    if (m && !m->takes(o->options, name, kind, shape))
        return (struct settings){.lr_scale = optimizer_number(o, m->other_lr) / optimizer_lr(o),
                                 .decay = optimizer_number(o, m->other_decay)};
    return (struct settings){.lr_scale = 1, .decay = optimizer_decay(o)};
}

struct settings groups_settings(const struct optimizer_options *o, const char *name,
                                enum param_kind kind, const struct shape *shape)
{
    const struct optimizer_group *g = o->groups.v;
    struct settings s = own_settings(o, name, kind, shape);
    const double lr_scale = s.lr_scale;

    if (o->no_decay & kinds_of(name, kind))
        s.decay = 0;
    for (int i = 0; i < o->groups.n; i++, g++) {
        if (!groups_matches(g->match, name))
            continue;
        s.lr_scale = isnan(g->lr_scale) ? s.lr_scale : lr_scale * g->lr_scale;
        s.decay = isnan(g->weight_decay) ? s.decay : g->weight_decay;
        s.frozen |= g->frozen;
    }
    return s;
}

static void list_names(const struct graph *g, struct buf *out)
{
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM)
            buf_printf(out, "%s%s", out->len ? ", " : "", g->value[v].name);
}

static int fail_names(const struct graph *g, const char *what, struct err *err)
{
    struct buf names = {0};
    int rc;

    list_names(g, &names);
    rc = err_set(err, ERR_CONFIG, "%s; the parameters are %s", what, buf_cstr(&names));
    buf_fini(&names);
    return rc;
}

/* Fail if the pattern, which is the value of `key`, matches no parameter. */
static int check_match(const char *key, const char *pattern, const struct graph *g, struct err *err)
{
    char what[160];

    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM && groups_matches(pattern, g->value[v].name))
            return 0;
    snprintf(what, sizeof what, "%s \"%.80s\" matches no parameter", key, pattern);
    return fail_names(g, what, err);
}

static int check_groups(const struct optimizer_options *o, const struct graph *g, struct err *err)
{
    const struct optimizer_group *group = o->groups.v;
    char key[40];

    for (int i = 0; i < o->groups.n; i++) {
        snprintf(key, sizeof key, "optimizer.groups[%d].match", i);
        if (check_match(key, group[i].match, g, err) < 0)
            return err->code;
    }
    return 0;
}

static int check_left_out(const struct optimizer_options *o, const struct graph *g, struct err *err)
{
    const struct optimizer_matrices *m = o->kind->matrices;
    const char *patterns = m && m->left_out ? m->left_out(o->options) : NULL;
    char pattern[OPT_TEXT_BYTES + 1];

    while (patterns) {
        patterns = option_next_item(patterns, pattern);
        if (check_match(m->left_out_key, pattern, g, err) < 0)
            return err->code;
    }
    return 0;
}

static void groups_freeze_match(struct graph *g, struct value *v)
{
    struct param_info info = *v->info;

    info.frozen = 1;
    v->info = arena_copy(&g->arena, &info, sizeof info);
}

int groups_freeze(const struct optimizer_options *o, struct graph *g, struct err *err)
{
    int n_trained = 0;

    if (check_groups(o, g, err) < 0 || check_left_out(o, g, err) < 0)
        return err->code;
    for (int v = 0; v < g->n_values; v++) {
        if (g->value[v].role != VALUE_PARAM)
            continue;
        if (groups_settings(o, g->value[v].name, g->value[v].info->kind, &g->value[v].shape).frozen)
            groups_freeze_match(g, &g->value[v]);
        n_trained += !g->value[v].info->frozen;
    }
    return n_trained > 0 || o->groups.n == 0
               ? 0
               : fail_names(g, "optimizer.groups freezes every parameter, want one that trains",
                            err);
}

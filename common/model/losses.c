/* losses - reads model.loss: a word, `output NAME`, or a mapping from outputs to losses with
 * weights.  Messages say what was seen and what is wanted. */
#include "model/losses.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "config/tree.h"

static const char *const words[] = {LOSS_LIST(WORD_NAME)};

/* A number of one loss, and the losses that have it. */
static const struct {
    const char *key;
    unsigned of;
    size_t at;
    double min, max;
} loss_numbers[] = {
    {"weight", ~0u, offsetof(struct loss_term, weight), 0, 1e6},
    {"delta", 1u << LOSS_HUBER, offsetof(struct loss_term, delta), 0, 1e6},
    {"gamma", 1u << LOSS_FOCAL, offsetof(struct loss_term, gamma), 0, 100},
    {"positive", 1u << LOSS_BCE, offsetof(struct loss_term, positive), 0, 1e6},
    {"temperature", 1u << LOSS_CONTRASTIVE, offsetof(struct loss_term, temperature), 0, 1e6},
    {"beta", 1u << LOSS_DPO, offsetof(struct loss_term, beta), 0, 1e3},
};

struct losses_reading {
    struct losses *to;
    struct arena *arena;
    size_t *at;
    struct err *err;
};

static int losses_fail(const struct losses_reading *r, const struct tree *t, const char *seen,
                       const char *want)
{
    *r->at = t->at;
    return err_set(r->err, ERR_CONFIG, "%s%.60s is %.60s, want %s", seen ? "" : "the value",
                   seen ? seen : "",
                   t->kind == TREE_WORD   ? t->text
                   : t->kind == TREE_LIST ? "a list"
                                          : "a mapping",
                   want);
}

static int losses_find(const struct losses_reading *r, const struct tree *t, const char *of,
                       struct loss_term *out)
{
    struct buf all = {0};

    for (int i = 0; i < (int)ARRAY_LEN(words) && t->kind == TREE_WORD; i++)
        if (i != LOSS_OUTPUT && !strcmp(t->text, words[i]))
            return out->kind = (enum loss)i, 0;
    if (t->kind == TREE_WORD && of && !strcmp(t->text, "output"))
        return out->kind = LOSS_OUTPUT, 0;
    buf_printf(&all, "one of");
    for (int i = 0; i < LOSS_OUTPUT; i++)
        buf_printf(&all, "%s %s", i ? "," : "", words[i]);
    buf_printf(&all,
               of ? ", output" : "; output NAME, or {NAME: LOSS} for outputs of model.import");
    losses_fail(r, t, of, buf_cstr(&all));
    buf_fini(&all);
    return r->err->code;
}

/* 0: the word is a number above min, of at most max. */
static int losses_parse(const struct tree *t, double min, double max, double *out)
{
    char *end;
    const double v = t->kind == TREE_WORD && t->len ? strtod(t->text, &end) : NAN;

    if (!isfinite(v) || *end || v <= min || v > max)
        return -1;
    *out = v;
    return 0;
}

static int losses_fail_range(const struct losses_reading *r, const struct tree *t, const char *key,
                             double min, double max)
{
    char want[80];

    snprintf(want, sizeof want, "a number above %g, of at most %g", min, max);
    return losses_fail(r, t, key, want);
}

/* positive: [1, 3.5, 2], a number for each output */
static int losses_read_positives(const struct losses_reading *r, const struct tree *list,
                                 double max, struct loss_term *term)
{
    double *v = arena_alloc(r->arena, ((size_t)list->n + 1) * sizeof *v);

    for (int i = 0; i < list->n; i++)
        if (losses_parse(list->child[i], 0, max, &v[i]) < 0)
            return losses_fail_range(r, list->child[i], "positive", 0, max);
    if (list->n == 0)
        return losses_fail(r, list, "positive", "a number, or one for each output");
    term->positives = v;
    term->n_positives = list->n;
    return 0;
}

static int losses_read_class_dim(const struct losses_reading *r, const struct tree *value,
                                 struct loss_term *term)
{
    if (value->kind != TREE_WORD ||
        (strcmp(value->text, "1") != 0 && strcmp(value->text, "2") != 0))
        return losses_fail(r, value, "class_dim",
                           "1 for outputs [batch, classes, places], or 2 for [batch, places, "
                           "classes]");
    term->class_dim = value->text[0] - '0';
    return 0;
}

/* with: NAME and scale: NAME, outputs of the network */
static int losses_read_output(const struct losses_reading *r, const struct tree *key,
                              const struct tree *value, const char **to)
{
    if (value->kind != TREE_WORD || value->len == 0)
        return losses_fail(r, value, key->text, "the name of an output of model.import");
    *to = value->text;
    return 0;
}

static int losses_read_number(const struct losses_reading *r, const struct tree *key,
                              const struct tree *value, struct loss_term *term)
{
    if (!strcmp(key->text, "class_dim") && loss_is_of_classes(term->kind))
        return losses_read_class_dim(r, value, term);
    if (term->kind == LOSS_CONTRASTIVE && !strcmp(key->text, "with"))
        return losses_read_output(r, key, value, &term->with);
    if (term->kind == LOSS_CONTRASTIVE && !strcmp(key->text, "scale"))
        return losses_read_output(r, key, value, &term->scale);
    for (size_t i = 0; i < ARRAY_LEN(loss_numbers); i++) {
        if (strcmp(key->text, loss_numbers[i].key) != 0)
            continue;
        if (!(loss_numbers[i].of >> term->kind & 1u)) {
            *r->at = key->at;
            return err_set(r->err, ERR_CONFIG, "%s does not belong to the loss %s", key->text,
                           words[term->kind]);
        }
        if (value->kind == TREE_LIST && loss_numbers[i].at == offsetof(struct loss_term, positive))
            return losses_read_positives(r, value, loss_numbers[i].max, term);
        if (losses_parse(value, loss_numbers[i].min, loss_numbers[i].max,
                         (double *)((char *)term + loss_numbers[i].at)) < 0)
            return losses_fail_range(r, value, key->text, loss_numbers[i].min, loss_numbers[i].max);
        return 0;
    }
    *r->at = key->at;
    return err_set(r->err, ERR_CONFIG,
                   "unknown key %.60s; want name, weight, delta (huber), gamma (focal), positive "
                   "(bce), class_dim (cross_entropy, focal), with, scale or temperature "
                   "(contrastive), beta (dpo)",
                   key->text);
}

/* {name: cross_entropy, weight: 0.4} */
static int losses_read_map(const struct losses_reading *r, const struct tree *t, const char *of,
                           struct loss_term *term)
{
    int rc = 1;

    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->key[i]->text, "name"))
            rc = losses_find(r, t->child[i], of, term);
    if (rc > 0)
        return losses_fail(r, t, of, "the loss as `name` in it, such as {name: cross_entropy}");
    for (int i = 0; i < t->n && rc == 0; i++)
        if (strcmp(t->key[i]->text, "name") != 0)
            rc = losses_read_number(r, t->key[i], t->child[i], term);
    return rc;
}

static const struct loss_term losses_default = {
    .weight = 1, .delta = 1, .gamma = 2, .positive = 1, .temperature = 1, .beta = 0.1};

static int losses_read_term(const struct losses_reading *r, const struct tree *t, const char *of)
{
    struct loss_term *term = &r->to->term[r->to->n++];

    int rc;

    *term = losses_default;
    term->output = of;
    rc = t->kind == TREE_MAP ? losses_read_map(r, t, of, term) : losses_find(r, t, of, term);
    if (rc < 0 || term->kind != LOSS_CONTRASTIVE || (term->with && of))
        return rc;
    return losses_fail(r, t, of,
                       "both outputs of model.import by name, such as {image: {name: contrastive, "
                       "with: text, temperature: 0.07}}");
}

/* 1: the mapping is one loss with its numbers, {name: huber, delta: 0.5}. */
static int losses_has_name(const struct tree *t)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->key[i]->text, "name"))
            return 1;
    return 0;
}

/* The loss dpo reads samples that no other loss can. */
static int losses_check_alone(const struct losses_reading *r, const struct tree *t)
{
    for (int i = 0; i < t->n && t->n > 1; i++)
        if (r->to->term[i].kind == LOSS_DPO)
            return losses_fail(r, t->child[i], t->key[i]->text,
                               "dpo as the only loss, or none: its samples are pairs of answers");
    return 0;
}

static int losses_read(const char *text, size_t len, struct arena *arena, struct losses *out,
                       size_t *at, struct err *err)
{
    const struct losses_reading r = {out, arena, at, err};
    const struct tree *t;
    int rc = 0;

    *at = 0;
    out->n = 0;
    if (len > 7 && !strncmp(text, "output ", 7)) {
        out->term[out->n++] =
            (struct loss_term){.output = arena_printf(arena, "%.*s", (int)len - 7, text + 7),
                               .kind = LOSS_OUTPUT,
                               .weight = 1};
        return 0;
    }
    if (tree_parse(text, len, arena, &t, at, err) < 0)
        return err->code;
    if (t->kind != TREE_MAP || losses_has_name(t))
        return losses_read_term(&r, t, NULL);
    if (t->n < 1 || t->n > LOSSES_MOST) {
        *at = t->at;
        return err_set(err, ERR_CONFIG, "a loss for each of %d outputs, want 1 to %d", t->n,
                       LOSSES_MOST);
    }
    for (int i = 0; i < t->n && rc == 0; i++)
        rc = losses_read_term(&r, t->child[i], t->key[i]->text);
    return rc == 0 ? losses_check_alone(&r, t) : rc;
}

int losses_check(const char *text, size_t len, size_t *at, struct err *err)
{
    struct losses l;
    struct arena arena;
    int rc;

    arena_init(&arena);
    rc = losses_read(text, len, &arena, &l, at, err);
    arena_fini(&arena);
    return rc;
}

int losses_first(const char *text, enum loss *out, int *contrasts, struct err *err)
{
    struct losses l = {0};
    struct arena arena;
    size_t at;
    int rc;

    arena_init(&arena);
    rc = losses_read(text, strlen(text), &arena, &l, &at, err);
    if (rc == 0)
        *out = l.term[0].kind;
    *contrasts = 0;
    for (int k = 0; k < l.n && rc == 0; k++)
        *contrasts |= l.term[k].kind == LOSS_CONTRASTIVE;
    arena_fini(&arena);
    return rc;
}

int losses_of(const struct model_options *o, struct arena *arena, struct losses *out,
              struct err *err)
{
    size_t at;

    if (o->losses)
        return losses_read(o->losses, strlen(o->losses), arena, out, &at, err) < 0
                   ? err_wrap(err, "model.loss")
                   : 0;
    out->n = 1;
    out->term[0] = losses_default;
    out->term[0].kind = o->loss;
    return 0;
}

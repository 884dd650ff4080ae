/* weights - compares a file's tensors with the model's, reports the differences, and takes the
 * tensors that are alike. */
#include "state/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "ckpt/st_set.h"
#include "data/sampler.h"
#include "import/arch.h"
#include "import/lower.h"
#include "import/weights.h"
#include "job/adapters.h"
#include "job/pretrained.h"
#include "model/lora.h"
#include "program/base.h"
#include "state/base.h"
#include "state/contents.h"
#include "tensor/half.h"

enum { MOST_TOLD = 8 }; /* differences of one kind that a message lists */

/* Differences of one kind, for a message. */
struct list {
    struct buf text;
    int n;
};

struct weights {
    struct state *s;
    struct st_set *adapters;          /* those of model.lora.path; or NULL */
    struct st_set *file;              /* NULL: the file is that of model.import: */
    struct import_weights *imported;  /* NULL: it is not */
    struct st_tensor *exported;       /* [network's tensors], in the network's order; of it alone */
    const struct st_tensor **by_name; /* those of exported that have a name, in its order */
    size_t n_by_name;
    struct arena memory; /* of both */
    const char *path;
    const struct model_file *rule;
    /* By the number of a slot, and of its tensor: the file's tensor that is alike, or NULL.  NULL
     * for a slot that belongs to no file of a model. */
    const struct st_tensor **alike[STATE_MAX_SLOTS];
    struct list lacking, other; /* in the file, and in the model */
    int takes_base_alone;       /* 1: no other slot is compared or taken */
    int n_alike;
};

/* Append one difference, or only count it if there are many. */
static void list_add(struct list *l, const char *text)
{
    if (l->n++ < MOST_TOLD)
        buf_printf(&l->text, "%s%s", l->text.len ? "; " : "", text);
}

static void list_end(struct list *l)
{
    if (l->n > MOST_TOLD)
        buf_printf(&l->text, "; and %d more", l->n - MOST_TOLD);
}

static int weights_exported_order(const void *a, const void *b)
{
    return strcmp((*(const struct st_tensor *const *)a)->name,
                  (*(const struct st_tensor *const *)b)->name);
}

static const struct st_tensor *weights_find_exported(const struct weights *w, const char *name)
{
    const struct st_tensor like = {.name = name}, *key = &like,
                           *const *at = bsearch(&key, w->by_name, w->n_by_name, sizeof *w->by_name,
                                                weights_exported_order);

    return at ? *at : NULL;
}

/* The adapter of this name; NULL: it begins anew. */
static const struct st_tensor *weights_find_adapter(const struct weights *w, const char *name)
{
    char *theirs = w->adapters ? xasprintf(LORA_PREFIX "%s", name) : NULL;
    const struct st_tensor *t = theirs ? st_set_find(w->adapters, theirs) : NULL;

    free(theirs);
    return t;
}

/* The file's tensor for the model's `name`; NULL if there is none. */
static const struct st_tensor *weights_find(const struct weights *w, const char *name)
{
    if (lora_is_name(name) && (w->adapters || w->imported))
        return weights_find_adapter(w, name);
    if (w->imported)
        return weights_find_exported(w, name);
    const size_t n = w->rule && w->rule->prefix ? strlen(w->rule->prefix) : 0;
    const struct st_tensor *t = st_set_find(w->file, name);

    return t || !n || strncmp(name, w->rule->prefix, n) != 0 ? t : st_set_find(w->file, name + n);
}

/* ---- the model's tensors ---- */

/* A base is packed from float32. */
static enum dtype weights_type(const struct slot_def *d)
{
    return d == &slot_base ? DTYPE_F32 : d->dtype;
}

/* The model's float32 takes the two half types, too: every number of theirs is one of float32. */
static int weights_fits(const struct slot_def *d, const struct st_tensor *t)
{
    return t->dtype == weights_type(d) || (weights_type(d) == DTYPE_F32 && dtype_is_half(t->dtype));
}

/* Refuse a number that is not finite among n of the tensor's, from element `first` on. */
static int check_finite(const struct weights *w, const struct st_tensor *t, const void *data,
                        int64_t first, int64_t n, struct err *err)
{
    for (int64_t i = 0; i < n && dtype_is_real(t->dtype); i++) {
        const double v = (double)real_get(data, t->dtype, i);

        if (!isfinite(v))
            return err_set(
                err, ERR_CONFIG,
                "%s: tensor \"%s\", element %lld is %s, want finite numbers: the file is "
                "of a run that diverged; name an earlier checkpoint in model.init.path",
                w->path, t->name, (long long)(first + i),
                isnan(v) ? "nan"
                : v > 0  ? "inf"
                         : "-inf");
    }
    return 0;
}

/* Read the elements `part` of a tensor of the file. */
static int weights_read(struct weights *w, const struct st_tensor *t, struct span part, void *to,
                        struct err *err)
{
    const size_t size = dtype_size(t->dtype);

    if (w->adapters && st_set_find(w->adapters, t->name) == t)
        return st_set_read(w->adapters, t, (size_t)part.first * size, to, (size_t)part.n * size,
                           err);
    if (w->imported)
        return import_weights_read(w->imported, &w->s->network->tensor[t - w->exported], part.first,
                                   part.n, to, err);
    return st_set_read(w->file, t, (size_t)part.first * size, to, (size_t)part.n * size, err);
}

enum { BLOCK = 1 << 18 }; /* elements, or bytes, that are read at once */

/* A tensor of the file, and the slot's memory that takes it. */
struct taken {
    const struct st_tensor *t;
    const struct slot_def *def;
    char *to;
};

/* Copy the elements `part` of a tensor, through the rooms, which hold BLOCK elements each. */
static int take_block(struct weights *w, const struct taken *k, struct span part,
                      void *const room[2], struct err *err)
{
    const struct st_tensor *t = k->t;
    const size_t to_size = dtype_size(k->def->dtype);
    const int widens = t->dtype != k->def->dtype;
    int rc = weights_read(w, t, part, room[0], err);

    if (rc == 0)
        rc = check_finite(w, t, room[0], part.first, part.n, err);
    for (int64_t i = 0; i < part.n && widens && rc == 0; i++)
        ((float *)room[1])[i] = real_get(room[0], t->dtype, i);
    return rc < 0 ? rc
                  : backend_copy_in(w->s->backend, k->to + (size_t)part.first * to_size,
                                    room[widens], (size_t)part.n * to_size, err);
}

/* The remedy for a tensor that the file lacks: a head may be tied, by the file, to the embedding
 * that it has. */
static const char *weights_remedy(const struct weights *w, const char *name)
{
    return w->rule && w->rule->tied && !strcmp(name, w->rule->tied) &&
                   weights_find(w, w->rule->tied_to)
               ? " (if it is the embedding's, want model.tied: true, or of an imported folder "
                 "tie_word_embeddings: true in its config.json)"
               : "";
}

/* 1: the file's tensor t fits the slot's tensor `want`; 0: it was listed as a difference. */
static int weights_compare(struct weights *w, const char *name, const struct slot_def *d,
                           const struct slot_tensor *want, const struct st_tensor *t,
                           struct err *err)
{
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN], *text;

    if (t && weights_fits(d, t) && shape_equal(&t->shape, &want->shape))
        return 1;
    text = t ? xasprintf("tensor \"%s\" is %s %s, this model wants %s %s", name,
                         dtype_name(t->dtype), shape_text(&t->shape, seen),
                         dtype_name(weights_type(d)), shape_text(&want->shape, wanted))
             : xasprintf("no tensor \"%s\", which this model has%s", name, weights_remedy(w, name));
    if (t && !weights_fits(d, t))
        err_set(err, ERR_CONFIG, "%s: %s", w->path, text);
    else
        list_add(&w->lacking, text);
    free(text);
    return t && !weights_fits(d, t) ? err->code : 0;
}

static int compare_slot(struct weights *w, int k, struct err *err)
{
    const struct slot_def *d = w->s->slot[k].def;
    const int n = slot_n_tensors(w->s->layout, d);
    int rc = 0;

    ASSERT(!w->alike[k]);
    w->alike[k] = xcalloc((size_t)n, sizeof **w->alike);
    for (int i = 0; i < n && rc >= 0; i++) {
        const struct slot_tensor want = slot_tensor(w->s->layout, d, i);
        char *name = xasprintf("%s%s", want.base, d->suffix);
        const struct st_tensor *t = weights_find(w, name);

        if (d == &slot_base && base_is_scales(name)) { /* made when the codes are */
            free(name);
            continue;
        }
        rc = !t && lora_is_name(name) && !w->adapters ? 0
                                                      : weights_compare(w, name, d, &want, t, err);
        w->alike[k][i] = rc == 1 ? t : NULL;
        w->n_alike += rc == 1;
        free(name);
    }
    return rc < 0 ? rc : 0;
}

static int compare_slots(struct weights *w, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < w->s->n_slots && rc == 0; k++) {
        const struct slot_def *d = w->s->slot[k].def;
        const int is_of_model = d->file == SLOT_IN_MODEL && slot_is_saved(d);

        if (d == &slot_base || (is_of_model && !w->takes_base_alone))
            rc = compare_slot(w, k, err);
    }
    return rc;
}

/* As take_block, to a base, which is packed from float32. */
static int take_packed(struct weights *w, int k, int i, struct span part, void *const room[2],
                       struct err *err)
{
    const struct st_tensor *t = w->alike[k][i];
    int rc = weights_read(w, t, part, room[0], err);

    if (rc == 0)
        rc = check_finite(w, t, room[0], part.first, part.n, err);
    for (int64_t e = 0; e < part.n && rc == 0; e++)
        ((float *)room[1])[e] = real_get(room[0], t->dtype, e);
    return rc == 0 ? base_put(w->s, i, part.first, room[1], part.n, err) : rc;
}

/* Block by block, so that a large tensor needs no second copy of itself. */
static int weights_take_tensor(struct weights *w, int k, int i, struct err *err)
{
    const struct slot *slot = &w->s->slot[k];
    const struct slot_tensor to = slot_tensor(w->s->layout, slot->def, i);
    const int64_t n = shape_elements(&to.shape);
    void *room[2] = {xmalloc(BLOCK * sizeof(double)), xmalloc(BLOCK * sizeof(float))};
    int rc = 0;

    ASSERT(slot->data && to.at + to.n_bytes <= slot->n_bytes);
    ASSERT(shape_equal(&w->alike[k][i]->shape, &to.shape));
    for (int64_t at = 0; at < n && rc == 0; at += BLOCK) {
        const struct taken taken = {w->alike[k][i], slot->def, (char *)slot->data + to.at};
        const struct span part = {at, min_i64(n - at, BLOCK)};

        rc = slot->def == &slot_base ? take_packed(w, k, i, part, room, err)
                                     : take_block(w, &taken, part, room, err);
    }
    free(room[0]);
    free(room[1]);
    return rc;
}

/* ---- the file's tensors ---- */

static int weights_ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

static int is_known(const struct weights *w, const char *name)
{
    char *full = w->rule && w->rule->prefix ? xasprintf("%s%s", w->rule->prefix, name) : NULL;
    const int known = state_knows(w->s, name) || (full && state_knows(w->s, full));

    free(full);
    return known;
}

static int is_ignored(const struct weights *w, const char *name)
{
    for (int i = 0; w->rule && w->rule->ignored[i]; i++)
        if (weights_ends_with(name, w->rule->ignored[i]))
            return 1;
    return 0;
}

/* 1: tensors a and b of the file have the same bytes. */
static int same_bytes(const struct weights *w, const struct st_tensor *a, const struct st_tensor *b,
                      struct err *err)
{
    const size_t n_bytes = dtype_size(a->dtype) * (size_t)shape_elements(&a->shape);
    char *block = xmalloc((size_t)2 * BLOCK);
    int rc = a->dtype == b->dtype && shape_equal(&a->shape, &b->shape);

    for (size_t at = 0; at < n_bytes && rc == 1; at += BLOCK) {
        const size_t n = n_bytes - at < BLOCK ? n_bytes - at : BLOCK;

        rc = st_set_read(w->file, a, at, block, n, err);
        if (rc == 0)
            rc = st_set_read(w->file, b, at, block + BLOCK, n, err);
        if (rc == 0)
            rc = !memcmp(block, block + BLOCK, n);
    }
    free(block);
    return rc;
}

/* 0: `name` is a second name of a parameter that the model has once (tied weights), and the file's
 * two tensors are equal.  1: `name` is no second name.  < 0: the two differ. */
static int check_tied(const struct weights *w, const char *name, struct err *err)
{
    const struct st_tensor *t;
    int rc;

    if (!w->rule || !w->rule->tied || strcmp(name, w->rule->tied) != 0)
        return 1;
    t = weights_find(w, w->rule->tied_to);
    rc = t ? same_bytes(w, st_set_find(w->file, name), t, err) : 0;
    if (rc == 0)
        return err_set(err, ERR_CONFIG,
                       "%s: tensor \"%s\" is not equal to \"%s\", but this model has one parameter "
                       "for both; model.tied: false has two (of an imported folder, "
                       "tie_word_embeddings: false in its config.json)",
                       w->path, name, w->rule->tied_to);
    return rc < 0 ? rc : 0;
}

static int visit_file(struct weights *w, struct err *err)
{
    for (int i = 0; i < st_set_count(w->file); i++) {
        const char *name = st_set_at(w->file, i)->name;
        char *text;
        int rc;

        if (is_known(w, name) || is_ignored(w, name))
            continue;
        rc = check_tied(w, name, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        text = xasprintf("tensor \"%s\" is not part of this model", name);
        list_add(&w->other, text);
        free(text);
    }
    return 0;
}

/* ---- both ---- */

static int weights_refuse(struct weights *w, const struct job *job, struct err *err)
{
    const int n = w->lacking.n + w->other.n;
    const char *between = w->lacking.n && w->other.n ? "; " : "";
    struct buf defaults = {0};

    pretrained_defaults(job, &defaults);
    err_set(err, ERR_CONFIG,
            "%s: %d difference%s%s%s%s (model.init.missing: draw would begin anew what the file "
            "lacks, and ignore the rest): %s%s%s",
            w->path, n, n == 1 ? "" : "s", defaults.len ? "; config.json lacks " : "",
            buf_cstr(&defaults),
            defaults.len ? ", for which the job has transformers' defaults; give them there" : "",
            buf_cstr(&w->other.text), between, buf_cstr(&w->lacking.text));
    buf_fini(&defaults);
    return err->code;
}

static void weights_tell(struct weights *w, struct list *l, const char *what)
{
    char *text;

    if (!l->n || !w->s->warn)
        return;
    text = xasprintf("model.init: %s: %s: %s", w->path, what, buf_cstr(&l->text));
    w->s->warn(w->s->warn_arg, text);
    free(text);
}

static int weights_decide(struct weights *w, const struct job *job, struct err *err)
{
    if (job->model.init.missing != MISSING_DRAW && w->lacking.n + w->other.n > 0)
        return weights_refuse(w, job, err);
    if (w->n_alike == 0)
        return err_set(err, ERR_CONFIG, "%s: none of its tensors fits this model: %s", w->path,
                       buf_cstr(w->other.n ? &w->other.text : &w->lacking.text));
    weights_tell(w, &w->lacking, "begins anew");
    weights_tell(w, &w->other, "ignored");
    return 0;
}

/* The tensors of model.import's file that a model's file has. */
static int weights_open_import(struct weights *w, struct err *err)
{
    const struct import_network *n = w->s->network;

    if (n->config) /* a folder's weights are files as those of model.init.path */
        return st_set_open(w->path, &w->file, err);
    w->exported = arena_alloc(&w->memory, ((size_t)n->n_tensors + 1) * sizeof *w->exported);
    w->by_name = arena_alloc(&w->memory, ((size_t)n->n_tensors + 1) * sizeof *w->by_name);
    for (int i = 0; i < n->n_tensors; i++) {
        struct st_tensor *t = &w->exported[i];

        if (n->tensor[i].role == IMPORT_CONSTANT)
            continue;
        t->name = n->tensor[i].name;
        t->dtype = import_dtype(n->tensor[i].type);
        t->shape.n = n->tensor[i].n_dims;
        memcpy(t->shape.dim, n->tensor[i].dim, (size_t)t->shape.n * sizeof *t->shape.dim);
        w->by_name[w->n_by_name++] = t;
    }
    qsort(w->by_name, w->n_by_name, sizeof *w->by_name, weights_exported_order);
    return import_weights_open(w->path, &w->imported, err);
}

/* Each of the file's tensors must be one of the model's adapters. */
static int weights_open_adapters(struct weights *w, const struct lora_options *o, struct err *err)
{
    char *path = adapters_path(o);
    const size_t n = strlen(LORA_PREFIX);
    int rc = adapters_check(o, err);

    if (rc == 0)
        rc = st_set_open(path, &w->adapters, err);
    for (int i = 0; rc == 0 && i < st_set_count(w->adapters); i++) {
        const char *name = st_set_at(w->adapters, i)->name;

        if (strncmp(name, LORA_PREFIX, n) != 0 || !state_knows(w->s, name + n))
            rc = err_set(err, ERR_CONFIG,
                         "%s: tensor \"%s\" is no adapter of this model; does model.lora.match "
                         "name its layer?",
                         path, name);
    }
    for (int i = 0; rc == 0 && i < w->s->layout->n_params; i++) {
        const char *name = w->s->layout->param[i].name;

        if (lora_is_name(name) && !weights_find_adapter(w, name))
            rc = err_set(err, ERR_CONFIG,
                         "%s: no tensor \"" LORA_PREFIX "%s\"; the job has adapters there: want "
                         "model.lora.match with the layers of target_modules",
                         path, name);
    }
    free(path);
    return rc;
}

static int compare_all(struct weights *w, const struct job *job, struct err *err)
{
    int rc = w->s->network && job->model.init.name == INIT_IMPORT
                 ? weights_open_import(w, err)
                 : st_set_open(w->path, &w->file, err);

    if (rc == 0 && w->file && !w->takes_base_alone)
        rc = visit_file(w, err);
    if (rc == 0)
        rc = compare_slots(w, err);
    list_end(&w->lacking);
    list_end(&w->other);
    return rc == 0 ? weights_decide(w, job, err) : rc;
}

static int weights_open_parts(struct state *s, const struct job *job, int base_alone,
                              struct weights **out, struct err *err)
{
    struct weights *w = xcalloc(1, sizeof *w);
    int rc;

    w->s = s;
    w->takes_base_alone = base_alone;
    w->path = job->model.init.name == INIT_IMPORT ? import_options_of(&job->model)->path
                                                  : job->model.init.path;
    w->rule = import_file_of(&job->model);
    w->rule = w->rule ? w->rule : job->model.kind->file;
    rc = job->model.lora.path && !base_alone ? weights_open_adapters(w, &job->model.lora, err) : 0;
    if (rc < 0)
        err_wrap(err, "model.lora.path");
    else if (pretrained_check(job, s->warn, s->warn_arg, err) < 0 || compare_all(w, job, err) < 0)
        rc = err_wrap(err, "model.init");
    if (rc < 0) {
        weights_close(w);
        return err->code;
    }
    *out = w;
    return 0;
}

int weights_open(struct state *s, const struct job *job, struct weights **out, struct err *err)
{
    return weights_open_parts(s, job, 0, out, err);
}

int weights_open_base(struct state *s, const struct job *job, struct weights **out, struct err *err)
{
    return weights_open_parts(s, job, 1, out, err);
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    st_set_close(w->adapters);
    st_set_close(w->file);
    import_weights_close(w->imported);
    arena_fini(&w->memory);
    for (int k = 0; k < STATE_MAX_SLOTS; k++)
        free(w->alike[k]);
    buf_fini(&w->lacking.text);
    buf_fini(&w->other.text);
    free(w);
}

int weights_has(const struct weights *w, int slot, int i)
{
    ASSERT(slot >= 0 && slot < w->s->n_slots);
    return w->alike[slot] && w->alike[slot][i];
}

int weights_take(struct weights *w, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < w->s->n_slots; k++)
        for (int i = 0; w->alike[k] && i < slot_n_tensors(w->s->layout, w->s->slot[k].def); i++)
            if (rc == 0 && weights_has(w, k, i))
                rc = weights_take_tensor(w, k, i, err);
    return rc < 0 ? err_wrap(err, "model.init") : 0;
}

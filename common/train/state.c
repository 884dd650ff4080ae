/* The state's memory belongs to the backend; what goes to disk and to hashes passes through host
 * copies of the three spaces, made for the purpose and freed again. */
#include "train/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/scaler.h"

static const char momentum_suffix[] = ".momentum_buffer"; /* as in torch.optim.SGD's state */

/* The loss scale is a tensor of the optimizer's file; no model knows it. */
static const struct segment scaler_segment = {
    .name = SCALER_NAME, .dtype = DTYPE_F32, .shape = {1, {SCALER_LEN}}, .length = SCALER_LEN};

int64_t state_n_stats(const struct layout *l)
{
    return l->n_state_total + (l->has_scaler ? SEGMENT_ALIGN : 0);
}

int state_new(struct backend *b, const struct layout *l, int has_momentum, struct state **out,
              struct err *err)
{
    struct state *s = xcalloc(1, sizeof *s);
    size_t f = sizeof(float);
    int rc;

    s->backend = b;
    s->layout = l;
    rc = backend_alloc(b, f * (size_t)l->n_total, "parameters", (void **)&s->param, err);
    if (rc == 0 && has_momentum)
        rc = backend_alloc(b, f * (size_t)l->n_trained, "momentum", (void **)&s->momentum, err);
    if (rc == 0)
        rc = backend_alloc(b, f * (size_t)state_n_stats(l), "running statistics",
                           (void **)&s->stats, err);
    if (rc == 0 && l->has_scaler)
        s->scaler = s->stats + l->n_state_total;
    if (rc == 0 && l->copy_dtype != DTYPE_F32)
        rc = backend_alloc(b, dtype_size(l->copy_dtype) * (size_t)l->n_total,
                           "working copies of the parameters", &s->copy, err);
    if (rc < 0) {
        state_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void state_free(struct state *s)
{
    if (!s)
        return;
    backend_free(s->backend, s->param);
    backend_free(s->backend, s->momentum);
    backend_free(s->backend, s->stats);
    backend_free(s->backend, s->copy);
    free(s);
}

/* A host copy of the three spaces: params, then momentum, then statistics. */
struct image {
    float *base, *param, *momentum, *stats;
    size_t n_bytes;
};

static void image_place(const struct state *s, struct image *m)
{
    int64_t n_momentum = s->momentum ? s->layout->n_trained : 0;

    m->param = m->base;
    m->momentum = s->momentum ? m->param + s->layout->n_total : NULL;
    m->stats = m->param + s->layout->n_total + n_momentum;
}

static int image_new(const struct state *s, struct image *m, struct err *err)
{
    int64_t n = s->layout->n_total + state_n_stats(s->layout);

    if (s->momentum)
        n += s->layout->n_trained;
    m->n_bytes = sizeof(float) * (size_t)n;
    if (try_alloc((void **)&m->base, m->n_bytes, "a copy of the training state", err) < 0)
        return err->code;
    image_place(s, m);
    return 0;
}

static int image_transfer(const struct state *s, struct image *m, int to_backend, struct err *err)
{
    const struct {
        float *host, *device;
        int64_t n;
    } space[] = {
        {m->param, s->param, s->layout->n_total},
        {m->momentum, s->momentum, s->momentum ? s->layout->n_trained : 0},
        {m->stats, s->stats, state_n_stats(s->layout)},
    };

    for (size_t i = 0; i < ARRAY_LEN(space); i++) {
        size_t n_bytes = sizeof(float) * (size_t)space[i].n;
        int rc = 0;

        if (n_bytes && to_backend)
            rc = backend_copy_in(s->backend, space[i].device, space[i].host, n_bytes, err);
        else if (n_bytes)
            rc = backend_copy_out(s->backend, space[i].host, space[i].device, n_bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int image_of(const struct state *s, struct image *m, struct err *err)
{
    int rc = image_new(s, m, err);

    if (rc == 0)
        rc = image_transfer(s, m, 0, err);
    if (rc < 0)
        free(m->base);
    return rc;
}

/* Every tensor of the state, in one order: what hashing, saving and loading go through. */
struct row {
    const struct segment *segment;
    float *data; /* in an image */
    int is_momentum;
    int of_optimizer; /* in the optimizer's file */
};

static int n_rows(const struct state *s)
{
    return s->layout->n_params * (s->momentum ? 2 : 1) + s->layout->n_states +
           s->layout->has_scaler;
}

/* An image without memory has rows without data. */
static float *within(float *base, int64_t offset) { return base ? base + offset : NULL; }

static struct row row_at(const struct state *s, const struct image *m, int i)
{
    const struct layout *l = s->layout;

    if (i < l->n_params)
        return (struct row){&l->param[i], within(m->param, l->param[i].offset), 0, 0};
    i -= l->n_params;
    if (i < l->n_states)
        return (struct row){&l->state[i], within(m->stats, l->state[i].offset), 0, 0};
    i -= l->n_states;
    if (l->has_scaler && i-- == 0)
        return (struct row){&scaler_segment, within(m->stats, l->n_state_total), 0, 1};
    return (struct row){&l->param[i], within(m->momentum, l->param[i].offset), 1, 1};
}

/* Frozen parameters have no momentum. */
static int row_exists(const struct state *s, struct row r)
{
    return !r.is_momentum || r.segment->offset < s->layout->n_trained;
}

static char *row_name(struct row r)
{
    return xasprintf("%s%s", r.segment->name, r.is_momentum ? momentum_suffix : "");
}

int state_n_hashes(const struct state *s)
{
    int n = 0;

    for (int i = 0; i < n_rows(s); i++)
        n += row_exists(s, row_at(s, &(struct image){0}, i));
    return n;
}

int state_hash(const struct state *s, struct tensor_hash **out, struct hash128 *all,
               struct err *err)
{
    struct image m = {0};
    struct tensor_hash *h;
    struct hasher *sum;
    int n = 0, rc = image_of(s, &m, err);

    if (rc < 0)
        return rc;
    h = xcalloc((size_t)n_rows(s), sizeof *h);
    sum = hasher_new();
    hasher_add_i64(sum, s->at.step);
    hasher_add_i64(sum, s->at.n_updates);
    for (int i = 0; i < n_rows(s); i++) {
        struct row r = row_at(s, &m, i);

        if (!row_exists(s, r))
            continue;
        h[n].name = row_name(r);
        h[n].hash = hash_of(r.data, sizeof(float) * (size_t)r.segment->length);
        hasher_add(sum, &h[n++].hash, sizeof h->hash);
    }
    *all = hasher_end(sum);
    *out = h;
    hasher_free(sum);
    free(m.base);
    return 0;
}

static struct st_tensor as_tensor(struct row r, char *name)
{
    return (struct st_tensor){
        .name = name, .dtype = DTYPE_F32, .shape = r.segment->shape, .data = r.data};
}

/* PyTorch's batch norm keeps a count beside its running mean, and a strict load demands it. */
static const char running_mean[] = "running_mean", batches_tracked[] = "num_batches_tracked";

static const char *tracked_prefix(const char *name, size_t *len)
{
    const char *dot = strrchr(name, '.');

    if (!dot || strcmp(dot + 1, running_mean) != 0)
        return NULL;
    *len = (size_t)(dot + 1 - name);
    return name;
}

/* The tensors point into the image, so taking a snapshot only fills it. */
struct snapshot {
    const struct layout *layout;
    struct image image;
    struct ckpt_content content;
    struct arena names;
};

static void add_rows(struct snapshot *p, const struct state *s)
{
    int n = n_rows(s);
    struct st_tensor *model = arena_alloc(&p->names, 2 * (size_t)n * sizeof *model);
    struct st_tensor *optimizer = arena_alloc(&p->names, (size_t)n * sizeof *optimizer);
    struct ckpt_content *c = &p->content;

    c->model = model;
    c->optimizer = optimizer;
    for (int i = 0; i < n; i++) {
        struct row r = row_at(s, &p->image, i);
        size_t len;
        char *name;

        if (!row_exists(s, r))
            continue;
        name =
            arena_printf(&p->names, "%s%s", r.segment->name, r.is_momentum ? momentum_suffix : "");
        if (r.of_optimizer)
            optimizer[c->n_optimizer++] = as_tensor(r, name);
        else
            model[c->n_model++] = as_tensor(r, name);
        if (!r.of_optimizer && tracked_prefix(name, &len))
            model[c->n_model++] = (struct st_tensor){
                .name = arena_printf(&p->names, "%.*s%s", (int)len, name, batches_tracked),
                .dtype = DTYPE_I64,
                .data = &c->state.n_updates};
    }
}

int snapshot_new(const struct state *s, struct snapshot **out, struct err *err)
{
    struct snapshot *p = xcalloc(1, sizeof *p);

    if (image_new(s, &p->image, err) < 0) {
        free(p);
        return err_wrap(err, "checkpoints");
    }
    p->layout = s->layout;
    add_rows(p, s);
    *out = p;
    return 0;
}

void snapshot_free(struct snapshot *p)
{
    if (!p)
        return;
    arena_fini(&p->names);
    free(p->image.base);
    free(p);
}

int snapshot_take(struct snapshot *p, const struct state *s, int n_ranks, struct err *err)
{
    ASSERT(p->layout == s->layout);
    p->content.state = s->at;
    p->content.state.n_ranks = n_ranks;
    return image_transfer(s, &p->image, 0, err);
}

int snapshot_save(const struct snapshot *p, const char *run_dir, int keep, char **path,
                  struct err *err)
{
    return ckpt_save(run_dir, &p->content, keep, path, err);
}

/* Copy the tensor `name` of f to r.data, having checked it. */
static int take_tensor(const struct st_file *f, const char *file, struct row r, const char *name,
                       struct err *err)
{
    const struct st_tensor *t = st_find(f, name);
    char seen[SHAPE_TEXT_LEN], want[SHAPE_TEXT_LEN];

    if (!t)
        return err_set(err, ERR_CONFIG, "%s: no tensor \"%s\", which this model has", file, name);
    if (t->dtype != DTYPE_F32 || !shape_equal(&t->shape, &r.segment->shape))
        return err_set(err, ERR_CONFIG, "%s: tensor \"%s\" is %s %s, this model wants F32 %s", file,
                       name, dtype_name(t->dtype), shape_text(&t->shape, seen),
                       shape_text(&r.segment->shape, want));
    memcpy(r.data, t->data, sizeof(float) * (size_t)r.segment->length);
    return 0;
}

static int has_state(const struct layout *l, const char *name)
{
    for (int i = 0; i < l->n_states; i++)
        if (!strcmp(l->state[i].name, name))
            return 1;
    return 0;
}

/* "bn1.num_batches_tracked" of a batch norm that the model has. */
static int is_batch_count(const struct layout *l, const char *name)
{
    const char *dot = strrchr(name, '.');
    char *mean;
    int known;

    if (!dot || strcmp(dot + 1, batches_tracked) != 0)
        return 0;
    mean = xasprintf("%.*s.%s", (int)(dot - name), name, running_mean);
    known = has_state(l, mean);
    free(mean);
    return known;
}

static int is_known(const struct layout *l, const char *name)
{
    for (int i = 0; i < l->n_params; i++)
        if (!strcmp(l->param[i].name, name))
            return 1;
    return has_state(l, name) || is_batch_count(l, name);
}

/* What a file holds and the model has not is a sign of the wrong file. */
static int refuse_strangers(const struct state *s, const struct st_file *f, const char *file,
                            struct err *err)
{
    for (int i = 0; i < st_count(f); i++)
        if (!is_known(s->layout, st_at(f, i)->name))
            return err_set(err, ERR_CONFIG, "%s: tensor \"%s\" is not part of this model", file,
                           st_at(f, i)->name);
    return 0;
}

/* Fill the image's rows from the files; optimizer NULL: momentum stays as it is. */
static int take_all(const struct state *s, struct image *m, const struct st_file *model,
                    const char *model_file, const struct st_file *optimizer, struct err *err)
{
    int rc = refuse_strangers(s, model, model_file, err);

    for (int i = 0; i < n_rows(s) && rc == 0; i++) {
        struct row r = row_at(s, m, i);
        char *name;

        if (!row_exists(s, r) || (r.of_optimizer && !optimizer))
            continue;
        name = row_name(r);
        rc = r.of_optimizer ? take_tensor(optimizer, "optimizer.safetensors", r, name, err)
                            : take_tensor(model, model_file, r, name, err);
        free(name);
    }
    return rc;
}

static int init_from_file(const struct state *s, struct image *m, const char *path, struct err *err)
{
    struct st_file *f = NULL;
    int rc = st_open(path, &f, err);

    if (rc == 0)
        rc = take_all(s, m, f, path, NULL, err);
    st_close(f);
    return rc < 0 ? err_wrap(err, "model.init") : 0;
}

static void init_scaler(const struct job_loss_scale *o, float *scaler)
{
    memset(scaler, 0, SEGMENT_ALIGN * sizeof *scaler);
    scaler[SCALER_SCALE] = (float)o->initial;
    scaler[SCALER_HYSTERESIS] = (float)o->hysteresis;
}

int state_init(struct state *s, const struct job *job, struct err *err)
{
    double std = job->model.init.name == INIT_NORMAL ? job->model.init.std : -1;
    struct image m = {0};
    int rc = image_new(s, &m, err);

    if (rc < 0)
        return rc;
    layout_init_params(s->layout, (uint64_t)job->train.seed, std, m.param);
    layout_init_states(s->layout, m.stats);
    if (s->scaler)
        init_scaler(&job->loss_scale, m.stats + s->layout->n_state_total);
    if (job->model.init.name == INIT_FILE)
        rc = init_from_file(s, &m, job->model.init.path, err);
    if (rc == 0)
        rc = image_transfer(s, &m, 1, err);
    free(m.base);
    return rc;
}

int state_load(struct state *s, const struct ckpt *c, struct err *err)
{
    struct image m = {0};
    int rc = image_new(s, &m, err);

    if (rc < 0)
        return rc;
    rc = take_all(s, &m, c->model, "model.safetensors", c->optimizer, err);
    if (rc == 0)
        rc = image_transfer(s, &m, 1, err);
    if (rc == 0)
        s->at = c->state;
    free(m.base);
    return rc < 0 ? err_wrap(err, "%s", c->path) : 0;
}

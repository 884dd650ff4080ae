/* dump - gathers the sums of gradients bucket by bucket, and has rank 0 write them.
 *
 * Happy path: after the step each bucket holds its sums; where state is divided each rank holds
 * those of its own shard (state/shards.h), and all ranks gather them.  Rank 0 puts the numbers at
 * their places of the flat space, divides them by update_scale, writes a file aside and renames it.
 *
 * Failure modes: a rank that is lost meanwhile ends the formation, as in any collective, and the
 * step counts all the same.  A full disk, or too little memory for the file, is a warning, and
 * leaves no file; the other ranks still gather. */
#include "train/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "ckpt/safetensors.h"
#include "op/update.h"
#include "state/shards.h"
#include "strategy/cut.h"
#include "tensor/half.h"
#include "train/trainer_impl.h"

int dump_is_due(const struct trainer *t, int64_t n_steps)
{
    return n_steps > 0 && t->job->report.gradients == n_steps;
}

/* remedy: what else gives `what` of a step that is done. */
static void doubt_key(struct trainer *t, const char *key, int64_t n_steps, const char *what,
                      const char *remedy)
{
    const int64_t done = t->state->at.step, last = t->total_steps;
    char *text = NULL;

    if (n_steps > last)
        text = xasprintf("report.%s is %lld, but the last step is %lld: no %s will be written; "
                         "want that step or an earlier one",
                         key, (long long)n_steps, (long long)last, what);
    else if (n_steps > 0 && n_steps <= done)
        text = xasprintf("report.%s is %lld, but training goes on after step %lld: no %s will be "
                         "written; want a later step%s",
                         key, (long long)n_steps, (long long)done, what, remedy);
    if (text)
        trainer_warn_at(t, done, text);
    free(text);
}

void dump_doubt(struct trainer *t)
{
    doubt_key(t, "gradients", t->job->report.gradients, "gradients",
              ", or `dpdriver replay --dump`");
    doubt_key(t, "operators", t->job->report.operators, "tensors of operators", "");
}

/* name: the file's, in the run directory; free it. */
static void miss_file(struct trainer *t, int64_t n_steps, int64_t before, const char *what,
                      char *name)
{
    char *path = xasprintf("%s/%s", t->o.run_dir, name), *text;

    if (n_steps > before && n_steps <= t->state->at.step && access(path, F_OK) < 0) {
        text = xasprintf("the %s of step %lld could not be written: rank 0 did not end that step, "
                         "and goes on from the state of a rank that did",
                         what, (long long)n_steps);
        trainer_warn_at(t, n_steps, text);
        free(text);
    }
    free(path);
    free(name);
}

void dump_missed(struct trainer *t, int64_t before)
{
    const int64_t gradients = t->job->report.gradients, operators = t->job->report.operators;

    if (t->rank != 0 || !t->o.run_dir)
        return;
    miss_file(t, gradients, before, "gradients", xasprintf(DUMP_GRADIENTS, (long long)gradients));
    miss_file(t, operators, before, "tensors", xasprintf(DUMP_OPERATORS, (long long)operators));
}

/* ---- gathering ---- */

/* The spans of a bucket's sums: one for each rank of those that divide them, or the whole. */
struct dump_cut {
    int size, own;
    int64_t room; /* elements of the longest span */
};

static struct dump_cut dump_cut_of(const struct trainer *t, int bucket)
{
    const struct shards *s = t->state->shards;
    struct dump_cut c = {.size = s ? s->now.size : 1, .own = s ? s->now.rank : 0};

    for (int r = 0; r < c.size; r++)
        c.room = max_i64(c.room, cut_span(t->layout, bucket, c.size, r).n);
    return c;
}

/* Copy this rank's span of the bucket to the host. */
static int dump_take(const struct trainer *t, int bucket, const struct dump_cut *c, void *to,
                     struct err *err)
{
    const struct shards *s = t->state->shards;
    const size_t size = dtype_size(t->layout->bucket[bucket].dtype);
    const struct coll_span span = cut_span(t->layout, bucket, c->size, c->own);
    const char *from =
        s && s->divides_gradients
            ? (char *)s->now.sums[SHARD_OWN] + cut_sums_at(t->layout, bucket, c->size, c->own)
            : (char *)t->step.buffers->bucket[bucket] + size * (size_t)span.at;

    return backend_copy_out(t->backend, to, from, size * (size_t)span.n, err);
}

/* Put the spans, `room` elements apart, at their places of the flat space. */
static void dump_put(const struct layout *l, int bucket, const struct dump_cut *c, const char *from,
                     float scale, float *all)
{
    const struct bucket *b = &l->bucket[bucket];

    for (int r = 0; r < c->size; r++) {
        const struct coll_span span = cut_span(l, bucket, c->size, r);
        const char *at = from + dtype_size(b->dtype) * (size_t)(r * c->room);

        for (int64_t i = 0; i < span.n; i++)
            all[b->offset + span.at + i] = real_get(at, b->dtype, i) / scale;
    }
}

/* all: NULL: no numbers are kept here.  The bucket of the control vector alone has no spans. */
static int dump_bucket(struct trainer *t, int bucket, float scale, float *all, struct err *err)
{
    const struct dump_cut c = dump_cut_of(t, bucket);
    const size_t n_bytes = dtype_size(t->layout->bucket[bucket].dtype) * (size_t)c.room;
    char *mine = NULL, *spans = NULL;
    int rc;

    if (c.room == 0)
        return 0;
    rc = try_alloc((void **)&mine, n_bytes, "gradients of a bucket", err);
    if (rc == 0 && c.size > 1)
        rc = try_alloc((void **)&spans, n_bytes * (size_t)c.size, "gradients of a bucket", err);
    if (rc == 0) {
        memset(mine, 0, n_bytes);
        rc = dump_take(t, bucket, &c, mine, err);
    }
    if (rc == 0 && c.size > 1)
        rc = step_allgather(&t->step, PHASE_UPDATE, mine, n_bytes, spans, err);
    if (rc == 0 && all)
        dump_put(t->layout, bucket, &c, c.size > 1 ? spans : mine, scale, all);
    free(mine);
    free(spans);
    return rc;
}

/* The factor by which the sums are too large. */
static int dump_scale(const struct trainer *t, int64_t n_steps, double loss_scale, float *out,
                      struct err *err)
{
    const int64_t n = sampler_at(&t->sampler, n_steps - 1).n;
    const struct step_scalars scalars = {.n_targets = n * sample_n_predictions(t->spec)};
    float control[CONTROL_LEN], scaler[SCALER_LEN] = {0};
    const int rc =
        backend_copy_out(t->backend, control, t->step.buffers->control, sizeof control, err);

    scaler[SCALER_SCALE] = (float)loss_scale;
    *out = update_scale(control, &scalars, t->layout->has_scaler ? scaler : NULL);
    return rc;
}

static int dump_gather(struct trainer *t, int64_t n_steps, double loss_scale, float *all,
                       struct err *err)
{
    float scale = 1;
    int rc = all ? dump_scale(t, n_steps, loss_scale, &scale, err) : 0;

    for (int b = 0; b < t->layout->n_buckets && rc == 0; b++)
        rc = dump_bucket(t, b, scale, all, err);
    return rc;
}

/* ---- writing ---- */

int dump_file(const struct trainer *t, const char *name,
              int (*write)(const char *path, void *arg, struct err *err), void *arg,
              struct err *err)
{
    char *path = xasprintf("%s/%s", t->o.run_dir, name);
    char *aside = xasprintf("%s.%s.new", path, owner_own_id());
    int rc;

    unlink(aside);
    rc = write(aside, arg, err);
    if (rc == 0)
        rc = owner_check(t->o.run_dir, err);
    if (rc == 0 && rename(aside, path) < 0)
        rc = err_sys(err, errno, "%s", path);
    if (rc < 0)
        unlink(aside);
    free(aside);
    free(path);
    return rc;
}

struct dumped {
    const struct layout *layout;
    const float *all;
};

static int dump_write_tensors(const char *path, void *arg, struct err *err)
{
    const struct dumped *d = arg;
    const struct layout *l = d->layout;
    struct st_tensor *tensor = xcalloc((size_t)l->n_params + 1, sizeof *tensor);
    struct hash128 hash;
    int n = 0, rc;

    for (int i = 0; i < l->n_params; i++)
        if (!l->param[i].info.frozen)
            tensor[n++] = (struct st_tensor){.name = l->param[i].name,
                                             .dtype = DTYPE_F32,
                                             .shape = l->param[i].shape,
                                             .data = d->all + l->param[i].offset};
    rc = st_write(path, tensor, n, NULL, &hash, err);
    free(tensor);
    return rc;
}

static int dump_write(const struct trainer *t, int64_t n_steps, const float *all, struct err *err)
{
    char *name = xasprintf(DUMP_GRADIENTS, (long long)n_steps);
    struct dumped d = {t->layout, all};
    const int rc = dump_file(t, name, dump_write_tensors, &d, err);

    free(name);
    return rc;
}

/* failed: the word for what could not be done, in a text that a replay looks for. */
static void dump_warn(struct trainer *t, int64_t n_steps, const char *failed, const struct err *why)
{
    char *text = xasprintf("the gradients of step %lld could not be %s: %s", (long long)n_steps,
                           failed, why->msg);

    trainer_warn_at(t, n_steps, text);
    free(text);
}

int dump_gradients(struct trainer *t, int64_t n_steps, double loss_scale, struct err *err)
{
    const int writes = t->rank == 0 && t->o.run_dir, is_divided = trainer_is_divided(t);
    const size_t n_bytes = sizeof(float) * (size_t)t->layout->n_trained;
    float *all = NULL;
    struct err why;
    int rc;

    if (!dump_is_due(t, n_steps) || (!writes && !is_divided))
        return 0;
    if (writes && try_alloc((void **)&all, n_bytes, "all gradients", &why) < 0)
        dump_warn(t, n_steps, "written", &why);
    if (!all && !is_divided)
        return 0;
    rc = dump_gather(t, n_steps, loss_scale, all, err);
    if (rc < 0 && t->rank == 0)
        dump_warn(t, n_steps, "gathered, so they could not be written", err);
    else if (all && dump_write(t, n_steps, all, &why) < 0)
        dump_warn(t, n_steps, "written", &why);
    free(all);
    return rc < 0 && is_divided ? err_wrap(err, "gradients of step %lld", (long long)n_steps) : 0;
}

/* bench - one thread for each rank: the steps of step/step.c around a strategy, with a gradient
 * from the simulator's problem.  The update is gradient descent, or the product's Adam. */
#include "bench_impl.h"

#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../coll/local.h"
#include "base/alloc.h"
#include "base/util.h"
#include "data/sampler.h"
#include "idle_hooks.h"
#include "op/control.h"
#include "program/sketch.h"
#include "session/ring.h"

/* ---- the layout of the problem ---- */

static void make_segments(struct rank *k)
{
    for (int i = 0; i < sim_space.n_segments; i++) {
        const struct sim_segment *s = &sim_space.segment[i];
        struct segment *to = &k->param[i];

        *to =
            (struct segment){.name = "tensor", .dtype = DTYPE_F32, .offset = s->at, .length = s->n};
        for (int d = 0; d < SIM_MAX_DIMS && s->dim[d]; d++)
            to->shape.dim[to->shape.n++] = s->dim[d];
    }
}

static void make_layout(struct rank *k)
{
    struct layout *l = &k->layout;
    int64_t from = 0;

    make_segments(k);
    *l = (struct layout){.param = k->param,
                         .n_params = sim_space.n_segments,
                         .n_trained = sim_space.len,
                         .n_total = sim_space.len,
                         .n_grad = sim_space.len + CONTROL_LEN,
                         .grad_dtype = DTYPE_F32,
                         .copy_dtype = DTYPE_F32,
                         .bucket = k->bucket};
    for (int i = 0; i < sim_space.n_segments; i++) {
        const int is_last = i == sim_space.n_segments - 1;
        const int64_t to = is_last ? l->n_grad : sim_space.segment[i + 1].at;

        if (!sim_space.segment[i].ends_bucket)
            continue;
        k->bucket[l->n_buckets++] = (struct bucket){.offset = from,
                                                    .length = to - from,
                                                    .dtype = DTYPE_F32,
                                                    .at = (size_t)from * sizeof(float),
                                                    .last_segment = i};
        from = to;
    }
    l->n_param_buckets = l->n_buckets;
}

/* ---- Adam, by the product's operator ---- */

static int make_moments(struct rank *k, struct err *err)
{
    const size_t n_bytes = sizeof(float) * (size_t)sim_space.len;
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = backend_alloc(k->backend, n_bytes, "a moment", &k->moment[i], err);
        if (rc == 0)
            memset(k->moment[i], 0, n_bytes);
    }
    return rc;
}

static int make_adam(struct rank *k, struct err *err)
{
    const struct shape all = SHAPE(sim_space.len);
    struct sketch s = sketch_begin(err);
    union node_attr attr = {.number = {0}};
    int in[] = {[ADAMW_PARAM] = sketch_place(&s, DTYPE_F32, all, k->w, "w"),
                [ADAMW_GRAD] = sketch_place(&s, DTYPE_F32, all, k->grad, "grad"),
                [ADAMW_CHECK] = sketch_place(&s, DTYPE_F64, SHAPE(2), k->check, "check"),
                [ADAMW_CONTROL] = sketch_place(&s, DTYPE_F32, SHAPE(CONTROL_LEN),
                                               k->grad + sim_space.len, "control"),
                [ADAMW_SCALARS] =
                    sketch_place(&s, DTYPE_U8, SHAPE(sizeof k->scalars), &k->scalars, "scalars"),
                [ADAMW_SEGMENTS] =
                    sketch_place(&s, DTYPE_F64, SHAPE(1, SEGMENT_COLUMNS), k->segments, "segments"),
                [ADAMW_COPY] = NO_VALUE,
                [ADAMW_SCALER] = NO_VALUE,
                [ADAMW_KEPT] = sketch_place(&s, DTYPE_I64, SHAPE(KEPT_LEN), k->kept, "kept"),
                [ADAMW_EXP_AVG] = sketch_place(&s, DTYPE_F32, all, k->moment[0], "exp_avg"),
                [ADAMW_EXP_AVG_SQ] = sketch_place(&s, DTYPE_F32, all, k->moment[1], "exp_avg_sq")};
    int out[] = {[ADAMW_NEW_PARAM] = in[ADAMW_PARAM],
                 [ADAMW_NEW_COPY] = NODE_NO_OUT,
                 [ADAMW_NEW_KEPT] = in[ADAMW_KEPT],
                 [ADAMW_NEW_EXP_AVG] = in[ADAMW_EXP_AVG],
                 [ADAMW_NEW_EXP_AVG_SQ] = in[ADAMW_EXP_AVG_SQ]};

    k->segments[SEGMENT_END] = (double)sim_space.len;
    k->segments[SEGMENT_RATE] = 1;
    k->job->optimizer.kind->numbers(k->job->optimizer.options, attr.number);
    attr.number[ADAMW_ATTR_MEANS_FROM] =
        (double)strategy_means_from(k->ops, k->job->strategy.options);
    sketch_node(&s, OP_adamw, &attr, in, ARRAY_LEN(in), out, "adam");
    if (sketch_end(&s, k->backend, NULL, &k->adam) < 0)
        return err->code;
    return sketch_bind(&k->adam, 1, k->backend, &k->arena, err);
}

/* ---- a rank ---- */

static int read_job(struct rank *k, struct err *err)
{
    char text[1024];

    snprintf(text, sizeof text,
             "model: {arch: mlp}\ndata: {format: digits}\noptimizer: %s\nstrategy: %s\n",
             k->run->optimizer ? k->run->optimizer : "{name: sgd}", k->run->strategy);
    return job_parse(text, strlen(text), "the bench", "/", &k->job, err);
}

static int make_slots(struct rank *k, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < k->ops->n_slots && rc == 0; i++) {
        const struct slot_def *slot = k->ops->slot[i];
        const int64_t n = slot->scope == SLOT_PER_JOB ? slot->length : sim_space.len;
        const size_t n_bytes = (size_t)n * dtype_size(slot->dtype);
        void *zeros = xcalloc(n_bytes, 1);

        rc = backend_alloc(k->backend, n_bytes, "a slot", &k->slot[i], err);
        if (rc == 0)
            rc = backend_copy_in(k->backend, k->slot[i], zeros, n_bytes, err);
        free(zeros);
    }
    return rc;
}

static int make_memory(struct rank *k, struct err *err)
{
    const size_t grad_bytes = layout_grad_bytes(&k->layout, DTYPE_F32);

    if (backend_alloc(k->backend, grad_bytes, "gradients", (void **)&k->grad, err) < 0 ||
        backend_alloc(k->backend, grad_bytes, "weights", (void **)&k->w, err) < 0 ||
        backend_alloc(k->backend, 2 * sizeof(double), "check", (void **)&k->check, err) < 0)
        return err->code;
    k->momentum = xcalloc((size_t)sim_space.len, sizeof *k->momentum);
    for (int64_t i = 0; i < sim_space.len; i++)
        k->w[i] = sim_first_weight(i);
    for (int b = 0; b < k->layout.n_buckets; b++)
        k->bucket_at[b] = (char *)k->grad + k->layout.bucket[b].at;
    if (k->job->optimizer.kind->op == OP_adamw &&
        (make_moments(k, err) < 0 || make_adam(k, err) < 0))
        return err->code;
    return divided_open(k, err);
}

static int make_reducer(struct rank *k, struct err *err)
{
    struct reducer_options o = {.strategy = k->ops,
                                .options = k->job->strategy.options,
                                .backend = k->backend,
                                .layout = &k->layout,
                                .grad = k->grad,
                                .bucket = k->bucket_at,
                                .sums = (void *const *)k->d.sums,
                                .param = k->w,
                                .param_bucket = k->d.param_bucket,
                                .own_params = (void *const *)k->d.param,
                                .check = k->check,
                                .scalars = &k->scalars,
                                .optimizer = &k->job->optimizer,
                                .control = k->grad + sim_space.len,
                                .n_shares = k->run->n_shares,
                                .accumulate = 1,
                                .ring = k->ring,
                                .hooks = idle_hooks};

    memcpy(o.slot, k->slot, sizeof o.slot);
    memcpy(o.moment, k->moment, sizeof o.moment);
    return reducer_new(&o, &k->reducer, err);
}

static int open_rank(struct rank *k, struct err *err)
{
    make_layout(k);
    if (read_job(k, err) < 0 || backend_open_cpu(1, &k->backend, err) < 0)
        return err->code;
    k->ops = strategy_choose(&k->job->strategy);
    if (make_slots(k, err) < 0 || make_memory(k, err) < 0)
        return err->code;
    return make_reducer(k, err);
}

/* The gradient of this rank's samples, or with fixed shares that of one share. */
static void fill(struct rank *k, int64_t step, int share)
{
    const int n = k->run->n_ranks, is_uneven = k->run->is_uneven, n_shares = k->run->n_shares;
    const double part = sim_part(is_uneven, k->rank, n, step);
    const float weight = is_uneven ? (float)(part * n) : 1;
    const float factor = (float)reducer_loss_factor(k->reducer, step, part) * weight;

    for (int64_t i = 0; i < sim_space.len; i++)
        k->grad[i] = factor * sim_gradient(n_shares ? share : k->rank, n_shares ? n_shares : n,
                                           step, i, k->w[i]);
    memset(k->grad + sim_space.len, 0, CONTROL_LEN * sizeof *k->grad);
    k->grad[sim_space.len + CONTROL_TARGETS] = 1;
    k->grad[sim_space.len + CONTROL_READY] = (float)reducer_is_ready(k->reducer);
    k->grad[sim_space.len + CONTROL_WEIGHT + 3] = 64; /* the digit of 2^24: 1 * WEIGHT_UNITS */
    if (k->run->spoil)
        k->run->spoil(k->rank, step, k->grad);
}

/* Hand over all buckets, with fixed shares those of each of this rank's shares. */
static int hand_over(struct rank *k, int64_t step, struct err *err)
{
    const struct span all = {0, k->run->n_shares};
    const struct span own =
        all.n > 0 ? span_part(all, k->run->n_ranks, k->rank) : (struct span){0, 1};
    int rc = 0;

    for (int64_t share = own.first; share < own.first + own.n && rc == 0; share++) {
        fill(k, step, (int)share);
        for (int b = 0; b < k->layout.n_buckets && rc == 0; b++) {
            rc = divided_fill(k, b, err);
            if (rc == 0)
                rc = reducer_bucket(k->reducer, b, err);
        }
    }
    return rc;
}

static int check_control(const struct rank *k, struct err *err)
{
    const int n = k->run->n_shares ? k->run->n_shares : k->run->n_ranks;
    const float sum = k->grad[sim_space.len + CONTROL_TARGETS];

    return sum == (float)n
               ? 0
               : err_set(err, ERR_PROTO, "the control vector's sum is %g, want %d", (double)sum, n);
}

static int update(struct rank *k, struct err *err)
{
    int rc = 0;

    if (k->check[1] > 0)
        return 0;
    if (k->adam)
        rc = sketch_run(k->adam, err);
    else if (k->d.n_held > 0)
        divided_update(k);
    else
        for (int64_t i = 0; i < sim_space.len; i++) {
            k->momentum[i] = k->run->momentum * k->momentum[i] + k->grad[i];
            k->w[i] = k->w[i] - SIM_RATE * k->momentum[i];
        }
    k->scalars.n_updates++;
    return rc;
}

/* A sum beside the steps takes as long as it likes, but it has ended in every fourth step, which is
 * another one on each rank. */
static void wait_beside(struct rank *k, int64_t step)
{
    struct err err;

    while ((step + k->rank) % 4 == 3 &&
           !exchange_beside_has_ended(reducer_exchange(k->reducer), &err))
        sched_yield();
}

static void show(const struct rank *k, int64_t step)
{
    memcpy(k->out->w[step][k->rank], k->w, sizeof *k->w * (size_t)sim_space.len);
}

/* Begin a step.  Weights that the strategy changes then count as those of the step before. */
static int begin(struct rank *k, int64_t step, struct err *err)
{
    const int rc = reducer_begin(k->reducer, step, k->scalars.n_updates, err);

    if (step > 0)
        k->out->is_changed[step - 1][k->rank] = rc > 0;
    if (step > 0 && rc > 0)
        show(k, step - 1);
    return rc < 0 ? rc : 0;
}

static int run_step(struct rank *k, int64_t step, struct err *err)
{
    int rc = begin(k, step, err);

    k->kept[KEPT_LOWEST] = k->kept[KEPT_COUNT] = 0;
    k->check[0] = 1;
    k->check[1] = k->run->is_refused && k->run->is_refused(step);
    k->scalars.rate = SIM_RATE;
    k->scalars.n_targets = k->run->n_shares ? k->run->n_shares : k->run->n_ranks;
    if (rc == 0)
        rc = reducer_micro_begin(k->reducer, 1, 1, err);
    if (rc == 0)
        rc = hand_over(k, step, err);
    if (rc == 0)
        rc = reducer_finish(k->reducer, err);
    if (rc == 0)
        rc = check_control(k, err);
    if (rc == 0)
        rc = update(k, err);
    if (rc == 0)
        rc = reducer_updated(k->reducer, err);
    (void)reducer_end(k->reducer);
    wait_beside(k, step);
    if (rc >= 0)
        reducer_agree(k->reducer, step, (int)k->grad[sim_space.len + CONTROL_READY]);
    if (rc >= 0)
        rc = divided_gather(k, err);
    k->out->is_kept[step][k->rank] = k->kept[KEPT_COUNT] > 0;
    if (rc >= 0)
        show(k, step);
    return rc;
}

static int run_steps(struct rank *k, struct err *err)
{
    struct coll_stats stats;
    int rc = 0;

    ring_begin(k->ring, 1);
    reducer_join(k->reducer, k->coll);
    rc = reducer_form(k->reducer, 0, err);
    if (rc == 0)
        rc = reducer_met(k->reducer, err);
    for (int64_t step = 0; step < k->run->n_steps && rc == 0; step++)
        rc = run_step(k, step, err);
    if (rc == 0)
        rc = reducer_epoch_end(k->reducer, err);
    divided_show(k);
    coll_stats(k->coll, &stats);
    if (k->rank == 0)
        k->out->n_bytes = stats.n_bytes;
    reducer_leave(k->reducer);
    return rc;
}

static void close_rank(struct rank *k)
{
    program_free(k->adam);
    reducer_free(k->reducer);
    coll_free(k->coll);
    divided_close(k);
    free(k->momentum);
    for (int i = 0; k->backend && i < STRATEGY_MAX_SLOTS; i++)
        backend_free(k->backend, k->slot[i]);
    for (int i = 0; k->backend && i < OPTIMIZER_MAX_SLOTS; i++)
        backend_free(k->backend, k->moment[i]);
    if (k->backend) {
        backend_free(k->backend, k->grad);
        backend_free(k->backend, k->w);
        backend_free(k->backend, k->check);
        backend_free(k->backend, k->arena);
    }
    backend_close(k->backend);
    job_free(k->job);
    ring_free(k->ring);
}

static void *rank_main(void *arg)
{
    struct rank *k = arg;
    struct err *err = &k->out->err[k->rank];
    int rc;

    k->ring = ring_new();
    rc = open_rank(k, err);
    if (rc == 0)
        rc = run_steps(k, err);
    if (rc < 0)
        coll_abort(k->coll);
    k->out->rc[k->rank] = rc;
    close_rank(k);
    return NULL;
}

void bench_run(const struct bench_run *run, struct bench_result *out)
{
    struct coll_group *group = coll_group_new(run->n_ranks);
    struct rank *rank = xcalloc((size_t)run->n_ranks, sizeof *rank);
    pthread_t thread[SIM_MAX_RANKS];
    struct err err;

    memset(out, 0, sizeof *out);
    for (int r = 0; r < run->n_ranks; r++) {
        rank[r] = (struct rank){.run = run, .out = out, .rank = r};
        assert_int_equal(coll_new_local(group, r, &rank[r].coll, &err), 0);
    }
    for (int r = 0; r < run->n_ranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &rank[r]), 0);
    for (int r = 0; r < run->n_ranks; r++)
        pthread_join(thread[r], NULL);
    free(rank);
    coll_group_free(group);
}

/* zero: training with the optimizer's state divided among the ranks gives the same bits as the
 * plain all-reduce, whichever rank is lost at whichever collective. */
#include "../test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "ranks.h"
#include "strategy/cut.h"
#include "train/engine.h"
#include "train/shards.h"
#include "train/trainer_impl.h"

#define MLP_OF(samples)                                    \
    "model: {arch: mlp, hidden: [23], batch_norm: true}\n" \
    "data: {format: digits, samples: " samples ", validation_samples: 20}\n"
#define MLP    MLP_OF("240")
#define JOB    MLP "train: {global_batch: 24}\n"
#define ZERO   "strategy: {zero: 1}\n"
#define ZERO_2 "strategy: {zero: 2}\n"
#define ZERO_3 "strategy: {zero: 3}\n"
#define EMA    MLP "train: {global_batch: 24, average: {name: ema, decay: 0.5}}\n"
#define SWA    MLP "train: {global_batch: 24, average: {name: swa, start: 0, every: 2}}\n"
#define ADAM   "optimizer: {name: adamw, lr: 0.01, groups: [{match: fc2.bias, lr_scale: 2}]}\n"

#define ADAMW "optimizer: {name: adamw, lr: 0.01}\n"
#define SGD   "optimizer: {lr: 0.1, momentum: 0.9, weight_decay: 0.01}\n"
/* Eight buckets and more of SMALL_BUCKET and more; no layer's size is a multiple of SEGMENT_ALIGN.
 */
#define LARGE                                                                \
    "model: {arch: mlp, hidden: [110, 110, 110, 110, 110, 110, 110, 110]}\n" \
    "data: {format: digits, samples: 72, validation_samples: 20}\n"          \
    "optimizer: {lr: 0.1}\n"

enum { N_STEPS = 10, MOST_FILE = 1 << 23, SMALL_BUCKET = 40000, SHORT_BUCKET = 1000 };

/* ---- checkpoints ---- */

struct dir {
    char path[64];
};

static void make_dir(struct dir *d)
{
    snprintf(d->path, sizeof d->path, "/tmp/dptrain-zero-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

/* The files of the newest checkpoint, one after the other; for free().  Jobs without train.average
 * have no third one. */
static char *read_checkpoint(const struct dir *d, size_t *n)
{
    static const char *const name[] = {"model", "optimizer", "model_average"};
    char *bytes = xcalloc(1, MOST_FILE);

    *n = 0;
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char path[160];
        FILE *f;

        snprintf(path, sizeof path, "%s/checkpoints/latest/%s.safetensors", d->path, name[i]);
        f = fopen(path, "r");
        assert_true(f || i == 2);
        if (!f)
            continue;
        *n += fread(bytes + *n, 1, MOST_FILE - *n, f);
        fclose(f);
    }
    assert_true(*n > 1000 && *n < MOST_FILE);
    return bytes;
}

static void assert_same_checkpoints(const struct dir *a, const struct dir *b, const char *what)
{
    size_t n, m;
    char *x = read_checkpoint(a, &n), *y = read_checkpoint(b, &m);

    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s: the checkpoints differ", what);
    free(x);
    free(y);
}

/* The files differ by `most` at most, relative to the norm of all numbers.  Words that are no
 * numbers (names, counts) are equal. */
static void assert_close_checkpoints(const struct dir *a, const struct dir *b, double most,
                                     const char *what)
{
    double differs = 0, sum = 0;
    size_t n, m;
    char *x = read_checkpoint(a, &n), *y = read_checkpoint(b, &m);

    assert_true(n == m);
    for (size_t i = 0; i + sizeof(float) <= n; i += sizeof(float)) {
        float u, v;

        memcpy(&u, x + i, sizeof u);
        memcpy(&v, y + i, sizeof v);
        if (fabsf(u) > 1e4f || !isfinite(u)) { /* four letters */
            assert_memory_equal(x + i, y + i, sizeof u);
            continue;
        }
        differs += ((double)u - (double)v) * ((double)u - (double)v);
        sum += (double)u * (double)u;
    }
    if (!(differs <= most * most * sum))
        fail_msg("%s: the checkpoints differ by %g", what, sqrt(differs / sum));
    free(x);
    free(y);
}

static void train_watched(const char *job, int n_ranks, struct dir *d,
                          void (*on_step)(void *arg, struct trainer *t, int64_t step), void *arg)
{
    static struct run_result r;

    make_dir(d);
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = n_ranks,
                                  .n_epochs = 1,
                                  .run_dir = d->path,
                                  .bucket_bytes = SMALL_BUCKET,
                                  .on_step = on_step,
                                  .arg = arg},
               &r);
}

static void train(const char *job, int n_ranks, struct dir *d)
{
    train_watched(job, n_ranks, d, NULL, NULL);
}

/* Ranges of any size, buckets smaller than the number of ranks included; also where micro-batches
 * are added up, and where the sums are rounded to bfloat16. */
static void test_the_bits_of_the_all_reduce(void **state)
{
    static const struct {
        const char *plain, *zero;
    } jobs[] = {
        {JOB ADAM, JOB ADAM ZERO},
        {JOB ADAM, JOB ADAM "strategy: {zero: 1, buddy: false}\n"},
        {JOB SGD, JOB SGD ZERO},
        {JOB SGD, JOB SGD ZERO_2},
        {JOB SGD, JOB SGD ZERO_3},
        {JOB ADAM, JOB ADAM "strategy: {zero: 3, buddy: false}\n"},
        {JOB ADAM, JOB ADAM "strategy: {zero: 2, buddy: false}\n"},
        {JOB "optimizer: {lr: 0.1}\n", JOB "optimizer: {lr: 0.1}\n" ZERO},
        {JOB "optimizer: {name: lion, lr: 0.001}\n",
         JOB "optimizer: {name: lion, lr: 0.001}\n" ZERO},
        {MLP "train: {global_batch: 24, accumulate: 3}\n" ADAM,
         MLP "train: {global_batch: 24, accumulate: 3}\n" ADAM ZERO},
        {MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM,
         MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM ZERO},
        {MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM,
         MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM ZERO_2},
        {EMA ADAM, EMA ADAM ZERO},
        {EMA ADAM, EMA ADAM ZERO_3},
        {EMA SGD "precision: bfloat16\n", EMA SGD "precision: bfloat16\n" ZERO_2},
        {SWA "optimizer: {lr: 0.1}\n", SWA "optimizer: {lr: 0.1}\n" ZERO},
        {SWA SGD, SWA SGD "strategy: {zero: 2, buddy: false}\n"},
    };

    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(jobs); j++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            struct dir plain, zero;
            char what[32];

            snprintf(what, sizeof what, "job %d, %d ranks", (int)j, n);
            train(jobs[j].plain, n, &plain);
            train(jobs[j].zero, n, &zero);
            assert_same_checkpoints(&plain, &zero, what);
            remove_tree(plain.path);
            remove_tree(zero.path);
        }
}

/* Ranks that do not see rank 0's disk pass their parts in windows of any size; checkpoints inside
 * the epoch, too. */
static void test_parts_are_passed(void **state)
{
    static const char *const zero[] = {ZERO, ZERO_2, ZERO_3};
    static const size_t window[] = {333, 4096, 1 << 20};
    static struct run_result r;
    struct dir plain, got;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char *job = xasprintf("%s%s%s", JOB ADAM, zero[i], "checkpoint: {every_steps: 1}\n");

        train(JOB ADAM, 3, &plain);
        make_dir(&got);
        run_job_ok(&(struct run_plan){.job = job,
                                      .n_ranks = 3,
                                      .n_epochs = 1,
                                      .run_dir = got.path,
                                      .bucket_bytes = SMALL_BUCKET,
                                      .window_bytes = window[i]},
                   &r);
        assert_same_checkpoints(&plain, &got, zero[i]);
        assert_true(r.n_saved > 0);
        assert_string_equal(r.unsaved, "");
        free(job);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

/* The norm is added up in another order, so the gradients may be clipped by another last bit. */
static void test_clipped_for_100_steps(void **state)
{
    static const char job[] = MLP_OF("2400") "train: {global_batch: 24, clip_norm: 0.1}\n" SGD;
    static const char *const zero[] = {ZERO, ZERO_2};
    struct dir plain, got;

    (void)state;
    for (int i = 0; i < 2; i++) {
        char *divided = xasprintf("%s%s", job, zero[i]);

        train(job, 3, &plain);
        train(divided, 3, &got);
        assert_close_checkpoints(&plain, &got, 1e-6, zero[i]);
        free(divided);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

/* With zero 2 each micro-batch is summed over the ranks, and then micro-batches are added. */
static void test_micro_batches_of_zero_2(void **state)
{
    static const char job[] = MLP "train: {global_batch: 24, accumulate: 3}\n" SGD;
    struct dir plain, got;

    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        train(job, n, &plain);
        train(MLP "train: {global_batch: 24, accumulate: 3}\n" SGD ZERO_2, n, &got);
        if (n == 1)
            assert_same_checkpoints(&plain, &got, "one rank");
        else
            assert_close_checkpoints(&plain, &got, 1e-6, "several ranks");
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

static void write_text(struct dir *d)
{
    char path[80];
    FILE *f;

    make_dir(d);
    snprintf(path, sizeof path, "%s/text", d->path);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 1500; i++)
        fputc('a' + (i * i + i / 7) % 26, f);
    fclose(f);
}

/* Models that read parameters in several ways: the token embedding at both ends; statistics that
 * are summed over ranks between two layers.  Ranks without samples gather, too. */
static void test_parameters_are_gathered(void **state)
{
#define GPT  "model: {arch: gpt, layers: 3, heads: 2, width: 48, context: 16}\n"
#define TEXT "data: {format: text, path: %s/text}\n"
    static const char *const job[] = {
        GPT TEXT "train: {global_batch: 12, max_steps: 4}\n" ADAMW,
        GPT TEXT "train: {global_batch: 3, max_steps: 4}\n" ADAMW,
        "model: {arch: mlp, hidden: [110, 110, 110], batch_norm: true}\n# %s\n"
        "data: {format: digits, samples: 8, validation_samples: 2}\n"
        "train: {global_batch: 4}\noptimizer: {lr: 0.1}\n",
    };
    struct dir plain, got, text;

    (void)state;
    write_text(&text);
    for (size_t i = 0; i < ARRAY_LEN(job); i++) {
        char *whole = xasprintf(job[i], text.path), *divided = xasprintf("%s%s", whole, ZERO_3);

        train(whole, 5, &plain);
        train(divided, 5, &got);
        assert_same_checkpoints(&plain, &got, divided);
        free(whole);
        free(divided);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
    remove_tree(text.path);
}

/* Rank 0 has two batches of the validation set, and the others have one. */
static void test_ranks_gather_as_often(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [23]}\n"
                              "data: {format: digits, samples: 24, validation_samples: 193}\n"
                              "train: {global_batch: 24, accumulate: 2}\n" SGD;
    static struct run_result plain, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &plain);
    for (int zero = 2; zero <= 3; zero++) {
        char *divided = xasprintf("%sstrategy: {zero: %d}\n", job, zero);

        run_job_ok(&(struct run_plan){.job = divided, .n_ranks = 3, .n_epochs = 2}, &got);
        assert_int_equal(got.n_validated, 193);
        free(divided);
        if (zero == 2)
            plain = got;
    }
    assert_true(got.validation_loss == plain.validation_loss);
    assert_true(got.validation_accuracy == plain.validation_accuracy);
}

/* Rank 0's memory for gradients, in bytes. */
struct room {
    size_t pool, params, all, largest, sums;
};

static void note_room(void *arg, struct trainer *t, int64_t step)
{
    const struct layout *l = t->layout;
    const float *param = state_data(t->state, &slot_parameters);
    struct room *r = arg;
    struct err err;

    (void)step;
    for (int b = 0; param && b < l->n_buckets; b++) /* the step before may still gather them */
        assert_int_equal(reducer_gathered(t->reducer, b, &err), 0);
    *r = (struct room){.pool = t->buffers->pool.n_bytes,
                       .params = t->buffers->params.n_bytes,
                       .all = sizeof(float) * (size_t)l->n_trained,
                       .sums = cut_sums_at(l, l->n_buckets, 4, 0)};
    for (int b = 0; b + 1 < l->n_buckets; b++) {
        const int64_t n = cut_bucket(l, b) + cut_bucket(l, b + 1);

        r->largest = max_i64((int64_t)r->largest, n * (int64_t)sizeof(float));
    }
    assert_true(l->n_buckets >= 8);
    for (int b = 0; b + 1 < l->n_buckets; b++)
        assert_false(buffers_overlap(t->buffers, l, b, b + 1));
    for (int i = 0; i + 1 < l->n_params; i++)
        for (int64_t e = l->param[i].offset + l->param[i].length;
             param && e < l->param[i + 1].offset; e++)
            assert_true(param[e] == 0); /* what lay in the gradients' padding before was cleared */
    assert_null(t->buffers->grad);
    assert_null(t->buffers->sum);
}

/* Buckets lie where others have lain.  All the memory that gradients have is the sums of the shards
 * and two neighbouring buckets. */
static void test_memory_of_buckets_is_used_again(void **state)
{
    static const char plain_job[] = LARGE "train: {global_batch: 24}\n",
                      job[] = LARGE "train: {global_batch: 24}\n" ZERO_2,
                      plain_micro[] = LARGE "train: {global_batch: 24, accumulate: 2}\n",
                      micro[] = LARGE "train: {global_batch: 24, accumulate: 2}\n" ZERO_2;
    struct room room;
    struct dir plain, got;

    (void)state;
    train(plain_job, 4, &plain);
    train_watched(job, 4, &got, note_room, &room);
    assert_same_checkpoints(&plain, &got, "buckets");
    assert_true(room.pool <= room.largest + 64 && room.pool < room.all * 3 / 4);
    assert_true(room.sums <= room.all / 4 + 64);
    remove_tree(got.path);
    train_watched(LARGE "train: {global_batch: 24}\n" ZERO_3, 4, &got, note_room, &room);
    assert_same_checkpoints(&plain, &got, "buckets of parameters");
    assert_true(room.params <= room.largest + 64 && room.params > 64);
    remove_tree(plain.path);
    remove_tree(got.path);
    train(plain_micro, 2, &plain);
    train(micro, 2, &got);
    assert_close_checkpoints(&plain, &got, 1e-6, "buckets, micro-batches");
    remove_tree(plain.path);
    remove_tree(got.path);
}

/* ---- formations ---- */

#define SHORT                                                        \
    "model: {arch: mlp, hidden: [23], batch_norm: true}\n"           \
    "data: {format: digits, samples: 96, validation_samples: 20}\n"  \
    "train: {global_batch: 24, average: {name: ema, decay: 0.75}}\n" \
    "optimizer: {name: adamw, lr: 0.01}\n"

enum { SHORT_STEPS = 4 };

/* A job whose ranks are lost and replaced: each formation gives each rank a thread of its own. */
struct crew {
    const char *job;
    const char *run_dir;
    struct member {
        struct crew *crew;
        struct trainer *trainer;
        struct coll *coll;
        int rank, rc;
        struct err err;
        enum epoch_end end;
    } member[MOST_RANKS];
    int n;
    int64_t regroup_at; /* rank 0 asks to regroup while it computes this step; 0: no */
    pthread_barrier_t prepared;
    pthread_mutex_t lock; /* guards: */
    char warning[1024];
};

static void take_report(void *arg, struct report *r)
{
    struct member *m = arg;

    if (r->kind == REPORT_WARNING) {
        pthread_mutex_lock(&m->crew->lock);
        strncat(m->crew->warning, r->warning.text,
                sizeof m->crew->warning - strlen(m->crew->warning) - 1);
        pthread_mutex_unlock(&m->crew->lock);
    }
    report_free(r);
}

static unsigned requests(void *arg)
{
    const struct member *m = arg;

    return m->rank == 0 && m->crew->regroup_at && trainer_step(m->trainer) == m->crew->regroup_at
               ? ENGINE_REQUEST_REGROUP
               : 0;
}

static int canceled(void *arg)
{
    (void)arg;
    return 0;
}

static void at(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    (void)arg, (void)phase, (void)epoch, (void)step, (void)bucket;
}

static void stepped(void *arg, int64_t wall_ns, int64_t busy_ns)
{
    (void)arg, (void)wall_ns, (void)busy_ns;
}

/* A process starts, and opens the job as this rank. */
static void join(struct crew *w, int rank)
{
    struct member *m = &w->member[rank];
    const struct trainer_options o = {.n_threads = 1,
                                      .run_dir = rank == 0 ? w->run_dir : NULL,
                                      .bucket_bytes = SHORT_BUCKET, /* two buckets */
                                      /* A checkpoint is written before the next step. */
                                      .moment_ms = 60000};
    struct cmd *c = cmd_new(CMD_OPEN, 1);
    struct report *r = report_new(REPORT_OPENED, 1);

    m->crew = w;
    m->rank = rank;
    m->trainer =
        trainer_new(&o, &(struct trainer_hooks){m, take_report, requests, canceled, at, stepped});
    c->open.rank = rank;
    c->open.n_ranks = w->n;
    c->open.job = blob_of(w->job, strlen(w->job));
    if (rank == 0)
        c->open.resume = xstrdup(w->run_dir);
    if (trainer_open(m->trainer, c, r, &m->err) < 0)
        fail_msg("%s", m->err.msg);
    cmd_free(c);
    report_free(r);
}

static void leave(struct crew *w, int rank)
{
    trainer_free(w->member[rank].trainer);
    w->member[rank].trainer = NULL;
}

static int newest(const struct crew *w)
{
    int best = 0;

    for (int i = 1; i < w->n; i++)
        if (trainer_step(w->member[i].trainer) > trainer_step(w->member[best].trainer))
            best = i;
    return best;
}

static int train_and_save(struct member *m, struct err *err)
{
    struct report *done = report_new(REPORT_EPOCH, 1), *saved = report_new(REPORT_CHECKPOINT, 1);
    int rc = trainer_train(m->trainer, 1, done, err);

    m->end = done->epoch.end;
    if (rc == 0)
        rc = trainer_checkpoint(m->trainer, 1, saved, err);
    report_free(done);
    report_free(saved);
    return rc;
}

static void *work(void *arg)
{
    struct member *m = arg;
    struct crew *w = m->crew;
    int source;

    m->rc = trainer_prepare(m->trainer, m->rank, w->n, w->n, &m->err);
    ring_begin(trainer_ring(m->trainer), 1);
    pthread_barrier_wait(&w->prepared);
    source = newest(w);
    pthread_barrier_wait(&w->prepared);
    trainer_take_coll(m->trainer, m->coll);
    if (m->rc == 0)
        m->rc = trainer_form(m->trainer, source, &m->err);
    if (m->rc == 0)
        m->rc = train_and_save(m, &m->err);
    if (m->rc < 0)
        trainer_leave(m->trainer); /* as the driver has all ranks do */
    return NULL;
}

/* A formation of the crew's n first members.  Returns the number of members that failed. */
static int form_and_train(struct crew *w, int victim, struct coll_fault fault)
{
    struct coll_group *g = coll_group_new(w->n);
    pthread_t thread[MOST_RANKS];
    struct err err;
    int n_failed = 0;

    pthread_barrier_init(&w->prepared, NULL, (unsigned)w->n);
    coll_local_inject(g, victim, fault);
    for (int i = 0; i < w->n; i++) {
        w->member[i].rank = i;
        assert_int_equal(coll_new_local(g, i, &w->member[i].coll, &err), 0);
    }
    for (int i = 0; i < w->n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w->member[i]), 0);
    for (int i = 0; i < w->n; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < w->n; i++) {
        n_failed += w->member[i].rc < 0;
        trainer_leave(w->member[i].trainer); /* its coll is freed before the group */
    }
    coll_group_free(g);
    pthread_barrier_destroy(&w->prepared);
    return n_failed;
}

static void crew_begin(struct crew *w, const char *job, int n, struct dir *d)
{
    make_dir(d);
    *w = (struct crew){.job = job, .run_dir = d->path, .n = n};
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < n; i++)
        join(w, i);
}

static void crew_end(struct crew *w)
{
    for (int i = 0; i < MOST_RANKS; i++)
        leave(w, i);
    pthread_mutex_destroy(&w->lock);
}

static const struct coll_fault no_fault;

static void assert_all_well(struct crew *w, const char *what)
{
    if (form_and_train(w, 0, no_fault) > 0)
        for (int i = 0; i < w->n; i++)
            if (w->member[i].rc < 0)
                fail_msg("%s: rank %d: %s", what, i, w->member[i].err.msg);
}

/* The checkpoint of an undisturbed run. */
static void undisturbed(const char *job, int n, struct dir *d)
{
    struct crew w;

    crew_begin(&w, job, n, d);
    assert_all_well(&w, "undisturbed");
    assert_int_equal(trainer_step(w.member[0].trainer), SHORT_STEPS);
    crew_end(&w);
}

/* A rank is lost at each of its collectives in turn, those of the first formation and of the
 * checkpoint included, and another takes its place.  The bits are those of an undisturbed run. */
static void lose_at_each(const char *job, int n, int victim, enum coll_channel channel,
                         const struct dir *want)
{
    int64_t ticket = 1;

    for (int n_failed = 1; n_failed > 0; ticket++) {
        const struct coll_fault fault = {.channel = channel, .at_ticket = ticket, .fail = ERR_PEER};
        struct crew w;
        struct dir got;
        char what[80];

        snprintf(what, sizeof what, "%d ranks, rank %d lost at %d of channel %d", n, victim,
                 (int)ticket, (int)channel);
        crew_begin(&w, job, n, &got);
        n_failed = form_and_train(&w, victim, fault);
        if (n_failed > 0) {
            leave(&w, victim);
            join(&w, victim);
            assert_all_well(&w, what);
        }
        if (!strstr(w.warning, "starting from the beginning") && victim == 0)
            fail_msg("%s: %s", what, w.warning);
        assert_null(strstr(w.warning, "goes back"));
        crew_end(&w);
        assert_same_checkpoints(want, &got, what);
        remove_tree(got.path);
    }
    assert_true(ticket > (channel == COLL_BULK ? 4 : 1) * SHORT_STEPS);
}

static void test_a_rank_is_lost_anywhere(void **state)
{
    struct dir want;

    (void)state;
    undisturbed(SHORT ZERO, 3, &want);
    lose_at_each(SHORT ZERO, 3, 0, COLL_BULK, &want);
    lose_at_each(SHORT ZERO, 3, 2, COLL_BULK, &want);
    lose_at_each(SHORT ZERO, 3, 1, COLL_URGENT, &want);
    lose_at_each(SHORT ZERO_2, 3, 1, COLL_BULK, &want);
    lose_at_each(SHORT ZERO_2, 3, 0, COLL_URGENT, &want);
    lose_at_each(SHORT ZERO_3, 3, 1, COLL_BULK, &want);
    lose_at_each(SHORT ZERO_3, 3, 2, COLL_URGENT, &want);
    remove_tree(want.path);
}

/* ---- ranks that differ in a step ---- */

int __real_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err);
int __wrap_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err);

static atomic_int cut_rank,
    cut_after; /* this rank's so many-th sum of checks fails; 0: none does */

/* The other ranks have the sum, and this one does not. */
int __wrap_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err)
{
    const int rc = __real_exchange_sum_now(x, p, n, phase, err);

    if (rc < 0 || phase != PHASE_REDUCE || coll_rank(exchange_coll(x)) != atomic_load(&cut_rank) ||
        atomic_load(&cut_after) == 0 || atomic_fetch_sub(&cut_after, 1) > 1)
        return rc;
    p[0] = p[1] = 1;
    return err_set(err, ERR_PEER, "cut off");
}

/* A formation that ends because `rank` is cut off in step `step`. */
static void cut_off(struct crew *w, int rank, int step)
{
    atomic_store(&cut_rank, rank);
    atomic_store(&cut_after, step + 1);
    assert_true(form_and_train(w, 0, no_fault) > 0);
    assert_true(w->member[rank].rc < 0);
    assert_int_equal(trainer_step(w->member[rank].trainer), step);
}

/* The ranks that updated their shards are one step ahead of the one that was cut off.  That one
 * makes the update later; nothing is lost, also if one of the others is.  */
static void make_the_step_later(const char *job, int victim, const struct dir *want)
{
    struct crew w;
    struct dir got;
    char what[32];

    snprintf(what, sizeof what, "then rank %d is lost", victim);
    crew_begin(&w, job, 3, &got);
    cut_off(&w, 1, 2);
    assert_int_equal(trainer_step(w.member[0].trainer), 3);
    assert_int_equal(trainer_step(w.member[2].trainer), 3);
    if (victim >= 0) {
        leave(&w, victim);
        join(&w, victim);
    }
    assert_all_well(&w, what);
    crew_end(&w);
    assert_same_checkpoints(want, &got, what);
    remove_tree(got.path);
}

static void test_a_rank_makes_the_step_later(void **state)
{
    static const char *const job[] = {SHORT ZERO, SHORT ZERO_2, SHORT ZERO_3};
    struct dir want;

    (void)state;
    undisturbed(SHORT ZERO, 3, &want);
    for (int i = 0; i < 3; i++)
        for (int victim = -1; victim < 3; victim++)
            if (victim != 1)
                make_the_step_later(job[i], victim, &want);
    remove_tree(want.path);
}

/* A rank and its buddy are lost. */
static void lose_two(struct crew *w, const char *job, struct dir *d)
{
    crew_begin(w, job, 4, d);
    cut_off(w, 2, 3);
    for (int i = 1; i <= 2; i++) {
        leave(w, i);
        join(w, i);
    }
}

static void test_a_rank_and_its_buddy_are_lost(void **state)
{
    static const struct {
        const char *job, *want;
    } cases[] = {
        {SHORT ZERO "checkpoint: {every_steps: 2}\n",
         "the part of rank 1 was held by the ranks 1 and 2 of 4, and both were lost: training goes "
         "back to the checkpoint of step 2"},
        {SHORT ZERO, "both were lost: there is no checkpoint yet, so training begins again"},
        {SHORT ZERO_3, "both were lost: there is no checkpoint yet, so training begins again"},
    };
    struct crew w;
    struct dir want, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        undisturbed(cases[i].job, 4, &want);
        lose_two(&w, cases[i].job, &got);
        assert_all_well(&w, cases[i].want);
        assert_non_null(strstr(w.warning, cases[i].want));
        crew_end(&w);
        assert_same_checkpoints(&want, &got, cases[i].want);
        remove_tree(want.path);
        remove_tree(got.path);
    }
}

/* Ranks leave where all ranks have agreed to: no copy is needed.  Then ranks join.  Each rank holds
 * its share of the state. */
static void leave_and_join(const char *job)
{
    struct crew w;
    struct dir got;
    size_t whole;

    crew_begin(&w, job, 4, &got);
    whole = shards_bytes(w.member[0].trainer->state);
    w.regroup_at = 1;
    assert_all_well(&w, "four");
    assert_int_equal(w.member[3].end, EPOCH_REGROUP);
    for (int i = 2; i < 4; i++)
        leave(&w, i);
    w.n = 2;
    w.regroup_at = 2;
    assert_all_well(&w, "two");
    w.n = 5;
    w.regroup_at = 0;
    for (int i = 2; i < 5; i++)
        join(&w, i);
    assert_all_well(&w, "five");
    assert_int_equal(trainer_step(w.member[4].trainer), SHORT_STEPS);
    for (int i = 0; i < 5; i++) {
        const size_t n = shards_bytes(w.member[i].trainer->state);

        if (n + 64 < whole / 5 || n > whole / 5 + 64)
            fail_msg("rank %d holds %zu bytes of %zu", i, n, whole);
    }
    assert_string_equal(w.warning,
                        "resume: the run has no checkpoint yet: starting from the beginning");
    crew_end(&w);
    remove_tree(got.path);
}

static void test_ranks_leave_and_join(void **state)
{
    (void)state;
    leave_and_join(SHORT "strategy: {zero: 1, buddy: false}\n");
    leave_and_join(SHORT "strategy: {zero: 2, buddy: false}\n");
    leave_and_join(SHORT "strategy: {zero: 3, buddy: false}\n");
}

/* A copy that differs from its original is found at the end of the epoch. */
static void spoil(void *arg, struct trainer *t, int64_t step)
{
    struct shard_set *set = &t->state->shards->now;

    (void)arg;
    for (int k = 0; k < t->state->n_slots; k++)
        if (step == 3 && set->data[k][SHARD_COPY])
            ((float *)set->data[k][SHARD_COPY])[0] += 1;
}

static void test_copies_are_proven(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(&(struct run_plan){.job = SHORT ZERO, .n_ranks = 3, .n_epochs = 1, .on_step = spoil},
            &r);
    assert_int_equal(r.rc[0], ERR_NUMERIC);
    assert_non_null(strstr(r.err[0].msg, "rank 0's copy of rank 2's part of the state differs"));
}

/* The fault is of a rank's own sums, which its buddy has got before. */
static void test_a_flipped_sum_is_found(void **state)
{
    static const char *const job[] = {SHORT ZERO, SHORT ZERO_2};
    static struct run_result r;

    (void)state;
    for (int i = 0; i < 2; i++) {
        run_job(
            &(struct run_plan){
                .job = job[i], .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank1@step2:reduced0"},
            &r);
        assert_non_null(strstr(r.injected, "flips after bucket 0 of step 2 is summed"));
        assert_int_equal(r.rc[2], ERR_NUMERIC);
        assert_non_null(
            strstr(r.err[2].msg, "rank 2's copy of rank 1's part of the state differs"));
    }
}

/* The sums of step 0 are wrong on one rank, and a checkpoint inside the epoch is due after step 2:
 * it is not written. */
static void test_a_wrong_state_is_not_saved(void **state)
{
    static struct run_result r;
    struct dir d;
    char path[160];

    (void)state;
    make_dir(&d);
    run_job(&(struct run_plan){.job = SHORT ZERO "checkpoint: {every_steps: 2}\n",
                               .n_ranks = 3,
                               .n_epochs = 1,
                               .run_dir = d.path,
                               .inject = "flip:rank1@step0:reduced0"},
            &r);
    assert_int_equal(r.rc[2], ERR_NUMERIC);
    assert_int_equal(r.step[2], 2);
    snprintf(path, sizeof path, "%s/checkpoints/latest", d.path);
    assert_int_equal(access(path, F_OK), -1);
    remove_tree(d.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bits_of_the_all_reduce),
        cmocka_unit_test(test_clipped_for_100_steps),
        cmocka_unit_test(test_micro_batches_of_zero_2),
        cmocka_unit_test(test_memory_of_buckets_is_used_again),
        cmocka_unit_test(test_parts_are_passed),
        cmocka_unit_test(test_parameters_are_gathered),
        cmocka_unit_test(test_ranks_gather_as_often),
        cmocka_unit_test(test_a_rank_is_lost_anywhere),
        cmocka_unit_test(test_a_rank_makes_the_step_later),
        cmocka_unit_test(test_a_rank_and_its_buddy_are_lost),
        cmocka_unit_test(test_ranks_leave_and_join),
        cmocka_unit_test(test_copies_are_proven),
        cmocka_unit_test(test_a_flipped_sum_is_found),
        cmocka_unit_test(test_a_wrong_state_is_not_saved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

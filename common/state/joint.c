/* joint - the copies, threads and messages of a checkpoint that all ranks write together.
 *
 * joint.h tells the phases.  A checkpoint under way is a struct save.  While a task is queued, the
 * save belongs to the thread; otherwise to the engine.  The last task frees it. */
#include "state/joint_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"
#include "base/writer.h"
#include "state/drain.h"
#include "state/shards.h"

enum {
    WINDOW_BYTES = 32 << 20, /* what a rank passes to rank 0 in one poll */
    MOMENT_MS = 2,
    QUEUE_BYTES = 1 << 20, /* far more than the few tasks of a checkpoint and of those given up */
    MOST_DRAFTS = 2,       /* of a checkpoint */
    LEAVE_MS = 10000,      /* a rank that is not rank 0 leaves its thread on a disk that hangs */
};

static const int64_t never_ms = 365 * 24 * 3600 * INT64_C(1000);

/* ---- the thread's queue ---- */

struct step {
    struct task task;
    struct joint *joint;
    struct save *save;
    void (*run)(struct save *v);
};

static void run_step(struct task *task)
{
    struct step *s = container_of(task, struct step, task);
    struct joint *j = s->joint;

    s->run(s->save);
    free(s);
    pthread_mutex_lock(&j->lock);
    ASSERT(j->n_tasks > 0);
    j->n_tasks--;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static void joint_start(struct joint *j, struct save *v, void (*run)(struct save *v))
{
    struct step *s = xcalloc(1, sizeof *s);

    *s = (struct step){.task = {.run = run_step}, .joint = j, .save = v, .run = run};
    pthread_mutex_lock(&j->lock);
    j->n_tasks++;
    pthread_mutex_unlock(&j->lock);
    if (writer_put(j->thread, &s->task) != 0)
        ASSERT(!"a task without bytes always fits");
}

/* ---- life ---- */

struct joint *joint_new(void *arg, int (*canceled)(void *arg))
{
    struct joint *j = xcalloc(1, sizeof *j);

    j->arg = arg;
    j->canceled = canceled;
    pthread_mutex_init(&j->lock, NULL);
    cond_init(&j->changed);
    return j;
}

int joint_open(struct joint *j, const struct joint_options *o, struct err *err)
{
    j->o = *o;
    if (!j->o.window_bytes)
        j->o.window_bytes = WINDOW_BYTES;
    if (!j->o.moment_ms)
        j->o.moment_ms = MOMENT_MS;
    return writer_new(QUEUE_BYTES, &j->thread, err);
}

void joint_free(struct joint *j)
{
    if (!j)
        return;
    (void)joint_give_up(j);
    if (writer_free(j->thread, j->o.saver ? never_ms : LEAVE_MS) != 0)
        return;
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

int joint_is_under_way(const struct joint *j) { return j->save != NULL; }

void joint_interrupt(struct joint *j)
{
    pthread_mutex_lock(&j->lock);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* Give the save to its last task. */
static void joint_end(struct joint *j, void (*last)(struct save *v))
{
    ASSERT(j->save);
    joint_start(j, j->save, last);
    j->save = NULL;
}

/* All parts are written: rank 0 puts the checkpoint in place, if it is right. */
static void joint_end_written(struct joint *j)
{
    joint_end(j, j->save->rank == 0 ? joint_place : joint_drop);
}

int joint_give_up(struct joint *j)
{
    struct save *v = j->save;

    if (!v)
        return 0;
    if (v->phase == CHECKING) {
        joint_end_written(j);
        return 0;
    }
    atomic_store(&v->is_given_up, 1);
    joint_end(j, joint_drop);
    return 1;
}

/* ---- the engine's side ---- */

/* On rank 0 the parts are the whole checkpoint: no byte is left out, and none is there twice. */
static void list_parts(struct save *v, const struct state *s)
{
    int64_t n_bytes = 0;

    v->n_parts = v->rank == 0 ? v->size : 1;
    v->part = xcalloc((size_t)v->n_parts, sizeof *v->part);
    for (int i = 0; i < v->n_parts; i++) {
        part_init(&v->part[i], &v->contents, s, v->size, v->rank == 0 ? i : v->rank);
        n_bytes += v->part[i].n_bytes;
    }
    ASSERT(v->rank == 0 ? n_bytes == contents_bytes(&v->contents)
                        : n_bytes <= contents_bytes(&v->contents));
}

/* Copy this rank's own part.  If there is no memory for it, the rank says so after the other ranks
 * have written theirs. */
static int copy_part(struct save *v, const struct state *s, struct err *err)
{
    v->rc = try_alloc((void **)&v->bytes, (size_t)v->part[0].n_bytes + 1,
                      "a copy of this rank's part of a checkpoint", &v->err);
    return v->rc == 0 ? part_copy(&v->part[0], &v->contents, s, v->bytes, err) : 0;
}

int joint_begin(struct joint *j, struct coll *c, int is_awaited, int64_t generation,
                struct err *err)
{
    const int64_t since_ns = clock_mono_ns();
    const struct shard_set *now = &j->o.state->shards->now;
    struct save *v = xcalloc(1, sizeof *v);
    int rc;

    ASSERT(!j->save && (coll_rank(c) == 0) == !!j->o.saver);
    ASSERT(coll_size(c) == now->size && coll_rank(c) == now->rank);
    v->joint = j;
    v->rank = coll_rank(c);
    v->size = coll_size(c);
    v->unseen = xcalloc((size_t)v->size, 1);
    v->has_erred = xcalloc((size_t)v->size, 1);
    contents_init(&v->contents, j->o.state);
    rc = contents_set_state(&v->contents, j->o.state, v->size, err);
    if (rc == 0) {
        list_parts(v, j->o.state);
        rc = copy_part(v, j->o.state, err);
    }
    if (rc < 0) {
        joint_free_save(v);
        return rc;
    }
    j->save = v;
    if (j->o.saver)
        saver_hold(j->o.saver, is_awaited, generation);
    if (v->rank == 0)
        joint_start(j, v, joint_prepare);
    v->exposed_s = clock_since_s(since_ns);
    return joint_poll(j, c, err);
}

/* 1. Rank 0 tells where the files are. */
static int end_preparing(struct joint *j, struct coll *c, struct err *err)
{
    struct save *v = j->save;

    ASSERT(v->phase == PREPARING && v->size == coll_size(c));
    if (coll_broadcast(c, v->folder, sizeof v->folder, 0, err) < 0)
        return err->code;
    v->phase = WRITING;
    if (v->folder[0])
        joint_start(j, v, joint_write_part);
    else
        joint_end(j, joint_drop); /* rank 0 could not make the files */
    return 0;
}

/* The report of a rank about its part. */
struct outcome {
    int32_t rc;
    struct hash128 hash;
    char why[sizeof((struct err *)0)->msg];
};

static struct outcome outcome_of(const struct save *v)
{
    struct outcome o = {.rc = v->rc, .hash = v->part[0].files.hash};

    if (v->rc < 0)
        memcpy(o.why, v->err.msg, sizeof o.why);
    return o;
}

/* Returns the first rank that failed, or -1; *any_unseen: some rank does not see the disk. */
static int note_outcomes(struct save *v, const struct outcome *o, int *any_unseen)
{
    *any_unseen = 0;
    for (int r = 0; r < v->size; r++) {
        if (o[r].rc < 0)
            return r;
        v->unseen[r] = o[r].rc == DRAFT_UNSEEN;
        *any_unseen |= v->unseen[r];
        if (v->rank == 0)
            v->part[r].files.hash = o[r].hash;
    }
    return -1;
}

static void begin_checking(struct joint *j)
{
    struct save *v = j->save;

    ASSERT(v->phase == WRITING || v->phase == PASSING);
    v->phase = CHECKING;
    if (v->rank == 0)
        joint_start(j, v, joint_check);
}

static void begin_passing(struct joint *j)
{
    struct save *v = j->save;

    ASSERT(v->phase == WRITING && !v->window);
    v->phase = PASSING;
    v->from = v->passed = 0;
    if (v->rank == 0)
        v->rc = try_alloc((void **)&v->window, j->o.window_bytes, "a checkpoint's window", &v->err);
}

/* 2. All ranks tell how writing went. */
static int end_writing(struct joint *j, struct coll *c, struct err *err)
{
    struct save *v = j->save;
    struct outcome mine = outcome_of(v), *all = xcalloc((size_t)v->size, sizeof *all);
    int bad = -1, any_unseen = 0, rc = coll_allgather(c, &mine, sizeof mine, all, err);

    ASSERT(v->phase == WRITING && v->size == coll_size(c));
    if (rc == 0)
        bad = note_outcomes(v, all, &any_unseen);
    if (bad >= 0) {
        all[bad].why[sizeof all->why - 1] = '\0';
        err_set(&v->err, ERR_IO, "rank %d: %s", bad, all[bad].why);
        joint_end(j, joint_drop);
    } else if (rc == 0 && any_unseen) {
        begin_passing(j);
    } else if (rc == 0) {
        begin_checking(j);
    }
    free(all);
    return rc;
}

/* The order that rank 0 gives in a poll of phase 3. */
struct order {
    int32_t rank; /* it sends the next window; ALL_PASSED, PASS_FAILED: none does */
    int64_t n_bytes;
};

enum { ALL_PASSED = -1, PASS_FAILED = -2 };

/* Rank 0 chooses the next window. */
static struct order next_window(struct joint *j)
{
    struct save *v = j->save;

    ASSERT(v->rank == 0 && v->from <= v->size);
    if (v->rc < 0)
        return (struct order){PASS_FAILED, 0};
    while (v->from < v->size && (!v->unseen[v->from] || v->passed == v->part[v->from].n_bytes)) {
        v->from++;
        v->passed = 0;
    }
    if (v->from == v->size)
        return (struct order){ALL_PASSED, 0};
    v->n_window = (size_t)min_i64((int64_t)j->o.window_bytes, v->part[v->from].n_bytes - v->passed);
    ASSERT(v->n_window > 0 && v->from > 0); /* rank 0 sees its own disk */
    return (struct order){v->from, (int64_t)v->n_window};
}

/* Send n bytes of the host's memory to rank `peer`, or take them from it.  Collectives of devices
 * work on the device's memory only, so there the bytes pass through a window on the device. */
static int move_window(struct joint *j, struct coll *c, int sends, char *bytes, int64_t n, int peer,
                       struct err *err)
{
    struct backend *b = j->o.state->backend;
    struct coll_message m = {bytes, n, peer};
    int64_t ticket;
    int rc = 0;

    if (coll_is_device(c))
        rc = backend_alloc(b, (size_t)n, "a window of a checkpoint", &m.x, err);
    if (rc == 0 && sends && m.x != bytes)
        rc = backend_copy_in(b, m.x, bytes, (size_t)n, err);
    if (rc == 0) {
        ticket = (sends ? coll_send : coll_recv)(c, COLL_BULK, m, DTYPE_U8, COLL_TAG_NONE, err);
        rc = ticket < 0 ? (int)ticket : coll_wait(c, ticket, err);
    }
    if (rc == 0)
        rc = drain_device(c, b, err);
    if (rc == 0 && !sends && m.x != bytes)
        rc = backend_copy_out(b, bytes, m.x, (size_t)n, err);
    if (rc < 0)
        coll_abort(c); /* a device must not write to memory that is about to be freed */
    if (coll_is_device(c) && m.x != bytes)
        backend_free(b, m.x);
    return rc;
}

static int send_window(struct joint *j, struct coll *c, int64_t n, struct err *err)
{
    struct save *v = j->save;

    if (n < 0 || n > v->part[0].n_bytes - v->passed)
        return err_set(err, ERR_PROTO, "rank 0 wants %lld bytes of a checkpoint, %lld are left",
                       (long long)n, (long long)(v->part[0].n_bytes - v->passed));
    v->passed += n;
    return move_window(j, c, 1, v->bytes + v->passed - n, n, 0, err);
}

static int take_window(struct joint *j, struct coll *c, struct err *err)
{
    const int64_t since_ns = clock_mono_ns();
    struct save *v = j->save;
    const int rc = move_window(j, c, 0, v->window, (int64_t)v->n_window, v->from, err);

    v->exposed_s += clock_since_s(since_ns);
    if (rc == 0)
        joint_start(j, v, joint_write_window);
    return rc;
}

/* 3. One rank sends one window to rank 0. */
static int joint_pass(struct joint *j, struct coll *c, struct err *err)
{
    struct save *v = j->save;
    struct order o = {0};
    int rc;

    if (v->rank == 0)
        o = next_window(j);
    rc = coll_broadcast(c, &o, sizeof o, 0, err);
    if (rc < 0)
        return rc;
    if (o.rank == ALL_PASSED)
        begin_checking(j);
    else if (o.rank == PASS_FAILED)
        joint_end(j, joint_drop);
    else if (v->rank == 0)
        return take_window(j, c, err);
    else if (v->rank == o.rank)
        return send_window(j, c, o.n_bytes, err);
    return 0;
}

/* Have all ranks write their parts to new files. */
static void begin_again(struct joint *j)
{
    struct save *v = j->save;

    v->phase = PREPARING;
    v->rc = 0;
    v->folder[0] = '\0';
    free(v->window);
    v->window = NULL;
    if (v->rank == 0)
        joint_start(j, v, joint_prepare);
}

/* 4. Rank 0 tells whether the files have to be written again. */
static int end_checking(struct joint *j, struct coll *c, struct err *err)
{
    struct save *v = j->save;
    uint8_t is_again = v->rc == DRAFT_DAMAGED && v->n_damaged < MOST_DRAFTS;

    if (coll_broadcast(c, &is_again, sizeof is_again, 0, err) < 0)
        return err->code;
    if (is_again)
        begin_again(j);
    else
        joint_end_written(j);
    return 0;
}

/* The threads of all ranks are done. */
static int joint_go_on(struct joint *j, struct coll *c, struct err *err)
{
    switch (j->save->phase) {
    case PREPARING:
        return end_preparing(j, c, err);
    case WRITING:
        return end_writing(j, c, err);
    case PASSING:
        return joint_pass(j, c, err);
    case CHECKING:
        return end_checking(j, c, err);
    }
    return 0;
}

/* Wait a moment for this rank's thread, so that a small checkpoint is written at once.  Returns 1
 * if the thread is still busy. */
static uint8_t is_busy_for_long(struct joint *j)
{
    const int64_t until_ns = clock_mono_ns() + j->o.moment_ms * 1000000;
    int is_late = 0;
    uint8_t busy;

    pthread_mutex_lock(&j->lock);
    while (j->n_tasks > 0 && !is_late)
        is_late = cond_wait_until(&j->changed, &j->lock, until_ns);
    busy = j->n_tasks > 0;
    pthread_mutex_unlock(&j->lock);
    return busy;
}

/* *any_busy: 1 if the thread of some rank is busy. */
static int ask_all(struct joint *j, struct coll *c, int *any_busy, struct err *err)
{
    const size_t size = (size_t)coll_size(c);
    const uint8_t mine = is_busy_for_long(j);
    uint8_t *all = xcalloc(size, 1);
    const int rc = coll_allgather(c, &mine, 1, all, err);

    *any_busy = memchr(all, 1, size) != NULL;
    free(all);
    return rc;
}

int joint_poll(struct joint *j, struct coll *c, struct err *err)
{
    int rc = 0, any_busy = 0;

    while (j->save && !any_busy && rc == 0) {
        rc = ask_all(j, c, &any_busy, err);
        if (rc == 0 && !any_busy)
            rc = joint_go_on(j, c, err);
    }
    return rc < 0 ? err_wrap(err, "a checkpoint that all ranks write") : 0;
}

/* Wait until this rank's thread is done. */
static int joint_wait_idle(struct joint *j, struct err *err)
{
    int rc = 0;

    pthread_mutex_lock(&j->lock);
    while (j->n_tasks > 0 && rc == 0) {
        if (j->canceled(j->arg))
            rc = err_set(err, ERR_CANCELED, "waiting for a checkpoint to be written was canceled");
        else
            pthread_cond_wait(&j->changed, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return rc;
}

int joint_finish(struct joint *j, struct coll *c, struct err *err)
{
    int rc = 0;

    while (j->save && rc == 0) {
        rc = joint_wait_idle(j, err);
        if (rc == 0)
            rc = joint_poll(j, c, err);
    }
    return rc;
}

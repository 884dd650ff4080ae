/* The ledger of the wall time.  Each function first brings it up to now, and then moves time
 * between two kinds, so no time appears or vanishes. */
#include "session/account.h"

#include <math.h>

#include "base/util.h"

/* The time of training so far, waits for data included. */
static int64_t account_training_ns(const struct account *a)
{
    return a->times.ns[ACCOUNT_PRODUCTIVE] + a->times.ns[ACCOUNT_DATA];
}

static void go_on(struct account *a, int64_t now_ns)
{
    if (now_ns <= a->at_ns)
        return;
    a->times.ns[a->now] += now_ns - a->at_ns;
    a->times.rank_us += a->n_ranks * (now_ns - a->at_ns) / 1000;
    a->at_ns = now_ns;
}

/* Move up to `ns`, as far as there is so much.  Returns what was moved. */
static int64_t account_move(struct account *a, enum account_kind from, enum account_kind to,
                            int64_t ns)
{
    ns = max_i64(0, min_i64(ns, a->times.ns[from]));
    a->times.ns[from] -= ns;
    a->times.ns[to] += ns;
    return ns;
}

/* Training has become shorter: no mark may lie beyond its end. */
static void bound_marks(struct account *a)
{
    int64_t ns = account_training_ns(a);
    for (int i = a->n_marks - 1; i >= 0 && a->mark[i].ns > ns; i--)
        a->mark[i].ns = ns;
    a->share_from_ns = min_i64(a->share_from_ns, ns);
}

void account_init(struct account *a, const struct account_past *past, int64_t now_ns)
{
    *a = (struct account){.times = past->times,
                          .from_ns = now_ns,
                          .at_ns = now_ns,
                          .before_ns = account_wall_ns(&past->times),
                          .now = ACCOUNT_START,
                          .n_marks = past->n_marks};
    ASSERT(past->n_marks <= ACCOUNT_PAST_MARKS);
    for (int i = 0; i < past->n_marks; i++)
        a->mark[i] = past->mark[i];
    bound_marks(a);
    account_check(a);
}

void account_turn(struct account *a, int64_t now_ns, enum account_kind kind)
{
    go_on(a, now_ns);
    a->now = kind;
}

void account_ranks(struct account *a, int64_t now_ns, int n_ranks)
{
    go_on(a, now_ns);
    a->n_ranks = n_ranks;
}

/* Keep every second mark, the newest one included. */
static void thin_marks(struct account *a)
{
    int n = 0;
    for (int i = 1; i < a->n_marks; i += 2)
        a->mark[n++] = a->mark[i];
    a->n_marks = n;
}

void account_step(struct account *a, int64_t now_ns, int64_t step)
{
    go_on(a, now_ns);
    if (a->n_marks > 0 && step <= a->mark[a->n_marks - 1].step)
        return;
    if (a->n_marks == ACCOUNT_MARKS)
        thin_marks(a);
    a->mark[a->n_marks++] = (struct account_mark){step, account_training_ns(a)};
}

/* The time that training had taken when the run had made `step`.  Between two marks all steps count
 * as equally long. */
static int64_t account_ns_at(const struct account *a, int64_t step, int64_t n_lost)
{
    struct account_mark low = {0}, high = {step + n_lost, account_training_ns(a)};
    for (int i = 0; i < a->n_marks; i++) {
        if (a->mark[i].step > step) {
            high = a->mark[i];
            break;
        }
        low = a->mark[i];
    }
    if (high.step <= low.step) /* the newest mark is of this step, and none was begun behind it */
        return high.ns;
    double part = (double)(step - low.step) / (double)(high.step - low.step);
    return low.ns + (int64_t)(part * (double)(high.ns - low.ns));
}

void account_back(struct account *a, int64_t step, int64_t n_lost)
{
    int64_t kept = account_ns_at(a, step, max_i64(0, n_lost)), undone;
    undone = account_training_ns(a) - kept;
    undone -= account_move(a, ACCOUNT_PRODUCTIVE, ACCOUNT_REPEATED, undone);
    account_move(a, ACCOUNT_DATA, ACCOUNT_REPEATED, undone);
    while (a->n_marks > 0 && a->mark[a->n_marks - 1].step >= step)
        a->n_marks--;
    bound_marks(a);
    account_step(a, a->at_ns, step);
    account_check(a);
}

void account_begin_share(struct account *a, int64_t now_ns)
{
    go_on(a, now_ns);
    a->share_from_ns = account_training_ns(a);
    a->share_ns = 0;
}

void account_wait(struct account *a, int64_t now_ns, double share)
{
    go_on(a, now_ns);
    double training = (double)(account_training_ns(a) - a->share_from_ns);
    int64_t want = (int64_t)(fmax(0, fmin(share, 1)) * training);
    if (want > a->share_ns)
        a->share_ns += account_move(a, ACCOUNT_PRODUCTIVE, ACCOUNT_DATA, want - a->share_ns);
    else
        a->share_ns -= account_move(a, ACCOUNT_DATA, ACCOUNT_PRODUCTIVE, a->share_ns - want);
}

void account_halt(struct account *a, int64_t now_ns, int64_t ns)
{
    go_on(a, now_ns);
    account_move(a, ACCOUNT_PRODUCTIVE, ACCOUNT_CHECKPOINT, ns);
    bound_marks(a);
}

struct account_times account_at(const struct account *a, int64_t now_ns)
{
    struct account_times t = a->times;
    int64_t since = max_i64(0, now_ns - a->at_ns);
    t.ns[a->now] += since;
    t.rank_us += a->n_ranks * since / 1000;
    return t;
}

int64_t account_wall_ns(const struct account_times *t)
{
    int64_t sum = 0;
    for (int i = 0; i < ACCOUNT_KINDS; i++)
        sum += t->ns[i];
    return sum;
}

double account_goodput(const struct account_times *t)
{
    int64_t wall = account_wall_ns(t);
    return wall > 0 ? (double)t->ns[ACCOUNT_PRODUCTIVE] / (double)wall : 0;
}

double account_rank_hours(const struct account_times *t) { return (double)t->rank_us / 3600e6; }

double account_forecast(const struct account_times *t, int64_t done, int64_t left)
{
    double wall = (double)account_wall_ns(t), hours = account_rank_hours(t);
    if (left <= 0)
        return hours;
    if (done <= 0 || wall <= 0)
        return -1;
    double running = 1 - (double)t->ns[ACCOUNT_START] / wall;
    return hours * (1 + running * (double)left / (double)done);
}

const char *account_key(enum account_kind kind)
{
    static const char *const keys[ACCOUNT_KINDS] = {[ACCOUNT_PRODUCTIVE] = "productive",
#define X(KIND, key) [ACCOUNT_##KIND] = #key,
                                                    BADPUT_LIST(X)
#undef X
    };
    return keys[kind];
}

void account_write(const struct account_times *t, int64_t step, int64_t out[ACCOUNT_NUMBERS])
{
    for (int i = 0; i < ACCOUNT_KINDS; i++)
        out[i] = t->ns[i];
    out[ACCOUNT_KINDS] = t->rank_us;
    out[ACCOUNT_KINDS + 1] = step;
}

int account_read(const int64_t *numbers, size_t n, struct account_past *out)
{
    const int64_t most = INT64_MAX / 16; /* so that sums do not overflow */
    struct account_past past = {.n_marks = 1};
    if (n != ACCOUNT_NUMBERS)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] < 0 || numbers[i] > most)
            return 0;
    for (int i = 0; i < ACCOUNT_KINDS; i++)
        past.times.ns[i] = numbers[i];
    past.times.rank_us = numbers[ACCOUNT_KINDS];
    past.mark[0] =
        (struct account_mark){numbers[ACCOUNT_KINDS + 1],
                              past.times.ns[ACCOUNT_PRODUCTIVE] + past.times.ns[ACCOUNT_DATA]};
    *out = past;
    return 1;
}

void account_check(const struct account *a)
{
    for (int i = 0; i < ACCOUNT_KINDS; i++)
        ASSERT(a->times.ns[i] >= 0);
    ASSERT(account_wall_ns(&a->times) == a->before_ns + a->at_ns - a->from_ns);
    ASSERT(a->times.rank_us >= 0);
    ASSERT(a->n_marks >= 0 && a->n_marks <= ACCOUNT_MARKS);
}

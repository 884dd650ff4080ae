/* cases - the table of collectives.  Each case fills its memory, starts its collective, and
 * compares all bytes afterwards. */
#include "cases.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tensor/half.h"

enum { GUARD = 64, FILL = 0xa5 };

/* ---- memory ---- */

static void *take_host(size_t n_bytes) { return xmalloc(n_bytes); }

static const int64_t host_sizes[] = {1000, LARGEST < 300007 ? LARGEST : 300007};

const struct ground ground_of_host = {
    .take = take_host,
    .give = free,
    .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_F64 | 1u << DTYPE_BF16,
    .sizes = host_sizes,
    .n_sizes = ARRAY_LEN(host_sizes),
};

static uint8_t *take_guarded(const struct ground *g, size_t n_bytes)
{
    uint8_t *p = g->take(n_bytes + 2 * GUARD);

    memset(p, FILL, n_bytes + 2 * GUARD);
    return p + GUARD;
}

static int give_guarded(const struct ground *g, uint8_t *p, size_t n_bytes)
{
    int n_bad = 0;

    for (int i = 1; i <= GUARD; i++)
        n_bad += p[-i] != FILL || p[n_bytes + (size_t)i - 1] != FILL;
    g->give(p - GUARD);
    return n_bad;
}

void play_begin(struct play *p, const struct kind *k)
{
    p->bytes_x = p->bytes_y = 0;
    k->shape(p);
    p->x = take_guarded(p->g, p->bytes_x);
    p->y = take_guarded(p->g, p->bytes_y);
    k->prepare(p);
}

int play_end(struct play *p, const struct kind *k, struct verdict *v)
{
    int n_bad = give_guarded(p->g, p->x, p->bytes_x);

    n_bad += give_guarded(p->g, p->y, p->bytes_y);
    return n_bad ? unexpected(v, "%s: %d guard bytes changed", k->name, n_bad) : 0;
}

/* ---- sums ---- */

/* Small integers: their sums are exact in every element type and order. */
enum { PERIOD = 11 }; /* element i is element i + PERIOD */

static double summand(int64_t i, int rank) { return (double)((i * 7 + rank * 3) % PERIOD - 5); }

static double sum_of(int64_t i, int size)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += summand(i, r);
    return sum;
}

static void put(uint8_t *x, int64_t i, enum dtype dtype, double number)
{
    if (dtype == DTYPE_F32)
        ((float *)(void *)x)[i] = (float)number;
    else if (dtype == DTYPE_F64)
        ((double *)(void *)x)[i] = number;
    else
        ((uint16_t *)(void *)x)[i] = bf16_from_float((float)number);
}

static double get(const uint8_t *x, int64_t i, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return (double)((const float *)(const void *)x)[i];
    if (dtype == DTYPE_F64)
        return ((const double *)(const void *)x)[i];
    return (double)bf16_to_float(((const uint16_t *)(const void *)x)[i]);
}

static void shape_whole(struct play *p) { p->bytes_x = (size_t)p->n * dtype_size(p->dtype); }

/* Rows of numbers are copied and compared as a whole: a sanitizer makes single accesses slow. */
enum { ROW = 93 * PERIOD };

/* Copy n elements that repeat the row's first ROW. */
static void copy_rows(uint8_t *x, int64_t n, size_t elem, const uint8_t *row)
{
    for (int64_t i = 0; i < n; i += ROW)
        memcpy(x + (size_t)i * elem, row, (size_t)min_i64(n - i, ROW) * elem);
}

static void fill_summands(struct play *p)
{
    double row[ROW];

    for (int64_t i = 0; i < min_i64(p->n, ROW); i++)
        put((uint8_t *)row, i, p->dtype, summand(i, coll_rank(p->c)));
    copy_rows(p->x, p->n, dtype_size(p->dtype), (const uint8_t *)row);
}

static int64_t start_allreduce(struct play *p, struct err *err)
{
    return coll_allreduce(p->c, p->channel, p->x, p->n, p->dtype, p->tag, err);
}

static int64_t start_reduce_scatter(struct play *p, struct err *err)
{
    return coll_reduce_scatter(p->c, p->channel, p->x, p->n, p->dtype, p->tag, err);
}

static int tell_wrong_sum(const struct play *p, struct coll_span s, const double *want,
                          struct verdict *v)
{
    for (int64_t i = s.at; i < s.at + s.n; i++) {
        const double got = get(p->x, i, p->dtype);

        if (got != want[i % PERIOD])
            return unexpected(v, "element %lld is %g, want %g", (long long)i, got,
                              want[i % PERIOD]);
    }
    return unexpected(v, "a sum has other bits than its value wants");
}

static int check_sums(const struct play *p, struct coll_span s, struct verdict *v)
{
    const size_t elem = dtype_size(p->dtype);
    double want[PERIOD], row[ROW];

    for (int64_t i = 0; i < PERIOD; i++)
        want[i] = sum_of(i, coll_size(p->c));
    for (int64_t i = 0; i < min_i64(s.n, ROW); i++)
        put((uint8_t *)row, i, p->dtype, want[(s.at + i) % PERIOD]);
    for (int64_t i = 0; i < s.n; i += ROW)
        if (memcmp(p->x + (size_t)(s.at + i) * elem, row, (size_t)min_i64(s.n - i, ROW) * elem))
            return tell_wrong_sum(p, s, want, v);
    return 0;
}

static int check_allreduce(const struct play *p, struct verdict *v)
{
    return check_sums(p, (struct coll_span){0, p->n}, v);
}

static int check_reduce_scatter(const struct play *p, struct verdict *v)
{
    return check_sums(p, coll_span(p->n, coll_size(p->c), coll_rank(p->c)), v);
}

/* ---- bytes ---- */

/* Byte i of the data that rank `from` has for rank `to`, or for all ranks, is byte
 * i + shift_of(from, to) of a sequence that begins again after TURN bytes, a prime. */
enum { TURN = 65521 };

static uint8_t turn[TURN];
static pthread_once_t turn_once = PTHREAD_ONCE_INIT;

static void make_turn(void)
{
    for (size_t i = 0; i < TURN; i++)
        turn[i] = (uint8_t)(i * 31 + i / 256 + 1);
}

static size_t shift_of(int from, int to) { return (size_t)from * 3701 + (size_t)to * 10103; }

/* The next bytes of the sequence from `at` on that lie beside each other, n at most. */
static size_t stretch(size_t at, size_t n, const uint8_t **bytes)
{
    pthread_once(&turn_once, make_turn);
    *bytes = turn + at % TURN;
    return min_size(n, TURN - at % TURN);
}

static void fill_bytes(uint8_t *x, size_t n, int from, int to)
{
    const uint8_t *want;

    for (size_t i = 0, part; i < n; i += part) {
        part = stretch(i + shift_of(from, to), n - i, &want);
        memcpy(x + i, want, part);
    }
}

static int check_bytes(const uint8_t *x, size_t n, int from, int to, struct verdict *v)
{
    const uint8_t *want;

    for (size_t i = 0, part; i < n; i += part) {
        part = stretch(i + shift_of(from, to), n - i, &want);
        if (!memcmp(x + i, want, part))
            continue;
        for (size_t k = 0; k < part; k++)
            if (x[i + k] != want[k])
                return unexpected(v, "byte %zu of %zu from rank %d is %u, want %u", i + k, n, from,
                                  x[i + k], want[k]);
    }
    return 0;
}

/* all-gather of spans */

static size_t offset(const struct play *p, struct coll_span s)
{
    return (size_t)s.at * dtype_size(p->dtype);
}

static size_t bytes(const struct play *p, struct coll_span s)
{
    return (size_t)s.n * dtype_size(p->dtype);
}

static void fill_span(struct play *p)
{
    const struct coll_span s = coll_span(p->n, coll_size(p->c), coll_rank(p->c));

    fill_bytes(p->x + offset(p, s), bytes(p, s), coll_rank(p->c), 0);
}

static int64_t start_allgather(struct play *p, struct err *err)
{
    return coll_allgather_spans(p->c, p->channel, p->x, p->n, p->dtype, p->tag, err);
}

static int check_allgather(const struct play *p, struct verdict *v)
{
    for (int r = 0; r < coll_size(p->c); r++) {
        const struct coll_span s = coll_span(p->n, coll_size(p->c), r);

        if (check_bytes(p->x + offset(p, s), bytes(p, s), r, 0, v))
            return 1;
    }
    return 0;
}

/* broadcast */

static void fill_root(struct play *p)
{
    if (coll_rank(p->c) == p->root)
        fill_bytes(p->x, p->bytes_x, p->root, 0);
}

static int64_t start_broadcast(struct play *p, struct err *err)
{
    return coll_broadcast_async(p->c, p->channel, p->x, p->n, p->dtype, p->root, p->tag, err);
}

static int check_broadcast(const struct play *p, struct verdict *v)
{
    return check_bytes(p->x, p->bytes_x, p->root, 0, v);
}

/* all-to-all: parts of all lengths, some empty, with an element between them */

static int64_t part_len(int64_t n, int from, int to)
{
    const int64_t k = (from * 3 + to * 5) % 4;

    return k == 3 ? 0 : n - min_i64(n, k);
}

static int64_t lay_out(struct coll_span *s, int size, int64_t n, int rank, int is_giver)
{
    int64_t at = 0;

    for (int r = 0; r < size; r++) {
        s[r] = (struct coll_span){at, is_giver ? part_len(n, rank, r) : part_len(n, r, rank)};
        at += s[r].n + 1;
    }
    return at;
}

static void shape_parts(struct play *p)
{
    const size_t elem = dtype_size(p->dtype);
    const int size = coll_size(p->c), rank = coll_rank(p->c);

    p->bytes_x = (size_t)lay_out(p->give, size, p->n, rank, 1) * elem;
    p->bytes_y = (size_t)lay_out(p->take, size, p->n, rank, 0) * elem;
}

static void fill_parts(struct play *p)
{
    for (int r = 0; r < coll_size(p->c); r++)
        fill_bytes(p->x + offset(p, p->give[r]), bytes(p, p->give[r]), coll_rank(p->c), r);
}

static int64_t start_all_to_all(struct play *p, struct err *err)
{
    return coll_all_to_all(p->c, p->channel, (struct coll_parts){p->x, p->give, p->n},
                           (struct coll_parts){p->y, p->take, p->n}, p->dtype, p->tag, err);
}

static int check_all_to_all(const struct play *p, struct verdict *v)
{
    for (int r = 0; r < coll_size(p->c); r++) {
        const uint8_t *part = p->y + offset(p, p->take[r]);
        const size_t n = bytes(p, p->take[r]);

        if (check_bytes(part, n, r, coll_rank(p->c), v))
            return 1;
        for (size_t i = 0; i < dtype_size(p->dtype); i++)
            if (part[n + i] != FILL)
                return unexpected(v, "the gap after part %d was written", r);
    }
    return 0;
}

/* messages: around the ring, from the first rank to the last, and down a chain */

static int next(const struct play *p) { return (coll_rank(p->c) + 1) % coll_size(p->c); }

static int prev(const struct play *p)
{
    return (coll_rank(p->c) + coll_size(p->c) - 1) % coll_size(p->c);
}

/* Rank r sends n + r elements. */
static void shape_ring(struct play *p)
{
    p->bytes_x = (size_t)(p->n + coll_rank(p->c)) * dtype_size(p->dtype);
    p->bytes_y = (size_t)(p->n + prev(p)) * dtype_size(p->dtype);
}

static void fill_message(struct play *p) { fill_bytes(p->x, p->bytes_x, coll_rank(p->c), 0); }

static int64_t start_exchange(struct play *p, struct err *err)
{
    if (coll_size(p->c) == 1)
        return 0;
    return coll_exchange(
        p->c, p->channel, (struct coll_message){p->x, p->n + coll_rank(p->c), next(p)},
        (struct coll_message){p->y, p->n + prev(p), prev(p)}, p->dtype, p->tag, err);
}

static int check_exchange(const struct play *p, struct verdict *v)
{
    return coll_size(p->c) == 1 ? 0 : check_bytes(p->y, p->bytes_y, prev(p), 0, v);
}

static void shape_message(struct play *p)
{
    p->bytes_x = p->bytes_y = (size_t)p->n * dtype_size(p->dtype);
}

static int64_t start_message(struct play *p, struct err *err)
{
    const int last = coll_size(p->c) - 1, rank = coll_rank(p->c);

    if (last == 0)
        return 0;
    if (rank == 0)
        return coll_send(p->c, p->channel, (struct coll_message){p->x, p->n, last}, p->dtype,
                         p->tag, err);
    if (rank == last)
        return coll_recv(p->c, p->channel, (struct coll_message){p->y, p->n, 0}, p->dtype, p->tag,
                         err);
    return 0;
}

static int check_message(const struct play *p, struct verdict *v)
{
    const int last = coll_size(p->c) - 1;

    return last > 0 && coll_rank(p->c) == last ? check_bytes(p->y, p->bytes_y, 0, 0, v) : 0;
}

/* Each rank passes on what it gets. */
static void fill_first(struct play *p)
{
    if (coll_rank(p->c) == 0)
        fill_bytes(p->x, p->bytes_x, 0, 0);
}

static int64_t start_chain(struct play *p, struct err *err)
{
    const int rank = coll_rank(p->c), last = coll_size(p->c) - 1;
    int64_t ticket = 0;

    if (rank > 0)
        ticket = coll_recv(p->c, p->channel, (struct coll_message){p->x, p->n, rank - 1}, p->dtype,
                           p->tag, err);
    if (ticket >= 0 && rank < last)
        ticket = coll_send(p->c, p->channel, (struct coll_message){p->x, p->n, rank + 1}, p->dtype,
                           p->tag, err);
    return ticket;
}

static int check_chain(const struct play *p, struct verdict *v)
{
    return check_bytes(p->x, p->bytes_x, 0, 0, v);
}

/* ---- the table ---- */

const struct kind kinds[] = {
    {"all-reduce", 1, shape_whole, fill_summands, start_allreduce, check_allreduce},
    {"reduce-scatter", 1, shape_whole, fill_summands, start_reduce_scatter, check_reduce_scatter},
    {"all-gather", 0, shape_whole, fill_span, start_allgather, check_allgather},
    {"broadcast", 0, shape_whole, fill_root, start_broadcast, check_broadcast},
    {"all-to-all", 0, shape_parts, fill_parts, start_all_to_all, check_all_to_all},
    {"exchange", 0, shape_ring, fill_message, start_exchange, check_exchange},
    {"send and receive", 0, shape_message, fill_message, start_message, check_message},
    {"chain", 0, shape_whole, fill_first, start_chain, check_chain},
};
const int n_kinds = ARRAY_LEN(kinds);

static int run_one(struct play *p, const struct kind *k, struct verdict *v)
{
    struct verdict why = {""};
    struct err err;
    int64_t ticket;
    int bad = 0;

    play_begin(p, k);
    ticket = k->start(p, &err);
    if (ticket < 0 || (ticket && coll_wait(p->c, ticket, &err) < 0) ||
        (ticket && p->g->finish && p->g->finish(p->g->arg, p->c, &err) < 0))
        bad = unexpected(&why, "%s", err.msg);
    if (!bad)
        bad = k->check(p, &why);
    if (bad)
        unexpected(v, "%s of %lld %s, channel %d, root %d: %.200s", k->name, (long long)p->n,
                   dtype_name(p->dtype), (int)p->channel, p->root, why.why);
    return play_end(p, k, v) || bad;
}

/* Every dtype that can be summed, or two that are only moved. */
static int run_dtypes(struct play *p, const struct kind *k, struct verdict *v)
{
    const unsigned moved = 1u << DTYPE_U8 | 1u << DTYPE_I64;
    const unsigned set = k->sums ? p->g->dtypes : moved;

    for (int d = 0; d < DTYPE_COUNT; d++) {
        p->dtype = (enum dtype)d;
        if ((set & 1u << d) && run_one(p, k, v))
            return 1;
    }
    return 0;
}

static int run_sizes(struct play *p, const struct kind *k, struct verdict *v)
{
    const int64_t size = coll_size(p->c), around[] = {0, 1, size - 1, size, size + 1};
    const int n_around = ARRAY_LEN(around);

    for (int i = 0; i < n_around + p->g->n_sizes; i++) {
        p->n = i < n_around ? around[i] : p->g->sizes[i - n_around];
        if (run_dtypes(p, k, v))
            return 1;
    }
    return 0;
}

int run_cases(struct coll *c, const struct ground *g, struct verdict *v)
{
    for (int i = 0; i < n_kinds; i++)
        for (int ch = 0; ch < COLL_CHANNELS; ch++) {
            struct play p = {.c = c, .g = g, .channel = (enum coll_channel)ch, .tag = i};

            p.root = (i + ch) % coll_size(c);
            if (run_sizes(&p, &kinds[i], v))
                return 1;
        }
    return 0;
}

/* ---- two channels ---- */

static int finish(struct play *p, int64_t ticket, struct err *err)
{
    if (ticket < 0 || coll_wait(p->c, ticket, err) < 0)
        return err->code;
    return p->g->finish ? p->g->finish(p->g->arg, p->c, err) : 0;
}

int urgent_overtakes_bulk(struct coll *c, const struct ground *g, struct verdict *v)
{
    const struct kind *k = &kinds[0];
    struct play bulk = {.c = c, .g = g, .channel = COLL_BULK, .dtype = DTYPE_F32, .n = 5000};
    struct play urgent = {.c = c, .g = g, .channel = COLL_URGENT, .dtype = DTYPE_F64, .n = 300};
    const int is_late = coll_rank(c) == 1;
    int64_t first = 0;
    struct err err;
    int bad = 0;

    play_begin(&bulk, k);
    play_begin(&urgent, k);
    if (!is_late)
        first = k->start(&bulk, &err);
    if (first < 0 || finish(&urgent, k->start(&urgent, &err), &err) < 0)
        bad = unexpected(v, "the urgent sum: %s", err.msg);
    bad = bad || k->check(&urgent, v);
    if (is_late && !bad)
        first = k->start(&bulk, &err);
    if (!bad && finish(&bulk, first, &err) < 0)
        bad = unexpected(v, "the bulk sum: %s", err.msg);
    bad = bad || k->check(&bulk, v);
    return play_end(&urgent, k, v) || play_end(&bulk, k, v) || bad;
}

/* shm - two rings in a sealed memfd.
 *
 * Happy path.  The writer copies bytes in and then moves `written`; the reader copies bytes out and
 * then moves `read`.  Positions only grow, so written - read bytes are unread.
 *
 * Sleeping.  A side that lacks bytes, or room, notes the position that it waits for, looks once
 * more, and sleeps on `bell`.  The other side reads that note each time it has moved its own
 * position, and rings only once the noted position is reached.  So a reader that waits for a whole
 * piece is woken once.  Note and position are written and read in one total order
 * (memory_order_seq_cst).  So either the sleeper sees the new position, or the other side sees the
 * note.
 *
 * Failure modes.  A side that is killed rings no bell: so sleeps are short, and link.c looks at the
 * socket between them.  A note that its sleeper left behind costs one useless bell. */
#include "coll/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

enum {
    LINE = 64,        /* bytes of a cache line: the two sides write different ones */
    CHUNK = 32 << 10, /* bytes copied before the other side may use them */
};

/* Each side writes its own one of these, and reads the other's. */
struct side {
    _Alignas(LINE) _Atomic uint64_t at;   /* bytes that it has written, or read */
    _Alignas(LINE) _Atomic uint64_t note; /* the position of the other side that it waits for; 0:
                                             none */
    _Atomic uint32_t bell;                /* changes when it is woken */
};

struct ring {
    struct side writer, reader;
    _Alignas(LINE) uint8_t bytes[SHM_RING];
};

struct region {
    _Alignas(LINE) _Atomic uint32_t is_closed;
    struct ring ring[2]; /* ring i is written by side i */
};

struct shm {
    struct region *region;
    struct ring *out, *in;
};

/* ---- sleeping ---- */

static void ring_bell(struct side *s)
{
    atomic_fetch_add(&s->bell, 1);
    syscall(SYS_futex, &s->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Side `self` has moved: wake the other side if it waits for that. */
static void shm_moved(const struct side *self, struct side *other)
{
    const uint64_t wanted = atomic_load(&other->note);

    if (wanted && atomic_load(&self->at) >= wanted) {
        atomic_store(&other->note, 0);
        ring_bell(other);
    }
}

/* Side `self` waits until `other` is at `wanted`. */
static void shm_wait_for(const struct shm *s, struct side *self, const struct side *other,
                         uint64_t wanted, int64_t timeout_ns)
{
    const struct timespec ts = {.tv_sec = timeout_ns / 1000000000,
                                .tv_nsec = timeout_ns % 1000000000};
    uint32_t bell;

    bell = atomic_load(&self->bell);
    atomic_store(&self->note, wanted);
    if (atomic_load(&other->at) < wanted && !shm_is_closed(s))
        syscall(SYS_futex, &self->bell, FUTEX_WAIT, bell, &ts, NULL, 0);
    atomic_store(&self->note, 0);
}

void shm_wait_to_send(struct shm *s, size_t n_bytes, int64_t timeout_ns)
{
    struct ring *r = s->out;
    const uint64_t end = atomic_load(&r->writer.at) + n_bytes;

    if (end > SHM_RING)
        shm_wait_for(s, &r->writer, &r->reader, end - SHM_RING, timeout_ns);
}

void shm_wait_to_recv(struct shm *s, size_t n_bytes, int64_t timeout_ns)
{
    struct ring *r = s->in;

    shm_wait_for(s, &r->reader, &r->writer, atomic_load(&r->reader.at) + n_bytes, timeout_ns);
}

/* ---- bytes ---- */

/* The number of bytes from position `at` to the end of the ring's memory, at most n. */
static size_t in_a_row(uint64_t at, uint64_t n)
{
    const size_t to_end = SHM_RING - (size_t)(at % SHM_RING);

    n = n < CHUNK ? n : CHUNK;
    return n < to_end ? (size_t)n : to_end;
}

ssize_t shm_send(struct shm *s, const void *data, size_t n_bytes)
{
    struct ring *r = s->out;
    const uint8_t *from = data;
    uint64_t at = atomic_load_explicit(&r->writer.at, memory_order_relaxed);
    size_t sent = 0;

    while (sent < n_bytes) {
        const uint64_t unread = at - atomic_load_explicit(&r->reader.at, memory_order_acquire);
        size_t n;

        if (unread > SHM_RING)
            return -1;
        n = in_a_row(at, min_i64((int64_t)(SHM_RING - unread), (int64_t)(n_bytes - sent)));
        if (n == 0)
            break;
        memcpy(r->bytes + at % SHM_RING, from + sent, n);
        at += n;
        sent += n;
        atomic_store(&r->writer.at, at);
        shm_moved(&r->writer, &r->reader);
    }
    return (ssize_t)sent;
}

ssize_t shm_recv(struct shm *s, void *to, size_t n_bytes)
{
    struct ring *r = s->in;
    uint8_t *dest = to;
    uint64_t at = atomic_load_explicit(&r->reader.at, memory_order_relaxed);
    size_t got = 0;

    while (got < n_bytes) {
        const uint64_t unread = atomic_load_explicit(&r->writer.at, memory_order_acquire) - at;
        size_t n;

        if (unread > SHM_RING)
            return -1;
        n = in_a_row(at, min_i64((int64_t)unread, (int64_t)(n_bytes - got)));
        if (n == 0)
            break;
        memcpy(dest + got, r->bytes + at % SHM_RING, n);
        at += n;
        got += n;
        atomic_store(&r->reader.at, at);
        shm_moved(&r->reader, &r->writer);
    }
    return (ssize_t)got;
}

int shm_has_room(const struct shm *s, size_t n_bytes)
{
    const struct ring *r = s->out;
    const uint64_t unread = atomic_load_explicit(&r->writer.at, memory_order_relaxed) -
                            atomic_load_explicit(&r->reader.at, memory_order_acquire);

    return unread <= SHM_RING && SHM_RING - unread >= n_bytes;
}

int shm_has_bytes(const struct shm *s, size_t n_bytes)
{
    const struct ring *r = s->in;

    return atomic_load_explicit(&r->writer.at, memory_order_acquire) -
               atomic_load_explicit(&r->reader.at, memory_order_relaxed) >=
           n_bytes;
}

/* ---- life ---- */

static int shm_map(int fd, struct shm **out, struct err *err)
{
    struct region *region = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (region == MAP_FAILED)
        return err_sys(err, errno, "mapping %zu bytes of shared memory", sizeof *region);
    *out = xcalloc(1, sizeof **out);
    (*out)->region = region;
    return 0;
}

int shm_new(struct shm **out, int *fd, struct err *err)
{
    const int f = memfd_create("dptrain-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (f < 0)
        return err_sys(err, errno, "making shared memory");
    if (ftruncate(f, sizeof(struct region)) < 0 ||
        fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        err_sys(err, errno, "sizing shared memory");
        close(f);
        return err->code;
    }
    if (shm_map(f, out, err) < 0) {
        close(f);
        return err->code;
    }
    (*out)->out = &(*out)->region->ring[0];
    (*out)->in = &(*out)->region->ring[1];
    *fd = f;
    return 0;
}

int shm_attach(int fd, struct shm **out, struct err *err)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
        st.st_size != (off_t)sizeof(struct region))
        return err_set(err, ERR_PROTO, "what it shares is not the memory of a link");
    if (shm_map(fd, out, err) < 0)
        return err->code;
    (*out)->out = &(*out)->region->ring[1];
    (*out)->in = &(*out)->region->ring[0];
    return 0;
}

void shm_close(struct shm *s)
{
    atomic_store(&s->region->is_closed, 1);
    for (int i = 0; i < 2; i++) {
        ring_bell(&s->region->ring[i].writer);
        ring_bell(&s->region->ring[i].reader);
    }
}

int shm_is_closed(const struct shm *s) { return atomic_load(&s->region->is_closed) != 0; }

void shm_free(struct shm *s)
{
    if (!s)
        return;
    munmap(s->region, sizeof *s->region);
    free(s);
}

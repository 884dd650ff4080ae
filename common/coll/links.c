/* links - makes the links of one rank, on a thread of its own.
 *
 * Happy path.  links_new listens and starts the thread.  Connections that come before links_begin
 * are held, because the key is not known yet.  The thread polls the listening socket, an eventfd
 * that wakes it, and all connections whose proof is under way.  When a proof is complete, the
 * connection becomes a link in the table, and the callers that wait for it are woken.
 *
 * Failure modes:
 *   - A dialed connection is refused, or a process without the key answers: that is final.
 *   - A dialed connection is closed before the proof is complete, because the other side was short
 *     of places: dial again, for RETRY_MS at most.
 *   - No more descriptors: the oldest stranger is closed.  If there is none, the listening socket
 *     rests for a while.
 *   - A flood of connections: each is read as soon as it is accepted, and all open ones are read
 *     again after ACCEPT_MAX more.  So a rank whose hello has arrived is never closed as a
 * stranger.
 *   - links_interrupt: the thread closes everything that is not a link, and ends. */
#include "coll/links.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/shake.h"

enum {
    STRANGERS_MAX = 128,   /* open connections whose hello was not found right yet */
    STRANGERS_OF_ONE = 64, /* those of them from one source (endpoint_is_same_source) */
    ACCEPT_MAX = 32,       /* connections accepted in one round; then all connections are read */
    STRANGER_MS = 5000,    /* the time for a hello */
    PROOF_MS = 60000,      /* the time for the rest of the proof; only a frozen rank needs long */
    RETRY_MS = 20000,      /* how long to dial a rank that closes before the proof is complete */
    RETRY_EACH_MS = 20,    /* the pause between two such attempts */
    REST_MS = 100,         /* how long the listening socket rests when no descriptor is free */
};

struct place {
    struct link *link;
    bool wanted; /* this rank wants the link; it has dialed a lower rank, or is about to */
};

/* A connection that is being made. */
struct attempt {
    struct attempt *next;
    struct shake *shake; /* NULL: dial again at again_ns */
    bool is_dialer;
    struct proof_link link; /* of a dialer */
    int64_t first_ns, again_ns;
};

struct links {
    int rank, size, listener, wake;
    int listener_here; /* the listening socket for ranks of this machine; -1: none */
    uint16_t port;
    int64_t timeout_ms;
    pthread_t thread;
    bool has_thread;

    /* Only the thread uses these. */
    struct attempt *attempts; /* newest first */
    struct pollfd *fds;
    size_t n_fds;
    int64_t rest_until_ns;

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t changed;
    struct shake_terms terms;
    struct endpoint_addr *peers; /* set by links_begin, then constant; names, too */
    struct samehost_name *names; /* NULL: none */
    struct place *places[COLL_CHANNELS];
    struct proof_link *orders; /* links that the thread is to dial */
    size_t n_orders, cap_orders;
    bool stop, interrupted;
    bool has_failed;
    struct err cause;
    int64_t n_strangers;
    bool is_kernel; /* the newest encrypted link is encrypted by the kernel */
};

/* ---- from other threads ---- */

static void wake(struct links *l)
{
    const uint64_t one = 1;

    (void)!write(l->wake, &one, sizeof one);
}

uint16_t links_port(const struct links *l) { return l->port; }

void links_begin(struct links *l, const uint8_t key[PROOF_KEY], const struct cipher *cipher,
                 struct endpoint_addr *peers, struct samehost_name *names)
{
    pthread_mutex_lock(&l->lock);
    l->terms.cipher = cipher;
    memcpy(l->terms.key, key, PROOF_KEY);
    l->terms.mode = cipher ? PROOF_TLS : PROOF_PLAIN;
    l->terms.has_key = true;
    l->peers = peers;
    l->names = names;
    pthread_mutex_unlock(&l->lock);
    wake(l);
}

/* Note that the link is wanted.  If r is the lower rank, have the thread dial it.  The lock is
 * held.
 */
static void order(struct links *l, enum coll_channel ch, int r)
{
    struct place *p = &l->places[ch][r];

    if (p->wanted || p->link)
        return;
    p->wanted = true;
    if (r > l->rank)
        return;
    if (l->n_orders == l->cap_orders) {
        l->cap_orders = l->cap_orders ? 2 * l->cap_orders : 16;
        l->orders = xrealloc(l->orders, l->cap_orders * sizeof *l->orders);
    }
    l->orders[l->n_orders++] = (struct proof_link){l->rank, r, ch, l->terms.mode};
    wake(l);
}

void links_want(struct links *l, enum coll_channel ch, int r)
{
    pthread_mutex_lock(&l->lock);
    order(l, ch, r);
    pthread_mutex_unlock(&l->lock);
}

static int canceled(struct err *err)
{
    return err_set(err, ERR_CANCELED, "canceled while connecting");
}

/* Wait until the place has a link.  The lock is held, and released while this waits. */
static int wait_for(struct links *l, const struct place *p, int64_t until_ns, struct err *err)
{
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};

    while (!p->link) {
        if (l->interrupted)
            return canceled(err);
        if (l->has_failed) {
            *err = l->cause;
            return err->code;
        }
        if (until_ns == INT64_MAX)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT && !p->link)
            return err_set(err, ERR_TIMEOUT, "not connected in time");
    }
    return 0;
}

int links_get(struct links *l, enum coll_channel ch, int r, int64_t until_ns, struct link **out,
              struct err *err)
{
    int rc;

    pthread_mutex_lock(&l->lock);
    order(l, ch, r);
    rc = wait_for(l, &l->places[ch][r], until_ns, err);
    if (rc == 0)
        *out = l->places[ch][r].link;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void links_name(struct links *l, int r, char out[ENDPOINT_TEXT + 40])
{
    char text[ENDPOINT_TEXT];

    if (r > l->rank) {
        snprintf(out, ENDPOINT_TEXT + 40, "%d (did not connect to us)", r);
        return;
    }
    endpoint_text(&l->peers[r], text);
    snprintf(out, ENDPOINT_TEXT + 40, "%d (%s)", r, text);
}

/* true: a link with rank r is broken.  The lock is held. */
static bool is_gone(const struct links *l, int r)
{
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        if (l->places[ch][r].link && link_is_gone(l->places[ch][r].link))
            return true;
    return false;
}

void links_list_gone(struct links *l, int except, char *out, size_t len)
{
    size_t n = 0;

    out[0] = 0;
    pthread_mutex_lock(&l->lock);
    for (int r = 0; r < l->size && n < len; r++)
        if (r != except && is_gone(l, r))
            n += (size_t)snprintf(out + n, len - n, "%s%d", n ? ", " : "; also gone: rank ", r);
    pthread_mutex_unlock(&l->lock);
}

int64_t links_n_strangers(struct links *l)
{
    int64_t n;

    pthread_mutex_lock(&l->lock);
    n = l->n_strangers;
    pthread_mutex_unlock(&l->lock);
    return n;
}

int links_n_shared(struct links *l)
{
    int n = 0;

    pthread_mutex_lock(&l->lock);
    for (int r = 0; r < l->size; r++)
        n += l->places[COLL_BULK][r].link && link_is_shared(l->places[COLL_BULK][r].link);
    pthread_mutex_unlock(&l->lock);
    return n;
}

bool links_are_kernel(struct links *l)
{
    bool yes;

    pthread_mutex_lock(&l->lock);
    yes = l->is_kernel;
    pthread_mutex_unlock(&l->lock);
    return yes;
}

void links_interrupt(struct links *l)
{
    pthread_mutex_lock(&l->lock);
    l->interrupted = true;
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        for (int r = 0; r < l->size; r++)
            if (l->places[ch][r].link)
                link_shut(l->places[ch][r].link);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    wake(l);
}

/* ---- the thread: ends of attempts ---- */

static void count_stranger(struct links *l)
{
    pthread_mutex_lock(&l->lock);
    l->n_strangers++;
    pthread_mutex_unlock(&l->lock);
}

static void fail(struct links *l, const struct err *cause)
{
    pthread_mutex_lock(&l->lock);
    if (!l->has_failed)
        l->cause = *cause;
    l->has_failed = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void free_attempt(struct attempt *a)
{
    shake_free(a->shake);
    free(a);
}

/* Take the attempt *at out of the list, and free it. */
static void drop(struct attempt **at)
{
    struct attempt *a = *at;

    *at = a->next;
    free_attempt(a);
}

/* The proof is complete, so the connection becomes the link.  If there is a link already, because
 * the rank has dialed twice, that one stays. */
static void take_place(struct links *l, struct attempt *a)
{
    const struct proof_link *k = &a->shake->proof.link;
    const int r = k->from == l->rank ? k->to : k->from;
    const struct link_parts parts = shake_take(a->shake);
    struct link *link = link_new(parts, l->timeout_ms);

    pthread_mutex_lock(&l->lock);
    if (parts.ssl)
        l->is_kernel = cipher_is_kernel(parts.ssl);
    if (!l->places[k->channel][r].link) {
        l->places[k->channel][r].link = link;
        link = NULL;
    }
    if (l->interrupted && !link)
        link_shut(l->places[k->channel][r].link);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    link_free(link);
}

/* ---- the thread: dialing ---- */

static void fail_to_reach(struct links *l, const struct attempt *a, const char *why)
{
    char text[ENDPOINT_TEXT];
    struct err err;

    endpoint_text(&l->peers[a->link.to], text);
    err_set(
        &err, ERR_PEER,
        "rank %d cannot be reached at %s, which its host or its --iface gives, from rank %d: %s",
        a->link.to, text, l->rank, why);
    fail(l, &err);
}

/* The dialed link failed because of `why`.  ERR_PEER is about the other rank; any other code is a
 * failure of this rank, and is kept as it is. */
static void fail_to_dial(struct links *l, const struct attempt *a, const struct err *why)
{
    struct err err = *why;

    if (why->code == ERR_PEER) {
        fail_to_reach(l, a, why->msg);
        return;
    }
    err_wrap(&err, "connecting with rank %d", a->link.to);
    fail(l, &err);
}

/* Start to dial.  0: the attempt goes on. */
static int dial(struct links *l, const struct shake_terms *t, struct attempt *a)
{
    struct err err;

    if (shake_dial(t, a->link, &l->peers[a->link.to], l->names ? &l->names[a->link.to] : NULL,
                   &a->shake, &err) < 0) {
        fail_to_dial(l, a, &err);
        return err.code;
    }
    return 0;
}

/* Have the thread dial again after a pause.  0: the attempt goes on later; < 0: RETRY_MS are over.
 */
static int dial_again(struct links *l, struct attempt *a)
{
    const int64_t now = clock_mono_ns();

    if (now - a->first_ns > RETRY_MS * INT64_C(1000000)) {
        fail_to_reach(l, a,
                      "it closes the connection before the ranks have proven to each other "
                      "that they belong to one formation");
        return ERR_PEER;
    }
    shake_free(a->shake);
    a->shake = NULL;
    a->again_ns = now + RETRY_EACH_MS * INT64_C(1000000);
    return 0;
}

static void begin_orders(struct links *l, const struct shake_terms *t)
{
    struct proof_link *orders;
    size_t n;

    if (!t->has_key) /* an order that came with the key waits for the next round */
        return;
    pthread_mutex_lock(&l->lock);
    orders = l->orders;
    n = l->n_orders;
    l->orders = NULL;
    l->n_orders = l->cap_orders = 0;
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < n; i++) {
        struct attempt *a = xcalloc(1, sizeof *a);

        a->is_dialer = true;
        a->link = orders[i];
        a->first_ns = clock_mono_ns();
        a->next = l->attempts;
        l->attempts = a;
        if (dial(l, t, a) < 0)
            drop(&l->attempts);
    }
    free(orders);
}

/* ---- the thread: strangers ---- */

static bool is_stranger(const struct attempt *a)
{
    return !a->is_dialer && a->shake->stage == SHAKE_READ_HELLO;
}

static bool is_from(const struct attempt *a, const struct endpoint_addr *source)
{
    return endpoint_is_same_source(&a->shake->addr, source);
}

/* Drop the oldest stranger, of `source` if it is not NULL.  Returns whether there was one. */
static bool drop_oldest(struct links *l, const struct endpoint_addr *source)
{
    struct attempt **oldest = NULL;

    for (struct attempt **at = &l->attempts; *at; at = &(*at)->next)
        if (is_stranger(*at) && (!source || is_from(*at, source)))
            oldest = at;
    if (!oldest)
        return false;
    drop(oldest);
    count_stranger(l);
    return true;
}

static void make_room(struct links *l, const struct endpoint_addr *source)
{
    int n = 0, n_of_source = 0;

    for (const struct attempt *a = l->attempts; a; a = a->next)
        if (is_stranger(a)) {
            n++;
            n_of_source += is_from(a, source);
        }
    if (n_of_source >= STRANGERS_OF_ONE)
        drop_oldest(l, source);
    else if (n >= STRANGERS_MAX)
        drop_oldest(l, NULL);
}

/* ---- the thread: steps ---- */

/* A dialer's proof has this outcome.  1: the attempt is over. */
static int end_of_dial(struct links *l, struct attempt *a, int outcome, const struct err *err)
{
    if (outcome == SHAKE_CLOSED)
        return dial_again(l, a) < 0;
    if (outcome == SHAKE_STRANGER)
        fail_to_reach(l, a, "what answers there does not belong to this formation");
    else if (outcome == ERR_PROTO)
        fail(l, err);
    else
        fail_to_dial(l, a, err);
    return 1;
}

/* An acceptor's proof has this outcome; SHAKE_PENDING: the peer is late.  In the handshake of TLS,
 * or when memory is handed over, the peer has proven the key, so it is a rank.  1: the attempt is
 * over. */
static int end_of_accept(struct links *l, const struct attempt *a, int outcome, struct err *err)
{
    const bool is_tls = a->shake->stage == SHAKE_TLS;
    const bool is_rank = is_tls || a->shake->stage == SHAKE_SHARE;

    if (is_rank && outcome == SHAKE_PENDING)
        outcome = err_set(err, ERR_PEER, "%s: not complete after %d s",
                          is_tls ? "TLS handshake" : "sharing memory", PROOF_MS / 1000);
    if (is_rank && outcome < 0)
        err_wrap(err, "connecting with rank %d", a->shake->proof.link.from);
    if (outcome < 0 && (is_rank || outcome != ERR_PEER))
        fail(l, err);
    else
        count_stranger(l);
    return 1;
}

static bool is_late(const struct shake_terms *t, const struct attempt *a)
{
    const int64_t limit_ms = is_stranger(a) ? STRANGER_MS : PROOF_MS;

    if (a->is_dialer || (!t->has_key && a->shake->n_in == PROOF_HELLO))
        return false;
    return clock_mono_ns() - a->shake->born_ns > limit_ms * INT64_C(1000000);
}

/* Go on with one attempt as far as possible.  1: the attempt is over. */
static int step(struct links *l, const struct shake_terms *t, struct attempt *a)
{
    struct err err;
    int rc;

    if (!a->shake && clock_mono_ns() < a->again_ns)
        return 0;
    if (!a->shake && dial(l, t, a) < 0)
        return 1;
    rc = shake_step(a->shake, t, &err);
    if (rc == SHAKE_PENDING && !is_late(t, a))
        return 0;
    if (rc == SHAKE_DONE) {
        take_place(l, a);
        return 1;
    }
    return a->is_dialer ? end_of_dial(l, a, rc, &err) : end_of_accept(l, a, rc, &err);
}

static void step_all(struct links *l, const struct shake_terms *t)
{
    for (struct attempt **at = &l->attempts; *at;)
        if (step(l, t, *at))
            drop(at);
        else
            at = &(*at)->next;
}

/* Accept one connection of a listening socket, and read what has come with it.  All connections of
 * this machine are of one source.  false: there is none now. */
static bool accept_one(struct links *l, const struct shake_terms *t, int listener)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    struct endpoint_addr source = {.family = 4};
    const int fd = accept4(listener, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct attempt *a;

    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) &&
        !drop_oldest(l, NULL))
        l->rest_until_ns = clock_mono_ns() + REST_MS * INT64_C(1000000);
    if (fd < 0)
        return false;
    if (listener == l->listener)
        endpoint_from_socket(&sa, &source);
    make_room(l, &source);
    a = xcalloc(1, sizeof *a);
    a->shake = shake_accept(fd, listener == l->listener ? &source : NULL);
    a->next = l->attempts;
    l->attempts = a;
    if (step(l, t, a))
        drop(&l->attempts);
    return true;
}

static void accept_some(struct links *l, const struct shake_terms *t)
{
    const int listeners[] = {l->listener_here, l->listener};

    for (size_t k = 0; k < ARRAY_LEN(listeners); k++)
        for (int i = 0; i < ACCEPT_MAX && !l->rest_until_ns && listeners[k] >= 0 &&
                        accept_one(l, t, listeners[k]);
             i++)
            ;
}

/* ---- the thread ---- */

/* The time in ms until something must be done even if no socket is ready; -1: never. */
static int patience(const struct links *l)
{
    bool retries = l->rest_until_ns != 0, waits = false;

    for (const struct attempt *a = l->attempts; a; a = a->next) {
        retries |= !a->shake;
        waits |= !a->is_dialer;
    }
    return retries ? RETRY_EACH_MS : waits ? STRANGER_MS / 10 : -1;
}

static void add_fd(struct links *l, size_t *n, int fd, short events)
{
    if (*n == l->n_fds) {
        l->n_fds = l->n_fds ? 2 * l->n_fds : 16;
        l->fds = xrealloc(l->fds, l->n_fds * sizeof *l->fds);
    }
    l->fds[(*n)++] = (struct pollfd){.fd = fd, .events = events};
}

/* Wait until something is to be done.  A socket from which no event is wanted is left out, because
 * poll would return again and again once that socket has ended. */
static void wait_for_work(struct links *l)
{
    size_t n = 0;
    uint64_t count;

    if (l->rest_until_ns && clock_mono_ns() > l->rest_until_ns)
        l->rest_until_ns = 0;
    add_fd(l, &n, l->wake, POLLIN);
    if (!l->rest_until_ns)
        add_fd(l, &n, l->listener, POLLIN);
    if (!l->rest_until_ns && l->listener_here >= 0)
        add_fd(l, &n, l->listener_here, POLLIN);
    for (const struct attempt *a = l->attempts; a; a = a->next)
        if (a->shake && shake_events(a->shake))
            add_fd(l, &n, a->shake->fd, shake_events(a->shake));
    if (poll(l->fds, n, patience(l)) > 0 && l->fds[0].revents)
        (void)!read(l->wake, &count, sizeof count);
}

static void close_listeners(struct links *l)
{
    if (l->listener >= 0)
        close(l->listener);
    if (l->listener_here >= 0)
        close(l->listener_here);
    l->listener = l->listener_here = -1;
}

static void *links_main(void *arg)
{
    struct links *l = arg;
    struct shake_terms terms;
    bool over = false;

    while (!over) {
        wait_for_work(l);
        pthread_mutex_lock(&l->lock);
        terms = l->terms;
        over = l->stop || l->interrupted;
        pthread_mutex_unlock(&l->lock);
        if (over)
            break;
        begin_orders(l, &terms);
        accept_some(l, &terms);
        step_all(l, &terms);
    }
    while (l->attempts)
        drop(&l->attempts);
    close_listeners(l); /* a rank that dials from now on is refused at once */
    OPENSSL_cleanse(&terms, sizeof terms);
    return NULL;
}

/* ---- life ---- */

static int listen_at(struct links *l, const struct endpoint_addr *at, struct err *err)
{
    struct sockaddr_storage sa;
    socklen_t len = endpoint_to_socket(at, &sa);
    struct endpoint_addr bound;
    char ip[COLL_IP_LEN];

    l->listener = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    endpoint_ip_text(at, ip);
    if (l->listener < 0 || bind(l->listener, (struct sockaddr *)&sa, len) < 0 ||
        listen(l->listener, SOMAXCONN) < 0)
        return err_sys(err, errno, "listening at %s for other ranks", ip);
    len = sizeof sa;
    if (getsockname(l->listener, (struct sockaddr *)&sa, &len) < 0)
        return err_sys(err, errno, "finding the port that listens at %s", ip);
    endpoint_from_socket(&sa, &bound);
    l->port = bound.port;
    return 0;
}

/* The thread takes no signals. */
static int start_thread(struct links *l, struct err *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&l->thread, NULL, links_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return err_sys(err, rc, "starting the thread that connects ranks");
    l->has_thread = true;
    return 0;
}

static void init_lock(struct links *l)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
}

int links_new(int rank, int size, const struct endpoint_addr *at, const struct samehost_name *name,
              int64_t timeout_ms, struct links **out, struct err *err)
{
    struct links *l = xcalloc(1, sizeof *l);
    int rc;

    l->rank = l->terms.rank = rank;
    l->size = l->terms.size = size;
    l->timeout_ms = timeout_ms;
    l->listener = l->listener_here = -1;
    init_lock(l);
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        l->places[ch] = xcalloc((size_t)size, sizeof *l->places[ch]);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = l->wake < 0 ? err_sys(err, errno, "eventfd") : listen_at(l, at, err);
    if (rc == 0 && name)
        rc = samehost_listen(name, &l->listener_here, err);
    if (rc == 0)
        rc = start_thread(l, err);
    if (rc < 0) {
        links_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

static void stop_thread(struct links *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    wake(l);
    pthread_join(l->thread, NULL);
}

void links_free(struct links *l)
{
    if (!l)
        return;
    if (l->has_thread)
        stop_thread(l);
    close_listeners(l);
    if (l->wake >= 0)
        close(l->wake);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        for (int r = 0; r < l->size; r++)
            link_free(l->places[ch][r].link);
        free(l->places[ch]);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    OPENSSL_cleanse(&l->terms, sizeof l->terms);
    free(l->orders);
    free(l->peers);
    free(l->names);
    free(l->fds);
    free(l);
}

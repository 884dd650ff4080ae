/* links_thread - the thread that makes the links of one rank.
 *
 * Happy path.  links_new listens and starts this thread.  Connections that come before links_begin
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
 *     again after ACCEPT_MAX more.  So a rank whose hello has arrived is not taken for a stranger.
 *   - links_interrupt: the thread closes everything that is not a link, and ends. */
#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/links_impl.h"

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

/* ---- ends of attempts ---- */

static void count_stranger(struct links *l)
{
    pthread_mutex_lock(&l->lock);
    l->n_strangers++;
    pthread_mutex_unlock(&l->lock);
}

static void links_thread_fail(struct links *l, const struct err *cause)
{
    pthread_mutex_lock(&l->lock);
    if (!l->has_failed)
        l->cause = *cause;
    l->has_failed = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void free_attempt(struct attempt *a)
{
    shake_free(a->shake);
    free(a);
}

/* Take the attempt *at out of the list, and free it. */
static void links_thread_drop(struct attempt **at)
{
    struct attempt *a = *at;

    *at = a->next;
    free_attempt(a);
}

/* The proof is complete, so the connection becomes the link.  If there is a link already, because
 * the rank has dialed twice, that one stays. */
static void links_thread_take_place(struct links *l, struct attempt *a)
{
    const struct proof_link *k = &a->shake->proof.link;
    const int r = k->from == l->rank ? k->to : k->from;
    struct link_parts parts = shake_take(a->shake);
    const int is_tls = parts.ssl != NULL, is_kernel = is_tls && cipher_is_kernel(parts.ssl);
    struct link *link;

    parts.fabric = l->fabric;
    parts.channel = (int)k->channel;
    parts.rank = r;
    parts.patience = &l->patience[k->channel];
    link = link_new(parts, l->timeout_ms);
    pthread_mutex_lock(&l->lock);
    if (is_tls)
        l->is_kernel = is_kernel;
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

/* ---- dialing ---- */

static void fail_to_reach(struct links *l, const struct attempt *a, const char *why)
{
    char text[ENDPOINT_TEXT];
    struct err err;

    endpoint_text(&l->peers[a->link.to], text);
    err_set(
        &err, ERR_PEER,
        "rank %d cannot be reached at %s, which its host or its --iface gives, from rank %d: %s",
        a->link.to, text, l->rank, why);
    links_thread_fail(l, &err);
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
    links_thread_fail(l, &err);
}

/* Start to dial.  0: the attempt goes on. */
static int links_thread_dial(struct links *l, const struct shake_terms *t, struct attempt *a)
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

        a->is_dialer = 1;
        a->link = orders[i];
        a->first_ns = clock_mono_ns();
        a->next = l->attempts;
        l->attempts = a;
        if (links_thread_dial(l, t, a) < 0)
            links_thread_drop(&l->attempts);
    }
    free(orders);
}

/* ---- strangers ---- */

static int is_stranger(const struct attempt *a)
{
    return !a->is_dialer && a->shake->stage == SHAKE_READ_HELLO;
}

static int is_from(const struct attempt *a, const struct endpoint_addr *source)
{
    return endpoint_is_same_source(&a->shake->addr, source);
}

/* Drop the oldest stranger, of `source` if it is not NULL.  Returns whether there was one. */
static int drop_oldest(struct links *l, const struct endpoint_addr *source)
{
    struct attempt **oldest = NULL;

    for (struct attempt **at = &l->attempts; *at; at = &(*at)->next)
        if (is_stranger(*at) && (!source || is_from(*at, source)))
            oldest = at;
    if (!oldest)
        return 0;
    links_thread_drop(oldest);
    count_stranger(l);
    return 1;
}

static void links_thread_make_room(struct links *l, const struct endpoint_addr *source)
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

/* ---- steps ---- */

/* A dialer's proof has this outcome.  1: the attempt is over. */
static int end_of_dial(struct links *l, struct attempt *a, int outcome, const struct err *err)
{
    if (outcome == SHAKE_CLOSED)
        return dial_again(l, a) < 0;
    if (outcome == SHAKE_STRANGER)
        fail_to_reach(l, a, "what answers there does not belong to this formation");
    else if (outcome == ERR_PROTO)
        links_thread_fail(l, err);
    else
        fail_to_dial(l, a, err);
    return 1;
}

/* An acceptor's proof has this outcome; SHAKE_PENDING: the peer is late.  In the handshake of TLS,
 * or when memory is handed over, the peer has proven the key, so it is a rank.  1: the attempt is
 * over. */
static int end_of_accept(struct links *l, const struct attempt *a, int outcome, struct err *err)
{
    const int is_tls = a->shake->stage == SHAKE_TLS;
    const int is_rank = is_tls || a->shake->stage == SHAKE_SHARE;

    if (is_rank && outcome == SHAKE_PENDING)
        outcome = err_set(err, ERR_PEER, "%s: not complete after %d s",
                          is_tls ? "TLS handshake" : "sharing memory", PROOF_MS / 1000);
    if (is_rank && outcome < 0)
        err_wrap(err, "connecting with rank %d", a->shake->proof.link.from);
    if (outcome < 0 && (is_rank || outcome != ERR_PEER))
        links_thread_fail(l, err);
    else
        count_stranger(l);
    return 1;
}

static int is_late(const struct shake_terms *t, const struct attempt *a)
{
    const int64_t limit_ms = is_stranger(a) ? STRANGER_MS : PROOF_MS;

    if (a->is_dialer || (!t->has_key && a->shake->n_in == PROOF_HELLO))
        return 0;
    return clock_mono_ns() - a->shake->born_ns > limit_ms * INT64_C(1000000);
}

/* Go on with one attempt as far as possible.  1: the attempt is over. */
static int links_thread_step(struct links *l, const struct shake_terms *t, struct attempt *a)
{
    struct err err;
    int rc;

    if (!a->shake && clock_mono_ns() < a->again_ns)
        return 0;
    if (!a->shake && links_thread_dial(l, t, a) < 0)
        return 1;
    rc = shake_step(a->shake, t, &err);
    if (rc == SHAKE_PENDING && !is_late(t, a))
        return 0;
    if (rc == SHAKE_DONE) {
        links_thread_take_place(l, a);
        return 1;
    }
    return a->is_dialer ? end_of_dial(l, a, rc, &err) : end_of_accept(l, a, rc, &err);
}

static void step_all(struct links *l, const struct shake_terms *t)
{
    for (struct attempt **at = &l->attempts; *at;)
        if (links_thread_step(l, t, *at))
            links_thread_drop(at);
        else
            at = &(*at)->next;
}

/* Accept one connection of a listening socket, and read what has come with it.  All connections of
 * this machine are of one source.  0: there is none now. */
static int links_thread_accept_one(struct links *l, const struct shake_terms *t, int listener)
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
        return 0;
    if (listener == l->listener)
        endpoint_from_socket(&sa, &source);
    links_thread_make_room(l, &source);
    a = xcalloc(1, sizeof *a);
    a->shake = shake_accept(fd, listener == l->listener ? &source : NULL);
    a->next = l->attempts;
    l->attempts = a;
    if (links_thread_step(l, t, a))
        links_thread_drop(&l->attempts);
    return 1;
}

static void accept_some(struct links *l, const struct shake_terms *t)
{
    const int listeners[] = {l->listener_here, l->listener};

    for (size_t k = 0; k < ARRAY_LEN(listeners); k++)
        for (int i = 0; i < ACCEPT_MAX && !l->rest_until_ns && listeners[k] >= 0 &&
                        links_thread_accept_one(l, t, listeners[k]);
             i++)
            ;
}

/* ---- rounds ---- */

/* The time in ms until something must be done even if no socket is ready; -1: never. */
static int links_thread_patience(const struct links *l)
{
    int retries = l->rest_until_ns != 0, waits = 0;

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
    if (poll(l->fds, n, links_thread_patience(l)) > 0 && l->fds[0].revents)
        (void)!read(l->wake, &count, sizeof count);
}

void links_close_listeners(struct links *l)
{
    if (l->listener >= 0)
        close(l->listener);
    if (l->listener_here >= 0)
        close(l->listener_here);
    l->listener = l->listener_here = -1;
}

void *links_main(void *arg)
{
    struct links *l = arg;
    struct shake_terms terms;
    int over = 0;

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
        links_thread_drop(&l->attempts);
    links_close_listeners(l); /* a rank that dials from now on is refused at once */
    OPENSSL_cleanse(&terms, sizeof terms);
    return NULL;
}

/* links - the calls of other threads, and the life of a rank's links.  links_thread.c makes the
 * links, and explains how; both work on one struct, whose lock guards what they share. */
#include "coll/links.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "coll/links_impl.h"

/* ---- from other threads ---- */

static void links_wake(struct links *l)
{
    const uint64_t one = 1;

    (void)!write(l->wake, &one, sizeof one);
}

uint16_t links_port(const struct links *l) { return l->port; }

void links_begin(struct links *l, const uint8_t key[PROOF_KEY], const struct cipher *cipher,
                 struct fabric *fabric, struct endpoint_addr *peers, struct samehost_name *names)
{
    pthread_mutex_lock(&l->lock);
    l->fabric = fabric;
    l->terms.cipher = cipher;
    memcpy(l->terms.key, key, PROOF_KEY);
    l->terms.mode = cipher ? PROOF_TLS : PROOF_PLAIN;
    l->terms.has_key = 1;
    l->peers = peers;
    l->names = names;
    pthread_mutex_unlock(&l->lock);
    links_wake(l);
}

/* Note that the link is wanted.  If r is the lower rank, have the thread dial it.  The lock is
 * held.
 */
static void links_order(struct links *l, enum coll_channel ch, int r)
{
    struct place *p = &l->places[ch][r];

    if (p->wanted || p->link)
        return;
    p->wanted = 1;
    if (r > l->rank)
        return;
    if (l->n_orders == l->cap_orders) {
        l->cap_orders = l->cap_orders ? 2 * l->cap_orders : 16;
        l->orders = xrealloc(l->orders, l->cap_orders * sizeof *l->orders);
    }
    l->orders[l->n_orders++] = (struct proof_link){l->rank, r, ch, l->terms.mode};
    links_wake(l);
}

void links_want(struct links *l, enum coll_channel ch, int r)
{
    pthread_mutex_lock(&l->lock);
    links_order(l, ch, r);
    pthread_mutex_unlock(&l->lock);
}

static int links_canceled(struct err *err)
{
    return err_set(err, ERR_CANCELED, "canceled while connecting");
}

/* Wait until the place has a link.  The lock is held, and released while this waits. */
static int links_wait_for(struct links *l, const struct place *p, int64_t until_ns, struct err *err)
{
    while (!p->link) {
        if (l->interrupted)
            return links_canceled(err);
        if (l->has_failed) {
            *err = l->cause;
            return err->code;
        }
        if (until_ns == INT64_MAX)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (cond_wait_until(&l->changed, &l->lock, until_ns) && !p->link)
            return err_set(err, ERR_TIMEOUT, "not connected in time");
    }
    return 0;
}

int links_get(struct links *l, enum coll_channel ch, int r, int64_t until_ns, struct link **out,
              struct err *err)
{
    int rc;

    pthread_mutex_lock(&l->lock);
    links_order(l, ch, r);
    rc = links_wait_for(l, &l->places[ch][r], until_ns, err);
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

/* 1: a link with rank r is broken.  The lock is held. */
static int links_is_gone(const struct links *l, int r)
{
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        if (l->places[ch][r].link && link_is_gone(l->places[ch][r].link))
            return 1;
    return 0;
}

void links_list_gone(struct links *l, int except, char *out, size_t len)
{
    size_t n = 0;

    out[0] = 0;
    pthread_mutex_lock(&l->lock);
    for (int r = 0; r < l->size && n < len; r++)
        if (r != except && links_is_gone(l, r))
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

int links_are_kernel(struct links *l)
{
    int yes;

    pthread_mutex_lock(&l->lock);
    yes = l->is_kernel;
    pthread_mutex_unlock(&l->lock);
    return yes;
}

void links_interrupt(struct links *l)
{
    pthread_mutex_lock(&l->lock);
    l->interrupted = 1;
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        for (int r = 0; r < l->size; r++)
            if (l->places[ch][r].link)
                link_shut(l->places[ch][r].link);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    links_wake(l);
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
static int links_start_thread(struct links *l, struct err *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&l->thread, NULL, links_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return err_sys(err, rc, "starting the thread that connects ranks");
    l->has_thread = 1;
    return 0;
}

static void init_lock(struct links *l)
{
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->changed);
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
        rc = links_start_thread(l, err);
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
    l->stop = 1;
    pthread_mutex_unlock(&l->lock);
    links_wake(l);
    pthread_join(l->thread, NULL);
}

void links_free(struct links *l)
{
    if (!l)
        return;
    if (l->has_thread)
        stop_thread(l);
    links_close_listeners(l);
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

/* shake - sends and reads the messages of a proof on a socket that does not block.
 *
 * shake.h explains the outcomes.  coll/proof.c makes and checks the messages. */
#include "coll/shake.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

static struct shake *new_shake(int fd, enum shake_stage stage, const struct endpoint_addr *addr,
                               size_t want)
{
    struct shake *s = xcalloc(1, sizeof *s);

    s->fd = fd;
    s->stage = stage;
    s->is_same_host = !addr;
    if (addr)
        s->addr = *addr;
    s->born_ns = clock_mono_ns();
    s->want = want;
    return s;
}

struct shake *shake_accept(int fd, const struct endpoint_addr *from)
{
    return new_shake(fd, SHAKE_READ_HELLO, from, PROOF_HELLO);
}

static int dial_address(const struct endpoint_addr *to, struct shake **out, struct err *err)
{
    struct sockaddr_storage sa;
    const socklen_t len = endpoint_to_socket(to, &sa);
    const int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_sys(err, errno, "opening a socket");
    if (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS) {
        err_set(err, ERR_PEER, "%s", strerror(errno));
        close(fd);
        return err->code;
    }
    *out = new_shake(fd, SHAKE_CONNECTING, to, PROOF_ANSWER);
    return 0;
}

int shake_dial(const struct shake_terms *t, struct proof_link link, const struct endpoint_addr *to,
               const struct samehost_name *name, struct shake **out, struct err *err)
{
    const int here = name ? samehost_dial(name) : -1;
    struct shake *s = NULL;

    if (here >= 0)
        s = new_shake(here, SHAKE_READ_ANSWER, NULL, PROOF_ANSWER);
    else if (dial_address(to, &s, err) < 0)
        return err->code;
    s->n_out = PROOF_HELLO;
    if (proof_dial(&s->proof, t->key, link, s->out, err) < 0) {
        shake_free(s);
        return err->code;
    }
    *out = s;
    return 0;
}

void shake_free(struct shake *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    SSL_free(s->ssl);
    shm_free(s->shm);
    proof_wipe(&s->proof);
    OPENSSL_cleanse(s->link_key, sizeof s->link_key);
    free(s);
}

struct link_parts shake_take(struct shake *s)
{
    const struct link_parts parts = {.fd = s->fd, .ssl = s->ssl, .shm = s->shm};

    s->ssl = NULL;
    s->shm = NULL;
    s->fd = -1;
    return parts;
}

short shake_events(const struct shake *s)
{
    if (s->stage == SHAKE_TLS)
        return SSL_want_write(s->ssl) ? POLLOUT : POLLIN;
    if (s->stage == SHAKE_SHARE)
        return POLLIN;
    if (s->stage == SHAKE_CONNECTING || s->n_sent < s->n_out)
        return POLLOUT;
    return s->n_in < s->want ? POLLIN : 0;
}

/* ---- bytes ---- */

/* The outcome of a failed socket call.  A reset means the same as an end: the peer closed the
 * connection. */
static int shake_broken(int number, struct err *err)
{
    if (number == EAGAIN || number == EWOULDBLOCK || number == EINTR)
        return SHAKE_PENDING;
    if (number == ECONNRESET || number == EPIPE)
        return SHAKE_CLOSED;
    return err_set(err, ERR_PEER, "%s", strerror(number));
}

static int shake_connected(struct shake *s, struct err *err)
{
    int number = 0;
    socklen_t len = sizeof number;
    struct pollfd p = {s->fd, POLLOUT, 0};

    if (poll(&p, 1, 0) == 0)
        return SHAKE_PENDING;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &number, &len);
    if (number)
        return shake_broken(number, err);
    s->stage = SHAKE_READ_ANSWER;
    return SHAKE_DONE;
}

/* SHAKE_DONE: the whole message has left. */
static int send_rest(struct shake *s, struct err *err)
{
    while (s->n_sent < s->n_out) {
        const ssize_t n = send(s->fd, s->out + s->n_sent, s->n_out - s->n_sent, MSG_NOSIGNAL);

        if (n < 0)
            return shake_broken(errno, err);
        s->n_sent += (size_t)n;
    }
    return SHAKE_DONE;
}

/* SHAKE_DONE: the whole message is here.  Later bytes stay in the socket. */
static int read_rest(struct shake *s, struct err *err)
{
    while (s->n_in < s->want) {
        const ssize_t n = recv(s->fd, s->in + s->n_in, s->want - s->n_in, 0);

        if (n < 0)
            return shake_broken(errno, err);
        if (n == 0)
            return SHAKE_CLOSED;
        s->n_in += (size_t)n;
    }
    return SHAKE_DONE;
}

/* ---- messages ---- */

static void shake_next(struct shake *s, enum shake_stage stage, size_t n_out, size_t want)
{
    s->stage = stage;
    s->n_out = n_out;
    s->n_sent = 0;
    s->want = want;
    s->n_in = 0;
}

/* Check the hello and write the answer.  A rank that wants another mode gets an answer, too, so
 * that it can report the reason. */
static int take_hello(struct shake *s, const struct shake_terms *t, struct err *err)
{
    struct err ignored;
    int rc;

    if (!t->has_key)
        return SHAKE_PENDING;
    rc = proof_read_hello(&s->proof, t->key, t->rank, t->size, t->mode, s->in, err);
    if (rc == PROOF_STRANGER)
        return SHAKE_STRANGER;
    if (proof_answer(&s->proof, s->out, rc < 0 ? &ignored : err) < 0)
        return err->code;
    shake_next(s, SHAKE_READ_FRESH, PROOF_ANSWER, PROOF_FRESH);
    if (rc < 0)
        send_rest(s, &ignored);
    return rc < 0 ? rc : SHAKE_DONE;
}

static int shake_take_answer(struct shake *s, struct err *err)
{
    const int rc = proof_read_answer(&s->proof, s->in, err);

    if (rc != 0)
        return rc < 0 ? rc : SHAKE_STRANGER;
    proof_fresh(&s->proof, s->out);
    shake_next(s, SHAKE_PROVEN, PROOF_FRESH, 0);
    return SHAKE_DONE;
}

static int take_fresh(struct shake *s)
{
    if (proof_read_fresh(&s->proof, s->in) != 0)
        return SHAKE_STRANGER;
    shake_next(s, SHAKE_PROVEN, 0, 0);
    return SHAKE_DONE;
}

static int shake_take_message(struct shake *s, const struct shake_terms *t, struct err *err)
{
    switch (s->stage) {
    case SHAKE_READ_HELLO:
        return take_hello(s, t, err);
    case SHAKE_READ_ANSWER:
        return shake_take_answer(s, err);
    case SHAKE_READ_FRESH:
        return take_fresh(s);
    default:
        return SHAKE_DONE;
    }
}

static int run_proof(struct shake *s, const struct shake_terms *t, struct err *err)
{
    int rc = s->stage == SHAKE_CONNECTING ? shake_connected(s, err) : SHAKE_DONE;

    while (rc == SHAKE_DONE) {
        rc = send_rest(s, err);
        if (rc != SHAKE_DONE || s->stage == SHAKE_PROVEN)
            break;
        rc = read_rest(s, err);
        if (rc == SHAKE_DONE)
            rc = shake_take_message(s, t, err);
    }
    return rc;
}

/* ---- TLS ---- */

/* The dialer is the client. */
static int begin_tls(struct shake *s, const struct shake_terms *t, struct err *err)
{
    const int is_server = s->proof.link.to == t->rank;

    proof_link_key(&s->proof, s->link_key);
    s->stage = SHAKE_TLS;
    return cipher_begin(t->cipher, s->fd, is_server, s->link_key, &s->ssl, err);
}

static int run_tls(struct shake *s, struct err *err)
{
    int rc;

    ERR_clear_error();
    rc = SSL_do_handshake(s->ssl);
    if (rc != 1) {
        const int e = SSL_get_error(s->ssl, rc);

        if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
            return SHAKE_PENDING;
        return err_set(err, ERR_PEER, "TLS handshake: %s", cipher_why());
    }
    if (!SSL_session_reused(s->ssl))
        return err_set(err, ERR_PEER, "TLS handshake: it did not use the key");
    cipher_end_handshake(s->ssl);
    return SHAKE_DONE;
}

/* ---- shared memory ---- */

/* Make shared memory and hand over its descriptor.  If that cannot be had, the link's bytes go
 * through the Unix socket. */
static int give_memory(struct shake *s, struct err *err)
{
    struct err ignored;
    int fd = -1, rc;

    (void)shm_new(&s->shm, &fd, &ignored);
    rc = samehost_give(s->fd, fd, err);
    if (fd >= 0)
        close(fd);
    return rc < 0 ? rc : SHAKE_DONE;
}

static int take_memory(struct shake *s, struct err *err)
{
    int fd, rc = samehost_take(s->fd, &fd, err);

    if (rc != 0)
        return rc < 0 ? rc : SHAKE_PENDING;
    if (fd < 0)
        return SHAKE_DONE;
    rc = shm_attach(fd, &s->shm, err);
    close(fd);
    return rc < 0 ? rc : SHAKE_DONE;
}

int shake_step(struct shake *s, const struct shake_terms *t, struct err *err)
{
    int rc;

    if (s->stage == SHAKE_TLS)
        return run_tls(s, err);
    if (s->stage == SHAKE_SHARE)
        return take_memory(s, err);
    rc = run_proof(s, t, err);
    if (rc == SHAKE_DONE && s->is_same_host) {
        s->stage = SHAKE_SHARE;
        return s->proof.link.from == t->rank ? give_memory(s, err) : take_memory(s, err);
    }
    if (rc != SHAKE_DONE || s->proof.link.mode == PROOF_PLAIN)
        return rc;
    rc = begin_tls(s, t, err);
    return rc < 0 ? rc : run_tls(s, err);
}

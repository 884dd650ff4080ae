/* Happy path, driver: a whole ClientHello gathers in `head` -> SSL object -> handshake -> `open` ->
 * bytes; follower: the SSL object and ClientHello at once.  Data to send waits as items; pump
 * encrypts them while the socket holds less than AHEAD, so that one frame for many ranks exists in
 * the clear once and encrypted only in part.  Closing: what waits is encrypted, close_notify, and
 * stream_close's patience.
 *
 * Failure modes: first bytes that are no TLS (named, and answered so that the other side can name
 * it, too); a handshake that fails (the alert leaves, then `ended`); no close_notify at the end. */
#include "net/tls.h"

#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "net/tls_library.h"
#include "wire/frame.h"

enum {
    AHEAD = 256 << 10,   /* encrypted bytes that wait for the socket */
    CHUNK = 64 << 10,    /* encrypted at a time */
    READ = 16 << 10,     /* a record's most */
    RECORD_HEADER = 5,   /* type, version, length */
    MAX_HELLO = 4 << 10, /* a dpfollower's has about 250 bytes, a browser's up to 2,000 */
    TYPE_ALERT = 21,
    TYPE_HANDSHAKE = 22,
    CLIENT_HELLO = 1,
};

struct tls_item {
    struct tls_item *next;
    const uint8_t *data;
    size_t len, taken;
    void (*done)(void *owner);
    void *owner;
};

struct sent { /* encrypted, with the stream */
    struct tls *tls;
    struct buf data;
};

static int tls_pump(struct tls *t, size_t ahead, struct err *err);

int tls_is_open(const struct tls *t) { return !t->context || t->state == TLS_OPEN; }

/* ---- out ---- */

static void on_sent(void *owner)
{
    struct sent *s = owner;
    struct tls *t = s->tls;
    struct err err;

    buf_fini(&s->data);
    free(s);
    if (t->state == TLS_OPEN && t->stream.state == STREAM_OPEN)
        tls_pump(t, AHEAD, &err); /* that it fails is seen by the next send or read */
    if (t->events->sent)
        t->events->sent(t->arg);
}

static int tls_flush(struct tls *t, struct err *err)
{
    struct sent *s;

    if (t->out.len == 0)
        return 0;
    s = xcalloc(1, sizeof *s);
    s->tls = t;
    s->data = t->out;
    buf_init(&t->out);
    return stream_send(&t->stream, s->data.data, s->data.len, on_sent, s, err);
}

static size_t n_in_stream(const struct tls *t) { return stream_n_unsent(&t->stream); }

static void drop_first(struct tls *t)
{
    struct tls_item *i = t->first;

    t->n_waiting -= i->len - i->taken;
    t->first = i->next;
    if (!t->first)
        t->last = &t->first;
    i->done(i->owner);
    free(i);
}

static int encrypt_some(struct tls *t, struct err *err)
{
    struct tls_item *i = t->first;
    size_t n = i->len - i->taken < CHUNK ? i->len - i->taken : CHUNK;

    ERR_clear_error();
    if (SSL_write(t->ssl, i->data + i->taken, (int)n) != (int)n)
        return tls_library_explain(t, err);
    i->taken += n;
    t->n_waiting -= n;
    if (i->taken == i->len)
        drop_first(t);
    return tls_flush(t, err);
}

static int tls_pump(struct tls *t, size_t ahead, struct err *err)
{
    int rc = 0;

    if (t->is_pumping) /* called from within: the stream refused bytes, and its callback came */
        return 0;
    t->is_pumping = 1;
    while (rc == 0 && t->first && n_in_stream(t) < ahead)
        rc = encrypt_some(t, err);
    t->is_pumping = 0;
    return rc;
}

static int tls_refuse(struct tls *t, size_t len, struct err *err)
{
    size_t waiting = t->n_waiting + n_in_stream(t);

    if (t->state == TLS_OVER || t->stream.state != STREAM_OPEN)
        return err_set(err, ERR_PEER, "the connection to %s is closed", t->stream.peer);
    if (waiting + len > t->queue_limit)
        return err_set(err, ERR_PEER, "%s does not read: %zu bytes wait for it, at most %zu may",
                       t->stream.peer, waiting + len, t->queue_limit);
    return 0;
}

int tls_send(struct tls *t, const void *data, size_t len, void (*done)(void *owner), void *owner,
             struct err *err)
{
    struct tls_item *i;
    int rc;

    if (!t->context)
        return stream_send(&t->stream, data, len, done, owner, err);
    rc = tls_refuse(t, len, err);
    if (rc < 0) {
        done(owner);
        return rc;
    }
    i = xcalloc(1, sizeof *i);
    *i = (struct tls_item){.data = data, .len = len, .done = done, .owner = owner};
    *t->last = i;
    t->last = &i->next;
    t->n_waiting += len;
    return t->state == TLS_OPEN ? tls_pump(t, AHEAD, err) : 0;
}

int tls_try(struct tls *t, const void *data, size_t len, size_t *n_taken, struct err *err)
{
    struct err ignored;
    size_t n;

    *n_taken = t->context ? 0 : stream_try(&t->stream, data, len);
    if (!t->context || t->state != TLS_OPEN || len == 0)
        return 0;
    ERR_clear_error();
    if (SSL_write(t->ssl, data, (int)len) != (int)len)
        return tls_library_explain(t, err);
    *n_taken = len;
    n = n_in_stream(t) ? 0 : stream_try(&t->stream, t->out.data, t->out.len);
    buf_consume(&t->out, n);
    if (t->out.len == 0)
        buf_fini(&t->out);
    tls_flush(t, &ignored); /* if the socket broke, its own `ended` tells */
    return 0;
}

/* ---- ends ---- */

static void tls_over(struct tls *t, const struct err *why)
{
    if (t->state == TLS_OVER)
        return;
    t->state = TLS_OVER;
    t->events->stream.ended(t->arg, why);
}

/* The library has written an alert, which is still sent. */
static void tls_broken(struct tls *t)
{
    struct err err, ignored;

    tls_library_explain(t, &err);
    t->is_broken = 1;
    tls_flush(t, &ignored);
    tls_over(t, &err);
}

static void tls_on_ended(void *arg, const struct err *why)
{
    struct tls *t = arg;
    struct err err;
    int is_stranger = t->state == TLS_SHAKING && t->context;

    t->is_broken = 1;
    if (why || !t->context || t->before || (is_stranger && t->context->role == TLS_DRIVER)) {
        tls_over(t, why);
        return;
    }
    if (is_stranger)
        err_set(&err, ERR_PEER,
                "it closed the connection to %s in the TLS handshake; is that a dpdriver, and was "
                "it given --secret-file?",
                t->stream.peer);
    else
        err_set(&err, ERR_PEER,
                "it closed the connection without saying so in TLS (crashed or killed?)");
    tls_over(t, &err);
}

static void drop_ssl(struct tls *t)
{
    SSL_free(t->ssl);
    t->ssl = NULL;
}

static void tls_on_gone(void *arg)
{
    struct tls *t = arg;

    while (t->first)
        drop_first(t);
    drop_ssl(t);
    buf_fini(&t->head);
    buf_fini(&t->out);
    t->events->stream.gone(t->arg);
}

/* A peer that was told of the end keeps its SSL object until the stream is gone.  Where thousands
 * are told, memory that is freed in between makes each buffer for the next one take longer: the
 * heap's free pieces are sorted. */
void tls_close(struct tls *t, int linger_ms)
{
    int is_polite =
        t->context && t->ssl && linger_ms > 0 && !t->is_broken && SSL_is_init_finished(t->ssl);
    struct err err;

    t->state = TLS_OVER;
    if (is_polite && t->stream.state == STREAM_OPEN && tls_pump(t, SIZE_MAX, &err) == 0) {
        ERR_clear_error();
        SSL_shutdown(t->ssl);
        ERR_clear_error();
        tls_flush(t, &err);
    }
    t->is_broken = 1; /* nothing more can be said */
    if (!is_polite)
        drop_ssl(t); /* at once: it has up to 40 KiB, and a stranger may be slow to close */
    stream_close(&t->stream, linger_ms);
}

/* ---- in ---- */

/* The key must have been used; any other handshake is not what both sides agreed on. */
static int check_proof(struct tls *t)
{
    struct err err;

    if (SSL_session_reused(t->ssl) && SSL_version(t->ssl) == TLS1_3_VERSION)
        return 1;
    t->is_broken = 1;
    err_set(&err, ERR_REFUSED, "%s did not use the secret", t->stream.peer);
    tls_over(t, &err);
    return 0;
}

/* The driver's first bytes prove its role; no higher layer sees them. */
static int send_proof(struct tls *t)
{
    uint8_t proof[TLS_PROOF];

    return tls_key_prove(&t->context->key[t->key], t->ssl, proof) == 0 &&
           SSL_write(t->ssl, proof, sizeof proof) == (int)sizeof proof;
}

/* 1: the driver has proven its role; 0: more bytes are needed; -1: it has failed. */
static int take_proof(struct tls *t)
{
    struct err err;
    int n = 1;

    while (t->n_proof < TLS_PROOF && n > 0) {
        ERR_clear_error();
        n = SSL_read(t->ssl, t->proof + t->n_proof, (int)(TLS_PROOF - t->n_proof));
        t->n_proof += n > 0 ? (size_t)n : 0;
    }
    if (n <= 0 && SSL_get_error(t->ssl, n) == SSL_ERROR_WANT_READ)
        return 0;
    if (n <= 0) {
        tls_broken(t);
        return -1;
    }
    if (tls_key_is_proven(&t->context->key[t->key], t->ssl, t->proof))
        return 1;
    t->is_broken = 1;
    err_set(&err, ERR_REFUSED, "%s knows the secret as a follower does, but is no dpdriver",
            t->stream.peer);
    tls_over(t, &err);
    return -1;
}

static int prove_role(struct tls *t)
{
    if (t->context->role == TLS_FOLLOWER)
        return take_proof(t);
    if (send_proof(t))
        return 1;
    tls_broken(t);
    return -1;
}

static void tls_shake(struct tls *t)
{
    struct err err;
    int rc;

    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc != 1 && SSL_get_error(t->ssl, rc) != SSL_ERROR_WANT_READ) {
        tls_broken(t);
        return;
    }
    if (rc == 1)
        rc = check_proof(t) ? prove_role(t) : -1;
    else
        rc = 0;
    if (rc >= 0)
        tls_flush(t, &err); /* if the socket broke, its own `ended` tells */
    if (rc <= 0)
        return;
    t->state = TLS_OPEN;
    t->context->turn->n_failed = 0;
    if (t->events->open)
        t->events->open(t->arg);
    if (t->state == TLS_OPEN)
        tls_pump(t, AHEAD, &err);
}

static void tls_decrypt(struct tls *t)
{
    uint8_t block[READ];
    struct err err;
    int n = 1;

    /* A call that finds nothing to read allocates 17 KiB all the same. */
    while (t->state == TLS_OPEN && n > 0 && (t->n_in > 0 || SSL_has_pending(t->ssl))) {
        ERR_clear_error();
        n = SSL_read(t->ssl, block, sizeof block);
        if (n > 0)
            t->events->stream.bytes(t->arg, block, (size_t)n);
    }
    if (t->state != TLS_OPEN)
        return;
    switch (n > 0 ? SSL_ERROR_WANT_READ : SSL_get_error(t->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        tls_flush(t, &err); /* an answer to the peer's change of keys */
        return;
    case SSL_ERROR_ZERO_RETURN:
        tls_over(t, NULL);
        return;
    default:
        tls_broken(t);
    }
}

static void tls_feed(struct tls *t, const uint8_t *data, size_t len)
{
    t->in = data;
    t->n_in = len;
    if (t->state == TLS_SHAKING)
        tls_shake(t);
    if (t->state == TLS_OPEN)
        tls_decrypt(t);
    t->in = NULL;
    t->n_in = 0;
}

/* ---- first bytes ---- */

static void tls_answer_done(void *owner) { (void)owner; }

/* A side without TLS can say what is wrong, too: it gets a fatal alert (protocol_version), which
 * wire/frame recognizes.  A TLS follower recognizes the answer of a driver without TLS
 * (net/conn.c). */
static void answer_plain(struct tls *t)
{
    static const uint8_t alert[] = {TYPE_ALERT, 3, 3, 0, 2, 2, 70};
    struct err err;

    if (t->context->role == TLS_DRIVER)
        stream_send(&t->stream, alert, sizeof alert, tls_answer_done, NULL, &err);
}

static int not_tls(struct tls *t, const uint8_t *p, struct err *err)
{
    const char *like = frame_looks_like(p);

    answer_plain(t);
    if (memcmp(p, "DPT1", 4) != 0)
        return err_set(err, ERR_PROTO,
                       "from %s: neither TLS nor dptrain: %s%s%s%02x %02x %02x %02x",
                       t->stream.peer, like ? "looks like " : "", like ? like : "",
                       like ? ", starts with " : "starts with ", p[0], p[1], p[2], p[3]);
    return err_set(err, ERR_REFUSED, "%s speaks without TLS: %s",
                   t->context->role == TLS_DRIVER ? t->stream.peer : "it",
                   t->context->texts->plain);
}

/* 1: the bytes that came are worth an SSL object; 0: more are needed to tell. */
static int tls_judge(struct tls *t, struct err *err)
{
    const uint8_t *p = t->head.data;
    size_t n = t->head.len, len;

    if (n < RECORD_HEADER + 1)
        return 0;
    if ((p[0] != TYPE_HANDSHAKE && p[0] != TYPE_ALERT) || p[1] != 3)
        return not_tls(t, p, err);
    if (t->context->role == TLS_FOLLOWER)
        return 1;
    len = (size_t)p[3] << 8 | p[4];
    if (p[0] != TYPE_HANDSHAKE || p[5] != CLIENT_HELLO || len < 4 || len > MAX_HELLO)
        return err_set(err, ERR_PROTO,
                       "from %s: its first TLS record is no ClientHello of at most %d bytes",
                       t->stream.peer, MAX_HELLO);
    return n >= RECORD_HEADER + len;
}

static void tls_begin(struct tls *t, const void *data, size_t len)
{
    struct buf head;
    struct err err;
    int rc;

    buf_append(&t->head, data, len);
    rc = tls_judge(t, &err);
    if (rc > 0 && !t->ssl && !(t->ssl = tls_library_ssl(t)))
        rc = err_set(&err, ERR_NOMEM, "no TLS object for %s", t->stream.peer);
    if (rc < 0) {
        t->is_broken = 1;
        tls_over(t, &err);
    }
    if (rc <= 0)
        return;
    t->is_judged = 1;
    head = t->head;
    buf_init(&t->head);
    tls_feed(t, head.data, head.len);
    buf_fini(&head);
}

static void tls_on_bytes(void *arg, const void *data, size_t len)
{
    struct tls *t = arg;

    if (t->before)
        t->before(t->arg, data, len);
    else if (!t->context)
        t->events->stream.bytes(t->arg, data, len);
    else if (t->state == TLS_OVER)
        return;
    else if (t->is_judged)
        tls_feed(t, data, len);
    else
        tls_begin(t, data, len);
}

void tls_bytes_came(struct tls *t, const void *data, size_t len) { tls_on_bytes(t, data, len); }

/* ---- life ---- */

int tls_init(struct tls *t, uv_loop_t *loop, const struct tls_context *context, size_t queue_limit,
             const struct tls_events *events, void *arg, struct err *err)
{
    static const struct stream_events below = {tls_on_bytes, tls_on_ended, tls_on_gone};
    /* Records add 22 bytes to 16 KiB, and the limit proper is checked here. */
    size_t limit = context ? queue_limit + queue_limit / 64 + 2 * AHEAD : queue_limit;

    *t = (struct tls){0};
    t->context = context;
    t->events = events;
    t->arg = arg;
    t->queue_limit = queue_limit;
    t->last = &t->first;
    buf_init(&t->head);
    buf_init(&t->out);
    return stream_init(&t->stream, loop, limit, &below, t, err);
}

/* The stream has begun: a follower speaks first. */
static int tls_speak(struct tls *t, struct err *err)
{
    if (!t->context || t->context->role == TLS_DRIVER)
        return 0;
    t->ssl = tls_library_ssl(t);
    if (!t->ssl)
        return err_set(err, ERR_NOMEM, "no TLS object for %s", t->stream.peer);
    ERR_clear_error();
    SSL_do_handshake(t->ssl); /* a failure shows when the peer's answer comes */
    return tls_flush(t, err);
}

int tls_start(struct tls *t, struct err *err)
{
    int rc = stream_start(&t->stream, err);

    return rc < 0 ? rc : tls_speak(t, err);
}

int tls_start_after(struct tls *t, const void *head, size_t len,
                    void (*before)(void *arg, const void *data, size_t len), struct err *err)
{
    int rc = stream_start(&t->stream, err);

    t->before = before;
    if (rc == 0 && stream_try(&t->stream, head, len) < len)
        rc = err_set(err, ERR_PEER, "the connection to %s broke at once", t->stream.peer);
    return rc;
}

int tls_enter(struct tls *t, const void *data, size_t len, struct err *err)
{
    int rc;

    t->before = NULL;
    rc = tls_speak(t, err);
    if (rc == 0 && len > 0)
        tls_on_bytes(t, data, len);
    return rc;
}

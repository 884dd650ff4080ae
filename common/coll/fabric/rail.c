/* rail - the messages of one port: numbers, credits and room for them.
 *
 * Happy path: rail_send takes an idle message, copies bytes into it, closes it and hands it to the
 * port.  The receiver's port puts it into a posted one; rail_poll opens it and puts it into its
 * sender's row, by its number.  rail_recv takes bytes out of the row in order, and posts the
 * message again.
 *
 * Failure modes: what does not open, or has a number that was there, is dropped and posted again.
 * A message that the port could not send marks its rank: no further one is sent to it.  One that it
 * could not receive has no sender; mostly the sender is gone, and its link tells so.  Its room is
 * not used again, since nobody promises that the library has forgotten it: new room is made. */
#include "coll/fabric/rail.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/util.h"

enum {
    HEAD = SEAL_HEAD + SEAL_MARK,
    MESSAGE = HEAD + RAIL_PIECE,
    OUT = 2 * MESH_WINDOW, /* messages that a rail can have under way */
    NAP_NS = 50 * 1000,    /* between two polls of a port without a descriptor */
    ROOM_BYTES = 4 << 20,  /* try_alloc has huge pages for as many */
    ROOM_MESSAGES = ROOM_BYTES / MESSAGE,
};

enum kind { KIND_DATA, KIND_CREDIT, KINDS };

struct message {
    struct fabric_op op; /* first */
    struct message *next;
    struct peer *peer; /* to which it is sent; NULL: it receives */
    void *handle;      /* of its memory */
    uint8_t *at;       /* [MESSAGE] */
    size_t n, n_read;  /* received: bytes behind the head, and how many of them were taken */
};

/* Memory of messages.  The kernel looks up every page of a message that the provider shm copies
 * from another process: with small pages a large sum takes 1.3 times the CPU time. */
struct room {
    struct room *next;
    void *bytes;  /* [ROOM_BYTES] */
    void *handle; /* of the bytes */
    int n_used;   /* messages that were taken from it */
    struct message message[ROOM_MESSAGES];
};

struct peer {
    int rank;
    struct seal *out, *in;
    int has_room, has_failed, owes; /* owes: a credit that could not be sent yet */
    int n_sending;
    uint64_t number[KINDS];           /* of the next message to it */
    uint64_t n_acked;                 /* data messages that it has read */
    uint64_t n_in;                    /* data messages of it that were read here */
    uint64_t n_told;                  /* of these, as many as it knows of */
    struct message *row[MESH_WINDOW]; /* number n is at n % MESH_WINDOW; NULL: has not come */
};

struct rail {
    const struct rail_terms *terms;
    struct fabric_port *port;
    enum coll_channel channel;
    uint64_t *to;             /* [size]: by which the port knows the ranks */
    struct peer **peer;       /* [size]; NULL: no message yet */
    struct room *rooms;       /* messages are taken from the first */
    struct message *idle;     /* to send */
    struct message *unposted; /* to post, once the port takes it */
    int n_owing;
    int64_t n_room, n_failed; /* messages to receive with; how many were replaced */
    _Atomic int64_t n_strangers;
};

/* ---- numbers ---- */

static void rail_put(uint8_t *at, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        at[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

static uint64_t rail_get(const uint8_t *at, int n)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++)
        v = v << 8 | at[i];
    return v;
}

/* ---- room ---- */

static void list_push(struct message **list, struct message *m)
{
    m->next = *list;
    *list = m;
}

static struct message *list_pop(struct message **list)
{
    struct message *m = *list;

    *list = m->next;
    return m;
}

static int rail_add_room(struct rail *l, struct err *err)
{
    struct room *room = xcalloc(1, sizeof *room);

    room->next = l->rooms;
    room->n_used = ROOM_MESSAGES; /* until it is usable */
    l->rooms = room;
    if (try_alloc(&room->bytes, ROOM_BYTES, "messages of a fabric", err) < 0 ||
        l->terms->ops->memory(l->port, room->bytes, ROOM_BYTES, &room->handle, err) < 0)
        return err->code;
    room->n_used = 0;
    return 0;
}

/* Add `count` messages to the list. */
static int rail_make_room(struct rail *l, int count, struct message **list, struct err *err)
{
    for (int i = 0; i < count; i++) {
        const int is_full = !l->rooms || l->rooms->n_used == ROOM_MESSAGES;
        int rc = is_full ? rail_add_room(l, err) : 0;
        struct room *room = l->rooms;
        struct message *m;

        if (rc < 0)
            return rc;
        m = &room->message[room->n_used];
        m->at = (uint8_t *)room->bytes + (size_t)room->n_used++ * MESSAGE;
        m->handle = room->handle;
        list_push(list, m);
    }
    return 0;
}

static int rail_make_room_in(struct rail *l, struct err *err)
{
    l->n_room += RAIL_ROOM;
    return rail_make_room(l, RAIL_ROOM, &l->unposted, err);
}

/* A message could not be received.  Where as many are lost as there was room for, it is not that a
 * sender is gone. */
static int rail_replace_room(struct rail *l, struct err *err)
{
    if (++l->n_failed > l->n_room)
        return err_set(err, ERR_DEVICE, "libfabric: no message can be received");
    return rail_make_room(l, 1, &l->unposted, err);
}

/* Post what can be posted.  The port has a limit, which may be lower than the room for all ranks.
 */
static int rail_post(struct rail *l, struct err *err)
{
    int rc = 0;

    while (l->unposted && rc == 0) {
        struct message *m = l->unposted;

        rc = l->terms->ops->receive(l->port, (struct fabric_bytes){m->at, MESSAGE, m->handle},
                                    &m->op, err);
        if (rc == 0)
            list_pop(&l->unposted);
    }
    return rc == FABRIC_BUSY ? 0 : rc;
}

/* ---- peers ---- */

static int rail_seal(const struct rail *l, int r, int is_opener, struct seal **out, struct err *err)
{
    const struct rail_terms *t = l->terms;
    const struct proof_link link = {is_opener ? r : t->rank, is_opener ? t->rank : r, l->channel,
                                    t->hides ? PROOF_TLS : PROOF_PLAIN};
    uint8_t key[SEAL_KEY];
    int rc = seal_key(t->own, t->half[r], t->key, link, key, err);

    if (rc == 0)
        rc = seal_new(key, is_opener, t->hides, out, err);
    OPENSSL_cleanse(key, sizeof key);
    return rc;
}

/* The peer of rank r, with its keys.  A message that claims to be of rank r needs them. */
static int rail_know(struct rail *l, int r, struct peer **out, struct err *err)
{
    struct peer *p = l->peer[r];

    if (!p) {
        p = l->peer[r] = xcalloc(1, sizeof *p);
        p->rank = r;
    }
    *out = p;
    if (!p->out && rail_seal(l, r, 0, &p->out, err) < 0)
        return err_wrap(err, "key of rank %d", r);
    if (!p->in && rail_seal(l, r, 1, &p->in, err) < 0)
        return err_wrap(err, "key of rank %d", r);
    return 0;
}

/* The peer with room for its messages: it has proven the key, or this rank wants its bytes. */
static int rail_use(struct rail *l, int r, struct peer **out, struct err *err)
{
    int rc = rail_know(l, r, out, err);

    if (rc < 0 || (*out)->has_room)
        return rc;
    (*out)->has_room = 1;
    rc = rail_make_room_in(l, err);
    return rc == 0 ? rail_post(l, err) : rc;
}

/* ---- sending ---- */

/* Send n bytes, which may be 0, in an idle message.  FABRIC_BUSY: not now. */
static int rail_post_out(struct rail *l, struct peer *p, enum kind kind, const void *data, size_t n,
                         struct err *err)
{
    struct message *m = l->idle;
    int rc;

    if (p->has_failed)
        return err_set(err, ERR_PEER, "the fabric cannot reach it");
    if (!m)
        return FABRIC_BUSY;
    memset(m->at, 0, HEAD);
    rail_put(m->at, (uint64_t)l->terms->rank, 2);
    m->at[2] = (uint8_t)kind;
    rail_put(m->at + 4, p->n_in, 4);
    rail_put(m->at + 8, p->number[kind], 8);
    if (n)
        memcpy(m->at + HEAD, data, n);
    seal_close(p->out, m->at, m->at + HEAD, n, m->at + SEAL_HEAD);
    /* If the port is busy, nobody has seen this message, and another one may have its number. */
    rc = l->terms->ops->send(l->port, l->to[p->rank],
                             (struct fabric_bytes){m->at, HEAD + n, m->handle}, &m->op, err);
    if (rc != 0)
        return rc;
    list_pop(&l->idle);
    m->peer = p;
    p->number[kind]++;
    p->n_told = p->n_in;
    p->n_sending++;
    return 0;
}

int64_t rail_send(struct rail *l, int r, const void *data, size_t n_bytes, struct err *err)
{
    const size_t n = n_bytes < RAIL_PIECE ? n_bytes : RAIL_PIECE;
    struct peer *p;
    int rc = rail_use(l, r, &p, err);

    if (rc < 0)
        return rc;
    if (p->number[KIND_DATA] - p->n_acked >= MESH_WINDOW)
        return 0;
    rc = rail_post_out(l, p, KIND_DATA, data, n, err);
    return rc == FABRIC_BUSY ? 0 : rc < 0 ? rc : (int64_t)n;
}

int rail_has_failed(const struct rail *l, int r) { return l->peer[r] && l->peer[r]->has_failed; }

int rail_n_sending(const struct rail *l, int r) { return l->peer[r] ? l->peer[r]->n_sending : 0; }

/* Tell the peer what was read, if half a window was and no message has told it. */
static int rail_credit(struct rail *l, struct peer *p, struct err *err)
{
    int rc = 0;

    if (p->n_in - p->n_told >= MESH_WINDOW / 2)
        rc = rail_post_out(l, p, KIND_CREDIT, NULL, 0, err);
    l->n_owing += (rc == FABRIC_BUSY) - p->owes;
    p->owes = rc == FABRIC_BUSY;
    return rc < 0 && rc != ERR_PEER ? rc : 0; /* whoever sends to it, or waits, hears of the loss */
}

/* ---- receiving ---- */

static void rail_take_ack(struct peer *p, const uint8_t *head)
{
    const uint32_t more = (uint32_t)rail_get(head + 4, 4) - (uint32_t)p->n_acked;

    if (more <= p->number[KIND_DATA] - p->n_acked)
        p->n_acked += more;
}

/* Put a message that has opened into its row.  0: it is not needed.  One that was read before is
 * far ahead, because the difference has no sign. */
static int rail_keep(struct peer *p, struct message *m)
{
    const uint64_t number = rail_get(m->at + 8, 8);
    struct message **place = &p->row[number % MESH_WINDOW];

    if (m->at[2] != KIND_DATA || number - p->n_in >= MESH_WINDOW || *place)
        return 0;
    *place = m;
    return 1;
}

/* 1: the message of n bytes is of a rank of this formation, *out. */
static int rail_opens(struct rail *l, struct message *m, size_t n, struct peer **out)
{
    const int from = n < HEAD ? -1 : (int)rail_get(m->at, 2);
    struct err ignored;

    if (from < 0 || from >= l->terms->size || from == l->terms->rank || m->at[2] >= KINDS)
        return 0;
    if (rail_know(l, from, out, &ignored) < 0)
        return 0;
    m->n = n - HEAD;
    m->n_read = 0;
    return seal_open((*out)->in, m->at, m->at + HEAD, m->n, m->at + SEAL_HEAD);
}

static int rail_arrived(struct rail *l, struct message *m, const struct fabric_done *d,
                        struct err *err)
{
    struct peer *p;

    if (d->outcome == FABRIC_FAILED)
        return rail_replace_room(l, err) < 0 ? err->code : rail_post(l, err);
    if (d->outcome == FABRIC_CANCELED) {
        list_push(&l->unposted, m);
        return rail_post(l, err);
    }
    if (d->outcome == FABRIC_TOO_LONG || !rail_opens(l, m, d->n_bytes, &p)) {
        atomic_fetch_add(&l->n_strangers, 1);
    } else {
        if (rail_use(l, p->rank, &p, err) < 0)
            return err->code;
        rail_take_ack(p, m->at);
        if (rail_keep(p, m))
            return 0;
    }
    list_push(&l->unposted, m);
    return rail_post(l, err);
}

static void rail_left(struct rail *l, struct message *m, const struct fabric_done *d)
{
    m->peer->n_sending--;
    m->peer->has_failed |= d->outcome != FABRIC_DONE;
    m->peer = NULL;
    list_push(&l->idle, m);
}

int64_t rail_recv(struct rail *l, int r, void *to, size_t n_bytes, struct err *err)
{
    struct message **place, *m;
    struct peer *p;
    size_t n;

    if (rail_use(l, r, &p, err) < 0)
        return err->code;
    place = &p->row[p->n_in % MESH_WINDOW];
    m = *place;
    if (!m)
        return 0;
    n = m->n - m->n_read < n_bytes ? m->n - m->n_read : n_bytes;
    memcpy(to, m->at + HEAD + m->n_read, n);
    m->n_read += n;
    if (m->n_read < m->n)
        return (int64_t)n;
    *place = NULL;
    p->n_in++;
    list_push(&l->unposted, m);
    if (rail_post(l, err) < 0 || rail_credit(l, p, err) < 0)
        return err->code;
    return (int64_t)n;
}

/* ---- progress ---- */

static int rail_pay(struct rail *l, struct err *err)
{
    int rc = 0;

    for (int r = 0; r < l->terms->size && l->n_owing && rc == 0; r++)
        if (l->peer[r] && l->peer[r]->owes)
            rc = rail_credit(l, l->peer[r], err);
    return rc;
}

int rail_poll(struct rail *l, struct err *err)
{
    struct fabric_done done[16];
    const int n = l->terms->ops->poll(l->port, done, (int)ARRAY_LEN(done), err);
    int rc = n < 0 ? n : 0;

    for (int i = 0; i < n && rc == 0; i++) {
        struct message *m = container_of(done[i].op, struct message, op);

        if (m->peer)
            rail_left(l, m, &done[i]);
        else
            rc = rail_arrived(l, m, &done[i], err);
    }
    if (rc == 0 && l->unposted)
        rc = rail_post(l, err);
    if (rc == 0 && l->n_owing)
        rc = rail_pay(l, err);
    return rc < 0 ? rc : n;
}

void rail_sleep(struct rail *l, int fd, int timeout_ms)
{
    const struct timespec nap = {0, NAP_NS};
    int has_fd;
    struct pollfd p[] = {{l->terms->ops->sleep_on(l->port, &has_fd), POLLIN, 0},
                         {fd, POLLRDHUP, 0}};

    if (p[0].fd >= 0)
        (void)poll(p, ARRAY_LEN(p), timeout_ms);
    else if (!has_fd)
        nanosleep(&nap, NULL);
}

/* ---- life ---- */

int rail_new(const struct rail_terms *terms, const char *provider, const char *ip,
             enum coll_channel ch, struct rail **out, struct err *err)
{
    struct rail *l = xcalloc(1, sizeof *l);

    l->terms = terms;
    l->channel = ch;
    l->to = xcalloc((size_t)terms->size, sizeof *l->to);
    l->peer = xcalloc((size_t)terms->size, sizeof(struct peer *));
    if (terms->ops->open(provider, ip, MESSAGE, &l->port, err) < 0) {
        rail_free(l);
        return err->code;
    }
    *out = l;
    return 0;
}

void rail_free(struct rail *l)
{
    struct room *next;

    if (!l)
        return;
    if (l->port)
        l->terms->ops->close(l->port);
    for (int r = 0; r < l->terms->size; r++) {
        if (l->peer[r])
            seal_free(l->peer[r]->out), seal_free(l->peer[r]->in);
        free(l->peer[r]);
    }
    for (struct room *room = l->rooms; room; room = next) {
        next = room->next;
        free(room->bytes);
        free(room);
    }
    free(l->peer);
    free(l->to);
    free(l);
}

struct fabric_port *rail_port(const struct rail *l) { return l->port; }

int rail_add(struct rail *l, int r, const void *address, size_t len, struct err *err)
{
    return l->terms->ops->add(l->port, address, len, &l->to[r], err);
}

/* The first message of each rank needs room before the rank has its own. */
int rail_begin(struct rail *l, struct err *err)
{
    int rc = rail_make_room(l, OUT, &l->idle, err);

    if (rc == 0)
        rc = rail_make_room_in(l, err);
    return rc == 0 ? rail_post(l, err) : rc;
}

int64_t rail_n_strangers(struct rail *l) { return atomic_load(&l->n_strangers); }

/* tape - a table of recordings, one for each key.
 *
 * Each row also has the log of the recording's collectives (strategy/exchange.h), because a launch
 * runs these without a call to the exchange. */
#include "step/tape.h"

#include <stdlib.h>

#include "base/alloc.h"

struct tape {
    struct tape_key key;
    struct recording *recording; /* NULL: the work was queued once, and not recorded yet */
    struct exchange_log log;     /* the collectives of the work */
};

struct tapes {
    struct backend *backend;
    struct exchange *exchange;
    struct tape *tape; /* [n] */
    int n, at;         /* at: the tape of the newest tapes_begin */
    int is_recording;
    int64_t n_launches;
    int records;
};

struct tapes *tapes_new(struct backend *b, struct exchange *x, int records)
{
    struct tapes *t = xcalloc(1, sizeof *t);

    t->backend = b;
    t->exchange = x;
    t->records = records && backend_can_record(b);
    return t;
}

void tapes_clear(struct tapes *t)
{
    for (int i = 0; i < t->n; i++) {
        backend_recording_free(t->backend, t->tape[i].recording);
        exchange_log_fini(&t->tape[i].log);
    }
    t->n = 0;
}

void tapes_free(struct tapes *t)
{
    if (!t)
        return;
    tapes_clear(t);
    free(t->tape);
    free(t);
}

static int tape_is_same(const struct tape_key *a, const struct tape_key *b)
{
    return a->training == b->training && a->n_global == b->n_global && a->most == b->most &&
           a->least == b->least && a->micro == b->micro && a->first == b->first &&
           a->last == b->last && a->is_watched == b->is_watched && a->variant == b->variant;
}

/* The index of the tape with key k, or t->n if there is none yet. */
static int tape_find(const struct tapes *t, struct tape_key k)
{
    int i = 0;

    while (i < t->n && !tape_is_same(&t->tape[i].key, &k))
        i++;
    return i;
}

static void tape_add(struct tapes *t, struct tape_key key)
{
    t->tape = xrealloc(t->tape, sizeof *t->tape * (size_t)(t->n + 1));
    t->tape[t->n++] = (struct tape){.key = key};
}

/* Add the remedy to an error: work that the device or a library cannot record may still run kernel
 * by kernel. */
static int tape_wrap(int rc, struct err *err)
{
    return rc == ERR_DEVICE
               ? err_wrap(err, "recording a step (train.record: false does without, and is slower)")
               : rc;
}

int tapes_begin(struct tapes *t, struct tape_key key, struct err *err)
{
    int is_new;

    t->is_recording = 0;
    if (!t->records)
        return TAPE_QUEUE;
    t->at = tape_find(t, key);
    is_new = t->at == t->n;
    if (is_new)
        tape_add(t, key);
    if (t->tape[t->at].recording)
        return TAPE_RECORDED;
    if (!is_new && backend_record_begin(t->backend, err) < 0)
        return tape_wrap(err->code, err);
    t->is_recording = !is_new;
    exchange_keep(t->exchange, &t->tape[t->at].log);
    return TAPE_QUEUE;
}

static int end_recording(struct tapes *t, int rc, struct err *err)
{
    struct err second;

    if (rc == 0)
        rc = backend_record_end(t->backend, &t->tape[t->at].recording, err);
    else
        (void)backend_record_end(t->backend, NULL, &second);
    return tape_wrap(rc, err);
}

static int tape_launch(struct tapes *t, struct err *err)
{
    t->n_launches++;
    return backend_launch(t->backend, t->tape[t->at].recording, err);
}

int tapes_end(struct tapes *t, int rc, struct err *err)
{
    if (t->records)
        exchange_keep(t->exchange, NULL);
    if (!t->is_recording)
        return rc;
    rc = end_recording(t, rc, err);
    return rc < 0 ? rc : tape_launch(t, err);
}

int tapes_repeat(struct tapes *t, struct err *err)
{
    exchange_repeat(t->exchange, &t->tape[t->at].log);
    return tape_launch(t, err);
}

int64_t tapes_launches(const struct tapes *t) { return t->n_launches; }

#include "train/tape.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

struct tape {
    struct tape_key key;
    struct recording *recording; /* NULL: it was done once */
};

struct tapes {
    struct backend *backend;
    struct tape *tape;
    int n;
    int64_t n_launches;
    int records;
};

struct tapes *tapes_new(struct backend *b, int records)
{
    struct tapes *t = xcalloc(1, sizeof *t);

    t->backend = b;
    t->records = records && backend_can_record(b);
    return t;
}

void tapes_free(struct tapes *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        backend_recording_free(t->backend, t->tape[i].recording);
    free(t->tape);
    free(t);
}

static int is_same(const struct tape_key *a, const struct tape_key *b)
{
    return a->training == b->training && a->n_global == b->n_global && a->most == b->most &&
           a->least == b->least && a->first == b->first && a->last == b->last;
}

static struct tape *find(const struct tapes *t, struct tape_key k)
{
    for (int i = 0; i < t->n; i++)
        if (is_same(&t->tape[i].key, &k))
            return &t->tape[i];
    return NULL;
}

static void add(struct tapes *t, struct tape_key key)
{
    t->tape = xrealloc(t->tape, sizeof *t->tape * (size_t)(t->n + 1));
    t->tape[t->n++] = (struct tape){.key = key};
}

static int do_record(struct tapes *t, struct tape *tape, int (*queue)(void *arg, struct err *err),
                     void *arg, struct err *err)
{
    struct err second;
    int rc = backend_record_begin(t->backend, err);

    if (rc < 0)
        return rc;
    rc = queue(arg, err);
    if (rc == 0)
        return backend_record_end(t->backend, &tape->recording, err);
    (void)backend_record_end(t->backend, NULL, &second);
    return rc;
}

/* What the device or a library will not have recorded may work all the same, one by one. */
static int record(struct tapes *t, struct tape *tape, int (*queue)(void *arg, struct err *err),
                  void *arg, struct err *err)
{
    const int rc = do_record(t, tape, queue, arg, err);

    return rc == ERR_DEVICE
               ? err_wrap(err, "recording a step (train.record: false does without, and is slower)")
               : rc;
}

int tapes_run(struct tapes *t, struct tape_key key, int (*queue)(void *arg, struct err *err),
              void *arg, struct err *err)
{
    struct tape *tape;
    int rc = 0;

    if (!t->records)
        return queue(arg, err);
    tape = find(t, key);
    if (!tape) {
        add(t, key);
        return queue(arg, err);
    }
    if (!tape->recording)
        rc = record(t, tape, queue, arg, err);
    if (rc < 0)
        return rc;
    t->n_launches++;
    return backend_launch(t->backend, tape->recording, err);
}

int64_t tapes_launches(const struct tapes *t) { return t->n_launches; }

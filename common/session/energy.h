/* energy - the joules of a run: the sum of what the counters of its machines and GPUs went on while
 * its ranks read them.
 *
 * Several ranks may read one counter: those of one machine read the same packages.  A counter is
 * known by a key, and of the ranks that read it one is its teller, whose differences count.  If the
 * teller falls silent, another rank of the counter becomes the teller and adds what has gone by
 * since.  So each joule counts once, but for a heartbeat's time where the teller changes.
 *
 * Only differences count, and a counter that has become lower begins anew.  The joules
 * that a lost rank told stay in the sum.  Before a rank's first heartbeat nothing counts.
 *
 * Life:    energy_init -> energy_heard ... -> energy_fini.
 * Threads: one at a time; pure. */
#ifndef SESSION_ENERGY_H
#define SESSION_ENERGY_H

#include "session/usage.h"

struct energy_sums {
    int64_t mj[ENERGY_KINDS]; /* 0: no counter has gone on yet */
};

struct energy_meter { /* one counter */
    uint64_t key;
    int64_t teller; /* energy_reader.id; 0: none yet */
    int64_t at_ns;  /* when the teller told it last */
};

struct energy_reader { /* a rank, while it is connected; begins as zeros */
    int64_t id;        /* from 1; 0: nothing was heard of it */
    struct {
        int meter;       /* index of its counter */
        int is_known;    /* 1: from_mj is set */
        int64_t from_mj; /* the counter, up to which all is in the sum, */
        int64_t seen_ns; /* or was when the teller told it last at this time */
        int64_t told_mj; /* what this rank has added to the sum */
    } of[ENERGY_KINDS];
};

struct energy {
    struct energy_sums sums;                  /* of the whole run */
    struct energy_meter *meter[ENERGY_KINDS]; /* [n_meters], [most] */
    int n_meters[ENERGY_KINDS], most;
    int64_t patience_ns; /* a teller that is silent for longer is replaced */
    int64_t n_readers;
};

/* most: how many ranks may read counters at the same time.  past: of the run's drivers before. */
void energy_init(struct energy *e, const struct energy_sums *past, int most, int64_t patience_ns);
void energy_fini(struct energy *e);

/* The rank's counter with this key stands at `mj`; 0: the rank does not know. */
void energy_heard(struct energy *e, struct energy_reader *r, enum energy_kind kind, uint64_t key,
                  int64_t mj, int64_t now_ns);

int energy_has(const struct energy *e, enum energy_kind kind, uint64_t key); /* 1: it has told */

const char *energy_key(enum energy_kind kind);    /* "package" */
int energy_is_known(const struct energy_sums *s); /* 1: a counter of some kind has told something */
double energy_joules(const struct energy_sums *s, enum energy_kind kind);

/* a - b, of each kind, at least 0. */
struct energy_sums energy_since(const struct energy_sums *a, const struct energy_sums *b);

#endif

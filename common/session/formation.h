/* formation - the machine of the driver's session that makes ranks train together: it forms them,
 * counts their answers, and goes on when ranks are lost, leave or join.
 *
 *   driver_form.c     prepare, form: which follower trains as which rank
 *   driver_recover.c  lost ranks: waiting, replacing, fewer ranks; leaving and joining in order
 *   driver_drain.c    ranks, spares and hosts that the operator wants back
 *
 * A function that takes `struct formation *` may write it, and one that takes `const struct driver
 * *` only looks.
 *
 * Threads: as driver.h. */
#ifndef SESSION_FORMATION_H
#define SESSION_FORMATION_H

#include "session/decision.h"
#include "session/driver.h"
#include "session/seat.h"

struct driver;

struct recovery {       /* driver_recover.c: from a loss to the next completed step */
    int64_t since_ns;   /* when it began; 0: no recovery is under way */
    struct cause cause; /* of the first loss */
    const char *source; /* of the state, until `recovered` has said it: "followers" ...; or NULL */
    enum stage resume;  /* the stage to begin once formed: train, validate or checkpoint */
    int64_t wait_until_ms; /* STAGE_WAIT: the end of the wait for a replacement */
    int64_t settled_ms;    /* STAGE_WAIT: more losses may come until then ... */
    int64_t latest_ms;     /* ... and settled_ms is never later than this */
    int is_wait_said;      /* 1: the log says that the job waits */
    int is_orderly;        /* STAGE_WAIT: 1: no replacement is needed, as ranks left in order */
    int64_t newest_step;   /* the newest step at which a rank was seen */
    int is_noted;          /* 1: all ranks were looked at for that in this recovery */
    int is_midstep;        /* 1: a step was under way */
    int64_t steps_lost;
    int64_t suspect_from; /* from this step on sums may mix different steps; -1: none */
    int n_fruitless;      /* recoveries since the last completed step */
    int *n_fruitless_at;  /* [n_seats] the same, by the rank at fault */
};

struct formation {          /* the ranks that train together */
    const struct driver *d; /* the whole, to look at */
    struct seat *seats;     /* [n_seats] */
    int64_t generation;
    int64_t since_ns;  /* when Prepare was sent */
    int64_t formed_ms; /* when all ranks held the state */
    int has_formed;    /* 1: ranks have formed at least once in this job */
    int n_answers;     /* ranks that have answered this stage's command */
    int is_pausing;    /* 1: the operator wants the ranks to wait in STAGE_WAIT */
    int is_pause_said; /* 1: they do, and the event is out */
    int first_answer;  /* the rank whose answer came first */
    struct recovery recovery;
};

/* driver_form.c */
void form_saw(struct formation *f, int64_t generation); /* a rank has seen it: go on from there */
void form_ask(struct formation *f);                     /* a stage begins: no rank has answered */
void form_answer(struct formation *f, int rank, struct report *r); /* takes r */
void form_say_joined(struct formation *f);
void form_begin(struct formation *f); /* the next generation, of all ranks */
void form_send_prepare(const struct driver *d);
struct decision form_compare_libraries(const struct driver *d);
struct cmd *form_command(struct formation *f);              /* Form, from the ranks' answers */
struct decision form_compare_steps(const struct driver *d); /* all must hold the same step */
void form_say(const struct driver *d);                      /* the event */
void form_done(struct formation *f);                        /* all ranks hold the state */
const char *form_address(const struct driver *d, int rank); /* for the other ranks to reach it */

/* driver_recover.c */
int recover_is_possible(const struct driver *d, int rank);      /* without this rank */
int recover_may(const struct driver *d, const struct cause *c); /* 1: the cause need not end it */
int recover_is_fruitless(struct formation *f, const struct cause *c); /* counts it */
void recover_note(struct formation *f, const struct cause *c);        /* the first one, and where */
/* A rank is lost: note the newest step of all ranks.  While the others wait, many more may be lost,
 * and the ranks are looked at once: from then on recover_moved notes each that tells of a step. */
void recover_note_progress(struct formation *f);
void recover_moved(struct formation *f, int rank);
void recover_settle(struct formation *f); /* wait until no more losses come */
/* For a driver that was the standby: the ranks of the last formation that have not come were lost
 * together with the driver before.  Logs them; the cause, whose text is for free(). */
struct cause recover_absent(const struct driver *d);
void recover_suspect(struct formation *f, int64_t step); /* sums from there on may be wrong */
void recover_resume_training(struct formation *f);
/* STAGE_WAIT begins or goes on.  is_orderly: the ranks left in order, or were about to. */
void recover_wait(struct formation *f, int is_orderly);
struct decision recover_choose(struct formation *f); /* STAGE_WAIT: form, wait, or give up */
void recover_taken_over(struct formation *f, int64_t newest, const char *source);
void recover_renumber(struct formation *f, const int *was); /* rank k was rank was[k] */
void recover_formed(struct formation *f);
void recover_done(struct formation *f); /* a step or a whole stage is done: the recovery is over */
void recover_say_lost(const struct driver *d, int rank, int64_t pid, int64_t step, const char *why);
int64_t recover_deadline(const struct driver *d);  /* STAGE_WAIT */
int recover_wants_regroup(const struct driver *d); /* a rank leaves, or one may join */
void recover_ask_regroup(const struct driver *d);  /* in training: at the next step */
void recover_fini(struct formation *f);
int recover_n_wanted(const struct driver *d); /* ranks that the next formation should have */
int recover_min_ranks(const struct driver *d);
int recover_n_ready(const struct driver *d);                                  /* of all seats */
void recover_leave(struct formation *f, int rank, char *why, int is_drained); /* takes why */

/* driver_live.c */
int pause_is_on(const struct driver *d); /* 1: the ranks are to wait, unless the job stops */
int pause_holds(struct formation *f);    /* the same in STAGE_WAIT, and then it is told */

/* driver_drain.c */
struct meant { /* the seats that the operator means; seat is for free() */
    int *seat; /* [n] */
    int n;
};
int drain_find(const struct driver *d, const char *who, struct meant *out, struct err *err);
void drain_tell(const struct driver *d, const struct meant *m, struct drained *out);
/* Tell the seat's follower.  why: "was drained", as the reason of its loss.  1: it leaves when the
 * others do not need it; 0: it may go at once. */
int drain_seat(struct formation *f, int seat, const char *why);
void drain_tell_wrong(const struct driver *d, int seat); /* its bits were wrong, and it stays */
void drain_take_back(struct formation *f);               /* if too few would be left now */

#endif

/* standby_impl - the state of a standby's session, and what the files standby*.c share of it.
 *
 *   standby.c        the driver's messages, and the search for a driver that was lost
 *   standby_votes.c  the followers that come when the driver is lost, and the count of their votes
 *   standby_send.c   the messages to the driver and to followers
 *
 * Only these files include this header.
 *
 * Threads: as standby.h. */
#ifndef SESSION_STANDBY_IMPL_H
#define SESSION_STANDBY_IMPL_H

#include "session/convert.h"
#include "session/queue.h"
#include "session/standby.h"

/* The standby adds this to the driver's term when it leads.  A driver that is started again adds 1
 * to the term in its run directory, which the standby may not see.  So the two never have the same
 * term. */
enum { TERMS = 1000 };

enum { DRIVER = 0 }; /* the number of the connection with the driver */

enum stage {
    STAGE_SEEK,   /* there is no connection with a driver; the caller looks for one */
    STAGE_HELLO,  /* waits for Welcome */
    STAGE_JOINED, /* the driver lives */
    STAGE_OVER
};

struct held { /* a follower that lost the driver */
    int64_t conn;
    struct voters form;     /* the newest formation whose Form it has */
    struct voters prepared; /* the formation that it was told to prepare last */
    int form_rank, rank;    /* its ranks in `form` and in `prepared` */
    int64_t entered;        /* generation of the newest formation whose state it took */
};

struct caller { /* a follower that the log has named */
    struct hash128 machine;
    int64_t pid, pid_space;
};

struct standby {
    struct standby_options o; /* its texts are ours */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ns, now_ms;

    enum stage stage;
    int64_t beat_ms, timeout_ms;
    int64_t heard_ms, next_beat_ms;
    int64_t until_ms; /* the end of the search for a lost driver; INT64_MAX: none was lost */
    char *why;        /* how the driver was lost */
    char *said;       /* why the last driver that was found is of no use; NULL: none was */

    struct blob job;
    char *run, *leads_at, *device;
    char job_hash[HASH_TEXT_LEN];
    int64_t term, driver_timeout_ms;
    int n_ranks;
    int is_able;                 /* 1: this process could lead the job */
    struct account_past account; /* as the driver told it last ... */
    int64_t account_ns;          /* ... at this time; 0: it did not */
    struct energy_sums energy;   /* likewise */
    struct voters newest;        /* the newest formation that the driver or a follower has named */
    int64_t formed; /* generation of the newest that all its ranks entered, as the driver says */
    struct held *held;
    int n_held, cap_held;
    struct caller *told; /* the followers that the log has named since the driver was lost */
    int n_told, cap_told;
};

/* standby.c: asserts that the move is legal. */
void standby_set_stage(struct standby *s, enum stage stage);

/* standby_send.c */
struct frame *standby_hello(const struct standby *s, int64_t term);
void standby_beat(struct standby *s); /* to the driver */
void standby_acknowledge(struct standby *s, const Wire__Voters *v);
void standby_goodbye(struct standby *s, char *text); /* the driver takes the vote back */
void standby_refuse(struct standby *s, int64_t conn, Wire__Reason reason, const char *text);

/* standby_votes.c */
void standby_note_formation(struct standby *s, const struct voters *v); /* if it is the newest */
/* Lead, if the driver is lost and the followers that wait let this standby lead. */
void standby_count(struct standby *s);
/* A message of a follower: its Hello, which is held or refused. */
void standby_follower(struct standby *s, int64_t conn, const Wire__Control *m);
void standby_forget_follower(struct standby *s, int64_t conn);
void standby_send_back(struct standby *s, const char *why); /* all followers that wait */

#endif

/* ranks - a whole job in one process: each rank is a thread with its trainer, and the ranks talk
 * over coll/local. */
#ifndef TESTS_TRAIN_RANKS_H
#define TESTS_TRAIN_RANKS_H

#include "../coll/local.h"
#include "train/trainer.h"

enum { MOST_RANKS = 5, MOST_STEPS = 512, MOST_EPOCHS = 8, MOST_ROWS = 64, MOST_FOUND = 8 };

enum { MOST_LIVES = 65536 };

/* Under TSan some tests run one in so many of the rows of their tables (meson.build): whether this
 * is such a row. */
#ifndef ONE_ROW_IN
#define ONE_ROW_IN 1
#endif
static inline int is_run(int row) { return row % ONE_ROW_IN == 0; }

/* The ranks form again after a failure: the last rank anew, as one that has just come, the others
 * with the state that they hold. */
struct run_lives {
    int64_t n_back; /* given: rank 1 counts this many steps less than it has made */
    /* Given, or NULL: called on each rank that keeps its state, before they form again. */
    void (*change)(struct trainer *t, int rank);
    struct coll_fault fault; /* given: on the last rank, when they form again */
    int64_t n;               /* trained parameters */
    float before[MOST_RANKS][MOST_LIVES], after[MOST_RANKS][MOST_LIVES];
    int64_t step[MOST_RANKS];        /* once formed again */
    size_t bucket_bytes[MOST_RANKS]; /* likewise */
};

struct run_plan {
    const char *job; /* YAML */
    int n_ranks;
    int64_t n_epochs;            /* how many more to train */
    const char *run_dir;         /* rank 0 saves there at the end; NULL: nowhere */
    int resume;                  /* from run_dir */
    int64_t stop_at;             /* the last rank asks to stop while it computes this step; 0: no */
    int64_t save_at;             /* the last rank asks for a checkpoint, likewise */
    int saves_epochs;            /* 1: validate and save between two epochs, too */
    struct coll_fault fault;     /* on the last rank */
    struct coll_fault own_fault; /* on rank 0 */
    const struct plugin *plugin; /* its GPU 0 computes; NULL: the CPU */
    const struct strategy_ops *strategy; /* NULL: the all-reduce */
    const char *inject;                  /* faults on purpose (inject/inject.h); NULL: none */
    size_t bucket_bytes, bucket_choice;  /* as trainer_options */
    size_t window_bytes;                 /* as trainer_options */
    int64_t keep_bytes;                  /* as trainer_options */
    int n_threads;                       /* of each rank; 0: 1 */
    int last_threads;                    /* of the last rank; 0: as the others */
    /* Called on rank 0 as a step begins; or NULL. */
    void (*on_step)(void *arg, struct trainer *t, int64_t step);
    void *arg;
    struct run_lives *lives; /* filled in, if not NULL, after a failure of all ranks */
};

struct run_result {     /* of rank 0, unless a field says otherwise */
    int rc[MOST_RANKS]; /* of each rank: 0, or the first error's code */
    struct err err[MOST_RANKS];
    int64_t step[MOST_RANKS];           /* done at the end */
    struct hash128 replica[MOST_RANKS]; /* after the last epoch */
    struct hash128 held[MOST_RANKS];    /* at the end, of those that failed once formed */

    double step_loss[MOST_STEPS]; /* mean loss of each step, all ranks; from the first step held */
    int64_t step_samples[MOST_STEPS];
    uint64_t allocs[MOST_STEPS]; /* alloc_count() at each step's begin */
    int reports[MOST_STEPS];     /* step reports made until then */
    int64_t n_steps;
    struct report epoch[MOST_EPOCHS];            /* scalars only: pointers are NULL */
    char note[512];                              /* of any rank, when an epoch ended non-finite */
    struct metrics_row row[MOST_ROWS];           /* the first ones told */
    int n_rows;                                  /* all that were told */
    double validation_loss, validation_accuracy; /* all ranks, after the last epoch */
    double best_score;                           /* train.best's first, after that validation */
    int64_t n_validated;
    struct { /* of each rank */
        struct ring_head head;
        struct collective newest[RING_LEN]; /* oldest first */
        int n_newest, n_timed;              /* n_timed: steps whose time was reported */
        int64_t wall_ns, busy_ns;           /* ... in sum */
    } ring[MOST_RANKS];
    int n_shown[2];     /* how often rank 0 was shown in backward at buckets 0 and 1 */
    char warning[2048]; /* all warnings, one after another */
    char injected[512]; /* the texts of the faults that happened, of all ranks */
    int64_t share[MOST_RANKS], n_rebalanced; /* the newest shares told, and how often */
    int n_cut;                               /* how often buckets were told, and the newest: */
    int64_t cut_step, cut_bytes;
    int n_buckets;
    struct found { /* wrong bits, in the order in which rank 0 told them */
        int64_t step;
        int rank, share, is_proven, is_healed, ends, leaves;
        enum corruption what;
        char tensor[64];
    } found[MOST_FOUND];
    int n_found;
    int64_t saved[MOST_STEPS]; /* steps of the checkpoints written beside training, in order */
    int n_saved;
    char unsaved[512]; /* why checkpoints beside training failed, one text after another */
};

void run_job(const struct run_plan *plan, struct run_result *r);

struct hash128 run_state_hash(struct trainer *t); /* of what a trainer holds now */

/* Hooks that free reports and do nothing else; a test sets those that it needs. */
struct trainer_hooks run_idle_hooks(void *arg);

/* run_job, failing the test if any rank fails or replicas differ. */
void run_job_ok(const struct run_plan *plan, struct run_result *r);

#endif

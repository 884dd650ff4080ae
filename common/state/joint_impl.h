/* joint_impl - what joint.c and joint_tasks.c share.  joint.c has the engine's side of a checkpoint
 * that all ranks write together; joint_tasks.c has what the thread does.
 *
 * Threads: a struct save belongs to the thread while a task is queued; otherwise to the engine. */
#ifndef STATE_JOINT_IMPL_H
#define STATE_JOINT_IMPL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ckpt/draft.h"
#include "state/joint.h"
#include "state/part.h"

enum phase_of_save { PREPARING, WRITING, PASSING, CHECKING };

struct save {
    struct joint *joint;
    enum phase_of_save phase;
    int rank, size;
    struct contents contents;
    struct part *part; /* [n_parts]: rank 0: of all ranks; another rank: its own */
    int n_parts;
    char *bytes; /* the copy of the own part; NULL: there was no memory, as err says */
    atomic_int is_given_up;
    double exposed_s; /* time in which rank 0's engine copied and took windows */

    /* The thread's. */
    char folder[PATH_MAX]; /* of the draft */
    struct draft *draft;
    int rc; /* 0, DRAFT_UNSEEN, DRAFT_DAMAGED, or the failure that err tells */
    struct err err;
    int n_damaged;      /* drafts of which the disk gave back other bytes */
    uint8_t *has_erred; /* [size] on rank 0: 1: so it was with the rank's part */

    /* Passing.  unseen [size]: 1: the rank does not see the disk.  On rank 0: */
    uint8_t *unseen;
    int from;       /* the rank whose part is being passed */
    int64_t passed; /* bytes of it; on another rank: of its own part */
    char *window;
    size_t n_window;
};

struct joint {
    void *arg;
    int (*canceled)(void *arg);
    struct joint_options o;
    struct writer *thread; /* NULL until joint_open */
    struct save *save;     /* NULL: none is under way */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_tasks; /* queued or running; guarded by lock */
};

/* The tasks of the thread, one for each phase: rank 0 makes the files; a rank writes its part; rank
 * 0 writes a window of another rank's part; rank 0 reads all parts back. */
void joint_prepare(struct save *v);
void joint_write_part(struct save *v);
void joint_write_window(struct save *v);
void joint_check(struct save *v);

/* The last task of a checkpoint frees it.  joint_drop: of one that failed or was given up, and of
 * every checkpoint on a rank that is not rank 0.  joint_place: of rank 0's that was checked. */
void joint_drop(struct save *v);
void joint_place(struct save *v);

void joint_free_save(struct save *v);

#endif

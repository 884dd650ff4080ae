/* state - what training changes, and what all ranks hold alike: parameters, optimizer, statistics,
 * and where the run stands.
 *
 * Life:    state_new (memory from the backend) -> init, load or broadcast -> ... -> state_free.
 * Threads: the engine's, but for snapshot_save. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "coll/coll.h"
#include "config/job.h"
#include "program/layout.h"
#include "session/command.h"

struct state {
    struct backend *backend;
    const struct layout *layout;
    float *param;         /* [n_total], as all below in the backend's memory */
    float *momentum;      /* [n_trained], NULL when the optimizer has none */
    float *stats;         /* [n_state_total]: running statistics */
    float *scaler;        /* [SCALER_LEN], behind them; NULL when the loss is not scaled */
    void *copy;           /* [n_total] of copy_dtype: derived from param by update_refresh, so
                             neither hashed nor saved nor broadcast; NULL when that is F32 */
    struct ckpt_state at; /* host memory */
};

int state_new(struct backend *b, const struct layout *l, int has_momentum, struct state **out,
              struct err *err);
void state_free(struct state *s); /* NULL is fine */

/* The job's model.init. */
int state_init(struct state *s, const struct job *job, struct err *err);

/* Elements of the statistics, and of the loss scale behind them. */
int64_t state_n_stats(const struct layout *l);

/* All ranks take source's.  A rank on which this fails holds what it held before. */
int state_broadcast(struct state *s, struct coll *c, int source, struct err *err);

/* All ranks take rank 0's running statistics. */
int state_share_stats(struct state *s, struct coll *c, struct err *err);

/* One hash a tensor (parameters, momentum, statistics, by name), and in *all that of everything,
 * position included.  *out has state_n_hashes() rows, heap, names too. */
int state_n_hashes(const struct state *s);
int state_hash(const struct state *s, struct tensor_hash **out, struct hash128 *all,
               struct err *err);

/* snapshot - a copy of a state in host memory, out of which another thread writes a checkpoint
 * while training goes on.  All its memory is taken by snapshot_new, as large as the state; a
 * backend fills it by its copy_out.  One thread at a time: take and save must not overlap. */
struct snapshot;

int snapshot_new(const struct state *s, struct snapshot **out, struct err *err);
void snapshot_free(struct snapshot *p); /* NULL is fine */

/* The state as it is now, for a checkpoint of n_ranks ranks.  Allocates nothing. */
int snapshot_take(struct snapshot *p, const struct state *s, int n_ranks, struct err *err);

/* Write it as a generation under run_dir, keeping `keep`; *path as ckpt_save. */
int snapshot_save(const struct snapshot *p, const char *run_dir, int keep, char **path,
                  struct err *err);

/* Take everything from an open generation.  A tensor missing, too many, or misshapen is named. */
int state_load(struct state *s, const struct ckpt *c, struct err *err);

#endif

/* command - what the control plane tells an engine, and what an engine reports back.
 *
 * Every rank, the driver's own rank 0 included, has one engine that obeys these commands in order
 * and answers each with the report of the same stage, or with REPORT_FAULT.  The session machines
 * make commands and digest reports; they never see an engine.  Both are plain heap objects that
 * pass through a mailbox: ownership goes with them.
 *
 *   CMD_OPEN      build graph, open data, load state on rank 0     -> REPORT_OPENED
 *   CMD_PREPARE   generation, rank, size: programs, endpoints      -> REPORT_PREPARED, step held
 *   CMD_FORM      all endpoints, or ids: connect, broadcast state  -> REPORT_FORMED
 *   CMD_TRAIN     one epoch, from the step held                    -> REPORT_STEP ..., REPORT_EPOCH
 *   CMD_VALIDATE  this rank's share of the validation set          -> REPORT_VALIDATED
 *   CMD_CHECKPOINT  rank 0 writes, the others do nothing           -> REPORT_CHECKPOINT
 *                 answered when the state is copied; with is_last when it is on disk
 *   CMD_STOP      leave everything, release all                    -> REPORT_STOPPED
 *
 * Beside the queue an engine has two calls that any thread may make at any time (train/engine.h):
 * engine_request (stop, checkpoint or regroup, agreed through the control vector) and engine_abort.
 * After an abort the engine holds its last applied step, and a CMD_PREPARE of a later generation
 * may be posted at once, whether or not what ran has ended yet.  CMD_TRAIN of an epoch whose last
 * step is held already reports that epoch again. */
#ifndef SESSION_COMMAND_H
#define SESSION_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mailbox.h"
#include "inject/inject.h"
#include "session/ring.h"

enum cmd_kind {
    CMD_OPEN = 1,
    CMD_PREPARE,
    CMD_FORM,
    CMD_TRAIN,
    CMD_VALIDATE,
    CMD_CHECKPOINT,
    CMD_STOP,
};

struct blob { /* bytes owned by the command or report that holds it */
    uint8_t *data;
    size_t len;
};

struct cmd {
    struct mail mail; /* first: a mailbox carries it */
    enum cmd_kind kind;
    int64_t generation; /* of which formation, from 1; 0 before the first */
    union {
        struct { /* CMD_OPEN: all there is to know before ranks agree */
            int rank, n_ranks;
            struct blob job; /* resolved job file (YAML), as the driver's Welcome carries it */
            char *data_dir;  /* replaces data.path when not NULL (a follower's --data) */
            char *resume;    /* rank 0: run directory to resume from, else NULL */
            char *inject;    /* faults on purpose until it has opened (inject/inject.h); NULL */
        } open;
        struct {                /* CMD_PREPARE */
            int rank, n_ranks;  /* of this generation */
            int n_local, local; /* ranks on this host, and which of them this is, from 0 */
            char *address;      /* address to advertise to the other ranks, numeric */
            char *inject;       /* faults on purpose from here on, instead of those before; NULL */
        } prepare;
        struct {                   /* CMD_FORM */
            int n_endpoints;       /* the ranks' number, or 0 with ids */
            struct blob *endpoint; /* [n_endpoints], by rank */
            struct blob ids;       /* rank 0's (.len 0: none), MSG_ID bytes each */
            int source;            /* rank whose state all take: the newest step */
        } form;
        struct {           /* CMD_TRAIN: to the end of the epoch, unless all agree to stop before */
            int64_t epoch; /* from 1 */
        } train;
        struct { /* CMD_VALIDATE */
            int64_t epoch;
        } validate;
        struct {          /* CMD_CHECKPOINT */
            int64_t step; /* applied step that every rank holds */
            int is_last;  /* of the job, or before a stop: rank 0 answers when it is written */
        } checkpoint;
    };
};

enum report_kind {
    REPORT_OPENED = 1,
    REPORT_PREPARED,
    REPORT_FORMED,
    REPORT_STEP,
    REPORT_EPOCH,
    REPORT_VALIDATED,
    REPORT_CHECKPOINT,
    REPORT_STOPPED,
    REPORT_FAULT,
    REPORT_WARNING, /* job goes on: a torn checkpoint skipped, a step skipped */
    REPORT_INJECT,  /* a fault on purpose is due: waits for engine_injected */
};

/* Where an engine is; travels in heartbeats and in faults. */
enum phase {
    PHASE_IDLE,
    PHASE_OPEN,
    PHASE_PREPARE,
    PHASE_FORM,
    PHASE_LOAD,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_REDUCE,
    PHASE_UPDATE,
    PHASE_VALIDATE,
    PHASE_CHECKPOINT,
    PHASE_STEP, /* a device's, which does not say whether it computes or waits in a collective */
    PHASE_COUNT
};

static inline int phase_is_step(enum phase p) /* of training */
{
    return (p >= PHASE_LOAD && p <= PHASE_UPDATE) || p == PHASE_STEP;
}

/* What stands between a phase and the number of its step: "load of step 7", but "step 7". */
static inline const char *phase_of(enum phase p) { return p == PHASE_STEP ? "" : " of step"; }

/* Waiting for other ranks, as far as is known. */
static inline int phase_is_collective(enum phase p) { return p == PHASE_REDUCE || p == PHASE_STEP; }

const char *phase_name(enum phase p);     /* "backward"; "?" for a number that is none */
const char *cmd_name(enum cmd_kind kind); /* "train" */

/* A tensor of the layout, or its content: what two ranks compare. */
struct tensor_hash {
    char *name; /* "conv1.weight" */
    struct hash128 hash;
};

enum epoch_end {
    EPOCH_WHOLE = 1, /* all its steps are done */
    EPOCH_STOPPED,   /* all ranks agreed to stop here (a request) */
    EPOCH_MAX_STEPS, /* train.max_steps is reached */
    EPOCH_NONFINITE, /* train.on_nonfinite is stop; report.fault-like text in `note` */
    EPOCH_REGROUP,   /* all ranks agreed to form again here (a request) */
};

const char *epoch_end_name(enum epoch_end end); /* "whole", "stopped", ... */

struct report {
    struct mail mail;
    enum report_kind kind;
    int64_t generation;
    union {
        struct {                        /* REPORT_OPENED */
            struct hash128 layout;      /* of all below in `tensor`, order included */
            struct tensor_hash *tensor; /* [n_tensors] name, and hash of dtype, shape, place */
            int n_tensors;
            int64_t n_train, n_validation; /* samples */
            struct hash128 data;           /* fingerprint of both sets */
            int64_t step;                  /* applied step held: 0, or what was resumed */
            int64_t n_parameters;          /* elements */
            int64_t steps_per_epoch;
        } opened;
        struct { /* REPORT_PREPARED */
            struct blob endpoint;
            struct blob ids; /* rank 0, where ranks connect by ids; else .len 0 */
            char *library;   /* "nccl 2.28.9": must be equal on all ranks; NULL: not said */
            int64_t step;    /* applied step held */
        } prepared;
        struct {          /* REPORT_FORMED */
            int64_t step; /* applied step that all ranks now hold */
        } formed;
        struct {                 /* REPORT_STEP: merged, a few a second, for the progress line */
            int64_t epoch, step; /* steps applied so far in the whole job */
            double loss;         /* mean training loss of the epoch so far, all ranks */
            double samples_per_second;
            int32_t first;     /* 1: the first step of this process is done */
            int32_t is_formed; /* 1: ... of this formation */
            double rss_mib;
        } step;
        struct { /* REPORT_EPOCH */
            int64_t epoch, step;
            enum epoch_end end;
            double train_loss, train_accuracy; /* of all ranks' samples in this epoch */
            int64_t n_samples;
            double train_seconds, samples_per_second;
            double step_ms_median, comm_exposed_ms_median;
            struct hash128 replica;     /* of all in `tensor` */
            struct tensor_hash *tensor; /* [n_tensors] content: parameters, optimizer, state */
            int n_tensors;
            double rss_mib, peak_rss_mib;
            int64_t n_skipped; /* steps skipped as non-finite in this epoch */
            double loss_scale; /* with precision float16, at its end; else 0; not from followers */
            char *note;        /* why, when end is EPOCH_NONFINITE; else NULL */
        } epoch;
        struct { /* REPORT_VALIDATED: sums over this rank's share */
            int64_t epoch;
            double loss_sum;
            int64_t n_correct, n_samples;
            int64_t n_nonfinite; /* samples whose loss is not finite: left out of loss_sum */
        } validated;
        struct { /* REPORT_CHECKPOINT */
            int64_t step;
            double seconds;         /* from the copy of the state to the last fsync */
            double exposed_seconds; /* training stood still for it */
            char *path;  /* of the generation written; NULL: of ranks other than 0, and when it is
                            being written still, or was already: what becomes of it is reported
                            unasked */
            char *error; /* why it could not be written, else NULL; the job goes on */
            int is_unasked; /* no answer to CMD_CHECKPOINT; from rank 0, at any time */
        } checkpoint;
        struct { /* REPORT_FAULT: this engine cannot go on; waits for CMD_PREPARE or CMD_STOP */
            struct err err;
            enum phase phase;
            int64_t step;
            int is_consequence; /* 1: a collective was aborted or a peer left: not a first cause */
            int is_gpu_lost;    /* 1: its GPU is of no use to this process any more; not sent */
        } fault;
        struct { /* REPORT_WARNING */
            char *text;
            int64_t step;
        } warning;
        struct { /* REPORT_INJECT */
            struct injection fault;
            char *text; /* what happens */
            enum phase phase;
            int64_t step;
        } inject;
    };
};

const char *report_name(enum report_kind kind); /* "formed" */

struct cmd *cmd_new(enum cmd_kind kind, int64_t generation);
void cmd_free(struct cmd *c); /* and all it owns */
struct report *report_new(enum report_kind kind, int64_t generation);
void report_free(struct report *r);
void report_drop_tensors(struct report *r); /* REPORT_OPENED, REPORT_EPOCH: their hash stays */

struct blob blob_of(const void *data, size_t len); /* a copy */

/* What an engine is doing now; filled from atomics, may be a moment old. */
struct progress {
    int64_t generation, epoch, step; /* step: the one being computed */
    enum phase phase;
    int64_t bucket;   /* being filled by backward, or waited for; -1 none */
    int64_t since_ns; /* clock_mono_ns when this phase began */
    struct ring_head head;
    /* Sums over the training steps of this process: their number, how long they took, and how much
     * of that the engine did not wait in collectives. */
    int64_t n_steps, wall_ns, busy_ns;
};

#endif

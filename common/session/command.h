/* command - the commands to an engine, and the reports from it.
 *
 * Every rank, the driver's own rank 0 included, has one engine (train/engine.h).  The engine obeys
 * commands in order and answers each with the report that CMD_LIST names, or with REPORT_FAULT. The
 * session machines make commands and read reports; they never see an engine.  Commands and reports
 * are heap objects that pass through a mailbox, and their ownership goes with them.
 *
 *   CMD_OPEN      build graph, open data, load state on rank 0
 *   CMD_PREPARE   generation, rank, size: programs, endpoints
 *   CMD_FORM      all endpoints, or ids: connect, broadcast state
 *   CMD_TRAIN     one epoch, from the step held; REPORT_STEP comes a few times a second
 *   CMD_VALIDATE  this rank's part of the validation set
 *   CMD_CHECKPOINT  rank 0 writes, or all ranks if the state is divided; answered when the state is
 *                 copied, with is_last when it is on disk
 *   CMD_STOP      end; with `saves` rank 0 writes the state that it holds; free everything
 *
 * In addition to commands there are two calls that any thread may make at any time
 * (train/engine.h): engine_request (stop, checkpoint or regroup, agreed through the control vector)
 * and engine_abort. After an abort the engine holds its last applied step, and a CMD_PREPARE of a
 * later generation may be posted at once, whether or not the aborted command has ended yet.  A
 * CMD_TRAIN of an epoch whose last step is held already reports that epoch again.
 *
 * Members that travel in a message have a row in wire/fields.h, which packs, unpacks and frees
 * them; other members that own memory are freed in command.c.
 *
 * Threads: one at a time for each object: the one that holds it. */
#ifndef SESSION_COMMAND_H
#define SESSION_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mailbox.h"
#include "base/spans.h"
#include "inject/inject.h"
#include "session/figures.h"
#include "session/ring.h"
#include "session/usage.h"
#include "wire/copy.h"

/* Requests that any rank may make.  Through the control vector all ranks act on a request at the
 * same step. */
enum engine_request {
    ENGINE_REQUEST_STOP = 1,
    ENGINE_REQUEST_CHECKPOINT = 2,
    ENGINE_REQUEST_REGROUP = 4, /* end training here, to form anew; forgotten at CMD_PREPARE */
    /* Begin what the strategy begins when all ranks are ready.  A step makes this request, as the
     * strategy says. */
    ENGINE_REQUEST_ROUND = 8,
    /* This rank's last update left parameters as they were (op/update.c), and train.on_nonfinite is
     * stop: the step counts as one whose loss is not finite. */
    ENGINE_REQUEST_REFUSE = 16,
};

/* The commands that all ranks of a formation obey together, each a stage of the job: KIND, name,
 * the KIND of the report that answers it, and the key of cluster.deadlines that bounds it. */
#define STAGE_LIST(X)                          \
    X(PREPARE, prepare, PREPARED, prepare)     \
    X(FORM, form, FORMED, form)                \
    X(TRAIN, train, EPOCH, step)               \
    X(VALIDATE, validate, VALIDATED, validate) \
    X(CHECKPOINT, checkpoint, CHECKPOINT, checkpoint)

#define CMD_LIST(X)              \
    X(OPEN, open, OPENED, ready) \
    STAGE_LIST(X)                \
    X(STOP, stop, STOPPED, none)

#define REPORT_LIST(X)        \
    X(OPENED, opened)         \
    X(PREPARED, prepared)     \
    X(FORMED, formed)         \
    X(STEP, step)             \
    X(ROW, row)               \
    X(HASHES, hashes)         \
    X(REBALANCE, rebalance)   \
    X(BUCKETS, buckets)       \
    X(CORRUPTION, corruption) \
    X(SPIKE, spike)           \
    X(EPOCH, epoch)           \
    X(VALIDATED, validated)   \
    X(CHECKPOINT, checkpoint) \
    X(STOPPED, stopped)       \
    X(FAULT, fault)           \
    X(WARNING, warning)       \
    X(INJECT, inject)         \
    X(SPANS, spans)

/* Kinds count from 1, so that a zeroed object has none. */
enum cmd_number {
#define X(KIND, name, ANSWER, deadline) CMD_##KIND##_NUMBER,
    CMD_LIST(X)
#undef X
};
enum cmd_kind {
#define X(KIND, name, ANSWER, deadline) CMD_##KIND = CMD_##KIND##_NUMBER + 1,
    CMD_LIST(X)
#undef X
};
enum report_number {
#define X(KIND, name) REPORT_##KIND##_NUMBER,
    REPORT_LIST(X)
#undef X
};
enum report_kind {
#define X(KIND, name) REPORT_##KIND = REPORT_##KIND##_NUMBER + 1,
    REPORT_LIST(X)
#undef X
};

struct cmd {
    struct mail mail; /* first: a mailbox carries it */
    enum cmd_kind kind;
    int64_t generation; /* number of the formation, from 1; 0 before the first */
    union {
        struct { /* CMD_OPEN: everything that an engine must know to open the job */
            int rank, n_ranks;
            struct blob job; /* job_pack's bytes (job/imported.h), as the driver's Welcome carries
                                them */
            char *data_dir;  /* replaces data.path when not NULL (a follower's --data) */
            char *resume;    /* rank 0: run directory to resume from, else NULL */
            char *inject;    /* faults on purpose until REPORT_OPENED (inject/inject.h); or NULL */
            char *evaluate;  /* rank 0: the folder of a run or of a checkpoint whose weights are
                                evaluated, and nothing is trained; else NULL */
            int averaged;    /* with evaluate: use the averaged weights, not the trained ones */
            char *predict;   /* rank 0, with evaluate: the file for the logits; else NULL */
            int predicts;    /* every rank: rank 0 has that file, so samples for validation may lack
                                labels */
        } open;
        struct {                /* CMD_PREPARE */
            int rank, n_ranks;  /* of this generation */
            int n_local, local; /* number of ranks on this host, index of this one, from 0 */
            int n_container;    /* those of them in this rank's container, this one included;
                                   0: not said */
            char *address;      /* address to advertise to the other ranks, numeric */
            char *inject;       /* faults on purpose from here on, replacing the earlier; or NULL */
            char *standby;      /* id of the standby that votes (session/voters.h), or NULL */
        } prepare;
        struct {                   /* CMD_FORM */
            int n_endpoints;       /* number of ranks; 0 with ids */
            struct blob *endpoint; /* [n_endpoints], by rank */
            struct blob ids;       /* rank 0's (.len 0: none), MSG_ID bytes each */
            int source;            /* rank whose state all take: it holds the newest step */
        } form;
        struct {           /* CMD_TRAIN: to the end of the epoch, unless all agree to stop before */
            int64_t epoch; /* from 1 */
            double live_lr; /* from live_step on in the place of optimizer.lr; 0: none */
            int64_t live_step;
        } train;
        struct { /* CMD_VALIDATE */
            int64_t epoch;
            int predicts; /* the logits of all samples go to rank 0, which writes them */
            int judges;   /* they do if rank 0 can judge them (judge/judge.h) */
        } validate;
        struct {          /* CMD_CHECKPOINT */
            int64_t step; /* done by every rank: the step that all hold */
            int is_last;  /* of the job, or before a stop: rank 0 answers when it is written */
        } checkpoint;
        struct {       /* CMD_STOP */
            int saves; /* the job fails: what rank 0 holds goes to disk, unless it is there */
        } stop;
    };
};

/* The work that an engine is doing.  Phases travel in heartbeats and in faults, with the numbers of
 * proto/control.proto.  PHASE_STEP is for devices, where it is not known whether the device
 * computes or waits in a collective. */
#define PHASE_LIST(X)         \
    X(IDLE, idle)             \
    X(OPEN, open)             \
    X(PREPARE, prepare)       \
    X(FORM, form)             \
    X(LOAD, load)             \
    X(FORWARD, forward)       \
    X(BACKWARD, backward)     \
    X(REDUCE, reduce)         \
    X(UPDATE, update)         \
    X(VALIDATE, validate)     \
    X(CHECKPOINT, checkpoint) \
    X(STEP, step)

enum phase {
#define X(PHASE, name) PHASE_##PHASE,
    PHASE_LIST(X)
#undef X
        PHASE_COUNT
};

/* A phase of a training step. */
static inline int phase_is_step(enum phase p)
{
    return (p >= PHASE_LOAD && p <= PHASE_UPDATE) || p == PHASE_STEP;
}

/* The words between a phase and the number of its step: "load of step 7", but "step 7". */
static inline const char *phase_of(enum phase p) { return p == PHASE_STEP ? "" : " of step"; }

/* The rank waits for other ranks in this phase, as far as is known. */
static inline int phase_is_collective(enum phase p) { return p == PHASE_REDUCE || p == PHASE_STEP; }

/* "backward", "train", "formed"; "?" for a number that is none. */
const char *phase_name(enum phase p);
const char *cmd_name(enum cmd_kind kind);
const char *report_name(enum report_kind kind);

enum report_kind cmd_answer(enum cmd_kind kind);     /* the report that answers the command */
enum cmd_kind report_answers(enum report_kind kind); /* the command it answers; 0: none */

/* The things of a rank whose bits may be found wrong.  Events have the words. */
#define CORRUPTION_LIST(X) \
    X(STATE, state)        \
    X(UPDATE, update)      \
    X(GRADIENT, gradient)  \
    X(BATCH, batch)        \
    X(CHECKPOINT, checkpoint)

enum corruption {
#define X(WHAT, name) CORRUPTION_##WHAT,
    CORRUPTION_LIST(X)
#undef X
        CORRUPTION_COUNT
};

const char *corruption_name(enum corruption what); /* "state", ... */

/* Tensors that two ranks compare: by shape (opened), or by content (epoch). */
struct tensor_hash {
    char *name; /* "conv1.weight" */
    struct hash128 hash;
};

/* The ways in which an epoch ends.  Numbers as in proto/control.proto.
 *   WHOLE      all its steps are done
 *   STOPPED    all ranks agreed to stop here (a request)
 *   MAX_STEPS  train.max_steps is reached
 *   NONFINITE  train.on_nonfinite is stop; `note` says what was seen
 *   REGROUP    all ranks agreed to form again here (a request) */
#define EPOCH_END_LIST(X)   \
    X(WHOLE, whole)         \
    X(STOPPED, stopped)     \
    X(MAX_STEPS, max_steps) \
    X(NONFINITE, nonfinite) \
    X(REGROUP, regroup)

enum epoch_end_number {
#define X(END, name) EPOCH_##END##_NUMBER,
    EPOCH_END_LIST(X)
#undef X
};
enum epoch_end {
#define X(END, name) EPOCH_##END = EPOCH_##END##_NUMBER + 1,
    EPOCH_END_LIST(X)
#undef X
};

const char *epoch_end_name(enum epoch_end end); /* "whole", "stopped", ... */

/* A row of metrics.csv, about the steps since the row before. */
struct metrics_row {
    int64_t step, epoch;       /* steps done so far; the epoch that the last one belongs to */
    double loss;               /* mean over the targets of these steps; NAN: none was applied */
    double learning_rate;      /* of the last step */
    double grad_norm;          /* likewise, before clipping; NAN: not known */
    double samples_per_second; /* of the steps that this process made; NAN: none */
};

/* A row of hashes.csv, about one step. */
struct hashes_row {
    int64_t step;     /* steps done, this one included */
    uint64_t state;   /* the hash of the state after it (state/digest.h) */
    uint64_t samples; /* of the numbers of the global batch's samples, in their order */
    double loss;      /* of this step alone; NAN: it was not applied */
    int has_state;    /* 0: the ranks' weights differ after this step, so it has no such hash */
};

struct span_name {
    char text[SPANS_NAME];
};

struct spans_piece {        /* of what a rank recorded for a timeline (base/spans.h) */
    int64_t number;         /* of the record; 0: report.trace asked for it */
    int64_t first, last;    /* the steps of the record */
    int is_last;            /* no piece of the record follows */
    int is_cut;             /* there was not enough room for all spans */
    int is_launched;        /* kernels are only launched in their spans: the rank is on a device */
    struct span_name *name; /* [n_names], of the whole record; the first piece has them */
    int n_names;
    struct trace_span *span; /* [n] */
    int n;
};

struct spike_told { /* a step whose loss was far above those before (train.on_spike) */
    int64_t step;   /* from 0 */
    double loss, mean, deviation; /* of the step; of those before */
    const char *action;           /* the value of train.on_spike; a constant */
    int64_t back_to; /* all ranks went back to the state of so many steps; -1: they did not */
};

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
            int64_t step;                  /* rank 0: the step held: 0, or the resumed one */
            int64_t n_parameters;          /* elements */
            int64_t steps_per_epoch;
            int is_regression; /* rank 0: 1: outputs are no classes, so there is no accuracy; not
                                  sent */
            int stops_early;   /* rank 0: train.early_stop ended the run at this step; not sent */
            char *fields;      /* rank 0: a line for each field that an imported network reads, for
                                  --check; NULL: none; not sent */
        } opened;
        struct { /* REPORT_PREPARED */
            struct blob endpoint;
            struct blob ids; /* rank 0, where ranks connect by ids; else .len 0 */
            char *library;   /* "nccl 2.28.9": must be equal on all ranks; NULL: not said */
            int64_t step;    /* the step held */
        } prepared;
        struct {                 /* REPORT_FORMED */
            int64_t step;        /* the step that all ranks now hold */
            int from_checkpoint; /* rank 0: 1: the ranks' newest state was not whole, so it loaded
                                    the newest checkpoint for all; not sent */
        } formed;
        struct {                 /* REPORT_STEP: merged, a few a second, for the progress line */
            int64_t epoch, step; /* step: steps done so far in the whole job */
            double loss;         /* mean training loss of the epoch so far, all ranks */
            double samples_per_second;
            double data_wait_share; /* of the epoch so far, rank 0's */
            int data_wait_cause;    /* enum wait_cause */
            int32_t first;          /* 1: the first step of this process is done */
            double rss_mib;
        } step;
        struct metrics_row
            row; /* REPORT_ROW: rank 0's alone, not sent; may be the last one again */
        struct hashes_row hashes; /* REPORT_HASHES: likewise */
        struct { /* REPORT_REBALANCE: rank 0's alone, not sent: ranks' shares from this step on */
            int64_t step;
            int n_ranks;
            double *share; /* [n_ranks]: samples of a full global batch */
        } rebalance;
        struct { /* REPORT_BUCKETS: rank 0's alone, not sent: buckets of gradients, from this step
                  * on
                  */
            int64_t step,
                bucket_bytes; /* what each bucket holds at least, but the first and last */
            int n_buckets;
        } buckets;
        struct spike_told spike; /* REPORT_SPIKE: rank 0's alone, not sent */
        struct {           /* REPORT_CORRUPTION: rank 0's alone, not sent: a rank has wrong bits */
            int64_t step;  /* steps done so far */
            int rank;      /* the rank at fault, or one of those of which one is */
            int is_proven; /* 1: it is at fault, by the votes of most ranks */
            enum corruption what; /* what is wrong */
            int share;            /* the rank whose share of the batch was computed; -1: none */
            int is_healed;        /* 1: the wrong bits were replaced by right ones */
            int ends;             /* 1: the job cannot go on with this state */
            int leaves;           /* 1: the rank is to go, like one that is drained */
            char *tensor;         /* the first one that differs, or NULL */
        } corruption;
        struct { /* REPORT_EPOCH */
            int64_t epoch, step;
            enum epoch_end end;
            EPOCH_FIGURES(FIGURE_MEMBER) /* those of OF_RANK_0 are rank 0's alone, not sent */
            int data_wait_cause;         /* enum wait_cause */
            struct hash128 replica;      /* of all in `tensor` */
            struct tensor_hash *tensor;  /* [n_tensors] content: parameters, optimizer, state */
            int n_tensors;
            double rss_mib, peak_rss_mib;
            int is_mean;     /* 1: the ranks' replicas differed, and all took their mean */
            char *note;      /* why, when end is EPOCH_NONFINITE; else NULL */
            int is_of_input; /* note: samples or a setting are to blame, so no rate mends it */
        } epoch;
        struct { /* REPORT_VALIDATED: sums over this rank's part */
            int64_t epoch;
            double loss_sum;
            int64_t n_correct, n_samples;
            int64_t n_targets;       /* predictions that were judged: samples or tokens */
            int64_t n_nonfinite;     /* targets whose loss is not finite: left out of loss_sum */
            double average_loss_sum; /* the same with the averaged weights (train.average); or 0 */
            int64_t average_n_correct, average_n_nonfinite;
            double weight; /* of the targets (METRIC_WEIGHT), by which the loss divides */
            char *note; /* the first time that a loss is not finite: the sample to blame, or NULL */
            int64_t n_top5, average_n_top5; /* targets among the five largest logits */
            int has_average;                /* rank 0: there are averaged weights; not sent */
            int has_top5;                   /* rank 0: n_top5 counts; not sent */
            /* Rank 0's, of an evaluation; not sent. */
            int is_unlabelled; /* 1: the samples have no labels, so loss and accuracy mean nothing
                                */
            char *figures;     /* what it tells beside them (judge/judge.h), as JSON; or NULL */
            /* The decisions of all ranks (state/loop.h); taken from rank 0, not sent. */
            int is_best, is_kept; /* this step's is the best checkpoint; it is one of the best */
            int stops_early;      /* by train.early_stop */
        } validated;
        struct { /* REPORT_CHECKPOINT */
            int64_t step;
            /* The rest is rank 0's. */
            double seconds;         /* from the copy of the state to the last fsync */
            double exposed_seconds; /* how long training stood still for it */
            char *path;     /* of the generation written; NULL: it is still being written, or was
                               written before; a report with is_unasked has the outcome */
            char *error;    /* why it could not be written, else NULL; the job goes on */
            int is_gone;    /* with error: the run directory is not there any more */
            int is_unasked; /* 1: this is no answer to CMD_CHECKPOINT, and may come at any time */
        } checkpoint;
        struct { /* REPORT_FAULT: the engine cannot go on; it waits for CMD_PREPARE or CMD_STOP */
            struct err err;
            enum phase phase;
            int64_t step;
            int is_consequence; /* 1: a collective was aborted or a peer left: not a first cause */
            int is_gpu_lost;    /* 1: this process cannot use its GPU any more; not sent */
        } fault;
        struct { /* REPORT_WARNING: the job goes on: a torn checkpoint or a step was skipped */
            char *text;
            int64_t step;
        } warning;
        struct { /* REPORT_INJECT: a fault on purpose is due; waits for engine_injected */
            struct injection fault; /* of a follower only .text is known */
            char *text;             /* what happens */
            enum phase phase;
            int64_t step;
        } inject;
        struct spans_piece spans; /* REPORT_SPANS: may come at any time */
    };
};

struct cmd *cmd_new(enum cmd_kind kind, int64_t generation);
void cmd_free(struct cmd *c); /* with all it owns; NULL is fine */
struct report *report_new(enum report_kind kind, int64_t generation);
void report_free(struct report *r);
void spans_piece_fini(struct spans_piece *p); /* frees what it owns */
void report_drop_tensors(struct report *r);   /* REPORT_OPENED, REPORT_EPOCH: the hash stays */

/* The progress of an engine.  It is read from atomics, so it may be a moment old. */
struct progress {
    int64_t generation, epoch, step; /* step: the one being computed */
    enum phase phase;
    int64_t bucket;   /* the bucket that backward fills, or for which the rank waits; -1: none */
    int64_t since_ns; /* clock_mono_ns when this phase began */
    struct ring_head head;
    /* Sums over the training steps of this process: their number, their time, and their time
     * without waits in collectives. */
    int64_t n_steps, wall_ns, busy_ns;
    int unlinked;        /* 1 + a rank with which this one has no link yet; 0: none is missing */
    int64_t n_strangers; /* connections in this formation that proved to be of no rank */
    struct usage usage;  /* of the process; the daemon sets it, not the engine */
};

#endif

/* job - what to train and how: the job file, resolved.
 *
 * A job file is YAML (so JSON too).  Every option is one row: its key, type, unit, default, range,
 * help.  Reading, checks, --help-job and job.yaml all follow from the row.  The rows of the fixed
 * sections stand in job/rows.c; an architecture, a data format, an optimizer, a schedule or a
 * strategy brings its own rows and a struct of its own, which the section's `kind` and `options`
 * point to. An option that the job file leaves out has its default; only model.arch and data.format
 * have none.
 *
 * Compatibility: a job.yaml written by an older version stays readable.  So a key that was released
 * keeps its type and meaning.  A key that goes out of use is still read.  The default of a new key
 * means what was done before the key existed.
 *
 * Life:    job_load / job_parse -> read its fields -> job_free.  A job owns all that it
 *          points to, and is not changed after it was made (but see job_use_data).
 * Threads: any may read.
 * Errors:  ERR_CONFIG, as FILE:LINE:COLUMN: key: seen, wanted, remedy.  ERR_IO for reading. */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "config/cluster.h"
#include "config/read.h"
#include "config/words.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "strategy/strategy.h"

#define NONFINITE_LIST(X) X(NONFINITE_STOP, "stop") X(NONFINITE_SKIP, "skip")
#define SPIKE_LIST(X) \
    X(SPIKE_NONE, "none") X(SPIKE_WARN, "warn") X(SPIKE_SKIP, "skip") X(SPIKE_REWIND, "rewind")
#define RECOMPUTE_LIST(X)               \
    X(RECOMPUTE_NONE, "none")           \
    X(RECOMPUTE_SELECTIVE, "selective") \
    X(RECOMPUTE_BLOCKS, "blocks")
#define GRAD_DTYPE_LIST(X) X(GRAD_FLOAT32, "float32") X(GRAD_BFLOAT16, "bfloat16")
#define PRECISION_LIST(X)             \
    X(PRECISION_FLOAT32, "float32")   \
    X(PRECISION_BFLOAT16, "bfloat16") \
    X(PRECISION_FLOAT16, "float16")

enum nonfinite { NONFINITE_LIST(WORD_VALUE) };
enum spike { SPIKE_LIST(WORD_VALUE) };
enum recompute { RECOMPUTE_LIST(WORD_VALUE) };
enum grad_dtype { GRAD_DTYPE_LIST(WORD_VALUE) };
enum precision { PRECISION_LIST(WORD_VALUE) };

enum {
    JOB_MOST_TRACED = 1000,   /* steps of a timeline */
    JOB_MAX_CPU_RANKS = 4096, /* so many can be joined by coll/tcp.h */
    JOB_MAX_RANKS = 65536,    /* so many sum the control vector exactly (op/control.h) */
    JOB_MAX_BYTES = READ_MAX_BYTES,
};

struct job_best {
    enum goal goal; /* GOAL_NONE: off */
    int64_t keep;   /* so many checkpoints beside the newest; 1 to CKPT_MOST_BEST */
};

struct job_early_stop {
    int64_t patience; /* validations; 0: off */
    double min_delta;
    enum goal goal; /* not GOAL_NONE */
};

#define AVERAGE_LIST(X) X(AVERAGE_NONE, "none") X(AVERAGE_EMA, "ema") X(AVERAGE_SWA, "swa")

enum average_name { AVERAGE_LIST(WORD_VALUE) };

struct job_average {
    enum average_name name;     /* AVERAGE_NONE: off */
    double decay;               /* AVERAGE_EMA: how much of the average stays at each update */
    int64_t every;              /* updates; 0: AVERAGE_EMA each, AVERAGE_SWA one an epoch */
    double start;               /* AVERAGE_SWA: epochs; below 1: this part of the job's steps */
    int64_t statistics_samples; /* AVERAGE_SWA: of the pass for running statistics; 0: all */
};

/* Of train.bucket_bytes. */
enum {
    BUCKETS_AUTO = -1,         /* the word auto: measured in the first steps (train/buckets.h) */
    BUCKETS_DEFAULT = 4 << 20, /* small models are summed in two pieces (a collective costs some
                                  hundred microseconds on TCP), and the sums of large ones overlap
                                  with backward */
};

struct job_train {
    int64_t global_batch; /* samples per step, over all ranks and micro-batches */
    int64_t epochs;
    int64_t seed;
    int64_t accumulate; /* micro-batches per step */
    enum recompute recompute;
    int64_t max_steps;      /* 0: no limit */
    int64_t stop_after;     /* stop as if by a signal after this step; 0: not */
    int64_t validate_every; /* epochs; 0: never */
    struct job_best best;
    struct job_early_stop early_stop;
    struct job_average average;
    double clip_norm; /* 0: off */
    int64_t overfit;  /* train and validate with so many samples alone; 0: with all */
    int drop_last;    /* leave out an epoch's last, partial batch */
    enum nonfinite on_nonfinite;
    enum spike on_spike;
    double spike_deviations;    /* a loss so many above the mean of the last steps is a spike */
    double audit;               /* the part of the steps whose gradients two ranks compute */
    double replica_check;       /* the part of the steps after which replicas are compared */
    enum grad_dtype grad_dtype; /* what ranks sum; GRAD_BFLOAT16 with that precision alone */
    int64_t bucket_bytes;       /* a bucket of gradients is closed once it holds so much; or
                                   BUCKETS_AUTO */
    int tf32;                   /* float32 products may round their factors to TF32 */
    int record;                 /* a GPU's steps are recorded and launched, not queued one by one */
    int autotune;               /* time a GPU library's algorithms and take the fastest */
    int plan_cache;             /* keep the chosen algorithms on disk */
    int64_t max_workspace;      /* of one call of a GPU library, MiB */
};

struct job_loss_scale { /* PRECISION_FLOAT16; powers of two, so that scaling is exact */
    double initial;
    double min;
    int64_t window;     /* steps without overflow after which the scale doubles */
    int64_t hysteresis; /* overflows that it takes to halve it */
};

struct job_checkpoint {
    int64_t every_epochs; /* 0: not by epochs */
    int64_t every_steps;  /* 0: not by steps */
    int64_t keep;         /* generations kept, >= 1 */
    int64_t hashes;       /* a row of hashes.csv after so many steps; 0: none */
};

struct job_report {
    int64_t every_steps;        /* a row of metrics.csv after so many steps; 0: none */
    double price_per_rank_hour; /* 0: not known */
    struct option_ints trace;   /* the first and the last step of a timeline; .n 0: none */
    int64_t gradients;          /* the step whose gradients are written; 0: none */
    int64_t operators;          /* the step whose operators' tensors are listed; 0: none */
    int64_t tensor;             /* the one of these whose numbers are written; 0: none */
    int tensorboard;            /* write files for TensorBoard (see/board.h) */
    const char *exec; /* a command that hears events and rows (driver/exec.h); NULL: none */
};

struct job {
    struct arena arena; /* owns the strings */
    const char *name;   /* letters, digits, '.', '_', '-': fit for a file name */
    struct model_options model;
    struct data_options data;
    struct job_train train;
    struct optimizer_options optimizer;
    struct schedule_options schedule;
    struct strategy_options strategy;
    enum precision precision;
    struct job_loss_scale loss_scale;
    struct job_checkpoint checkpoint;
    struct job_report report;
    struct cluster_options cluster;
};

/* Read the job file `path`, then apply the `n_sets` overrides, each "key=value" as given to --set
 * (the value as it is, no quotes: "name=a b", "model.hidden=64,32", "data.validation=" for none;
 * the last one of a key wins), fill in defaults and check everything.  Relative paths are relative
 * to the job file's folder, in an override to the current one.  path NULL: the built-in demo job.
 * *out is for job_free().
 *
 * Where an override changes a choice (schedule.name), keys in the file that only the other choice
 * has (schedule.gamma) are dropped; otherwise a key that its choice does not have is an error. */
int job_load(const char *path, const char *const *sets, size_t n_sets, struct job **out,
             struct err *err);

struct buf;
struct reader;

/* Job files of another form (deepspeed/deepspeed.h).
 *
 * is    1: this file is of the form
 * read  give the reader what the file says; each note is a line of *notes
 * The others are arguments of `read`: the number of the job's ranks, and where notes go. */
struct job_form {
    int (*is)(const char *path, const char *text, size_t len);
    int (*read)(struct reader *r, const char *text, size_t len, int64_t n_ranks, struct buf *notes,
                struct err *err);
    int64_t n_ranks;
    struct buf *notes;
};

/* The same for a file of our form or of this one, which may be NULL. */
int job_load_form(const struct job_form *form, const char *path, const char *const *sets,
                  size_t n_sets, struct job **out, struct err *err);

/* The same as job_load from `len` bytes of text, which may be anything.
 *
 * origin    names the text in messages, such as a file name or "the driver's job".
 * base_dir  what relative paths are relative to, absolute; NULL: relative paths are refused. */
int job_parse(const char *text, size_t len, const char *origin, const char *base_dir,
              struct job **out, struct err *err);

/* The field of the option `key` ("data.path"), whichever entry brings it; NULL if there is no such
 * option, or not with the job's choices. */
const void *job_field(const struct job *job, const char *key);

void job_free(struct job *job); /* NULL is fine */

/* The follower's --data: read the data from `dir`.  No effect where data.format reads no files. */
int job_use_data(struct job *job, const char *dir, struct err *err);

/* The request of a job to the reader of its data.  It borrows from the job. */
struct dataset_request job_request(const struct job *job, enum dataset_purpose purpose);

/* Prepares the data (data/dataset.h), puts numbers in the place of data.normalize: auto and
 * data.targets: {normalize: auto}, measured on the training set (data/image.h, data/moments.h), and
 * sets data.scheme.  The driver does this before the job begins, so all ranks and job.yaml have the
 * same numbers.  keeps_nothing: as in dataset_request. */
int job_measure(struct job *job, int keeps_nothing, struct err *err);

/* Notes the names of the training data's classes in data.class_names, if the data have names and
 * the job has none.  At most NAMES_MOST of them; more are only logged. */
int job_note_names(struct job *job, struct err *err);

/* The same with the numbers and the names that `run` has, the job of a run that goes on; if it has
 * none, nothing is done. */
int job_take_measured(struct job *job, const struct job *run, struct err *err);

/* Checks the options that depend on the number of ranks, and those that this build cannot do on a
 * backend of this name ("cpu", "cuda"): ERR_CONFIG, ERR_UNSUPPORTED. */
int job_check_supported(const struct job *job, int64_t n_ranks, const char *backend,
                        struct err *err);

/* The key of an eps of the optimizer that is 0, and its default in *usual; NULL: there is none. */
const char *job_zero_eps(const struct job *job, const char **usual);

/* Call `warn` for each setting that is allowed, but goes wrong in most jobs of n_steps steps. */
void job_doubt(const struct job *job, int64_t n_steps, void (*warn)(void *arg, const char *text),
               void *arg);

/* Can the links between ranks be as cluster.encrypt wants?  has_secret: the daemons share one.
 * ERR_CONFIG, with the remedy. */
int job_check_encrypt(const struct job *job, const char *backend, int has_secret, struct err *err);

/* ERR_UNSUPPORTED if a backend of this name ("cpu", "cuda") does not compute in job's precision. */
int job_check_backend(const struct job *job, const char *backend, struct err *err);

/* Append the resolved job as YAML; job_parse() makes the same job of it. */
void job_write(const struct job *job, struct buf *out);

/* Show `see` each key of job.yaml, a constant text, with its value as job.yaml has it. */
void job_each(const struct job *job, void (*see)(void *arg, const char *key, const char *value),
              void *arg);

/* The same with those that a resumed run cannot change. */
void job_each_fixed(const struct job *job,
                    void (*see)(void *arg, const char *key, const char *value), void *arg);

/* Append job's `section` ("strategy") in one line: "{name: local_sgd, every: 4}".  Options that
 * have their default are left out, except for the name of an entry. */
void job_write_section(const struct job *job, const char *section, struct buf *out);

/* May a run of the job `old` go on as `now`?  ERR_REFUSED names the first key that differs but must
 * not, with both values. */
int job_compare_for_resume(const struct job *old, const struct job *now, struct err *err);

/* --help-job: every option, or those about `word`, for a terminal.  Fails with ERR_ARG if there are
 * none: the message names the key that is most like the word. */
int job_help(const char *word, FILE *f, struct err *err);

#endif

/* job - what to train and how: the job file, resolved.
 *
 * A job file is YAML (so JSON too).  Every option is one row of config/table.c: its key, type,
 * unit, default, range, help.  Parsing, checks, --help-job, job.yaml and the docs all follow from
 * it. What a job file leaves out has its default; only model.arch and data.format have none.
 *
 * Compatibility: a job.yaml written by an older version stays readable.  So a key, once released,
 * keeps its type and meaning, one that goes out of use is still read, and a new one has a default
 * that means what was done before it existed.
 *
 * Life:    job_load / job_parse / job_demo -> read its fields -> job_free.  A job owns all that it
 *          points to, and is not changed after it was made (but see job_use_data).
 * Threads: any may read.
 * Errors:  ERR_CONFIG, as FILE:LINE:COLUMN: key: seen, wanted, remedy.  ERR_IO for reading. */
#ifndef CONFIG_JOB_H
#define CONFIG_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum model_arch { MODEL_MLP, MODEL_LENET, MODEL_LENET5 };
enum init_name { INIT_PYTORCH, INIT_NORMAL, INIT_FILE };
enum job_activation {
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH
};
enum loss { LOSS_CROSS_ENTROPY, LOSS_MSE };
enum data_format { DATA_MNIST, DATA_DIGITS };
enum nonfinite { NONFINITE_STOP, NONFINITE_SKIP };
enum optimizer_name { OPTIMIZER_SGD };
enum schedule_name { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE, SCHEDULE_LINEAR };
enum precision { PRECISION_FLOAT32, PRECISION_BFLOAT16, PRECISION_FLOAT16 };
enum grad_dtype { GRAD_FLOAT32, GRAD_BFLOAT16 };

enum {
    JOB_MAX_HIDDEN = 16,       /* hidden layers of an mlp */
    JOB_MAX_RANKS = 65536,     /* what cluster.* may ask for */
    JOB_MAX_CPU_RANKS = 256,   /* that can all-reduce over Gloo (coll/gloo.h) */
    JOB_MAX_BYTES = 256 << 10, /* of a job file */
};

struct job_model {
    enum model_arch arch;
    struct {
        enum init_name name;
        double std;       /* INIT_NORMAL: of the weights; biases are 0 */
        const char *path; /* INIT_FILE: a safetensors file, absolute; else NULL */
    } init;
    int sync_batch_norm; /* statistics over all ranks */
    int n_hidden;        /* MODEL_MLP: 0 means linear */
    int64_t hidden[JOB_MAX_HIDDEN];
    enum job_activation activation;
    double dropout; /* probability, [0, 1) */
    int batch_norm;
    enum loss loss;
};

struct job_data {
    enum data_format format;
    const char *path;           /* DATA_MNIST: a folder, absolute; else NULL */
    const char *train;          /* DATA_MNIST: prefix of the training files, "train" */
    const char *validation;     /* DATA_MNIST: that of the validation files; NULL: no validation */
    int64_t samples;            /* DATA_DIGITS: how many are drawn */
    int64_t validation_samples; /* DATA_DIGITS: 0: no validation */
};

struct job_train {
    int64_t global_batch; /* samples per step, over all ranks and micro-batches */
    int64_t epochs;
    int64_t seed;
    int64_t accumulate;     /* micro-batches per step */
    int64_t max_steps;      /* 0: no limit */
    int64_t validate_every; /* epochs; 0: never */
    double clip_norm;       /* 0: off */
    double label_smoothing; /* [0, 1) */
    int drop_last;          /* leave out an epoch's last, partial batch */
    enum nonfinite on_nonfinite;
    enum grad_dtype grad_dtype; /* what ranks sum; GRAD_BFLOAT16 with that precision alone */
    int tf32;                   /* float32 products may round their factors to TF32 */
    int record;                 /* a GPU's steps are recorded and launched, not queued one by one */
    int autotune;               /* of a GPU library's algorithms the fastest, by timing */
    int plan_cache;             /* what was chosen is kept on disk */
    int64_t max_workspace;      /* of one call of a GPU library, MiB */
};

struct job_optimizer {
    enum optimizer_name name;
    double lr;
    double momentum;
    double dampening;
    double weight_decay;
    int nesterov;
    int scale_lr_by_ranks; /* Horovod's rule: the rate is lr * ranks */
};

struct job_schedule {
    enum schedule_name name;
    int64_t warmup_steps; /* the rate rises linearly over the first so many steps */
    double warmup_start;  /* from this fraction of lr */
    int64_t every_steps;  /* SCHEDULE_STEP: times gamma every so many steps or epochs; */
    int64_t every_epochs; /* exactly one of the two is > 0 */
    double gamma;         /* SCHEDULE_STEP */
    double min_lr;        /* SCHEDULE_COSINE, SCHEDULE_LINEAR: the rate at the job's end */
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
};

struct job_deadlines { /* of each phase; seconds in the job file */
    int64_t gather_ms;
    int64_t ready_ms;
    int64_t prepare_ms;
    int64_t form_ms;
    int64_t step_ms;
    int64_t validate_ms;
    int64_t checkpoint_ms;
};

struct job_cluster {
    int64_t min_ranks; /* 0: nranks */
    int64_t max_ranks; /* 0: nranks */
    int64_t spares;
    int64_t replace_timeout_ms;
    int64_t join_interval_ms;
    int64_t heartbeat_timeout_ms;
    double straggler_factor; /* 0: nobody is one */
    int64_t straggler_window_ms;
    struct job_deadlines deadlines;
};

struct job {
    struct arena arena; /* owns the strings */
    const char *name;   /* letters, digits, '.', '_', '-': fit for a file name */
    struct job_model model;
    struct job_data data;
    struct job_train train;
    struct job_optimizer optimizer;
    struct job_schedule schedule;
    enum precision precision;
    struct job_loss_scale loss_scale;
    struct job_checkpoint checkpoint;
    struct job_cluster cluster;
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

/* The same from `len` bytes of text, which may be anything.
 *
 * origin    names the text in messages, such as a file name or "the driver's job".
 * base_dir  what relative paths are relative to, absolute; NULL: relative paths are refused. */
int job_parse(const char *text, size_t len, const char *origin, const char *base_dir,
              struct job **out, struct err *err);

void job_free(struct job *job); /* NULL is fine */

/* The follower's --data: read the data from `dir`.  No effect where data.format reads no files. */
int job_use_data(struct job *job, const char *dir, struct err *err);

/* What only makes sense with the number of ranks, and what this build cannot do: ERR_CONFIG,
 * ERR_UNSUPPORTED. */
int job_check_supported(const struct job *job, int64_t n_ranks, struct err *err);

/* ERR_UNSUPPORTED if a backend of this name ("cpu", "cuda") does not compute in job's precision. */
int job_check_backend(const struct job *job, const char *backend, struct err *err);

/* Append the resolved job as YAML; job_parse() makes the same job of it. */
void job_write(const struct job *job, struct buf *out);

/* ERR_REFUSED if a run of `old` may not go on as `now`: names the first key that differs but must
 * not, and both values. */
int job_compare_for_resume(const struct job *old, const struct job *now, struct err *err);

void job_help(FILE *f); /* --help-job: every option, for a terminal */

#endif

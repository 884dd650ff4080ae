/* deepspeed_impl - what the parts of deepspeed/ share: the values of a file, which
 * deepspeed/keys.c collects and deepspeed/job.c gives to the job.
 *
 * Threads: any; one for each file. */
#ifndef DEEPSPEED_IMPL_H
#define DEEPSPEED_IMPL_H

#include <yaml.h>

#include "deepspeed/deepspeed.h"

/* The values that set something. */
enum id {
    TRAIN_BATCH,
    MICRO_BATCH,
    ACCUMULATE,
    CLIP,
    PRINT_STEPS,
    DROP_LAST,
    COMM_TYPE,
    PREDIVIDE,
    ALLREDUCE_OP,
    SEED,
    OPT_TYPE,
    OPT_LR,
    OPT_MUON_LR,
    OPT_ADAM_LR,
    OPT_BETAS,
    OPT_EPS,
    OPT_DECAY,
    OPT_MOMENTUM,
    OPT_DAMPENING,
    OPT_NESTEROV,
    OPT_ADAM_W,
    OPT_TORCH_ADAM,
    OPT_CORRECTION,
    OPT_MAX_COEFF,
    OPT_MIN_COEFF,
    SCHED_TYPE,
    SCHED_MIN_LR,
    SCHED_MAX_LR,
    SCHED_WARMUP,
    SCHED_WARMUP_TYPE,
    SCHED_TOTAL,
    SCHED_MIN_RATIO,
    SCHED_COS_RATIO,
    FP16,
    FP16_SCALE,
    FP16_POWER,
    FP16_WINDOW,
    FP16_HYSTERESIS,
    FP16_MIN,
    BF16,
    AUTOCAST,
    AUTOCAST_DTYPE,
    ZERO_STAGE,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAM,
    CPU_OFFLOAD,
    REDUCE_BUCKET,
    N_IDS
};

struct ds_value {
    char *text; /* NULL: not given */
    int line, column, is_quoted, is_list;
};

struct ds_file {
    struct reader *r;
    yaml_document_t doc;
    struct ds_value value[N_IDS];
    struct buf *notes;
    int64_t n_ranks; /* of the job */
};

/* Add a line to the notes, with the place of `at`. */
void ds_note(struct ds_file *f, const struct ds_value *at, const char *text);

/* The key of a value, such as "scheduler.type". */
const char *ds_path(enum id id);

/* Put the file's name and the place of `at` before the error.  Returns its code. */
int ds_fail_at(const struct ds_file *f, const struct ds_value *at, struct err *err);

/* The value of a key of a mapping, or NULL. */
const yaml_node_t *ds_member(struct ds_file *f, const yaml_node_t *map, const char *name);

/* Collect the values of the file.  ERR_CONFIG: a key is not supported, stands twice, or has a value
 * of another kind than it wants. */
int ds_collect(struct ds_file *f, struct err *err);

/* ---- deepspeed/put.c ---- */

int ds_has(const struct ds_file *f, enum id id);                       /* 1: it is given */
int ds_is_word(const struct ds_file *f, enum id id, const char *word); /* in upper or lower case */
int ds_is_true(const struct ds_file *f, enum id id);

/* Give our key this text, in the place of `at`; the value of `id`, if it is given; or a number. */
int ds_put(struct ds_file *f, const struct ds_value *at, const char *key, const char *text,
           struct err *err);
int ds_put_value(struct ds_file *f, enum id id, const char *key, struct err *err);
int ds_put_number(struct ds_file *f, const struct ds_value *at, const char *key, double v,
                  struct err *err);

/* Read a number in the range; *out is `missing` if it is not given. */
int ds_number(const struct ds_file *f, enum id id, const char *name, double min, double max,
              double missing, double *out, struct err *err);

/* Read an integer from 1 to 1e9, which may be written 1e5; *out is 0 if it is not given. */
int ds_integer(const struct ds_file *f, enum id id, const char *name, double *out, struct err *err);
int ds_put_integer(struct ds_file *f, enum id id, const char *name, const char *key,
                   struct err *err);

/* ---- deepspeed/optimizer.c ---- */

int ds_give_optimizer(struct ds_file *f, struct err *err);
int ds_give_scheduler(struct ds_file *f, struct err *err);

/* ---- deepspeed/job.c ---- */

/* Give the job what was collected, under our keys. */
int ds_give(struct ds_file *f, struct err *err);

#endif

/* zero_jobs - what the jobs of the tests of zero, zero_lost and zero_overlap have in common. */
#ifndef TESTS_TRAIN_ZERO_JOBS_H
#define TESTS_TRAIN_ZERO_JOBS_H

#define ZERO   "strategy: {zero: 1}\n"
#define ZERO_2 "strategy: {zero: 2}\n"
#define ZERO_3 "strategy: {zero: 3}\n"
#define HALF   "precision: bfloat16\n"

/* Eight buckets and more of SMALL_BUCKET and more; no layer's size is a multiple of SEGMENT_ALIGN.
 */
#define LARGE                                                                \
    "model: {arch: mlp, hidden: [110, 110, 110, 110, 110, 110, 110, 110]}\n" \
    "data: {format: digits, samples: 72, validation_samples: 20}\n"          \
    "optimizer: {lr: 0.1}\n"

enum { SMALL_BUCKET = 40000 };

/* A job of SHORT_STEPS steps, and its strategy still to be said. */
#define SHORT_UNTIL_GROUPS                                           \
    "model: {arch: mlp, hidden: [23], batch_norm: true}\n"           \
    "data: {format: digits, samples: 96, validation_samples: 20}\n"  \
    "train: {global_batch: 24, average: {name: ema, decay: 0.75}}\n" \
    "optimizer: {name: adamw, lr: 0.01"
#define SHORT        SHORT_UNTIL_GROUPS "}\n"
#define SHORT_FROZEN SHORT_UNTIL_GROUPS ", groups: [{match: fc1.*, frozen: true}]}\n"

enum { SHORT_STEPS = 4 };

#endif

/* zero_jobs - what the jobs of test_zero.c and test_zero_lost.c have in common. */
#ifndef TESTS_TRAIN_ZERO_JOBS_H
#define TESTS_TRAIN_ZERO_JOBS_H

#define ZERO   "strategy: {zero: 1}\n"
#define ZERO_2 "strategy: {zero: 2}\n"
#define ZERO_3 "strategy: {zero: 3}\n"

/* A job of SHORT_STEPS steps, and its strategy still to be said. */
#define SHORT                                                        \
    "model: {arch: mlp, hidden: [23], batch_norm: true}\n"           \
    "data: {format: digits, samples: 96, validation_samples: 20}\n"  \
    "train: {global_batch: 24, average: {name: ema, decay: 0.75}}\n" \
    "optimizer: {name: adamw, lr: 0.01}\n"

enum { SHORT_STEPS = 4 };

#endif

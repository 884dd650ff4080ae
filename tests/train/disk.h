/* disk - a disk whose fsync a test can hold up, or let fail.
 *
 * The program that uses it is linked with --wrap=fsync.
 *
 * Threads: any. */
#ifndef TESTS_TRAIN_DISK_H
#define TESTS_TRAIN_DISK_H

/* A job whose checkpoints are slow after 0.1 s. */
#define JOB                                                            \
    "model: {arch: mlp, hidden: [8], batch_norm: true}\n"              \
    "data: {format: digits, samples: 320, validation_samples: 10}\n"   \
    "train: {global_batch: 10}\noptimizer: {lr: 0.1, momentum: 0.9}\n" \
    "cluster: {deadlines: {checkpoint: 0.1}}\n"

/* hold 1: each fsync waits from now on.  errnum: what each one then fails with; 0: none fails. */
void set_disk(int hold, int errnum);

/* So many of the next files have a wrong byte once they are on disk. */
void spoil_disk(int n_files);

/* Wait until an fsync waits. */
void wait_held(void);

#endif

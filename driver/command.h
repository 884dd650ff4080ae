/* command - the commands that may be wanted next, made from dpdriver's own: to go on with a run, to
 * train longer, to begin anew, to use own data.
 *
 * Threads: main's. */
#ifndef DRIVER_COMMAND_H
#define DRIVER_COMMAND_H

#include <stdint.h>

/* The command line of the driver that a standby becomes: argv without the options of a standby, and
 * with --nranks.  The array and its last word are for free().  *out_argc: its length. */
char **command_of_driver(int argc, char **argv, int64_t n_ranks, int *out_argc);

/* The commands below are made from DPTRAIN_COMMAND, where a batch script has set it
 * (deploy/slurm/dptrain.sbatch), instead of argv.
 *
 * The command that goes on with the run in `run_dir`: argv, quoted for a shell where needed, with
 * --resume and --run-dir.  The caller frees it. */
char *command_resume(int argc, char **argv, const char *run_dir);

/* The same command, with `sets` (NULL at the end) in place of the settings of the same keys. */
char *command_longer(int argc, char **argv, const char *run_dir, const char *const *sets);

/* The command that begins a new run with these settings: argv without --resume, --run-dir and
 * --inject.  `run_dir`, unless it is NULL, is where the job comes from: its job.yaml. */
char *command_new(int argc, char **argv, const char *run_dir, const char *const *sets);

/* The demo's command with the user's own data.  The word FOLDER in it stands for their folder. */
char *command_data(int argc, char **argv);

#endif

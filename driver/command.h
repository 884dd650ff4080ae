/* command - the commands that may be wanted next, made from dpdriver's own: to go on with a run, to
 * train longer, to begin anew, to use own data.
 *
 * Threads: main's. */
#ifndef DRIVER_COMMAND_H
#define DRIVER_COMMAND_H

#include "driver/options.h"

/* The commands below are made from DPTRAIN_COMMAND, where a batch script has set it
 * (deploy/slurm/dptrain.sbatch), instead of the options.
 *
 * The command that goes on with the run in `run_dir`: this one, quoted for a shell where needed,
 * with
 * --resume and --run-dir.  The caller frees it. */
char *command_resume(const struct options *o, const char *run_dir);

/* The same command, past the step of train.stop_after. */
char *command_past_stop(const struct options *o, const char *run_dir);

/* The same command, with `sets` (NULL at the end) in place of the settings of the same keys. */
char *command_longer(const struct options *o, const char *run_dir, const char *const *sets);

/* The command that begins a new run with these settings: this one without --resume, --run-dir and
 * --inject.  `run_dir`, unless it is NULL, is where the job comes from: its job.yaml. */
char *command_new(const struct options *o, const char *run_dir, const char *const *sets);

/* The same command with the user's own data: `sets` in place of all settings of data. */
char *command_data(const struct options *o, const char *const *sets);

#endif

/* launch - the place that a launcher gave this process, read from its environment.
 *
 * torchrun and scripts like it set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; Open MPI's mpirun
 * OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; Slurm's srun SLURM_PROCID, SLURM_NTASKS and
 * SLURM_STEP_NODELIST.  Rank and size come from one launcher: the first in this order that set
 * either, since the inner one of two is the one that started us (mpirun within a Slurm job leaves
 * SLURM_PROCID of the batch script behind).  Address and port come from MASTER_ADDR and MASTER_PORT
 * whoever set them; without those, under srun, the driver is looked for on the first host of the
 * step, where task 0 runs unless srun was told otherwise.
 *
 * What the command line says goes before all of this: the caller's business.
 *
 * Threads: any, while nobody changes the environment.
 * Errors:  ERR_ARG: the variable, what it holds, what is wanted, the option to give instead. */
#ifndef DAEMON_LAUNCH_H
#define DAEMON_LAUNCH_H

#include <stdint.h>

#include "base/err.h"
#include "net/addr.h"

enum { LAUNCH_TEXT = 512 };

/* For each value the variable that it came from; NULL: nothing says, and the value is not set. */
struct launch {
    int64_t rank, n_ranks; /* 0 <= rank < n_ranks where both are known */
    int64_t port;          /* 1..65535 */
    char host[ADDR_MAX_HOST];
    const char *rank_from, *n_ranks_from, *port_from, *host_from;
};

/* get: getenv, or a test's own. */
int launch_read(char *(*get)(const char *name), struct launch *out, struct err *err);

/* What is set of it, for a log: "rank 2 (SLURM_PROCID), driver gpu03 (SLURM_STEP_NODELIST)"; "" for
 * nothing. */
void launch_describe(const struct launch *l, char out[LAUNCH_TEXT]);

/* The first host of a Slurm node list such as "gpu[03-07,9],login1": "gpu03".  The result, at most
 * ADDR_MAX_HOST - 1 characters, is written to out; -1: the list is malformed. */
int launch_first_host(const char *list, char out[ADDR_MAX_HOST]);

#endif

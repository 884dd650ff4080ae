/* launch - the place that a launcher gave this process, read from its environment.
 *
 * torchrun and scripts like it set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; Open MPI's mpirun
 * OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; MPICH's mpiexec (Hydra) and its relatives PMI_RANK
 * and PMI_SIZE; Slurm's srun SLURM_PROCID, SLURM_NTASKS and SLURM_STEP_NODELIST; PALS, jsrun, Flux
 * and PMIx variables of their own.  Rank and size
 * come from one launcher: the first in this order that set either, since of two launchers the inner
 * one started this process (within a Slurm job mpiexec starts a process on each node by srun, and
 * its ranks there have that one's SLURM_PROCID).  Address and port come from MASTER_ADDR and
 * MASTER_PORT, whichever launcher set them.  Without those, within a Slurm job, the driver is
 * looked for on the first host of srun's step, where task 0 runs, or on the first host of the job,
 * where MPI's rank 0 runs.  The list of a step's hosts is sorted, and so does not say where task 0
 * is if tasks are distributed by a list of hosts (SLURM_DISTRIBUTION=arbitrary) or the step has
 * components (SLURM_HET_SIZE).
 *
 * torchrun (TORCHELASTIC_RUN_ID) listens on MASTER_PORT itself.  The driver listens on the first
 * port above it that is free, and followers look for it there; the name of the job, which they
 * tell, keeps them from another job's driver.
 *
 * TensorFlow's TF_CONFIG, {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker",
 * "index": 1}}, says all of it: the chief, or worker 0 where there is none, is rank 0, at its
 * address in the list.  It counts after RANK and WORLD_SIZE.  LOCAL_RANK, torchrun's number of the
 * process on its machine, names its GPU.
 *
 * The command line takes precedence over all of this; the caller sees to that.
 *
 * Threads: any, while no thread changes the environment.
 * Errors:  ERR_ARG: the variable, its value, the value wanted, and the option to give instead. */
#ifndef DAEMON_LAUNCH_H
#define DAEMON_LAUNCH_H

#include <stdint.h>

#include "base/err.h"
#include "net/addr.h"

enum { LAUNCH_TEXT = 512, LAUNCH_JOB = 96, LAUNCH_PORTS = 16 };

/* Each value, and the variable that it came from; NULL: no variable says it, and it is not set. */
struct launch {
    int64_t rank, n_ranks; /* 0 <= rank < n_ranks where both are known */
    int64_t port;          /* 1..65535: the first of n_ports at which the driver may be */
    int n_ports;           /* 1, and LAUNCH_PORTS under torchrun */
    int64_t local_rank;    /* on its machine, from 0 */
    char host[ADDR_MAX_HOST];
    char job[LAUNCH_JOB];    /* torchrun's name of the job, of this job alone; "": none */
    const char *spans_hosts; /* the variable that says that the ranks are on several machines */
    int lacks_srun;          /* 1: Slurm's variables are those of an allocation, not of a task */
    int is_task; /* the caller's word, for launch_describe: a task is a machine of several ranks */
    const char
        *hidden_by; /* the variable because of which a list of hosts does not say it; or NULL */
    const char *rank_from, *n_ranks_from, *port_from, *host_from, *local_rank_from;
};

/* get: getenv, or a test's own. */
int launch_read(char *(*get)(const char *name), struct launch *out, struct err *err);

/* The values that are set, for a log: "rank 2 (SLURM_PROCID), driver gpu03 (SLURM_STEP_NODELIST)";
 * "" for nothing. */
void launch_describe(const struct launch *l, char out[LAUNCH_TEXT]);

/* The first host of a Slurm node list such as "gpu[03-07,9],login1": "gpu03".  The result, at most
 * ADDR_MAX_HOST - 1 characters, is written to out; -1: the list is malformed. */
int launch_first_host(const char *list, char out[ADDR_MAX_HOST]);

#endif

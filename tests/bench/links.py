"""The cost of the links between CPU ranks: through shared memory, plain and encrypted.

usage: links.py [--build DIR] [--old DIR] [--others] [--ranks N] [--repeat N] [--rounds N] [--check]

  all-reduce   tests/bench/links: processes of this machine, 64 bytes to 64 MiB of float32, through
               shared memory, by TCP, by encrypted TCP, and, if it is built, over libfabric
  LeNet        two ranks of this machine, batch 8 and 256, on drawn digits: samples per second

--others times the all-reduces of Gloo, by DPTRAIN_TORCH_PYTHON or python3, and of Open MPI, by
mpicc and mpirun, too; without them the columns are left out.  --old DIR is another build of
dptrain, such as one before links were our own; only LeNet is run with it.  Variants take turns, N
times each (3), and the median counts.  --check runs little, and only asks whether all figures are
there.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

GLOO = """
import statistics, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
n_bytes, most = 64, int(sys.argv[1])
while n_bytes <= 64 << 20:
    x, us = torch.zeros(n_bytes // 4), []
    for i in range(-5, min(most, max(11, (512 << 20) // n_bytes))):
        begun = time.perf_counter()
        dist.all_reduce(x)
        if i >= 0:
            us.append(1e6 * (time.perf_counter() - begun))
    if dist.get_rank() == 0:
        print(n_bytes, statistics.median(us), min(us))
    n_bytes *= 4
dist.barrier()
dist.destroy_process_group()  # else a process that leaves ends others by SIGABRT now and then
"""

MPI = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double us[2000];

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const long most = atol(argv[1]);
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long n_bytes = 64; n_bytes <= 64 << 20; n_bytes *= 4) {
        long rounds = (512 << 20) / n_bytes;
        float *x = calloc(1, (size_t)n_bytes);

        rounds = rounds < 11 ? 11 : rounds;
        rounds = rounds < most ? rounds : most;
        for (long i = -5; i < rounds; i++) {
            const double begun = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(n_bytes / 4), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
            if (i >= 0)
                us[i] = 1e6 * (MPI_Wtime() - begun);
        }
        qsort(us, (size_t)rounds, sizeof *us, by_size);
        if (rank == 0)
            printf("%ld %.1f %.1f\\n", n_bytes, us[rounds / 2], us[0]);
        free(x);
    }
    MPI_Finalize();
}
"""


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def medians(text):
    """Bytes -> median microseconds."""
    lines = text.split("\n")
    return {int(line.split()[0]): float(line.split()[1]) for line in lines if line}


def allreduce(build, mode, ranks, rounds):
    return medians(run([f"{build}/tests/bench/links", mode, str(ranks), str(rounds)]))


def gloo(ranks, rounds):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/gloo.py", "w", encoding="ascii") as f:
            f.write(GLOO)
        return medians(run([*torch_python(), "-m", "torch.distributed.run", "--standalone",
                            f"--nproc-per-node={ranks}", f"{folder}/gloo.py", str(rounds)]))


def torch_python():
    return [os.environ.get("DPTRAIN_TORCH_PYTHON", "python3")]


def has_torch():
    return subprocess.run([*torch_python(), "-c", "import torch.distributed"],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def build_mpi(folder):
    """The program in this folder, or None where there is no Open MPI to build it."""
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return None
    with open(f"{folder}/mpi.c", "w", encoding="ascii") as f:
        f.write(MPI)
    done = subprocess.run(["mpicc", "-O2", "-o", f"{folder}/mpi", f"{folder}/mpi.c"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"Open MPI is left out, as mpicc fails (libopenmpi-dev?): {done.stderr}",
              file=sys.stderr)
    return None if done.returncode else f"{folder}/mpi"


def mpi(program, ranks, rounds, *options):
    return medians(run(["mpirun", "--allow-run-as-root", "--oversubscribe", *options,
                        "-n", str(ranks), program, str(rounds)]))


def lenet(build, batch, steps, extra):
    """Samples per second of the last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{build}/driver/dpdriver", "--nranks", "2", "--local", "--threads", "1",
                   "--port", "0", "--run-dir", f"{folder}/run", "--set",
                   f"train.global_batch={batch}", "--set", f"train.max_steps={steps}",
                   "--set", "train.epochs=1000"]
        for word in extra:
            command += ["--set", word]
        run(command)
        with open(f"{folder}/run/events.jsonl", encoding="utf-8") as f:
            epochs = [e for e in map(json.loads, f) if e["event"] == "epoch"]
    return epochs[-1]["samples_per_second"]


def median_of_turns(variants, repeat):
    """Run every variant in turn, `repeat` times; name -> list of results."""
    results = {name: [] for name in variants}
    for _ in range(repeat):
        for name, call in variants.items():
            results[name].append(call())
    return results


def print_table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def print_allreduce(o, rounds):
    with tempfile.TemporaryDirectory() as folder:
        print_allreduces(o, rounds, build_mpi(folder) if o.others else None)


def print_allreduces(o, rounds, mpi_program):
    variants = {head: (lambda m=mode: allreduce(o.build, m, o.ranks, rounds))
                for head, mode in {"shared memory": "shared", "plain": "plain", "encrypted": "tls",
                                   "libfabric tcp": "fabric",
                                   "libfabric tcp, encrypted": "fabric_tls",
                                   "libfabric shm": "fabric_shm"}.items()}
    if o.others and has_torch():
        variants["Gloo"] = lambda: gloo(o.ranks, rounds)
    if mpi_program:
        variants["Open MPI"] = lambda: mpi(mpi_program, o.ranks, rounds)
        variants["Open MPI, TCP"] = lambda: mpi(mpi_program, o.ranks, rounds, "--mca", "btl",
                                                "self,tcp")
    turns = {head: found for head, found in median_of_turns(variants, o.repeat).items()
             if all(found)}
    rows = []
    for size in turns["plain"][0]:
        us = {head: statistics.median(turn[size] for turn in turns[head]) for head in turns}
        rows.append([f"{size:,} bytes" if size < 1024 else f"{size // 1024:,} KiB"] +
                    [f"{us[head]:,.1f}" for head in turns])
    print_table([f"all-reduce of, {o.ranks} ranks"] + [f"{head}, us" for head in turns], rows)


def print_lenet(o, steps):
    rows = []
    for batch in (8, 256):
        variants = {
            "shared": lambda b=batch: lenet(o.build, b, steps[b], ["cluster.encrypt=off"]),
            "plain": lambda b=batch: lenet(o.build, b, steps[b], ["cluster.encrypt=off",
                                                                  "cluster.shared_memory=off"]),
            "encrypted": lambda b=batch: lenet(o.build, b, steps[b], ["cluster.encrypt=on"])}
        if o.old:
            variants["old"] = lambda b=batch: lenet(o.old, b, steps[b], [])
        turns = median_of_turns(variants, o.repeat)
        rows.append([str(batch)] + [f"{statistics.median(turns[name]):,.0f}" for name in turns])
    names = ["shared memory", "plain", "encrypted"] + (["old build"] if o.old else [])
    print_table(["LeNet, global batch"] + [f"{name}, samples/s" for name in names], rows)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--old")
    p.add_argument("--others", action="store_true")
    p.add_argument("--ranks", type=int, default=2, help="of the all-reduces")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--rounds", type=int, default=2000, help="at most, of each size")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if o.check:
        o.repeat = 1
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print_allreduce(o, 2 if o.check else o.rounds)
    print_lenet(o, {8: 200, 256: 20} if o.check else {8: 20000, 256: 1000})


main()

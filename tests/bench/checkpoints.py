#!/usr/bin/env python3
"""checkpoints - measures the cost of writing checkpoints beside training.

    checkpoints.py [--build DIR] [--rounds N] [--case NAME]... [--check]

Each round trains every case twice in turn, without checkpoints and with checkpoint.every_steps, so
that a change in the machine's load affects both.  Of each run it measures the seconds of training
(of its one epoch, by the `epoch` event), and the CPU time of all its processes.  The table has the
medians, the ratio of the two, and from the `checkpoint` events: how many checkpoints there were,
how long one took to be on disk, and for which part of the training time training stood still
(exposed; goal: under 2 %).  With --check it only trains a little, and checks that all these figures
are there.

Exit status 1: exposed time misses the goal.  The ratio also contains the time that the disk and the
copies take from the training cores; on a busy machine it says little.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import bench

GOAL = 0.02

# name: the job; every: steps between two checkpoints
CASES = {
    "LeNet, batch 256, 0.5 MB, every 10": dict(
        model=dict(arch="lenet"), batch=256, steps=200, every=10, ranks=2),
    "LeNet, batch 16, 0.5 MB, every 50": dict(
        model=dict(arch="lenet"), batch=16, steps=1500, every=50, ranks=2),
    "mlp 2048 x 2048, batch 256, 46 MB, every 10": dict(
        model=dict(arch="mlp", hidden=[2048, 2048]), batch=256, steps=60, every=10, ranks=1),
    "mlp 8192 x 8192 x 8192, batch 64, 1.1 GB, every 8": dict(
        model=dict(arch="mlp", hidden=[8192, 8192, 8192]), batch=64, steps=26, every=8, ranks=1),
}


def run(build, case, every):
    """The events of one run, summed up; every 0: without checkpoints but the last."""
    work = tempfile.mkdtemp(prefix="dptrain-bench-")
    job = dict(name="bench", model=case["model"],
               data=dict(format="digits", samples=case["batch"] * case["steps"],
                         validation_samples=0),
               train=dict(global_batch=case["batch"], epochs=1, validate_every=0),
               optimizer=dict(lr=0.01, momentum=0.9),
               checkpoint=dict(every_epochs=0, every_steps=every, keep=2))
    try:
        with open(os.path.join(work, "job.yaml"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        cpu = bench.cpu_of_children()
        done = subprocess.run(
            [bench.driver_of(build), "--nranks", str(case["ranks"]), "--local",
             "--port", "0", "--threads", "1", "--job", os.path.join(work, "job.yaml"), "--run-dir",
             os.path.join(work, "run")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"status {done.returncode}: {done.stderr[-600:]}")
        with open(os.path.join(work, "run", "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    seconds = next(e["train_seconds"] for e in events if e["event"] == "epoch")
    # The last checkpoint is written after training, and waited for.
    written = [e for e in events if e["event"] == "checkpoint" and e["step"] < case["steps"]]
    return dict(seconds=seconds, cpu=bench.cpu_of_children() - cpu, n=len(written),
                exposed=sum(e["exposed_seconds"] for e in written) / seconds,
                write=statistics.median([e["seconds"] for e in written]) if written else 0)


def median(rounds, key):
    return statistics.median(r[key] for r in rounds)


def show(name, without, with_them):
    ratio = median(with_them, "seconds") / median(without, "seconds")
    cpu = median(with_them, "cpu") / median(without, "cpu")
    exposed = median(with_them, "exposed")
    print(f"| {name} | {median(without, 'seconds'):.2f} | {median(with_them, 'seconds'):.2f} | "
          f"{ratio:.3f} | {cpu:.3f} | {median(with_them, 'n'):.0f} | "
          f"{1e3 * median(with_them, 'write'):.1f} | {100 * exposed:.3f} |", flush=True)
    return exposed < GOAL


def measure(args):
    print("| case | s without | s with | ratio | CPU ratio | checkpoints | ms to disk "
          "| exposed % |")
    print("|---|---|---|---|---|---|---|---|")
    met = True
    for name in args.case or CASES:
        rounds = [(run(args.build, CASES[name], 0), run(args.build, CASES[name],
                                                        CASES[name]["every"]))
                  for _ in range(args.rounds)]
        met &= show(name, [r[0] for r in rounds], [r[1] for r in rounds])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    return 0 if met else 1


def check(args):
    """Check that checkpoints come during training, and that their figures are plausible."""
    case = dict(model=dict(arch="mlp", hidden=[64]), batch=16, steps=400, every=5, ranks=1)
    with_them, without = run(args.build, case, case["every"]), run(args.build, case, 0)
    assert without["n"] == 0, without
    assert 1 <= with_them["n"] <= 79, with_them
    assert with_them["write"] > 0 and 0 < with_them["exposed"] < 1, with_them
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    sys.exit(check(args) if args.check else measure(args))


if __name__ == "__main__":
    main()

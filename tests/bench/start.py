#!/usr/bin/env python3
"""start - the memory of a rank before its first step, and the time from the start to that step.

    start.py [--build DIR] [--rounds N] [--case NAME]... [--cold] [--record] [--check]

memory  two ranks of a small MLP, which the fault "stop" halts when step 1 begins: programs are
        built, links are there, and the first batch is read.  The figures are the resident memory of
        the driver and of its follower, and the part of it that no other process shares; the goal
        is 30 MiB.  The model and its state take some KiB.
lenet   two ranks on drawn digits, batch 256
gpt2    GPT-2 with 124 million parameters, context 64, one sample a step, AdamW, one rank of two
        threads, on random tokens

Of lenet and gpt2 the figures are the seconds from the start of the process to the formation, when
the initial values are there, and to the end of the first step; the median of the steps behind it;
and what is left of the first step's end without such a step, which is the time of starting.

Before each run of these two, as much memory as it takes is written and given back: a virtual
machine may have to ask its host for pages that were never used, or not for long, which takes ten
times as long as to clear them.  --cold leaves that out.

--record appends the tables to RESULTS.md beside this file.  --check runs tiny networks once and
asks whether all figures are there.  Exit status 1: a rank's memory misses its goal.
"""
import argparse
import array
import json
import mmap
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import bench

GOAL_MIB = 30
LIMIT_S = 120
DIGITS = {"format": "digits", "samples": 2560, "validation_samples": 0}
GPT = {"arch": "gpt", "layers": 12, "heads": 12, "width": 768, "context": 64, "vocab": 50257}
TINY_GPT = {"arch": "gpt", "layers": 1, "heads": 2, "width": 32, "context": 16, "vocab": 100}
GIB = 1 << 30

# name: model, data, samples of a step, optimizer, ranks, threads, bytes that a rank takes
CASES = {
    "lenet": ({"arch": "lenet"}, DIGITS, 256, {"name": "sgd", "lr": 0.1}, 2, 1, GIB // 16),
    "gpt2": (GPT, None, 1, {"name": "adamw", "lr": 1e-4}, 1, 2, 9 * GIB // 4),
}
STEPS = 4


def tokens_of(model, folder):
    draw = random.Random(1)
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        array.array("H", (draw.randrange(model["vocab"]) for _ in range(20_000))).tofile(file)
    return {"format": "tokens", "path": folder, "train": "tokens.bin", "validation": "none"}


def command_of(args, folder, job, ranks, threads, *more):
    with open(os.path.join(folder, "job.yaml"), "w", encoding="utf-8") as file:
        json.dump({"name": "bench", "checkpoint": {"every_epochs": 0}, **job}, file)
    return [bench.driver_of(args.build), "train", os.path.join(folder, "job.yaml"), "--nranks",
            str(ranks), "--local", "--port", "0", "--device", "cpu", "--threads", str(threads),
            "--run-dir", os.path.join(folder, "run"), *more]


# ---- memory

def children_of(pid):
    """Its processes, which are the followers of --local"""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                stat = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if name.isdigit() and int(stat[1]) == pid:
            found.append(int(name))
    return found


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def memory_of(pid):
    """MiB that are resident, and those of them that only this process has"""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
    return kib["Rss"] / 1024, (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024


def stopped_ranks(driver):
    """The driver and its follower, once both have stopped before step 1"""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and driver.poll() is None:
        ranks = [driver.pid, *children_of(driver.pid)]
        if len(ranks) == 2 and all(is_stopped(pid) for pid in ranks):
            return ranks
        time.sleep(0.02)
    raise RuntimeError(f"the ranks did not stop before step 1; status {driver.poll()}")


def measure_memory(args):
    """[(resident MiB, own MiB)] of the driver and of a follower"""
    with tempfile.TemporaryDirectory(prefix="dptrain-bench-") as folder:
        job = {"model": {"arch": "mlp", "hidden": [8]}, "data": dict(DIGITS, samples=64),
               "train": {"global_batch": 8, "epochs": 1, "validate_every": 0}}
        stops = [word for rank in (0, 1) for word in ("--inject", f"stop:rank{rank}@step1")]
        driver = None
        try:
            with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
                driver = subprocess.Popen(command_of(args, folder, job, 2, 1, *stops), stdout=log,
                                          stderr=log, stdin=subprocess.DEVNULL)
            return [memory_of(pid) for pid in stopped_ranks(driver)]
        finally:
            for pid in children_of(driver.pid) if driver else ():
                os.kill(pid, signal.SIGKILL)
            if driver:
                driver.kill()
                driver.wait()


# ---- time

def touch(n_bytes):
    """Write to so much memory, and give it back."""
    with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, n_bytes, mmap.PAGESIZE):
            room[at] = 1


def measure_start(args, name):
    """Seconds to the formation and to the end of the first step, and those of a step"""
    model, data, batch, optimizer, ranks, threads, n_bytes = CASES[name]
    if args.check and name == "gpt2":
        model, n_bytes = TINY_GPT, 0
    with tempfile.TemporaryDirectory(prefix="dptrain-bench-") as folder:
        job = {"model": model, "optimizer": optimizer, "data": data or tokens_of(model, folder),
               "train": {"global_batch": batch, "epochs": 1, "max_steps": STEPS, "seed": 1,
                         "validate_every": 0}}
        command = command_of(args, folder, job, ranks, threads)
        if not args.cold and n_bytes:
            touch(n_bytes * ranks)
        started = time.time()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-bench.TAIL:])
        with open(os.path.join(folder, "run", "events.jsonl"), encoding="utf-8") as file:
            event = {e["event"]: e for e in map(json.loads, file)}
        shutil.rmtree(os.path.join(folder, "run"))
    first = event["first_step"]["time"] - started
    step = (event["epoch"]["time"] - event["first_step"]["time"]) / (STEPS - 1)
    return {"form": event["form"]["time"] - started, "first": first, "step": step,
            "start": first - step}


# ---- tables

def spread(values, unit):
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def memory_table(rounds):
    lines = ["| before the first step | resident | own | goal |", "|---|---|---|---|"]
    for who, ranks in zip(("driver", "follower"), zip(*rounds)):
        resident, own = ([rank[i] for rank in ranks] for i in (0, 1))
        met = "met" if statistics.median(resident) < GOAL_MIB else "missed"
        lines.append(f"| {who} | {spread(resident, 'MiB')} | {spread(own, 'MiB')} "
                     f"| {GOAL_MIB} MiB: {met} |")
    return lines


def start_table(of):
    lines = ["| from the start | to the formation | to the first step's end | a later step "
             "| the former without the latter |", "|---|---|---|---|---|"]
    for name, rounds in of.items():
        cells = [spread([r[key] for r in rounds], "s") for key in ("form", "first", "step",
                                                                   "start")]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def check(args):
    for resident, own in measure_memory(args):
        assert 1 < own < resident, (own, resident)
    for name in CASES:
        said = measure_start(args, name)
        assert 0 < said["form"] < said["first"] and said["step"] > 0, (name, said)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=("memory", *CASES))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        return check(args)
    cases, memory, starts = args.case or ("memory", *CASES), [], {}
    load = os.getloadavg()[0]
    for _ in range(args.rounds):
        if "memory" in cases:
            memory.append(measure_memory(args))
        for name in CASES:
            if name in cases:
                starts.setdefault(name, []).append(measure_start(args, name))
    commit, machine = bench.commit_and_cpu()
    text = "\n".join([f"## Start, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}", "",
                      f"{machine}; `start.py --rounds {args.rounds}`{' --cold' * args.cold}, "
                      f"medians with least and most; load average {load:.1f} before.", "",
                      *(memory_table(memory) if memory else []), "",
                      *(start_table(starts) if starts else [])]) + "\n"
    print(text)
    if args.record:
        bench.record(text)
    return int(any(statistics.median(r[k][0] for r in memory) >= GOAL_MIB for k in (0, 1))
               if memory else 0)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""variants - the time of a training step with one setting beside another, in turn.

    variants.py [--build DIR] [--old DIR] [--case NAME]... [--rounds N] [--steps N] [--check]

Each case is a job on ranks of one thread each, all on this machine, with two or more variants of
its settings.  In each round every variant runs once, one after another, so that a change in the
machine's load affects all of them.  A row shows the medians of the rounds: the wall time of a step
(the median step of the run's last epoch), its part that waits for other ranks, and the CPU time of
a rank for each step, with the start, and the most memory that the driver had.  The ratios are to
the first variant, pair by pair: the median and the range.  A ratio below 1 says that the variant is
faster than the first one.

  zero       zero: 0 beside zero: 1 with and without buddy.  The exposed wait says how much of the
             all-gather the next forward pass hides.
  links      ranks that share memory beside loopback TCP
  buckets    train.bucket_bytes
  rebalance  cluster.rebalance, where the last rank is stopped half of the time (SIGSTOP, SIGCONT)
  trace      report.trace of all steps but the first; LeNet has batches of 8
  lora       all parameters beside adapters of rank 8, for a GPT of 6 x 384
  base       the same for a GPT of 12 x 768 that begins with a file, and with model.base
  pack       blocks of tokens beside data.pack, for a GPT of 6 x 384 with a context of 2048 on the
             paragraphs of tinyshakespeare, by bytes
  old        this build beside --old, another one; without --old these cases are left out

The mlp has three hidden layers of 1024, so 2.9 million parameters; lenet and gpt are those of
strategies.py.  --check trains little, and only asks whether all figures are there.  Exit status 77:
the data in $DPTRAIN_DATA are missing.
"""
import argparse
import array
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import bench
import strategies

SHORT_S = 0.005  # how long a slowed rank runs, and then stands still
MODELS = {name: job for name, (job, _) in strategies.MODELS.items()}
MODELS["mlp"] = {**MODELS["lenet"], "model.arch": "mlp", "model.hidden": "[1024, 1024, 1024]",
                 "optimizer.name": "adamw", "optimizer.lr": 0.001}
MODELS["lenet of 8"] = {**MODELS["lenet"], "train.global_batch": 8}
ZERO = {"zero: 0": {}, "zero: 1": {"strategy.zero": 1},
        "zero: 1, no buddy": {"strategy.zero": 1, "strategy.buddy": "false"}}
LINKS = {"TCP": {"cluster.shared_memory": "off"}, "shared memory": {}}
BUCKETS = {"4 MiB (default)": {}, "auto": {"train.bucket_bytes": "auto"},
           "1 MiB": {"train.bucket_bytes": 1 << 20}, "25 MiB": {"train.bucket_bytes": 25 << 20}}
REBALANCE = {"equal shares": {}, "rebalance": {"cluster.rebalance": "true"}}
TRACE = {"off": {}, "report.trace": {"report.trace": "[1, 1000]"}}
MODELS["gpt of 384"] = {**MODELS["gpt"], "model.layers": 6, "model.heads": 6, "model.width": 384}
LORA = {"all parameters": {}, "model.lora": {"model.lora.rank": 8}}
MODELS["gpt of 768"] = {**MODELS["gpt"], "model.layers": 12, "model.heads": 12,
                        "model.width": 768, "model.context": 128, "train.global_batch": 8}
BASE = {"all parameters": {}, "model.lora": {"model.lora.rank": 8},
        **{f"model.base: {form}": {"model.lora.rank": 8, "model.base": form}
           for form in ("bfloat16", "int8")}}
MODELS["gpt of documents"] = {**MODELS["gpt of 384"], "model.context": 2048, "model.vocab": 256,
                              "data.format": "tokens", "data.train": "documents.bin",
                              "train.global_batch": 1}
for key in ("data.path", "data.tokenizer"):
    del MODELS["gpt of documents"][key]
PACK = {"blocks of tokens": {}, "data.pack": {"data.pack": "true", "data.end_token": 0}}
OLD = {"old": {}, "new": {}}
# case: model, ranks, variants, steps, whether the last rank is slowed
CASES = {
    "zero, mlp": ("mlp", 2, ZERO, 300, False),
    "zero, gpt": ("gpt", 2, ZERO, 300, False),
    "links, lenet": ("lenet", 2, LINKS, 600, False),
    "links, gpt": ("gpt", 2, LINKS, 300, False),
    "links, mlp": ("mlp", 2, LINKS, 300, False),
    "links, mlp, 4 ranks": ("mlp", 4, LINKS, 150, False),
    "buckets, mlp": ("mlp", 2, BUCKETS, 300, False),
    "buckets, gpt": ("gpt", 2, BUCKETS, 300, False),
    "rebalance, lenet": ("lenet", 2, REBALANCE, 705, True),
    "trace, lenet": ("lenet of 8", 2, TRACE, 900, False),
    "trace, gpt": ("gpt", 2, TRACE, 300, False),
    "lora, gpt": ("gpt of 384", 1, LORA, 60, False),
    "base, gpt": ("gpt of 768", 1, BASE, 6, False),
    "pack, gpt": ("gpt of documents", 1, PACK, 12, False),
    "old, lenet": ("lenet", 1, OLD, 470, False),
    "old, lenet, 2 ranks": ("lenet", 2, OLD, 705, False),
    "old, gpt": ("gpt", 1, OLD, 200, False),
    "old, gpt, 2 ranks": ("gpt", 2, OLD, 300, False),
}
FIGURES = ("wall_ms", "exposed_ms", "cpu_ms", "peak_mib")
RATIOS = ("wall_ms", "cpu_ms", "peak_mib")


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


@contextlib.contextmanager
def last_rank_slowed(driver):
    """While this lasts, the driver's follower gets the processor half of the time."""
    over = threading.Event()

    def stop_and_go():
        while not over.wait(SHORT_S):
            for pid in children_of(driver.pid)[-1:]:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(SHORT_S)
                os.kill(pid, signal.SIGCONT)

    def until_it_ends():
        with contextlib.suppress(OSError):  # the driver or its follower has ended
            stop_and_go()

    thread = threading.Thread(target=until_it_ends)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def write_weights(build, job, folder):
    """A file of random weights of the job's network, in a run directory in the folder."""
    run_dir = os.path.join(folder, "first")
    subprocess.run(
        [bench.driver_of(build), "--nranks", "1", "--port", "0", "--run-dir", run_dir,
         *strategies.words({**job, "train.epochs": 1, "train.max_steps": 1,
                            "train.validate_every": 0})],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return os.path.join(run_dir, "checkpoints", "latest", "model.safetensors")


def write_documents(folder):
    """Paragraphs of the text as 16-bit numbers, each with 0 at its end; returns the job's keys"""
    with open(MODELS["gpt"]["data.path"], "rb") as file:
        text = file.read().replace(b"\n\n", b"\0")
    with open(f"{folder}/documents.bin", "wb") as file:
        file.write(array.array("H", list(text)).tobytes())
    return {"data.path": folder}


def run(build, case, settings, steps):
    """The figures of one run."""
    model, ranks, _, _, is_slowed = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        job = {**MODELS[model], **settings, "train.epochs": 1000, "train.max_steps": steps,
               "train.validate_every": 0, "checkpoint.every_epochs": 0}
        if "data.path" not in job:
            job |= write_documents(folder)
        before = bench.cpu_of_children()
        driver = subprocess.Popen(
            [bench.driver_of(build), "--nranks", str(ranks), "--local", "--threads", "1", "--port",
             "0", "--run-dir", f"{folder}/run", *strategies.words(job)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with last_rank_slowed(driver) if is_slowed else contextlib.nullcontext():
            said = driver.stdout.read()
            _, status, usage = os.wait4(driver.pid, 0)
            driver.returncode = os.waitstatus_to_exitcode(status)
        if driver.returncode != 0:
            sys.exit(f"{case}: status {driver.returncode}\n{said[-2000:]}")
        cpu = bench.cpu_of_children() - before
        with open(f"{folder}/run/events.jsonl", encoding="utf-8") as file:
            epoch = [e for e in map(json.loads, file) if e["event"] == "epoch"][-1]
    return {"wall_ms": epoch["step_ms_median"], "exposed_ms": epoch["comm_exposed_ms_median"],
            "cpu_ms": 1e3 * cpu / ranks / steps, "peak_mib": usage.ru_maxrss / 1024}


def measure(o, case):
    """results[variant]: the figures of each round."""
    with tempfile.TemporaryDirectory() as folder:
        first = {}
        if CASES[case][2] is BASE:
            first = {"model.init.name": "file",
                     "model.init.path": write_weights(o.build, MODELS[CASES[case][0]], folder)}
        return measure_from(o, case, first)


def measure_from(o, case, first):
    variants, steps = CASES[case][2:4]
    results = {name: [] for name in variants}
    for _ in range(o.rounds):
        for name, settings in variants.items():
            build = o.old if name == "old" else o.build
            results[name].append(run(build, case, {**first, **settings}, o.steps or steps))
    return results


def ratio_text(ours, base):
    ratios = [a / b for a, b in zip(ours, base)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def rows(case, results):
    """Cells of a row for each variant."""
    first = next(iter(results.values()))
    for name, runs in results.items():
        cells = [f"{statistics.median(r[key] for r in runs):,.2f}" for key in FIGURES]
        for key in RATIOS:
            cells.append("-" if runs is first else
                         ratio_text([r[key] for r in runs], [r[key] for r in first]))
        yield [case, name, *cells]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=bench.default_build())
    p.add_argument("--old")
    p.add_argument("--case", action="append", choices=list(CASES))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, help="of each run, instead of the case's own number")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if not os.path.exists(MODELS["gpt"]["data.path"]) or not os.path.exists(bench.DATA):
        print(f"there are no data in {strategies.DATA}")
        return strategies.SKIPPED
    if o.check:
        o.rounds, o.steps, o.case = 1, 20, ["zero, mlp", "rebalance, lenet", "trace, lenet"]
    head = ["case", "variant", "ms a step", "of it exposed", "CPU ms a step", "peak MiB",
            "wall, ratio", "CPU, ratio", "peak, ratio"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for case in o.case or CASES:
        if CASES[case][2] is OLD and not o.old:
            continue
        for cells in rows(case, measure(o, case)):
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

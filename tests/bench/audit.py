#!/usr/bin/env python3
"""audit - what looking for wrong bits costs: train.audit and train.replica_check beside neither.

    audit.py [--build DIR] [--models lenet,gpt] [--ranks N] [--zero STAGE] [--rounds N] [--steps N]
             [--check]

Ranks of one thread each, all on this machine: LeNet with a global batch of 256, and the small GPT
of strategies.py.  In each round the three settings run in turn: neither, 0.02 of the steps, and all
steps.  A step's time is the mean over the run, as a median would leave audited steps out.  The
ratios are to the run without, pair by pair: the median and the range.  "0.02, by all" follows from
the run that looks at all steps: 1 + 0.02 (ratio - 1).  It is the better figure where other work
disturbs the machine, since two per cent are less than the difference of two equal runs there.

--check trains little, and only asks whether all figures are there.  Exit status 77: the data in
$DPTRAIN_DATA are missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import bench
import strategies

PART = 0.02
SETTINGS = {"neither": 0, str(PART): PART, "all steps": 1}
STEPS = {"lenet": 500, "gpt": 300}


def run(o, model, part, steps, seed):
    """Mean wall and CPU milliseconds of a step, the latter with a rank's start."""
    job = {**strategies.MODELS[model][0], "train.audit": part, "train.replica_check": part,
           "train.epochs": 1000, "train.seed": seed, "train.max_steps": steps,
           "strategy.zero": o.zero, "train.validate_every": 0, "checkpoint.every_epochs": 0}
    with tempfile.TemporaryDirectory() as folder:
        before = bench.cpu_of_children()
        done = subprocess.run(
            [bench.driver_of(o.build), "--nranks", str(o.ranks), "--local", "--threads", "1",
             "--port", "0", "--run-dir", f"{folder}/run", *strategies.words(job)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        if done.returncode != 0:
            sys.exit(f"{model}, {part}: status {done.returncode}\n{done.stdout[-2000:]}")
        cpu = bench.cpu_of_children() - before
        with open(f"{folder}/run/events.jsonl", encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
    wrong = [e for e in events if e["event"] == "corruption"]
    if wrong:
        sys.exit(f"{model}, {part}: {wrong[0]['message']}")
    seconds = sum(e["train_seconds"] for e in events if e["event"] == "epoch")
    return 1e3 * seconds / steps, 1e3 * cpu / o.ranks / steps


def ratio_text(ratios, scale=1.0):
    low, middle, high = (1 + scale * (r - 1)
                         for r in (min(ratios), statistics.median(ratios), max(ratios)))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def measure(o, model):
    """results[setting]: (wall, CPU) of each round."""
    results = {name: [] for name in SETTINGS}
    for seed in range(1, o.rounds + 1):  # it draws the steps that are looked at, too
        for name, part in SETTINGS.items():
            results[name].append(run(o, model, part, o.steps or STEPS[model], seed))
    return results


def rows(model, results):
    base = results["neither"]
    for name, runs in results.items():
        cells = [model, name, *(f"{statistics.median(r[k] for r in runs):,.2f}" for k in (0, 1))]
        for k in (0, 1):
            ratios = [r[k] / b[k] for r, b in zip(runs, base)]
            cells.append("-" if runs is base else ratio_text(ratios))
        ratios = [r[0] / b[0] for r, b in zip(runs, base)]
        cells.append(ratio_text(ratios, PART) if SETTINGS[name] == 1 else "-")
        yield cells


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=bench.default_build())
    p.add_argument("--models", default=",".join(STEPS))
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--zero", type=int, default=0, help="strategy.zero, 0")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, help="of each run, instead of the model's own number")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if not os.path.exists(f"{strategies.DATA}/tinyshakespeare") or not os.path.exists(bench.DATA):
        print(f"there are no data in {strategies.DATA}")
        return strategies.SKIPPED
    if o.check:
        o.models, o.ranks, o.rounds, o.steps = "lenet", 2, 1, 20
    head = ["model", "looked at", "ms a step", "CPU ms a step", "wall, ratio", "CPU, ratio",
            f"{PART}, by all"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for model in o.models.split(","):
        for cells in rows(model, measure(o, model)):
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

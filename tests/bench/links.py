"""The cost of the links between CPU ranks: through shared memory, plain and encrypted.

usage: links.py [--build DIR] [--old DIR] [--ranks N] [--repeat N] [--check]

  all-reduce   tests/bench/links: processes of this machine, 1 KiB to 64 MiB of float32, through
               shared memory, by TCP, and by encrypted TCP
  LeNet        two ranks of this machine, batch 8 and 256, on drawn digits: samples per second

--old DIR is another build of dptrain, such as one before links were our own; only LeNet is run with
it.  Variants take turns, N times each (3), and the median counts.  --check runs little, and only
asks whether all figures are there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def allreduce(build, mode, ranks, rounds):
    """Bytes -> median microseconds."""
    lines = run([f"{build}/tests/bench/links", mode, str(ranks), str(rounds)]).split("\n")
    return {int(line.split()[0]): float(line.split()[1]) for line in lines if line}


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
    turns = median_of_turns({mode: (lambda m=mode: allreduce(o.build, m, o.ranks, rounds))
                             for mode in ("shared", "plain", "tls")}, o.repeat)
    rows = []
    for size in turns["plain"][0]:
        us = {mode: statistics.median(turn[size] for turn in turns[mode]) for mode in turns}
        rows.append([f"{size // 1024:,} KiB"] + [f"{us[mode]:,.1f}" for mode in turns])
    print_table([f"all-reduce of, {o.ranks} ranks", "shared memory, us", "plain, us",
                 "encrypted, us"], rows)


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
    p.add_argument("--ranks", type=int, default=2, help="of the all-reduces")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if o.check:
        o.repeat = 1
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print_allreduce(o, 2 if o.check else 2000)
    print_lenet(o, {8: 200, 256: 20} if o.check else {8: 20000, 256: 1000})


main()

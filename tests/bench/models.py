#!/usr/bin/env python3
"""models - CPU seconds of a training step of larger networks on one thread, beside PyTorch's.

    models.py --torch PYTHON [--build DIR] [--rounds N] [--steps N] [--case NAME]...
              [--kind eager|compiled]

gpt: 6 layers of width 384, 6 heads, context 256, 12 samples, AdamW.  resnet18: for images of
32 x 32, 128 samples, SGD with momentum.  Each in float32 and in bfloat16.

Each round runs every case with every contender, one after another: ours, and PyTorch eager and
compiled (torch_models.py).  The ratio is of CPU times, which other work on the machine disturbs
least; of ours it is the difference between a long and a short run, so that starting does not count.
The memory is the peak of the process.  The data are drawn anew; the figures do not depend on them.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import bench

CASES = {f"{model}, {precision}": (model, precision)
         for model in ("gpt", "resnet18") for precision in ("float32", "bfloat16")}
BATCH = {"gpt": 12, "resnet18": 128}
KINDS = ("eager", "compiled")


def write_data(folder):
    """Characters of 65 kinds, and CIFAR-10's binary format with 1,280 images."""
    draw = random.Random(1)
    with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
        file.write("".join(chr(33 + draw.randrange(65)) for _ in range(200_000)))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(1280):
                file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))


def job_of(model, precision, folder):
    train = dict(global_batch=BATCH[model], epochs=100, seed=1, validate_every=0)
    job = dict(name="bench", train=train, precision=precision, checkpoint=dict(every_epochs=0))
    if model == "gpt":
        return dict(job, model=dict(arch="gpt", layers=6, heads=6, width=384, context=256),
                    data=dict(format="text", path=os.path.join(folder, "text"), tokenizer="chars"),
                    optimizer=dict(name="adamw", lr=0.001))
    return dict(job, model=dict(arch="resnet18", stem="cifar"),
                data=dict(format="cifar10", path=folder),
                optimizer=dict(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.0005,
                               nesterov=True))


def run_driver(build, job, steps, work):
    """CPU seconds and peak MiB of a run"""
    run = os.path.join(work, "run")
    shutil.rmtree(run, ignore_errors=True)
    job["train"]["max_steps"] = steps
    with open(os.path.join(work, "job.yaml"), "w", encoding="utf-8") as file:
        json.dump(job, file)
    before = bench.cpu_of_children()
    done = subprocess.run([bench.driver_of(build), "--nranks", "1", "--threads", "1", "--port", "0",
                           "--job", os.path.join(work, "job.yaml"), "--run-dir", run],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-bench.TAIL:])
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    rss = next(e for e in events if e["event"] == "done").get("peak_rss_mib") or \
        next(e for e in events if e["event"] == "first_step")["rss_mib"]
    return bench.cpu_of_children() - before, max(rss) if isinstance(rss, list) else rss


def run_ours(args, case, work):
    job = job_of(*CASES[case], work)
    short, _ = run_driver(args.build, job, 2, work)
    long, rss = run_driver(args.build, job, 2 + args.steps, work)
    return dict(cpu_s=(long - short) / args.steps, rss_mib=rss)


def run_torch(args, case, kind):
    model, precision = CASES[case]
    done = subprocess.run(
        [args.torch, os.path.join(bench.HERE, "torch_models.py"), "--model", model, "--precision",
         precision, "--kind", kind, "--steps", str(args.steps), "--batch", str(BATCH[model])],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env=bench.clean_env(dict(threads=1), **bench.TUNED))
    if done.returncode:
        raise RuntimeError(done.stderr[-bench.TAIL:])
    return json.loads(done.stdout.splitlines()[-1])


def measure(args, work):
    """results[case][contender]: one dict for each round; a failed run is printed and left out"""
    results = {}
    for number in range(args.rounds):
        for case in args.case or CASES:
            for who in ("ours", *(args.kind or KINDS)):
                try:
                    said = run_ours(args, case, work) if who == "ours" else \
                        run_torch(args, case, who)
                    results.setdefault(case, {}).setdefault(who, []).append(said)
                except RuntimeError as failure:
                    said = f"failed: {failure}"
                print(f"round {number + 1}: {case}, {who}: {said}", file=sys.stderr, flush=True)
    return results


def table(results):
    lines = ["| case | ours: CPU s/step, MiB | PyTorch eager | compiled | ours is x its best "
             "| memory, of its least |", "|---|---|---|---|---|---|"]
    for case, row in results.items():
        middle = {who: (statistics.median(r["cpu_s"] for r in runs),
                        statistics.median(r["rss_mib"] for r in runs)) for who, runs in row.items()}
        cells = [f"{middle[who][0]:.3f}, {middle[who][1]:,.0f}" if who in middle else "-"
                 for who in ("ours", *KINDS)]
        theirs = [middle[who] for who in KINDS if who in middle]
        if "ours" in middle and theirs:
            cells += [f"{min(t[0] for t in theirs) / middle['ours'][0]:.2f}",
                      f"{middle['ours'][1] / min(t[1] for t in theirs):.2f}"]
        lines.append("| " + " | ".join([case, *cells]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--torch", required=True, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--kind", action="append", choices=KINDS, help="of PyTorch; else both")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="dptrain-models-")
    try:
        write_data(work)
        results = measure(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    commit, machine = bench.commit_and_cpu()
    print(f"\ncommit {commit}, {machine}, medians of {args.rounds}\n\n{table(results)}")


if __name__ == "__main__":
    main()

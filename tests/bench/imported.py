#!/usr/bin/env python3
"""imported - measures imported networks beside PyTorch on one CPU thread, in turn.

    imported.py [--build DIR] [--rounds N] [--steps N] [--case NAME]... [--precision NAME]...
                [--check]

Networks: resnet50 and vit (ViT-S/16) of torchvision, images of 224 x 224; llama (15 million
parameters, context 256) of transformers.  Each is exported once, and trained by AdamW from arrays
in memory: by ours in a run of its own, and by PyTorch's eager mode (torch_imported.py), compiled
mode, or both, in float32 and in bfloat16.  Each round runs every contender once, one after another,
so that a change in the machine's load affects all.

The table has medians of the rounds: samples/s by the median step, CPU milliseconds a step (PyTorch:
of the median step; ours: of the whole run, start and save included, so its steps take less), the
peak of memory, and how many times as fast, and as large, ours is beside the best of PyTorch's.

--check rehearses with tiny networks and measures nothing.
Exit status 0: measured; 1: a run failed; 77: no Python with torch, torchvision and transformers
(DPTRAIN_TORCH_PYTHON names one).
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

sys.path.insert(0, os.path.join(bench.ROOT, "tests", "interop"))
import find_torch  # noqa: E402

# network: samples of a batch, and the fields of the samples
CASES = {"resnet50": (8, "{x: x.npy, labels: y.npy}"), "vit": (8, "{x: x.npy, labels: y.npy}"),
         "llama": (4, "{input_ids: x.npy, labels: y.npy}")}
PRECISIONS = ("float32", "bfloat16")
SIDE = os.path.join(bench.HERE, "torch_imported.py")


def used_by(process):
    """CPU seconds and MiB of a child that is waited for here, and its status"""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def job_of(case, precision, steps, folder):
    batch, fields = CASES[case]
    return {"model": {"import": os.path.join(folder, "net.pt2")}, "precision": precision,
            "data": {"format": "npy", "path": folder, "train": fields, "validation": "none"},
            "train": {"global_batch": batch, "epochs": 1000, "max_steps": steps,
                      "validate_every": 0},
            "optimizer": {"name": "adamw", "lr": 1e-4}, "checkpoint": {"every_epochs": 0}}


def ours(options, case, precision, folder):
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    with open(os.path.join(folder, "job.yaml"), "w", encoding="ascii") as file:
        text = json.dumps(job_of(case, precision, options.steps, folder))
        file.write(text.replace(f'"{CASES[case][1]}"', CASES[case][1]))  # JSON is YAML
    env = {k: v for k, v in bench.clean_env({"threads": 1}).items() if k != "OMP_NUM_THREADS"}
    with open(os.path.join(folder, "ours.txt"), "w+", encoding="utf-8") as out:
        cpu, mib, status = used_by(subprocess.Popen(
            [bench.driver_of(options.build), "--nranks", "1", "--local", "--port", "0",
             "--device", "cpu", "--threads", "1", "--run-dir", run, "--job",
             os.path.join(folder, "job.yaml")], stdout=out, stderr=out, env=env))
        out.seek(0)
        if status:
            raise RuntimeError(out.read()[-bench.TAIL:])
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        epochs = [e for e in map(json.loads, file) if e["event"] == "epoch"]
    return {"ms": epochs[-1]["step_ms_median"], "cpu_ms": cpu * 1e3 / options.steps, "mib": mib}


def theirs(options, case, precision, mode, folder):
    command = [sys.executable, SIDE, folder, case, mode, precision, str(CASES[case][0]),
               str(options.steps), *(["--tiny"] if options.check else [])]
    return bench.finish([subprocess.Popen(
        command, env=bench.clean_env({"threads": 1}, **bench.TUNED), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)])


def show(case, precision, seen):
    """A row for each contender; `seen` has their rounds"""
    of = {who: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
          for who, rounds in seen.items()}
    best_ms = min(v["ms"] for who, v in of.items() if who != "ours")
    best_mib = min(v["mib"] for who, v in of.items() if who != "ours")
    for who, v in of.items():
        ratio = f"{best_ms / v['ms']:.2f} x, {v['mib'] / best_mib:.2f} of the memory"
        print(f"| {case} | {precision} | {who} | {CASES[case][0] * 1e3 / v['ms']:.2f} | "
              f"{v['ms']:.0f} | {v['cpu_ms']:.0f} | {v['mib']:.0f} | "
              f"{ratio if who == 'ours' else ''} |", flush=True)


def measure(options, case, folder):
    subprocess.run([sys.executable, SIDE, folder, case, "export", "float32",
                    str(CASES[case][0]), "0", *(["--tiny"] if options.check else [])], check=True,
                   stdout=subprocess.DEVNULL)
    modes = ("eager",) if options.check else ("eager", "compiled")
    for precision in options.precision or PRECISIONS:
        seen = {}
        for _ in range(options.rounds):
            seen.setdefault("ours", []).append(ours(options, case, precision, folder))
            for mode in modes:
                seen.setdefault(mode, []).append(theirs(options, case, precision, mode, folder))
        show(case, precision, seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        options.rounds, options.steps = 1, 2
    find_torch.need("torch", "torchvision", "transformers", "numpy")
    print(f"load average {os.getloadavg()[0]:.1f}\n\n| network | precision | who | samples/s | "
          "ms | CPU ms | MiB | ours |\n|---|---|---|---|---|---|---|---|", flush=True)
    for case in options.case or CASES:
        folder = tempfile.mkdtemp(prefix="dptrain-imported-")
        try:
            measure(options, case, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

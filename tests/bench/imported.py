#!/usr/bin/env python3
"""imported - measures imported networks beside PyTorch on one CPU thread, in turn.

    imported.py [--build DIR] [--rounds N] [--steps N] [--case NAME]... [--precision NAME]...
                [--own] [--check]

Networks: resnet50, resnet18 and vit (ViT-S/16) of torchvision, images of 224 x 224; llama (15
million parameters, 6 layers), gpt2 (12 million) and, if asked for, gpt2-124m of transformers,
context 256; folder (a Llama of 17 million, 8 layers, as config.json and model.safetensors). Each is
exported or saved once, and trained by AdamW from arrays in memory: by ours in a run of its own, and
by PyTorch's eager mode (torch_imported.py), compiled mode, or both, in float32 and in bfloat16;
vit, resnet18 and gpt2 also as our own architecture of that shape. Each round runs every contender
once, one after another, so that a change in the machine's load affects all.

The table has medians of the rounds: samples/s by the median step, CPU milliseconds a step (PyTorch:
of the median step; ours: of the whole run, start and save included, so its steps take less), the
peak of memory, and how many times as fast, and as large, ours is beside the best of PyTorch's; for
our own architecture how much of its time, CPU time and memory the import takes (wanted: 1.05 at
most).

--own compares with our own architectures alone.

--check rehearses with tiny networks in bfloat16 and measures nothing.
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
IMAGES, TOKENS = "{x: x.npy, labels: y.npy}", "{input_ids: x.npy, labels: y.npy}"
CASES = {"resnet50": (8, IMAGES), "vit": (8, IMAGES), "resnet18": (8, IMAGES), "llama": (4, TOKENS),
         "gpt2": (4, TOKENS), "gpt2-124m": (4, TOKENS), "folder": (4, "")}
STREAM = {"format": "tokens", "train": "train.bin"}
# network: our own architecture, and its data
OWN = {"vit": ({"arch": "vit", "image": 224, "patch": 16, "width": 384, "depth": 12, "heads": 6,
                "mlp": 1536}, {"format": "npy", "train": ["x.npy", "y.npy"]}),
       "resnet18": ({"arch": "resnet18"}, {"format": "npy", "train": ["x.npy", "y.npy"]}),
       "gpt2": ({"arch": "gpt", "layers": 6, "heads": 6, "width": 384, "context": 256,
                 "vocab": 4096}, STREAM)}
TINY = {"vit": {"image": 32, "depth": 1, "width": 48}, "resnet18": {},
        "gpt2": {"layers": 1, "width": 48, "context": 16, "vocab": 64}}
PRECISIONS = ("float32", "bfloat16")
SIDE = os.path.join(bench.HERE, "torch_imported.py")


def used_by(process):
    """CPU seconds and MiB of a child that is waited for here, and its status"""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def job_of(options, who, case, precision, folder):
    batch, fields = CASES[case]
    model, data = {"import": os.path.join(folder, "net.pt2")}, {"format": "npy", "train": fields}
    if not fields:
        model, data = {"import": os.path.join(folder, "net"), "context": 16 if options.check else
                       256}, STREAM
    if who == "own":
        model, data = OWN[case]
        model = {**model, **(TINY[case] if options.check else {})}
    return {"model": model, "precision": precision,
            "data": {"path": folder, "validation": "none", **data},
            "train": {"global_batch": batch, "epochs": 1000, "max_steps": options.steps,
                      "validate_every": 0},
            "optimizer": {"name": "adamw", "lr": 1e-4}, "checkpoint": {"every_epochs": 0}}


def ours(options, who, case, precision, folder):
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    with open(os.path.join(folder, "job.yaml"), "w", encoding="ascii") as file:
        text = json.dumps(job_of(options, who, case, precision, folder))  # JSON is YAML
        for fields in (IMAGES, TOKENS):
            text = text.replace(f'"{fields}"', fields)
        file.write(text)
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
    theirs_of = [v for who, v in of.items() if who not in ("ours", "own")]
    for who, v in of.items():
        ratio = ""
        if who == "ours" and theirs_of:
            best_ms, best_mib = (min(t[key] for t in theirs_of) for key in ("ms", "mib"))
            ratio = f"{best_ms / v['ms']:.2f} x, {v['mib'] / best_mib:.2f} of the memory"
        if who == "own":
            time, cpu, mib = (of["ours"][key] / v[key] for key in ("ms", "cpu_ms", "mib"))
            ratio = f"import: {time:.2f} of the time, {cpu:.2f} of CPU time, {mib:.2f} of memory"
        print(f"| {case} | {precision} | {who} | {CASES[case][0] * 1e3 / v['ms']:.2f} | "
              f"{v['ms']:.0f} | {v['cpu_ms']:.0f} | {v['mib']:.0f} | {ratio} |", flush=True)


def measure(options, case, folder):
    subprocess.run([sys.executable, SIDE, folder, case, "export", "float32",
                    str(CASES[case][0]), "0", *(["--tiny"] if options.check else [])], check=True,
                   stdout=subprocess.DEVNULL)
    modes = () if options.own else ("eager",) if options.check else ("eager", "compiled")
    for precision in options.precision or PRECISIONS:
        seen = {}
        for _ in range(options.rounds):
            for who in ("ours", "own") if case in OWN else ("ours",):
                seen.setdefault(who, []).append(ours(options, who, case, precision, folder))
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
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        options.rounds, options.steps, options.precision = 1, 2, ["bfloat16"]
    find_torch.need("torch", "torchvision", "transformers", "numpy")
    print(f"load average {os.getloadavg()[0]:.1f}\n\n| network | precision | who | samples/s | "
          "ms | CPU ms | MiB | ours |\n|---|---|---|---|---|---|---|---|", flush=True)
    for case in options.case or (OWN if options.own else [c for c in CASES if c != "gpt2-124m"]):
        folder = tempfile.mkdtemp(prefix="dptrain-imported-")
        try:
            measure(options, case, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""gpu_models - measures GPT-2 and ResNet-50 beside PyTorch on one GPU, in bfloat16, in turn.

    bench.py gpu-models [--build DIR] [--python PYTHON] [--rounds N] [--steps N] [--case NAME]...
                        [--minutes M] [--record] [--rehearse [cpu|cuda]]

gpt2: 124 million parameters, context 1024, 32 samples, AdamW, no dropout; the vocabulary is rounded
up to 50,304, as PyTorch's users do.  resnet50: images of 224 x 224, 256 samples, SGD with momentum.
The contenders are ours; ours with train.autotune; PyTorch eager and compiled (torch_gpu_models.py).
Ours reads its data (drawn tokens, drawn images in memory) and augments nothing; PyTorch has one
batch that lies ready.  Rates are those of steady training, without our first epoch, in which
libraries are loaded and the step is recorded.

Goals for an H200: gpt2 616,000 tokens/s (half of the card's peak), resnet50 6,000 images/s.

--minutes M  no run begins after so long; missing runs are named
--record     append the table to RESULTS.md beside this file
--rehearse   tiny networks on the CPU: it tests the script and measures nothing; with cuda, our part
             runs on a GPU, which may be a simulated one
Exit status 0: measured (the table says whether goals are met); 1: a run failed; 77: no GPU.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import gpu
import models

LIMIT_S = 300
KINDS = ("eager", "compiled")
OURS = {"ours": (), "ours, tuned": ("--set", "train.autotune=true")}
EPOCH, TINY_EPOCH = 10, 2  # steps
GPT2 = dict(model="gpt", layers=12, heads=12, width=768, context=1024, vocab=50304, batch=32)
RESNET50 = dict(model="resnet50", side=224, classes=1000, batch=256, lr=0.01)
# unit, of which a sample has `per_sample`; goal: units per second on an H200
CASES = {"gpt2": dict(GPT2, unit="tokens", per_sample=1024, goal=616_000),
         "resnet50": dict(RESNET50, unit="images", per_sample=1, goal=6_000)}
TINY = {"gpt2": dict(GPT2, layers=2, heads=2, width=32, context=16, vocab=64, batch=4,
                     unit="tokens", per_sample=16),
        "resnet50": dict(RESNET50, side=64, classes=4, batch=4, lr=1e-5, unit="images",
                         per_sample=1)}


def write_data(folder, case, steps):
    """Tokens or images for an epoch of so many steps."""
    n = steps * case["batch"]
    if case["model"] == "gpt":
        words = os.urandom(2 * (n * case["context"] + 1))
        tokens = bytearray(words)
        for i in range(0, len(words), 2):  # below the vocabulary, little-endian
            tokens[i + 1] = words[i + 1] % max(case["vocab"] // 256, 1)
            tokens[i] = words[i] % min(case["vocab"], 256)
        for name in ("train.bin", "val.bin"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(tokens)
        return
    side = case["side"]
    models.write_npy(os.path.join(folder, "x.npy"), "|u1", (n, side, side, 3),
                     os.urandom(n * side * side * 3))
    labels = b"".join((i % case["classes"]).to_bytes(2, "little") for i in range(n))
    models.write_npy(os.path.join(folder, "y.npy"), "<u2", (n,), labels)


def job_of(case, folder, steps):
    train = dict(global_batch=case["batch"], epochs=10_000, seed=1, max_steps=steps,
                 validate_every=0)
    job = dict(name="bench", train=train, precision="bfloat16", checkpoint=dict(every_epochs=0))
    if case["model"] == "gpt":
        sizes = {key: case[key] for key in ("layers", "heads", "width", "context", "vocab")}
        return dict(job, model=dict(sizes, arch="gpt", dropout=0),
                    data=dict(format="tokens", path=folder, train="train.bin",
                              validation="val.bin"),
                    optimizer=dict(name="adamw", lr=0.0006, betas=[0.9, 0.95], weight_decay=0.1))
    files = ["x.npy", "y.npy"]
    return dict(job, model=dict(arch="resnet50", classes=case["classes"]),
                data=dict(format="npy", path=folder, train=files, validation=files),
                optimizer=dict(name="sgd", lr=case["lr"], momentum=0.9, weight_decay=0.0001))


def run_ours(args, case, who, folder):
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job_of(case, folder, args.steps), file)
    start = time.time()
    driver = subprocess.Popen(
        [bench.driver_of(args.build), "--nranks", "1", "--port", "0", "--device", args.device,
         "--job", path, "--run-dir", run, *OURS[who]],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    [(_, err)] = bench.outputs_of([driver], LIMIT_S)
    if driver.returncode:
        raise RuntimeError(f"status {driver.returncode}: {err[-bench.TAIL:]}")
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        return bench.read_events([json.loads(line) for line in file], start)


def run_torch(args, case, kind):
    device = "cpu" if args.rehearse else "cuda"
    return bench.finish([subprocess.Popen(
        [args.python, os.path.join(bench.HERE, "torch_gpu_models.py"), "--case", json.dumps(case),
         "--kind", kind, "--steps", str(args.steps), "--device", device],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)],
        LIMIT_S)


def measure(args):
    """results[name][who]: each round's result; and one line for each run that is missing"""
    results, missing = {}, []
    until = time.monotonic() + 60 * args.minutes
    for name in args.case:
        folder = tempfile.mkdtemp(prefix="dptrain-gpu-models-")
        try:
            write_data(folder, args.cases[name], args.epoch)
            for number in range(1, args.rounds + 1):
                for who in (*OURS, *args.kinds):
                    run = f"{name}, {who}, round {number}"
                    said = attempt(args, name, who, folder) if time.monotonic() < until else \
                        "no time was left"
                    print(f"{run}: {said}", file=sys.stderr, flush=True)
                    if isinstance(said, str):
                        missing.append(f"{run}: {said}")
                    else:
                        results.setdefault(name, {}).setdefault(who, []).append(said)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return results, missing


def attempt(args, name, who, folder):
    """The result of a run, or a text that says why there is none"""
    try:
        return run_ours(args, args.cases[name], who, folder) if who in OURS else \
            run_torch(args, args.cases[name], who)
    except Exception as failure:  # pylint: disable=broad-except
        return gpu.reason_of(failure)


def rows(args, results):
    yield "| network | who | rate, median (range) | ours, tuned, is x | MiB |"
    yield "|---|---|---|---|---|"
    for name, row in results.items():
        case = args.cases[name]
        ours = [r["samples_per_second"] for r in row.get("ours, tuned", [])]
        for who, runs in row.items():
            rates = [r["samples_per_second"] * case["per_sample"] for r in runs]
            middle = statistics.median(rates)
            ratio = "" if who in OURS or not ours else \
                f"{statistics.median(ours) * case['per_sample'] / middle:.2f}"
            if who == "ours, tuned" and "goal" in case:
                ratio = ("meets " if middle >= case["goal"] else "misses ") + f"{case['goal']:,}"
            memory = [f"{r['mib']:,.0f}" for r in runs if r.get("mib")]
            yield (f"| {name} | {who} | {middle:,.0f} {case['unit']}/s ({min(rates):,.0f} to "
                   f"{max(rates):,.0f}) | {ratio} | {memory[-1] if memory else ''} |")


def report(args, results, missing):
    commit, machine = bench.commit_and_cpu()
    theirs = [r for row in results.values() for runs in row.values() for r in runs if "gpu" in r]
    versions = f"PyTorch {theirs[0]['version']}, cuDNN {theirs[0]['cudnn']}, GPU: " \
        f"{theirs[0]['gpu']}" if theirs else "no PyTorch"
    rehearsed = "REHEARSED, NOTHING MEASURED: " if args.rehearse else ""
    lines = [f"## {rehearsed}{time.strftime('%Y-%m-%d %H:%M')}, commit {commit}, larger networks "
             "on one GPU", "", f"{machine}; {versions}; bfloat16; `bench.py gpu-models`.", "",
             *rows(args, results)]
    if missing:
        lines += ["", "Not measured:", "", *(f"- {line}" for line in missing)]
    return "\n".join(lines) + "\n"


def parse(argv):
    parser = argparse.ArgumentParser(prog="bench.py gpu-models",
                                     description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--python", help="one with PyTorch ($DPTRAIN_TORCH_PYTHON, or this one)",
                        default=os.environ.get("DPTRAIN_TORCH_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6 * EPOCH)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    parser.add_argument("--rehearse", nargs="?", const="cpu", choices=("cpu", "cuda"),
                        help="tiny networks, PyTorch's on the CPU, ours there or on a GPU")
    args = parser.parse_args(argv)
    args.case = args.case or list(CASES)
    args.device = args.rehearse or "cuda"
    args.cases, args.epoch = (TINY, TINY_EPOCH) if args.rehearse else (CASES, EPOCH)
    if args.rehearse:
        args.rounds, args.steps, args.record = 1, 2 * TINY_EPOCH, False
    return args


def main(argv):
    args = parse(argv)
    if not args.rehearse and gpu.count_gpus() == 0:
        print("skipped: no NVIDIA GPU here (nvidia-smi lists none); --rehearse runs it on the CPU")
        return 77
    args.kinds = [kind for kind in gpu.torch_kinds(args) if kind in KINDS]
    if args.rehearse:
        # Compiling takes minutes on a CPU, and PyTorch 1 lacks what torch_gpu_models.py calls.
        args.kinds = args.kinds[:1] if "compiled" in args.kinds else []
    results, missing = measure(args)
    if not args.kinds and not args.rehearse:
        missing.append(f"PyTorch: {args.python} has none; --python names one that has")
    text = report(args, results, missing)
    print("\n" + text)
    if args.record:
        bench.record(text)
    return 1 if missing else 0

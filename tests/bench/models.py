#!/usr/bin/env python3
"""models - the time of a training step of larger networks beside PyTorch's, one thread a rank.

    models.py --torch PYTHON [--build DIR] [--rounds N] [--steps N] [--minutes M]
              [--case NAME]... [--kind eager|compiled]...

gpt: 6 layers of width 384, 6 heads, context 256, 12 samples, AdamW.  resnet18: for images of 32 x
32, 128 samples, SGD with momentum.  vit_tiny: images of 224 x 224, 32 samples, AdamW.  lstm and
gru: one layer of 256 units, 100 steps of 256 numbers, 32 samples, SGD.  imported: networks of
torchvision and transformers as torch.export writes them, AdamW: resnet50 and vit_small for images
of 224 x 224, and a llama of 15 million parameters for 256 tokens.  The cases with 2 ranks compare
with two processes of DistributedDataParallel over gloo, eager.

Each round runs every case with every contender, one after another: ours, and PyTorch eager and
compiled (torch_models.py); both have channels_last, fused optimizers and a kept allocator.
After so many --minutes no run begins, and the table tells what there is by then.

The ratio of CPU times is what other work on the machine disturbs least; of ours it is the
difference between a long and a short run, so that starting does not count.  The ratio of wall times
is that of the median step, and needs an idle machine.  The memory is the peak of a process.  The
data are drawn anew; the figures do not depend on them.
"""
import argparse
import array
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench

# name: model, precision, ranks
CASES = {
    "gpt, float32": ("gpt", "float32", 1),
    "gpt, bfloat16": ("gpt", "bfloat16", 1),
    "resnet18, float32": ("resnet18", "float32", 1),
    "resnet18, bfloat16": ("resnet18", "bfloat16", 1),
    "vit_tiny, bfloat16": ("vit_tiny", "bfloat16", 1),
    "lstm, float32": ("lstm", "float32", 1),
    "gru, float32": ("gru", "float32", 1),
    **{f"imported {name}, {precision}": (name, precision, 1)
       for name in ("resnet50", "vit_small", "llama") for precision in ("float32", "bfloat16")},
    "gpt, float32, 2 ranks": ("gpt", "float32", 2),
    "resnet18, float32, 2 ranks": ("resnet18", "float32", 2),
}
BATCH = {"gpt": 12, "resnet18": 128, "vit_tiny": 32, "lstm": 32, "gru": 32, "resnet50": 8,
         "vit_small": 8, "llama": 4}
FOREIGN = ("resnet50", "vit_small", "llama")
TOKENS = 8192  # of the llama
KINDS = ("eager", "compiled")


def write_npy(path, dtype, shape, content):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        file.write(content)


def write_data(folder):
    """Characters of 65 kinds, CIFAR-10's binary format with 1,280 images, and 64 large images."""
    draw = random.Random(1)
    with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
        file.write("".join(chr(33 + draw.randrange(65)) for _ in range(200_000)))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(1280):
                file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))
    n = 2 * BATCH["vit_tiny"]
    write_npy(os.path.join(folder, "x.npy"), "|u1", (n, 224, 224, 3), draw.randbytes(n * 150528))
    write_npy(os.path.join(folder, "y.npy"), "|u1", (n,), bytes(i % 10 for i in range(n)))
    steps = array.array("f", (draw.uniform(-1, 1) for _ in range(n * 100 * 256)))
    write_npy(os.path.join(folder, "steps.npy"), "<f4", (n, 100, 256), steps.tobytes())
    write_npy(os.path.join(folder, "tokens.npy"), "<u2", (50_000,),
              b"".join(draw.randrange(TOKENS).to_bytes(2, "little") for _ in range(50_000)))


def job_of(model, precision, folder):
    train = dict(global_batch=BATCH[model], epochs=100, seed=1, validate_every=0)
    job = dict(name="bench", train=train, precision=precision, checkpoint=dict(every_epochs=0))
    if model == "gpt":
        return dict(job, model=dict(arch="gpt", layers=6, heads=6, width=384, context=256),
                    data=dict(format="text", path=os.path.join(folder, "text"), tokenizer="chars"),
                    optimizer=dict(name="adamw", lr=0.001))
    if model == "vit_tiny":
        files = ["x.npy", "y.npy"]
        return dict(job, model=dict(arch="vit_tiny"), optimizer=dict(name="adamw", lr=0.001),
                    data=dict(format="npy", path=folder, train=files, validation=files))
    if model in ("lstm", "gru"):
        files = ["steps.npy", "y.npy"]
        layers = [{model: {"units": 256, "return": "last"}}, {"linear": {"units": 10}}]
        return dict(job, model=dict(arch="layers", layers=layers),
                    optimizer=dict(name="sgd", lr=0.1),
                    data=dict(format="npy", path=folder, train=files, validation=files))
    if model in FOREIGN:
        kind, files = ("tokens", "tokens.npy") if model == "llama" else ("npy", ["x.npy", "y.npy"])
        data = dict(format=kind, path=folder, train=files, validation=files)
        return dict(job, data=data, optimizer=dict(name="adamw", lr=0.001),
                    model={"import": os.path.join(folder, f"{model}.pt2")})
    return dict(job, model=dict(arch="resnet18", stem="cifar"),
                data=dict(format="cifar10", path=folder),
                optimizer=dict(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.0005,
                               nesterov=True))


def run_driver(build, job, ranks, steps, work):
    """CPU seconds of a rank, seconds of the median step, and peak MiB of a rank"""
    run = os.path.join(work, "run")
    shutil.rmtree(run, ignore_errors=True)
    job["train"]["max_steps"] = steps
    with open(os.path.join(work, "job.yaml"), "w", encoding="utf-8") as file:
        json.dump(job, file)
    before = bench.cpu_of_children()
    done = subprocess.run([bench.driver_of(build), "--nranks", str(ranks), "--local", "--threads",
                           "1", "--port", "0", "--job", os.path.join(work, "job.yaml"),
                           "--run-dir", run],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-bench.TAIL:])
    cpu = (bench.cpu_of_children() - before) / ranks
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    wall = [e["step_ms_median"] / 1e3 for e in events if e["event"] == "epoch"][-1]
    return cpu, wall, max(next(e for e in events if e["event"] == "done")["peak_rss_mib"])


def export(args, model, path):
    done = subprocess.run([args.torch, os.path.join(bench.HERE, "torch_models.py"), "--model",
                           model, "--export", path], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-bench.TAIL:])


def run_ours(args, case, work):
    model, precision, ranks = CASES[case]
    path = os.path.join(work, f"{model}.pt2")
    if model in FOREIGN and not os.path.exists(path):
        export(args, model, path)
    job = job_of(model, precision, work)
    run_driver(args.build, job, ranks, 2, work)  # some VMs take seconds to touch new memory
    short, _, _ = run_driver(args.build, job, ranks, 2, work)
    long, wall, rss = run_driver(args.build, job, ranks, 2 + args.steps, work)
    return dict(cpu_s=(long - short) / args.steps, wall_s=wall, rss_mib=rss)


def run_torch(args, case, kind):
    model, precision, ranks = CASES[case]
    command = [args.torch, os.path.join(bench.HERE, "torch_models.py"), "--model", model,
               "--precision", precision, "--kind", kind, "--steps", str(args.steps), "--batch",
               str(BATCH[model])]
    more = dict(bench.TUNED, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(bench.free_port()),
                WORLD_SIZE=str(ranks))
    return bench.finish([
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True,
                         env=bench.clean_env(dict(threads=1), RANK=str(rank), **more))
        for rank in range(ranks)])


def contenders(args, case):
    return ["ours"] + [kind for kind in args.kind or KINDS
                       if CASES[case][2] == 1 or kind == "eager"]


def measure(args, work):
    """results[case][contender]: one dict for each round; a failed run is printed and left out"""
    results, until = {}, time.monotonic() + 60 * args.minutes
    for number in range(args.rounds):
        for case in args.case or CASES:
            for who in contenders(args, case):
                if time.monotonic() > until:
                    continue
                try:
                    said = run_ours(args, case, work) if who == "ours" else \
                        run_torch(args, case, who)
                    results.setdefault(case, {}).setdefault(who, []).append(said)
                except RuntimeError as failure:
                    said = f"failed: {failure}"
                print(f"round {number + 1}: {case}, {who}: {said}", file=sys.stderr, flush=True)
    return results


def table(results):
    """A row for each case, from the medians of its rounds."""
    lines = ["| case | ours: CPU s/step, wall s/step, MiB | PyTorch eager | compiled "
             "| ours is x its best, by CPU time | by wall time | memory, of its least |",
             "|---|---|---|---|---|---|---|"]
    keys = ("cpu_s", "wall_s", "rss_mib")
    for case, row in results.items():
        middle = {who: [statistics.median(r[key] for r in runs) for key in keys]
                  for who, runs in row.items()}
        cells = [f"{middle[who][0]:.3f}, {middle[who][1]:.3f}, {middle[who][2]:,.0f}"
                 if who in middle else "-" for who in ("ours", *KINDS)]
        theirs = [middle[who] for who in KINDS if who in middle]
        if "ours" in middle and theirs:
            least = [min(t[i] for t in theirs) for i in range(len(keys))]
            ours = middle["ours"]
            cells += [f"{least[0] / ours[0]:.2f}", f"{least[1] / ours[1]:.2f}",
                      f"{ours[2] / least[2]:.2f}"]
        lines.append("| " + " | ".join([case, *cells]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--torch", required=True, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=15)
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

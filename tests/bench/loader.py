#!/usr/bin/env python3
"""loader - how fast batches are made, without training.

    loader.py [--build DIR] [--torch PYTHON] [--rounds N] [--record] [--check]

  cifar    images of 32 x 32 with crops of 4 pixels, flips and normalisation, batch 128: samples a
           second of CPU time, which is the rate of one core
  tokens   deploy/examples/shakespeare-gpt.yaml: the CPU time of making a batch, as a share of a
           training step's on one thread
  jpeg     (with --torch) JPEG files of 500 x 375 pixels, a drawn part of each resized to 224 x 224,
           flips and normalisation, batch 32, by 1 and by 2 workers: samples a second, beside
           torchvision's ImageFolder and DataLoader with as many (torch_loader.py).  Both read the
           same files, which torch_loader.py has drawn, from the page cache.  Once more with
           data.cache, whose file is made before

Contenders take turns, --rounds times each (3), and the medians count.  --record appends the table
to RESULTS.md beside this file.  --check reads little, and only asks whether all figures are there.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import bench

GOAL_CIFAR, GOAL_JPEG = 50_000, 1.5  # samples a second of a core; times torchvision's rate
N_FILES = 256
AUGMENT_CIFAR = dict(crop=4, flip=True)
AUGMENT_JPEG = dict(random_resized_crop=True, flip=True)
NORMALIZE = dict(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


def run(words, **more):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stderr[-bench.TAIL:]}")
    return done.stdout


def write_job(work, name, **sections):
    path = os.path.join(work, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(sections, file)
    return path


def ours(args, job, samples, *sets):
    """Samples, seconds and CPU seconds"""
    said = run([os.path.join(args.build, "tests", "bench", "loader"), job, str(samples),
                *sets]).split()
    return int(said[0]), float(said[1]), float(said[2])


def cifar_job(work):
    draw = random.Random(1)
    with open(os.path.join(work, "images.bin"), "wb") as file:
        for _ in range(2560):
            file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))
    return write_job(work, "cifar", model=dict(arch="resnet18", stem="cifar"),
                     data=dict(format="cifar10", path=work, train="images.bin",
                               augment=AUGMENT_CIFAR, normalize=NORMALIZE),
                     train=dict(global_batch=128))


def measure_cifar(args, work):
    job = cifar_job(work)
    rates = []
    for _ in range(args.rounds):
        n, _, cpu = ours(args, job, 2_000 if args.check else 400_000)
        rates.append(n / cpu)
    return rates


def gpt_words(work):
    draw = random.Random(1)
    path = os.path.join(work, "text")
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(chr(33 + draw.randrange(65)) for _ in range(500_000)))
    return [os.path.join(bench.ROOT, "deploy", "examples", "shakespeare-gpt.yaml"),
            f"data.path={path}"]


def measure_tokens(args, work):
    """(microseconds of CPU time to make a batch, milliseconds of a step), one for each round"""
    job, data = gpt_words(work)
    results = []
    for number in range(args.rounds):
        n, _, cpu = ours(args, job, 1_200 if args.check else 600_000, data)
        folder = os.path.join(work, f"run{number}")
        words = [bench.driver_of(args.build), "--nranks", "1", "--threads", "1", "--port", "0",
                 "--job", job, "--run-dir", folder]
        for text in (data, f"train.max_steps={5 if args.check else 200}",
                     "schedule.warmup_steps=0", "train.validate_every=0",
                     "checkpoint.every_epochs=0"):
            words += ["--set", text]
        run(words)
        with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as file:
            epochs = [e for e in map(json.loads, file) if e["event"] == "epoch"]
        results.append((1e6 * cpu * 12 / n, epochs[-1]["step_ms_median"]))
    return results


def torch_reads(args, folder, workers, samples):
    said = json.loads(run([args.torch, os.path.join(bench.HERE, "torch_loader.py"), "read", folder,
                           "--workers", str(workers), "--samples", str(samples)]))
    return said["samples"], said["seconds"], said["cpu_s"]


def measure_jpeg(args, work):
    """{workers: {who: [(samples a second, CPU milliseconds a sample)]}}"""
    folder = os.path.join(work, "train")
    run([args.torch, os.path.join(bench.HERE, "torch_loader.py"), "make", folder, str(N_FILES)])
    results = {}
    for _ in range(args.rounds):
        for workers in (1, 2):
            job = write_job(work, f"jpeg{workers}", model=dict(arch="resnet50"),
                            data=dict(format="images", path=work, validation="none",
                                      workers=workers, augment=AUGMENT_JPEG, normalize=NORMALIZE),
                            train=dict(global_batch=32))
            for who, (n, seconds, cpu) in (
                    ("ours", ours(args, job, 2048 * workers)),
                    ("cached", ours(args, job, 8192 * workers, f"data.cache={work}")),
                    ("torchvision", torch_reads(args, folder, workers, 1024 * workers))):
                results.setdefault(workers, {}).setdefault(who, []).append(
                    (n / seconds, 1000 * cpu / n))
    return results


def middle(values):
    return statistics.median(values)


def lines_of(args, work):
    rates = measure_cifar(args, work)
    lines = [f"CIFAR, crop and flip: {middle(rates):,.0f} samples/s a core "
             f"({min(rates):,.0f} to {max(rates):,.0f}; goal {GOAL_CIFAR:,})."]
    tokens = measure_tokens(args, work)
    us, ms = middle(t[0] for t in tokens), middle(t[1] for t in tokens)
    lines.append(f"Tokens: a batch of 12 x 64 takes {us:.1f} us, {us / ms / 10:.3f} % of a step "
                 f"of {ms:.1f} ms.")
    if not args.torch:
        return lines
    lines += ["", "| JPEG at 224 px, workers | ours: samples/s, CPU ms each | torchvision "
              f"| ours is x (goal {GOAL_JPEG}) | by CPU time | with data.cache |",
              "|---|---|---|---|---|---|"]
    for workers, row in measure_jpeg(args, work).items():
        rate = {who: middle(v[0] for v in values) for who, values in row.items()}
        cpu = {who: middle(v[1] for v in values) for who, values in row.items()}
        lines.append(f"| {workers} | " + " | ".join(
            f"{rate[who]:,.0f}, {cpu[who]:.2f}" for who in ("ours", "torchvision")) +
            f" | {rate['ours'] / rate['torchvision']:.2f} "
            f"| {cpu['torchvision'] / cpu['ours']:.2f} "
            f"| {rate['cached']:,.0f}, {cpu['cached']:.3f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--torch", metavar="PYTHON", help="one with torchvision and Pillow")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.rounds = 1 if args.check else args.rounds
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="dptrain-loader-") as work:
        lines = lines_of(args, work)
    commit, machine = bench.commit_and_cpu()
    text = (f"## Making batches, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}\n\n"
            f"{machine}; `tests/bench/loader.py --rounds {args.rounds}`, medians; load average "
            f"before {load:.1f}.\n\n" + "\n".join(lines) + "\n")
    print(text)
    if args.record:
        bench.record(text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""accuracy - trains MNIST by the README's recipe, and compares the accuracy with PyTorch's.

    accuracy.py [--build DIR] [--quick] [--ranks N,...] [--seeds N,...] [--init NAME,...]
                [--epochs N] [--torch PYTHON] [--work DIR] [--record]
    accuracy.py --network resnet18 [--precision float32|bfloat16] [the same options]

LeNet, global batch 256, SGD with rate 0.2, 10 epochs, by the real daemons (dpdriver --local), for
1, 2 and 4 ranks, three seeds and two inits: `pytorch` (each layer's default) and `normal` (weights
N(0, 0.01^2), biases 0, as d2l has it).  Accuracy is that of t10k over all ranks.  The criterion:
after the last epoch the mean over the seeds lies within 0.3 points of PyTorch's for the same
recipe, whatever the number of ranks.  Beside it the table has the mean over the last three epochs,
which varies less.  Each run's events.jsonl is checked against the contract
(tests/interop/check_events.py).

--network resnet18 is another recipe: ResNet-18 by deploy/examples/cifar10-resnet18.yaml on the
10,000 images of CIFAR-10's data_batch_1, 15 epochs with crops and flips, one rank, one seed, in
bfloat16 on both sides.  The accuracy is that of test_batch after the last epoch, and is to lie
within one point of PyTorch's, which has to be measured (--torch).  On one free core each side takes
25 minutes (Zen 5) to 45 (Zen 4); --epochs 5 gives a first figure.

--quick    one seed, 2 ranks, PyTorch's init: about two minutes on two free cores
--torch    run PyTorch's side, too, with this Python: the same seeds, one process; without it
           ours is compared with PyTorch's earlier results
--work     keep the runs in DIR, and use runs that are complete there, so that a table can be made
           in parts (with the same build)
--record   append the table to RESULTS.md beside this file

Exit status 0: all means asked for meet the criterion; 1: one does not, or a run failed; 77: no
data.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "interop"))
import bench  # noqa: E402
import check_events  # noqa: E402

DATA = os.path.abspath(os.environ.get("DPTRAIN_DATA",
                                      os.path.join(ROOT, "..", "shared", "data")))
LENET = """\
name: lenet-mnist
model: {{arch: lenet, init: {init}}}
data: {{format: mnist, path: {data}, validation: t10k}}
train: {{global_batch: 256, epochs: {epochs}, seed: {seed}}}
optimizer: {{name: sgd, lr: 0.2}}
precision: float32
checkpoint: {{every_epochs: 1, keep: 1}}
"""
EXAMPLE = os.path.join(ROOT, "deploy", "examples", "cifar10-resnet18.yaml")
# network: its data, inits, epochs, ranks, seeds, precision, most points away from PyTorch, and
# after how many epochs it is validated (0: after the last alone)
RECIPES = {
    "lenet": dict(data="mnist", init=["pytorch", "normal"], epochs=10, ranks=[1, 2, 4],
                  seeds=[1, 2, 3], precision="float32", tolerance=0.3, every=1),
    "resnet18": dict(data="cifar-10-binary", init=["pytorch"], epochs=15, ranks=[1], seeds=[1],
                     precision="bfloat16", tolerance=1.0, every=0),
}
# PyTorch's earlier results with this recipe, in percent: from, to.
THEIRS = {"pytorch": (98.7, 98.7), "normal": (98.0, 98.4)}
INIT = {"pytorch": "{name: pytorch}", "normal": "{name: normal, std: 0.01}"}


class Failed(Exception):
    pass


def job_words(args, run, init, seed):
    """The driver's arguments for a job."""
    if args.network == "resnet18":
        values = {"data.path": args.data, "data.train": "data_batch_1.bin", "train.seed": seed,
                  "train.epochs": args.epochs, "train.validate_every": args.every,
                  "precision": args.precision, "checkpoint.keep": 1}
        return ["--job", EXAMPLE, *(word for key, value in values.items()
                                    for word in ("--set", f"{key}={value}"))]
    with open(run + ".yaml", "w", encoding="utf-8") as file:
        file.write(LENET.format(init=INIT[init], data=args.data, epochs=args.epochs, seed=seed))
    return ["--job", run + ".yaml"]


def name_of(args, *parts):
    lenet = [] if args.network == "lenet" else [args.network, args.precision]
    return "-".join(map(str, [*lenet, *parts, args.epochs]))


def train(args, work, init, ranks, seed):
    """The run's epoch events; it is trained unless the run is there already."""
    run = os.path.join(work, name_of(args, init, ranks, seed))
    log = run + ".log"
    if not os.path.exists(os.path.join(run, "events.jsonl")) or not check_events.of_kind(
            check_events.read(run), "done"):
        words = [os.path.join(args.build, "driver", "dpdriver"), "--nranks", str(ranks), "--local",
                 "--port", "0", "--threads", "1", "--run-dir", run,
                 *job_words(args, run, init, seed)]
        words += ["--resume"] if os.path.exists(run) else []
        with open(log, "a", encoding="utf-8") as file:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                    check=False).returncode
        if status:
            with open(log, encoding="utf-8", errors="replace") as file:
                raise Failed(f"{run}: exit status {status}:\n{file.read()[-1000:]}")
    events = check_events.read(run)
    whole = len(check_events.of_kind(events, "start")) == 1
    bad = check_events.problems(run, nranks=ranks, whole=whole, validated=args.every == 1)
    if bad:
        raise Failed(f"{run}/events.jsonl:\n" + "\n".join(bad))
    return [e for e in check_events.of_kind(events, "epoch") if "validation_accuracy" in e]


def measure(args, work):
    """{(init, ranks): [accuracies after each epoch in percent, one list a seed]}, failures"""
    results, n_failed = {}, 0
    for init in args.init:
        for seed in args.seeds:
            for ranks in args.ranks:
                try:
                    epochs = train(args, work, init, ranks, seed)
                except Failed as why:
                    print(why, file=sys.stderr)
                    n_failed += 1
                    continue
                end = epochs[-1]
                results.setdefault((init, ranks), []).append(
                    [100 * epoch["validation_accuracy"] for epoch in epochs])
                print(f"init {init}, {ranks} ranks, seed {seed}: "
                      f"{100 * end['validation_accuracy']:.2f} %, losses "
                      f"{end['train_loss']:.4f} {end['validation_loss']:.4f}, "
                      f"{statistics.median(e['samples_per_second'] for e in epochs):,.0f} "
                      "samples/s", file=sys.stderr, flush=True)
    return results, n_failed


def measure_torch(args, work):
    """{init: [PyTorch's accuracies after each epoch in percent, one list a seed]}"""
    results = {}
    for init in args.init if args.torch else []:
        for seed in args.seeds:
            kept = os.path.join(work, name_of(args, "torch", init, seed) + ".json")
            if not os.path.exists(kept):
                done = subprocess.run(
                    [args.torch, os.path.join(HERE, "torch_accuracy.py"), "--network",
                     args.network, "--data", args.data, "--init", init, "--precision",
                     args.precision, "--epochs", str(args.epochs), "--every", str(args.every),
                     "--seed", str(seed)],
                    env=dict(os.environ, **bench.TUNED), stdout=subprocess.PIPE, text=True,
                    check=True).stdout
                with open(kept, "w", encoding="utf-8") as file:
                    file.write(done)
            with open(kept, encoding="utf-8") as file:
                results.setdefault(init, []).append(json.loads(file.read())["accuracy"])
    return results


def last(runs):
    return [run[-1] for run in runs]


def late(runs):
    """The mean over the last three epochs: a single epoch's accuracy varies by up to half a
    point."""
    return statistics.mean(statistics.mean(run[-3:]) for run in runs)


def distance(init, runs, measured):
    """The mean's distance from PyTorch's mean, or from the middle of its earlier results if it was
    not measured."""
    theirs = last(measured[init]) if init in measured else THEIRS[init]
    return statistics.mean(last(runs)) - statistics.mean(theirs)


def cells(runs):
    values = last(runs)
    return (f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f}) "
            f"| {late(runs):.2f}")


def row(args, init, ranks, runs, measured):
    away = distance(init, runs, measured)
    verdict = "meets" if abs(away) <= args.tolerance else "misses"
    late_away = f"{late(runs) - late(measured[init]):+.2f}" if init in measured else ""
    return (f"| {init} | {ranks} | {len(runs)} | {cells(runs)} | {away:+.2f} ({verdict} "
            f"{args.tolerance}) | {late_away} |")


def torch_row(init, runs):
    return f"| {init} | PyTorch | {len(runs)} | {cells(runs)} | | |"


def table(args, results, measured):
    head = ["| init | ranks | seeds | last epoch, mean % (range) | last three, mean % "
            "| last, away from PyTorch | last three |",
            "|---|---|---|---|---|---|---|"]
    rows = [row(args, *key, runs, measured) for key, runs in sorted(results.items())]
    return "\n".join(head + rows + [torch_row(*item) for item in sorted(measured.items())])


def describe(args):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=False,
                            capture_output=True, text=True).stdout.strip()
    described = {
        "lenet": "MNIST, lenet, global batch 256, lr 0.2",
        "resnet18": f"CIFAR-10's data_batch_1, ResNet-18 in {args.precision}, crops and flips, "
                    "deploy/examples/cifar10-resnet18.yaml",
    }
    return (f"## Accuracy, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}\n\n"
            f"{described[args.network]}, {args.epochs} epochs; the test set over all ranks, "
            f"seeds {', '.join(map(str, args.seeds))}.\n")


def names(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in names(text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--network", choices=list(RECIPES), default="lenet")
    parser.add_argument("--precision", choices=("float32", "bfloat16"))
    parser.add_argument("--ranks", type=numbers)
    parser.add_argument("--seeds", type=numbers)
    parser.add_argument("--init", type=names)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--torch", metavar="PYTHON", help="one with PyTorch")
    parser.add_argument("--work", help="a folder to keep the runs in")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = parser.parse_args()
    recipe = RECIPES[args.network]
    if args.quick:
        args.ranks, args.seeds, args.init = [2], [1], ["pytorch"]
    for key in ("precision", "ranks", "seeds", "init", "epochs"):
        setattr(args, key, getattr(args, key) or recipe[key])
    args.tolerance, args.every = recipe["tolerance"], recipe["every"] or args.epochs
    args.data = os.path.join(DATA, recipe["data"])
    if unknown := [name for name in args.init if name not in recipe["init"]]:
        parser.error(f"unknown init {unknown[0]}; known: {', '.join(recipe['init'])}")
    if args.network == "lenet" and args.precision != "float32":
        parser.error("lenet's recipe is in float32")
    if args.network == "resnet18" and not args.torch:
        parser.error("resnet18 is compared with PyTorch's: give --torch PYTHON")
    if not os.path.isdir(args.data):
        print(f"skipped: no {args.data}; set DPTRAIN_DATA to the folder that holds it")
        return 77
    with tempfile.TemporaryDirectory(prefix="dptrain-accuracy-") as scratch:
        work = os.path.abspath(args.work or scratch)
        os.makedirs(work, exist_ok=True)
        theirs = measure_torch(args, work)
        results, n_failed = measure(args, work)
    text = describe(args) + "\n" + table(args, results, theirs) + "\n"
    print("\n" + text)
    if args.record and results:
        with open(os.path.join(HERE, "RESULTS.md"), "a", encoding="utf-8") as file:
            file.write("\n" + text)
    means = [abs(distance(init, runs, theirs)) for (init, _), runs in results.items()]
    return 1 if n_failed or not means or max(means) > args.tolerance else 0


sys.exit(main())

#!/usr/bin/env python3
"""accuracy - trains networks by known recipes, and compares accuracy or loss with PyTorch's.

    accuracy.py [--build DIR] [--quick] [--ranks N,...] [--seeds N,...] [--init NAME,...]
                [--epochs N] [--torch PYTHON] [--work DIR] [--record]
    accuracy.py --network resnet18|gpt [--precision float32|bfloat16,...] [the same options]

LeNet on MNIST by the README's recipe: global batch 256, SGD with rate 0.2, 10 epochs, for 1, 2 and
4 ranks, three seeds and two inits: `pytorch` (each layer's default) and `normal` (weights
N(0, 0.01^2), biases 0, as d2l has it).  Accuracy is that of t10k over all ranks.  The criterion:
after the last epoch the mean over the seeds lies within 0.3 points of PyTorch's for the same
recipe, whatever the number of ranks.  Beside it the table has the mean over the last three epochs,
which varies less.  All runs are by the real daemons (dpdriver --local), and each run's
events.jsonl is checked against the contract (tests/interop/check_events.py).

--network resnet18 is another recipe: ResNet-18 by deploy/examples/cifar10-resnet18.yaml on the
10,000 images of CIFAR-10's data_batch_1, 15 epochs with crops and flips, one rank, one seed, in
bfloat16 on both sides.  The accuracy is that of test_batch after the last epoch, and is to lie
within one point of PyTorch's, which has to be measured (--torch).  On one free core each side takes
25 minutes (Zen 5) to 45 (Zen 4); --epochs 5 gives a first figure.

--network gpt is nanoGPT's recipe for CPUs on the characters of tinyshakespeare, by
deploy/examples/shakespeare-gpt.yaml: 2,000 steps, one rank, one seed, in float32 and in bfloat16.
The figure is the loss on the last tenth of the text after the last step, and is to be at most 1.90.
PyTorch's, if it is measured, stands beside it and decides nothing.

--quick    one seed, 2 ranks, one init (LeNet: PyTorch's): LeNet takes about two minutes on two
           free cores
--torch    run PyTorch's side, too, with this Python: the same seeds, one process; without it
           ours is compared with PyTorch's earlier results
--work     keep the runs in DIR, and use runs that are complete there, so that a table can be made
           in parts (with the same build)
--record   append the table to RESULTS.md beside this file

Exit status 0: all means asked for meet the criterion; 1: one does not, or a run failed; 77: no
data.
"""
import argparse
import itertools
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
EXAMPLES = os.path.join(ROOT, "deploy", "examples")
PRECISIONS = ("float32", "bfloat16")
# network: its data, inits, epochs, ranks, seeds, precisions, after how many epochs it is validated
# (0: after the last alone), and the goal: `tolerance`, the most points of accuracy away from
# PyTorch, or `most`, the highest validation loss.  theirs: PyTorch's earlier results by init, in
# percent, from and to.  job: the example, with these values set.
RECIPES = {
    "lenet": dict(data="mnist", init=["pytorch", "normal"], epochs=10, ranks=[1, 2, 4],
                  seeds=[1, 2, 3], precision=["float32"], tolerance=0.3, every=1,
                  theirs={"pytorch": (98.7, 98.7), "normal": (98.0, 98.4)},
                  text="MNIST, lenet, global batch 256, lr 0.2"),
    "resnet18": dict(data="cifar-10-binary", init=["pytorch"], epochs=15, ranks=[1], seeds=[1],
                     precision=["bfloat16"], tolerance=1.0, every=0,
                     job="cifar10-resnet18.yaml", values={"data.train": "data_batch_1.bin"},
                     text="CIFAR-10's data_batch_1, ResNet-18, crops and flips"),
    "gpt": dict(data="tinyshakespeare/input.txt", init=["normal"], epochs=2, ranks=[1], seeds=[1],
                precision=["float32", "bfloat16"], most=1.90, every=0,
                job="shakespeare-gpt.yaml", values={},
                text="tinyshakespeare's characters, a GPT of 4 blocks, at most 2,000 steps"),
}
INIT = {"pytorch": "{name: pytorch}", "normal": "{name: normal, std: 0.01}"}


class Failed(Exception):
    pass


def job_words(args, run, init, seed, precision):
    """The driver's arguments for a job."""
    recipe = RECIPES[args.network]
    if "job" in recipe:
        values = {"data.path": args.data, "train.seed": seed, "train.epochs": args.epochs,
                  "train.validate_every": args.every, "precision": precision,
                  "checkpoint.keep": 1, **recipe["values"]}
        return ["--job", os.path.join(EXAMPLES, recipe["job"]),
                *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]
    with open(run + ".yaml", "w", encoding="utf-8") as file:
        file.write(LENET.format(init=INIT[init], data=args.data, epochs=args.epochs, seed=seed))
    return ["--job", run + ".yaml"]


def name_of(args, precision, *parts):
    lenet = [] if args.network == "lenet" else [args.network, precision]
    return "-".join(map(str, [*lenet, *parts, args.epochs]))


def train(args, work, precision, init, ranks, seed):
    """The run's epoch events; it is trained unless the run is there already."""
    run = os.path.join(work, name_of(args, precision, init, ranks, seed))
    log = run + ".log"
    if not os.path.exists(os.path.join(run, "events.jsonl")) or not check_events.of_kind(
            check_events.read(run), "done"):
        words = [os.path.join(args.build, "driver", "dpdriver"), "--nranks", str(ranks), "--local",
                 "--port", "0", "--threads", "1", "--run-dir", run,
                 *job_words(args, run, init, seed, precision)]
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


def by_loss(args):
    return "most" in RECIPES[args.network]


def figure(args, epoch):
    """The figure that the goal limits: a validation loss, or an accuracy in percent."""
    return epoch["validation_loss"] if by_loss(args) else 100 * epoch["validation_accuracy"]


def measure(args, work):
    """{(precision, init, ranks): [figures of the validated epochs, one list a seed]}, failures"""
    results, n_failed = {}, 0
    for precision, init, seed, ranks in itertools.product(args.precision, args.init, args.seeds,
                                                          args.ranks):
        try:
            epochs = train(args, work, precision, init, ranks, seed)
        except Failed as why:
            print(why, file=sys.stderr)
            n_failed += 1
            continue
        end = epochs[-1]
        results.setdefault((precision, init, ranks), []).append(
            [figure(args, epoch) for epoch in epochs])
        print(f"{precision}, init {init}, {ranks} rank{'s' * (ranks > 1)}, seed {seed}: "
              f"{100 * end['validation_accuracy']:.2f} %, losses "
              f"{end['train_loss']:.4f} {end['validation_loss']:.4f}, "
              f"{statistics.median(e['samples_per_second'] for e in epochs):,.0f} "
              "samples/s", file=sys.stderr, flush=True)
    return results, n_failed


def measure_torch(args, work):
    """{(precision, init): [PyTorch's figures of the validated epochs, one list a seed]}"""
    results, key = {}, "loss" if by_loss(args) else "accuracy"
    for precision, init, seed in itertools.product(args.precision, args.init,
                                                   args.seeds if args.torch else []):
        kept = os.path.join(work, name_of(args, precision, "torch", init, seed) + ".json")
        if not os.path.exists(kept):
            done = subprocess.run(
                [args.torch, os.path.join(HERE, "torch_accuracy.py"), "--network",
                 args.network, "--data", args.data, "--init", init, "--precision",
                 precision, "--epochs", str(args.epochs), "--every", str(args.every),
                 "--seed", str(seed)],
                env=dict(os.environ, **bench.TUNED), stdout=subprocess.PIPE, text=True,
                check=True).stdout
            with open(kept, "w", encoding="utf-8") as file:
                file.write(done)
        with open(kept, encoding="utf-8") as file:
            results.setdefault((precision, init), []).append(json.loads(file.read())[key])
    return results


def last(runs):
    return [run[-1] for run in runs]


def late(runs):
    """The mean over the last three epochs: a single epoch's accuracy varies by up to half a
    point.  None: a run was validated less often."""
    if any(len(run) < 3 for run in runs):
        return None
    return statistics.mean(statistics.mean(run[-3:]) for run in runs)


def distance(args, key, runs, measured):
    """The mean's distance from PyTorch's mean, or from the middle of its earlier results if it was
    not measured.  None: there is neither."""
    earlier = RECIPES[args.network].get("theirs", {})
    theirs = last(measured[key]) if key in measured else earlier.get(key[1])
    return theirs and statistics.mean(last(runs)) - statistics.mean(theirs)


def meets(args, key, runs, measured):
    recipe = RECIPES[args.network]
    if by_loss(args):
        return statistics.mean(last(runs)) <= recipe["most"]
    return abs(distance(args, key, runs, measured)) <= recipe["tolerance"]


def written(args, value, sign=""):
    """An accuracy has two digits behind the point, a loss three."""
    return "" if value is None else format(value, f"{sign}.{3 if by_loss(args) else 2}f")


def cells(args, runs):
    mean, low, high = (written(args, of(last(runs))) for of in (statistics.mean, min, max))
    return f"{mean} ({low} to {high}) | {written(args, late(runs))}"


def row(args, key, ranks, runs, measured):
    verdict = "meets" if meets(args, key, runs, measured) else "misses"
    both = key in measured and late(runs) is not None
    late_away = late(runs) - late(measured[key]) if both else None
    return (f"| {' | '.join(key)} | {ranks} | {len(runs)} | {cells(args, runs)} | {verdict} "
            f"| {written(args, distance(args, key, runs, measured), '+')} "
            f"| {written(args, late_away, '+')} |")


def torch_row(args, key, runs):
    return f"| {' | '.join(key)} | PyTorch | {len(runs)} | {cells(args, runs)} | | | |"


def table(args, results, measured):
    recipe = RECIPES[args.network]
    unit, goal = ("loss", f"at most {recipe['most']:.2f}") if by_loss(args) else \
        ("%", f"within {recipe['tolerance']} of PyTorch")
    head = [f"| precision | init | ranks | seeds | last epoch, mean {unit} (range) "
            f"| last three, mean {unit} | {goal} | last, away from PyTorch | last three |",
            "|---|---|---|---|---|---|---|---|---|"]
    rows = [row(args, key[:2], key[2], runs, measured) for key, runs in sorted(results.items())]
    return "\n".join(head + rows + [torch_row(args, *item) for item in sorted(measured.items())])


def describe(args):
    commit, machine = bench.commit_and_cpu()
    recipe = RECIPES[args.network]
    job = f"deploy/examples/{recipe['job']}, " if "job" in recipe else ""
    return (f"## Accuracy, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}\n\n{machine}; "
            f"{recipe['text']}, {job}{args.epochs} epochs; validated over all ranks, "
            f"seeds {', '.join(map(str, args.seeds))}.\n")


def names(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in names(text)]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--network", choices=list(RECIPES), default="lenet")
    parser.add_argument("--precision", type=names)
    parser.add_argument("--ranks", type=numbers)
    parser.add_argument("--seeds", type=numbers)
    parser.add_argument("--init", type=names)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--torch", metavar="PYTHON", help="one with PyTorch")
    parser.add_argument("--work", help="a folder to keep the runs in")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = parser.parse_args(argv)
    recipe = RECIPES[args.network]
    if args.quick:
        args.ranks, args.seeds, args.init = [2], [1], recipe["init"][:1]
    for key in ("precision", "ranks", "seeds", "init", "epochs"):
        setattr(args, key, getattr(args, key) or recipe[key])
    args.every = recipe["every"] or args.epochs
    args.data = os.path.join(DATA, recipe["data"])
    for what, known in (("init", recipe["init"]), ("precision", PRECISIONS)):
        if unknown := [name for name in getattr(args, what) if name not in known]:
            parser.error(f"unknown {what} {unknown[0]}; known: {', '.join(known)}")
    if args.network == "lenet" and args.precision != ["float32"]:
        parser.error("lenet's recipe is in float32")
    if args.network == "resnet18" and not args.torch:
        parser.error("resnet18 is compared with PyTorch's: give --torch PYTHON")
    return args


def main(argv):
    args = parse(argv)
    if not os.path.exists(args.data):
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
        bench.record(text)
    met = [meets(args, key[:2], runs, theirs) for key, runs in results.items()]
    return 0 if met and all(met) and not n_failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

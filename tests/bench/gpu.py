"""gpu - measures dptrain beside PyTorch on one GPU, in turn.

    bench.py gpu [--build DIR] [--python PYTHON] [--rounds N] [--others N] [--case NAME]...
                 [--precision P]... [--minutes N] [--out FILE] [--record]
                 [--rehearse [cpu|cuda]]

LeNet on MNIST, one rank, the data set on the GPU.  The contenders are ours; ours with
train.autotune, since PyTorch's side picks its convolutions by timing, too; PyTorch eager, compiled
(torch.compile, max-autotune) and as its own CUDA graph (torch_gpu.py).  Rates are those of steady
training: PyTorch's first tenth is not counted, nor our first epoch, in which libraries are loaded
and the step is recorded.  The time between our epochs counts, and is shown beside the rate.

Goals, in steps per second at batch 256, float32, ours tuned: 8 times PyTorch eager, 1.5 times
PyTorch's graph.
Both sides are bounded: a step is 3.4 GFLOP, 3.1 of them in the second convolution, or 51 us at the
67 TFLOP/s that an H200 does in float32 at most; with TF32 and bfloat16 nearly all the time is
launches.

The order of the runs:
  1. the runs that decide the goals, --rounds times (3) in turn
  2. gpu_profile, which shows the time of our step kernel by kernel
  3. the card's ceilings for copies and products, as PyTorch reaches them
  4. all other runs, --others times (1); compiled in float32 only and last, since it takes minutes
  5. how much of the all-reduces is exposed with two ranks: each on a GPU of its own if there are
     two, else both on one GPU (--test-shared-gpu), which shows that it works, but not how fast

--minutes N  no run begins or goes on after so long; missing runs are named.  We expect that the
             goals' runs take 2 minutes, and nearly all runs 9; this has not been measured.
--out FILE   write the results so far to FILE after each run, so that an early end loses none
--record     append the results to RESULTS.md beside this file
--rehearse   all runs on the CPU with few steps: it tests the script and measures nothing; with
             cuda, our part runs on a GPU, which may be a simulated one
Exit status 0: measured (the table says whether goals are met); 1: a run failed, or time ran out, or
there is no PyTorch; 77: no GPU, or no MNIST.
"""
import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import bench

LIMIT_S = 200  # seconds that one run may take; a run that is late is not tried again
COMPILED_LIMIT_S = 300
LEAST_S = 5  # with fewer seconds left, no run is begun
CASES = {"batch 256": 256, "batch 64": 64}
TUNED = "ours, tuned"
OURS = {"ours": (), TUNED: ("--set", "train.autotune=true")}
KINDS = ("eager", "compiled", "graph")
STEPS = {"eager": 4000, "compiled": 8000}  # a few seconds of each
STEPS_OF_OTHERS = 20000
LEARNT = 1.0  # training must bring the loss below this; a guess has 2.3
GOALS = {("batch 256", "float32", "eager"): 8.0, ("batch 256", "float32", "graph"): 1.5}
PROFILE, CEILINGS, EXPOSURE = "profile", "ceilings", "2 ranks"
# precision: the job's keys for it
PRECISIONS = {"float32": ("precision=float32",),
              "tf32": ("precision=float32", "train.tf32=true"),
              "bfloat16": ("precision=bfloat16",)}


def plan(args):
    """The runs in order: (round, what), where `what` is (case, precision, who), PROFILE, CEILINGS
    or EXPOSURE."""
    every = [(case, precision, who) for case in args.case for precision in args.precision
             for who in (*OURS, *args.kinds) if who != "compiled" or precision == "float32"]
    goals = [key for key in every if key in GOALS or (*key[:2], "eager") in GOALS and
             key[2] == TUNED]
    of_goals = {key[:2] for key in goals}
    others = sorted((key for key in every if key not in goals),
                    key=lambda key: (key[:2] not in of_goals, key[2] == "compiled"))
    return [(n, key) for n in range(1, args.rounds + 1) for key in goals] + \
        ([(1, PROFILE)] if args.device == "cuda" else []) + \
        ([(1, CEILINGS)] if args.kinds else []) + \
        [(n, key) for n in range(1, args.others + 1) for key in others] + [(1, EXPOSURE)]


def name_of(what):
    return what if isinstance(what, str) else ", ".join(what)


def is_ours(what):
    return not isinstance(what, str) and what[2] in OURS


def is_compiled(what):
    return not isinstance(what, str) and what[2] == "compiled"


def reason_of(failure):
    lines = str(failure).strip().splitlines()
    kind = "" if isinstance(failure, RuntimeError) else f"{type(failure).__name__} "
    return kind + (lines[-1][:160] if lines else "no reason given")


class Bench:
    """results[what]: a list of each round's result.  failures: one line for each missing run."""

    def __init__(self, args, n_gpus=0):
        self.args, self.n_gpus = args, n_gpus
        self.results, self.failures, self.late = {}, [], set()

    def limit_of(self, what):
        """Seconds that the next run may take."""
        limit = bench.LIMIT_S if self.args.rehearse else \
            COMPILED_LIMIT_S if is_compiled(what) else LIMIT_S
        return min(limit, self.args.until - time.monotonic())

    def attempt(self, number, what):
        """Make one run.  However it ends, the others go on."""
        name = f"{name_of(what)}, round {number}"
        limit = self.limit_of(what)
        if what in self.late or limit < LEAST_S:
            self.failures.append(f"{name}: " + ("not tried again" if what in self.late else
                                                "no time was left"))
            return
        start = time.monotonic()
        try:
            said = self.run(what, limit)
        except Exception as failure:  # pylint: disable=broad-except
            said = f"failed: {failure}"
            self.failures.append(f"{name}: {reason_of(failure)}")
            if isinstance(failure, bench.Late):
                self.late.add(what)
        else:
            self.results.setdefault(what, []).append(said)
        print(f"{name} ({time.monotonic() - start:.0f} s): {said}", file=sys.stderr, flush=True)

    def go(self):
        """Make all runs of the plan, until a signal; then the results so far are written."""
        libraries = libraries_of(self.args) if self.args.device == "cuda" else ""
        # nvidia-smi also counts slices, and GPUs that CUDA_VISIBLE_DEVICES hides.
        usable = re.search(r"they fit: (\d+) GPU", libraries)
        self.n_gpus = int(usable[1]) if usable else self.n_gpus
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for number, what in plan(self.args):
                self.attempt(number, what)
                self.put(libraries)
        except KeyboardInterrupt:
            self.failures.append(f"{name_of(what)}, round {number}, and what comes behind it: "
                                 "stopped by a signal")
        return self.put(libraries)

    def put(self, libraries):
        text = report(self.args, self.results, self.failures, libraries)
        if self.args.out:
            with open(self.args.out, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def run(self, what, limit):
        special = {PROFILE: self.profile, CEILINGS: self.ceilings, EXPOSURE: self.exposure}
        if what in special:
            return special[what](limit)
        return self.contender(*what, limit)

    def steps_of(self, who):
        return 8 if self.args.rehearse else STEPS.get(who, STEPS_OF_OTHERS)

    def ours(self, batch, precision, limit, options=(), ranks=1, steps=None):
        sets = [word for setting in PRECISIONS[precision] for word in ("--set", setting)]
        case = dict(batch=batch, steps=steps or self.steps_of("ours"), ranks=ranks, threads=1)
        said = bench.run_ours(self.args.build, case,
                              ("--device", self.args.device, *sets, *options), limit)
        return dict(said, steps_per_second=said["samples_per_second"] / batch)

    def contender(self, case, precision, who, limit):
        if who in OURS:
            said = self.ours(CASES[case], precision, limit, OURS[who])
            learnt = said["loss"] is not None and said["loss"] < LEARNT
            if not learnt and not self.args.rehearse:
                raise RuntimeError(f"it does not learn: loss {said['loss']}")
            return said
        return self.torch(limit, "--data", bench.DATA, "--batch", str(CASES[case]), "--steps",
                          str(self.steps_of(who)), "--kind", who, "--precision", precision)

    def torch(self, limit, *more):
        device = "cpu" if self.args.rehearse else "cuda"
        command = [self.args.python, os.path.join(bench.HERE, "torch_gpu.py"), "--device", device]
        return bench.finish([subprocess.Popen(command + list(more), stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True)], limit)

    def ceilings(self, limit):
        return self.torch(limit, "--ceilings")

    def profile(self, limit):
        """gpu_profile's table of the tuned step at batch 256, float32."""
        program = bench.program_of(self.args.build, os.path.join("tests", "gpu"), "gpu_profile")
        process = subprocess.Popen([program, "8" if self.args.rehearse else "256", "float32",
                                    "tuned"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        [(out, err)] = bench.outputs_of([process], limit)
        if process.returncode:
            raise RuntimeError(f"status {process.returncode}: {(out + err)[-bench.TAIL:]}")
        return out.rstrip()

    def exposure(self, limit):
        """Measure two ranks' exposed all-reduces; float32, batch 256."""
        shared = self.args.device == "cuda" and self.n_gpus < 2
        said = self.ours(256, "float32", limit, ("--test-shared-gpu",) if shared else (), ranks=2,
                         steps=None if self.args.rehearse else 200)
        where = "both on one GPU by --test-shared-gpu, no measure of speed" if shared else \
            "one GPU each" if self.args.device == "cuda" else "on CPUs"
        return (f"2 ranks at batch 256 ({where}): {said['step_ms']:.3f} ms a step, of that "
                f"{said['comm_exposed_ms']:.3f} ms in exposed all-reduces.")


# ---- the report ----


def ratio_text(results, key):
    """The ratio of our speed to that of the run `key`, with the goal's verdict."""
    ours = results.get((*key[:2], TUNED))
    if not ours or key[2] in OURS:
        return ""
    ratio = bench.middle(ours, "steps_per_second") / bench.middle(results[key], "steps_per_second")
    goal = GOALS.get(key)
    return f"{ratio:.2f}" + (f" ({'meets' if ratio >= goal else 'misses'} {goal})" if goal else "")


def who_text(who, runs):
    if who in OURS:
        return who
    return f"PyTorch {who}, {'/'.join(sorted({r['layout'] for r in runs}))}"


def rows(results):
    yield "| case | precision | who | rounds | steps/s, median (range) | ours, tuned, is x |"
    yield "|---|---|---|---|---|---|"
    keys = [key for key in results if not isinstance(key, str)]
    order = [list(CASES), list(PRECISIONS), [*OURS, *KINDS]]
    for key in sorted(keys, key=lambda key: [names.index(x) for names, x in zip(order, key)]):
        runs = results[key]
        rates = [r["steps_per_second"] for r in runs]
        yield (f"| {key[0]} | {key[1]} | {who_text(key[2], runs)} | {len(runs)} "
               f"| {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) "
               f"| {ratio_text(results, key)} |")


def heading(args, results):
    commit, machine = bench.commit_and_cpu()
    theirs = [r for runs in results.values() for r in runs if isinstance(r, dict) and "cudnn" in r]
    gpu = theirs[0]["gpu"] if theirs else "unknown to PyTorch"
    version = f"PyTorch {theirs[0]['version']} with cuDNN {theirs[0]['cudnn']}" if theirs else \
        "no PyTorch"
    rehearsed = "REHEARSED, NOTHING MEASURED: " if args.rehearse else ""
    yield f"## {rehearsed}{time.strftime('%Y-%m-%d %H:%M')}, commit {commit}, GPU: {gpu}"
    yield ""
    yield f"{machine}; {version}; `bench.py gpu`."
    for peak in results.get(CEILINGS, []):
        products = ", ".join(f"{p} {peak[f'gemm_{p}_tflop_s']:.0f} TFLOP/s" for p in PRECISIONS)
        yield f"Ceilings by PyTorch: copy {peak['copy_tb_s']:.2f} TB/s, products {products}."
    yield from results.get(EXPOSURE, [])
    gaps = [r["between_epochs_ms"] for key, runs in results.items() if is_ours(key)
            for r in runs if r["between_epochs_ms"] is not None]
    if gaps:
        yield (f"Between two epochs of ours pass {statistics.median(gaps):.2f} ms (at most "
               f"{max(gaps):.2f}), which are in our rates.")


def block(text):
    return ["", "```", *text.splitlines(), "```"]


def libraries_of(args):
    """The versions and GPUs from the output of dpdriver --check, without paths and the job."""
    try:
        checked = subprocess.run([bench.driver_of(args.build), "--check", "--device", "cuda"],
                                 capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"dpdriver --check: {failure}"
    return "\n".join(line for line in checked.split("\n\n")[0].splitlines()
                     if "/" not in line and not line.endswith("in"))


def report(args, results, failures, libraries):
    lines = [*heading(args, results), "", *rows(results)]
    for profile in results.get(PROFILE, []):
        lines += block(profile)
    if libraries:
        lines += block(libraries)
    if failures:
        lines += ["", "Not measured:", "", *(f"- {failure}" for failure in failures)]
    return "\n".join(lines) + "\n"


# ---- the command ----


def count_gpus():
    if not shutil.which("nvidia-smi"):
        return 0
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return 0
    return len(done.stdout.splitlines()) if done.returncode == 0 else 0


def torch_kinds(args):
    """The KINDS that can be run here: none without PyTorch, and no graph without a GPU."""
    has = "import torch; print('compiled' if hasattr(torch, 'compile') else 'eager')"
    done = subprocess.run([args.python, "-c", has], capture_output=True, text=True)
    if done.returncode:
        return ()
    can_compile = done.stdout.split()[-1] == "compiled"
    return tuple(kind for kind in KINDS if (kind != "compiled" or can_compile) and
                 (kind != "graph" or not args.rehearse))


def parse(argv):
    parser = argparse.ArgumentParser(prog="bench.py gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--python", help="one with PyTorch ($DPTRAIN_TORCH_PYTHON, or this one)",
                        default=os.environ.get("DPTRAIN_TORCH_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=3, help="of what decides a goal (3)")
    parser.add_argument("--others", type=int, default=1, help="rounds of everything else (1)")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--precision", action="append", choices=list(PRECISIONS))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", metavar="FILE", help="write it there after each run, too")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    parser.add_argument("--rehearse", nargs="?", const="cpu", choices=("cpu", "cuda"),
                        help="few steps, PyTorch's on the CPU, ours there or on a simulated GPU")
    args = parser.parse_args(argv)
    args.until = time.monotonic() + 60 * args.minutes
    args.device = args.rehearse or "cuda"
    if args.rehearse:
        args.case, args.precision, args.rounds, args.record = ["batch 256"], ["float32"], 1, False
    args.case, args.precision = args.case or list(CASES), args.precision or list(PRECISIONS)
    return args


def main(argv):
    args = parse(argv)
    n_gpus = 0 if args.rehearse else count_gpus()
    if not args.rehearse and n_gpus == 0:
        print("skipped: no NVIDIA GPU here (nvidia-smi lists none); --rehearse runs it on the CPU")
        return 77
    if not os.path.isdir(bench.DATA):
        print(f"skipped: no MNIST in {bench.DATA}; set DPTRAIN_DATA to the folder of mnist/")
        return 77
    args.kinds = torch_kinds(args)
    measured = Bench(args, n_gpus)
    if not args.kinds and not args.rehearse:
        measured.failures.append(f"PyTorch: {args.python} has none; --python names one that has")
    text = measured.go()
    print("\n" + text)
    if args.record:
        bench.record(text)
    return 1 if measured.failures else 0

"""gpu - dptrain beside PyTorch on one GPU, in turn, in one call.

    bench.py gpu [--build DIR] [--python PYTHON] [--rounds N] [--case NAME]... [--precision P]...
                 [--minutes N] [--record] [--rehearse]

LeNet on MNIST, one rank, the set resident on the GPU.  Contenders: ours, and with train.autotune,
since PyTorch's side picks its convolutions by timing, too; PyTorch eager, compiled (torch.compile,
max-autotune) and as its own CUDA graph (torch_gpu.py).  Beside the rates stand the
card's ceilings for copies and products as PyTorch reaches them, and how much of the all-reduces is
exposed with two ranks: on a GPU each where there are two, else both on one GPU
(--test-shared-gpu), which says that it works and nothing about speed.

Goals, in steps per second at batch 256, float32, ours tuned: 8 times PyTorch eager, 1.5 times
PyTorch's graph.

--minutes N  begin no run after so long; the goals' runs come first, and what is missing is named
--rehearse   all of it on the CPU with few steps: proves the script, measures nothing
Exit status 0: measured (goals met or not: the table says it); 1: a contender failed, or time ran
out; 77: no GPU, or no MNIST.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

import bench

CASES = {"batch 256": dict(batch=256, steps=4000), "batch 64": dict(batch=64, steps=8000)}
OURS = {"ours": (), "ours, tuned": ("--set", "train.autotune=true")}
KINDS = ("eager", "compiled", "graph")
GOALS = {("batch 256", "float32", "eager"): 8.0, ("batch 256", "float32", "graph"): 1.5}
# precision: what the job says for it
PRECISIONS = {"float32": ("precision=float32",),
              "tf32": ("precision=float32", "train.tf32=true"),
              "bfloat16": ("precision=bfloat16",)}


def torch_line(args, *more):
    command = [args.python, os.path.join(bench.HERE, "torch_gpu.py"), "--device", args.device]
    return bench.finish([subprocess.Popen(command + list(more), stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True)])


def run_torch(args, case, precision, kind):
    return torch_line(args, "--data", bench.DATA, "--batch", str(case["batch"]), "--steps",
                      str(case["steps"]), "--kind", kind, "--precision", precision)


def run_ours(args, case, precision, ranks=1, options=()):
    sets = [word for setting in PRECISIONS[precision] for word in ("--set", setting)]
    said = bench.run_ours(args.build, dict(case, ranks=ranks, threads=1),
                          ("--device", args.device, *sets, *options))
    return dict(said, steps_per_second=said["samples_per_second"] / case["batch"])


def attempt(args, failures, what, runner, *more):
    """What the runner says; None where it fails, or no time is left for it."""
    if time.monotonic() >= args.until:
        failures.append(f"{what}: no time was left")
        return None
    start = time.monotonic()
    try:
        said = runner(*more)
    except RuntimeError as failure:
        failures.append(what)
        said = None
        print(f"{what} failed: {failure}", file=sys.stderr, flush=True)
    else:
        print(f"{what}: {said} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
    return said


def measure(args, failures):
    """(case, precision, who) -> what each round said"""
    results = {}
    for number in range(args.rounds):
        for name in args.case or CASES:
            case = dict(CASES[name], **({"steps": 20} if args.rehearse else {}))
            for precision in args.precision or PRECISIONS:
                runs = [(who, lambda options=options: run_ours(args, case, precision,
                                                               options=options))
                        for who, options in OURS.items()]
                runs += [(kind, lambda kind=kind: run_torch(args, case, precision, kind))
                         for kind in (KINDS[:1] if args.rehearse else KINDS)]
                for who, run in runs:
                    key = (name, precision, who)
                    said = attempt(args, failures, f"round {number + 1}: {', '.join(key)}", run)
                    if said:
                        results.setdefault(key, []).append(said)
    return results


def exposure(args, failures, n_gpus):
    """Two ranks' exposed all-reduce; float32, batch 256."""
    case = dict(CASES["batch 256"], steps=20 if args.rehearse else 200)
    shared = args.device == "cuda" and n_gpus < 2
    said = attempt(args, failures, "2 ranks, ours", run_ours, args, case, "float32", 2,
                   ("--test-shared-gpu",) if shared else ())
    if not said:
        return "2 ranks: failed."
    where = "both on one GPU by --test-shared-gpu, no measure of speed" if shared else \
        "one GPU each" if args.device == "cuda" else "on CPUs"
    return (f"2 ranks at batch 256 ({where}): {said['step_ms']:.3f} ms a step, of that "
            f"{said['comm_exposed_ms']:.3f} ms in exposed all-reduces.")


def rows(results):
    yield "| case | precision | who | steps/s (range) | ours, tuned, is x |"
    yield "|---|---|---|---|---|"
    for (name, precision, who), runs in results.items():
        rates = [r["steps_per_second"] for r in runs]
        ours = results.get((name, precision, "ours, tuned"))
        ratio = ""
        if ours and who not in OURS:
            x = statistics.median(r["steps_per_second"] for r in ours) / statistics.median(rates)
            goal = GOALS.get((name, precision, who))
            ratio = f"{x:.2f}" + (f" ({'meets' if x >= goal else 'misses'} {goal})" if goal else "")
        label = who if who in OURS else f"PyTorch {who}"
        yield (f"| {name} | {precision} | {label} | {statistics.median(rates):,.0f} "
               f"({min(rates):,.0f} to {max(rates):,.0f}) | {ratio} |")


def describe(args, peak, exposed):
    commit, machine = bench.commit_and_cpu()
    text = [f"## {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}, GPU: {peak['gpu']}", "",
            f"{machine}; PyTorch {peak['version']} with cuDNN {peak['cudnn']}; medians of "
            f"{args.rounds}.  Ceilings by PyTorch: copy {peak['copy_tb_s']:.2f} TB/s, products " +
            ", ".join(f"{p} {peak[f'gemm_{p}_tflop_s']:.0f} TFLOP/s"
                      for p in ("float32", "tf32", "bfloat16")) + ".", "", exposed, ""]
    if args.device == "cuda":
        checked = subprocess.run([bench.driver_of(args.build), "--check", "--device", "cuda"],
                                 capture_output=True, text=True).stdout
        text += ["```", checked.split("\n\n")[0], "```", ""]  # libraries and GPUs, not the job
    return "\n".join(text)


def count_gpus():
    if not shutil.which("nvidia-smi"):
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return len(done.stdout.splitlines()) if done.returncode == 0 else 0


def parse(argv):
    parser = argparse.ArgumentParser(prog="bench.py gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--python", help="one with PyTorch ($DPTRAIN_TORCH_PYTHON, or this one)",
                        default=os.environ.get("DPTRAIN_TORCH_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--precision", action="append", choices=list(PRECISIONS))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, few steps")
    args = parser.parse_args(argv)
    args.until = time.monotonic() + 60 * args.minutes
    args.device = "cpu" if args.rehearse else "cuda"
    if args.rehearse:
        args.precision, args.rounds, args.record = ["float32"], 1, False
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
    if subprocess.run([args.python, "-c", "import torch"], capture_output=True).returncode:
        print(f"skipped: {args.python} has no PyTorch; --python names one that has")
        return 77
    failures = []
    peak = attempt(args, failures, "ceilings", torch_line, args, "--ceilings")
    exposed = exposure(args, failures, n_gpus)
    results = measure(args, failures)
    text = "\n".join(rows(results)) + "\n"
    if peak:
        text = describe(args, peak, exposed) + "\n" + text
    if failures:
        text += f"\nNot measured: {'; '.join(failures)}.\n"
    print("\n" + text)
    if args.record:
        with open(os.path.join(bench.HERE, "RESULTS.md"), "a", encoding="utf-8") as file:
            file.write("\n" + text)
    return 1 if failures else 0

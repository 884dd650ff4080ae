#!/usr/bin/env python3
"""bench - measures dptrain beside PyTorch: same model, data, batch and threads, in turn.

    bench.py [--build DIR] [--torch NAME=PYTHON]... [--rounds N] [--case NAME]... [--record]
    bench.py gpu ...         the same on a GPU: gpu.py beside this file, with options of its own
    bench.py gpu-models ...  GPT-2 and ResNet-50 on a GPU: gpu_models.py

Each round runs every case once with every contender, one after another, so that a change in the
machine's load affects all of them.  The table shows the median of the rounds, their spread, and
how many times as fast ours is.  --record appends the table to RESULTS.md beside this file.

Contenders: "ours" (BUILD/driver/dpdriver, left out where it is not built), and for each --torch
(default: python3) "NAME default" and "NAME tuned": channels_last, and glibc's allocator kept
from giving memory back.  MNIST is read from $DPTRAIN_DATA/mnist, or ../shared/data/mnist beside
the tree.

The measurements:

  samples/s, step  over the whole run, loading and all-reduce included; of the steps the median.
                   PyTorch: without the first tenth.  Ours: without the first epoch, if at least as
                   many samples follow it; then the time between epochs counts, too.  That is so
                   on GPUs, and in none of the cases here.
  CPU time         per step and rank (ours: of the whole run, start included); other processes'
                   load disturbs it least
  start            from the start to the first step's end, by wall clock
  memory           the peak of the rank that needs most

The machine should be idle; its load is recorded.
"""
import argparse
import json
import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT_S = 600  # seconds that one run may take
TAIL = 2000  # characters of a failed run's output that are shown
DATA = os.path.join(os.environ.get("DPTRAIN_DATA", os.path.join(ROOT, "..", "shared", "data")),
                    "mnist")
TUNED = dict(MALLOC_MMAP_THRESHOLD_="1073741824", MALLOC_TRIM_THRESHOLD_="4294967295",
             MALLOC_TOP_PAD_="67108864")

# name: ranks, threads per rank, global batch, steps; goals: how many times as fast ours must be
CASES = {
    "1 rank, batch 256": dict(ranks=1, threads=1, batch=256, steps=200,
                              goals={"tuned": 1.15, "default": 2.0}),
    "2 ranks, batch 256": dict(ranks=2, threads=1, batch=256, steps=200, goals={"tuned": 1.2}),
    "1 rank x 2 threads, batch 256": dict(ranks=1, threads=2, batch=256, steps=200, goals={}),
    "1 rank, batch 8": dict(ranks=1, threads=1, batch=8, steps=3000,
                            goals={"tuned": 1.5, "default": 2.5}),
    "1 rank, batch 2": dict(ranks=1, threads=1, batch=2, steps=6000, goals={"default": 2.5}),
    "2 ranks, batch 8": dict(ranks=2, threads=1, batch=8, steps=2000, goals={"default": 2.5}),
    "2 ranks, batch 16": dict(ranks=2, threads=1, batch=16, steps=2000, goals={"default": 2.5}),
    "start, 2 ranks": dict(ranks=2, threads=1, batch=256, steps=3, goals={}),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def clean_env(case, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MALLOC_", "KMP_"))}
    return dict(env, BENCH_START=repr(time.time()), OMP_NUM_THREADS=str(case["threads"]), **more)


def run_torch(python, tuned, case, name):
    """Run torch_side.py, and return its JSON.  The start case uses torchrun, as users do."""
    command = [os.path.join(HERE, "torch_side.py"), "--data", DATA, "--batch", str(case["batch"]),
               "--threads", str(case["threads"]), "--steps", str(case["steps"])]
    more = dict(TUNED) if tuned else {}
    if tuned and case["threads"] > 1:
        more["OMP_WAIT_POLICY"] = "passive"
    if tuned:
        command.append("--tuned")
    if name.startswith("start"):
        launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                    str(case["ranks"])]
        return finish([subprocess.Popen(launcher + command, env=clean_env(case, **more),
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)])
    more.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                WORLD_SIZE=str(case["ranks"]))
    return finish([subprocess.Popen([python] + command, env=clean_env(case, RANK=str(rank), **more),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for rank in range(case["ranks"])])


def default_build():
    """The folder of our programs: build/ of the sources, or the bundle that holds this file."""
    return ROOT if os.path.exists(os.path.join(ROOT, "bin", "dpdriver")) else \
        os.path.join(ROOT, "build")


def program_of(build, folder, name):
    bundled = os.path.join(build, "bin", name)
    return bundled if os.path.exists(bundled) else os.path.join(build, folder, name)


def driver_of(build):
    return program_of(build, "driver", "dpdriver")


def follower_of(build):
    return program_of(build, "follower", "dpfollower")


class Late(RuntimeError):
    """A run was ended because it took too long."""


def end(process):
    """Kill a process and return its stderr; returns in time even if the process does not end."""
    process.kill()
    try:
        return process.communicate(timeout=10)[1]
    except subprocess.TimeoutExpired as late:  # a child holds the pipe, or the kernel the process
        return (late.stderr or b"").decode(errors="replace")


def outputs_of(processes, limit_s):
    """(stdout, stderr) of each process.  None of them is left running."""
    until = time.monotonic() + limit_s
    try:
        return [p.communicate(timeout=max(0, until - time.monotonic())) for p in processes]
    except subprocess.TimeoutExpired:
        said = "\n".join(end(p)[-TAIL:] for p in processes)
        raise Late(f"{said}\nit had not ended after {limit_s:.0f} s") from None
    finally:
        for p in processes:
            if p.poll() is None:
                end(p)


def finish(processes, limit_s=LIMIT_S):
    outs = outputs_of(processes, limit_s)
    lines = [line for out, _ in outs for line in out.splitlines() if line.startswith("{")]
    if any(p.returncode for p in processes) or not lines:
        raise RuntimeError("\n".join(err[-TAIL:] for _, err in outs))
    return json.loads(lines[0])


def cpu_of_children():
    """CPU seconds of all ended processes that we, or in turn they, waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_ours(build, case, options=(), limit_s=LIMIT_S):
    """The events of a run of so many steps, from events.jsonl.  options: more for dpdriver."""
    work = tempfile.mkdtemp(prefix="dptrain-bench-")
    job = dict(
        name="bench", model=dict(arch="lenet"),
        data=dict(format="mnist", path=os.path.abspath(DATA)),
        train=dict(global_batch=case["batch"], epochs=1000, seed=1, max_steps=case["steps"],
                   validate_every=0),
        optimizer=dict(name="sgd", lr=0.2), checkpoint=dict(every_epochs=0))
    try:
        with open(os.path.join(work, "job.yaml"), "w") as f:
            json.dump(job, f)  # JSON is YAML
        env = {k: v for k, v in clean_env(case).items() if k != "OMP_NUM_THREADS"}
        start, cpu_start = time.time(), cpu_of_children()
        driver = subprocess.Popen(
            [driver_of(build), "--nranks", str(case["ranks"]), "--local",
             "--port", "0", "--threads", str(case["threads"]), "--job",
             os.path.join(work, "job.yaml"), "--run-dir", os.path.join(work, "run"), *options],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        [(_, err)] = outputs_of([driver], limit_s)
        if driver.returncode:
            raise RuntimeError(f"status {driver.returncode}: {err[-TAIL:]}")
        with open(os.path.join(work, "run", "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        cpu = cpu_of_children() - cpu_start
        return dict(read_events(events, start),
                    cpu_ms=cpu * 1e3 / case["steps"] / case["ranks"])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def counted_epochs(epochs):
    """The epochs that count.  In the first one libraries are loaded and steps recorded: it is left
    out if the other epochs train on at least as many samples."""
    others = epochs[1:]
    return others if sum(e["samples"] for e in others) >= epochs[0]["samples"] else epochs


def median_over_steps(epochs, key):
    """The median of the epochs' medians, where each counts as often as its epoch has steps."""
    return statistics.median([e[key] for e in epochs for _ in range(e["n_steps"])])


def seconds_of(epochs, counted):
    """The seconds of the counted epochs, with the time between them if an epoch precedes them."""
    if len(counted) < len(epochs):
        return counted[-1]["time"] - epochs[0]["time"]
    return sum(e["train_seconds"] for e in counted)


def between_epochs_ms(epochs):
    """The time from an epoch's last step to the next epoch's beginning."""
    gaps = [b["time"] - a["time"] - b["train_seconds"] for a, b in zip(epochs, epochs[1:])]
    return 1e3 * statistics.median(gaps) if gaps else None


def read_events(events, start):
    """The rates and times of the epochs that count, and the largest rank's memory."""
    epochs = [e for e in events if e["event"] == "epoch"]
    for before, e in zip([0] + [e["step"] for e in epochs], epochs):
        e["n_steps"] = e["step"] - before
    first = next(e for e in events if e["event"] == "first_step")
    done = next(e for e in events if e["event"] == "done")
    rss = done.get("peak_rss_mib") or first["rss_mib"]
    counted = counted_epochs(epochs)
    return dict(samples_per_second=sum(e["samples"] for e in counted) /
                seconds_of(epochs, counted),
                step_ms=median_over_steps(counted, "step_ms_median"),
                comm_exposed_ms=median_over_steps(counted, "comm_exposed_ms_median"),
                between_epochs_ms=between_epochs_ms(epochs),
                first_step_s=first["time"] - start, loss=epochs[-1]["train_loss"],
                rss_mib=max(rss) if isinstance(rss, list) else rss)


def contenders(args):
    """name -> function of (case, case's name)"""
    out = {}
    if os.access(driver_of(args.build), os.X_OK):
        out["ours"] = lambda case, name: run_ours(args.build, case)
    else:
        print(f"no dpdriver in {args.build}: PyTorch only", file=sys.stderr)
    for spec in args.torch or ["torch=python3"]:
        label, python = spec.split("=", 1)
        for kind in ("default", "tuned"):
            out[f"{label} {kind}"] = (lambda case, name, python=python, kind=kind:
                                      run_torch(python, kind == "tuned", case, name))
    return out


def measure(args):
    """results[case][contender] = list of one dict for each round; a failed run is left out, which
    is printed"""
    results = {name: {} for name in args.case or CASES}
    runners = contenders(args)
    for number in range(args.rounds):
        for name, row in results.items():
            for who, runner in list(runners.items()):
                try:
                    said = runner(CASES[name], name)
                    row.setdefault(who, []).append(said)
                except RuntimeError as failure:
                    said = f"failed: {failure}"
                print(f"round {number + 1}: {name}, {who}: {said}", file=sys.stderr, flush=True)
    return results


def middle(runs, key):
    values = [r[key] for r in runs if r.get(key) is not None]
    return statistics.median(values) if values else None


def ratio_text(case, name, ours, theirs, who):
    """The ratios of our speed to theirs, by wall clock and CPU time, and the goal's verdict."""
    if not ours or not theirs or who == "ours":
        return ""
    start = name.startswith("start")
    key = "first_step_s" if start else "samples_per_second"
    a, b = middle(ours, key), middle(theirs, key)
    ratio = b / a if start else a / b
    goal = case["goals"].get(who.split()[-1])
    verdict = f" ({'meets' if ratio >= goal else 'misses'} {goal})" if goal else ""
    by_cpu = middle(theirs, "cpu_ms") / middle(ours, "cpu_ms")
    return f"{ratio:.2f}{verdict}" + ("" if start else f", by CPU time {by_cpu:.2f}")


def table(results):
    lines = ["| case | who | samples/s (range) | ms/step (p90) | CPU ms/step | first step s | MiB "
             "| ours is x |",
             "|---|---|---|---|---|---|---|---|"]
    for name, row in results.items():
        for who, runs in row.items():
            if not runs:
                continue
            rates = [r["samples_per_second"] for r in runs]
            p90 = middle(runs, "step_ms_p90")
            tail = f" ({p90:.2f})" if p90 else ""
            lines.append(
                f"| {name} | {who} | {statistics.median(rates):,.0f} "
                f"({min(rates):,.0f} to {max(rates):,.0f}) "
                f"| {middle(runs, 'step_ms'):.2f}{tail} | {middle(runs, 'cpu_ms'):.2f} "
                f"| {middle(runs, 'first_step_s'):.2f} "
                f"| {middle(runs, 'rss_mib'):.0f} "
                f"| {ratio_text(CASES[name], name, row.get('ours'), runs, who)} |")
    return "\n".join(lines)


def commit_of_tree():
    """The commit of this checkout, or the commit from which the bundle was made."""
    said = subprocess.run("cat commit 2>/dev/null || git describe --always --dirty", shell=True,
                          cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def commit_and_cpu():
    commit = commit_of_tree()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file
                      if line.startswith("model name")), "unknown CPU")
    return commit, f"{os.cpu_count()} CPUs ({model}), {platform.system()} {platform.release()}"


def describe(results, args, load):
    commit, machine = commit_and_cpu()
    versions = sorted({r["version"] for row in results.values() for runs in row.values()
                       for r in runs if "version" in r})
    return (f"## {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}\n\n{machine}; "
            f"PyTorch {', '.join(versions)}; medians of {args.rounds}.  Load average before "
            f"{load[0]:.1f}, after {os.getloadavg()[0]:.1f} (the benchmark's own is 1 to 2).\n")


def record(text, path=os.path.join(HERE, "RESULTS.md")):
    """Append a section to RESULTS.md, with its prose in lines of 100 columns."""
    with open(path, "a", encoding="utf-8") as file:
        for line in ["", *text.splitlines()]:
            if not line.startswith(("|", "#")):
                line = textwrap.fill(line, 100, subsequent_indent="  " * line.startswith("- "))
            file.write(line + "\n")


def arguments(doc):
    """A parser with the options of the benchmarks beside this file."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=os.path.abspath, default=default_build())
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    parser.add_argument("--check", action="store_true", help="only that it works")
    return parser


def section(name, prose, rows):
    """A section of RESULTS.md: the heading, what was measured and how, and the table's lines."""
    commit, machine = commit_and_cpu()
    return "\n".join([f"## {name}, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}", "",
                      *textwrap.wrap(f"{machine}; {prose}", 100), "", *rows]) + "\n"


def conclude(args, text, met):
    """Show the section, record it on request, and return the exit status."""
    print("\n" + text)
    if args.record:
        record(text)
    return 0 if met else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=default_build())
    parser.add_argument("--torch", action="append", metavar="NAME=PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = parser.parse_args()
    if not os.path.isdir(DATA):
        print(f"skipped: no MNIST in {DATA}; set DPTRAIN_DATA to the folder that holds mnist/")
        return 77
    load = os.getloadavg()
    results = measure(args)
    text = describe(results, args, load) + "\n" + table(results) + "\n"
    print("\n" + text)
    if args.record:
        record(text)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["gpu"]:
        import gpu
        sys.exit(gpu.main(sys.argv[2:]))
    if sys.argv[1:2] == ["gpu-models"]:
        import gpu_models
        sys.exit(gpu_models.main(sys.argv[2:]))
    sys.exit(main())

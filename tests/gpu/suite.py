#!/usr/bin/env python3
"""suite - everything that needs a GPU, in one run; tests/run.sh gpu starts it.

    suite.py --build DIR      the programs of a build folder
    suite.py --bundle DIR     those of a bundle (deploy/bundle.sh)
    --rehearse                the training checks, the CPU in the GPU's place: for the suite itself
    --only NAME               one check (may be repeated); --list names them
    --out DIR                 where logs and gpu-properties.json go (default: a temporary folder)

Exit status 0: all passed; 1: some failed; 77: there is no GPU (which it says, and what was looked
for).  The last line is "N passed, N failed, N skipped".
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NONE = 77
PATIENCE = float(os.environ.get("DPTRAIN_PATIENCE", "120"))

# The demo job, small.
JOB = {"data.samples": 4096, "data.validation_samples": 512, "train.global_batch": 64,
       "train.epochs": 1, "optimizer.lr": 0.05}


class Skip(Exception):
    """This check cannot be made here."""


class Suite:
    def __init__(self, args):
        if args.bundle:
            tools = os.path.abspath(os.path.join(args.bundle, "bin"))
            self.driver = os.path.join(tools, "dpdriver")
            self.follower = os.path.join(tools, "dpfollower")
            self.golden = os.path.join(HERE, "golden.json")
        else:
            build = os.path.abspath(args.build)
            tools = os.path.join(build, "tests", "gpu")
            self.driver = os.path.join(build, "driver", "dpdriver")
            self.follower = os.path.join(build, "follower", "dpfollower")
            self.golden = os.path.join(HERE, "..", "golden", "golden.json")
        self.tools = tools
        self.rehearse = args.rehearse
        self.device = "cpu" if args.rehearse else "cuda"
        self.out = os.path.abspath(args.out)
        self.runs = 0

    def tool(self, name):
        return os.path.join(self.tools, name)

    def run(self, name, argv, env=None, patience=PATIENCE * 5):
        """Run to the end; its output goes to a log and comes back.  Fails with its last lines."""
        log = os.path.join(self.out, name + ".log")
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=patience, env={**os.environ, **(env or {})})
        with open(log, "w", encoding="utf-8") as file:
            file.write(done.stdout)
        if done.returncode == NONE:
            raise Skip(done.stdout.strip().splitlines()[-1])
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-25:])
            raise AssertionError(f"{argv[0]} ended with {done.returncode} ({log}):\n{tail}")
        return done.stdout

    # ---- training ----

    def command(self, n_ranks, device, sets, run_dir):
        argv = [self.driver, "--nranks", str(n_ranks), "--port", "0", "--device", device,
                "--run-dir", run_dir, "--threads", "1"]
        if n_ranks > 1:
            argv += ["--local"]
            if device != "cpu":
                argv += ["--test-shared-gpu"]
        for key, value in {**JOB, **sets}.items():
            argv += ["--set", f"{key}={value}"]
        return argv

    def new_run(self):
        self.runs += 1
        return os.path.join(self.out, f"run-{self.runs}")

    def train(self, name, n_ranks, device, sets, env=None):
        """The events of a whole run."""
        run_dir = self.new_run()
        self.run(name, self.command(n_ranks, device, sets, run_dir), env)
        return events_of(run_dir)


def events_of(run_dir):
    with open(os.path.join(run_dir, "events.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def losses(events):
    return [e["train_loss"] for e in events if e["event"] == "epoch"] + \
        [e["validation_loss"] for e in events if e["event"] == "done"]


def assert_near(what, seen, want, tolerance):
    assert len(seen) == len(want) > 1, f"{what}: {seen}, want {want}"
    for a, b in zip(seen, want):
        assert abs(a - b) <= tolerance * abs(b), f"{what}: {seen}, want {want} within {tolerance}"


# ---- the checks; each docstring is what is printed ----


def properties(suite):
    """the GPU's properties, in gpu-properties.json"""
    text = suite.run("properties", [suite.tool("gpu_properties")])
    found = json.loads(text)
    assert found["multiProcessorCount"] > 0 and found["nccl"] >= 22800, text
    with open(os.path.join(suite.out, "gpu-properties.json"), "w", encoding="utf-8") as file:
        file.write(text)


def ops_f32(suite):
    """every operator against the double-precision reference, in float32"""
    suite.run("ops_f32", [suite.tool("gpu_ops"), "F32"])


def ops_bf16(suite):
    """... in bfloat16"""
    suite.run("ops_bf16", [suite.tool("gpu_ops"), "BF16"])


def ops_f16(suite):
    """... in float16"""
    suite.run("ops_f16", [suite.tool("gpu_ops"), "F16"])


def golden(suite):
    """PyTorch's losses over 20 steps; a recorded step gives the bits of its kernels"""
    suite.run("golden", [suite.tool("gpu_golden"), suite.golden])


def like_cpu(suite):
    """training is that on the CPU"""
    want = suite.train("cpu", 1, "cpu", {})
    seen = suite.train("gpu", 1, suite.device, {})
    start = next(e for e in seen if e["event"] == "start")
    assert start["device"].startswith(suite.device), f"it ran on {start['device']}"
    assert_near("losses", losses(seen), losses(want), 2e-3)


def like_float32(precision):
    def check(suite):
        want = suite.train("float32", 1, suite.device, {})
        seen = suite.train(precision, 1, suite.device, {"precision": precision})
        assert_near("losses", losses(seen), losses(want), 1e-1)
    check.__doc__ = f"training in {precision} is near that in float32"
    check.__name__ = precision
    return check


def like_one_rank(n_ranks):
    def check(suite):
        want = suite.train("one_rank", 1, suite.device, {})
        seen = suite.train(f"{n_ranks}_ranks", n_ranks, suite.device, {})
        form = next(e for e in seen if e["event"] == "form")
        assert form["nranks"] == n_ranks, f"{form}"
        assert_near("losses", losses(seen), losses(want), 2e-3)
    check.__doc__ = f"{n_ranks} ranks on one GPU train as one does"
    check.__name__ = f"ranks_{n_ranks}"
    return check


def killed(suite):
    """kill -9 of a rank in the midst of training: the other goes on alone, from the same step"""
    run_dir = suite.new_run()
    sets = {"train.epochs": 100000, "cluster.min_ranks": 1, "cluster.replace_timeout": 0}
    argv = [a for a in suite.command(2, suite.device, sets, run_dir) if a != "--local"]
    port_file = run_dir + ".port"
    log_path = os.path.join(suite.out, "killed.log")
    shared = ["--test-shared-gpu"] if "--test-shared-gpu" in argv else []
    follower = None
    with open(log_path, "w", encoding="utf-8") as log:
        driver = subprocess.Popen(argv + ["--port-file", port_file], stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log)
        try:
            port = int(wait_for("the port", driver, lambda: read(port_file)))
            follower = subprocess.Popen(
                [suite.follower, "--root", f"127.0.0.1:{port}", "--once", "--device", suite.device,
                 "--threads", "1", *shared], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            wait_for("an epoch", driver, lambda: event(run_dir, "epoch"))
            follower.kill()
            start = time.monotonic()
            recovered = wait_for("the recovery", driver, lambda: event(run_dir, "recovered"))
            seconds = time.monotonic() - start
            assert recovered["nranks"] == 1 and recovered["steps_lost"] <= 1, f"{recovered}"
            n_epochs = len([e for e in events_of(run_dir) if e["event"] == "epoch"])
            wait_for("training to go on", driver, lambda: len(
                [e for e in events_of(run_dir) if e["event"] == "epoch"]) > n_epochs)
            driver.send_signal(signal.SIGINT)
            assert driver.wait(PATIENCE) == 4, f"the driver ended with {driver.returncode}"
            print(f"    recovered after {seconds:.2f} s")
        finally:
            for process in (driver, follower):
                if process and process.poll() is None:
                    process.kill()
                    process.wait()


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def event(run_dir, kind):
    try:
        return next((e for e in events_of(run_dir) if e["event"] == kind), None)
    except (FileNotFoundError, ValueError):
        return None


def wait_for(what, process, condition):
    deadline = time.monotonic() + PATIENCE
    while True:
        got = condition()
        if got:
            return got
        assert process.poll() is None, f"the driver ended ({process.returncode}) before {what}"
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain for {what}"
        time.sleep(0.02)


def sanitizer_of():
    """compute-sanitizer, on PATH or in the toolkit."""
    places = [shutil.which("compute-sanitizer") or ""]
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home:
            places += [os.path.join(home, "bin/compute-sanitizer"),
                       os.path.join(home, "compute-sanitizer/compute-sanitizer")]
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def sanitized(tool):
    def check(suite):
        program = sanitizer_of()
        if not program:
            raise Skip("no compute-sanitizer on PATH or in the toolkit")
        suite.run(tool, [program, "--tool", tool, "--error-exitcode", "1", suite.tool("gpu_ops")],
                  patience=3600)
    check.__doc__ = f"compute-sanitizer {tool} finds nothing in the operator table"
    check.__name__ = tool
    return check


def quiet(suite):
    """200 steps without an allocation, a free or a wait"""
    counts = os.path.join(suite.out, "counts.json")
    env = {"LD_PRELOAD": suite.tool("gpu_count.so"), "GPU_COUNT_FILE": counts}
    # One epoch without a pause in it, long enough for the launches that are counted.
    suite.train("quiet", 1, suite.device, {"data.samples": 300 * 64}, env)
    text = read(counts)
    assert text, "fewer recorded steps were launched than are counted"
    found = json.loads(text)
    # Reports to the daemon's loop, a few a second, come from the heap; steps take nothing from it.
    heap = found.pop("heap")
    bad = {name: n for name, n in found.items() if name != "steps" and n}
    assert heap <= 10, f"{heap} allocations in {found['steps']} steps"
    assert found["steps"] == 200 and not bad, f"in {found['steps']} steps: {bad}"


CHECKS = [properties, ops_f32, ops_bf16, ops_f16, golden, like_cpu, like_float32("bfloat16"),
          like_float32("float16"), like_one_rank(2), like_one_rank(3), killed, quiet,
          sanitized("memcheck"), sanitized("racecheck")]
REHEARSED = {"like_cpu", "ranks_2", "ranks_3", "killed"}


def probe(suite):
    """Whether there is a GPU; says what was found."""
    done = subprocess.run([suite.tool("gpu_probe")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout.rstrip())
    if done.returncode not in (0, NONE):
        sys.exit(f"gpu_probe ended with {done.returncode}")
    return done.returncode == 0


def run_one(check, suite):
    start = time.monotonic()
    try:
        check(suite)
        verdict, why = "ok", ""
    except Skip as skip:
        verdict, why = "skipped", f": {skip}"
    except (AssertionError, OSError, KeyError, StopIteration, ValueError,
            subprocess.TimeoutExpired) as failure:
        verdict, why = "FAILED", f": {failure!r}" if not str(failure) else f": {failure}"
    print(f"{verdict}: {check.__name__}: {check.__doc__} "
          f"({time.monotonic() - start:.1f} s){why}", flush=True)
    return verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--bundle")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{c.__name__}: {c.__doc__}" for c in CHECKS))
        return 0
    if bool(args.build) == bool(args.bundle):
        parser.error("one of --build and --bundle is wanted")
    unknown = set(args.only) - {c.__name__ for c in CHECKS}
    if unknown:
        parser.error(f"no check is named {', '.join(sorted(unknown))}; --list names them")
    keep = args.out is not None
    args.out = args.out or tempfile.mkdtemp(prefix="dptrain-gpu-")
    os.makedirs(args.out, exist_ok=True)
    suite = Suite(args)
    if not args.rehearse and not probe(suite):
        if not keep:
            shutil.rmtree(args.out)
        print("nothing was tested: there is no GPU (the reason is above)")
        return NONE
    checks = [c for c in CHECKS if (not args.only or c.__name__ in args.only) and
              (not args.rehearse or c.__name__ in REHEARSED)]
    verdicts = [run_one(c, suite) for c in checks]
    n = {v: verdicts.count(v) for v in ("ok", "FAILED", "skipped")}
    if n["FAILED"] or keep:
        print(f"logs are in {args.out}")
    else:
        shutil.rmtree(args.out)
    print(f"{n['ok']} passed, {n['FAILED']} failed, {n['skipped']} skipped")
    return 1 if n["FAILED"] or not n["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""suite - everything that needs a GPU, in one run; tests/run.sh gpu starts it.

    suite.py --build DIR      the programs of a build folder
    suite.py --bundle DIR     those of a bundle (deploy/bundle.sh)
    --rehearse                the training checks, the CPU in the GPU's place: for the suite itself
    --only NAME               one check (may be repeated); --list names them
    --minutes N               begin no check after so long; those left count as skipped
    --out DIR                 where gpu-suite.log, all else that was written, and
                              gpu-properties.json go (default: a temporary folder, kept on failure)

gpu-suite.log has everything: the machine's drivers, libraries and settings, each check's command,
output and time, for what failed the same once more under compute-sanitizer or without recorded
steps, for what hung where its threads stood.

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

from rig import (NONE, PATIENCE, UNSHARED, Skip, Suite, events_of, note_facts, read,
                 stacks_of)


def losses(events):
    return [e["train_loss"] for e in events if e["event"] == "epoch"] + \
        [e["validation_loss"] for e in events if e["event"] == "done"]


def assert_near(what, seen, want, tolerance):
    assert len(seen) == len(want) > 1, f"{what}: {seen}, want {want}"
    for a, b in zip(seen, want):
        assert abs(a - b) <= tolerance * abs(b), f"{what}: {seen}, want {want} within {tolerance}"


# ---- the checks; each docstring is what is printed ----


def check(suite):
    """dpdriver --check --device cuda: driver and libraries fit"""
    text = suite.run("check", [suite.driver, "--check", "--nranks", "1", "--device", suite.device])
    assert "they fit: " in text, text


def properties(suite):
    """the GPU's properties, in gpu-properties.json"""
    text = suite.run("properties", [suite.tool("gpu_properties")])
    found = json.loads(text)
    with open(os.path.join(suite.out, "gpu-properties.json"), "w", encoding="utf-8") as file:
        file.write(text)
    assert found["multiProcessorCount"] > 0 and found["nccl"] >= 22800, text
    assert found["cudnn_device"]["multiProcessorCount"] == found["multiProcessorCount"], text


def reduced(n_ranks):
    def check(suite):
        name, argv = f"reduce_{n_ranks}", [suite.tool("gpu_reduce"), str(n_ranks)]
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,REG"}
        try:
            text = suite.run(name, argv, env)
        except AssertionError:
            status, _ = suite.observe(name + "_unshared", argv, {**env, **UNSHARED}, PATIENCE)
            suite.say(f"    {name}: without shared memory it ended with {status} (in the log)")
            raise
        for line in text.splitlines():
            if " ms" in line and "NCCL INFO" not in line:
                suite.say("    " + line)
        assert "that nobody joined were ended in" in text, text
    check.__doc__ = f"all-reduces of {n_ranks} processes, recorded and not; an abort ends one"
    check.__name__ = f"reduce_{n_ranks}"
    return check


def ops(suite, name, dtype):
    """Where it fails, the log has the same under compute-sanitizer."""
    try:
        suite.run(name, [suite.tool("gpu_ops"), dtype])
    except AssertionError:
        if sanitizer_of():
            suite.observe(name + "_sanitized",
                          sanitizing("memcheck") + [suite.tool("gpu_ops"), dtype], limit=PATIENCE)
        raise


def ops_f32(suite):
    """every operator against the double-precision reference, in float32"""
    ops(suite, "ops_f32", "F32")


def ops_bf16(suite):
    """... in bfloat16"""
    ops(suite, "ops_bf16", "BF16")


def ops_f16(suite):
    """... in float16"""
    ops(suite, "ops_f16", "F16")


def golden(suite):
    """PyTorch's losses over 20 steps; a recorded step gives the bits of its kernels"""
    suite.run("golden", [suite.tool("gpu_golden"), suite.golden])


def like_cpu(suite):
    """training is that on the CPU"""
    want = suite.train("cpu", 1, "cpu", {})
    seen = suite.train_explained("gpu", 1, {})
    start = next(e for e in seen if e["event"] == "start")
    assert start["device"].startswith(suite.device), f"it ran on {start['device']}"
    assert_near("losses", losses(seen), losses(want), 2e-3)


def recorded(suite):
    """recorded steps give the bits that their kernels give one by one, over a whole training"""
    # The smaller batch at the end of an epoch is recorded in the second, and launched from then on.
    seen = [losses(suite.train(f"record_{record}", 1, suite.device,
                               {"train.record": record, "train.epochs": 3,
                                "data.samples": 6 * 64 + 34}))
            for record in ("true", "false")]
    assert len(seen[0]) > 1 and seen[0] == seen[1], f"losses {seen[0]}, and unrecorded {seen[1]}"


def kept_plans(cache):
    """Each plan's file, as it was put there: one that is put again is a new file."""
    folder = os.path.join(cache, "dptrain", "plans")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {name: os.stat(os.path.join(folder, name)).st_ino
            for name in names if name.endswith(".plan")}


def plans(suite):
    """plans kept on disk give the bits of those chosen anew; the fastest ones train like them"""
    env = {"XDG_CACHE_HOME": os.path.join(suite.out, "cache"), "CACHE_DIRECTORY": ""}
    anew = losses(suite.train("plans_anew", 1, suite.device, {"train.plan_cache": "false"}))
    kept = {}
    for name in ("plans_put", "plans_kept"):
        before, seen = kept, losses(suite.train(name, 1, suite.device, {}, env))
        kept = kept_plans(env["XDG_CACHE_HOME"])
        assert seen == anew, f"{name}: losses {seen}, want {anew}"
    if not suite.rehearse:
        assert kept and kept == before, f"chosen anew: {sorted(set(kept) ^ set(before)) or kept}"
    timed = suite.train("plans_timed", 1, suite.device, {"train.autotune": "true"}, env)
    assert_near("losses", losses(timed), anew, 2e-3)


def like_float32(name, what, sets, n_ranks=1):
    def check(suite):
        want = suite.train("float32", 1, suite.device, {})
        seen = suite.train_explained(name, n_ranks, sets)
        assert_near("losses", losses(seen), losses(want), 1e-1)
    check.__doc__ = f"training {what} is near that in float32"
    check.__name__ = name
    return check


def like_one_rank(n_ranks):
    def check(suite):
        want = suite.train("one_rank", 1, suite.device, {})
        seen = suite.train_explained(f"{n_ranks}_ranks", n_ranks, {})
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
            driver.send_signal(signal.SIGTERM)
            assert driver.wait(PATIENCE) == 4, f"the driver ended with {driver.returncode}"
            suite.say(f"    recovered after {seconds:.2f} s")
        finally:
            for process in (driver, follower):
                if process and process.poll() is None:
                    suite.note(stacks_of(process.pid))
                    process.kill()
                    process.wait()
            suite.note(read(log_path))


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


def sanitizing(tool):
    """compute-sanitizer and its options.  Calls that fail are ours to tell: cuDNN tries some."""
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [sanitizer_of(), "--tool", tool, *quiet]


def sanitized(tool):
    def check(suite):
        if not sanitizer_of():
            raise Skip("no compute-sanitizer on PATH or in the toolkit")
        suite.run(tool, sanitizing(tool) + ["--error-exitcode", "1", suite.tool("gpu_ops")],
                  limit=5 * PATIENCE)
    check.__doc__ = f"compute-sanitizer {tool} finds nothing in the operator table"
    check.__name__ = tool
    return check


def quiet(n_ranks):
    # Reports to the daemon's loop, a few a second, come from the heap; steps take nothing from it.
    most_heap = 10 if n_ranks == 1 else 50  # steps are longer there

    def check(suite):
        counts = os.path.join(suite.out, f"counts-{n_ranks}")
        os.makedirs(counts, exist_ok=True)
        env = {"LD_PRELOAD": suite.tool("gpu_count.so"),
               "GPU_COUNT_FILE": os.path.join(counts, "rank")}
        # One epoch without a pause in it, long enough for the launches that are counted.
        suite.train(f"quiet_{n_ranks}", n_ranks, suite.device, {"data.samples": 300 * 64}, env)
        found = [json.loads(read(os.path.join(counts, name))) for name in os.listdir(counts)]
        suite.note(f"counted: {found}")
        assert len(found) == n_ranks, \
            f"{len(found)} of {n_ranks} processes launched as many recorded steps as are counted"
        for rank in found:
            heap = rank.pop("heap")
            bad = {name: n for name, n in rank.items() if name != "steps" and n}
            assert heap <= most_heap, f"{heap} allocations in {rank['steps']} steps"
            assert rank["steps"] == 200 and not bad, f"in {rank['steps']} steps: {bad}"
    of_ranks = f" of {n_ranks} ranks" if n_ranks > 1 else ""
    check.__doc__ = f"200 steps{of_ranks} without an allocation, a free or a wait"
    check.__name__ = "quiet" if n_ranks == 1 else f"quiet_{n_ranks}"
    return check


# What tells most in the least time comes first.
CHECKS = [check, properties, ops_f32, golden, reduced(2), like_cpu, recorded, plans,
          like_one_rank(2), killed, quiet(1), quiet(2), ops_bf16, ops_f16,
          like_float32("tf32", "in TF32", {"train.tf32": "true"}),
          like_float32("bfloat16", "in bfloat16", {"precision": "bfloat16"}),
          like_float32("float16", "in float16", {"precision": "float16"}),
          reduced(3), like_one_rank(3),
          like_float32("bfloat16_ranks_2", "of 2 ranks that sum in bfloat16",
                       {"precision": "bfloat16", "train.grad_dtype": "bfloat16"}, 2),
          sanitized("memcheck"), sanitized("racecheck")]
REHEARSED = {"like_cpu", "recorded", "plans", "ranks_2", "ranks_3", "killed", "tf32"}


def probe(suite):
    """Whether there is a GPU; says what was found."""
    done = subprocess.run([suite.tool("gpu_probe")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    suite.say(done.stdout.rstrip())
    if done.returncode not in (0, NONE):
        sys.exit(f"gpu_probe ended with {done.returncode}")
    return done.returncode == 0


def run_one(check, suite):
    start = time.monotonic()
    suite.note(f"\n==== {check.__name__}: {check.__doc__}")
    try:
        if suite.left() <= 0:
            raise Skip("no time is left (--minutes)")
        check(suite)
        verdict, why = "ok", ""
    except Skip as skip:
        verdict, why = "skipped", f": {skip}"
    except (AssertionError, OSError, KeyError, StopIteration, ValueError,
            subprocess.TimeoutExpired) as failure:
        verdict, why = "FAILED", f": {failure!r}" if not str(failure) else f": {failure}"
    suite.say(f"{verdict}: {check.__name__}: {check.__doc__} "
              f"({time.monotonic() - start:.1f} s){why}")
    return verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--bundle")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--minutes", type=float, default=float("inf"))
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
    if not args.rehearse:
        note_facts(suite)
    checks = [c for c in CHECKS if (not args.only or c.__name__ in args.only) and
              (not args.rehearse or c.__name__ in REHEARSED)]
    verdicts = [run_one(c, suite) for c in checks]
    n = {v: verdicts.count(v) for v in ("ok", "FAILED", "skipped")}
    if n["FAILED"] or keep:
        suite.say(f"everything is in {os.path.join(args.out, 'gpu-suite.log')}")
    else:
        shutil.rmtree(args.out)
    print(f"{n['ok']} passed, {n['FAILED']} failed, {n['skipped']} skipped")
    suite.log.close()
    return 1 if n["FAILED"] or not n["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())

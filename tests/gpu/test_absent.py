#!/usr/bin/env python3
"""Tests of the GPU suite on a machine without a GPU: it exits with 77, and tells the reason and
where it looked.  A check that fails or hangs makes the suite fail, and compute-sanitizer is told of
all our kernels.

    test_absent.py BUILD      exit 77 where there is a GPU"""

import os
import re
import subprocess
import sys
import tempfile

from checks import own_kernels

HERE = os.path.dirname(os.path.abspath(__file__))
build = sys.argv[1]
suite = [sys.executable, os.path.join(HERE, "suite.py")]


def run(*args, **env):
    done = subprocess.run([*suite, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, **env})
    return done.returncode, done.stdout


def expect(what, args, status, *says, **env):
    got, text = run(*args, **env)
    for part in says:
        assert part in text, f"{what} does not say {part!r}:\n{text}"
    assert got == status, f"{what} ended with {got}, want {status}:\n{text}"
    print(f"ok: {what}")


if subprocess.run([os.path.join(build, "tests/gpu/gpu_probe")],
                  stdout=subprocess.DEVNULL).returncode == 0:
    print("there is a GPU: tests/run.sh gpu tests it")
    sys.exit(77)
expect("without a GPU", ["--build", build], 77, "no GPU: ", "dptrain-cuda.so: ",
       "libcudart.so.13: ")
expect("the list", ["--list"], 0, "ops_f32: every operator", "racecheck: ", "killed: kill -9",
       "gpt_ranks_2: 2 ranks train gpt")
expect("the list of a build", ["--list", "--build", build], 0, "strategy_adasum: 2 ranks")
expect("an unknown check", ["--build", build, "--only", "nothing"], 2, "no check is named nothing")
expect("no folder", [], 2, "one of --build and --bundle is wanted")


def with_driver(what, script, args, status, *says, **env):
    """Run the suite with a stand-in for the driver, which has the driver's help; returns its
    log."""
    real = os.path.abspath(os.path.join(build, "driver/dpdriver"))
    with tempfile.TemporaryDirectory() as fake:
        os.makedirs(os.path.join(fake, "driver"))
        path = os.path.join(fake, "driver/dpdriver")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "$1" = --help-job ] && exec "{real}" --help-job\n{script}')
        os.chmod(path, 0o755)
        expect(what, ["--build", fake, "--rehearse", "--only", "ranks_2", "--out", fake, *args],
               status, *says, **env)
        with open(os.path.join(fake, "gpu-suite.log"), encoding="utf-8") as file:
            return file.read()


# The check fails with the daemon, and shows its last words.
log = with_driver("a daemon that fails", "echo the last words\nexit 1\n", [], 1, "FAILED: ranks_2",
                  "the last words", "0 passed, 1 failed, 0 skipped")
assert "--nranks 2" in log and "the last words\n" in log and "status 1" in log, log
log = with_driver("a daemon that hangs", "echo waiting\nexec sleep 1000\n", [], 1,
                  "did not end in time", "waiting", DPTRAIN_PATIENCE="4")
assert "-- process" in log and "   thread" in log, log
with_driver("no time", "exit 0\n", ["--minutes", "0"], 1, "skipped: ranks_2",
            "no time is left", "0 passed, 0 failed, 1 skipped")

# No kernel of the sources is hidden from compute-sanitizer.
plugin = os.path.join(build, "tests/gpu/dptrain-cuda.so")
if os.path.exists(plugin):
    folder = os.path.join(HERE, "../../common/backend/cuda")
    sources = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith((".cu", ".cuh"))]
    kernels = {name for path in sources
               for name in re.findall(r"__global__ void\s+(?:__launch_bounds__\(.*?\)\s+)?(\w+)\(",
                                      open(path).read())}
    hidden = {f"_Z{len(name)}{name}" for name in kernels} - set(own_kernels(plugin))
    assert len(kernels) > 30 and not hidden, f"of {sorted(kernels)} these are hidden: {hidden}"
    print("ok: all our kernels are named")

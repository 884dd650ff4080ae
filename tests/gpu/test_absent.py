#!/usr/bin/env python3
"""What the GPU suite says where there is no GPU: 77, the reason, and where was looked.  And that a
check which fails makes the suite fail.  test_absent.py BUILD; exit 77 where there is one."""

import os
import subprocess
import sys
import tempfile

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
expect("the list", ["--list"], 0, "ops_f32: every operator", "racecheck: ", "killed: kill -9")
expect("an unknown check", ["--build", build, "--only", "nothing"], 2, "no check is named nothing")
expect("no folder", [], 2, "one of --build and --bundle is wanted")
# A daemon that fails: the check does, and its last words are shown.
with tempfile.TemporaryDirectory() as fake:
    os.makedirs(os.path.join(fake, "driver"))
    path = os.path.join(fake, "driver/dpdriver")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho the last words\nexit 1\n")
    os.chmod(path, 0o755)
    expect("a daemon that fails", ["--build", fake, "--rehearse", "--only", "ranks_2"], 1,
           "FAILED: ranks_2", "the last words", "0 passed, 1 failed, 0 skipped")

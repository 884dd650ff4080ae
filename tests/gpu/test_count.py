#!/usr/bin/env python3
"""Tests of gpu_count over a stand-in for the CUDA runtime: it counts the calls that steps make, and
no others.

    test_count.py GPU_COUNT.SO COUNT_MAIN PLUGIN"""

import json
import os
import subprocess
import sys
import tempfile

preload, main, plugin = map(os.path.abspath, sys.argv[1:4])


def counted(n_steps, allocates, waits):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "counts.json")
        subprocess.run([main, plugin, str(n_steps), str(allocates), str(waits)], check=True,
                       env={**os.environ, "LD_PRELOAD": preload, "GPU_COUNT_FILE": path})
        found = [name for name in os.listdir(work) if name.startswith("counts.json.")]
        if not found:
            return None
        with open(os.path.join(work, *found), encoding="utf-8") as file:
            return json.load(file)


def expect(what, got, **want):
    callers = got.pop("callers")
    assert sum(callers.values()) == sum(want.values()), f"{what}: called by {callers}, want {want}"
    others = {k: v for k, v in got.items() if k not in want and k != "steps" and v}
    assert got["steps"] == 200 and not others, f"{what}: {got}"
    assert all(got[k] == v for k, v in want.items()), f"{what}: {got}, want {want}"
    print(f"ok: {what}")


expect("quiet steps", counted(300, 0, 0))
expect("steps that allocate", counted(300, 1, 0), heap=200, cudaMalloc=200)
expect("steps that wait", counted(300, 0, 1), cudaStreamSynchronize=200)
assert counted(249, 0, 0) is None, "too few steps were counted"
print("ok: too few steps say nothing")

#!/usr/bin/env python3
"""Tests of gpu_reduce over a simulated GPU: it ends well and tells what it does.  If a rank is
frozen, another rank tells in which stage it waits, and ends.

    test_reduce.py GPU_REDUCE"""

import os
import signal
import subprocess
import sys

from process import descendants

program = os.path.abspath(sys.argv[1])


def started(n_ranks, most_bytes, patience):
    return subprocess.Popen([program, str(n_ranks), str(most_bytes)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "DPTRAIN_PATIENCE": str(patience)})


with started(3, 2 << 20, 480) as child:
    text = child.stdout.read()
assert child.returncode == 0, text
for stage in ("connecting", "1024 bytes of F32: eager", "1048576 bytes of BF16: recording",
              "1048576 bytes of BF16: launching", "and an abort", "closing"):
    assert f"{stage}\n" in text, f"no {stage!r} in\n{text}"
print("ok: each stage is told")

with started(2, 64 << 20, 60) as child:
    frozen, lines = [], []
    for line in child.stdout:
        lines.append(line)
        if line.startswith("2 ranks connected"):
            frozen = descendants(child.pid)[1:]
            os.kill(frozen[0], signal.SIGSTOP)
        if "is stuck in: rank 0: " in line or "rank 0: " in line and "not done after 15 s" in line:
            os.kill(frozen[0], signal.SIGKILL)  # the frozen rank holds the pipe open, too
            break
    text = "".join(lines)
    assert len(frozen) == 1 and "rank 0: " in lines[-1] and " bytes" in lines[-1], text
    child.stdout.read()
assert child.returncode == 1, f"status {child.returncode}\n{text}"
print(f"ok: {lines[-1].strip()}")

"""find_torch - gives a test a Python that has the packages which the test compares dptrain with:
this one, $DPTRAIN_TORCH_PYTHON (tests/run.sh installs one), or one on PATH.

    find_torch.need("torch", "safetensors")     may replace the process

Without such a Python the test is skipped (77).
"""
import importlib.util
import os
import shutil
import subprocess
import sys

CHOSEN = "DPTRAIN_TORCH_CHOSEN"


def has(python, packages):
    """Importing them would tell the same, and takes up to five seconds."""
    code = ("import importlib.util as u, sys; "
            "sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))")
    return subprocess.run([python, "-c", code, *packages], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def need(*packages):
    """Return if this Python has the packages.  Else replace it by one that has, or exit."""
    if all(importlib.util.find_spec(name) for name in packages):
        return
    others = [os.environ.get("DPTRAIN_TORCH_PYTHON"), shutil.which("python3"), "/usr/bin/python3"]
    for python in filter(None, others):
        if CHOSEN not in os.environ and has(python, packages):
            os.environ[CHOSEN] = python
            os.execv(python, [python, *sys.argv])
    print(f"skipped: no Python here has {', '.join(packages)}; a venv that does (pip install "
          "-r tests/interop/requirements.txt) can be named in DPTRAIN_TORCH_PYTHON")
    sys.exit(77)

"""find_torch - gives a test a Python that has torch and safetensors: this one,
$DPTRAIN_TORCH_PYTHON, or one on PATH.  Without one the test is skipped (77).

Importing this module is enough; it may replace the process.
"""
import importlib.util
import os
import shutil
import subprocess
import sys

NEEDED = ("torch", "safetensors")
CHOSEN = "DPTRAIN_TORCH_CHOSEN"


def has_needed(python):
    return subprocess.run([python, "-c", "import torch, safetensors.torch"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def find_python():
    """Replace this process by a Python that has torch and safetensors, or say why not and exit."""
    others = [os.environ.get("DPTRAIN_TORCH_PYTHON"), shutil.which("python3"), "/usr/bin/python3"]
    for python in filter(None, others):
        if CHOSEN not in os.environ and has_needed(python):
            os.environ[CHOSEN] = python
            os.execv(python, [python, *sys.argv])
    print("skipped: no Python here imports torch and safetensors; a venv that does (pip install "
          "torch safetensors) can be named in DPTRAIN_TORCH_PYTHON")
    sys.exit(77)


if any(importlib.util.find_spec(name) is None for name in NEEDED):
    find_python()

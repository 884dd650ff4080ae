"""pytorch_checks - the GPU suite's comparisons with PyTorch: those of tests/interop, in which 20
steps of ours on the GPU have the losses of PyTorch's on the CPU, from the same weights.

They are skipped where no Python has PyTorch and what else they need (tests/interop/find_torch.py).
"""

import os
import sys

from process import PATIENCE
from rig import HERE

FOLDER = os.path.join(HERE, "..", "interop")


# The test of each check: its script, and its name there.
TESTS = {"pytorch_gpt": ("test_gpt.py", "GPT.test_tied"),
         "pytorch_resnet18": ("test_networks.py", "Networks.test_resnet18"),
         "pytorch_vit": ("test_networks.py", "Networks.test_vit")}


def equals(name, script, test):
    def check(suite):
        env = {"DPDRIVER": suite.driver, "DPFOLLOWER": suite.follower,
               "DPTRAIN_TEST_DEVICE": suite.device, "PYTHONDONTWRITEBYTECODE": "1"}
        text = suite.run(name, [sys.executable, os.path.join(FOLDER, script), test], env,
                         limit=2 * PATIENCE)
        for line in text.splitlines():
            if "of PyTorch's" in line:
                suite.say("    " + line)
    check.__doc__ = f"20 steps have PyTorch's losses: {test} of tests/interop/{script}"
    check.__name__ = name
    return check


ALL = [equals(name, *test) for name, test in TESTS.items()]

"""pytorch_checks - the GPU suite's comparisons with PyTorch: those of tests/interop, in which 20
steps of ours on the GPU have the losses of PyTorch's on the CPU, from the same weights.

They are skipped where no Python has torch and safetensors (tests/interop/find_torch.py)."""

import os
import sys

from process import PATIENCE
from rig import HERE

FOLDER = os.path.join(HERE, "..", "interop")


def equals(name, script, case, *tests):
    def check(suite):
        env = {"DPDRIVER": suite.driver, "DPFOLLOWER": suite.follower,
               "DPLOGITS": suite.logits, "DPTRAIN_TEST_DEVICE": suite.device,
               "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, os.path.join(FOLDER, script), *(f"{case}.{t}" for t in tests)]
        text = suite.run(name, argv, env, limit=2 * PATIENCE)
        for line in text.splitlines():
            if "of PyTorch's" in line:
                suite.say("    " + line)
    check.__doc__ = f"20 steps as PyTorch's: {', '.join(t.replace('test_', '') for t in tests)}"
    check.__name__ = name
    return check


ALL = [
    equals("pytorch_gpt", "test_gpt.py", "GPT", "test_adamw", "test_bfloat16"),
    equals("pytorch_resnet18", "test_networks.py", "Networks", "test_resnet18"),
    equals("pytorch_vit", "test_networks.py", "Networks", "test_vit"),
    equals("pytorch_norms", "test_networks.py", "Networks", "test_norms"),
]

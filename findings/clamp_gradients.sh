#!/usr/bin/env bash
# clamp_gradients.sh - the gradient of PyTorch 2.15.0's clamp where its input is at a bound.
#
# An importer must give an operator the gradient that its author trained with.  An input lies at a
# bound more often than it seems: after a relu, after another clamp, in pictures that are 0 or 1.
#
# Guess: the bounds belong to the range, so the gradient there is 1, for numbers and tensors alike;
#        relu6, hardtanh and clamp(0, 6) are the same function with the same gradient.
# Seen:  clamp(0, 1) has 0 at both bounds; clamp with the same bounds as tensors has 0.5, as
#        minimum and maximum have.  torch.compile gives the same numbers as eager mode.  And in
#        float64 the slope of hardsigmoid is 1/6 rounded to float32 in eager mode, and 1/6 compiled.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the package cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
TORCHINDUCTOR_CACHE_DIR=$dir/inductor "$dir/venv/bin/python" - <<'PY'
import sys

import torch
from torch.nn import functional as F

AT = [0.0, 0.5, 1.0, 6.0]
low, high = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
wanted = {
    "clamp(0, 1)": (lambda x: x.clamp(0, 1), [0, 1, 0, 0]),
    "clamp(min=0)": (lambda x: x.clamp(min=0), [0, 1, 1, 1]),
    "clamp(tensor 0, tensor 1)": (lambda x: x.clamp(low, high), [0.5, 1, 0.5, 0]),
    "minimum(maximum(x, 0), 1)":
        (lambda x: torch.minimum(torch.maximum(x, low), high), [0.5, 1, 0.5, 0]),
    "hardtanh(0, 1)": (lambda x: F.hardtanh(x, 0.0, 1.0), [0, 1, 0, 0]),
    "relu6": (F.relu6, [0, 1, 1, 0]),
}


def gradient(function):
    x = torch.tensor(AT, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()


same = True
print("torch", torch.__version__, "gradients at", AT)
for name, (function, want) in wanted.items():
    eager, compiled = gradient(function), gradient(torch.compile(function))
    print(f"{name}: eager {eager}, compiled {compiled}")
    same = same and eager == want and compiled == want
eager, compiled = gradient(F.hardsigmoid)[0], gradient(torch.compile(F.hardsigmoid))[0]
print(f"hardsigmoid in float64: eager {eager!r}, compiled {compiled!r}")
rounded = torch.tensor(1 / 6, dtype=torch.float32).item()
sys.exit(0 if same and eager == rounded != 1 / 6 and compiled == 1 / 6 else 1)
PY

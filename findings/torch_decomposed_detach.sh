#!/usr/bin/env bash
# torch_decomposed_detach.sh - a decomposed program trains another network than the exported one.
#
# torch.export.export keeps a training network; run_decompositions() lowers it to the core operators
# that most readers of .pt2 files know. Straight-through estimators (codebooks, rounded weights),
# targets of self-distillation and stopped branches depend on detach() and no_grad().
#
# Guess: decomposing changes operators, not what is computed: neither outputs nor gradients.
# Seen:  torch 2.15.0: outputs are equal, gradients are not. detach becomes alias, through which
#        gradients flow, and a no_grad block is inlined without its no_grad: a straight-through
#        rounding x + (round(x) - x).detach() has the gradient 0 in place of 1. There is no warning.
#        With an empty table, run_decompositions({}), detach stays; the block's no_grad is lost
#        there as well.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the package cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 numpy==2.4.6 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/detach.py" <<'PY'
"""Compares outputs and gradients of a network, of its export, and of its decomposed exports."""
import sys

import torch


class Through(torch.nn.Module):
    """Rounds, with the gradient of the identity"""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.3, 1.7, 2.6]))

    def rounded(self, x):
        return x + (torch.round(x) - x).detach()

    def forward(self, x):
        return self.rounded(self.scale * x)


class Block(Through):
    """The same by a block of no_grad"""

    def rounded(self, x):
        with torch.no_grad():
            rest = torch.round(x) - x
        return x + rest


def run(network):
    network.zero_grad()
    out = network(torch.ones(3))
    out.sum().backward()
    return out.detach().tolist(), [p.grad.tolist() for p in network.parameters()][0]


LEFT, LOST = [1.0] * 3, [0.0] * 3
failed = 0
for cls, wanted in ((Through, (LEFT, LEFT, LOST)), (Block, (LEFT, LOST, LOST))):
    exported = torch.export.export(cls(), (torch.ones(3),))
    forms = (("exported", exported), ("run_decompositions({})", exported.run_decompositions({})),
             ("run_decompositions()", exported.run_decompositions()))
    assert run(cls()) == ([0.0, 2.0, 3.0], LEFT)
    for (name, program), gradient in zip(forms, wanted):
        seen = run(program.module())
        print(f"{cls.__name__:8} {name:24} outputs {seen[0]}, gradients {seen[1]}")
        failed |= seen != ([0.0, 2.0, 3.0], gradient)
sys.exit(failed)
PY
"$dir/venv/bin/python" -W ignore "$dir/detach.py" 2>"$dir/log" || {
    tail -n 3 "$dir/log"
    exit 1
}

#!/usr/bin/env bash
# dcp_optimizer_keys.sh - an optimizer that forgets its momentum between two of PyTorch's formats.
#
# torch.distributed.checkpoint has converters from a file of torch.save into its own folders, and
# back. A checkpoint holds a model's state and its optimizer's.
#
# Guess: the way there and back gives an equal file; what one of the formats cannot hold is refused.
# Seen:  torch 2.15.0: the optimizer's state has a parameter's number as its key, which comes back
#        as a text, "0" for 0. load_state_dict takes the file without an error or a warning. It
#        keeps the moments under the texts, where no step reads them, so Adam and SGD with momentum
#        start anew: their next step is that of an optimizer without a past. SGD without momentum
#        has an empty state, which does not come back at all: there load_state_dict raises
#        KeyError: 'state'. The model's state comes back as it was.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 numpy==2.4.6 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/convert.py" <<'PY'
"""Trains a little, saves, converts there and back, and takes one more step from each file."""
import copy
import pathlib
import sys
import warnings

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

FOLDER = pathlib.Path(sys.argv[1])
X = torch.arange(12.0).reshape(4, 3) / 12
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process does for this


def step(net, optimizer):
    optimizer.zero_grad()
    net(X).square().mean().backward()
    optimizer.step()


def next_weight(net, make, state):
    """Returns the weight after a step of an optimizer with that state, and the state's keys."""
    net = copy.deepcopy(net)
    optimizer = make(net.parameters())
    optimizer.load_state_dict(state)
    step(net, optimizer)
    return net.weight.detach()


def seen(name, make):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = make(net.parameters())
    for _ in range(5):
        step(net, optimizer)
    first, back = FOLDER / f"{name}.pt", FOLDER / f"{name}_back.pt"
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, first)
    torch_save_to_dcp(str(first), str(FOLDER / name))
    dcp_to_torch_save(str(FOLDER / name), str(back))
    old, new = torch.load(first), torch.load(back)
    assert all(torch.equal(new["model"][key], value) for key, value in old["model"].items())
    wanted = next_weight(net, make, old["optimizer"])
    print(f"{name}: keys {list(old['optimizer']['state'])} and back "
          f"{list(new['optimizer'].get('state', ['no state']))}", end="; ")
    try:
        got = next_weight(net, make, new["optimizer"])
    except KeyError as error:
        print(f"KeyError {error}")
        return str(error)
    fresh = next_weight(net, make, make(net.parameters()).state_dict())
    print(f"the next step is {'the same' if torch.equal(got, wanted) else 'another'}, "
          f"{'that of a new optimizer' if torch.equal(got, fresh) else 'not a new one'}")
    return torch.equal(got, wanted), torch.equal(got, fresh)


FOLDER.mkdir()
print("torch", torch.__version__)
results = [seen("Adam", lambda p: torch.optim.Adam(p, lr=0.01)),
           seen("SGD_with_momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
           seen("SGD", lambda p: torch.optim.SGD(p, lr=0.1))]
sys.exit(results != [(False, True), (False, True), "'state'"])
PY
"$dir/venv/bin/python" "$dir/convert.py" "$dir/files"

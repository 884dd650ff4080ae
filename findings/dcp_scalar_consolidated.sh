#!/usr/bin/env bash
# dcp_scalar_consolidated.sh - a number that becomes 0 on its way into a Hugging Face checkpoint.
#
# torch.distributed.checkpoint writes a model as safetensors: each rank its shards, which are then
# put together into files that other programs read (enable_consolidation). A model may have
# parameters without a dimension: CLIP's logit_scale, a learned temperature, the scale of an fp8
# weight.
#
# Guess: the consolidated file holds the tensors of the shards, whatever their shapes.
# Seen:  torch 2.15.0, safetensors 0.8.0: the shards are right. In the consolidated file each tensor
#        without a dimension is 0, with its right name, shape and dtype; one of shape [1] is right.
#        There is no error and no warning. DCP's own reader takes the 0 from there as well. Without
#        enable_consolidation, or with save_distributed=False, the file is right.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 \
    2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/consolidate.py" <<'PY'
"""Saves a model's state with and without consolidation, and reads it by safetensors and by DCP."""
import pathlib
import sys
import warnings

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

STATE = {"logit_scale": torch.tensor(2.6592), "bias": torch.tensor([2.6592]),
         "temperature": torch.tensor(0.07, dtype=torch.bfloat16),
         "weight": torch.arange(1.0, 7.0).reshape(2, 3)}
SCALARS = {"logit_scale", "temperature"}
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process does for this


def wrong(state):
    """The names of the tensors that are not those of STATE; all others must equal them."""
    assert state.keys() == STATE.keys()
    for name, tensor in state.items():
        assert tensor.shape == STATE[name].shape and tensor.dtype == STATE[name].dtype
    names = {name for name, tensor in state.items() if not torch.equal(tensor, STATE[name])}
    assert all(state[name] == 0 for name in names)
    return names


def read(folder):
    [file] = folder.glob("*.safetensors")
    by_file = wrong(safetensors.torch.load_file(file))
    state = {name: torch.full_like(tensor, 9) for name, tensor in STATE.items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert wrong(state) == by_file
    return by_file


def save(folder, **options):
    dcp.save(STATE, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), **options),
             no_dist=True)


folder = pathlib.Path(sys.argv[1])
save(folder / "whole", save_distributed=False)
save(folder / "shards", save_distributed=True)
save(folder / "both", save_distributed=True, enable_consolidation=True)
seen = {"save_distributed=False": read(folder / "whole"),
        "shards only": read(folder / "shards"),
        "shards before consolidation": read(folder / "both" / "sharded"),
        "consolidated": read(folder / "both")}
print("torch", torch.__version__, "safetensors", safetensors.__version__)
for what, names in seen.items():
    print(f"{what}: {', '.join(sorted(names)) + ' are 0' if names else 'all right'}")
sys.exit(seen.pop("consolidated") != SCALARS or any(seen.values()))
PY
"$dir/venv/bin/python" "$dir/consolidate.py" "$dir/saved"

#!/usr/bin/env bash
# peft_padding_mode.sh - merging an adapter of a convolution changes the network's outputs.
#
# Networks of images of the whole sky, of textures and of upsamplers pad their convolutions with
# the opposite edge or a mirror image (padding_mode). LoRA puts two convolutions beside such a layer
# to train them; merge_and_unload adds their product to the layer's weight afterwards.
#
# Guess: adapters look at the layer's own input, padded as the layer pads it, so a network computes
#        the same before and after the merge, whatever the padding_mode.
# Seen:  peft 0.21.2, torch 2.15.0: the adapter takes kernel, stride and padding of the layer, and
#        neither padding_mode nor dilation. With circular, reflect and replicate the adapter is
#        trained on zeros at the border, and the merged layer gives other outputs there, without a
#        warning; inside the border they agree. With zeros both agree. With dilation the forward
#        pass raises an error about sizes, unless the padding is "same": then the adapter looks at
#        neighbours that are nearer than the layer's, and nothing is said until the merge.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 peft==0.21.2 transformers==5.24.0 \
    2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/merge.py" <<'PY'
"""Compares the outputs of one convolution with an adapter before and after the merge."""
import copy
import sys

import peft
import torch

# The layer's settings, and what is seen: (apart in the border, apart inside), or an error's word.
WANTED = [({}, (0, 0)), ({"stride": 2}, (0, 0)), ({"padding": "same"}, (0, 0)),
          ({"padding_mode": "circular"}, (1, 0)), ({"padding_mode": "reflect"}, (1, 0)),
          ({"padding_mode": "replicate"}, (1, 0)), ({"dilation": 2}, "size"),
          ({"dilation": 2, "padding": "same"}, (1, 1))]


def compare(settings):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(8, 8, 3, **{"padding": 1, **settings})
    config = peft.LoraConfig(r=4, target_modules=["0"], init_lora_weights=False)
    network = peft.get_peft_model(torch.nn.Sequential(layer), config).eval()
    x = torch.randn(2, 8, 12, 12)
    try:
        with torch.no_grad():
            before, after = network(x), copy.deepcopy(network).merge_and_unload()(x)
    except RuntimeError as error:
        return "size" if "size of tensor" in str(error) else str(error)
    apart = (before - after).abs().amax((0, 1)) > 1e-4
    inside = apart[2:-2, 2:-2].any().item()
    apart[2:-2, 2:-2] = False
    return int(apart.any()), int(inside)


failed = 0
for settings, wanted in WANTED:
    seen = compare(settings)
    print(f"{str(settings):40} border, inside apart: {seen}" if isinstance(seen, tuple)
          else f"{str(settings):40} an error: {seen}")
    failed |= seen != wanted
sys.exit(failed)
PY
"$dir/venv/bin/python" -W ignore "$dir/merge.py" 2>"$dir/log" || {
    tail -n 3 "$dir/log"
    exit 1
}

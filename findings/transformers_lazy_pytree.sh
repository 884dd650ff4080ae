#!/usr/bin/env bash
# transformers_lazy_pytree.sh - a .pt2 of a Hugging Face model can be saved and not be loaded.
#
# torch.export.save writes a model of transformers. Its outputs are a class of transformers, whose
# place in torch's pytrees the file names. Another program reads the file by torch.export.load.
#
# Guess: the file is all that the load needs; and where it is not, the error says what is missing:
#        "If this type is defined in another package, import that package before loading this
#        artifact so its pytree registrations run".
# Seen:  torch 2.15.0 with transformers 5.24.0: the load fails in a program without transformers.
#        It fails alike after `import transformers`, as the error advises, and after
#        `from transformers import AutoModel`, since transformers imports its parts when they are
#        first asked for. After `import transformers.modeling_outputs` the load works.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 transformers==5.24.0 numpy==2.4.6 \
    2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/save.py" <<'PY'
import sys

import torch
import transformers

config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1,
                                 num_attention_heads=2, intermediate_size=32)
network = transformers.BertForSequenceClassification(config).eval()
tokens = torch.zeros(2, 8, dtype=torch.long)
torch.export.save(torch.export.export(network, (tokens,), strict=False), sys.argv[1])
PY
cat >"$dir/load.py" <<'PY'
"""Loads the file after the imports that the arguments name."""
import importlib
import sys

import torch

for name in sys.argv[2:]:
    module, _, part = name.partition(":")
    module = importlib.import_module(module)
    if part:
        getattr(module, part)
try:
    torch.export.load(sys.argv[1])
    print("loads")
except RuntimeError:
    print("fails")
PY
"$dir/venv/bin/python" -W ignore "$dir/save.py" "$dir/net.pt2" 2>"$dir/log"
failed=0
expect() { # WANTED IMPORT...
    wanted=$1
    shift
    seen=$("$dir/venv/bin/python" -W ignore "$dir/load.py" "$dir/net.pt2" "$@" 2>"$dir/log" |
        tail -n 1)
    printf '%-40s %s\n' "${*:-nothing imported}" "$seen"
    [ "$seen" = "$wanted" ] || failed=1
}
expect fails
expect fails transformers
expect fails transformers:AutoModel
expect loads transformers.modeling_outputs
exit $failed

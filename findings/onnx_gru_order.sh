#!/usr/bin/env bash
# onnx_gru_order.sh - the first export of a GRU in a process decides what the later ones hold.
#
# A program exports one tagger twice: once for the example's size, once for sentences of any
# length, with batch and length named as dynamic.  ONNX's GRU and LSTM take any number of steps.
#
# Guess: a call of torch.onnx.export writes the same graph whatever was exported before it; and
#        where a dimension that was asked for cannot be free, the call raises an error.
# Seen:  torch 2.15.0 keeps, for each of the operators gru and lstm, the way in which it was
#        dissolved first in the process.  A process whose first export is the dynamic one writes a
#        file with a free length.  After an export of fixed size, or after a torch.export.export,
#        the same call writes a file that only takes the example's length, without an error or a
#        warning about it.  torch.export.export itself raises "Constraints violated" in that place.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 \
    onnx-ir==1.1.0 numpy==2.4.6 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/exports.py" <<'PY'
"""Does the exports that the arguments name, in one process; prints what the last one has free."""
import sys

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = getattr(nn, kind)(4, 8, batch_first=True)

    def forward(self, words):
        return self.layer(words)[0]


def export(what, kind):
    """The input's dimensions after one export: fixed or free as ONNX, fixed or free as .pt2."""
    form, sizes = what.split("-")
    free = {"words": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    shapes = free if sizes == "free" else None
    module, words = Tagger(kind).eval(), (torch.randn(3, 6, 4),)
    if form == "pt2":
        try:
            torch.export.export(module, words, dynamic_shapes=shapes)
            return "no error"
        except Exception as error:
            return str(error).split(" (")[0]
    program = torch.onnx.export(module, words, dynamo=True, dynamic_shapes=shapes, verbose=False)
    shape = program.model.graph.inputs[0].shape
    return ",".join(str(getattr(size, "value", size)) for size in shape)


for step in sys.argv[1:]:
    last = export(*step.split(":"))
print(last)
PY
failed=0
expect() { # WANTED EXPORT...: the last of the exports in a new process tells WANTED
    wanted=$1
    shift
    seen=$("$dir/venv/bin/python" -W ignore "$dir/exports.py" "$@" 2>"$dir/log" | tail -n 1)
    printf '%-45s %s\n' "$*" "$seen"
    [ "$seen" = "$wanted" ] || failed=1
}
expect batch,length,4 onnx-free:GRU
expect batch,6,4 onnx-fixed:GRU onnx-free:GRU
expect batch,6,4 pt2-fixed:GRU onnx-free:GRU
expect batch,length,4 onnx-free:GRU onnx-fixed:GRU onnx-free:GRU
expect batch,length,4 onnx-fixed:LSTM onnx-free:GRU
expect batch,6,4 onnx-fixed:LSTM onnx-free:LSTM
expect 'Constraints violated' pt2-free:GRU
exit $failed

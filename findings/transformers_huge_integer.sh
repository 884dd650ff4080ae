#!/usr/bin/env bash
# transformers_huge_integer.sh - tokenizer_config.json holds an integer that no machine has.
#
# A program that reads a folder of Hugging Face takes bos_token, eos_token and chat_template out of
# tokenizer_config.json, which transformers writes beside tokenizer.json.
#
# Guess: the file is plain JSON of texts, truth values and small numbers, which any library reads.
# Seen:  transformers 5.24.0 writes a tokenizer without a limit of its length with model_max_length
#        1000000000000000019884624838656, which is int(1e30), as an integer. Python reads it.
#        jansson 2.14 refuses the whole file, "too big integer", unless JSON_DECODE_INT_AS_REAL is
#        given; orjson 3.11.4 gives a float in its place, and ujson 5.11.0 an int.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be had.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir transformers==5.24.0 orjson==3.11.4 ujson==5.11.0 \
    2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
ldconfig -p | grep -q libjansson.so.4 || apt-get install -qq -y libjansson4 >"$dir/log" 2>&1 || {
    tail -n 1 "$dir/log"
    exit 77
}
"$dir/venv/bin/python" -W ignore - "$dir" <<'PY'
import ctypes
import json
import os
import sys

import orjson
import ujson
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE())).save_pretrained(sys.argv[1])
with open(os.path.join(sys.argv[1], "tokenizer_config.json"), "rb") as file:
    text = file.read()

jansson = ctypes.CDLL("libjansson.so.4")
jansson.json_loads.restype = ctypes.c_void_p
jansson.json_loads.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
INT_AS_REAL = 0x8
error = ctypes.create_string_buffer(1024)
ERROR_TEXT = 12 + 80  # of json_error_t: three numbers and the source come before

seen = {
    "Python": json.loads(text)["model_max_length"],
    "orjson": orjson.loads(text)["model_max_length"],
    "ujson": ujson.loads(text)["model_max_length"],
    "jansson": bool(jansson.json_loads(text, 0, error)),
    "jansson, integers as reals": bool(jansson.json_loads(text, INT_AS_REAL, error)),
}
jansson.json_loads(text, 0, error)
seen["jansson's error"] = error.raw[ERROR_TEXT:].split(b"\0")[0].decode()
for name, value in seen.items():
    print(f"{name:28} {value}")
wanted = {"Python": int(1e30), "orjson": 1e30, "ujson": int(1e30), "jansson": False,
          "jansson, integers as reals": True}
same = all(seen[name] == value and type(seen[name]) is type(value)
           for name, value in wanted.items())
sys.exit(0 if same and seen["jansson's error"].startswith("too big integer") else 1)
PY

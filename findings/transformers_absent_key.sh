#!/usr/bin/env bash
# transformers_absent_key.sh - a key of config.json that is absent is not one that is null.
#
# A network's config.json may leave keys out, and may have null for them. A reader of such files, in
# another program, has to know what either means.
#
# Guess: both stand for "as the other keys say": num_key_value_heads is num_attention_heads,
#        head_dim is hidden_size / num_attention_heads, and without sliding_window there is none.
#        So says the documentation of several of the classes.
# Seen:  transformers 5.24.0, for a config with 4 heads and width 64: null means that, but an absent
#        key means the class's own default, a number of one published network: 32 key-value heads
#        with qwen2, 2 with ernie4_5, a head_dim of 128 with seed_oss, a sliding window of 4096 with
#        mistral and olmo3. Nothing checks it against the 4 heads. In llama and granite absent and
#        null are the same. And qwen3 takes an absent head_dim as 128, but refuses null.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir transformers==5.24.0 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/read.py" <<'PY'
"""Reads a config.json without the key, and with null for it, and compares."""
import json
import os
import sys

import transformers

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100}
# model type, key: value where the key is absent, and where it is null
WANTED = {
    ("llama", "num_key_value_heads"): (4, 4),
    ("granite", "num_key_value_heads"): (4, 4),
    ("qwen2", "num_key_value_heads"): (32, 4),
    ("ernie4_5", "num_key_value_heads"): (2, 4),
    ("seed_oss", "head_dim"): (128, 16),
    ("qwen3", "head_dim"): (128, "refused"),
    ("mistral", "sliding_window"): (4096, None),
    ("olmo3", "sliding_window"): (4096, None),
}


def read(folder, config, key):
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(config, file)
    try:
        return getattr(transformers.AutoConfig.from_pretrained(folder), key)
    except Exception as error:
        return "refused" if "Validation" in type(error).__name__ else repr(error)


failed = 0
for (kind, key), wanted in WANTED.items():
    config = {"model_type": kind, **SIZES}
    config.pop(key, None)
    seen = (read(sys.argv[1], config, key), read(sys.argv[1], {**config, key: None}, key))
    print(f"{kind:10} {key:20} absent: {seen[0]}, null: {seen[1]}")
    failed |= seen != wanted
sys.exit(failed)
PY
"$dir/venv/bin/python" -W ignore "$dir/read.py" "$dir" 2>"$dir/log" || {
    tail -n 3 "$dir/log"
    exit 1
}

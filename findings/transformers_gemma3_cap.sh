#!/usr/bin/env bash
# transformers_gemma3_cap.sh - a key of config.json that is documented, read, and used by nothing.
#
# A program that imports a network by its config.json must know what each key does to the numbers.
# Gemma 2 caps its attention scores, cap * tanh(score / cap), by attn_logit_softcapping, and its
# logits by final_logit_softcapping. Gemma 3's configuration class documents and takes both keys.
#
# Guess: in both families a key that is set is applied.
# Seen:  transformers 5.24.0, torch 2.15.0: gemma3_text and t5gemma2 keep attn_logit_softcapping in
#        each attention layer and never pass it on, so logits with a cap of 0.5 equal those without
#        one to the bit, with eager attention and with sdpa. final_logit_softcapping is applied. In
#        gemma2 and vaultgemma both keys are.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 transformers==5.24.0 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/cap.py" <<'PY'
"""Compares the logits of small random networks with and without each cap."""
import sys

import torch
import transformers

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
KEYS = ("attn_logit_softcapping", "final_logit_softcapping")


def of_decoder(config_class, network_class):
    def make(caps):
        return network_class(config_class(**SIZES, **caps)), {}
    return make


def of_both(caps):
    part = {**SIZES, **caps}
    config = transformers.T5Gemma2Config(
        encoder={"text_config": part}, decoder=part, vocab_size=100)
    return (transformers.T5Gemma2ForConditionalGeneration(config),
            {"decoder_input_ids": torch.arange(10)[None]})


# The network, and which of KEYS change its logits.
WANTED = {
    "gemma2": (of_decoder(transformers.Gemma2Config, transformers.Gemma2ForCausalLM), (1, 1)),
    "vaultgemma": (of_decoder(transformers.VaultGemmaConfig, transformers.VaultGemmaForCausalLM),
                   (1, 1)),
    "gemma3_text": (of_decoder(transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
                    (0, 1)),
    "t5gemma2": (of_both, (0, 1)),
}


def logits(make, attention, key, cap):
    torch.manual_seed(0)
    network, more = make({name: cap if name == key else None for name in KEYS})
    network.set_attn_implementation(attention)
    for p in network.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.5)
    with torch.no_grad():
        return network.eval()(torch.arange(10)[None], **more).logits


failed = 0
for kind, (make, wanted) in WANTED.items():
    for attention in ("eager", "sdpa") if not wanted[0] else ("eager",):
        for key, changes in zip(KEYS, wanted):
            apart = (logits(make, attention, key, 0.5) - logits(make, attention, key, None))
            most = apart.abs().max().item()
            print(f"{kind:12} {attention:5} {key:24} moves logits by at most {most:.3g}")
            failed |= (most > 0) != changes
sys.exit(failed)
PY
"$dir/venv/bin/python" -W ignore "$dir/cap.py" 2>"$dir/log" || {
    tail -n 3 "$dir/log"
    exit 1
}

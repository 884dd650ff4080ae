"""gpt - transformers' GPT-2 as a network of training.py."""
import array
import os
import random

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

logging.disable_progress_bar()

N, N_VALIDATION = 7, 3
VOCAB, CONTEXT = 61, 40  # two blocks of queries, the second one not full


def write_tokens(path, n, seed):
    """Write tokens that often follow from the one before, as 16-bit numbers, enough for n samples.
    Returns the samples and the targets."""
    draw = random.Random(seed)
    tokens = [0]
    while len(tokens) < n * CONTEXT + 1:
        tokens.append((tokens[-1] * 7 + 3) % VOCAB if draw.random() < 0.6
                      else draw.randrange(VOCAB))
    with open(path, "wb") as file:
        file.write(array.array("H", tokens).tobytes())
    tokens = torch.tensor(tokens)
    return tokens[:-1].view(-1, CONTEXT), tokens[1:]


class Gpt:
    """Four blocks of four heads, 128 wide.  With the tied head our job leaves these numbers
    to config.json, and the weights are in several files."""
    rates = {"sgd": 0.005, "adamw": 1e-3}

    def __init__(self, tied):
        self.name = "gpt" if tied else "gpt_own_head"
        self.config = GPT2Config(
            vocab_size=VOCAB, n_positions=CONTEXT, n_layer=4, n_head=4, n_embd=128,
            tie_word_embeddings=tied, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0,
            eos_token_id=0, use_cache=False)

    def keys(self):
        model = {} if self.config.tie_word_embeddings else {
            "model.layers": 4, "model.heads": 4, "model.width": 128,
            "model.context": CONTEXT, "model.vocab": VOCAB, "model.tied": "false"}
        return {"model.arch": "gpt", **model, "data.format": "tokens", "data.train": "train.bin",
                "data.validation": "val.bin"}

    def write_data(self, to):
        self.train = write_tokens(os.path.join(to, "train.bin"), N, 1)
        self.validation = write_tokens(os.path.join(to, "val.bin"), N_VALIDATION, 2)
        return N

    def make(self):
        """No value is 0 or 1, not even in norms and biases."""
        model = GPT2LMHeadModel(self.config)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape) * 0.05)
        return model

    def save(self, model, to):
        if not self.config.tie_word_embeddings:
            model.save_pretrained(to)
            return os.path.join(to, "model.safetensors")
        model.save_pretrained(to, max_shard_size="1MB")
        assert len([name for name in os.listdir(to) if name.endswith(".safetensors")]) > 2
        return to

    def load(self, folder):
        """By our config.json, which says what theirs said."""
        model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert isinstance(model, GPT2LMHeadModel) and not any(report.values()), report
        ours, theirs = model.config.to_diff_dict(), self.config.to_diff_dict()
        for config in (ours, theirs):  # what differs by who wrote it, and the tokens for begin, end
            for key in ("architectures", "dtype", "use_cache", "bos_token_id", "eos_token_id"):
                config.pop(key, None)
        assert ours == theirs, (ours, theirs)
        return model

    def logits(self, model, x):
        return model(x).logits.flatten(0, 1)

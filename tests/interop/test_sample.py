"""Test of --sample: what it adds to a text is what transformers' greedy generate adds, token for
token, for networks of folders and for gpt with GPT-2's file.

It needs a Python with torch, transformers and tokenizers (find_torch.py), and is skipped (77)
without one.
"""
import json
import os
import string
import subprocess

import find_torch

find_torch.need("torch", "transformers", "tokenizers", "safetensors", "numpy")

import numpy as np  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers as t  # noqa: E402

from models import dp  # noqa: E402

LETTERS = string.ascii_letters + string.digits + ".,;!?"
VOCAB, CONTEXT, TOKENS = len(LETTERS) + 2, 160, 100
TEXT = "Tobeornottobe,thatisthequestion."
SIZES = dict(vocab_size=VOCAB, bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1, pad_token_id=None)
SMALL = dict(SIZES, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=112, max_position_embeddings=CONTEXT)
FOLDERS = {
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**SMALL, sliding_window=9)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**SMALL, tie_word_embeddings=True)),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(
        **SMALL, head_dim=24, sliding_window=9, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"])),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**SMALL, head_dim=32)),
}


def write_tokenizer(folder):
    """A token for each letter; the last two are the space and the end."""
    vocab = {c: i for i, c in enumerate(LETTERS + "\u0120")}
    vocab["<end>"] = VOCAB - 1
    one = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    one.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = tokenizers.decoders.ByteLevel()
    one.add_special_tokens(["<end>"])
    one.save(os.path.join(folder, "tokenizer.json"))


def letters_of(tokens):
    return "".join((LETTERS + " ")[i] for i in tokens)


class Sample(dp.Case):
    def network(self, kind, config):
        """Weights that are large enough for sharp choices"""
        torch.manual_seed(5)
        torch.set_num_threads(1)
        network = kind(config).eval()
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(4) if weight.ndim == 2 else weight.add_(
                    0.2 * torch.randn(weight.shape))
        network.save_pretrained(self.path("net"))
        write_tokenizer(self.path("net"))
        np.save(self.path("tokens.npy"), np.arange(2 * CONTEXT + 1, dtype=np.int32) % VOCAB)

    def train(self, **model):
        """A step that changes hardly anything, so that there is a checkpoint"""
        job = {"data.format": "tokens", "data.path": self.folder, "data.train": "tokens.npy",
               "data.validation": "none", "train.global_batch": 1, "train.max_steps": 1,
               "optimizer.name": "sgd", "optimizer.lr": 1e-6, "model.context": CONTEXT, **model}
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", "run", n=1,
                        job=job, status=dp.FINISHED)

    def sample(self, *more):
        done = subprocess.run([dp.DRIVER, "sample", self.path("run"), TEXT, "--log-format", "json",
                               "--tokenizer", self.path("net"), *more], cwd=self.folder,
                              env=self.env, check=False, capture_output=True, text=True,
                              timeout=dp.PATIENCE)
        self.assertEqual(done.returncode, dp.FINISHED, done.stderr)
        return json.loads(done.stdout)

    def check(self, network):
        given = torch.tensor([[LETTERS.index(c) for c in TEXT]])
        with torch.no_grad():
            want = network.eval().generate(given, attention_mask=torch.ones_like(given),
                                           max_new_tokens=TOKENS, do_sample=False,
                                           pad_token_id=0)[0].tolist()
        want = want[:-1] if want[-1] == VOCAB - 1 else want
        told = self.sample("--temperature", "0", "--tokens", str(TOKENS))
        self.assertGreater(len(set(want)), 5)
        self.assertEqual(told["text"], letters_of(want))
        self.assertEqual(told["given_tokens"], len(TEXT))

    def test_gpt2(self):
        config = t.GPT2Config(**SIZES, n_embd=48, n_layer=3, n_head=4, n_positions=CONTEXT)
        self.network(t.GPT2LMHeadModel, config)
        self.train(**{"model.arch": "gpt", "model.layers": 3, "model.heads": 4, "model.width": 48,
                      "model.vocab": VOCAB, "model.init.name": "file",
                      "model.init.path": self.path("net/model.safetensors")})
        network = t.GPT2LMHeadModel.from_pretrained(self.path("run", "checkpoints", "latest"))
        self.check(network)
        drawn = [self.sample("--seed", str(seed), "--top-k", "9", "--temperature", "2")["text"]
                 for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(self.sample("--tokens", "1000", "--temperature", "0")["end"], "context")


def add(name):
    def test(self):
        kind, config = FOLDERS[name]
        self.network(kind, config)
        self.train(**{"model.import": self.path("net")})
        self.check(kind.from_pretrained(self.path("run", "checkpoints", "latest")))

    setattr(Sample, f"test_{name}", test)


for one in FOLDERS:
    add(one)

if __name__ == "__main__":
    dp.main()

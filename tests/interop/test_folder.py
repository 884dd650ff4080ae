"""Test of model.import with folders of Hugging Face: small models of transformers, saved by
save_pretrained.  Logits of --predict equal transformers' to 1e-4; 20 steps of AdamW on 1 to 3 ranks
have losses no further from PyTorch's in float64 than twice those of PyTorch in float32, or 1e-5 of
the loss; from_pretrained reads the checkpoint.

    test_folder.py [FAMILY ...]        some of them; all by default; also unittest's words

It needs a Python with torch and transformers (find_torch.py), and is skipped (77) without one.
"""
import csv
import json
import os
import sys

import find_torch

find_torch.need("torch", "transformers", "safetensors", "numpy")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers as t  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from models import dp  # noqa: E402

STEPS, BATCH, LENGTH, VOCAB, RATE = 20, 6, 16, 96, 0.003
RANKS = (1, 2, 3)
SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=112, vocab_size=VOCAB, max_position_embeddings=32,
             pad_token_id=None, bos_token_id=1, eos_token_id=2)
SIDE, CLASSES = 18, 5  # of pictures
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0 + i / 8 for i in range(8)],
            long_factor=[1.5 + i for i in range(8)])

FAMILIES = {
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL)),
    "llama3": (t.LlamaForCausalLM, t.LlamaConfig(
        **{**SMALL, "pad_token_id": 0}, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, rope_parameters=LLAMA3, head_dim=24)),
    "linear": (t.LlamaForCausalLM, t.LlamaConfig(
        **SMALL, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))),
    "yarn": (t.Qwen3ForCausalLM, t.Qwen3Config(**SMALL, head_dim=32, rope_parameters=dict(
        rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=64))),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**SMALL, sliding_window=5)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**SMALL, head_dim=32)),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**SMALL, no_rope_layer_interval=2)),
    "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config(**SMALL)),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config(**SMALL)),
    "dynamic": (t.LlamaForCausalLM, t.LlamaConfig(
        **SMALL, rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=3.0))),
    "long": (t.Phi3ForCausalLM, t.Phi3Config(
        **SMALL, original_max_position_embeddings=8, rope_parameters=LONG)),
    "short": (t.Phi3ForCausalLM, t.Phi3Config(
        **SMALL, original_max_position_embeddings=LENGTH, rope_parameters=LONG)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, n_inner=112, vocab_size=VOCAB, n_positions=32,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, scale_attn_by_inverse_layer_idx=True)),
    "vit": (t.ViTForImageClassification, t.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=112,
        image_size=SIDE, patch_size=4, qkv_bias=False, num_labels=CLASSES)),
    "bert": (t.BertForSequenceClassification, t.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=112,
        vocab_size=VOCAB, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=CLASSES)),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(
        **{**SMALL, "pad_token_id": 0}, head_dim=24, sliding_window=5, query_pre_attn_scalar=20,
        final_logit_softcapping=3.0, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.0),
            sliding_attention=dict(rope_type="default", rope_theta=100.0)))),
}


def make(name):
    kind, config = FAMILIES[name]
    return kind(config)


def move(network):
    """Norms and biases that are not what they begin as"""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 1:
                weight.add_(0.2 * torch.randn(weight.shape))


def as_published(name, path):
    """Old files have a tied head twice, and GPT-2's have no prefix, but masks."""
    tensors = safetensors.torch.load_file(path)
    if name == "llama3":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(12)
    if name == "gpt2":
        tensors = {key.removeprefix("transformer."): tensor for key, tensor in tensors.items()}
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def write_tokens(path):
    draw = np.random.default_rng(1)
    tokens = draw.integers(3, VOCAB, STEPS * BATCH * LENGTH + 1)
    for i in range(1, len(tokens)):  # something to learn
        if draw.random() < 0.7:
            tokens[i] = 3 + (tokens[i - 1] * 7 + 3) % (VOCAB - 3)
    np.save(path, tokens.astype(np.int32))
    whole = torch.from_numpy(tokens.astype(np.int64))
    return whole[:-1].view(-1, LENGTH), whole[1:].view(-1, LENGTH)


def write_pictures(folder):
    """Brighter ones for later classes"""
    draw = np.random.default_rng(1)
    y = draw.integers(0, CLASSES, STEPS * BATCH)
    y[:CLASSES] = range(CLASSES)
    x = draw.standard_normal((len(y), SIDE, SIDE, 3)) + y[:, None, None, None] / 3
    np.save(os.path.join(folder, "x.npy"), x.astype(np.float32))
    np.save(os.path.join(folder, "y.npy"), y)
    return torch.from_numpy(x.astype(np.float32)).permute(0, 3, 1, 2), torch.from_numpy(y)


def write_texts(folder):
    """Samples of several lengths, whose first token says the class"""
    draw = np.random.default_rng(1)
    x = draw.integers(3, VOCAB, (STEPS * BATCH, LENGTH))
    y = x[:, 0] % CLASSES
    y[:CLASSES] = range(CLASSES)
    x[np.arange(LENGTH) >= LENGTH - np.arange(len(x))[:, None] * 3 % 11] = 0
    np.save(os.path.join(folder, "x.npy"), x)
    np.save(os.path.join(folder, "y.npy"), y)
    return torch.from_numpy(x), torch.from_numpy(y)


def compute(network, x):
    """The logits of tokens, or of pictures"""
    if network.config.model_type == "bert":
        return network(input_ids=x, attention_mask=(x != 0).long()).logits
    if x.is_floating_point():
        return network(pixel_values=x.to(network.dtype)).logits
    return network(input_ids=x, use_cache=False).logits


def train(name, state, x, y, dtype):
    network = make(name).to(dtype).train()
    network.load_state_dict({k: v.to(dtype) for k, v in state.items()})
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    losses = []
    for at in range(0, STEPS * BATCH, BATCH):
        optimizer.zero_grad()
        rows = compute(network, x[at:at + BATCH])
        loss = F.cross_entropy(rows.flatten(0, -2), y[at:at + BATCH].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Folder(dp.Case):
    def job(self, **more):
        return {"model.import": self.path("net"), "model.context": LENGTH,
                "data.format": "tokens", "data.path": self.folder, "data.train": "tokens.npy",
                "data.validation": "tokens.npy", "data.shuffle": "false",
                "train.global_batch": BATCH, "train.epochs": 1, "report.every_steps": 1,
                "optimizer.name": "adamw", "optimizer.lr": RATE, "optimizer.weight_decay": 0.01,
                **more}

    def run_ours(self, run, n=1, status=dp.FINISHED, flags=(), **more):
        return self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run,
                               *flags, n=n, job=self.job(**more), status=status)

    def losses_of(self, run):
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]


class Families(Folder):
    fields = "{x: x.npy, labels: y.npy}"  # and whole numbers stay such
    arrays = {"data.format": "npy", "data.train": fields, "data.validation": fields}
    classes = {"bert": arrays, "vit": {**arrays, "model.context": None}}

    def job(self, **more):
        more = {**super().job(), **self.more, **more}
        return {key: value for key, value in more.items() if value is not None}

    def check_logits(self, network, run, x):
        self.run_ours(run, flags=("--predict", self.path("rows.npy")))
        with torch.no_grad():
            theirs = compute(network.eval(), x).numpy()
        ours = np.load(self.path("rows.npy")).reshape(theirs.shape)
        self.assertLess(np.abs(ours - theirs).max(), 1e-4)

    def check_read(self, name, run, x):
        """transformers computes with our checkpoint what it should"""
        folder = self.path(run, "checkpoints", "latest")
        network, notes = FAMILIES[name][0].from_pretrained(folder, output_loading_info=True)
        self.assertEqual(network.dtype, torch.float32)
        self.assertEqual([list(notes[k]) for k in ("missing_keys", "unexpected_keys",
                                                   "mismatched_keys")], [[], [], []])
        ours = safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))
        network.save_pretrained(self.path("again"))
        theirs = safetensors.torch.load_file(self.path("again", "model.safetensors"))
        self.assertEqual(sorted(ours), sorted(theirs))
        for key, tensor in ours.items():
            self.assertTrue(torch.equal(tensor, theirs[key]), key)
        self.check_logits(network, run, x)

    def check(self, name):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        network = make(name)
        move(network)
        state = {k: v.clone() for k, v in network.state_dict().items()}
        network.save_pretrained(self.path("net"), max_shard_size="40KB" if name == "qwen2"
                                else "1GB")
        if name in ("llama3", "gpt2"):
            as_published(name, self.path("net", "model.safetensors"))
        self.more = self.classes.get(name, {})
        x, y = write_pictures(self.folder) if name == "vit" else write_texts(self.folder) \
            if name == "bert" else write_tokens(self.path("tokens.npy"))
        double, single = (train(name, state, x, y, d) for d in (torch.float64, torch.float32))
        for n in RANKS:
            self.run_ours(f"run{n}", n)
            ours, most = self.losses_of(f"run{n}"), 1e-5
            self.assertEqual(len(ours), STEPS)
            for step, (a, b, c) in enumerate(zip(ours, double, single)):
                most = max(most, 2 * abs(c - b) / b)
                self.assertLessEqual(abs(a - b) / b, most, f"step {step + 1} on {n} ranks")
            self.assertLess(sum(ours[-5:]), sum(ours[:5]))
        self.check_read(name, "run3", x)


class Refused(Folder):
    """Whole runs that end with one error; tests/import/test_folder.c has the keys of config.json"""

    def setUp(self):
        super().setUp()
        torch.manual_seed(3)
        make("llama").save_pretrained(self.path("net"), max_shard_size="40KB")
        write_tokens(self.path("tokens.npy"))

    def refused(self, *words):
        text = self.run_ours("bad", status=dp.USAGE).text
        for word in words:
            self.assertIn(word, text)

    def shard(self):
        return next(n for n in sorted(os.listdir(self.path("net")))
                    if n.endswith("00002.safetensors") or n.startswith("model-00002"))

    def test_truncated(self):
        path = self.path("net", self.shard())
        os.truncate(path, os.path.getsize(path) - 100)
        self.refused(self.shard())

    def test_missing_file(self):
        name = self.shard()
        os.remove(self.path("net", name))
        self.refused(name, "fetch index and files again")

    def change(self, **keys):
        """The config.json"""
        path = self.path("net", "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, **keys}, file)

    def test_tied(self):
        """The file has the embedding alone, but config.json has a head of its own"""
        t.LlamaForCausalLM(t.LlamaConfig(**SMALL, tie_word_embeddings=True)).save_pretrained(
            self.path("net"))
        for name in os.listdir(self.path("net")):
            if name.startswith("model-") or name.endswith("index.json"):
                os.remove(self.path("net", name))
        self.change(tie_word_embeddings=False)
        self.refused("lm_head.weight", "tie_word_embeddings: true")

    def test_token(self):
        np.save(self.path("tokens.npy"), np.full(500, VOCAB, np.int32))
        self.refused("token 0 is 96", "the imported network's tokenizer")

    def test_shape(self):
        self.change(intermediate_size=120)
        self.refused("mlp.gate_proj.weight", "[112,64]", "[120,64]")

    def test_beside(self):
        """A generation has the tokenizer, and goes with it when newer ones come"""
        given = {"tokenizer.json": b"{}" * 800000, "tokenizer_config.json": b"", "vocab.json": b"1"}
        for name, data in given.items():
            with open(self.path("net", name), "wb") as file:
                file.write(data)
        self.run_ours("new", **{"train.max_steps": 4, "checkpoint.every_steps": 1,
                                "checkpoint.keep": 1})
        folder = self.path("new", "checkpoints")
        self.assertEqual([n for n in os.listdir(folder) if n.startswith("step")],
                         ["step-00000004"])
        for name, data in given.items():
            with open(os.path.join(folder, "latest", name), "rb") as file:
                self.assertEqual(file.read(), data, name)

    def test_random(self):
        """The config alone is enough; weights have its deviation"""
        for name in os.listdir(self.path("net")):
            if name != "config.json":
                os.remove(self.path("net", name))
        self.run_ours("new", **{"model.init.name": "random", "train.max_steps": 1,
                                "optimizer.lr": 1e-9})
        weights = safetensors.torch.load_file(
            self.path("new", "checkpoints", "latest", "model.safetensors"))
        for key, weight in weights.items():
            if weight.ndim == 1:
                self.assertAlmostEqual(weight.mean().item(), 1, 5, key)
            else:
                self.assertAlmostEqual(weight.std().item(), 0.02, 2, key)


def add(name):
    setattr(Families, f"test_{name}", lambda self: self.check(name))


for family in [a for a in sys.argv[1:] if a in FAMILIES] or FAMILIES:
    add(family)
sys.argv[1:] = [a for a in sys.argv[1:] if a not in FAMILIES]

if __name__ == "__main__":
    dp.main()

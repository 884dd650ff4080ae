"""Packed documents (data.pack): a small Llama of a config.json alone, and our GPT.  Losses are
those of the documents in samples of their own, on any number of ranks, and networks that cannot
keep documents apart are refused."""

import csv
import json
import os
import random
import struct

import dp
from dp import EXACT, FINISHED, USAGE

CONTEXT, VOCAB, END, STEPS = 24, 61, 2, 4
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB,
          "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "rope_theta": 100.0, "hidden_act": "silu",
          "initializer_range": 0.2, "tie_word_embeddings": False}
MISTRAL = {**CONFIG, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
           "sliding_window": 5}

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": VOCAB,
        "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.2,
        "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}


def tokenizer():
    """Byte b is token b; token 256 ends a document"""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    char = {b: chr(b) for b in plain}
    char |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in char)}
    return {"version": "1.0", "pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "added_tokens": [{"id": 256, "content": "<end>", "special": True, "normalized": False}],
        "model": {"type": "BPE", "vocab": {char[b]: b for b in range(256)}, "merges": []}}


def examples():
    """Prompts, and answers that follow from them; some are longer than a sample"""
    draw = random.Random(7)
    for _ in range(30):
        prompt = "".join(draw.choice("abcdef") for _ in range(draw.choice((1, 3, 30))))
        yield {"prompt": prompt, "completion": prompt[::-1][:draw.choice((1, 4, 9))]}


def documents():
    """Some are longer than a sample, and one has no target"""
    draw = random.Random(5)
    all_of_them = []
    for i in range(40):
        text = [draw.randrange(3, VOCAB)]
        while len(text) < draw.choice((3, 9, 20, 70)):
            text.append((text[-1] * 7 + 3) % (VOCAB - 3) + 3 if draw.random() < 0.7
                        else draw.randrange(3, VOCAB))
        all_of_them.append([*text, END])
    return [*all_of_them, [END]]


def pieces(text):
    """Inputs and targets of samples of their own"""
    for at in range(0, len(text) - 1, CONTEXT):
        x, y = text[at:-1][:CONTEXT], text[at + 1:][:CONTEXT]
        room = CONTEXT - len(x)
        yield [*x, *[7] * room], [*y, *[-100] * room]


class Packed(dp.Case):
    def setUp(self):
        super().setUp()
        texts = documents()
        flat = [token for text in texts for token in text]
        self.write("train.bin", struct.pack(f"<{len(flat)}H", *flat))
        rows = [row for text in texts for row in pieces(text)]
        self.n_alone = len(rows)
        for name, k in (("x.npy", 0), ("y.npy", 1)):
            numbers = [token for row in rows for token in row[k]]
            self.write(name, dp.npy("<i4", (len(rows), CONTEXT),
                                    struct.pack(f"<{len(numbers)}i", *numbers)))

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)

    def net(self, config):
        self.write("net/config.json", json.dumps(config).encode())
        return {"model.import": self.path("net"), "model.context": CONTEXT,
                "model.init.name": "random"}

    def packed(self):
        return {"data.format": "tokens", "data.path": self.folder, "data.pack": "true",
                "data.end_token": END}

    def alone(self):
        return {"data.format": "npy", "data.path": self.folder,
                "data.train": "{input_ids: x.npy, labels: y.npy}"}

    def losses(self, run, model, data, n=1, **more):
        """Of steps of all samples at once"""
        job = {**model, **data, "data.validation": "none", "train.global_batch": self.n_alone,
               "train.epochs": STEPS, "report.every_steps": 1, "optimizer.lr": 0.3, **more}
        self.run_driver("--local", *EXACT, "--run-dir", run, n=n, job=job, status=FINISHED)
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        self.assertEqual(len(losses), STEPS)
        return losses

    def assert_near(self, ours, wanted, most):
        for a, b in zip(ours, wanted, strict=True):
            self.assertLessEqual(abs(a - b), most * b, (ours, wanted))

    def check_folder(self, config):
        model = self.net(config)
        wanted = self.losses("alone", model, self.alone())
        self.assertLess(wanted[-1], wanted[0])
        for n in (1, 2, 3):
            self.assert_near(self.losses(f"packed{n}", model, self.packed(), n), wanted, 1e-5)

    def test_llama(self):
        self.check_folder(CONFIG)

    def test_learnt_positions(self):
        self.check_folder(GPT2)

    def test_base(self):
        """A packed base (model.base) keeps positions that begin anew in each document."""
        model = {"model.arch": "gpt", "model.layers": 1, "model.heads": 2, "model.width": 16,
                 "model.context": CONTEXT, "model.vocab": VOCAB}
        self.losses("base", {**model, "optimizer.lr": 0.05}, self.packed())
        tuned = {**model, "model.lora.rank": 2, "model.init.name": "file", "model.init.path":
                 self.path("base", "checkpoints", "latest", "model.safetensors")}
        wanted = self.losses("wide", tuned, self.packed())
        for form in ("bfloat16", "int8"):
            ours = self.losses(form, {**tuned, "model.base": form}, self.packed())
            self.assert_near(ours, wanted, 3e-4)

    def test_window(self):
        self.check_folder(MISTRAL)

    def test_bfloat16(self):
        model = self.net(CONFIG)
        wanted, ours = (self.losses(f"run{i}", model, data, precision="bfloat16")
                        for i, data in enumerate((self.alone(), self.packed())))
        self.assert_near(ours, wanted, 2e-3)

    def test_gpt(self):
        """The order of documents changes where they lie in samples, and no loss"""
        model = {"model.arch": "gpt", "model.layers": 2, "model.heads": 2, "model.width": 16,
                 "model.context": CONTEXT, "model.vocab": VOCAB}
        wanted = self.losses("first", model, self.packed())
        texts = documents()[::-1]
        flat = [token for text in texts for token in text]
        self.write("train.bin", struct.pack(f"<{len(flat)}H", *flat))
        for n in (1, 2):
            self.assert_near(self.losses(f"other{n}", model, self.packed(), n), wanted, 1e-5)

    def test_examples(self):
        """Answers alone are targets, and what does not fit is cut, packed or not"""
        self.write("net/tokenizer.json", json.dumps(tokenizer()).encode())
        self.write("a.jsonl", "\n".join(map(json.dumps, examples())).encode())
        model = self.net({**CONFIG, "vocab_size": 257})
        data = {"data.format": "text", "data.path": self.path("a.jsonl"),
                "data.end_token": "<end>"}
        wanted = self.losses("alone", model, data)
        self.assertLess(wanted[-1], wanted[0])
        for n in (1, 3):
            ours = self.losses(f"packed{n}", model, {**data, "data.pack": "true"}, n)
            self.assert_near(ours, wanted, 1e-5)

    def refused(self, model, data, *words):
        text = self.run_driver(*EXACT, "--run-dir", "bad", job={**model, **data},
                               status=USAGE).text
        for word in words:
            self.assertIn(word, text)

    def test_refused(self):
        layers = "[embedding: {width: 8}, linear: {units: 61}]"
        self.refused({"model.arch": "layers", "model.layers": layers, "model.context": CONTEXT},
                     self.packed(), "model layers", "cannot keep packed documents apart",
                     "set data.pack false")
        self.refused({"model.arch": "gpt"}, {**self.packed(), "data.end_token": "</s>"},
                     "data.pack is true, but data.end_token is </s>: want the number")
        self.refused({"model.arch": "gpt"}, {**self.packed(), "data.end_token": 60000},
                     "is 60000, which ends a document")


if __name__ == "__main__":
    dp.main()

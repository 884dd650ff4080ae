"""The job files of deploy/examples: --check accepts each, with small files of the kind that it
names.  Two ranks train a few steps of those whose real data are there ($DPTRAIN_DATA, or
../shared/data beside the tree)."""

import csv
import glob
import json
import math
import os
import random
import struct

import dp
import test_texts
from test_data import png

EXAMPLES = os.path.join(dp.ROOT, "deploy", "examples")

# Of a large network the first block is enough.
SMALLER = {"gpt2-124m": {"model.layers": 1, "model.width": 48},
           "llama-shakespeare": {"model.import": "llama"},
           "qwen2-chat-lora": {"model.import": "qwen2", "model.init": "random",
                               "model.context": 64},
           "qwen2-dpo": {"model.import": "qwen2", "model.init": "random", "model.context": 64},
           "images-vit": {"model.depth": 1, "model.width": 48}}
REAL = os.environ.get("DPTRAIN_DATA", os.path.join(dp.ROOT, "..", "shared", "data"))
STEPS = 3
# Of a slow network a few images train, and none validates.
SLOW = {"train.global_batch": 16, "data.validation": "none", "schedule.warmup_steps": STEPS - 1}
# Where the data of an example are in REAL, how many classes they have, and what else to set; other
# examples have none there.
PLACES = {
    "cifar10-resnet18": ("cifar-10-binary", 10, SLOW),
    "cifar10-vit": ("cifar-10-binary", 10, SLOW),
    "fashion-mnist-lenet": ("mnist", 10, {}),
    "layers": ("mnist", 10, {}),
    "shakespeare-gpt": ("tinyshakespeare/input.txt", 65, {"schedule.warmup_steps": STEPS - 1}),
}


class Examples(dp.Case):
    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def setUp(self):
        super().setUp()
        rng = random.Random(1)
        for prefix in ("train", "t10k"):
            self.write(f"{prefix}-images-idx3-ubyte",
                       struct.pack(">4i", 0x803, 10, 28, 28) + rng.randbytes(10 * 784))
            self.write(f"{prefix}-labels-idx1-ubyte",
                       struct.pack(">2i", 0x801, 10) + bytes(range(10)))
        cifar = b"".join(bytes([i]) + rng.randbytes(3072) for i in range(10))
        self.write("data_batch_1.bin", cifar)
        self.write("test_batch.bin", cifar)
        for name in ("train.bin", "test.bin"):  # two labels in each record
            os.makedirs(self.path("cifar100"), exist_ok=True)
            self.write(f"cifar100/{name}", b"".join(bytes([0, i]) + rng.randbytes(3072)
                                                    for i in range(100)))
        for folder in ("train", "val"):
            os.makedirs(self.path("images", folder, "cat"))
            self.write(f"images/{folder}/cat/0.png", png(8, 8, rng.randbytes(192)))
        tokens = struct.pack("<2100H", *(rng.randrange(50257) for _ in range(2100)))
        self.write("train.bin", tokens)
        self.write("val.bin", tokens)
        table = [f"{i},{20 + i},{i % 5},{('Basel', 'Bern')[i % 2]},no,"
                 f"{'' if i % 20 == 3 else 1950 + i},{9 * i}" for i in range(60)]
        self.write("train.csv", "\n".join(["id,size,rooms,city,garden,year,price",
                                           *table]).encode())
        for name in ("train", "validation"):
            self.write(f"{name}.x.npy", dp.npy("<f4", (8, 50, 2), bytes(3200)))
            self.write(f"{name}.y.npy", dp.npy("|u1", (8,), bytes(i % 4 for i in range(8))))
            self.write_lists(name)
        self.write("input.txt", bytes(rng.randrange(97, 123) for _ in range(6000)))
        for kind in ("llama", "qwen2"):
            self.write_language_model(kind)
        self.write("conversations.jsonl", b"".join(json.dumps({"messages": [
            {"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i}."},
        ]}).encode() + b"\n" for i in range(400)))
        self.write("pairs.jsonl", b"".join(json.dumps({
            "prompt": [{"role": "user", "content": f"{i}?"}],
            "chosen": [{"role": "assistant", "content": f"{i}."}],
            "rejected": [{"role": "assistant", "content": f"{i}!"}],
        }).encode() + b"\n" for i in range(40)))

    def write_language_model(self, kind):
        """A folder such as language_model.py makes, with a tokenizer of bytes."""
        config = {"model_type": kind, "hidden_size": 32, "intermediate_size": 64,
                  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                  "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                  "tie_word_embeddings": True, "vocab_size": 260}
        os.makedirs(self.path(kind))
        for name, content in (("config.json", config), ("tokenizer.json", test_texts.tokenizer()),
                              ("tokenizer_config.json", {"eos_token": "<end>",
                                                         "chat_template": test_texts.TEMPLATE})):
            self.write(f"{kind}/{name}", json.dumps(content).encode())

    def write_lists(self, name):
        """Of the examples whose lists branch or read sequences, each in its folder"""
        for folder, field, kind, shape in (
                ("unet", ".x", "<f4", (8, 32, 32, 1)), ("unet", ".y", "|u1", (8, 32, 32)),
                ("text", ".ids", "|u1", (8, 15)), ("text", ".y", "|u1", (8,)),
                ("tagger", ".ids", "|u1", (8, 16)), ("tagger", ".y", "|u1", (8, 16)),
                ("autoencoder", "", "<f4", (8, 28, 28, 1))):
            os.makedirs(self.path(folder), exist_ok=True)
            n = math.prod(shape)
            self.write(f"{folder}/{name}{field}.npy",
                       dp.npy(kind, shape, bytes(i % 2 for i in range(n)) if kind == "|u1"
                              else bytes(4 * n)))

    def test_check(self):
        jobs = sorted(glob.glob(os.path.join(EXAMPLES, "*.yaml")))
        self.assertGreaterEqual(len(jobs), 10)
        places = {"shakespeare": "input.txt", "cifar100": "cifar100", "imag": "images",
                  "llama": "input.txt", "qwen2-chat": "conversations.jsonl",
                  "qwen2-dpo": "pairs.jsonl",
                  "unet": "unet", "text": "text", "tagger": "tagger",
                  "autoencoder": "autoencoder"}
        for job in jobs:
            name = os.path.splitext(os.path.basename(job))[0]
            with self.subTest(example=name):
                data, = [place for begin, place in places.items() if name.startswith(begin)] or [""]
                self.check(name, self.path(data), SMALLER.get(name, {}))

    def check(self, name, data, values):
        job = os.path.join(EXAMPLES, name + ".yaml")
        done = self.driver("--check", "--job", job, *dp.sets({**values, "data.path": data}), n=2,
                           job=None, port=False)
        self.assert_exit(done, dp.FINISHED)

    def test_real_data(self):
        for name, (place, n_classes, values) in PLACES.items():
            with self.subTest(example=name):
                data = os.path.abspath(os.path.join(REAL, place))
                if not os.path.exists(data):
                    self.skipTest(f"no {data}")
                self.train(name, n_classes, {"data.path": data, **values})

    def train(self, name, n_classes, values):
        """The loss of the first step is near that of a guess, and the others are numbers."""
        self.run_driver("--local", "--threads", "1", "--run-dir", name, "--job",
                        os.path.join(EXAMPLES, name + ".yaml"),
                        *dp.sets({**values, "train.max_steps": STEPS, "report.every_steps": 1}),
                        n=2, job=None)
        with open(self.path(name, "metrics.csv"), encoding="ascii", newline="") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(abs(losses[0] - math.log(n_classes)), 1, losses)
        self.assertTrue(all(map(math.isfinite, losses)), losses)
        epoch, = self.events("epoch", name)
        if "data.validation" not in values:
            self.assertLess(epoch["validation_loss"], math.log(n_classes) + 1, epoch)
            self.assertGreater(epoch["validation_accuracy"], 0.5 / n_classes, epoch)


if __name__ == "__main__":
    dp.main()

"""Tests of GPT-2's network with PyTorch: 20 steps of ours from PyTorch's weights have PyTorch's
losses, on one rank and on two, and our file gives PyTorch our validation loss.

They need a Python with torch and safetensors (find_torch.py), and are skipped (77) without one.  An
epoch is one step over the whole data set, so the order of samples does not matter.
"""
import array
import os
import random

import find_torch  # noqa: F401  (may replace this process)

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import gpt  # noqa: E402
from test_pytorch import FILE  # noqa: E402
from models import Case, dp  # noqa: E402

N, N_VALIDATION, STEPS = 7, 3, 20
VOCAB, CONTEXT = 61, 40  # two blocks of queries, the second one not full
SIZE = {"layers": 4, "heads": 4, "width": 128}
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}  # relative, of every step's loss


def write_tokens(path, n, seed):
    """Tokens that often follow from the one before, as 16-bit numbers; returns them."""
    draw = random.Random(seed)
    tokens = [0]
    while len(tokens) < n * CONTEXT + 1:
        tokens.append((tokens[-1] * 7 + 3) % VOCAB if draw.random() < 0.6
                      else draw.randrange(VOCAB))
    with open(path, "wb") as file:
        file.write(array.array("H", tokens).tobytes())
    return torch.tensor(tokens)


def samples_of(tokens):
    return tokens[:-1].view(-1, CONTEXT), tokens[1:]


class GPT(Case):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        os.mkdir(self.path("data"))
        self.train = samples_of(write_tokens(self.path("data", "train.bin"), N, 1))
        self.validation = samples_of(write_tokens(self.path("data", "val.bin"), N_VALIDATION, 2))

    def job(self, rule, tied):
        return {**rule, "model.arch": "gpt", **{f"model.{k}": v for k, v in SIZE.items()},
                "model.context": CONTEXT, "model.vocab": VOCAB, "model.tied": str(tied).lower(),
                "model.init.name": "file", "model.init.path": self.path("start.safetensors"),
                "data.format": "tokens", "data.path": self.path("data"), "data.train": "train.bin",
                "data.validation": "val.bin", "train.global_batch": N,
                "train.epochs": STEPS, "train.validate_every": STEPS,
                "checkpoint.every_epochs": STEPS}

    def train_theirs(self, model, optimizer):
        losses = []
        x, y = self.train
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def make(self, tied):
        return gpt.Gpt(VOCAB, CONTEXT, **SIZE, tied=tied)

    def compare(self, name, rule, make_optimizer, ranks, tied=True):
        torch.manual_seed(3)
        model = self.make(tied)
        safetensors.torch.save_file(model.state_dict(), self.path("start.safetensors"))
        theirs = self.train_theirs(model, make_optimizer(model.parameters()))
        for n in ranks:
            run = f"{name}-{n}"
            self.run_driver("--local", "--threads", "1", "--run-dir", run,
                            *dp.sets(self.job(rule, tied)), n=n, job=None)
            epochs = self.events("epoch", run)
            losses = [epoch["train_loss"] for epoch in epochs]
            self.assertEqual(len(losses), STEPS)
            worst = max(abs(a - b) / abs(b) for a, b in zip(losses, theirs))
            print(f"\n{name}, {n} ranks: {losses[0]:.5f} -> {losses[-1]:.5f}, "
                  f"within {worst:.1e} of PyTorch's", flush=True)
            precision = rule.get("precision", "float32")
            self.assertLessEqual(worst, TOLERANCE[precision], (losses, theirs))
            self.assertGreater(epochs[-1]["tokens_per_second"], 0)
            self.assertEqual(epochs[-1]["samples"], N)
            if precision != "float32":
                self.assertGreater(worst, 1e-6)  # else nothing was rounded
                continue
            self.check_file(os.path.join(self.path(run, "checkpoints", "latest"), FILE),
                            epochs[-1], tied)

    def check_file(self, path, epoch, tied):
        """PyTorch has our validation loss and accuracy with our file."""
        model = self.make(tied)
        model.load_state_dict(safetensors.torch.load_file(path), strict=True)
        x, y = self.validation
        with torch.no_grad():
            logits = model(x)
        loss = F.cross_entropy(logits.double(), y).item()
        self.assertLessEqual(abs(epoch["validation_loss"] - loss), 1e-5 * loss)
        accuracy = (logits.argmax(1) == y).double().mean().item()
        self.assertAlmostEqual(epoch["validation_accuracy"], accuracy, delta=1.5 / len(y))

    def test_sgd(self):
        self.compare("sgd", {"optimizer.lr": 0.05, "optimizer.momentum": 0.9},
                     lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), (1, 2))

    def test_adamw(self):
        self.compare("adamw", {"optimizer.name": "adamw", "optimizer.lr": 1e-3},
                     lambda p: torch.optim.AdamW(p, lr=1e-3), (1, 3))

    def test_bfloat16(self):
        keys = {"optimizer.name": "adamw", "optimizer.lr": 1e-3, "precision": "bfloat16"}
        self.compare("bfloat16", keys, lambda p: torch.optim.AdamW(p, lr=1e-3), (1, 2))

    def test_own_head(self):
        self.compare("head", {"optimizer.lr": 0.01}, lambda p: torch.optim.SGD(p, lr=0.01), (2,),
                     tied=False)


if __name__ == "__main__":
    dp.main()

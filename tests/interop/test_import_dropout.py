"""Test of imported networks with their random parts as they are: dropout, dropout in attention,
stochastic depth.  20 steps on 1, 2 and 3 ranks: the losses fall, and they are the same on any
number of ranks, since the random numbers follow the sample and not the rank.

    test_import_dropout.py [NETWORK ...]    some of them: names of torchvision, or of families.py;
                                            `all` for each of them; a quick few by default

Of torchvision these are classification networks of random weights, with small images; `all` leaves
out those of more than MOST_PARAMETERS, which want 4 GiB and more.  It needs a Python with torch,
torchvision and transformers (find_torch.py), and is skipped (77) without one.
"""
import csv
import os
import shutil
import sys

import find_torch

find_torch.need("torch", "torchvision", "transformers", "numpy")
WANTED, sys.argv[1:] = sys.argv[1:], []  # test_import_families has arguments of its own

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402

import families  # noqa: E402
import test_import_families as given  # noqa: E402
from models import dp  # noqa: E402

STEPS, BATCH, SAMPLES, CLASSES, RATE, DROPPED = 20, 6, 12, 10, 0.1, 0.1
MOST_PARAMETERS = 100_000_000
QUICK = ("alexnet", "mobilenet_v3_small", "gpt2", "bert_classes")
# Images that are no smaller than a network takes.
SIDE = {"alexnet": 64, "inception_v3": 80, "squeezenet1_0": 64, "squeezenet1_1": 64}
REFUSED = ("mixtral",)
# The first loss shows the random numbers, and the second one their gradient.  Rounding grows from
# step to step, fastest where batch norms see few values, so the other losses of torchvision's
# networks are told alone.
FIRST, SECOND, LATE = 1e-5, 1e-2, 1e-3


def torchvision_names():
    return torchvision.models.list_models(module=torchvision.models)


def make_images(name):
    """The network and the side of its images"""
    side = SIDE.get(name, 32)
    more = {"image_size": side} if name.startswith("vit_") else {}
    if name == "maxvit_t":
        side, more = 64, {"input_size": (64, 64), "partition_size": 2}
        build = torchvision.models.MaxVit
        return build(stem_channels=64, block_channels=[64, 128], block_layers=[2, 2], head_dim=32,
                     stochastic_depth_prob=0.2, num_classes=CLASSES, **more), side
    if name in ("googlenet", "inception_v3"):
        more = {"init_weights": True, "aux_logits": False}
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **more), side


def n_random(program):
    """How many nodes draw random numbers"""
    text = ("dropout", "bernoulli_", "rand.default")
    return sum(1 for node in program.graph.nodes
               if any(word in str(node.target) for word in text)
               or any(isinstance(arg, float) and 0 < arg < 1 for arg in node.args[3:5]
                      if "scaled_dot_product" in str(node.target)))


def with_dropout(name):
    """The family's network, each rate of its configuration set"""
    kind, config, *_ = families.FAMILIES[name]
    values = config.to_dict()
    values |= {key: DROPPED for key, value in values.items()
               if "drop" in key and isinstance(value, float)}
    return kind(type(config)(**values)).train()


class Channels(torch.nn.Module):
    """The squares of ones whose channels were dropped, and much where a channel is uneven"""

    def __init__(self):
        super().__init__()
        self.one, self.drop = torch.nn.Parameter(torch.ones(())), torch.nn.Dropout2d(0.2)

    def forward(self, x):
        y = self.drop(torch.ones_like(x) * self.one)
        return ((y ** 2).mean((1, 2, 3)) + 100 * (y - y[:, :, :1, :1]).abs().sum((1, 2, 3)),)


class Normal(torch.nn.Module):
    """Powers of normal numbers"""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        y = torch.randn_like(x.flatten(1)) * self.one
        z = torch.randn(x.shape[0], 64)
        return (10 + (y + y ** 2 + y ** 3 + y ** 4).mean(1) + z.mean(1),)


class Dropout(dp.Case):
    def save(self, program):
        torch.export.save(program, self.path("net.pt2"))
        return n_random(program)

    def write_images(self, name):
        network, side = make_images(name)
        size = sum(p.numel() for p in network.parameters())
        if WANTED == ["all"] and size > MOST_PARAMETERS:
            return None
        draw = np.random.default_rng(1)
        y = np.arange(SAMPLES) % CLASSES
        x = draw.standard_normal((SAMPLES, side, side, 3)) + y[:, None, None, None] / 3
        np.save(self.path("x.npy"), x.astype(np.float32))
        np.save(self.path("y.npy"), y)
        network.train()
        n = self.save(torch.export.export(network, (torch.randn(7, 3, side, side),), strict=False))
        return n, {"data.format": "npy", "data.train": "[x.npy, y.npy]"}

    def write_family(self, name):
        families.make = with_dropout
        network = with_dropout(name)
        n = self.save(families.export(name, network))
        kind = families.FAMILIES[name][2]
        write = given.write_masked if name in families.MASKED else given.WRITE[kind]
        _, _, keys = write(self.folder, name)
        return n, keys

    def train(self, name, n, keys):
        job = {"model.import": self.path("net.pt2"), "data.path": self.folder,
               "data.shuffle": "false", "data.validation": "none", "train.validate_every": 0,
               "train.global_batch": BATCH, "train.max_steps": STEPS, "train.epochs": STEPS,
               "checkpoint.every_epochs": 0, "report.every_steps": 1, "optimizer.name": "adamw",
               "optimizer.lr": 0.001, **keys}
        run = f"{name}{n}"
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run, n=n,
                        job=job)
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        shutil.rmtree(self.path(run))
        return losses

    def check_mean(self, network, want):
        """The losses, which the network computes of random numbers"""
        np.save(self.path("x.npy"), np.zeros((SAMPLES, 16, 16, 64), np.float32))
        np.save(self.path("y.npy"), np.zeros(SAMPLES, np.int64))
        program = torch.export.export(network.train(), (torch.zeros(7, 64, 16, 16),), strict=False)
        torch.export.save(program, self.path("net.pt2"))
        keys = {"data.format": "npy", "data.train": "[x.npy, y.npy]",
                "model.loss": "output output0", "optimizer.lr": 1e-12}
        one, *others = (self.train("mean", n, keys) for n in (1, 2, 3))
        self.assertLess(abs(np.mean(one) - want), 0.03, one)
        self.assertGreater(np.std(one), 1e-4)
        for losses in others:
            self.assertLess(np.abs(np.subtract(losses, one)).max(), 1e-4)

    def test_channels(self):
        self.check_mean(Channels(), 1.25)

    def test_normal(self):
        self.check_mean(Normal(), 14)

    def check(self, name):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        made = (self.write_family if name in families.FAMILIES else self.write_images)(name)
        if not made:
            self.skipTest(f"{name} has more than {MOST_PARAMETERS} parameters")
        n_drawn, keys = made
        one, *others = (self.train(name, n, keys) for n in (1, 2, 3))
        self.assertEqual(len(one), STEPS)
        apart = [max(abs(a[i] - one[i]) for a in others) / one[0] for i in range(STEPS)]
        print(f"{name}: {n_drawn} random nodes, {one[0]:.4f} -> {one[-1]:.4f}, ranks apart by "
              f"{apart[0]:.1e}, {apart[1]:.1e} in step 2, {max(apart):.1e} in {STEPS}", flush=True)
        self.assertLess(sum(one[-5:]), sum(one[:5]))
        self.assertLessEqual(apart[0], FIRST)
        self.assertLessEqual(apart[1], SECOND)
        if name in families.FAMILIES:
            self.assertLessEqual(max(apart), LATE)


def add(name):
    setattr(Dropout, f"test_{name}", lambda self: self.check(name))


ALL = [*(name for name in families.FAMILIES if name not in REFUSED), *torchvision_names()]
for network in ALL if WANTED == ["all"] else WANTED or QUICK:
    add(network)

if __name__ == "__main__":
    dp.main()

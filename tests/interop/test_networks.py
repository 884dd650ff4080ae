"""Tests of networks for images with PyTorch: 20 steps of ours from PyTorch's weights have
PyTorch's losses, on one rank and on two, and our file gives PyTorch our logits.

They need a Python with torch and safetensors (find_torch.py), and are skipped (77) without one.
ResNet-50 takes minutes, and runs only if DPTRAIN_SLOW is set.  An epoch is one step over the whole
data set, so the order of samples does not matter.

Rounding differs between processors, and training makes it grow.  So PyTorch trains twice, the
second time from weights that are moved by a rounding: by as much as these two differ, any two
implementations may differ.
"""
import os
import random
import unittest

import find_torch  # noqa: F401  (may replace this process)

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import networks  # noqa: E402
from test_pytorch import FILE, Samples, evaluate  # noqa: E402
from models import Case, dp  # noqa: E402

N, N_VALIDATION, STEPS = 8, 8, 20
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}  # relative, of every step's loss
GROWTH = 5  # the tolerance is at least so many times the difference that one rounding makes
WORST_GROWN = 1e-3  # such a difference; a larger one would hide mistakes


def write_cifar(path, n, seed):
    """Records of CIFAR-10: a colour per class, and noise."""
    draw = random.Random(seed)
    with open(path, "wb") as file:
        for i in range(n):
            label = i % 10
            planes = [bytes(min(255, draw.randrange(120) + (label * 41 * (c + 1)) % 130)
                            for _ in range(1024)) for c in range(3)]
            file.write(bytes([label]) + b"".join(planes))


def optimizers(model, rate):
    """Our keys and PyTorch's optimizer, by name."""
    return {
        "sgd": ({"optimizer.lr": 5e-4 * rate, "optimizer.momentum": 0.9,
                 "optimizer.weight_decay": 5e-4},
                lambda: torch.optim.SGD(model.parameters(), lr=5e-4 * rate, momentum=0.9,
                                        weight_decay=5e-4)),
        "adamw": ({"optimizer.name": "adamw", "optimizer.lr": 1e-5 * rate, "optimizer.eps": 1e-5},
                  lambda: torch.optim.AdamW(model.parameters(), lr=1e-5 * rate, eps=1e-5)),
    }


def move_by_a_rounding(model):
    """Multiply each weight by a number between 1 - 2^-23 and 1 + 2^-23."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + (2 * torch.rand(weight.shape, generator=draw) - 1) * 2**-23)


def largest_difference(losses, wanted):
    """Relative to the wanted losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted))


class Networks(Case):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        os.mkdir(self.path("data"))
        write_cifar(self.path("data", "data_batch_1.bin"), N, 1)
        write_cifar(self.path("data", "test_batch.bin"), N_VALIDATION, 2)

    def job(self, network, rule):
        return {**network.keys(self), **rule, "model.init.name": "file",
                "model.init.path": self.path("start.safetensors"), "data.format": "cifar10",
                "data.path": self.path("data"), "train.global_batch": N, "train.epochs": STEPS,
                "train.validate_every": STEPS, "checkpoint.every_epochs": STEPS}

    def train_ours(self, network, rule, n_ranks, run):
        arguments = ["--local", "--threads", "1", "--run-dir", run]
        self.run_driver(*arguments, *dp.sets(self.job(network, rule)), n=n_ranks, job=None)
        return [epoch["train_loss"] for epoch in self.events("epoch", run)]

    def train_theirs(self, model, optimizer, x, y):
        losses = []
        model.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def grown_rounding(self, network, name, theirs, samples):
        """The difference from these losses of PyTorch's that one rounding of each weight makes."""
        model = network.make()
        model.load_state_dict(safetensors.torch.load_file(self.path("start.safetensors")))
        move_by_a_rounding(model)
        make_optimizer = optimizers(model, network.rate)[name][1]
        grown = largest_difference(self.train_theirs(model, make_optimizer(), *samples.train),
                                   theirs)
        print(f"\n{network.name}, {name}: a rounding grows to {grown:.1e}", flush=True)
        self.assertLessEqual(grown, WORST_GROWN)
        return grown

    def compare(self, network, name, ranks, precision="float32"):
        torch.manual_seed(3)
        model = network.make()
        safetensors.torch.save_file(model.state_dict(), self.path("start.safetensors"))
        rule, make_optimizer = optimizers(model, network.rate)[name]
        rule["precision"] = precision
        kind = f"{network.name}-{name}-{precision}"
        ours = {n: self.train_ours(network, rule, n, f"{kind}-{n}") for n in ranks}
        run = f"{kind}-{ranks[-1]}"
        folder = self.path(run, "checkpoints", "latest")
        samples = Samples(self, self.path(run, "job.yaml"), os.path.join(folder, FILE))
        theirs = self.train_theirs(model, make_optimizer(), *samples.train)
        tolerance = TOLERANCE[precision]
        if precision == "float32":
            grown = self.grown_rounding(network, name, theirs, samples)
            tolerance = max(tolerance, GROWTH * grown)
        for n, losses in ours.items():
            self.assertEqual(len(losses), STEPS)
            worst = largest_difference(losses, theirs)
            print(f"{network.name}, {name}, {precision}, {n} ranks: {losses[0]:.5f} -> "
                  f"{losses[-1]:.5f}, within {worst:.1e} of PyTorch's", flush=True)
            self.assertLessEqual(worst, tolerance, (losses, theirs))
            if precision != "float32":
                self.assertGreater(worst, 1e-6)  # else nothing was rounded
        if precision == "float32":
            self.check_file(network, os.path.join(folder, FILE), samples)

    def check_file(self, network, path, samples):
        """PyTorch has our logits with our file."""
        model = network.make()
        model.load_state_dict(safetensors.torch.load_file(path), strict=True)
        logits = evaluate(model, *samples.validation)[2]
        worst = (samples.logits - logits).abs().max().item()
        self.assertLessEqual(worst, 1e-4 * logits.abs().max().item())

    def test_layers(self):
        self.compare(networks.Layers(), "sgd", (1, 2))
        self.compare(networks.Layers(), "adamw", (1, 2))
        self.compare(networks.Layers(), "sgd", (1, 2), "bfloat16")
        self.compare(networks.Activations(), "sgd", (2,))

    def test_norms(self):
        self.compare(networks.Norms(), "sgd", (1, 2))
        self.compare(networks.Norms(), "adamw", (1, 2))
        slow = networks.Norms()
        slow.rate /= 10  # else the loss falls to hundredths, where a rounding is much of it
        self.compare(slow, "sgd", (1, 2), "bfloat16")

    def test_vit(self):
        network = networks.ViT()
        self.compare(network, "sgd", (1, 2))
        self.compare(network, "adamw", (1, 2))
        self.compare(network, "sgd", (2,), "bfloat16")

    def test_resnet18(self):
        network = networks.ResNet(18, "cifar")
        self.compare(network, "sgd", (2,))
        self.compare(network, "sgd", (2,), "bfloat16")

    @unittest.skipUnless(os.environ.get("DPTRAIN_SLOW"), "DPTRAIN_SLOW is not set")
    def test_resnet50(self):
        """Bottlenecks.  With ImageNet's stem the last batch norms would see 8 numbers of these
        images, where a rounding grows to percents of the loss in one step."""
        torch.set_num_threads(2)  # with one it convolves 1x1 without oneDNN, many times slower
        self.compare(networks.ResNet(50, "cifar"), "sgd", (2,))


if __name__ == "__main__":
    dp.main()

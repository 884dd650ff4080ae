"""training - compares 20 steps of ours with 20 steps of PyTorch's from the same weights: in
float32 and bfloat16, with SGD and AdamW, on one rank and on two.

A network (networks.py, gpt.py) is a class with

    name            of its run directories
    rates           of SGD and AdamW, with which the loss falls in 20 steps
    runs            optional: on CPUs only these pairs (precision, ranks) of SGD and AdamW are
                    trained; else all
    keys()          the keys of a job file for the model and the data
    write_data(to)  writes the job's data into a folder, keeps `train` and `validation`, pairs of
                    inputs and labels for PyTorch, and returns the number of training samples
    make()          the network in PyTorch, with random weights
    save(model, to) writes its weights into a folder; returns the file
    load(folder)    the network in PyTorch with our weights, every one of them and no other
    logits(model, x)  of each target, as rows

An epoch is one step over the whole data set, so the order of samples does not matter.

Rounding differs between processors, and training makes it grow.  So PyTorch trains twice, the
second time from weights that are moved by a rounding: by as much as these two differ, any two
implementations may differ.
"""
import os

import numpy as np
import torch
from torch.nn import functional as F

from models import DEVICE, Case, dp

STEPS = 20
RANKS = (1, 2)
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}  # relative, of every step's loss
ALL_RUNS = tuple((precision, n) for precision in TOLERANCE for n in RANKS)
GROWTH = 5  # the tolerance is at least so many times the difference that one rounding makes
WORST_GROWN = 1e-3  # such a difference; a larger one would hide mistakes


def optimizers(rates):
    """For each optimizer our keys, and the function that makes PyTorch's."""
    sgd, adamw = rates["sgd"], rates["adamw"]
    return {
        "sgd": ({"optimizer.lr": sgd, "optimizer.momentum": 0.9, "optimizer.weight_decay": 5e-4},
                lambda params: torch.optim.SGD(params, lr=sgd, momentum=0.9, weight_decay=5e-4)),
        "adamw": ({"optimizer.name": "adamw", "optimizer.lr": adamw, "optimizer.eps": 1e-5},
                  lambda params: torch.optim.AdamW(params, lr=adamw, eps=1e-5)),
    }


def train(network, model, optimizer):
    """PyTorch's loss of each step."""
    x, y = network.train
    losses = []
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(network.logits(model, x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def move_by_a_rounding(model):
    """Multiply each weight by a number between 1 - 2^-23 and 1 + 2^-23."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + (2 * torch.rand(weight.shape, generator=draw) - 1) * 2**-23)


def largest_difference(losses, wanted):
    """Relative to the wanted losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))


class Training(Case):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        os.mkdir(self.path("data"))
        os.mkdir(self.path("theirs"))

    def compare(self, network):
        """All cases of a network."""
        torch.manual_seed(3)
        self.network = network
        self.n_samples = network.write_data(self.path("data"))
        model = network.make()
        self.first = network.save(model, self.path("theirs"))
        runs = {name: ALL_RUNS for name in network.rates}
        if DEVICE == "cpu":
            runs = getattr(network, "runs", runs)
        for name, (keys, make_optimizer) in optimizers(network.rates).items():
            if name not in runs:
                continue
            theirs, grown = self.train_theirs(model.state_dict(), make_optimizer)
            print(f"\n{network.name}, {name}: PyTorch's losses {theirs[0]:.5f} -> "
                  f"{theirs[-1]:.5f}; a rounding grows to {grown:.1e}", flush=True)
            self.assertLessEqual(grown, WORST_GROWN)
            for precision, n in runs[name]:
                self.compare_run(f"{network.name}-{name}-{precision}-{n}", n,
                                 {**keys, "precision": precision}, theirs,
                                 max(TOLERANCE[precision], GROWTH * grown))

    def train_theirs(self, start, make_optimizer):
        """PyTorch's losses, and by how much they differ if each weight is moved by a rounding."""
        losses = []
        for change in (lambda model: None, move_by_a_rounding):
            model = self.network.make()
            model.load_state_dict(start)
            change(model)
            losses.append(train(self.network, model, make_optimizer(model.parameters())))
        return losses[0], largest_difference(losses[1], losses[0])

    def compare_run(self, run, n_ranks, keys, theirs, tolerance):
        """Train on so many ranks, and compare losses; in float32 the file that is written, too."""
        losses = self.train_ours(run, n_ranks, keys)
        worst = largest_difference(losses, theirs)
        print(f"{run}: {losses[-1]:.5f}, within {worst:.1e} of PyTorch's", flush=True)
        self.assertLessEqual(worst, tolerance, (losses, theirs))
        self.assertLess(losses[-1], 0.9 * losses[0])  # else the updates are hardly seen
        if keys["precision"] == "float32":
            self.check_file(run, n_ranks)
        else:
            self.assertGreater(worst, 1e-6)  # else nothing was rounded

    def train_ours(self, run, n_ranks, keys):
        job = {**self.network.keys(), **keys, "data.path": self.path("data"),
               "model.init.name": "file", "model.init.path": self.first,
               "train.global_batch": self.n_samples, "train.epochs": STEPS,
               "train.validate_every": STEPS, "checkpoint.every_epochs": STEPS}
        self.run_driver(*self.arguments(job, run), n=n_ranks, job=None)
        return [epoch["train_loss"] for epoch in self.events("epoch", run)]

    def check_file(self, run, n_ranks):
        """PyTorch has our logits and our validation loss with our file."""
        x, y = self.network.validation
        model = self.network.load(self.path(run, "checkpoints", "latest"))
        model.eval()
        with torch.no_grad():
            logits = self.network.logits(model, x)
        out = self.path(f"{run}.npy")
        self.run_driver("--local", "--threads", "1", "--run-dir", run, "--predict", out, n=n_ranks,
                        job=None)
        ours = torch.from_numpy(np.load(out)).view(logits.shape)
        self.assertLessEqual((ours - logits).abs().max(), 1e-4 * logits.abs().max())
        loss = F.cross_entropy(logits.double(), y).item()
        seen = self.events("epoch", run)[-1]["validation_loss"]
        self.assertLessEqual(abs(seen - loss), 1e-5 * loss)


__all__ = ["Training", "dp"]

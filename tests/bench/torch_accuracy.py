#!/usr/bin/env python3
"""torch_accuracy - PyTorch's half of accuracy.py: the same recipes, one process.

    torch_accuracy.py --network lenet --data DIR --init pytorch|normal --epochs N --seed N
    torch_accuracy.py --network resnet18 --data DIR --epochs N --seed N [--precision bfloat16]
                      [--every N]
    both: [--threads N]

lenet     LeNet on MNIST, SGD with rate 0.2
resnet18  ResNet-18 with the stem for small images on CIFAR-10's data_batch_1, with crops and flips:
          deploy/examples/cifar10-resnet18.yaml; bfloat16 is autocast

Prints one line of JSON: the accuracy on the test set after each epoch (or each --every epochs), in
percent.
"""
import argparse
import contextlib
import gzip
import json
import math
import os
import sys

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch_side import make_lenet, read_idx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import networks  # noqa: E402


class Lenet:
    batch = 256

    def __init__(self, args):
        self.x, self.y = self.load(args.data, "train")
        self.held_x, self.held_y = self.load(args.data, "t10k")
        self.model = make_lenet()
        if args.init == "normal":
            self.model.apply(self.init_normal)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)

    @staticmethod
    def load(folder, prefix):
        images = read_idx(folder, prefix + "-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
        labels = read_idx(folder, prefix + "-labels-idx1-ubyte", 8)
        return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))

    @staticmethod
    def init_normal(module):
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)

    @staticmethod
    def numbers(x):
        return x.float().div_(255)

    augmented = numbers

    def rate(self, _step, _n_steps):
        return 0.2


class Resnet18:
    batch, peak, warmup = 128, 0.1, 78

    def __init__(self, args):
        self.x, self.y = self.load(args.data, "data_batch_1.bin")
        self.held_x, self.held_y = self.load(args.data, "test_batch.bin")
        self.model = networks.with_cifar_stem(torchvision.models.resnet18(num_classes=10))
        for module in self.model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.peak, momentum=0.9,
                                         weight_decay=5e-4, nesterov=True)

    @staticmethod
    def load(folder, name):
        path = os.path.join(folder, name)
        with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
            rows = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, 3073)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).copy()
        return torch.from_numpy(images), torch.from_numpy(rows[:, 0].astype(np.int64))

    @staticmethod
    def numbers(x):
        mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
        std = torch.tensor([0.247, 0.2435, 0.2616]).view(1, 3, 1, 1)
        x = (x.float().div_(255) - mean) / std
        return x.contiguous(memory_format=torch.channels_last)

    def augmented(self, x):
        """Each image padded with 4 black pixels, cut at a place of its own, and every second one
        mirrored; black before the normalisation, as ours."""
        n = len(x)
        rows = torch.arange(32).view(1, 32) + torch.randint(0, 9, (n, 1))
        columns = torch.arange(32).view(1, 32) + torch.randint(0, 9, (n, 1))
        columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns)
        padded = F.pad(x, (4, 4, 4, 4))
        return self.numbers(padded[torch.arange(n).view(n, 1, 1), :, rows.view(n, 32, 1),
                                   columns.view(n, 1, 32)].permute(0, 3, 1, 2))

    def rate(self, step, n_steps):
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(n_steps - self.warmup, 1)
        return self.peak * (1 + math.cos(math.pi * progress)) / 2


def autocast(args):
    return torch.autocast("cpu", torch.bfloat16) if args.precision == "bfloat16" else \
        contextlib.nullcontext()


def accuracy(args, task):
    task.model.eval()
    with torch.no_grad(), autocast(args):
        right = sum((task.model(task.numbers(x)).argmax(1) == y).sum().item()
                    for x, y in zip(task.held_x.split(1000), task.held_y.split(1000)))
    task.model.train()
    return 100 * right / len(task.held_x)


def train_epoch(args, task, step, n_steps):
    for part in torch.randperm(len(task.x)).split(task.batch):
        for group in task.optimizer.param_groups:
            group["lr"] = task.rate(step, n_steps)
        with autocast(args):
            logits = task.model(task.augmented(task.x[part]))
        loss = F.cross_entropy(logits.float(), task.y[part])
        task.optimizer.zero_grad()
        loss.backward()
        task.optimizer.step()
        step += 1
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--network", choices=("lenet", "resnet18"), default="lenet")
    parser.add_argument("--data", required=True)
    parser.add_argument("--init", choices=("pytorch", "normal"), default="pytorch")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    task = {"lenet": Lenet, "resnet18": Resnet18}[args.network](args)
    n_steps = args.epochs * math.ceil(len(task.x) / task.batch)
    reached, step = [], 0
    for epoch in range(1, args.epochs + 1):
        step = train_epoch(args, task, step, n_steps)
        if epoch % args.every and epoch < args.epochs:
            continue
        reached.append(accuracy(args, task))
        print(f"{args.network}, seed {args.seed}, epoch {epoch}: {reached[-1]:.2f} %",
              file=sys.stderr, flush=True)
    print(json.dumps({"version": torch.__version__, "accuracy": reached}))


main()

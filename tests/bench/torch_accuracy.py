#!/usr/bin/env python3
"""torch_accuracy - PyTorch's half of accuracy.py: the same recipes, one process.

    torch_accuracy.py --network lenet --data DIR --init pytorch|normal --epochs N --seed N
    torch_accuracy.py --network resnet18 --data DIR --epochs N --seed N [--precision bfloat16]
                      [--every N]
    torch_accuracy.py --network gpt --data FILE --epochs N --seed N [--precision bfloat16]
                      [--every N]
    all: [--threads N]

lenet     LeNet on MNIST, SGD with rate 0.2
resnet18  ResNet-18 with the stem for small images on CIFAR-10's data_batch_1, with crops and flips:
          deploy/examples/cifar10-resnet18.yaml; bfloat16 is autocast
gpt       the GPT of characters on tinyshakespeare: deploy/examples/shakespeare-gpt.yaml, at most
          2,000 steps; bfloat16 is autocast

Prints one line of JSON: the accuracy in percent and the loss on the test set after each epoch (or
each --every epochs).
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
import torch_networks
from torch_side import make_lenet, read_idx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import networks  # noqa: E402


class Task:
    """x and y, held_x and held_y: samples and labels.  max_steps ends the training if the epochs
    are longer; clip is the most that the gradient's norm may be."""
    max_steps, clip = None, None

    @staticmethod
    def numbers(x):
        """The model's input for samples."""
        return x

    def augmented(self, x):
        return self.numbers(x)


def cosine(step, n_steps, peak, warmup, least=0.0):
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(n_steps - warmup, 1)
    return least + (peak - least) * (1 + math.cos(math.pi * progress)) / 2


class Lenet(Task):
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

    def rate(self, _step, _n_steps):
        return 0.2


class Resnet18(Task):
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
        return cosine(step, n_steps, self.peak, self.warmup)


class Gpt(Task):
    """Samples are windows of the text that follow one another; the last tenth of the text is held
    back.  Initial values are GPT-2's."""
    batch, context, layers, max_steps, clip = 12, 64, 4, 2000, 1.0

    def __init__(self, args):
        with open(args.data, encoding="utf-8") as file:
            text = file.read()
        number = {char: i for i, char in enumerate(sorted(set(text)))}
        tokens = torch.tensor([number[char] for char in text])
        n = len(tokens) * 9 // 10
        self.x, self.y = self.windows(tokens[:n])
        self.held_x, self.held_y = self.windows(tokens[n:])
        self.model = torch_networks.Gpt(layers=self.layers, heads=4, width=128,
                                        context=self.context, vocab=len(number))
        decays, others = self.init()
        self.optimizer = torch.optim.AdamW(
            [dict(params=decays, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
            betas=(0.9, 0.99))

    def windows(self, tokens):
        n = (len(tokens) - 1) // self.context * self.context
        return tokens[:n].view(-1, self.context), tokens[1:n + 1].view(-1, self.context)

    def init(self):
        """The parameters with weight decay and those without it, biases and norms."""
        decays, others = [], []
        for name, weight in self.model.named_parameters():
            if weight.dim() > 1:
                on_residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight,
                                std=0.02 / (math.sqrt(2 * self.layers) if on_residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
            (decays if weight.dim() > 1 else others).append(weight)
        return decays, others

    def rate(self, step, n_steps):
        return cosine(step, n_steps, 1e-3, 100, 1e-4)


def autocast(args):
    return torch.autocast("cpu", torch.bfloat16) if args.precision == "bfloat16" else \
        contextlib.nullcontext()


def validate(args, task):
    """Accuracy in percent, and mean loss, over all labels that were held back."""
    right, loss = 0, 0.0
    task.model.eval()
    with torch.no_grad():
        for x, y in zip(task.held_x.split(1000), task.held_y.split(1000)):
            with autocast(args):
                logits = task.model(task.numbers(x))
            right += (logits.argmax(1) == y.flatten()).sum().item()
            loss += F.cross_entropy(logits.float(), y.flatten(), reduction="sum").item()
    task.model.train()
    return 100 * right / task.held_y.numel(), loss / task.held_y.numel()


def train_epoch(args, task, step, n_steps):
    for part in torch.randperm(len(task.x)).split(task.batch)[:n_steps - step]:
        for group in task.optimizer.param_groups:
            group["lr"] = task.rate(step, n_steps)
        with autocast(args):
            logits = task.model(task.augmented(task.x[part]))
        loss = F.cross_entropy(logits.float(), task.y[part].flatten())
        task.optimizer.zero_grad()
        loss.backward()
        if task.clip:
            nn.utils.clip_grad_norm_(task.model.parameters(), task.clip)
        task.optimizer.step()
        step += 1
    return step


TASKS = {"lenet": Lenet, "resnet18": Resnet18, "gpt": Gpt}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--network", choices=list(TASKS), default="lenet")
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
    task = TASKS[args.network](args)
    n_steps = args.epochs * math.ceil(len(task.x) / task.batch)
    n_steps = min(n_steps, task.max_steps or n_steps)
    reached, step = [], 0
    for epoch in range(1, args.epochs + 1):
        step = train_epoch(args, task, step, n_steps)
        if epoch % args.every and epoch < args.epochs:
            continue
        reached.append(validate(args, task))
        print(f"{args.network}, {args.precision}, seed {args.seed}, epoch {epoch}: "
              f"{reached[-1][0]:.2f} %, loss {reached[-1][1]:.4f}", file=sys.stderr, flush=True)
    accuracy, loss = zip(*reached)
    print(json.dumps({"version": torch.__version__, "accuracy": accuracy, "loss": loss}))


main()

#!/usr/bin/env python3
"""torch_accuracy - PyTorch's half of accuracy.py: LeNet on MNIST by the same recipe, one process.

    torch_accuracy.py --data DIR --init pytorch|normal --epochs N --seed N [--threads N]

Prints one line of JSON: the accuracy on t10k after each epoch, in percent.
"""
import argparse
import json
import sys

import numpy as np
import torch
from torch import nn
from torch_side import make_lenet, read_idx


def load(folder, prefix):
    images = read_idx(folder, prefix + "-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(folder, prefix + "-labels-idx1-ubyte", 8)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def init_normal(module):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.normal_(module.weight, std=0.01)
        nn.init.zeros_(module.bias)


def accuracy(model, x, y):
    with torch.no_grad():
        right = sum((model(x[i:i + 1000].float().div_(255)).argmax(1) == y[i:i + 1000]).sum().item()
                    for i in range(0, len(x), 1000))
    return 100 * right / len(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--init", choices=("pytorch", "normal"), required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    x, y = load(args.data, "train")
    held_x, held_y = load(args.data, "t10k")
    model = make_lenet()
    if args.init == "normal":
        model.apply(init_normal)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    loss_of = nn.CrossEntropyLoss()
    reached = []
    for _ in range(args.epochs):
        for part in torch.randperm(len(x)).split(256):
            loss = loss_of(model(x[part].float().div_(255)), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reached.append(accuracy(model, held_x, held_y))
        print(f"{args.init}, seed {args.seed}: {reached[-1]:.2f} %", file=sys.stderr, flush=True)
    print(json.dumps({"version": torch.__version__, "accuracy": reached}))


main()

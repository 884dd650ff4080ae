#!/usr/bin/env python3
"""torch_strategies - the PyTorch half of strategies.py: one process of a DistributedDataParallel
group over gloo, with one of its communication hooks.  Rank 0 prints one line of JSON: the mean
seconds of a step, and the loss of each over all ranks.

    torch_strategies.py --data DIR --model lenet|gpt --hook none|float16|powersgd --steps N
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch_networks import Gpt
from torch_side import batches, make_lenet, read_idx

CONTEXT, SAMPLES, BATCH = 64, 12, 256


def lenet(data, rank, size):
    images = read_idx(f"{data}/mnist", "train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(f"{data}/mnist", "train-labels-idx1-ubyte", 8).astype(np.int64)
    model = make_lenet()
    return model, torch.optim.SGD(model.parameters(), lr=0.2), batches(
        torch.from_numpy(images.copy()), torch.from_numpy(labels), BATCH, rank, size)


def texts(tokens, rank, size):
    """This rank's samples of each step, and the characters that follow."""
    draw = torch.Generator().manual_seed(1)
    while True:
        at = torch.randint(len(tokens) - CONTEXT - 1, (SAMPLES,), generator=draw)[rank::size]
        x = torch.stack([tokens[i:i + CONTEXT] for i in at])
        yield x, torch.stack([tokens[i + 1:i + CONTEXT + 1] for i in at]).flatten()


def gpt(data, rank, size):
    with open(f"{data}/tinyshakespeare/input.txt", encoding="utf-8") as f:
        text = f.read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([number[c] for c in text])
    model = Gpt(layers=4, heads=4, width=128, context=CONTEXT, vocab=len(number))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), texts(tokens, rank,
                                                                                    size)


def add_hook(model, hook):
    if hook == "float16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=1,
                                            start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=["lenet", "gpt"], required=True)
    parser.add_argument("--hook", choices=["none", "float16", "powersgd"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model, optimizer, data = (lenet if args.model == "lenet" else gpt)(args.data, rank, size)
    # PowerSGD's hook gets one bucket: with two, gloo mixes up the messages of their all-reduces.
    model = nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=64 if args.hook == "powersgd" else None)
    add_hook(model, args.hook)
    loss_of = nn.CrossEntropyLoss()
    losses, begin = [], 0.0
    for step, (x, y) in zip(range(args.steps + 1), data):
        if step == 1:
            begin = time.perf_counter()
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    took = (time.perf_counter() - begin) / args.steps
    total = torch.tensor(losses)
    dist.all_reduce(total)
    if rank == 0:
        print(json.dumps({"step_seconds": took, "losses": (total / size).tolist()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()

#!/usr/bin/env python3
"""torch_gpu - the PyTorch half of `bench.py gpu`: LeNet on one GPU, one line of JSON.

    torch_gpu.py --data DIR --batch N --steps N --kind eager|compiled|graph
                 --precision float32|tf32|bfloat16 --device cuda|cpu
    torch_gpu.py --ceilings --device cuda|cpu

The whole set lies on the device as bytes, each batch is gathered there, and nothing is read back in
the timed part: what a careful user writes, and as favourable to PyTorch as we know how.
eager     as it is written
compiled  model and loss by torch.compile(mode="max-autotune")
graph     gather, forward, backward and optimizer captured once as a CUDA graph and replayed
"""
import argparse
import contextlib
import json
import os
import resource
import time

import numpy as np
import torch
from torch_side import make_lenet, read_idx


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def load(folder, device):
    images = read_idx(folder, "train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(folder, "train-labels-idx1-ubyte", 8).astype(np.int64)
    return torch.from_numpy(images.copy()).to(device), torch.from_numpy(labels).to(device)


class Step:
    """One training step on the samples whose numbers are in `order`."""

    def __init__(self, args, x, y):
        self.x, self.y = x, y
        self.order = torch.zeros(args.batch, dtype=torch.int64, device=args.device)
        self.model = make_lenet().to(args.device).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)
        self.device = args.device
        self.low = args.precision == "bfloat16"
        self.loss_of = self.loss_on
        if args.kind == "compiled":
            self.loss_of = torch.compile(self.loss_on, mode="max-autotune")

    def loss_on(self, xb, yb):
        low = torch.autocast(self.device, torch.bfloat16) if self.low else contextlib.nullcontext()
        with low:
            return nn_loss(self.model(xb), yb)

    def __call__(self):
        xb = self.x[self.order].float().div_(255).contiguous(memory_format=torch.channels_last)
        loss = self.loss_of(xb, self.y[self.order])
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
        return loss


def nn_loss(logits, labels):
    return torch.nn.functional.cross_entropy(logits.float(), labels)


def captured(step):
    """The same step as a CUDA graph, as PyTorch's notes on CUDA graphs have it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss
    return replay


def train(args):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    x, y = load(args.data, args.device)
    step = Step(args, x, y)
    run = captured(step) if args.kind == "graph" else step
    orders = torch.stack([torch.randperm(len(x))[:args.batch] for _ in range(64)]).to(args.device)

    def steps(n):
        for i in range(n):
            step.order.copy_(orders[i % 64])
            loss = run()
        return loss
    steps(max(20, args.steps // 10))  # warm: compiling, choosing algorithms
    synchronize(args.device)
    start = time.perf_counter()
    loss = steps(args.steps)
    synchronize(args.device)
    seconds = time.perf_counter() - start
    if not np.isfinite(loss.item()):
        raise SystemExit(f"loss is {loss.item()}")
    return dict(steps_per_second=args.steps / seconds, loss=loss.item())


def timed(device, work, repeats):
    """Median seconds of `work`, by CUDA events where there are any."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def ceilings(device):
    """What the card can: bytes per second of a large copy (read and written), and flop per second
    of a large product of random numbers in each precision."""
    big = device == "cuda"
    a = torch.rand(2**30 if big else 2**22, dtype=torch.float32, device=device)
    b = torch.empty_like(a)
    out = dict(copy_tb_s=2 * 4 * a.numel() / timed(device, lambda: b.copy_(a), 20) / 1e12)
    del a, b
    n = 8192 if big else 256
    for name, dtype, tf32 in (("float32", torch.float32, False), ("tf32", torch.float32, True),
                              ("bfloat16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        p, q = (torch.randn(n, n, device=device).to(dtype) for _ in "pq")
        out[f"gemm_{name}_tflop_s"] = 2 * n**3 / timed(device, lambda: p @ q, 20) / 1e12
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--kind", choices=("eager", "compiled", "graph"))
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ceilings", action="store_true")
    args = parser.parse_args()
    said = ceilings(args.device) if args.ceilings else train(args)
    cudnn = torch.backends.cudnn.version() if args.device == "cuda" else None
    print(json.dumps(dict(
        said, version=torch.__version__, cudnn=cudnn,
        gpu=torch.cuda.get_device_name() if args.device == "cuda" else "none",
        rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)), flush=True)


if __name__ == "__main__":
    main()

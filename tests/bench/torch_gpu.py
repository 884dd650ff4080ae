#!/usr/bin/env python3
"""torch_gpu - the PyTorch half of `bench.py gpu`: LeNet on one GPU, one line of JSON.

    torch_gpu.py --data DIR --batch N --steps N --kind eager|compiled|graph
                 --precision float32|tf32|bfloat16 --device cuda|cpu
    torch_gpu.py --ceilings --device cuda|cpu

The script is as favourable to PyTorch as we know how.  The whole data set is on the device as
floats scaled once, and a batch is two gathers there.  Gradients are written instead of added to
zeros (zero_grad to None, before the forward).  SGD is fused if possible.  cuDNN picks its
algorithms by timing.  Images are NCHW or NHWC, whichever trains faster here.  Nothing is read back
in the timed part.

eager     the code as it is written
compiled  model and loss by torch.compile(mode="max-autotune"); NHWC
graph     gather, forward, backward and optimizer captured once as a CUDA graph and replayed

The timed steps end by synchronising with the GPU, and begin after a tenth as many untimed ones.
A run that does not learn fails.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import numpy as np
import torch
from torch_side import make_lenet, read_idx

LAYOUTS = {"eager": ("NCHW", "NHWC"), "compiled": ("NHWC",), "graph": ("NCHW", "NHWC")}
N_ORDERS = 64  # different batches, which are used again and again


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def load(folder, device):
    """The data set: images [N,28,28,1], scaled, and labels [N]"""
    images = read_idx(folder, "train-images-idx3-ubyte", 16).reshape(-1, 28, 28, 1)
    labels = read_idx(folder, "train-labels-idx1-ubyte", 8).astype(np.int64)
    return torch.from_numpy(images.copy()).to(device).float().div_(255), \
        torch.from_numpy(labels).to(device)


def can_fuse(parameters):
    """Can SGD run as one kernel?  PyTorch can on GPUs since 2.3, on CPUs since 2.4, if gradients
    have their weights' strides.  The strides of a dimension of size one may differ."""
    version = tuple(int(word) for word in torch.__version__.split(".")[:2])
    return version >= (2, 4) and all(p.stride() == p.grad.stride() for p in parameters)


class Step:
    """One training step on the samples whose numbers are in `order`; a call returns its loss."""

    def __init__(self, args, images, labels, layout):
        self.images, self.labels = images, labels
        self.order = torch.zeros(args.batch, dtype=torch.int64, device=args.device)
        self.model = make_lenet().to(args.device).to(
            memory_format=torch.channels_last if layout == "NHWC" else torch.contiguous_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)
        self.device, self.layout = args.device, layout
        self.is_low = args.precision == "bfloat16"
        self.loss_of = self.loss_on
        if args.kind == "compiled":
            self.loss_of = torch.compile(self.loss_on, mode="max-autotune")

    def loss_on(self, x, y):
        """The loss on x [B,28,28,1], y [B].  With one channel both layouts are the same bytes; the
        strides tell the convolutions which layout is meant."""
        x = x.permute(0, 3, 1, 2) if self.layout == "NHWC" else x.view(-1, 1, 28, 28)
        with torch.autocast(self.device, torch.bfloat16) if self.is_low else \
                contextlib.nullcontext():
            logits = self.model(x)
        return torch.nn.functional.cross_entropy(logits.float(), y)

    def __call__(self):
        # Before the forward: a compiled step's replay overwrites the gradients of the step before.
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.images.index_select(0, self.order),
                            self.labels.index_select(0, self.order))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def captured(step, cuda):
    """The same step as a CUDA graph, by PyTorch's notes on CUDA graphs: some steps on another
    stream, then the capture, which begins without gradients and allocates them in its own pool,
    then replays.  cuda: torch.cuda, or a test's stand-in."""
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(11):
            step()
    cuda.current_stream().wait_stream(side)
    step.optimizer.zero_grad(set_to_none=True)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss
    return replay


class Training:
    """One way to run the steps of a kind; all ways train on the same batches."""

    def __init__(self, args, data, orders, layout):
        torch.manual_seed(1)
        self.device, self.orders, self.layout = args.device, orders, layout
        self.step = Step(args, *data, layout)
        self.step.order.copy_(orders[0])
        self.first_loss = self.step().item()
        self.is_fused = can_fuse(list(self.step.model.parameters()))
        if self.is_fused:
            self.step.optimizer = torch.optim.SGD(self.step.model.parameters(), lr=0.2, fused=True)
        self.run = captured(self.step, torch.cuda) if args.kind == "graph" else self.step

    def rate(self, n):
        """Run n steps; returns steps per second, and the last step's loss."""
        synchronize(self.device)
        start = time.perf_counter()
        for i in range(n):
            self.step.order.copy_(self.orders[i % N_ORDERS])
            loss = self.run()
        synchronize(self.device)
        return n / (time.perf_counter() - start), loss


def train(args):
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    data = load(args.data, args.device)
    generator = torch.Generator().manual_seed(1)
    orders = [torch.randperm(len(data[0]), generator=generator)[:args.batch].to(args.device)
              for _ in range(N_ORDERS)]
    trainings = [Training(args, data, orders, layout) for layout in LAYOUTS[args.kind]]
    warm = max(args.steps // 10, min(args.steps, 20))
    for training in trainings:
        training.rate(warm)  # compiles, and chooses algorithms
    best = trainings[0] if len(trainings) == 1 else max(trainings, key=lambda t: t.rate(warm)[0])
    rate, loss = best.rate(args.steps)
    loss = loss.item()
    if not loss < best.first_loss:
        raise SystemExit(f"it does not learn: loss {best.first_loss} at first, {loss} at last")
    return dict(steps_per_second=rate, loss=loss, layout=best.layout, fused_sgd=best.is_fused)


def timed(device, work, repeats=20):
    """The median seconds of `work` on the device.  On a GPU they are measured from event to event,
    while the next launches wait in its queue; on a CPU by the clock."""
    for _ in range(3):
        work()
    if device != "cuda":
        clock = [time.perf_counter()]
        for _ in range(repeats):
            work()
            clock.append(time.perf_counter())
        return statistics.median(b - a for a, b in zip(clock, clock[1:]))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:])) * 1e-3


def ceilings(device):
    """The card's limits: bytes per second of a large copy (read and written), and flop per second
    of a large product of random numbers in each precision."""
    big = device == "cuda"
    a = torch.rand(2**30 if big else 2**22, dtype=torch.float32, device=device)
    b = torch.empty_like(a)
    out = dict(copy_tb_s=2 * 4 * a.numel() / timed(device, lambda: b.copy_(a)) / 1e12)
    del a, b
    n = 8192 if big else 256
    for name, dtype, tf32 in (("float32", torch.float32, False), ("tf32", torch.float32, True),
                              ("bfloat16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        p, q = (torch.randn(n, n, device=device).to(dtype) for _ in "pq")
        out[f"gemm_{name}_tflop_s"] = 2 * n**3 / timed(device, lambda: p @ q) / 1e12
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--kind", choices=list(LAYOUTS))
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

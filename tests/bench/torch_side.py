#!/usr/bin/env python3
"""torch_side - the PyTorch half of bench.py: trains LeNet for some steps, prints one line of JSON.

The loop is the quickest common one: the whole data set in memory as bytes, a permutation for each
epoch, indexing and scaling by batch; no DataLoader, whose work for each sample would only make
PyTorch slower.
"tuned" adds channels_last; its allocator settings come from the environment (bench.py).  With
WORLD_SIZE > 1 it is one process of a DistributedDataParallel group over gloo.
"""
import argparse
import gzip
import json
import os
import resource
import time

import numpy as np
import torch
from torch import nn


def read_idx(folder, name, n_header):
    path = os.path.join(folder, name)
    opener = open if os.path.exists(path) else gzip.open
    with opener(path if opener is open else path + ".gz", "rb") as f:
        return np.frombuffer(f.read(), dtype=np.uint8)[n_header:]


def make_lenet():
    """LeNet in the variant of the d2l book; see common/model/lenet.c."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def batches(x, y, batch, rank, size):
    """Generate this rank's part of each global batch, for ever."""
    share = batch // size
    while True:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
        for at in range(0, len(x) - batch + 1, batch):
            mine = order[at + rank * share:at + (rank + 1) * share]
            yield x[mine].float().div_(255), y[mine]


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, required=True, help="over all ranks")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--tuned", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(1)
    images = read_idx(args.data, "train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    x = torch.from_numpy(images.copy())
    y = torch.from_numpy(read_idx(args.data, "train-labels-idx1-ubyte", 8).astype(np.int64))
    model = make_lenet()
    if args.tuned:
        model = model.to(memory_format=torch.channels_last)
    if size > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    loss_of = nn.CrossEntropyLoss()
    ends, first_step, warm, cpu_start = [], 0.0, max(1, args.steps // 10), 0.0
    for step, (xb, yb) in zip(range(args.steps), batches(x, y, args.batch, rank, size)):
        if args.tuned:
            xb = xb.contiguous(memory_format=torch.channels_last)
        loss = loss_of(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
        if step == warm - 1:
            cpu_start = cpu_seconds()
        if step == 0:
            first_step = time.time() - float(os.environ["BENCH_START"])
    cpu_ms = (cpu_seconds() - cpu_start) * 1e3 / (args.steps - warm)
    if not np.isfinite(loss.item()):
        raise SystemExit(f"loss is {loss.item()}")
    if rank == 0:
        times = np.diff(ends[warm - 1:]) * 1e3
        print(json.dumps(dict(
            samples_per_second=args.batch * len(times) / times.sum() * 1e3,
            step_ms=float(np.median(times)), step_ms_p90=float(np.percentile(times, 90)),
            cpu_ms=cpu_ms, first_step_s=first_step, version=torch.__version__, loss=loss.item(),
            rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)), flush=True)
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

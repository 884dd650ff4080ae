#!/usr/bin/env python3
"""torch_loader - the torchvision half of loader.py.

    torch_loader.py make FOLDER N          N JPEG files of 500 x 375 pixels in two class folders
    torch_loader.py read FOLDER --workers N --samples N [--batch N]

`read` is torchvision's usual way: ImageFolder, RandomResizedCrop(224), RandomHorizontalFlip,
ToTensor and Normalize, in a DataLoader of N worker processes.  Prints samples, seconds, and the CPU
seconds of all processes, all without the first batch of each worker.
"""
import argparse
import json
import os
import resource
import time

import numpy as np
import PIL.Image
import torch
import torchvision
from torchvision import transforms

WIDTH, HEIGHT = 500, 375


def make(folder, n):
    """Slow waves, edges and noise: some 100 KB at quality 90, as ImageNet's pictures have."""
    draw = np.random.default_rng(1)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    for i in range(n):
        waves = draw.uniform(0.005, 0.05, (3, 2))
        picture = np.stack([127 + 90 * np.sin(a * x + b * y + i) for a, b in waves], axis=2)
        for _ in range(12):
            at_y, at_x = draw.integers(HEIGHT), draw.integers(WIDTH)
            picture[at_y:at_y + 80, at_x:at_x + 100] += draw.uniform(-60, 60, 3)
        picture += draw.normal(0, 14, picture.shape[:2])[..., None]
        place = os.path.join(folder, f"class{i % 2}")
        os.makedirs(place, exist_ok=True)
        PIL.Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(
            os.path.join(place, f"{i}.jpg"), quality=90)


def cpu_seconds():
    """Of this process and of the workers that live, whose times Linux tells in /proc."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = usage.ru_utime + usage.ru_stime
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        for child in file.read().split():
            with open(f"/proc/{child}/stat", encoding="ascii") as stat:
                fields = stat.read().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def for_ever(loader):
    while True:
        yield from loader


def read(args):
    torch.set_num_threads(1)
    data = torchvision.datasets.ImageFolder(args.folder, transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
    loader = torch.utils.data.DataLoader(data, args.batch, shuffle=True, drop_last=True,
                                         num_workers=args.workers, persistent_workers=True)
    batches = for_ever(loader)
    for _ in range(args.workers):
        next(batches)
    start, cpu, n = time.perf_counter(), cpu_seconds(), 0
    while n < args.samples:
        n += len(next(batches)[1])
    print(json.dumps(dict(samples=n, seconds=time.perf_counter() - start,
                          cpu_s=cpu_seconds() - cpu, version=torchvision.__version__)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    kinds = parser.add_subparsers(dest="what", required=True)
    for name in ("make", "read"):
        kinds.add_parser(name).add_argument("folder")
    kinds.choices["make"].add_argument("n", type=int)
    kinds.choices["read"].add_argument("--workers", type=int, required=True)
    kinds.choices["read"].add_argument("--samples", type=int, required=True)
    kinds.choices["read"].add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder, args.n)
    else:
        read(args)


if __name__ == "__main__":
    main()

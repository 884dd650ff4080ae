#!/usr/bin/env python3
"""torch_recovery - the PyTorch half of recovery.py: one worker of torchrun, which trains LeNet on
noise until it is killed.  Into FOLDER it writes its pid, as the file rank-N; rank 0 also appends a
line "pid step" to the file `steps` after every step."""
import os
import sys

import torch
from torch import nn

from torch_side import make_lenet


def main():
    folder, batch = sys.argv[1], int(sys.argv[2])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with open(os.path.join(folder, f"rank-{rank}"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(make_lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    x, y = torch.rand(batch // size, 1, 28, 28), torch.randint(10, (batch // size,))
    steps = os.open(os.path.join(folder, "steps"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    step = 0
    while True:
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            os.write(steps, f"{os.getpid()} {step}\n".encode())


if __name__ == "__main__":
    main()

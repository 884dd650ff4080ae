#!/usr/bin/env bash
# dtensor_mean_losses.sh - losses whose gradients grow with the number of ranks, with DTensor.
#
# A DTensor stands for one whole tensor of which each rank has a part. A batch is sharded by its
# rows, a loss takes the mean over it, and backward() runs as in a program of one process.
#
# Guess: a loss and its gradient are those of the whole tensor, whichever loss it is and however
#        many rows a rank has; an operator that cannot do that raises an error, as many do.
# Seen:  torch 2.15.0, gloo: the gradients of mse_loss, smooth_l1_loss, huber_loss,
#        binary_cross_entropy and soft_margin_loss are too large by the number of ranks, since each
#        rank divides by its own count of elements. Their losses are right as long as all ranks
#        have equally many rows. Where they have not, a loss is the mean of the ranks' means, and
#        the rows of a rank with fewer have larger gradients. There is no error and no warning.
#        l1_loss, poisson_nll_loss and a mean that is written out, ((x - y) ** 2).mean(), are right
#        in both cases. binary_cross_entropy_with_logits has right gradients, and a wrong loss where
#        rows are unequal.
#
# The packages of PyTorch take about 6 GB.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir torch==2.15.0 numpy==2.4.6 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/losses.py" <<'PY'
"""Compares losses and gradients of sharded rows with those of the whole tensor in one process."""
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.nn import functional as F


def written_out(x, y):
    return ((x - y) ** 2).mean()


# GROWS have a wrong gradient, RIGHT nothing wrong, and LOGITS a wrong loss where rows are unequal.
GROWS = (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.soft_margin_loss)
RIGHT = (written_out, F.l1_loss, F.poisson_nll_loss)
LOGITS = F.binary_cross_entropy_with_logits


def rows_of(n, ranks):
    """How many rows each rank has: torch gives the first ones more."""
    most = -(-n // ranks)
    return [max(0, min(most, n - most * rank)) for rank in range(ranks)]


def whole(function, x, y):
    x = x.clone().requires_grad_()
    loss = function(x, y)
    loss.backward()
    return loss.detach(), x.grad


def sharded(function, x, y, mesh):
    x = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    loss = function(x, distribute_tensor(y, mesh, [Shard(0)]))
    loss.backward()
    return loss.detach().full_tensor(), x.grad.full_tensor()


def wanted(function, x, y, ranks):
    """The loss and the gradient that are seen, made out of those of the whole tensor."""
    loss, gradient = whole(function, x, y)
    n, rows = len(x), rows_of(len(x), ranks)
    if function in GROWS or function is LOGITS:
        loss = sum(function(a, b) for a, b in zip(x.split(rows), y.split(rows))) / ranks
    if function in GROWS:
        gradient = gradient * torch.tensor([n / r for r in rows for _ in range(r)])[:, None]
    return loss, gradient


def run(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{ranks}", rank=rank,
                            world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    warnings.simplefilter("error")  # a loss that warns would not be silent
    random = torch.Generator().manual_seed(1)
    failed = False
    for n in (2 * ranks, 2 * ranks - 1):
        x, y = torch.rand(2, n, 6, generator=random, dtype=torch.float64) * 0.8 + 0.1
        for function in (*GROWS, *RIGHT, LOGITS):
            got, true = sharded(function, x, y, mesh), whole(function, x, y)
            want = wanted(function, x, y, ranks)
            same = all(torch.allclose(a, b) for a, b in zip(got, want, strict=True))
            failed = failed or not same
            factors = (got[1] / true[1]).mean(1)
            if rank == 0:
                print(f"{ranks} ranks, rows {rows_of(n, ranks)}, {function.__name__}: "
                      f"loss {got[0]:.5f} for {true[0]:.5f}, gradient times {factors[0]:.3g} to "
                      f"{factors[-1]:.3g}{'' if same else ': not as seen'}", flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    print("torch", torch.__version__)
    for number in (2, 3):
        torch.multiprocessing.spawn(run, (number, sys.argv[1]), nprocs=number)
PY
"$dir/venv/bin/python" "$dir/losses.py" "$dir"

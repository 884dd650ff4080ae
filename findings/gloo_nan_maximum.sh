#!/usr/bin/env bash
# gloo_nan_maximum.sh - what all_reduce makes of a NaN when it takes a maximum, with gloo.
#
# A trainer takes the largest loss or norm of all ranks by all_reduce(MAX), to log it, to scale by
# it, or to learn whether a rank has a NaN.
#
# Guess: the result is that of torch.maximum, a NaN wherever one rank has one; at worst that of C's
#        fmax, the largest number. Which rank has the NaN does not matter, nor where in the tensor.
# Seen:  torch 2.15.0: neither. The tensor has as many parts as there are ranks. In part k only a
#        NaN of rank k stays. A NaN of another rank vanishes there, and with it the numbers of that
#        rank and of the next ones, around the ring up to rank k: of 1, NaN, 3 and 4 on four ranks
#        the maximum is 1 in the first part, NaN in the second, 4 in the others. A single number is
#        all first part: a NaN is seen only if rank 0 has it, and one of rank 1 makes rank 0's
#        number the maximum. All ranks get the same result. MIN does alike.
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
cat >"$dir/maximum.py" <<'PY'
"""Four ranks take maxima and minima of their numbers, of which one is a NaN."""
import math
import sys

import torch
import torch.distributed as dist

RANKS, NAN = 4, math.nan
# the operation, the numbers of the four ranks, and what is seen in the four parts
WANTED = [
    ("MAX", (1, 2, 3, 4), (4, 4, 4, 4)),
    ("MAX", (NAN, 2, 3, 4), (NAN, 4, 4, 4)),
    ("MAX", (1, NAN, 3, 4), (1, NAN, 4, 4)),
    ("MAX", (1, 2, NAN, 4), (2, 2, NAN, 4)),
    ("MAX", (1, 2, 3, NAN), (3, 3, 3, NAN)),
    ("MIN", (4, NAN, 2, 1), (4, NAN, 1, 1)),
]


def same(a, b):
    return all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True))


def reduced(op, number, n):
    x = torch.full((n,), float(number))
    dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    return x.tolist()


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=RANKS)
    failed = False
    for op, numbers, wanted in WANTED:
        eight, one = reduced(op, numbers[rank], 2 * RANKS), reduced(op, numbers[rank], 1)
        if rank == 0:
            print(f"{op} of {numbers}: {eight} in a tensor of 8, {one} in one of 1")
        failed |= not same(eight, [x for x in wanted for _ in range(2)])
        failed |= not same(one, wanted[:1])
    dist.destroy_process_group()
    sys.exit(failed)


if __name__ == "__main__":
    print("torch", torch.__version__)
    torch.multiprocessing.spawn(run, (sys.argv[1],), nprocs=RANKS)
PY
GLOO_SOCKET_IFNAME=lo "$dir/venv/bin/python" "$dir/maximum.py" "$dir"

#!/usr/bin/env python3
"""make_averages - what torch.optim.swa_utils makes of averaged weights, for train.average to be
compared with: AveragedModel after 20 updates, and the running statistics of update_bn.

    make_averages.py            writes averages.json beside this file
    make_averages.py --check    computes anew and compares; exit 77 without PyTorch

There is no network, as in make_optimizers.py, whose formulas give initial parameters and gradients.
The optimizer is plain SGD.  An epoch has 5 steps.
"""
import json
import os
import sys

import make_golden
import torch
from make_optimizers import value
from torch import nn
from torch.optim import swa_utils

STEPS, EPOCH, LR, BATCH = 20, 5, 0.05, 16


class Net(nn.Module):
    """The mlp of `hidden: [5]` for samples of 2x3x1 and 4 classes."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 5)
        self.fc2 = nn.Linear(5, 4)


# name: the job file's section, the decay (None: the mean), and the updates after which PyTorch's
# update_parameters is called
RUNS = {
    "ema": ("{name: ema, decay: 0.9}", 0.9, range(1, 21)),
    "ema_every": ("{name: ema, decay: 0.75, every: 4}", 0.75, range(4, 21, 4)),
    "swa": ("{name: swa, start: 1}", None, [10, 15, 20]),
    "swa_every": ("{name: swa, start: 0.25, every: 3}", None, range(8, 21, 3)),
    "swa_each": ("{name: swa, start: 0, every: 1}", None, range(1, 21)),
}


def averaged(model, decay):
    """get_ema_multi_avg_fn came with PyTorch 2.0; before it this is its formula for one tensor."""
    if decay is None:
        return swa_utils.AveragedModel(model)
    if hasattr(swa_utils, "get_ema_multi_avg_fn"):
        return swa_utils.AveragedModel(
            model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(decay))
    return swa_utils.AveragedModel(model, avg_fn=lambda a, p, n: torch.lerp(a, p, 1 - decay))


def run(decay, updates):
    """The averaged parameters after the last update."""
    model = Net()
    params = list(model.named_parameters())
    for t, (_, p) in enumerate(params):
        p.data = value(t, list(p.shape))
    average = averaged(model, decay)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, foreach=False)
    for k in range(STEPS):
        for t, (_, p) in enumerate(params):
            shape = list(p.shape)
            pull = p.detach() - value(100 + t, shape)
            p.grad = 0.5 * pull + value(1000 + 16 * k + t, shape)
        optimizer.step()
        if k + 1 in updates:
            average.update_parameters(model)
    return lists(dict(average.module.named_parameters()))


class Norms(nn.Sequential):
    """layers: [batch_norm, {linear: {units: 4}}, batch_norm, relu, {linear: {units: 2}}]"""

    def __init__(self):
        super().__init__(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(),
                         nn.Linear(4, 2))


def statistics():
    """update_bn over whole batches, by the number of batches: of a network with these parameters,
    and of 70 samples whose features have different means and scales."""
    x = value(50, [70, 3]) * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor([0.0, 3.0, 6.0])
    model, seen = Norms(), {}
    for t, p in enumerate(model.parameters()):
        p.data = value(60 + t, list(p.shape))
    for n in (2, 4):
        swa_utils.update_bn([x[BATCH * k:BATCH * (k + 1)] for k in range(n)], model)
        seen[str(n)] = lists(dict(model.named_buffers()), "running")
    return dict(batch=BATCH, samples=x.flatten().tolist(),
                parameters=lists(dict(model.named_parameters())), statistics=seen)


def lists(tensors, word=""):
    """The tensors in whose names the word is, as lists."""
    return {name: v.detach().flatten().tolist() for name, v in tensors.items() if word in name}


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "averages.json")
    torch.set_num_threads(1)
    runs = {name: dict(average=job, parameters=run(decay, updates))
            for name, (job, decay, updates) in RUNS.items()}
    norms = statistics()
    if "--check" not in sys.argv:
        made = dict(made_by=f"PyTorch {torch.__version__}, 1 thread", steps=STEPS,
                    steps_per_epoch=EPOCH, lr=LR, runs=runs, update_bn=norms)
        open(path, "w").write(make_golden.dump(made))
    stored = json.load(open(path))
    n_bad = 0
    for name, now in runs.items():
        was = stored["runs"][name]["parameters"]
        drift = max(distance(values, was[t]) for t, values in now["parameters"].items())
        print(f"{name:20} from the stored {drift:.1e}")
        n_bad += drift > 1e-6
    for n, now in norms["statistics"].items():
        was = stored["update_bn"]["statistics"][n]
        drift = max(distance(values, was[name]) for name, values in now.items())
        print(f"update_bn, {n} batches  from the stored {drift:.1e}")
        n_bad += drift > 1e-5
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

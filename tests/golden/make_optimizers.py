#!/usr/bin/env python3
"""make_optimizers - what torch.optim makes of 200 updates, for ours to be compared with.

    make_optimizers.py            writes optimizers.json beside this file
    make_optimizers.py --check    computes anew and compares; exit 77 without PyTorch

There is no network: initial parameters, and each step's gradients, come from formulas that the test
repeats bit for bit.  With value(s, i) = 2 * unit(word(s, i)) - 1 (make_golden.py), element i of
parameter t (counted in PyTorch's order) starts as value(t, i), and its gradient in step k is

    0.5 * (parameter - value(100 + t, i)) + value(1000 + 16 * k + t, i)        in float32

so that errors do not grow, and no gradient is near 0 for long.
"""
import json
import os
import sys

import make_golden
import torch
from torch import nn

STEPS = 200


class Net(nn.Module):
    """The mlp of `hidden: [5], batch_norm: true` for samples of 2x3x1 and 4 classes."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 5)
        self.bn1 = nn.BatchNorm1d(5)
        self.fc2 = nn.Linear(5, 4)


def is_bias(name):
    return name.endswith(".bias")


def is_bias_or_norm(name):
    return is_bias(name) or name.startswith("bn")


ADAMW = dict(lr=0.01)
ADAMW_ALL = dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)
ADAM = dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)
LION = dict(lr=0.001, betas=(0.8, 0.95), weight_decay=0.1)
SGD = dict(lr=0.05, momentum=0.9, weight_decay=0.02)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen and others 2023; torch.optim has none."""

    def __init__(self, params, foreach, **defaults):
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = (m * beta1 + p.grad * (1 - beta1)).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(update, alpha=group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


# name: the job file's section, and the same for PyTorch: its optimizer, its defaults, what differs
# for a parameter of this name (None: frozen), and the norm to which gradients are clipped
RUNS = {
    "adamw": ("{name: adamw, lr: 0.01}", torch.optim.AdamW, ADAMW, lambda name: {}, 0),
    "adamw_no_decay": (
        "{name: adamw, lr: 0.02, betas: [0.8, 0.95], eps: 1.0e-5, weight_decay: 0.1, "
        "no_decay: [bias, norm]}", torch.optim.AdamW, ADAMW_ALL,
        lambda name: dict(weight_decay=0.0) if is_bias_or_norm(name) else {}, 0),
    "adamw_groups": (
        "{name: adamw, lr: 0.02, betas: [0.8, 0.95], eps: 1.0e-5, weight_decay: 0.1, groups: ["
        "{match: 'fc2.*', lr_scale: 0.5, weight_decay: 0.3}, {match: fc1.bias, frozen: true}]}",
        torch.optim.AdamW, ADAMW_ALL,
        lambda name: None if name == "fc1.bias" else
        dict(lr=0.01, weight_decay=0.3) if name.startswith("fc2") else {}, 0),
    "adamw_clip_norm": ("{name: adamw, lr: 0.01}", torch.optim.AdamW, ADAMW, lambda name: {}, 0.25),
    "adam": ("{name: adam, lr: 0.01}", torch.optim.Adam, dict(lr=0.01), lambda name: {}, 0),
    "adam_groups": (
        "{name: adam, lr: 0.02, betas: [0.8, 0.95], eps: 1.0e-5, weight_decay: 0.1, no_decay: "
        "[bias], groups: [{match: 'fc2.*', lr_scale: 0.5}, {match: fc1.bias, frozen: true}]}",
        torch.optim.Adam, ADAM,
        lambda name: None if name == "fc1.bias" else
        {**(dict(lr=0.01) if name.startswith("fc2") else {}),
         **(dict(weight_decay=0.0) if is_bias(name) else {})}, 0.25),
    "lion": ("{name: lion, lr: 0.001}", Lion,
             dict(lr=0.001, betas=(0.9, 0.99), weight_decay=0.0), lambda name: {}, 0),
    "lion_groups": (
        "{name: lion, lr: 0.001, betas: [0.8, 0.95], weight_decay: 0.1, no_decay: [bias, norm], "
        "groups: [{match: 'fc2.*', lr_scale: 0.5}, {match: fc1.bias, frozen: true}]}", Lion, LION,
        lambda name: None if name == "fc1.bias" else
        {**(dict(lr=0.0005) if name.startswith("fc2") else {}),
         **(dict(weight_decay=0.0) if is_bias_or_norm(name) else {})}, 0.25),
    "sgd_no_decay": (
        "{lr: 0.05, momentum: 0.9, weight_decay: 0.02, no_decay: [bias]}", torch.optim.SGD, SGD,
        lambda name: dict(weight_decay=0.0) if is_bias(name) else {}, 0),
    "sgd_groups": (
        "{lr: 0.05, momentum: 0.9, weight_decay: 0.02, groups: [{match: '*.weight', lr_scale: 2}, "
        "{match: bn1.*, weight_decay: 0}, {match: 'fc1.*', frozen: true}]}", torch.optim.SGD, SGD,
        lambda name: None if name.startswith("fc1") else
        {**(dict(lr=0.1) if name.endswith(".weight") else {}),
         **(dict(weight_decay=0.0) if name.startswith("bn1") else {})}, 0.5),
}


def value(stream, shape):
    return torch.from_numpy(make_golden.make_weight(stream, shape, 1.0))


def run(make, defaults, settings_of, clip_norm):
    """The parameters after the last update."""
    model = Net()
    params = list(model.named_parameters())
    groups = []
    for t, (name, p) in enumerate(params):
        settings = settings_of(name)
        p.data = value(t, list(p.shape))
        p.requires_grad_(settings is not None)
        if settings is not None:
            groups.append(dict(params=[p], **settings))
    optimizer = make(groups, **defaults, foreach=False)
    for k in range(STEPS):
        for t, (name, p) in enumerate(params):
            shape = list(p.shape)
            if p.requires_grad:
                pull = p.detach() - value(100 + t, shape)
                p.grad = 0.5 * pull + value(1000 + 16 * k + t, shape)
        if clip_norm:
            nn.utils.clip_grad_norm_([p for _, p in params if p.requires_grad], clip_norm)
        optimizer.step()
    return {name: p.detach().flatten().tolist() for name, p in params}


def make_all():
    torch.set_num_threads(1)
    runs = {}
    for name, (job, make, defaults, settings_of, clip_norm) in RUNS.items():
        runs[name] = dict(optimizer=job, clip_norm=clip_norm,
                          parameters=run(make, defaults, settings_of, clip_norm))
    return dict(made_by=f"PyTorch {torch.__version__}, 1 thread", steps=STEPS, runs=runs)


def distance(a, b):
    largest = max(abs(x) for x in b)
    return max(abs(x - y) for x, y in zip(a, b)) / largest


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.json")
    made = make_all()
    if "--check" not in sys.argv:
        open(path, "w").write(make_golden.dump(made))
    stored = json.load(open(path))
    n_bad = 0
    for name, now in made["runs"].items():
        was = stored["runs"][name]["parameters"]
        drift = max(distance(values, was[t]) for t, values in now["parameters"].items())
        print(f"{name:20} from the stored {drift:.1e}")
        n_bad += drift > 1e-6
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

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


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You and others 2020, in double precision; torch.optim has none."""

    def __init__(self, params, foreach, **defaults):
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, x=p.double(), m=torch.zeros_like(p).double(),
                             v=torch.zeros_like(p).double())
                s["t"] += 1
                g = p.grad.double()
                s["m"] = beta1 * s["m"] + (1 - beta1) * g
                s["v"] = beta2 * s["v"] + (1 - beta2) * g * g
                m = s["m"] / (1 - beta1 ** s["t"])
                v = s["v"] / (1 - beta2 ** s["t"])
                r = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * s["x"]
                s["x"] = s["x"] - group["lr"] * s["x"].norm() / r.norm() * r
                p.copy_(s["x"])


class FusedLamb(torch.optim.Optimizer):
    """DeepSpeed 0.19.8's, by the formulas of csrc/lamb/fused_lamb_cuda_kernel.cu, which is for GPUs
    alone, in double precision: the bias correction is a factor on the rate."""

    def __init__(self, params, foreach, **defaults):
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, x=p.double(), m=torch.zeros_like(p).double(),
                             v=torch.zeros_like(p).double())
                s["t"] += 1
                g = p.grad.double()
                s["m"] = beta1 * s["m"] + (1 - beta1) * g
                s["v"] = beta2 * s["v"] + (1 - beta2) * g * g
                update = s["m"] / (s["v"].sqrt() + group["eps"]) + group["weight_decay"] * s["x"]
                norm_x, norm_u = s["x"].norm(), update.norm()
                coeff = norm_x / norm_u if norm_x != 0 and norm_u != 0 else 1.0
                coeff = max(min(coeff, group["max_coeff"]), group["min_coeff"])
                step_size = (group["lr"] * (1 - beta2 ** s["t"]) ** 0.5 / (1 - beta1 ** s["t"])
                             if group["bias_correction"] else group["lr"])
                s["x"] = s["x"] - step_size * coeff * update
                p.copy_(s["x"])


def newton_schulz(grad, coefficients, steps, eps):
    """torch.optim.Muon's iterations, in double precision instead of bfloat16."""
    a, b, c = coefficients
    x = grad.double()
    x = x.T if grad.size(0) > grad.size(1) else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if grad.size(0) > grad.size(1) else x).to(grad.dtype)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon for matrices, but for newton_schulz, and torch.optim.AdamW for the rest: for
    groups with `other`, which has AdamW's settings.  PyTorch has Muon since version 2.9, so it is
    written out here; compare() shows that nothing else differs."""

    def __init__(self, params, foreach, **defaults):
        others = [{"params": group["params"], **group["other"]} for group in params
                  if "other" in group]
        self.adamw = torch.optim.AdamW(others, foreach=False) if others else None
        super().__init__([group for group in params if "other" not in group], defaults)

    @torch.no_grad()
    def step(self):
        if self.adamw:
            self.adamw.step()
        for group in self.param_groups:
            (p,) = group["params"]
            m = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            m.lerp_(p.grad, 1 - group["momentum"])
            update = newton_schulz(p.grad.lerp(m, group["momentum"]) if group["nesterov"] else m,
                                   group["ns_coefficients"], group["ns_steps"], 1e-7)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(update, alpha=-group["lr"] * group["ratio"](*p.shape))

    @staticmethod
    def compare():
        """Largest difference to torch.optim.Muon, made to use newton_schulz, after ten updates."""
        torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
        worst = 0
        for shape in [(5, 6), (6, 5)]:
            ours, theirs = (nn.Parameter(value(1, list(shape))) for _ in range(2))
            a = Muon([dict(params=[ours])], False, **MUON)
            b = torch.optim.Muon([theirs], lr=MUON["lr"])
            for k in range(10):
                ours.grad = value(1000 + k, list(shape))
                theirs.grad = ours.grad.clone()
                a.step()
                b.step()
            worst = max(worst, float((ours - theirs).abs().max()))
        return worst


def original(rows, columns):
    return max(1, rows / columns) ** 0.5


def match_rms_adamw(rows, columns):
    return 0.2 * max(rows, columns) ** 0.5


MUON = dict(lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.1, ns_steps=5,
            ns_coefficients=(3.4445, -4.775, 2.0315), ratio=original)
MUON_OTHER = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
MUON_ALL = dict(lr=0.01, momentum=0.9, nesterov=False, weight_decay=0.2, ns_steps=4,
                ns_coefficients=(3.0, -3.2, 1.2), ratio=match_rms_adamw)
MUON_ALL_OTHER = dict(lr=0.005, betas=(0.8, 0.99), eps=1e-8, weight_decay=0.1)

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
    "lamb": ("{name: lamb, lr: 0.01}", Lamb,
             dict(lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01), lambda name: {}, 0),
    "lamb_groups": (
        "{name: lamb, lr: 0.02, betas: [0.8, 0.95], eps: 1.0e-5, weight_decay: 0.1, no_decay: "
        "[bias, norm], groups: [{match: 'fc2.*', lr_scale: 0.5}, {match: fc1.bias, frozen: true}]}",
        Lamb, ADAMW_ALL,
        lambda name: None if name == "fc1.bias" else
        {**(dict(lr=0.01) if name.startswith("fc2") else {}),
         **(dict(weight_decay=0.0) if is_bias_or_norm(name) else {})}, 0.25),
    "lamb_deepspeed": (
        "{name: lamb, lr: 0.01, eps: 1.0e-8, weight_decay: 0, min_trust: 0.01, max_trust: 10, "
        "bias_correction: rate}", FusedLamb,
        dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, max_coeff=10.0,
             min_coeff=0.01, bias_correction=True), lambda name: {}, 0),
    "lamb_bounds": (
        "{name: lamb, lr: 0.01, weight_decay: 0.1, min_trust: 2, max_trust: 2.5, "
        "bias_correction: none}", FusedLamb,
        dict(lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1, max_coeff=2.5,
             min_coeff=2.0, bias_correction=False), lambda name: {}, 0),
    "muon": ("{name: muon, lr: 0.02}", Muon, MUON,
             lambda name: {} if name.startswith("fc") and not is_bias(name) else
             dict(other=MUON_OTHER), 0),
    "muon_groups": (
        "{name: muon, lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.2, "
        "adjust_lr: match_rms_adamw, ns_steps: 4, ns_coefficients: [3, -3.2, 1.2], "
        "adamw: {match: ['fc2.*', fc2.bias], lr: 0.005, betas: [0.8, 0.99], eps: 1.0e-8, "
        "weight_decay: 0.1}, groups: [{match: 'fc1.*', lr_scale: 0.5}, {match: 'bn1.*', lr_scale: "
        "2, weight_decay: 0.3}, {match: fc1.bias, frozen: true}]}", Muon, MUON_ALL,
        lambda name: None if name == "fc1.bias" else
        dict(lr=0.005) if name == "fc1.weight" else
        dict(other={**MUON_ALL_OTHER,
                    **(dict(lr=0.01, weight_decay=0.3) if name.startswith("bn1") else {})}), 0.25),
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

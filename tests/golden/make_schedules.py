#!/usr/bin/env python3
"""make_schedules - the rates that torch.optim.lr_scheduler gives over 200 steps, for ours to be
compared with.

    make_schedules.py            writes schedules.json beside this file
    make_schedules.py --check    computes anew and compares; exit 77 without PyTorch

The job has 20 epochs of 10 steps, and optimizer.lr is 0.5.
"""
import json
import math
import os
import sys

import make_golden
import torch
from torch.optim import lr_scheduler as torch_schedules

STEPS, EPOCH, LR = 200, 10, 0.5


def after_warmup(make):
    """20 steps from a tenth of the rate, and then `make`'s schedule of the other 180.  Our warm-up
    rises to the whole rate at its last step, PyTorch's at the step after it: hence 19."""
    def joined(optimizer):
        first = torch_schedules.LinearLR(optimizer, start_factor=0.1 + 0.9 / 20, total_iters=19)
        return torch_schedules.SequentialLR(optimizer, [first, make(optimizer)], [20])
    return joined


def wsd_of(decay, way):
    """PyTorch has none: a LambdaLR by the formula of schedule_wsd.c, as its paper has it."""
    def factor(step):
        t = (step - (1 - decay) * STEPS) / (decay * STEPS)
        return 1.0 if t <= 0 else way(t)
    return lambda optimizer: torch_schedules.LambdaLR(optimizer, factor)


# name: the job file's section, and PyTorch's scheduler; with `epochs` it steps once an epoch
RUNS = {
    "constant": ("{name: constant}", lambda o: torch_schedules.ConstantLR(o, 1.0), False),
    "step": ("{name: step, every_steps: 30, gamma: 0.3}",
             lambda o: torch_schedules.StepLR(o, 30, 0.3), False),
    "step_epochs": ("{name: step, every_epochs: 3, gamma: 0.3}",
                    lambda o: torch_schedules.StepLR(o, 3, 0.3), True),
    "multistep": ("{name: multistep, milestone_steps: [7, 50, 51, 120], gamma: 0.5}",
                  lambda o: torch_schedules.MultiStepLR(o, [7, 50, 51, 120], 0.5), False),
    "multistep_epochs": ("{name: multistep, milestone_epochs: [5, 15]}",
                         lambda o: torch_schedules.MultiStepLR(o, [5, 15]), True),
    "exponential": ("{name: exponential, gamma: 0.9}",
                    lambda o: torch_schedules.ExponentialLR(o, 0.9), True),
    "exponential_steps": ("{name: exponential, every_steps: 1, gamma: 0.99}",
                          lambda o: torch_schedules.ExponentialLR(o, 0.99), False),
    "cosine": ("{name: cosine, min_lr: 0.01}",
               lambda o: torch_schedules.CosineAnnealingLR(o, STEPS, 0.01), False),
    "cosine_warmup": ("{name: cosine, warmup_steps: 20, warmup_start: 0.1}",
                      after_warmup(lambda o: torch_schedules.CosineAnnealingLR(o, STEPS - 20)),
                      False),
    "linear": ("{name: linear}", lambda o: torch_schedules.LinearLR(o, 1.0, 0.0, STEPS), False),
    "linear_warmup": ("{name: linear, min_lr: 0.05, warmup_steps: 20, warmup_start: 0.1}",
                      after_warmup(lambda o: torch_schedules.LinearLR(o, 1.0, 0.1, STEPS - 20)),
                      False),
    "onecycle": ("{name: onecycle}",
                 lambda o: torch_schedules.OneCycleLR(o, LR, STEPS, cycle_momentum=False), False),
    "onecycle_linear": (
        "{name: onecycle, rise: 0.4, div: 10, final_div: 100, shape: linear, three_phases: true}",
        lambda o: torch_schedules.OneCycleLR(
            o, LR, STEPS, pct_start=0.4, div_factor=10, final_div_factor=100, three_phase=True,
            anneal_strategy="linear", cycle_momentum=False), False),
    "wsd": ("{name: wsd, decay: 0.3, shape: sqrt}",
            wsd_of(0.3, lambda t: 1 - math.sqrt(t)), False),
}


def run(make, by_epochs):
    """The rate of each step."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=LR)
    schedule = make(optimizer)
    rates = []
    for step in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if not by_epochs or step % EPOCH == EPOCH - 1:
            schedule.step()
    return rates


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schedules.json")
    runs = {name: dict(schedule=job, rates=run(make, by_epochs))
            for name, (job, make, by_epochs) in RUNS.items()}
    if "--check" not in sys.argv:
        made = dict(made_by=f"PyTorch {torch.__version__}", steps_per_epoch=EPOCH, lr=LR, runs=runs)
        open(path, "w").write(make_golden.dump(made))
    stored = json.load(open(path))
    n_bad = 0
    for name, now in runs.items():
        drift = max(abs(a - b) for a, b in zip(now["rates"], stored["runs"][name]["rates"]))
        print(f"{name:20} from the stored {drift:.1e}")
        n_bad += drift > 1e-12
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

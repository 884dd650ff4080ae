#!/usr/bin/env python3
"""make_golden - computes 20 training steps with PyTorch, with which our losses are compared.

    make_golden.py            writes golden.json beside this file
    make_golden.py --check    computes anew and compares; exit 77 without PyTorch

Only results are stored: weights, images and labels come from formulas that golden_data.c repeats
bit for bit.  With word(s, i) = the first word of Philox4x32-10 at key 1 and the counter that
rng_draw(1, RNG_TEST, s, i) uses, and unit(w) = (w >> 8) / 2^24, exact in float32:

    weight i of tensor t     (2 * unit(word(t, i)) - 1) * bound     float32; bound = float32 of
                             1 / sqrt(fan in), for weights and biases alike; t counts the
                             parameters in PyTorch's order, from 0
                             norms begin with weight 1 and bias 0; they count, too
    label of sample n        word(1000, n) % 10
    pixel p of sample n      0.5 * unit(word(1001, 49 * label + square)) +
                             0.5 * unit(word(1002, 784 * n + p))
                             in float32: a pattern of 7x7 squares per class, and noise;
                             p = 28 * row + column, square = 7 * (row / 4) + column / 4

Step k (from 0) trains on samples 64 k .. 64 k + 63.  `losses` are each step's loss before its
update, in float32; `losses_float64` are the same in double, so their difference is rounding.
`logits` are those of samples 0 to 3 after step 20, in evaluation mode.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import find_torch  # noqa: E402

find_torch.need("numpy", "torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

STEPS, BATCH, PIXELS, CLASSES = 20, 64, 784, 10
LABELS, PATTERNS, NOISE = 1000, 1001, 1002
RNG_TEST = 6


def word(stream, index):
    """The first word of rng_draw(1, RNG_TEST, stream, index), for an array of indices."""
    mask = np.uint64(0xFFFFFFFF)
    index = np.asarray(index, dtype=np.uint64)
    c = [index & mask, (index >> np.uint64(32)) | np.uint64(RNG_TEST << 24),
         np.full_like(index, stream), np.zeros_like(index)]
    key = [1, 0]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), p1 & mask,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), p0 & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


def unit(stream, index):
    return (word(stream, index) >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24)


def make_weight(t, shape, bound):
    u = unit(t, np.arange(int(np.prod(shape))))
    return ((np.float32(2) * u - np.float32(1)) * np.float32(bound)).reshape(shape)


def make_labels(n):
    return (word(LABELS, np.arange(n)) % np.uint32(CLASSES)).astype(np.int64)


def make_images(labels):
    pixel = np.arange(PIXELS)
    square = pixel // 28 // 4 * 7 + pixel % 28 // 4
    pattern = unit(PATTERNS, labels[:, None] * 49 + square)
    noise = unit(NOISE, np.arange(len(labels))[:, None] * PIXELS + pixel)
    return np.float32(0.5) * pattern + np.float32(0.5) * noise


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(1)


def named(**layers):
    """A Sequential whose layers have these names; a key that starts with _ has no parameters."""
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def lenet():
    return named(conv1=nn.Conv2d(1, 20, 3), _a=nn.ReLU(), _b=nn.AvgPool2d(2),
                 conv2=nn.Conv2d(20, 50, 5), _c=nn.ReLU(), _d=nn.AvgPool2d(2), _e=Flat(),
                 fc1=nn.Linear(800, 128), _f=nn.ReLU(), fc2=nn.Linear(128, CLASSES))


def lenet5():
    return named(conv1=nn.Conv2d(1, 6, 5, padding=2), _a=nn.Tanh(), _b=nn.AvgPool2d(2),
                 conv2=nn.Conv2d(6, 16, 5), _c=nn.Tanh(), _d=nn.AvgPool2d(2), _e=Flat(),
                 fc1=nn.Linear(400, 120), _f=nn.Tanh(), fc2=nn.Linear(120, 84), _g=nn.Tanh(),
                 fc3=nn.Linear(84, CLASSES))


def mlp(activation=nn.ReLU, norm=None):
    layers = dict(_e=Flat(), fc1=nn.Linear(PIXELS, 128))
    if norm:
        layers["bn1" if norm is nn.BatchNorm1d else "ln1"] = norm(128)
    return named(**layers, _a=activation(), fc2=nn.Linear(128, CLASSES))


class Residual(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + x


def layers():
    """A list of layers with most norms, a residual and a transposed convolution."""
    inner = Residual(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.LeakyReLU())
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), inner,
        nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), nn.InstanceNorm2d(6),
        nn.GELU(), nn.AdaptiveAvgPool2d(4), Flat(), nn.LayerNorm(96), nn.Linear(96, CLASSES))


def pointwise(loss):
    """The mean of `loss` over samples and classes, against the one-hot label."""
    return lambda logits, labels: loss(
        logits, nn.functional.one_hot(labels, CLASSES).to(logits.dtype))


WEIGHTS = [2, 1, 0.5, 0, 1, 0.3, 1, 0.025, 1, 1.7]


# name: model, optimizer's settings, and all that differs from plain SGD on cross-entropy
RUNS = {
    "lenet": dict(model=lenet, lr=0.2),
    "lenet5": dict(model=lenet5, lr=0.2),
    "mlp": dict(model=mlp, lr=0.2),
    "mlp_momentum": dict(model=mlp, lr=0.02, momentum=0.9),
    "mlp_nesterov": dict(model=mlp, lr=0.02, momentum=0.9, nesterov=True),
    "mlp_weight_decay": dict(model=mlp, lr=0.1, weight_decay=0.05),
    "mlp_weight_decay_momentum": dict(model=mlp, lr=0.02, momentum=0.9, weight_decay=0.05),
    "mlp_weight_decay_not_biases": dict(model=mlp, lr=0.1, weight_decay=0.05, decay_biases=False),
    "mlp_clip_norm": dict(model=mlp, lr=0.2, clip_norm=0.5),
    "mlp_label_smoothing": dict(model=mlp, lr=0.2, label_smoothing=0.1),
    "mlp_ignore_index": dict(model=mlp, lr=0.2, ignore_index=3),
    "mlp_class_weights": dict(model=mlp, lr=0.2, class_weights=WEIGHTS),
    "mlp_class_weights_all": dict(model=mlp, lr=0.2, class_weights=WEIGHTS, label_smoothing=0.1,
                                  ignore_index=4),
    "mlp_mean_squared_error": dict(model=mlp, lr=0.2, loss=pointwise(nn.functional.mse_loss)),
    "mlp_absolute_error": dict(model=mlp, lr=0.2, loss=pointwise(nn.functional.l1_loss)),
    "mlp_bce": dict(model=mlp, lr=0.2,
                    loss=pointwise(nn.functional.binary_cross_entropy_with_logits)),
    "mlp_tanh": dict(model=lambda: mlp(nn.Tanh), lr=0.2),
    "mlp_sigmoid": dict(model=lambda: mlp(nn.Sigmoid), lr=0.2),
    "mlp_gelu": dict(model=lambda: mlp(nn.GELU), lr=0.2),
    "mlp_batch_norm": dict(model=lambda: mlp(norm=nn.BatchNorm1d), lr=0.2),
    "mlp_layer_norm": dict(model=lambda: mlp(norm=nn.LayerNorm), lr=0.2),
    "layers": dict(model=layers, lr=0.005, momentum=0.9),
}


def initialise(model):
    """Give every parameter its formula's values; returns the table by which C does the same."""
    table, fan_in = [], 0
    for t, (name, parameter) in enumerate(model.named_parameters()):
        shape = list(parameter.shape)
        module = model.get_submodule(name.rpartition(".")[0])
        if name.startswith(("bn", "ln")) or isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
            value = 1.0 if name.endswith("weight") else 0.0
            table.append(dict(name=name, shape=shape, value=value))
            continue
        if name.endswith("weight"):
            fan_in = int(np.prod(shape[1:]))
        bound = float(np.float32(1 / np.sqrt(fan_in)))
        values = make_weight(t, shape, bound)
        parameter.data = torch.from_numpy(values).to(parameter.dtype)
        table.append(dict(name=name, shape=shape, bound=bound, sum=float(values.sum(dtype=float))))
    return table


def make_optimizer(model, run):
    keys = ("lr", "momentum", "nesterov", "weight_decay")
    settings = {k: run[k] for k in keys if k in run}
    if run.get("decay_biases", True):
        return torch.optim.SGD(model.parameters(), **settings)
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    groups = [dict(params=weights), dict(params=biases, weight_decay=0.0)]
    return torch.optim.SGD(groups, **settings)


def cross_entropy(run, dtype):
    weights = torch.tensor(run["class_weights"], dtype=dtype) if "class_weights" in run else None
    return nn.CrossEntropyLoss(weights, ignore_index=run.get("ignore_index", -100),
                               label_smoothing=run.get("label_smoothing", 0.0))


def train(run, images, labels, dtype):
    """(losses, the gradient's norms if it is clipped, model, table of its parameters)"""
    model = run["model"]().to(dtype)
    table = initialise(model)
    optimizer = make_optimizer(model, run)
    loss_of = run.get("loss") or cross_entropy(run, dtype)
    losses, norms = [], []
    for k in range(STEPS):
        part = slice(BATCH * k, BATCH * (k + 1))
        loss = loss_of(model(images[part].to(dtype)), labels[part])
        optimizer.zero_grad()
        loss.backward()
        if "clip_norm" in run:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), run["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, model, table


def describe(run, images, labels):
    losses, norms, model, table = train(run, images, labels, torch.float32)
    exact = train(run, images, labels, torch.float64)[0]
    model.eval()
    with torch.no_grad():
        logits = model(images[:4])
    out = {k: v for k, v in run.items() if isinstance(v, (int, float))}
    out.update(parameters=table, losses=losses, losses_float64=exact, logits=logits.tolist())
    if norms:
        out["gradient_norms"] = norms
    if isinstance(getattr(model, "bn1", None), nn.BatchNorm1d):
        out["running_mean"] = model.bn1.running_mean[:8].tolist()
        out["running_var"] = model.bn1.running_var[:8].tolist()
    return out


def make():
    torch.set_num_threads(1)
    labels = make_labels(BATCH * STEPS)
    images = make_images(labels)
    x = torch.from_numpy(images.reshape(-1, 1, 28, 28))
    y = torch.from_numpy(labels)
    return dict(
        made_by=f"PyTorch {torch.__version__}, 1 thread", steps=STEPS, batch=BATCH,
        labels=labels[:20].tolist(), label_sum=int(labels.sum()),
        pixels=images[0, :8].tolist(), pixel_sums=images[:4].sum(axis=1, dtype=float).tolist(),
        runs={name: describe(run, x, y) for name, run in RUNS.items()})


def dump(value):
    """JSON with each list of numbers on one line."""
    text = json.dumps(value, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", " ", m[0]), text) + "\n"


def distance(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json")
    golden = make()
    if "--check" not in sys.argv:
        open(path, "w").write(dump(golden))
    stored = json.load(open(path))
    n_bad = 0
    for name, run in golden["runs"].items():
        was = stored["runs"][name]
        drift = distance(run["losses_float64"], was["losses_float64"])
        rounding = distance(was["losses"], was["losses_float64"])
        print(f"{name:30} {run['losses'][0]:.6f} -> {run['losses'][-1]:.6f}"
              f"   rounding {rounding:.1e}   from the stored {drift:.1e}")
        n_bad += drift > 1e-9 or rounding > 1e-5
    print(f"{len(golden['runs'])} runs, {n_bad} off")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

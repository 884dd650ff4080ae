"""Test of lists of layers (model.layers) that branch, or whose layers are for sequences: the
examples of deploy/examples and two lists of the other layers train as the same modules of PyTorch,
from the same weights, for 20 steps on one rank and on two.

Our losses may be as far from those in float64 as twice PyTorch's in float32, or 1e-4.

It needs a Python with torch and safetensors (find_torch.py), and is skipped (77) without one.
"""
import csv
import os

import find_torch

find_torch.need("torch", "safetensors", "numpy")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from models import dp  # noqa: E402

STEPS, BATCH = 20, 6
N = STEPS * BATCH
EXAMPLES = os.path.join(dp.ROOT, "deploy", "examples")
NOTHING = nn.Identity  # stands in the place of save, concat and the like, which have a number, too


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Attention(nn.MultiheadAttention):
    def __init__(self, width, heads):
        super().__init__(width, heads, batch_first=True)

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class OverTime(nn.Module):
    """A layer of [N,C,T] on [N,T,C]"""

    def along(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Conv1d(OverTime, nn.Conv1d):
    def forward(self, x):
        return self.along(x)


class BatchNorm1d(OverTime, nn.BatchNorm1d):
    def forward(self, x):
        return self.along(x)


class MaxPool1d(OverTime, nn.MaxPool1d):
    def forward(self, x):
        return self.along(x)


class Position(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, width))

    def forward(self, x):
        return x + self.weight


class Rotary(nn.Module):
    """Attention with rotary positions, and fewer heads of k and v"""

    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        rows = (heads + 2 * kv_heads) * self.size
        self.in_proj_weight = nn.Parameter(torch.randn(rows, width) / width)
        self.in_proj_bias = nn.Parameter(torch.randn(rows) / width)
        self.out_proj = nn.Linear(heads * self.size, width)

    def turn(self, x):
        half = self.size // 2
        angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64),
                            10000 ** -(torch.arange(half, dtype=torch.float64) / half))
        cosine, sine = (f(angle).to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = x.split(half, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    def forward(self, x):
        parts = F.linear(x, self.in_proj_weight, self.in_proj_bias).split(
            [n * self.size for n in (self.heads, self.kv_heads, self.kv_heads)], -1)
        q, k, v = (p.unflatten(-1, (-1, self.size)).transpose(1, 2) for p in parts)
        k, v = (p.repeat_interleave(self.heads // self.kv_heads, 1) for p in (self.turn(k), v))
        y = F.scaled_dot_product_attention(self.turn(q), k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class UNet(nn.Sequential):
    def __init__(self):
        def conv(n, m):
            return nn.Conv2d(n, m, 3, padding="same")
        super().__init__(
            conv(1, 16), nn.ReLU(), nn.MaxPool2d(2), conv(16, 32), nn.ReLU(), nn.MaxPool2d(2),
            conv(32, 64), nn.ReLU(), nn.Upsample(scale_factor=2), NOTHING(), conv(96, 32),
            nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), NOTHING(), conv(48, 16),
            nn.ReLU(), nn.Conv2d(16, 3, 1))

    def forward(self, x):
        saved = {}
        for i, layer in enumerate(self):
            x = layer(x)
            if i in (1, 4):
                saved[i] = x
            if i in (9, 13):
                x = torch.cat([x, saved[{9: 4, 13: 1}[i]]], 1)
        return x


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Texts(nn.Sequential):
    def __init__(self):
        def block():
            return nn.Sequential(
                Residual(nn.LayerNorm(32), Attention(32, 4)),
                Residual(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)))
        super().__init__(
            nn.Embedding(41, 32), Position(15, 32), Conv1d(32, 32, 3, padding="same"),
            nn.Sequential(block(), block()), nn.LayerNorm(32), Mean(), nn.Linear(32, 2))


class LSTM(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


class Tagger(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(30, 16), LSTM(16, 32, batch_first=True, bidirectional=True),
                         nn.Linear(64, 3))

    def forward(self, x):
        return super().forward(x).transpose(1, 2)  # the classes are PyTorch's second dimension


class Autoencoder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(1568, 8), nn.Linear(8, 1568), nn.ReLU(),
            nn.Unflatten(1, (32, 7, 7)), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1))


SEQUENCES = """[conv1d: {channels: 12, kernel: 4, padding: same}, batch_norm, relu, max_pool: 2,
  {rms_norm: , save: x}, split: {into: [a, gate], sizes: [8, 4]}, linear: 12, silu, save: y,
  from: gate, linear: 12, sigmoid, mul: y, add: x, attention: {heads: 6, kv_heads: 2, causal: true,
  rope: true}, permute: [0, 2, 1], reshape: [6, 10], softmax, flatten, linear: 5]"""


class Sequences(nn.ModuleList):
    """The list SEQUENCES"""

    def __init__(self):
        kept = {0: Conv1d(3, 12, 4, padding="same"), 1: BatchNorm1d(12), 3: MaxPool1d(2),
                4: nn.RMSNorm(12), 6: nn.Linear(8, 12), 10: nn.Linear(4, 12),
                14: Rotary(12, 6, 2), 19: nn.Linear(60, 5)}
        super().__init__(kept.get(i, NOTHING()) for i in range(20))

    def forward(self, x):
        x = self[4](self[3](torch.relu(self[1](self[0](x)))))
        y = F.silu(self[6](x[..., :8]))
        h = torch.sigmoid(self[10](x[..., 8:])) * y + x
        h = self[14](h).transpose(1, 2).reshape(-1, 6, 10)
        return self[19](h.softmax(-1).flatten(1))


IMAGES = """[conv: {channels: 6, kernel: [3, 1], stride: [2, 1], padding: [1, 0]},
  {relu: , save: x}, conv: {channels: 4, kernel: 2, padding: same}, save: a, from: x,
  avg_pool: {kernel: [1, 3], stride: 1, padding: [0, 1]}, conv: {channels: 4, kernel: 1},
  {add: a, save: b}, mean, reshape: [1, 1, 4], sigmoid, mul: b, concat: [a, x],
  upsample: {scale: [2, 1]}, max_pool: {kernel: [2, 1], stride: 1}, max, linear: 5]"""


class Pictures(nn.ModuleList):
    """The list IMAGES"""

    def __init__(self):
        kept = {0: nn.Conv2d(1, 6, (3, 1), (2, 1), (1, 0)), 2: nn.Conv2d(6, 4, 2, padding="same"),
                6: nn.Conv2d(6, 4, 1), 16: nn.Linear(14, 5)}
        super().__init__(kept.get(i, NOTHING()) for i in range(17))

    def forward(self, x):
        x = torch.relu(self[0](x))
        a = self[2](x)
        b = self[6](F.avg_pool2d(x, (1, 3), 1, (0, 1))) + a
        h = torch.cat([b.mean((2, 3), keepdim=True).sigmoid() * b, a, x], 1)
        h = F.max_pool2d(F.interpolate(h, scale_factor=(2.0, 1.0)), (2, 1), 1)
        return self[16](h.amax((2, 3)))


def losses(network, x, y, loss, lr):
    """Those of PyTorch's steps; x and y are of its types"""
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    out = []
    for at in range(0, N, BATCH):
        optimizer.zero_grad()
        value = loss(network(x[at:at + BATCH]), y[at:at + BATCH])
        value.backward()
        optimizer.step()
        out.append(value.item())
    return out


class Lists(dp.Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.draw = np.random.default_rng(1)

    def theirs(self, make, first, x, y, loss, lr):
        """PyTorch's losses in float32 and in float64"""
        both = []
        for dtype in (torch.float32, torch.float64):
            network = make().to(dtype).train()
            network.load_state_dict({k: v.to(dtype) if v.is_floating_point() else v
                                     for k, v in first.items()})
            cast = [t.to(dtype) if t.is_floating_point() else t for t in (x, y)]
            both.append(losses(network, *cast, loss, lr))
        return both

    def ours(self, run, n, job, example):
        args = ["--local", "--threads", "1", "--device", "cpu", "--run-dir", run]
        if example:
            args += ["--job", os.path.join(EXAMPLES, example + ".yaml"), *dp.sets(job)]
        self.run_driver(*args, n=n, job=None if example else job)
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def compare(self, make, x, y, lr, example=None, layers=None, loss=F.cross_entropy):
        """x and y as our files have them; fields have names where x is whole numbers"""
        network = make()
        first = {k: v.clone() for k, v in network.state_dict().items()}
        names = ("ids", "y") if x.dtype.kind == "i" else ("x", "y")
        for name, array in zip(names, (x, y)):
            np.save(self.path(f"train.{name}.npy"), array)
        safetensors.torch.save_file(first, self.path("first.safetensors"))
        files = "[train.x.npy, train.y.npy]"
        if names[0] == "ids":
            files = "{ids: train.ids.npy, labels: train.y.npy}"
        job = {"data.path": self.folder, "data.train": files, "data.validation": "none",
               "data.shuffle": "false", "train.global_batch": BATCH, "train.epochs": 1,
               "report.every_steps": 1, "optimizer.name": "sgd", "optimizer.lr": lr,
               "optimizer.momentum": 0.9, "schedule.name": "constant", "model.init.name": "file",
               "model.init.path": self.path("first.safetensors")}
        if example == "tagger":
            job["train.clip_norm"] = 0
        if layers:
            job |= {"data.format": "npy", "model.arch": "layers",
                    "model.layers": " ".join(layers.split())}
        images = torch.from_numpy(x)
        if images.ndim == 4:
            images = images.permute(0, 3, 1, 2)
        target = torch.from_numpy(y)
        if target.ndim == 4:
            target = target.permute(0, 3, 1, 2)
        single, double = self.theirs(make, first, images, target, loss, lr)
        self.assertLess(double[-1], 0.98 * double[0])  # else the updates are hardly seen
        for n in (1, 2):
            seen = self.ours(f"r{n}", n, job, example)
            self.assertEqual(len(seen), STEPS)
            for step, (ours, s, d) in enumerate(zip(seen, single, double)):
                self.assertLessEqual(abs(ours - d), max(2 * abs(s - d), 1e-4 * d),
                                     f"{n} ranks, step {step}: {seen} {double}")
        state = safetensors.torch.load_file(self.path("r2", "checkpoints", "latest",
                                                      "model.safetensors"))
        make().load_state_dict(state, strict=True)

    def real(self, *shape):
        return self.draw.standard_normal(shape).astype(np.float32)

    def test_unet(self):
        y = self.draw.integers(0, 3, (1, 32, 32)).repeat(N, 0)
        self.compare(UNet, self.real(N, 32, 32, 1) + y[..., None].astype(np.float32), y, 0.02,
                     "unet")

    def test_text(self):
        x = self.draw.integers(0, 41, (N, 15))
        self.compare(Texts, x, (x.mean(1) > 20).astype(int), 0.02, "text-classes")

    def test_tagger(self):
        x = self.draw.integers(0, 30, (N, 16))
        y = x % 3
        y[:, [0, -1]] = -100
        self.compare(Tagger, x, y, 0.3, "tagger")

    def test_autoencoder(self):
        row, column = np.mgrid[:28, :28]
        at = self.draw.uniform(6, 22, (N, 2, 1, 1))
        far = np.hypot(row - at[:, 0], column - at[:, 1])
        x = np.clip(4 - far, 0, 1)[..., None].astype(np.float32)
        self.compare(Autoencoder, x, x, 0.3, "autoencoder", loss=F.mse_loss)

    def test_sequences(self):
        x = self.real(N, 10, 3)
        y = np.arange(N) % 5
        self.compare(Sequences, x + y[:, None, None].astype(np.float32), y, 0.5, layers=SEQUENCES)

    def test_images(self):
        y = np.arange(N) % 5
        x = self.real(N, 12, 9, 1) + y[:, None, None, None].astype(np.float32)
        self.compare(Pictures, x, y, 0.05, layers=IMAGES)


if __name__ == "__main__":
    dp.main()

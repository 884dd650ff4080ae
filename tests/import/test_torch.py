"""test_torch - networks that PyTorch exports have its outputs, gradients and running statistics.

The reference is PyTorch in float64: ours may be no further away than twice PyTorch's float32, or
1e-4 of the largest number.  Networks are small, and the batch is another one than at export."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import find_torch  # noqa: E402

find_torch.need("torch", "torchvision", "numpy")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch_text  # noqa: E402
from torch import nn  # noqa: E402
from torchvision.models import resnet18, squeezenet1_1  # noqa: E402
from torchvision.models.maxvit import MaxVit  # noqa: E402
from torchvision.models.swin_transformer import (PatchMergingV2, SwinTransformer,  # noqa: E402
                                                 SwinTransformerBlockV2)
from torchvision.models.vision_transformer import VisionTransformer  # noqa: E402
from torchvision.ops import StochasticDepth  # noqa: E402

SWIN = ([4, 4], 16, [2, 2], [2, 4], [4, 4])
BATCH = 3


def pytorch(m, x, target, state, dtype):
    """The output, the gradients and the running statistics after one step, in float64."""
    m.load_state_dict(state)
    m.to(dtype).zero_grad()
    y = m(x.to(dtype))
    (((y - target.to(dtype)) ** 2).mean(1).sum() / BATCH).backward()
    out = {"output.0": y, **{f"{k}.grad": p.grad for k, p in m.named_parameters()
                             if p.grad is not None}}
    out |= {f"{k}.next": v.clone() for k, v in m.state_dict().items() if "running" in k}
    return {k: v.detach().double() for k, v in out.items()}


class Parts(nn.Module):
    """Lines, sizes of images, RMS norm, and powers."""

    def __init__(self):
        super().__init__()
        self.first, self.same = nn.Conv1d(12, 8, 3, 2, 1, 2, 2), nn.Conv1d(8, 8, 4, padding="same")
        self.norm, self.last = nn.RMSNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        x = nn.functional.interpolate(x, size=(4, 7), mode="bilinear")
        x = nn.functional.interpolate(x, scale_factor=2) ** 2
        x = nn.functional.interpolate(x, size=(4, 9), mode="bilinear", align_corners=True)
        x = torch.tanh(self.same(self.first(x.flatten(1, 2)))) ** 3
        x = torch.rsub(x.roll(1, 1), x, alpha=2)
        return self.last(self.norm(x.transpose(1, 2))).flatten(1)


class Letters(nn.Module):
    """Products by letters with "...", with and without the result; prod and logsumexp."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4, 5))
        self.c = nn.Parameter(torch.rand(5) + 0.5)

    def forward(self, x):
        x = torch.einsum("...ij,jk", x, self.a)
        y = torch.einsum("n...k,nchk->n...h", x, x)
        x = torch.einsum("...ij, ...jk -> ...ik", y, x).logsumexp((1, 2))
        return torch.einsum("n...,...d->nd", x, self.b) * self.c.prod() + self.b.prod(0)


class Cut(nn.Module):
    """Values without a gradient: a no_grad block, its views of parameters, and detach."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.last = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 5)
        self.seen, self.unseen = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
        with torch.no_grad():
            m, k = self.a(x).relu(), self.b.weight.view(144)
        y = self.b(x) * 2 + m * self.seen(x) + x @ k.view(12, 12)
        return self.last(y + self.b(y).detach() * torch.gt(self.unseen(x), 0))


class Twice(nn.Module):
    """A batch norm that a step uses three times; norms, pools and a draw without in-place forms."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.same = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False)
        self.norm, self.line = nn.BatchNorm2d(8), nn.Conv1d(8, 8, 3)
        self.group, self.layer = nn.GroupNorm(2, 8), nn.LayerNorm(8)
        self.pool, self.drop, self.last = nn.MaxPool2d(2), nn.Dropout(0.0), nn.Linear(8, 5)
        self.depth = StochasticDepth(0.0, "row")

    def forward(self, x):
        x = self.pool(self.norm(self.first(x)).relu())
        x = self.norm(x + self.depth(self.norm(self.same(x) * 2 + 1)))
        x = nn.functional.pad(self.group(x), (1, 0, 0, 1))
        x = self.layer(self.line(x.flatten(2)).mean(-1))
        return self.last(self.drop(nn.functional.gelu(x)))


class Heads(nn.Module):
    """nn.MultiheadAttention as it is called by default, with a class token, and a reshape of the
    batch by its size."""

    def __init__(self):
        super().__init__()
        self.cls = nn.Parameter(torch.randn(1, 1, 16))
        self.cut, self.last = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 5)
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        y = self.attend(x, x, x)[0].reshape(x.shape[0] * x.shape[1], 16)
        return self.last(y.view(x.shape)).mean(1)


class Written(nn.Module):
    """Formulas that are one operator here: RMS norms, with weights of two kinds, gelus, silu"""

    def __init__(self):
        super().__init__()
        self.weight = nn.ParameterList(nn.Parameter(torch.randn(6)) for _ in range(3))
        self.last = nn.Linear(6 * 18, 5)

    def forward(self, x):
        x = x.flatten(1, 2)
        for i, w in enumerate(self.weight):
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)
            x = (w * x, x * (1.0 + w), x)[i]
            x = (0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3.0))),
                 x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), x * torch.sigmoid(x))[i]
        return self.last(x.flatten(1))


class Rows(nn.Module):
    """A mask that is computed for each sample, as transformers' models compute theirs."""

    def __init__(self):
        super().__init__()
        self.cut, self.last = nn.Linear(12, 48), nn.Linear(16, 5)

    def forward(self, x):
        n, t = x.shape[0], 4
        q, k, v = self.cut(x[:, 0, :, :].flatten(1)[:, :12 * 4].unflatten(1, (4, 12))).chunk(3, -1)
        sample, place = torch.arange(n)[:, None, None, None], torch.arange(t)
        rows = place.unsqueeze(0).expand(n, -1)
        mask = rows[sample, place[None, None, None, :]] <= rows[sample, place[None, None, :, None]]
        heads = (y.unflatten(-1, (4, 4)).transpose(1, 2) for y in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.last(y.transpose(1, 2).flatten(2)).mean(1)


class Recurrent(nn.Module):
    """Recurrent layers: both directions, steps in either order, with and without bias, states that
    are zero, learned, or another layer's, and last states that are read."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.gru, self.first = nn.GRU(10, 4, bias=False), nn.Parameter(torch.randn(1, 1, 4))
        self.tanh, self.relu = nn.RNN(4, 4), nn.RNN(4, 3, nonlinearity="relu", bidirectional=True)
        self.last = nn.LSTM(6, 2)

    def forward(self, x):
        x, (h, c) = self.lstm(x.flatten(1, 2))
        x, g = self.gru(x.transpose(0, 1), self.first.expand(1, x.shape[0], 4))
        x, _ = self.tanh(x, g)
        x, r = self.relu(x)
        x, (_, last) = self.last(x)
        last = torch.cat([h, c], 2).transpose(0, 1).flatten(1), r[1], last[0]
        return torch.cat([x.transpose(0, 1).flatten(1), *last], 1)


class Constants(nn.Module):
    """Masks and positions from arange, and constants that operators in place change."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(18, 24), nn.Linear(8, 5)
        self.position, self.table = nn.Embedding(9, 8), nn.Parameter(torch.randn(7, 8))
        self.register_buffer("near", torch.tensor([-1, 0, 3, -7, 2, -2]))
        self.register_buffer("level", torch.tensor([2.7, -1.9, 0.3, -0.2, 1.5, -2.5, 3.0, 0.9]))
        self.register_buffer("bits", torch.arange(8))

    def attend(self, x):
        at = torch.arange(6)
        causal = at[None, :] <= at[:, None]
        near = causal & (at[None, :] > at[:, None] - 3)
        q, k, v = self.first(x).view(x.shape[0], 6, 2, 12).transpose(1, 2).chunk(3, -1)
        masks = (causal.expand(x.shape[0], 1, 6, 6), near.expand(x.shape[0], 1, 6, 6),
                 torch.where(near, 0.0, -3.0), torch.ones(6, 6, dtype=torch.bool))
        y = sum(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m) for m in masks)
        return y.transpose(1, 2).flatten(2) + self.position(at.expand(x.shape[0], 6))

    def forward(self, x):
        y = self.attend(x.permute(0, 2, 1, 3).flatten(2))
        y = y + self.table[self.near] + self.table[:6, self.near[:1]]
        keep = torch.ones(8)
        other, part = keep.clone(), keep[2:5]
        part.zero_()
        other.fill_(3.0)
        y = y * keep + other * torch.tensor(0.5)
        y = (y * (self.bits & (self.bits + 1)) + self.level.to(torch.int64)).tanh() * 2
        flags = (y > 0) + (y < -0.5)
        y[:, 1:3].zero_()
        return self.last(y * flags).flatten(1)


class Networks(unittest.TestCase):
    def ours(self, d, names):
        path = next(f"{d}/{name}" for name in sorted(os.listdir(d)) if name.startswith("network"))
        run = subprocess.run([os.environ["RUN_NETWORK"], path, d, str(BATCH)],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual({name for name in os.listdir(d) if name.endswith(".grad")},
                         {name for name in names if name.endswith(".grad")})
        return {k: torch.from_numpy(np.fromfile(f"{d}/{k}", dtype=np.float32)).double()
                for k in names}

    def export(self, m, size, d, form):
        """form: text, or a file with a symbolic batch (dim), or decomposed"""
        x = torch.randn(2, 3, size, size)
        shapes = ({0: torch.export.Dim("batch")},) if form == "dim" else None
        program = torch.export.export(m, (x,), dynamic_shapes=shapes, strict=False)
        if form == "text":
            with open(f"{d}/network", "w", encoding="utf-8") as f:
                f.write(torch_text.text(program))
            return
        torch.export.save(program.run_decompositions() if form == "decomposed" else program,
                          f"{d}/network.pt2")

    def compare(self, m, size, form="text"):
        for part in m.modules():
            if isinstance(part, (nn.Dropout, StochasticDepth)):
                part.p = 0.0
        m.train()
        x = torch.randn(BATCH, 3, size, size)
        with tempfile.TemporaryDirectory() as d:
            self.export(m, size, d, form)
            state = {k: v.clone() for k, v in m.state_dict().items()}
            target = torch.randn(BATCH, m(x).shape[1])
            for name, value in {**state, "target": target,
                                "input.0": x.permute(0, 2, 3, 1)}.items():
                value.float().contiguous().numpy().tofile(f"{d}/{name}")
            single = pytorch(m, x, target, state, torch.float32)
            double = pytorch(m, x, target, state, torch.float64)
            ours = self.ours(d, double)
        largest = max(v.abs().max().item() for k, v in double.items() if k.endswith(".grad"))
        for k, want in double.items():
            unit = max(want.abs().max().item(), 1e-3 * largest)
            error = (ours[k].reshape(want.shape) - want).abs().max().item() / unit
            theirs = (single[k] - want).abs().max().item() / unit
            self.assertLessEqual(error, max(2 * theirs, 1e-4), k)

    def refuse(self, forward, why):
        class Bad(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm2d(3)

            def forward(self, x):
                return forward(self.norm, x)

        with tempfile.TemporaryDirectory() as d:
            self.export(Bad().train(), 4, d, "dim")
            run = subprocess.run([os.environ["RUN_NETWORK"], "--check", f"{d}/network.pt2"],
                                 capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(why, run.stderr)

    def test_refused(self):
        self.refuse(lambda norm, x: norm(x) / x.shape[0], "its other is a size that the export")
        self.refuse(lambda norm, x: norm(x) * torch.rand(x.shape[0]).sum(), "random numbers")

    def setUp(self):
        torch.manual_seed(3)
        torch.set_num_threads(1)

    def test_constants(self):
        self.compare(Constants(), 6)

    def test_parts(self):
        self.compare(Parts(), 6)

    def test_letters(self):
        self.compare(Letters(), 6, "file")

    def test_written(self):
        self.compare(Written(), 6)

    def test_resnet(self):
        self.compare(resnet18(num_classes=10), 64)

    def test_without_gradient(self):
        self.compare(Cut(), 8, "file")

    def test_decomposed(self):
        self.compare(Twice(), 32, "decomposed")

    def test_twice(self):
        self.compare(Twice(), 32, "dim")

    def test_heads(self):
        for form in ("dim", "text", "decomposed"):
            with self.subTest(form):
                self.compare(Heads(), 8, form)

    def test_recurrent(self):
        self.compare(Recurrent(), 6)
        self.compare(Recurrent(), 6, "dim")

    def test_rows(self):
        for form in ("dim", "file"):
            with self.subTest(form):
                self.compare(Rows(), 8, form)

    def test_swin_decomposed(self):
        self.compare(SwinTransformer(*SWIN, num_classes=10), 64, "decomposed")

    def test_vit_dim(self):
        self.compare(VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), 32, "dim")

    def test_vit_decomposed(self):
        self.compare(VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), 32, "decomposed")

    def test_squeezenet(self):
        self.compare(squeezenet1_1(num_classes=10), 64)

    def test_vit(self):
        self.compare(VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), 32)

    def test_swin(self):
        self.compare(SwinTransformer(*SWIN, num_classes=10), 64)

    def test_swin_v2(self):
        self.compare(SwinTransformer(*SWIN, num_classes=10, block=SwinTransformerBlockV2,
                                     downsample_layer=PatchMergingV2), 64)

    def test_maxvit(self):
        self.compare(MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 4, 0.0, num_classes=10), 32)


if __name__ == "__main__":
    unittest.main()

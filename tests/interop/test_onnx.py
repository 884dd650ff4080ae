"""Test that networks which PyTorch exported to ONNX have its outputs, gradients and running
statistics, with a fixed and an open batch, by either of its exporters.  The program in
$RUN_NETWORK (tests/import/run_network.c) runs a training step at another batch than that of the
export.  Needs torch, onnx and onnxscript, and is skipped (77) without them.
"""
import logging
import os
import subprocess
import tempfile
import unittest
import warnings

import find_torch

find_torch.need("torch", "numpy", "onnx", "onnxscript")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
BATCH = 3


class Small(nn.Module):
    """Convolutions, batch norms of two momenta, a dropout of nothing, pools"""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.same, self.wide = nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8, momentum=0.3)
        self.group, self.drop = nn.Conv2d(8, 8, 3, padding="same", groups=2), nn.Dropout(0.0)
        self.last = nn.Linear(8 * 2 * 2, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.wide(self.same(x)))
        x = F.max_pool2d(x + F.hardswish(self.group(x)), 3, 2, 1) * F.leaky_relu(x[:, :, ::2, ::2])
        return self.last(self.drop(F.avg_pool2d(x, 1).flatten(1)))


class Words(nn.Module):
    """A transformer: tables, norms, causal attention by its function and by hand, a buffer"""

    def __init__(self, width=16, length=6):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.places = nn.Parameter(torch.randn(1, length, width))
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1))
        self.norm, self.qkv, self.out = (nn.LayerNorm(width), nn.Linear(width, 3 * width),
                                         nn.Linear(width, width))
        self.scale, self.up, self.down = (nn.Parameter(torch.tensor(1.5)), nn.Linear(width, 32),
                                          nn.Linear(32, width))
        self.last = nn.Linear(width, 20, bias=False)

    def forward(self, ids):
        n, t = ids.shape
        x = self.table(ids) + self.places
        q, k, v = (y.view(n, t, 2, 8).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 16))
        y = ((q @ k.transpose(-1, -2)) / 8 ** 0.5 + self.mask).softmax(-1) @ v
        x = x + y.transpose(1, 2).reshape(n, t, 16) * self.scale
        return self.last(x + self.down(F.gelu(self.up(x))))


class Grown(nn.Module):
    """Transposed convolutions, sizes that grow, copied borders, one-hot places, group norms"""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.up, self.back = (nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2),
                              nn.ConvTranspose2d(6, 4, 4, 2, 1, bias=False))
        self.last = nn.Linear(4, 5)

    def forward(self, x):
        x = self.up(F.relu(self.norm(self.first(F.pad(x, (1, 1, 1, 1), mode="reflect")))))
        x = self.back(F.interpolate(x, scale_factor=2, mode="nearest"))
        x = F.interpolate(x, size=(9, 11), mode="bilinear")
        x = F.interpolate(x, scale_factor=0.5, mode="bicubic")
        return self.last(x.mean((2, 3)))


class Lines(nn.Module):
    """Recurrent layers in either direction, products by letters, remainders"""

    def __init__(self, width=8):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.lstm = nn.LSTM(width, 6, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(12, 5, batch_first=True), nn.RNN(5, 4, batch_first=True)
        self.mix = nn.Parameter(torch.randn(4, 7))

    def forward(self, ids):
        x, _ = self.lstm(self.table(ids))
        x, last = self.gru(x)
        x, _ = self.rnn(x + last.transpose(0, 1))
        x = torch.einsum("ntc,cd->ndt", x, self.mix)
        return (x + torch.round(x * 3) + torch.remainder(x, 0.7)).flatten(1)


class Fewer(Lines):
    """Without the kind that PyTorch's newer exporter unrolls"""

    def __init__(self):
        super().__init__()
        del self.rnn

    def forward(self, ids):
        x, (last, _) = self.lstm(self.table(ids))
        x, _ = self.gru(x + last.transpose(0, 1).reshape(len(ids), 1, 12))
        x = torch.einsum("ntc,cd->ndt", x[..., :4], self.mix * torch.tensor(1.5))
        return (x + torch.round(x * 3) + torch.remainder(x, 0.7)).flatten(1)


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)
        self.down = None
        if n_in != n_out:
            self.down = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False),
                                      nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.down(x) if self.down else x))


class Residual(nn.Sequential):
    """The form of ResNet-18"""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def randomise(network):
    """No two tensors are equal: the exporter's optimiser merges those."""
    torch.manual_seed(1)
    for name, t in network.state_dict().items():
        if t.is_floating_point() and t.abs().max() < 1e3:
            t.add_(torch.rand_like(t) * 0.2)
    return network.train()


def pytorch(network, x, target, dtype):
    m = network.to(dtype)
    m.zero_grad()
    state = {k: v.clone() for k, v in m.state_dict().items()}
    y = m(x.to(dtype) if x.is_floating_point() else x)
    y = y.reshape(BATCH, -1)
    (((y - target.to(dtype)) ** 2).mean(1).sum() / BATCH).backward()
    out = {"output.0": y, **{f"{k}.grad": p.grad for k, p in m.named_parameters()}}
    out |= {f"{k}.next": v.clone() for k, v in m.state_dict().items() if "running" in k}
    m.load_state_dict(state)
    return {k: v.detach().double() for k, v in out.items()}


def images(n):
    return torch.randn(n, 3, 8, 8)


def tokens(n):
    return torch.randint(0, 20, (n, 6))


def export(network, x, path, is_new=True, is_open=False, **more):
    if is_new:
        more.setdefault("optimize", False)
        more |= {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if is_open else {}
    else:
        more |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        more |= {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}} if is_open else {}
    # pylint: disable-next=unexpected-keyword-arg
    torch.onnx.export(network, (x,), path, dynamo=is_new, verbose=False, **more)


class Equal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "net.onnx")

    def run_network(self, *args):
        return subprocess.run([os.environ["RUN_NETWORK"], *args], check=False, text=True,
                              capture_output=True)

    def check(self, network, make, is_named=True, **how):
        self.setUp()  # a folder without the files of another network
        randomise(network)
        export(network, make(4), self.path, **how)
        done = self.run_network("--check", self.path)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        for t in onnx.load(self.path).graph.initializer:
            onnx.numpy_helper.to_array(t).tofile(os.path.join(self.folder, t.name))
        x = make(BATCH)
        state = {k: v.clone() for k, v in network.state_dict().items()}
        target = torch.randn(network(x).reshape(BATCH, -1).shape)
        network.load_state_dict(state)
        self.compare(network, x, target, is_named)

    def compare(self, network, x, target, is_named):
        image = x.dim() == 4
        given = x.permute(0, 2, 3, 1) if image else x.int()
        given.contiguous().numpy().tofile(os.path.join(self.folder, "input.0"))
        target.numpy().tofile(os.path.join(self.folder, "target"))
        done = self.run_network(self.path, self.folder, str(BATCH))
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        exact = pytorch(network, x, target, torch.float64)
        single = pytorch(network.float(), x, target, torch.float32)
        n = 0
        for name, want in exact.items():
            path = os.path.join(self.folder, name)
            if not os.path.exists(path):
                self.assertFalse(is_named, name)
                continue
            got = np.fromfile(path, "f4").reshape(want.shape)
            off = np.abs(got - want.numpy()).max()
            room = max(2 * (single[name] - want).abs().max().item(),
                       1e-4 * max(want.abs().max().item(), 1e-3))
            self.assertLessEqual(off, room, name)
            n += 1
        self.assertGreater(n, 0)

    def test_networks(self):
        old = {"is_new": False, "is_open": True}
        for network, make, how in ((Small, images, {"opset_version": 18}), (Residual, images, old),
                                   (Small, images, {"is_open": True}), (Words, tokens, old),
                                   (Words, tokens, {"is_open": True, "opset_version": 23}),
                                   (Grown, images, old), (Grown, images, {"is_open": True}),
                                   (Lines, tokens, old | {"is_named": False}),
                                   (Fewer, tokens, {"is_open": True, "is_named": False})):
            with self.subTest(network.__name__, **how):
                self.check(network(), make, **how)

    def test_optimised(self):
        for network, make in ((Words, tokens), (Grown, images), (Fewer, tokens)):
            with self.subTest(network.__name__):
                self.check(network(), make, is_named=False, optimize=True)

    def test_folded(self):
        export(Small().train(), images(4), self.path, optimize=True)
        done = self.run_network("--check", self.path)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("were folded into other layers by the exporter", done.stderr)
        self.assertIn("optimize=False", done.stderr)


if __name__ == "__main__":
    unittest.main()

"""test_torch_writes - networks that write into parts of tensors have PyTorch's outputs and
gradients, as test_torch.py compares them, in each form that an export has."""
import unittest

import test_torch  # first: it may choose another Python
import test_torch_parts
import torch
from torch import nn


class Parts(nn.Module):
    """Slices, steps, rows and parts of parts, of values and of zeros, once and again"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        x = self.first(x)
        y = torch.zeros_like(x)
        y[:, :2], y[:, 2:4] = x[:, 2:4], x[:, :2] * 2
        y[:, 4:] = x[:, 4:]
        x[:, 0] = 1.0
        x[:, 1:3] *= 2
        x[:, :, 2:4, 1] += x[:, :, 0:2, 2]
        x[..., ::2] = x[..., 1::2].exp()
        x[:, -1, 3:, 5:].sub_(0.5)
        return self.last((x * y).mean((2, 3)))


class Views(nn.Module):
    """Writes through other shapes and orders, and views that were made before what changes them"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = self.first(x.reshape(x.shape[0], 8, 24))
        box, turned, line = x.view(-1, 8, 4, 6), x.transpose(1, 2), x.unsqueeze(1)
        box[:, :, 1].mul_(0.3)
        turned[:, 2:4] = turned[:, 6:8].tanh()
        line.squeeze(1).unflatten(1, (2, 4))[:, 1, :, -3:].add_(1)
        first = box[:, :, 0]
        box.select(2, -1).permute(0, 2, 1)[:, 1] += first[:, :, 2]
        x[:, 3, 10:] = x[:, 2, :1]
        x.clamp_(max=0.9)
        x[..., 2:5].neg_()
        x[:, 2, :6] += first[:, 0]
        return self.last(x + line.squeeze(1) * 0.1).mean(1) + box.sum((1, 2))[:, :5]


class Turned(nn.Module):
    """Rotary positions and shifts in time that are written into an empty tensor"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = self.first(x.reshape(x.shape[0], 8, 24))
        y, angle = torch.empty_like(x), torch.arange(8).to(x.dtype)[:, None] * 0.1
        y[..., 0::2] = x[..., 0::2] * angle.cos() - x[..., 1::2] * angle.sin()
        y[..., 1::2] = x[..., 1::2] * angle.cos() + x[..., 0::2] * angle.sin()
        z = x.new_zeros(x.shape)
        z[:, :-1, :8] = y[:, 1:, :8]
        z[:, 1:, 8:16] = y[:, :-1, 8:16]
        z[:, :, 16:] = y[:, :, 16:]
        return self.last(z).tanh().mean(1)


class Places(nn.Module):
    """Writes by a list of places and by masks"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 5)
        self.register_buffer("at", torch.tensor([3, 1, -2]))

    def forward(self, x):
        x = self.first(x.reshape(x.shape[0], 8, 24))
        y = x.clone()
        y[:, self.at] = x[:, :3] * 2
        y[:, :, [0, 5]] = 0.25
        y[:, [2, 4]] = x[:, 5:7].cos()
        y[y < -0.2] = 0.5
        y[x.mean(2) > 0] = -1.0
        return self.last(y * x).mean(1)


class Writes(unittest.TestCase):
    def compare(self, make):
        for form in test_torch_parts.FORMS:
            with self.subTest(form):
                torch.manual_seed(3)
                torch.set_num_threads(1)
                test_torch.Networks().compare(make(), 8, form)

    def test_parts(self):
        self.compare(Parts)

    def test_views(self):
        self.compare(Views)

    def test_turned(self):
        self.compare(Turned)

    def test_places(self):
        self.compare(Places)


if __name__ == "__main__":
    unittest.main()

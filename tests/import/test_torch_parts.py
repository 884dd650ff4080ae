"""test_torch_parts - networks of operators that are several of ours have PyTorch's outputs and
gradients, as test_torch.py compares them, in each form that an export has."""
import unittest

import test_torch  # first: it may choose another Python
import torch
from torch import nn
from torch.nn import functional as F

FORMS = ("file", "dim", "decomposed")


class Generator(nn.Module):
    """Transposed convolutions of images and of lines, with groups, gaps, and padding of each kind.
    The second one takes rows away, where its padding is longer than the window reaches."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 8, 4, 2, 1)
        self.odd = nn.ConvTranspose2d(8, 4, (3, 1), (2, 3), (1, 2), (1, 0), groups=4, bias=False)
        self.wide = nn.ConvTranspose2d(4, 6, 3, 1, 2, dilation=2, groups=2)
        self.line = nn.ConvTranspose1d(6, 4, 3, 2, padding=1, output_padding=1)

    def forward(self, x):
        x = self.wide(torch.tanh(self.odd(torch.tanh(self.up(x)))))
        return self.line(torch.tanh(x.mean(2))).flatten(1)


class Shuffles(nn.Module):
    """Elements between channels and places, copies, and the norm of single channels."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm, self.last = nn.InstanceNorm2d(4, affine=True), nn.Conv2d(64, 2, 1)
        self.query, self.mean = nn.Parameter(torch.randn(1, 2, 3)), nn.InstanceNorm1d(6)

    def forward(self, x):
        y = self.norm(F.pixel_shuffle(F.channel_shuffle(self.first(x), 4), 2))
        y = self.last(F.pixel_unshuffle(y, 4))
        q = self.query.repeat(x.shape[0], 3, 1)
        q = (q * self.mean(x[:, 0, :6, :6].repeat(1, 1, 2))[:, :, 3:6]).tile(2)
        return torch.cat((y.flatten(1), q.flatten(1)), 1)


class Formulas(nn.Module):
    """Variances, weights that are normed, PReLU, the largest elements, and arithmetic of three
    tensors."""

    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
        self.slope, self.one = nn.PReLU(8, 0.1), nn.PReLU()
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(8, 5), dim=1)
        self.standard = nn.Conv2d(8, 8, 1)

    def spread(self, x):
        var, mean = torch.var_mean(x, (2, 3), keepdim=True)
        std, middle = torch.std_mean(x, (1, 2), correction=0)
        x = (x - mean) * torch.rsqrt(var + 0.1)
        return x + (std * middle)[:, None, None] + x.flatten(2).std(2)[..., None, None]

    def standardize(self, x):
        weight = self.standard.weight
        weight = F.batch_norm(weight.reshape(1, 8, -1), None, None, training=True, momentum=0.0,
                              eps=1e-2).reshape_as(weight)
        return F.conv2d(x, weight, self.standard.bias)

    def forward(self, x):
        x = self.one(self.spread(self.standardize(self.slope(self.conv(x))))) + x[:, :1, 1:-1, 1:-1]
        most, least = x.max(2)[0], x.min(3, keepdim=True).values[..., 0]
        y = torch.addcmul(most, most, least, value=0.5)
        y = torch.addcdiv(y, least, most.exp(), value=-0.5).lerp(least, 0.3)
        y = torch.lerp(y, most, torch.sigmoid(least)) + (most - least).relu().max(2, True)[0]
        return self.last(F.glu(torch.cat((y.var(2), y.mean(2)), 1), 1))


class Paths(nn.Module):
    """Sums of products of one, three and four operands, diagonals of two and of three dimensions"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(8, 5)), nn.Parameter(torch.randn(8, 8, 8))

    def forward(self, x):
        y = torch.einsum("nchw,wk,hk->nk", x, self.a, self.a) / 8
        y = y + torch.einsum("ncii->in", x).t()[:, :5] + torch.einsum("nchw->nwh", x)[:, 1, 2:7]
        z = torch.einsum("iii,iji,nj,n...->ni", self.b, self.b, x[:, 1, 2], x[:, 0])
        return torch.cat((y, z), 1)


class Names(nn.Module):
    """Operators under their second names, orders of dimensions, triangles, and activations"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(6, 5)

    def orders(self, x):
        y = torch.moveaxis(x, 1, 3).movedim((1, 3), (2, 1)).swapdims(-1, -2)
        y = torch.concatenate((y.flip((2, -1)), torch.broadcast_to(x[:, :1], x.shape)), 1)
        y = y.narrow(1, -4, 3).mT.repeat_interleave(2, dim=1) - x[:, :6]
        return y.tril(1) + y.triu(-2) * torch.greater_equal(y, 0.1)

    def activations(self, x):
        y = F.selu(x) + F.celu(x, 1.3) + F.softshrink(x, 0.2) + F.hardshrink(x, 0.3)
        y = torch.multiply(y, F.threshold(x, 0.1, 0.3)) + torch.divide(F.logsigmoid(x), 2)
        y = torch.subtract(y, torch.clip(x, -0.4, 0.4)) + torch.log2(torch.absolute(x) + 1)
        y = torch.clamp(y, min=x.mean((2, 3), keepdim=True) - 1, max=x.abs() + 2)
        y = torch.max(y, torch.negative(x)) + 3 ** x + torch.exp2(x).log10()
        return y + F.cosine_similarity(x[:, :4], y[:, 4:], dim=1, eps=1e-2)[:, None]

    def forward(self, x):
        x = self.activations(torch.tanh(self.first(x)))
        return self.last(self.orders(x).mean(1)).flatten(1)


class Windows(nn.Module):
    """Windows of images and of dimensions; images that grow and shrink by cubic curves"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 1), nn.Linear(4, 5)
        self.place = nn.Parameter(torch.randn(1, 4, 3, 3))
        self.rows = nn.Linear(27, 4)

    def forward(self, x):
        y = self.rows(F.unfold(x, 3, padding=1, stride=(2, 1), dilation=1).transpose(1, 2))
        part = x.unfold(2, 4, 3).unfold(1, 2, 1)  # [N,2,2,8,4,2]
        y = y.mean(1) + part.tanh().sum((1, 2, 5)).amax(1)
        x = self.first(x) + F.interpolate(self.place, (8, 8), mode="bicubic")
        x = x + F.interpolate(self.place, (8, 8), mode="bicubic", antialias=True)
        z = F.interpolate(x, scale_factor=0.6, mode="bicubic", align_corners=True).amax((2, 3))
        z = z + F.interpolate(x, (3, 11), mode="bilinear", antialias=True).amax((2, 3))
        z = z + F.interpolate(x, (5, 3), mode="bicubic", antialias=True).amax((2, 3))
        return self.last(y + z)


class Lines(nn.Module):
    """Pools of lines, and lines of other lengths"""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(3, 6, 3), nn.Conv1d(6, 2, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x.flatten(2)))
        y = F.avg_pool1d(x, 4, 3, 1, ceil_mode=True, count_include_pad=False)
        z = F.interpolate(F.max_pool1d(x, 3, 2, 1, dilation=2), size=y.shape[2], mode="linear")
        y = y * z + F.adaptive_max_pool1d(x, y.shape[2])
        y = F.interpolate(F.interpolate(y, scale_factor=2.0), size=15, mode="nearest-exact")
        y = F.interpolate(y, size=9, mode="linear", align_corners=True)
        return self.last(y).flatten(1)


class Parts(unittest.TestCase):
    def compare(self, make, size, forms=FORMS):
        for form in forms:
            with self.subTest(form):
                torch.manual_seed(3)
                torch.set_num_threads(1)
                test_torch.Networks().compare(make(), size, form)

    def test_names(self):
        self.compare(Names, 8)

    def test_windows(self):
        self.compare(Windows, 8, ("file", "dim"))

    def test_lines(self):
        self.compare(Lines, 8)

    def test_paths(self):
        self.compare(Paths, 8)

    def test_generator(self):
        self.compare(Generator, 6)

    def test_shuffles(self):
        self.compare(Shuffles, 8)

    def test_formulas(self):
        self.compare(Formulas, 8)


if __name__ == "__main__":
    unittest.main()

"""test_torch_choices - networks that choose elements, put them elsewhere, and step through cells
have PyTorch's outputs and gradients, as test_torch.py compares them, in each form of an export."""
import math
import unittest

import test_torch  # first: it may choose another Python
import test_torch_parts
import torch
from torch import nn
from torch.nn import functional as F


def rows(x):
    return x.reshape(x.shape[0], 8, 24)


class Experts(nn.Module):
    """Mixtures of experts: the two best by topk, their gates put among -infinity, and one_hot"""

    def __init__(self):
        super().__init__()
        self.gate, self.once = nn.Linear(24, 6), nn.Linear(24, 6)
        self.expert = nn.ModuleList(nn.Linear(24, 5) for _ in range(6))

    def forward(self, x):
        x = rows(x).mean(1)
        weight, chosen = torch.topk(self.gate(x), 2)
        every = torch.stack([e(x) for e in self.expert], 1)
        y = (every.gather(1, chosen[..., None].expand(-1, -1, 5)) * weight[..., None]).sum(1)
        share = torch.full_like(weight[:, :1].expand(-1, 6), -math.inf).scatter(-1, chosen, weight)
        keep = torch.zeros_like(share).scatter_(1, chosen, 1.0).scatter_add(1, chosen, weight)
        y = y + ((share.softmax(-1) + keep)[..., None] * every).sum(1)
        value, best = self.once(x).softmax(-1).max(-1)
        hot = F.one_hot(best, 6).to(x.dtype)
        return y + torch.einsum("ne,neo->no", hot * value[:, None], every)


class Nearest(nn.Module):
    """The nearest row of a codebook, straight through; the four nearest points of each point"""

    def __init__(self):
        super().__init__()
        self.enter, self.book = nn.Conv2d(3, 4, 2, 2), nn.Embedding(7, 4)
        self.edge, self.last = nn.Conv2d(6, 8, 1), nn.Linear(4, 5)
        self.ends = nn.Linear(8, 5)

    def points(self, x):
        x = x.flatten(2)[:, :, :16]
        square = (x ** 2).sum(1, keepdim=True)
        apart = 2 * torch.matmul(x.transpose(2, 1), x) - square - square.transpose(2, 1)
        near = apart.topk(4, -1)[1].unsqueeze(-1).expand(-1, 16, 4, 3)
        x = x.transpose(1, 2)
        others = torch.gather(x.unsqueeze(1).expand(-1, 16, 16, 3), 2, near)
        x = x.unsqueeze(2).expand(-1, 16, 4, 3)
        y = self.edge(torch.cat((others - x, x), 3).permute(0, 3, 1, 2))
        return self.ends(F.leaky_relu(y, 0.2).max(-1)[0].mean(-1))

    def forward(self, x):
        z = self.enter(x).permute(0, 2, 3, 1)
        flat, book = z.reshape(-1, 4), self.book.weight
        apart = (flat ** 2).sum(1, keepdim=True) + (book ** 2).sum(1) - 2 * flat @ book.t()
        q = self.book(torch.argmin(apart, 1)).view(z.shape)
        return self.last((z + (q - z).detach() + q).mean((1, 2))) + self.points(x)


class Orders(nn.Module):
    """Sorts in both directions, places as numbers, and places along other dimensions"""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(12, 5)

    def forward(self, x):
        x = x.flatten(1)[:, :12]
        most, at = x.sort(-1, descending=True)
        y = most * x.sort(1).values + at * 0.2 + x.argsort(1).float() * 0.1
        box = x.view(-1, 3, 4)
        largest, where = box.max(2, keepdim=True)
        least, low = box.min(1)
        y = y * torch.gather(box * 2, 2, where).mean(1) + largest.mean(1) + low.sum(1)[:, None]
        y = y + box.argmax(1).float().mean(1, keepdim=True) + least.mean(1, keepdim=True)
        y = torch.where(torch.isnan(y) | torch.isinf(y), 0.0, y) * torch.isfinite(y)
        return self.last(torch.nan_to_num(y / (y > -1e9), nan=1.0, posinf=2.0))


class Ends(nn.Module):
    """The token at the end of each text, by its length, by the largest number, and by gather"""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(11, 6), nn.Linear(6, 5)

    def forward(self, x):
        tokens = ((x.flatten(1)[:, :7] * 3).abs() % 11).long()
        h = self.table(tokens)
        end = ((tokens != 0).sum(1) - 1).clamp(min=0)
        every = torch.arange(tokens.shape[0])
        y = h[every, end] + h[every, tokens.argmax(-1)] * 2
        return self.last(y + h.gather(1, end.view(-1, 1, 1).expand(-1, 1, 6)).squeeze(1))


class Cells(nn.Module):
    """Recurrent layers step by step, with states that begin at zero"""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(24, 6), nn.GRUCell(6, 5, bias=False)
        self.tanh, self.relu = nn.RNNCell(5, 5), nn.RNNCell(5, 5, nonlinearity="relu")

    def forward(self, x):
        x = rows(x)
        h, c = x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6)
        g = torch.zeros_like(h[:, :5])
        t = torch.empty_like(g).zero_()
        for i in range(4):
            h, c = self.lstm(x[:, i], (h, c))
            g = self.gru(h, g)
            t = self.relu(self.tanh(g, t), t)
        return t + g


class Products(nn.Module):
    """Products with factors, of vectors, and bilinear ones; positions of two dimensions"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(6))
        self.w, self.c = nn.Parameter(torch.randn(24, 5)), nn.Parameter(torch.randn(5))
        self.both, self.cut = nn.Bilinear(6, 4, 5), nn.Conv2d(3, 8, 2, 2)
        self.last = nn.Linear(8, 5)

    def places(self, x):
        x = self.cut(x).permute(0, 2, 3, 1)
        y, z = torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(0, 2, 4), indexing="xy")
        turn = torch.outer(torch.arange(4).float(), torch.tensor([1.0, 0.1]))
        turn = torch.cat((turn[:, None].expand(4, 4, 2), turn[None].expand(4, 4, 2)), -1)
        place = torch.cat((torch.stack((y, z), -1), turn[..., :2].sin(), turn.cos()), -1)
        return self.last((x * place.to(x.dtype)).mean((1, 2)))

    def forward(self, x):
        y, flat, w = rows(x), x.flatten(1), self.w
        z = torch.addmm(self.c, y.mean(1), w, beta=0.5, alpha=2) + self.places(x)
        stack = w.expand(x.shape[0], 24, 5)
        z = z + torch.baddbmm(self.c, y, stack, alpha=0.3).mean(1)
        z = z + torch.baddbmm(y[:, :, :5], y, stack, beta=0, alpha=0.1).mean(1)
        z = z + torch.outer(self.a, self.b).sum() + torch.mv(w.t(), w[:, 0]) + self.a.dot(self.a)
        return z + self.both(flat[:, :6], flat[:, 6:10])


class Choices(unittest.TestCase):
    def compare(self, make, *forms):
        for form in forms or test_torch_parts.FORMS:
            with self.subTest(form):
                torch.manual_seed(3)
                torch.set_num_threads(1)
                test_torch.Networks().compare(make(), 8, form)

    def test_experts(self):
        self.compare(Experts)

    def test_nearest(self):
        self.compare(Nearest, "file", "dim")  # run_decompositions() drops detach

    def test_orders(self):
        self.compare(Orders)

    def test_ends(self):
        self.compare(Ends)

    def test_cells(self):
        self.compare(Cells)

    def test_products(self):
        self.compare(Products, "file", "dim")


if __name__ == "__main__":
    unittest.main()

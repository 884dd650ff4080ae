"""test_torch_losses - networks that compute losses themselves have PyTorch's outputs and gradients,
as test_torch.py compares them.  tests/interop/test_import_losses.py has their means."""
import unittest

import test_torch  # first: it may choose another Python
import torch
from torch import nn
from torch.nn import functional as F


class Apart(nn.Module):
    """Losses of two tensors, both with a gradient"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(24, 5), nn.Linear(24, 5)

    def forward(self, x):
        x = x.reshape(x.shape[0], 8, 24)
        y, t = self.a(x), self.b(x)
        loss = F.mse_loss(y, t, reduction="none") + F.l1_loss(y, t * 2, reduction="none")
        loss = loss + F.smooth_l1_loss(y, t, reduction="none", beta=0.4)
        loss = loss + F.huber_loss(y, t, reduction="none", delta=0.6)
        weight, positive = torch.full((5,), 0.5), torch.tensor([1.0, 2, 0.5, 1, 3])
        loss = loss + F.binary_cross_entropy_with_logits(
            y, t.sigmoid(), weight.to(x.dtype), reduction="none", pos_weight=positive.to(x.dtype))
        log = y.log_softmax(-1)
        loss = loss + F.kl_div(log, t.softmax(-1), reduction="none")
        loss = loss + F.kl_div(log, t.log_softmax(-1), reduction="none", log_target=True)
        return loss.mean(1)


class Classes(nn.Module):
    """Losses of labels, for each place: with weights, smoothing and labels that are ignored"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(24, 5), nn.Linear(24, 5)

    def forward(self, x):
        x = x.reshape(x.shape[0], 8, 24)
        y = self.a(x).transpose(1, 2)
        label = self.b(x).argmax(-1)
        weight = torch.tensor([1.0, 2, 0.5, 1, 3]).to(x.dtype)
        loss = F.cross_entropy(y, label, reduction="none", ignore_index=2)
        loss = loss + F.cross_entropy(y, label, weight, reduction="none", label_smoothing=0.1)
        loss = loss + F.cross_entropy(y, label, reduction="none", ignore_index=1,
                                      label_smoothing=0.2)
        loss = loss + F.nll_loss(y.log_softmax(1), label, weight, reduction="none")
        share = self.b(x).softmax(-1).transpose(1, 2)
        return loss + F.cross_entropy(y, share, weight, reduction="none", label_smoothing=0.3)


class Losses(unittest.TestCase):
    def compare(self, make):
        for form in ("file", "dim"):
            with self.subTest(form):
                torch.manual_seed(3)
                torch.set_num_threads(1)
                test_torch.Networks().compare(make(), 8, form)

    def test_apart(self):
        self.compare(Apart)

    def test_classes(self):
        self.compare(Classes)


if __name__ == "__main__":
    unittest.main()

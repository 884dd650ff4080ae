"""Test of the functions of op/compose.h: results and gradients are those of PyTorch's functions.

It needs a Python with torch (find_torch.py), and is skipped (77) without one.  The program in
$DPCOMPOSED (composed.c) runs ours on the CPU backend.
"""
import os
import subprocess
import unittest

import find_torch

find_torch.need("torch", "numpy")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

RNG = np.random.default_rng(7)


def normal(*shape):
    return ("p", RNG.standard_normal(shape).astype(np.float32))


def const(values):
    return ("c", np.asarray(values, np.float32))


def index(below, *shape):
    return ("i", RNG.integers(0, below, shape).astype(np.int32))


def param(values):
    return ("p", np.asarray(values, np.float32))


def few(*shape):
    """Numbers that are often equal."""
    return ("p", RNG.integers(-2, 3, shape).astype(np.float32))


def image(f):
    """f of an image [N,C,H,W], applied to one [N,H,W,C]."""
    return lambda x: f(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def pad(by, mode, value=0.0):
    """Pads dimension 1 of [N,L,C]."""
    return lambda x: F.pad(x.transpose(1, 2), by, mode, value).transpose(1, 2)


def conv1d(x, w, b):
    return F.conv1d(F.pad(x.transpose(1, 2), (1, 2)), w, b, stride=2, dilation=2,
                    groups=2).transpose(1, 2)


def attend(**args):
    def f(q, k, v, mask=None):
        if mask is not None and args.get("is_bool"):
            mask = mask != 0
        causal = args.get("is_causal", False)
        if causal and mask is not None:
            mask = mask & torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
            causal = False
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal,
                                              scale=args.get("scale"), enable_gqa=True)
    return f


def qkv(H, G, T, S, D, E):
    return [normal(2, H, T, D), normal(2, G, S, D), normal(2, G, S, E)]


def turn_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]


def turn_pairs(x, cos, sin):
    other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos[:, None] + other * sin[:, None]


ANGLES = [const(RNG.standard_normal((3, 8))) for _ in range(2)]
# One row sees nothing, one everything.
HIDES = const([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
ADDS = const([[-1, 0.5, -np.inf, 2, 0], [-np.inf] * 5, [0, 0, 0, 0, 1]])
PIXELS = (2, 7, 7, 3)
KINKS = param(np.arange(-8, 16).reshape(2, 12) / 2)

# Name in composed.c: operands, PyTorch's function.
CASES = {
    "attention": (qkv(4, 4, 5, 5, 8, 8), attend()),
    "attention_causal": (qkv(4, 2, 5, 5, 8, 8), attend(is_causal=True)),
    "attention_scale": (qkv(3, 1, 5, 5, 4, 4), attend(scale=0.3)),
    "attention_bool": (qkv(4, 2, 3, 5, 8, 6) + [HIDES], attend(is_bool=True)),
    "attention_mask": (qkv(4, 4, 3, 5, 8, 8) + [ADDS], attend()),
    "attention_both": (qkv(4, 4, 3, 5, 8, 8) + [HIDES], attend(is_bool=True, is_causal=True)),
    "max_ceil": ([few(2, 6, 8, 3)], image(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True))),
    "max_ceil_pad": ([normal(*PIXELS)],
                     image(lambda x: F.max_pool2d(x, (3, 2), (3, 2), 1, ceil_mode=True))),
    "max_dilated": ([few(*PIXELS)],
                    image(lambda x: F.max_pool2d(x, (2, 3), (1, 2), 1, dilation=2))),
    "max_dilated_ceil": ([normal(2, 8, 8, 3)],
                         image(lambda x: F.max_pool2d(x, (2, 3), (3, 2), 1, dilation=(3, 2),
                                                      ceil_mode=True))),
    "avg_ceil": ([normal(2, 6, 8, 3)],
                 image(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True))),
    "avg_ceil_inside": ([normal(2, 6, 6, 3)],
                        image(lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), True, False))),
    "avg_divisor": ([normal(*PIXELS)],
                    image(lambda x: F.avg_pool2d(x, (3, 2), (2, 1), divisor_override=5))),
    "adaptive_avg": ([normal(2, 7, 8, 3)], image(lambda x: F.adaptive_avg_pool2d(x, (3, 4)))),
    "adaptive_avg_wide": ([normal(2, 7, 5, 3)], image(lambda x: F.adaptive_avg_pool2d(x, (9, 7)))),
    "adaptive_max": ([few(2, 7, 9, 3)], image(lambda x: F.adaptive_max_pool2d(x, (3, 4)))),
    "nearest": ([normal(*PIXELS)], image(lambda x: F.interpolate(x, (9, 4)))),
    "nearest_scale": ([normal(*PIXELS)],
                      image(lambda x: F.interpolate(x, scale_factor=(1.9, 2.2)))),
    "nearest_exact": ([normal(*PIXELS)],
                      image(lambda x: F.interpolate(x, (9, 4), mode="nearest-exact"))),
    "bilinear": ([normal(*PIXELS)], image(lambda x: F.interpolate(x, (9, 4), mode="bilinear"))),
    "bilinear_scale": ([normal(*PIXELS)],
                       image(lambda x: F.interpolate(x, scale_factor=(1.9, 2.2), mode="bilinear"))),
    "bilinear_corners": ([normal(*PIXELS)],
                         image(lambda x: F.interpolate(x, (9, 4), mode="bilinear",
                                                       align_corners=True))),
    "pad_value": ([normal(2, 5, 3)], pad((2, 3), "constant", -1.5)),
    "pad_crop": ([normal(2, 5, 3)], pad((-2, 1), "constant")),
    "pad_reflect": ([normal(2, 5, 3)], pad((2, 3), "reflect")),
    "pad_replicate": ([normal(2, 5, 3)], lambda x: F.pad(x.transpose(1, 2), (2, 8),
                                                         "replicate").transpose(1, 2)),
    "pad_circular": ([normal(2, 5, 3)], pad((2, 3), "circular")),
    "conv1d": ([normal(2, 9, 4), normal(6, 2, 3), normal(6)], conv1d),
    "conv_uneven": ([normal(2, 5, 6, 3), normal(4, 3, 2, 2)],
                    lambda x, w: F.conv2d(F.pad(x.permute(0, 3, 1, 2), (2, 0, 0, 1)), w,
                                          stride=(1, 2)).permute(0, 2, 3, 1)),
    "lookup": ([normal(5, 3, 2), index(5, 2, 4)],
               lambda t, i: F.embedding(i, t.reshape(5, 6), 2).reshape(2, 4, 3, 2)),
    "index_select": ([normal(2, 5, 3), index(5, 7)], lambda x, i: x.index_select(1, i)),
    "gather": ([normal(3, 5, 4), index(5, 2, 6, 3)], lambda x, i: x.gather(1, i)),
    "roll": ([normal(2, 5, 7)], lambda x: x.roll(-3, -1)),
    "cumsum": ([normal(2, 5, 7)], lambda x: x.cumsum(1)),
    "logsumexp": ([normal(2, 5, 7)], lambda x: x.logsumexp(1)),
    "norm": ([param(np.concatenate([np.zeros((2, 3, 1)), RNG.standard_normal((2, 3, 4))], 2))],
             lambda x: torch.linalg.vector_norm(x, 2, 1)),
    "norm_one": ([few(2, 3, 4)], lambda x: torch.linalg.vector_norm(x, 1, 2, keepdim=True)),
    "norm_most": ([few(2, 3, 4)], lambda x: torch.linalg.vector_norm(x, float("inf"), 1)),
    "rms_norm": ([normal(2, 3, 9), normal(9)], lambda x, w: F.rms_norm(x, (9,), w, 1e-5)),
    "einsum": ([normal(2, 3, 4, 5), normal(2, 6, 3, 5)],
               lambda a, b: torch.einsum("bhid,bjhd->bijh", a, b)),
    "einsum_alone": ([normal(3, 4, 5), normal(2, 5)],
                     lambda a, b: torch.einsum("abc,dc->da", a, b)),
    "power": ([few(2, 9)], lambda x: x ** 3),
    "power_half": ([param(RNG.random((2, 9)) + 0.1)], lambda x: x ** 0.5),
    "transpose": ([normal(2, 3, 4)], lambda x: x.transpose(-1, 0)),
    "log_softmax": ([normal(2, 7)], lambda x: x.log_softmax(1)),
    "gelu": ([normal(2, 7)], F.gelu),
    "one_hot": ([normal(2, 3, 5), index(5, 2, 3)], lambda x, i: F.one_hot(i, 5) * x),
    "compare": ([normal(2, 9), index(5, 2, 9)], lambda x, i: (i <= 2) * x),
    "integer": ([normal(2, 9), index(5, 2, 9)], lambda x, i: i.float() * x),
    "hardswish": ([KINKS], F.hardswish),
    "hardsigmoid": ([KINKS], F.hardsigmoid),
    "clip": ([KINKS], lambda x: x.clamp(0, 6)),
    "elu": ([KINKS], lambda x: F.elu(x, 1.5)),
    "selu": ([KINKS], F.selu),
    "leaky": ([KINKS], lambda x: F.leaky_relu(x, 0.1)),
    "softplus": ([KINKS], lambda x: F.softplus(x, 2, 3)),
    "mish": ([KINKS], F.mish),
    "round": ([KINKS], lambda x: x + torch.round(x)),
    "sign": ([KINKS], lambda x: x + torch.sign(x)),
    "gate": ([KINKS, few(2, 12)], lambda a, b: F.silu(a) * b),
    "rotary": ([normal(2, 3, 2, 8), *ANGLES], turn_halves),
    "rotary_pairs": ([normal(2, 3, 2, 8), *ANGLES], turn_pairs),
    "remainder": ([KINKS, param(np.resize([1, -1.5, 2, -0.5, 3], (2, 12)))], torch.remainder),
}

SHARES = const(RNG.random((6, 3)))
DIVIDED = const(np.array([[0.2, 0, 0.8]] * 6))
THREE = torch.tensor([0.5, 2, 1.5])


def row(loss):
    return lambda x, t: loss(x, t).mean(1, keepdim=True)


def focal(x, label):
    loss = F.cross_entropy(x, label, reduction="none")
    return (loss * (1 - torch.exp(-loss)) ** 2)[:, None]


CASES |= {
    "cross_entropy": ([normal(6, 3), index(3, 6)],
                      lambda x, i: F.cross_entropy(x, i, THREE, reduction="none",
                                                   label_smoothing=0.1)[:, None]),
    "focal": ([normal(6, 3), index(3, 6)], focal),
    "kl": ([normal(6, 3), DIVIDED],
           lambda x, t: F.kl_div(x.log_softmax(1), t, reduction="none").sum(1, keepdim=True)),
    "huber": ([normal(6, 3), SHARES],
              row(lambda x, t: F.huber_loss(x, t, reduction="none", delta=0.7))),
    "l1": ([normal(6, 3), SHARES], row(lambda x, t: F.l1_loss(x, t, reduction="none"))),
    "mse": ([normal(6, 3), SHARES], row(lambda x, t: F.mse_loss(x, t, reduction="none"))),
    "bce": ([normal(6, 3), SHARES],
            row(lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none",
                                                                pos_weight=THREE))),
}

# Older versions of PyTorch pass the gradient on at the bounds.
NEWER = {"clip": (2, 15)}


def ours(name, operands):
    args = [kind + ",".join(map(str, x.shape)) for kind, x in operands]
    run = subprocess.run([os.environ["DPCOMPOSED"], name, *args], check=False,
                         input=b"".join(x.tobytes() for _, x in operands), capture_output=True)
    if run.returncode:
        raise AssertionError(run.stderr.decode())
    return np.frombuffer(run.stdout, np.float32)


def theirs(f, operands):
    tensors = [torch.tensor(x, requires_grad=kind == "p") if kind != "i" else torch.tensor(x).long()
               for kind, x in operands]
    y = f(*tensors)
    t = torch.tensor(np.cos(np.arange(y.numel())).astype(np.float32)).reshape(y.shape)
    ((y - t) ** 2).mean().backward()
    parts = [y.detach()] + [x.grad if x.grad is not None else torch.zeros_like(x)
                            for x in tensors if x.requires_grad]
    return [part.numpy() for part in parts]


class Composed(unittest.TestCase):
    def test_functions(self):
        version = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
        for name, (operands, f) in CASES.items():
            if version < NEWER.get(name, (0, 0)):
                continue
            with self.subTest(name):
                seen, at = ours(name, operands), 0
                for i, want in enumerate(theirs(f, operands)):
                    part = seen[at:at + want.size].reshape(want.shape)
                    at += want.size
                    np.testing.assert_allclose(part, want, rtol=2e-5, atol=2e-6,
                                               err_msg=f"{name}, {'gradient ' * (i > 0)}{i}")
                self.assertEqual(at, seen.size)


if __name__ == "__main__":
    unittest.main()

"""Tests of PyTorch's side of `bench.py gpu`, with a real PyTorch on the CPU: all kinds train alike.

The kind "graph" runs on a stand-in for CUDA graphs that behaves like them where it matters: a
capture notes each kernel with its tensors, and a replay runs those kernels on those tensors, and no
Python code.  As with a real graph, a batch in another tensor is never seen.

The tests are skipped (77) where there is no PyTorch (tests/interop/find_torch.py).
"""
import contextlib
import os
import sys
import unittest
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import find_torch  # noqa: E402

find_torch.need("torch", "numpy")

import torch  # noqa: E402
import torch_gpu  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

N, BATCH, N_STEPS, N_ASIDE = 64, 16, 6, 11


def tensors_in(tree):
    return [x for x in pytree.tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def memory_of(x):
    return getattr(x, "untyped_storage", x.storage)().data_ptr()


class Capture(TorchDispatchMode):
    """Notes the kernels that run within it; unlike a CUDA capture it also runs them."""

    def __init__(self):
        super().__init__()
        self.kernels = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if str(func).startswith("aten."):  # all others are profilers' marks
            self.kernels.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def replay(self):
        for func, args, kwargs, out in self.kernels:
            inputs = {memory_of(x) for x in tensors_in((args, kwargs))}
            for old, new in zip(tensors_in(out), tensors_in(func(*args, **kwargs))):
                if memory_of(old) not in inputs:
                    old.copy_(new)


def fake_cuda():
    stream = SimpleNamespace(wait_stream=lambda other: None)
    return SimpleNamespace(Stream=lambda: stream, current_stream=lambda: stream,
                           stream=lambda s: contextlib.nullcontext(), CUDAGraph=Capture,
                           graph=lambda graph: graph)


def make_step(layout, kind="eager", precision="float32"):
    args = SimpleNamespace(batch=BATCH, device="cpu", precision=precision, kind=kind)
    generator = torch.Generator().manual_seed(7)
    images = torch.rand(N, 28, 28, 1, generator=generator)
    labels = torch.randint(10, (N,), generator=generator)
    torch.manual_seed(3)
    step = torch_gpu.Step(args, images, labels, layout)
    step.order.copy_(torch.arange(BATCH))
    return step


def losses(step, run):
    out = []
    for i in range(N_STEPS):
        step.order.copy_((torch.arange(BATCH) * 3 + 5 * i) % N)
        out.append(run().item())
    return out


class Kinds(unittest.TestCase):
    def assert_near(self, seen, want, tolerance=1e-4):
        self.assertEqual(len(seen), len(want))
        for a, b in zip(seen, want):
            self.assertLess(abs(a - b), tolerance * abs(b), (seen, want))

    def test_both_layouts_train_alike(self):
        seen = {layout: losses(step, step) for layout in ("NCHW", "NHWC")
                for step in [make_step(layout)]}
        self.assert_near(seen["NHWC"], seen["NCHW"])
        self.assertEqual(len(set(seen["NCHW"])), N_STEPS)

    def test_bfloat16_is_near(self):
        step, low = make_step("NCHW"), make_step("NCHW", precision="bfloat16")
        self.assert_near(losses(low, low), losses(step, step), 0.02)

    def test_replays_train_as_steps_do(self):
        """Each replay trains on the batch that is in `order` at that time, from the weights that
        the replay before it left."""
        for layout in ("NCHW", "NHWC"):
            eager, step = make_step(layout), make_step(layout)
            for _ in range(N_ASIDE + 1):
                eager()
            run = torch_gpu.captured(step, fake_cuda())
            self.assert_near(losses(step, run), losses(eager, eager))
            for a, b in zip(step.model.parameters(), eager.model.parameters()):
                self.assertLess((a - b).abs().max().item(), 1e-4)

    def test_the_stand_in_tells_a_batch_that_is_not_noted(self):
        """If `order` were another tensor at each step, a graph would train on the first batch for
        ever."""
        eager, step = make_step("NCHW"), make_step("NCHW")
        for _ in range(N_ASIDE + 1):
            eager()
        run = torch_gpu.captured(step, fake_cuda())
        step.order = step.order.clone()
        self.assertNotAlmostEqual(losses(step, run)[-1], losses(eager, eager)[-1], places=3)

    def test_a_fused_sgd_steps_alike(self):
        step, fused = make_step("NHWC"), make_step("NHWC")
        step(), fused()
        if not torch_gpu.can_fuse(list(fused.model.parameters())):
            self.skipTest(f"PyTorch {torch.__version__} has none here")
        fused.optimizer = torch.optim.SGD(fused.model.parameters(), lr=0.2, fused=True)
        self.assert_near(losses(fused, fused), losses(step, step))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()

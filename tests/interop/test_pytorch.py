"""Tests of checkpoints with PyTorch: our file is a state dict with which PyTorch gives the same
outputs, and PyTorch's file starts a run of ours that has PyTorch's losses.

They need a Python with torch and safetensors (find_torch.py), and are skipped (77) without one.
Pixels and our logits come from the program in $DPLOGITS
(logits.c).
"""

import json
import os
import shutil
import subprocess

import find_torch

find_torch.need("torch", "safetensors")

import safetensors  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from models import MODELS, SMALL, Case, dp  # noqa: E402

LOGITS = os.path.abspath(os.environ.get(
    "DPLOGITS", os.path.join(dp.ROOT, "build/tests/interop/logits")))
FILE = "model.safetensors"


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Lenet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x.flatten(1))))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(784, 40), nn.BatchNorm1d(40)
        self.fc2, self.bn2 = nn.Linear(40, 24), nn.BatchNorm1d(24)
        self.fc3 = nn.Linear(24, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.fc1(x.flatten(1))))
        return self.fc3(F.relu(self.bn2(self.fc2(x))))


MODULES = {"lenet": Lenet, "lenet5": Lenet5, "mlp": Mlp}


def read_array(path, dtype, shape):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=dtype).reshape(shape).clone()


def evaluate(model, x, y):
    """PyTorch's mean loss, accuracy and logits on x, y."""
    model.eval()
    with torch.no_grad():
        logits = model(x)
        loss = F.cross_entropy(logits.double(), y).item()
    return loss, (logits.argmax(1) == y).double().mean().item(), logits


class Samples:
    """The pixels and labels of a job's two data sets, and our logits for the validation set."""

    def __init__(self, case, job, model):
        out = case.path("samples")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        done = subprocess.run([LOGITS, job, model, out], check=False, capture_output=True,
                              text=True, cwd=case.folder)
        case.assertEqual(done.returncode, 0, done.stderr)
        sizes = json.loads(done.stdout)
        for name in ("train", "validation"):
            n = sizes[name]
            x = read_array(os.path.join(out, f"{name}.x"), torch.float32, [n, *sizes["image"]])
            y = read_array(os.path.join(out, f"{name}.y"), torch.int32, [n])
            setattr(self, name, (x.permute(0, 3, 1, 2).contiguous(), y.long()))
        self.logits = read_array(os.path.join(out, "validation.logits"), torch.float32,
                                 [sizes["validation"], sizes["classes"]])


class PyTorch(Case):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        print(f"torch {torch.__version__}, safetensors {safetensors.__version__}", flush=True)

    def assert_relative(self, seen, want, what, tolerance=1e-5):
        self.assertLessEqual(abs(seen - want), tolerance * abs(want),
                             f"{what} is {seen:.9g}, PyTorch's {want:.9g}")

    def assert_near(self, seen, want, what, tolerance, noise=0):
        """Compare element by element, relative to the largest, plus an absolute `noise`.  Returns
        the largest difference."""
        self.assertEqual(seen.shape, want.shape, what)
        worst = (seen - want).abs().max().item()
        self.assertLessEqual(worst, tolerance * want.abs().max().item() + noise, what)
        return worst

    # ---- ours -> PyTorch

    def test_loads_ours(self):
        """PyTorch loads our file strictly, and has our loss and accuracy on the validation set, and
        our logits for each sample."""
        for name in MODELS:
            with self.subTest(model=name):
                folder = self.train(name, run=name, train__epochs=10)
                path = os.path.join(folder, FILE)
                model = MODULES[name]()
                state = safetensors.torch.load_file(path)
                self.assertEqual({k: v.dtype for k, v in state.items()},
                                 {k: v.dtype for k, v in model.state_dict().items()})
                model.load_state_dict(state, strict=True)
                samples = Samples(self, self.path(name, "job.yaml"), path)
                loss, accuracy, logits = evaluate(model, *samples.validation)
                epoch = self.events("epoch", name)[-1]
                self.assert_relative(epoch["validation_loss"], loss, "validation loss")
                self.assert_relative(epoch["validation_accuracy"], accuracy, "accuracy")
                worst = self.assert_near(samples.logits, logits, "logits", 1e-5)
                print(f"\n{name}: loss {epoch['validation_loss']:.7f}, PyTorch's {loss:.7f}; "
                      f"accuracy {accuracy:.3f}; logits within {worst:.1g}", flush=True)

    # ---- PyTorch -> ours

    def start_file(self, name):
        """A model as PyTorch might have trained it: no value is the default, not even in norms."""
        torch.manual_seed(5)
        model = MODULES[name]()
        for key, value in model.state_dict().items():
            if key.startswith("bn") and value.dtype == torch.float32:
                value.copy_(torch.rand(value.shape) + 0.5)
            elif value.dtype == torch.int64:
                value.fill_(7)
        safetensors.torch.save_file(model.state_dict(), self.path("start.safetensors"),
                                    metadata={"format": "pt"})
        return model

    # An epoch is one step, so the order of samples does not matter: five steps, each validated.
    WHOLE = {"train.global_batch": SMALL["data.samples"], "train.epochs": 5}
    RULES = {
        "lenet": dict(momentum=0.9, weight_decay=5e-4),
        "lenet5": dict(momentum=0.8, nesterov=True),
        "mlp": dict(momentum=0.9, weight_decay=1e-3, nesterov=True),
    }

    def train_theirs(self, model, rule, samples):
        """Train with PyTorch: for each step the training loss before it, and the validation loss
        and accuracy after it; and the momentum at the end."""
        optimizer = torch.optim.SGD(model.parameters(), lr=SMALL["optimizer.lr"], **rule)
        steps = []
        for _ in range(self.WHOLE["train.epochs"]):
            model.train()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(samples.train[0]), samples.train[1])
            loss.backward()
            optimizer.step()
            steps.append((loss.item(), *evaluate(model, *samples.validation)[:2]))
        return steps, {f"{key}.momentum_buffer": optimizer.state[value]["momentum_buffer"]
                       for key, value in model.named_parameters()}

    def train_ours(self, name, rule):
        """Train the same with the daemons; returns the folder of their last checkpoint."""
        rule = {f"optimizer__{k}": str(v).lower() for k, v in rule.items()}
        whole = {k.replace(".", "__"): v for k, v in self.WHOLE.items()}
        return self.train(name, run=name, model__init__name="file",
                          model__init__path=self.path("start.safetensors"), **rule, **whole)

    def compare_tensors(self, seen, want):
        """Compare tensors.  The gradient of a bias before a batch norm is zero but for rounding,
        hence the noise; other gradients are 1e-3 or more."""
        self.assertEqual(set(seen), set(want))
        for key, value in want.items():
            if value.dtype == torch.float32:
                self.assert_near(seen[key], value, key, 1e-4, noise=5e-7)

    def test_starts_from_theirs(self):
        """A run from PyTorch's file has PyTorch's losses, and at the end its parameters, running
        statistics and momentum."""
        for name in MODELS:
            with self.subTest(model=name):
                model, rule = self.start_file(name), self.RULES[name]
                folder = self.train_ours(name, rule)
                samples = Samples(self, self.path(name, "job.yaml"),
                                  self.path("start.safetensors"))
                steps, momentum = self.train_theirs(model, rule, samples)
                epochs = self.events("epoch", name)
                self.assertEqual(len(epochs), len(steps))
                for epoch, (loss, validation_loss, accuracy) in zip(epochs, steps):
                    step = f"step {epoch['step']}: "
                    self.assert_relative(epoch["train_loss"], loss, step + "training loss")
                    self.assert_relative(epoch["validation_loss"], validation_loss,
                                         step + "validation loss")
                    self.assert_relative(epoch["validation_accuracy"], accuracy,
                                         step + "accuracy")
                self.compare_tensors(safetensors.torch.load_file(os.path.join(folder, FILE)),
                                     model.state_dict())
                self.compare_tensors(
                    safetensors.torch.load_file(os.path.join(folder, "optimizer.safetensors")),
                    momentum)

    def test_starts_from_half_precision(self):
        """A file in half precision starts the run that its numbers as float32 start."""
        start = self.path("start.safetensors")
        for dtype in (torch.float16, torch.bfloat16):
            rounded = {k: v.to(dtype) for k, v in MODULES["lenet"]().state_dict().items()}
            losses = []
            for to in (dtype, torch.float32):
                run = f"{dtype} as {to}"
                safetensors.torch.save_file({k: v.to(to) for k, v in rounded.items()}, start)
                self.train("lenet", run=run, model__init__name="file", model__init__path=start)
                losses.append([e["train_loss"] for e in self.events("epoch", run)])
            self.assertEqual(*losses)

    def test_refuses_theirs(self):
        """Files of another model, another number of classes, or double precision, as PyTorch writes
        them, are refused."""
        wide = MODULES["lenet"]()
        wide.fc2 = nn.Linear(128, 12)
        start = self.path("start.safetensors")
        for module, *patterns in (
                (MODULES["mlp"](), r'tensor "\w+\.\w+" '),
                (wide, r'tensor "fc2\.(weight|bias)" is F32 \[12.*wants F32 \[10'),
                (MODULES["lenet"]().double(), r'tensor "\w+\.\w+" is F64 .*wants F32 ')):
            safetensors.torch.save_file(module.state_dict(), start)
            self.refused("lenet", start, "model.init", *patterns)


if __name__ == "__main__":
    dp.main()

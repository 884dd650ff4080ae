"""Test of jobs with model.import whose losses are of several outputs: networks that return
auxiliary logits in training, as googlenet and inception_v3 of torchvision do, and one of four kinds
of losses.  All train as PyTorch does.

It needs a Python with torch, torchvision and safetensors (find_torch.py), and is skipped (77)
without one.
"""
import csv
import dataclasses

import find_torch

find_torch.need("torch", "torchvision", "safetensors", "numpy")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree  # noqa: E402

from models import dp  # noqa: E402

STEPS, BATCH, CLASSES = 3, 4, 7



@dataclasses.dataclass
class Both:
    first: torch.Tensor
    none: torch.Tensor = None
    second: torch.Tensor = None


torch.export.register_dataclass(Both, serialized_type_name="Both")
for outputs in (torchvision.models.GoogLeNetOutputs, torchvision.models.InceptionOutputs):
    _pytree._register_namedtuple(outputs, serialized_type_name=outputs.__name__)


class Heads(nn.Module):
    """Two heads, by names, and a loss that the network computes for each sample"""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(6, 9), nn.Linear(9, CLASSES), nn.Linear(9, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        a, b = self.a(h), self.b(h)
        return {"a": a, "b": b, "own": (a * b).square().mean(1), "sink": (a * b).mean(1) - 5}


class Inner(nn.Module):
    """Losses that the network computes itself, over all samples"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, CLASSES), nn.Linear(6, CLASSES)

    def forward(self, x):
        y, t = self.a(x), self.b(x)
        loss = F.cross_entropy(y, t.argmax(1), label_smoothing=0.1) + F.mse_loss(y, t)
        return {"loss": loss + F.kl_div(y.log_softmax(1), t.softmax(1), reduction="sum") / 100}


class Dataclass(nn.Module):
    """A dataclass of outputs, one of which is None"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, CLASSES), nn.Linear(6, CLASSES)

    def forward(self, x):
        return Both(self.a(x), second=self.b(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 4, padding_idx=2), nn.Linear(4, CLASSES)

    def forward(self, ids):
        return self.out(self.words(ids).mean(1))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(32, 12), nn.Linear(12, CLASSES)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(F.adaptive_avg_pool2d(x, 2).flatten(1))))


class Auxiliary(nn.Module):
    """As googlenet: batch norms, two more classifiers on the way, and a named tuple of three"""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Conv2d(n, 8, 3, 2, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            for n in (3, 8, 8))
        self.aux1, self.aux2, self.last = (Classifier() for _ in range(3))

    def forward(self, x):
        x = self.parts[0](x)
        y = self.parts[1](x)
        z = self.parts[2](y)
        return torchvision.models.GoogLeNetOutputs(self.last(z), self.aux2(y), self.aux1(x))


def plain_dropout(network):
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


class Against(dp.Case):
    """Runs beside those of PyTorch"""

    def losses_are(self, network, x, y, model_loss, loss, rtol=1e-4, lr=0.01, n=2,
                   n_compared=STEPS):
        first = {k: v.clone() for k, v in network.state_dict().items()}
        images = x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x
        torch.export.save(torch.export.export(network, (images[:3],), strict=False),
                          self.path("net.pt2"))
        network.load_state_dict(first)
        optimizer = torch.optim.SGD(network.parameters(), lr=lr)
        theirs = []
        for at in range(0, STEPS * BATCH, BATCH):
            optimizer.zero_grad()
            value = loss(network(images[at:at + BATCH]), y[at:at + BATCH])
            value.backward()
            optimizer.step()
            theirs.append(value.item())
        np.save(self.path("x.npy"), x.numpy())
        np.save(self.path("y.npy"), y.numpy())
        job = {"model.import": self.path("net.pt2"), "data.format": "npy",
               "data.path": self.folder, "data.train": "[x.npy, y.npy]", "data.validation": "none",
               "data.shuffle": "false", "train.global_batch": BATCH, "train.epochs": 1,
               "train.validate_every": 0, "report.every_steps": 1, "optimizer.name": "sgd",
               "optimizer.lr": lr, "model.loss": model_loss}
        self.n_runs = getattr(self, "n_runs", 0) + 1
        run = f"run{self.n_runs}"
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run, n=n,
                        job=job)
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            ours = [float(row["loss"]) for row in csv.DictReader(file)]
        self.assertEqual(len(ours), STEPS)
        np.testing.assert_allclose(ours[:n_compared], theirs[:n_compared], rtol=rtol)
        ours = safetensors.torch.load_file(
            self.path(run, "checkpoints", "latest", "model.safetensors"))
        network.load_state_dict(ours, strict=True)
        return first, ours

    def auxiliary(self, network, side, weights, model_loss, **more):
        torch.manual_seed(1)
        torch.set_num_threads(2)
        network = plain_dropout(network.train())
        x = torch.rand(STEPS * BATCH, side, side, 3)
        y = torch.arange(STEPS * BATCH) % CLASSES

        def loss(out, label):
            return sum(w * F.cross_entropy(getattr(out, name), label)
                       for name, w in weights.items())

        first, last = self.losses_are(network, x, y, model_loss, loss, **more)
        for name in last:
            if "aux" in name.lower() and name.endswith("fc2.weight"):
                self.assertGreater((first[name] - last[name]).abs().max(), 0, name)


GOOGLENET = ({"logits": 1, "aux_logits1": 0.3, "aux_logits2": 0.3},
             "{logits: cross_entropy, aux_logits2: {name: cross_entropy, weight: 0.3}, "
             "aux_logits1: {name: cross_entropy, weight: 0.3}}")


class Losses(Against):
    def test_auxiliary(self):
        torch.manual_seed(0)
        self.auxiliary(Auxiliary(), 32, *GOOGLENET, lr=0.05)

    def heads(self):
        torch.manual_seed(2)
        x = torch.randn(STEPS * BATCH, 6)
        return Heads().train(), x, torch.rand(STEPS * BATCH, CLASSES)

    def test_kinds(self):
        def shares(t):
            return t / t.sum(1, keepdim=True)

        weight = torch.full((CLASSES,), 3.0)
        each = torch.arange(1.0, CLASSES + 1) / 2
        for text, loss in (
                ("{a: {name: huber, delta: 0.3}, b: {name: l1, weight: 0.5}}",
                 lambda o, t: F.huber_loss(o["a"], t, delta=0.3) + 0.5 * F.l1_loss(o["b"], t)),
                ("{b: {name: bce, positive: 3, weight: 2}, a: mse}",
                 lambda o, t: 2 * F.binary_cross_entropy_with_logits(o["b"], t, pos_weight=weight)
                 + F.mse_loss(o["a"], t)),
                (f"{{b: {{name: bce, positive: {each.tolist()}}}}}",
                 lambda o, t: F.binary_cross_entropy_with_logits(o["b"], t, pos_weight=each)),
                ("{a: kl}", lambda o, t: F.kl_div(o["a"].log_softmax(1), t,
                                                  reduction="batchmean")),
                ("output own", lambda o, t: o["own"].mean()),
                ("output sink", lambda o, t: o["sink"].mean())):
            with self.subTest(text):
                network, x, t = self.heads()
                self.losses_are(network, x, shares(t), text, loss, n=3, lr=0.1)

    def test_inner(self):
        torch.manual_seed(5)
        self.losses_are(Inner().train(), torch.randn(STEPS * BATCH, 6),
                        torch.rand(STEPS * BATCH, CLASSES), "output loss", lambda o, t: o["loss"],
                        n=1)

    def test_dataclass(self):
        torch.manual_seed(4)
        self.losses_are(Dataclass().train(), torch.randn(STEPS * BATCH, 6),
                        torch.rand(STEPS * BATCH, CLASSES), "{second: mse, first: l1}",
                        lambda o, t: F.mse_loss(o.second, t) + F.l1_loss(o.first, t))

    def test_places(self):
        """A class for each place: [N,T,V], [N,C,T] and pixels [N,C,H,W]"""
        for name, layer in (("tokens", nn.Linear(5, CLASSES)), ("line", nn.Conv1d(4, CLASSES, 1)),
                            ("pixels", nn.Conv2d(3, CLASSES, 1))):
            with self.subTest(name):
                torch.manual_seed(3)
                shape = {"tokens": (4, 5), "line": (4, 6), "pixels": (2, 2, 3)}[name]
                places = {"tokens": 4, "line": 6, "pixels": 4}[name]
                x = torch.randn(STEPS * BATCH, *shape)
                y = torch.randint(0, CLASSES, (STEPS * BATCH, places))
                y[0, 0] = CLASSES - 1

                def loss(out, label, name=name):
                    out = out.transpose(1, 2) if name == "tokens" else out.flatten(2)
                    return F.cross_entropy(out, label)

                self.losses_are(nn.Sequential(layer).train(), x, y, "cross_entropy", loss)

    def test_padding(self):
        """The row of padding begins as zeros by model.init: random, too, and stays so"""
        torch.manual_seed(6)
        network = Words().train()
        with torch.no_grad():
            network.words.weight[2] = 1  # of the file; what is drawn is zero
        ids = torch.randint(0, 9, (STEPS * BATCH, 5))
        torch.export.save(torch.export.export(network, (ids[:3],), strict=False),
                          self.path("net.pt2"))
        np.save(self.path("ids.npy"), ids.numpy())
        np.save(self.path("y.npy"), (torch.arange(STEPS * BATCH) % CLASSES).numpy())
        for n in (1, 2):
            job = {"model.import": self.path("net.pt2"), "model.init": "random",
                   "data.format": "npy", "data.path": self.folder,
                   "data.train": "{ids: ids.npy, labels: y.npy}", "data.validation": "none",
                   "train.global_batch": BATCH, "train.epochs": 1, "train.validate_every": 0,
                   "optimizer.name": "adamw", "optimizer.lr": 0.01}
            self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir",
                            f"run{n}", n=n, job=job)
            table = safetensors.torch.load_file(self.path(
                f"run{n}", "checkpoints", "latest", "model.safetensors"))["words.weight"]
            self.assertEqual((table == 0).all(1).tolist(), [i == 2 for i in range(9)])

    def test_square_places(self):
        """As many classes as places: the job says which dimension has the classes"""
        for dim in (1, 2):
            with self.subTest(dim):
                torch.manual_seed(5)
                x = torch.randn(STEPS * BATCH, CLASSES, CLASSES)
                y = torch.randint(0, CLASSES, (STEPS * BATCH, CLASSES))
                y[0, 0] = CLASSES - 1

                def loss(out, label, dim=dim):
                    return F.cross_entropy(out if dim == 1 else out.transpose(1, 2), label)

                self.losses_are(nn.Sequential(nn.Linear(CLASSES, CLASSES)).train(), x, y,
                                f"{{name: cross_entropy, class_dim: {dim}}}", loss)
        driver = self.run_driver("--check", "--job", self.path("run1", "job.yaml"), "--set",
                                 "model.loss=cross_entropy", n=1, job=None, status=dp.USAGE,
                                 port=False)
        self.assertRegex(driver.text, "which has as many classes as places; say which dimension")


class Large(Against):
    """Only `tests/run.sh all` runs this."""

    def test_googlenet(self):
        """At a small rate: batch norms of 4 samples make rounding larger, so that after two steps
        at 0.01 PyTorch's float32 is 1.5 % away from its float64"""
        torch.manual_seed(0)
        network = torchvision.models.googlenet(num_classes=CLASSES, init_weights=False,
                                               aux_logits=True)
        self.auxiliary(network, 64, *GOOGLENET, rtol=2e-3, lr=1e-4)

    def test_inception(self):
        """Its second loss in PyTorch's float32 is already 1.2e-3 away from float64's"""
        torch.manual_seed(0)
        network = torchvision.models.inception_v3(num_classes=CLASSES, init_weights=False,
                                                  aux_logits=True)
        self.auxiliary(network, 299, {"logits": 1, "aux_logits": 0.4},
                       "{logits: cross_entropy, aux_logits: {name: cross_entropy, weight: 0.4}}",
                       rtol=2e-3, lr=1e-4, n_compared=2)


if __name__ == "__main__":
    dp.main()

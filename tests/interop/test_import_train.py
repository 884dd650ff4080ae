"""Test of jobs with model.import: a network that PyTorch exported is trained by the daemons.
Losses, weights, evaluation and predictions are PyTorch's, on any number of ranks, after a resume
without the file, and after a rank is lost.

It needs a Python with torch and safetensors (find_torch.py), and is skipped (77) without one.
"""

import csv
import os
import re

import find_torch

find_torch.need("torch", "safetensors", "numpy")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from models import dp  # noqa: E402

STEPS, BATCH, SIDE = 20, 12, 8
N = STEPS * BATCH
SGD = {"optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.momentum": 0.9}


class Network(nn.Module):
    """Tied weights, a frozen parameter, buffers that the state dict has and has not"""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(0.0)
        self.enter = nn.Linear(8 * 16, 12)
        self.mix = nn.Linear(12, 12)
        self.again = nn.Linear(12, 12)
        self.again.weight = self.mix.weight
        self.scale = nn.Parameter(torch.full((12,), 1.5), requires_grad=False)
        self.register_buffer("shift", torch.linspace(-1, 1, 12), persistent=False)
        self.register_buffer("kept", torch.linspace(-1, 2, 12))
        self.head = nn.Linear(12, 10)
        self.spare = nn.BatchNorm1d(12)  # no node reads it

    def forward(self, x):
        h = self.enter(self.drop(torch.flatten(self.body(x), 1)))
        h = torch.relu(self.mix(h)) * self.scale + self.shift + self.kept
        return self.head(self.again(h))


def export(network, path):
    torch.export.save(torch.export.export(network.train(), (torch.zeros(4, 1, SIDE, SIDE),),
                                          strict=False), path)


class Mixed(nn.Module):
    """Indices of an embedding, a mask of attention and of a mean, and real numbers"""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(23, 8, padding_idx=0)
        self.enter = nn.Linear(8, 24)
        self.more = nn.Linear(3, 8)
        self.head = nn.Linear(16, 4)

    def forward(self, input_ids, attention_mask, features):
        h = self.table(input_ids)
        q, k, v = (t.view(-1, 5, 2, 4).transpose(1, 2) for t in self.enter(h).chunk(3, -1))
        keep = attention_mask[:, None, None, :].to(torch.bool)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        h = h + seen.transpose(1, 2).reshape(-1, 5, 8)
        real = attention_mask.unsqueeze(-1).to(h.dtype)
        mean = (h * real).sum(1) / real.sum(1).clamp(min=1)
        return self.head(torch.cat([mean, torch.relu(self.more(features))], 1))


class Tagger(nn.Module):
    """A class for each token, by LSTMs in both directions"""

    def __init__(self, dropout):
        super().__init__()
        self.table = nn.Embedding(19, 6)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True, dropout=dropout)
        self.head = nn.Linear(10, 4)

    def forward(self, tokens):
        return self.head(self.lstm(self.table(tokens))[0])


class Sequences(nn.Sequential):
    """The list of layers GRUS: a class for each sequence"""

    def __init__(self):
        super().__init__(nn.LSTM(3, 4, batch_first=True), nn.GRU(4, 5, 2, batch_first=True,
                                                                 bidirectional=True),
                         nn.Linear(10, 4))

    def forward(self, x):
        _, last = self[1](self[0](x)[0])
        return self[2](torch.cat([last[-2], last[-1]], 1))


class Scaled(nn.Module):
    """Parameters that begin as their author says"""

    def __init__(self):
        super().__init__()
        self.enter, self.head = nn.Linear(SIDE * SIDE, 12), nn.Linear(12, 10)
        self.norm, self.token = nn.LayerNorm(12), nn.Parameter(torch.zeros(1, 12))
        self.scale = nn.Parameter(torch.full((12,), 1e-3))
        self.trained = nn.Parameter(torch.rand(12) + 3)
        nn.init.zeros_(self.enter.bias)
        nn.init.constant_(self.norm.weight, 0.5)
        nn.init.constant_(self.head.bias, -2.0)

    def forward(self, x):
        x = self.norm(self.enter(x.flatten(1)) * self.trained) + self.token
        return self.head(x + self.scale * torch.tanh(x))


SEQUENCES = ("[lstm: {units: 4}, gru: {units: 5, layers: 2, bidirectional: true, return: last}, "
             "linear: {units: 4}]")


class Reference:
    """The network before and after PyTorch's training, its losses and its data"""

    def __init__(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        rng = np.random.default_rng(0)
        self.x = rng.random((N, SIDE, SIDE, 1), dtype=np.float32)
        self.y = rng.integers(0, 10, N)
        self.y[:10] = range(10)
        self.images = torch.from_numpy(self.x).permute(0, 3, 1, 2)
        self.network = Network().train()
        self.first = {k: v.clone() for k, v in self.network.state_dict().items()}
        self.losses, self.state = self.train(self.network)

    def train(self, network):
        optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.05,
                                    momentum=0.9)
        losses = []
        for at in range(0, N, BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(self.images[at:at + BATCH]),
                                               torch.from_numpy(self.y[at:at + BATCH]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, network.state_dict()


class Imported(dp.Case):
    @classmethod
    def setUpClass(cls):
        cls.reference = Reference()

    def setUp(self):
        super().setUp()
        network = Network()
        network.load_state_dict(self.reference.first)
        export(network, self.path("net.pt2"))
        np.save(self.path("x.npy"), self.reference.x)
        np.save(self.path("y.npy"), self.reference.y)
        self.job = {"model.import": self.path("net.pt2"), "data.format": "npy",
                    "data.path": self.folder, "data.train": "[x.npy, y.npy]",
                    "data.validation": "[x.npy, y.npy]", "data.shuffle": "false",
                    "train.global_batch": BATCH, "train.epochs": 1, "report.every_steps": 1, **SGD}

    def train(self, run, n=2, args=(), **more):
        job = {**self.job, **{k.replace("__", "."): v for k, v in more.items()}}
        return self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run,
                               *args, n=n, job=job)

    def losses(self, run):
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}

    def state(self, run):
        return safetensors.torch.load_file(
            self.path(run, "checkpoints", "latest", "model.safetensors"))

    def assert_as_theirs(self, run):
        seen = self.losses(run)
        self.assertEqual(sorted(seen), list(range(1, STEPS + 1)))
        for step, loss in seen.items():
            want = self.reference.losses[step - 1]
            self.assertLessEqual(abs(loss - want), 1e-4 * want, f"{run}, step {step}")
        ours, theirs = self.state(run), self.reference.state
        self.assertEqual({k: (v.dtype, v.shape) for k, v in ours.items()},
                         {k: (v.dtype, v.shape) for k, v in theirs.items()})
        for name, want in theirs.items():
            worst = (ours[name].double() - want.double()).abs().max().item()
            self.assertLessEqual(worst, 1e-4 * max(1, want.double().abs().max().item()), name)
        moved = (ours["enter.weight"] - self.reference.first["enter.weight"]).abs().max()
        self.assertGreater(moved, 1e-3)

    def test_ranks(self):
        for n in (1, 2, 3):
            with self.subTest(n):
                self.train(f"r{n}", n)
                self.assert_as_theirs(f"r{n}")

    def eval_network(self, run):
        network = Network()
        network.load_state_dict(self.state(run), strict=True)
        return network.eval()

    def test_resume_evaluate_predict(self):
        """All without the file, which is needed at the start alone"""
        self.train("run", train__max_steps=9, checkpoint__every_steps=9)
        os.rename(self.path("net.pt2"), self.path("away.pt2"))
        resumed = self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir",
                                  "run", "--resume", "--set", "train.max_steps=0", n=3, job=None)
        self.assertRegex(resumed.text, r"net\.pt2.*the run goes on with the network that its fold")
        self.assert_as_theirs("run")
        network = self.eval_network("run")
        with torch.no_grad():
            logits = network(self.reference.images)
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(self.reference.y)).item()
        seen = self.events("epoch", "run")[-1]["validation_loss"]
        self.assertLessEqual(abs(seen - loss), 1e-5 * loss)
        done = self.run_driver("--local", "--threads", "1", "--run-dir", "run", "--evaluate", n=2,
                               job=None)
        said = re.search(r"loss (\d+\.\d+)", done.text + done.out)
        self.assertIsNotNone(said, done.text + done.out)
        self.assertLessEqual(abs(float(said.group(1)) - loss), 1e-4)
        self.run_driver("--local", "--threads", "1", "--run-dir", "run", "--predict",
                        self.path("out.npy"), n=2, job=None)
        ours = torch.from_numpy(np.load(self.path("out.npy"))).view(logits.shape)
        self.assertLessEqual((ours - logits).abs().max(), 1e-4 * logits.abs().max())

    def test_random(self):
        """The weights of a step so small that it changes nothing are those that were drawn"""
        self.train("run", n=1, model__init__name="random", train__max_steps=1,
                   optimizer__lr=1e-12)
        ours = self.state("run")
        for name in ("body.0", "body.4", "enter", "mix", "head"):
            bound = ours[f"{name}.weight"][0].numel() ** -0.5
            for kind in ("weight", "bias"):
                drawn = ours[f"{name}.{kind}"]
                self.assertLessEqual(drawn.abs().max(), bound * (1 + 1e-5), name)
                self.assertGreater(drawn.abs().max(), 0.6 * bound, name)
                self.assertGreater(drawn.std(), 0.3 * bound, name)
                self.assertGreater((drawn - self.reference.first[f"{name}.{kind}"]).abs().max(),
                                   0.1 * bound, name)
        for name in ("body.1", "body.5"):
            self.assertLess((ours[f"{name}.weight"] - 1).abs().max(), 1e-6)
            self.assertLess(ours[f"{name}.bias"].abs().max(), 1e-6)
        self.assertTrue(torch.equal(ours["scale"], self.reference.first["scale"]))
        self.assertTrue(torch.equal(ours["kept"], self.reference.first["kept"]))
        self.assertTrue(torch.equal(ours["mix.weight"], ours["again.weight"]))

    def test_first_values(self):
        """Random weights, but for parameters that are one number throughout in the file"""
        network = Scaled()
        first = network.state_dict()
        export(network, self.path("net.pt2"))
        self.train("run", n=2, model__init__name="random", train__max_steps=1, optimizer__lr=1e-12)
        ours = self.state("run")
        for name in ("enter.bias", "norm.weight", "norm.bias", "head.bias", "token", "scale"):
            self.assertLess((ours[name] - first[name]).abs().max(), 1e-6, name)
        self.assertTrue(torch.equal(ours["trained"], torch.ones(12)))
        self.assertGreater((ours["enter.weight"] - first["enter.weight"]).abs().max(), 1e-3)
        with torch.no_grad():
            network.scale += torch.rand(12)
        export(network, self.path("net.pt2"))
        resumed = self.train("run", n=1, args=("--resume",), model__init__name="random",
                             train__max_steps=2, optimizer__lr=1e-12)
        self.assertNotIn("holds another network", resumed.text)

    def test_groups(self):
        """The body's parameters have a rate of 0, by the names of the state dict"""
        self.train("run", train__max_steps=3, optimizer__groups="[{match: 'body.*', lr_scale: 0}]")
        ours = self.state("run")
        for name, _ in Network().named_parameters():
            is_still = torch.equal(ours[name], self.reference.first[name])
            self.assertEqual(is_still, name.startswith(("body.", "spare.")) or name == "scale",
                             name)

    def test_lost_rank(self):
        """Its successor is a follower that has never seen the network"""
        job = {**self.job, "cluster.heartbeat_timeout": 600, "cluster.deadlines.step": 600,
               "cluster.min_ranks": 2, "cluster.replace_timeout": 600}
        driver = self.driver("--threads", "1", "--device", "cpu", *dp.freezing(2, 6), n=3, job=job)
        victim, other = (self.follower("--threads", "1", "--rank", str(k)) for k in (1, 2))
        for k in (1, 2):
            driver.wait_line(f"rank {k} joined")
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        driver.wait_line("waiting up to")
        fresh = self.follower("--threads", "1", "--rank", "1")
        for daemon in (driver, other, fresh):
            self.assert_exit(daemon, dp.FINISHED)
        self.assertEqual(len(self.events("recovered")), 1)
        self.assert_as_theirs("runs/demo")

    def test_lost_for_good(self):
        job = {**self.job, "cluster.heartbeat_timeout": 600, "cluster.deadlines.step": 600,
               "cluster.min_ranks": 2, "cluster.replace_timeout": 0}
        driver = self.driver("--threads", "1", "--device", "cpu", "--inject", "kill:rank1@step7",
                             n=3, job=job)
        ranks = [self.follower("--threads", "1", "--rank", str(k)) for k in (1, 2)]
        for daemon in (driver, ranks[1]):
            self.assert_exit(daemon, dp.FINISHED)
        self.assertEqual(self.events("recovered")[0]["nranks"], 2)
        self.assert_as_theirs("runs/demo")

    def test_fields(self):
        """Three inputs by name: losses on two and three ranks are PyTorch's, and a bool mask and
        bytes are the same as int64"""
        torch.manual_seed(1)
        rng, network = np.random.default_rng(1), Mixed().train()
        fields = {"labels": rng.integers(0, 4, N), "features": rng.random((N, 3), np.float32),
                  "attention_mask": (np.arange(5) < rng.integers(1, 6, (N, 1))).astype(np.int64)}
        fields["input_ids"] = rng.integers(1, 23, (N, 5)) * fields["attention_mask"]
        places = tuple(torch.zeros(7, 5, dtype=torch.long) for _ in range(2))
        torch.export.save(torch.export.export(network, (*places, torch.zeros(7, 3)), strict=False),
                          self.path("net.pt2"))
        fields["small"] = fields["input_ids"].astype(np.uint8)
        fields["bools"] = fields["attention_mask"].astype(bool)
        for name, array in fields.items():
            np.save(self.path(f"{name}.npy"), array)
        optimizer, want = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9), []
        for at in range(0, N, BATCH):
            ids, mask, features, labels = (
                torch.from_numpy(fields[name][at:at + BATCH])
                for name in ("input_ids", "attention_mask", "features", "labels"))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(ids, mask, features), labels)
            loss.backward()
            optimizer.step()
            want.append(loss.item())
        named = "{{labels: labels.npy, features: features.npy, {}: {}.npy, input_ids: {}.npy}}"
        for n, mask, files, inputs in (
                (2, "attention_mask", ("attention_mask", "input_ids"), "{}"),
                (3, "kept", ("bools", "small"), "{attention_mask: kept}")):
            text = named.format(mask, *files)
            self.train(f"r{n}", n, data__train=text, data__validation=text, model__inputs=inputs)
            for step, loss in self.losses(f"r{n}").items():
                self.assertLessEqual(abs(loss - want[step - 1]), 1e-5 * want[step - 1], (n, step))
            self.assertEqual(len(self.losses(f"r{n}")), STEPS)
            ours, theirs = self.state(f"r{n}"), network.state_dict()
            for name, tensor in theirs.items():
                self.assertLessEqual((ours[name] - tensor).abs().max().item(), 1e-4, name)
            self.assertEqual(sorted(ours), sorted(theirs))

    def train_network(self, network, x, y):
        """PyTorch's losses; x and y are the job's data from now on"""
        np.save(self.path("x.npy"), x)
        np.save(self.path("y.npy"), y)
        optimizer, losses = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9), []
        for at in range(0, N, BATCH):
            optimizer.zero_grad()
            out = network(torch.from_numpy(x[at:at + BATCH])).flatten(0, -2)
            loss = nn.functional.cross_entropy(out, torch.from_numpy(y[at:at + BATCH]).flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def assert_recurrent(self, run, losses, network):
        for step, loss in enumerate(losses, 1):
            self.assertLessEqual(abs(self.losses(run)[step] - loss), 1e-5 * loss, (run, step))
        ours = self.state(run)
        for name, tensor in network.state_dict().items():
            self.assertLessEqual((ours[name] - tensor).abs().max().item(), 1e-4, name)
        self.assertEqual(sorted(ours), sorted(network.state_dict()))

    def test_tagger(self):
        """LSTMs as PyTorch trains them; with dropout, the same on one rank and on three"""
        torch.manual_seed(1)
        rng = np.random.default_rng(1)
        x, y = rng.integers(0, 19, (N, 6)), rng.integers(0, 4, (N, 6))
        files = "{tokens: x.npy, labels: y.npy}"
        for dropout in (0.0, 0.4):
            network = Tagger(dropout).train()
            torch.export.save(torch.export.export(network, (torch.zeros(7, 6, dtype=torch.long),),
                                                  strict=False), self.path("net.pt2"))
            losses = self.train_network(network, x, y)
            for n in (1, 3):
                self.train(f"r{n}{dropout}", n, data__train=files, data__validation=files)
            if dropout:
                one, three = (self.losses(f"r{n}{dropout}") for n in (1, 3))
                for step, loss in one.items():
                    self.assertLessEqual(abs(loss - three[step]), 1e-5 * loss, step)
            else:
                self.assert_recurrent("r10.0", losses, network)
                self.assert_recurrent("r30.0", losses, network)

        self.train("drawn", n=1, data__train=files, data__validation=files, train__max_steps=1,
                   model__init__name="random", optimizer__lr=1e-12)
        for name, drawn in self.state("drawn").items():
            if name.startswith("lstm."):
                self.assertLessEqual(drawn.abs().max(), 5 ** -0.5 * (1 + 1e-5), name)
                self.assertGreater(drawn.abs().max(), 0.7 * 5 ** -0.5, name)

    def test_sequences(self):
        """lstm and gru of model.layers"""
        torch.manual_seed(1)
        rng, network = np.random.default_rng(1), Sequences()
        safetensors.torch.save_file(network.state_dict(), self.path("first.safetensors"))
        losses = self.train_network(network, rng.standard_normal((N, 6, 3)).astype(np.float32),
                                    rng.integers(0, 4, N))
        self.job.pop("model.import")
        self.job |= {"model.arch": "layers", "model.layers": SEQUENCES,
                     "model.init.name": "file",
                     "model.init.path": self.path("first.safetensors")}
        self.train("r2", 2)
        self.assert_recurrent("r2", losses, network)

    def test_buffers(self):
        """Of all types: a strict load takes them; and all of a resumed run's checkpoint"""
        def fresh():
            network = Network()
            for name, dtype in (("flags", torch.bool), ("small", torch.int8),
                                ("short", torch.int16), ("bytes", torch.uint8),
                                ("whole", torch.int64), ("halves", torch.float16)):
                network.register_buffer(name, torch.tensor([1, 0, 3]).to(dtype))
            return network

        network = fresh()
        export(network, self.path("net.pt2"))
        self.train("run", n=1, train__max_steps=1)
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", "run",
                        "--resume", "--set", "train.max_steps=2", n=2, job=None)
        ours = self.state("run")
        fresh().load_state_dict(ours, strict=True)
        for name, buffer in network.named_buffers():
            if name in ("flags", "small", "short", "bytes", "whole", "halves"):
                self.assertEqual((ours[name].dtype, ours[name].tolist()),
                                 (buffer.dtype, buffer.tolist()), name)


if __name__ == "__main__":
    dp.main()

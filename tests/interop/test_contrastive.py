"""Test of model.loss contrastive: two towers, whose rows belong together, as CLIP trains them.  The
loss compares each sample with all samples of the global batch, so 20 steps on 1, 2 and 3 ranks have
PyTorch's losses on the whole batch, as have the weights and what validation tells.

It needs a Python with torch and safetensors (find_torch.py), and is skipped (77) without one.
"""
import csv
import os

import find_torch

find_torch.need("torch", "safetensors", "numpy")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from models import dp  # noqa: E402

STEPS, BATCH, WIDTH, LENGTH, VOCAB = 20, 11, 8, 5, 23
EPOCHS, SAMPLES = 4, 4 * BATCH + 7  # the last batch of an epoch is shorter
RATE = 0.05


class Towers(nn.Module):
    """A tower of numbers and one of tokens, and the logarithm of the scores' factor"""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, WIDTH))
        self.words, self.text = nn.Embedding(VOCAB, 12), nn.Linear(12, WIDTH)
        self.logit_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, image, text):
        return {"image": F.normalize(self.image(image), dim=1),
                "text": F.normalize(self.text(self.words(text).mean(1)), dim=1),
                "scale": self.logit_scale.exp()}


def contrast(out, factor):
    scores = factor * out["image"] @ out["text"].T
    own = torch.arange(len(scores))
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


class Contrastive(dp.Case):
    def setUp(self):
        super().setUp()
        self.runs = []
        torch.manual_seed(0)
        torch.set_num_threads(1)
        draw = np.random.default_rng(0)
        self.image = draw.standard_normal((SAMPLES, 6)).astype(np.float32)
        self.text = (np.abs(self.image[:, :LENGTH]) * 9).astype(np.int64) % VOCAB
        self.text[0, 0] = VOCAB - 1
        for name in ("image", "text"):
            np.save(self.path(f"{name}.npy"), getattr(self, name))
        self.network = Towers().train()
        program = torch.export.export(self.network, (torch.zeros(7, 6),
                                                     torch.zeros(7, LENGTH, dtype=torch.long)),
                                      strict=False)
        torch.export.save(program, self.path("net.pt2"))

    def job(self, loss, **more):
        fields = "{image: image.npy, text: text.npy}"
        return {"model.import": self.path("net.pt2"), "model.loss": loss,
                "model.inputs": "{text: text}", "data.format": "npy", "data.path": self.folder,
                "data.train": fields, "data.validation": fields, "data.shuffle": "false",
                "train.global_batch": BATCH, "train.epochs": EPOCHS, "report.every_steps": 1,
                "optimizer.name": "sgd", "optimizer.lr": RATE, "optimizer.momentum": 0.9,
                **{k.replace("__", "."): v for k, v in more.items()}}

    def ours(self, n, loss, args=(), **more):
        run = f"run{len(self.runs)}"
        self.runs.append(run)
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run, *args,
                        n=n, job=self.job(loss, **more))
        with open(self.path(run, "metrics.csv"), encoding="ascii") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        state = safetensors.torch.load_file(
            self.path(run, "checkpoints", "latest", "model.safetensors"))
        return losses, state, [e["validation_loss"] for e in self.events("epoch", run)]

    def theirs(self, factor):
        """PyTorch's losses, weights, and validation losses: of groups of a global batch"""
        optimizer = torch.optim.SGD(self.network.parameters(), lr=RATE, momentum=0.9)
        image, text = torch.from_numpy(self.image), torch.from_numpy(self.text)
        losses, validation = [], []
        for _ in range(EPOCHS):
            for at in range(0, SAMPLES, BATCH):
                optimizer.zero_grad()
                out = self.network(image[at:at + BATCH], text[at:at + BATCH])
                loss = contrast(out, factor(out))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            with torch.no_grad():
                total = 0
                for at in range(0, SAMPLES, BATCH):
                    out = self.network(image[at:at + BATCH], text[at:at + BATCH])
                    total += contrast(out, factor(out)).item() * len(out["image"])
                validation.append(total / SAMPLES)
        return losses, self.network.state_dict(), validation

    def check(self, text, factor):
        losses, weights, validation = self.theirs(factor)
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-2], losses[0])
        for n in (1, 2, 3):
            with self.subTest(n):
                ours, state, seen = self.ours(n, text)
                np.testing.assert_allclose(ours, losses, rtol=2e-5)
                np.testing.assert_allclose(seen, validation, rtol=2e-5)
                self.assertEqual(sorted(state), sorted(weights))
                for name, want in weights.items():
                    torch.testing.assert_close(state[name], want, rtol=1e-4, atol=1e-5)

    def test_learned_scale(self):
        self.check("{image: {name: contrastive, with: text, scale: scale}}",
                   lambda out: out["scale"])

    def test_temperature(self):
        self.check("{image: {name: contrastive, with: text, temperature: 0.2}}", lambda out: 5)

    def test_zero_and_bfloat16(self):
        """Divided states change nothing but the last bits; half precision is near"""
        text = "{image: {name: contrastive, with: text, temperature: 0.2}}"
        losses, *_ = self.theirs(lambda out: 5)
        plain, *_ = self.ours(3, text)
        for zero in (1, 2, 3):
            with self.subTest(zero):
                divided, *_ = self.ours(3, text, strategy__zero=zero)
                np.testing.assert_allclose(divided, plain, rtol=1e-6)
        half, *_ = self.ours(2, text, precision="bfloat16")
        np.testing.assert_allclose(half, losses, rtol=0.05)

    def test_audits(self):
        """A second rank computes a share that is compared with those of all ranks."""
        text = "{image: {name: contrastive, with: text, temperature: 0.2}}"
        plain, *_ = self.ours(3, text)
        audited, *_ = self.ours(3, text, args=("--inject", "flip:rank1@step5:bucket0"),
                                train__audit=1)
        self.assertEqual(audited, plain)
        event, = self.events("corruption", self.runs[-1])
        self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                         (1, 5, "gradient", True))

    def test_evaluate_predict(self):
        """The same loss on any number of ranks, no perplexity; predictions are the first output"""
        loss = "{image: {name: contrastive, with: text, scale: scale}}"
        _, state, seen = self.ours(1, loss)
        run = self.runs[-1]
        self.network.load_state_dict(state)
        for n in (1, 3):
            done = self.run_driver("--local", "--threads", "1", "--run-dir", run, "--evaluate",
                                   n=n, job=None)
            said = done.text + done.out
            self.assertIn(f"loss {seen[-1]:.5g}"[:10], said)
            self.assertNotIn("perplexity", said)
        self.assertNotIn("validation_perplexity", self.events("epoch", run)[-1])
        told = self.run_driver("--local", "--threads", "1", "--run-dir", run, "--predict",
                               self.path("out.npy"), n=2, job=None)
        self.assertIn("outputs of a sample are its embedding", told.text)
        with torch.no_grad():
            want = self.network(torch.from_numpy(self.image), torch.from_numpy(self.text))["image"]
        np.testing.assert_allclose(np.load(self.path("out.npy")), want.numpy(), atol=1e-5)

    def assert_no_matrix(self, run, said):
        self.assertEqual(said.count("there is no confusion matrix"), 1)
        self.assertFalse(os.path.exists(self.path(run, "confusion.csv")))
        self.assertEqual(len(self.events("epoch", run)), EPOCHS)

    def test_tensorboard(self):
        """Outputs that are compared with one another have no confusion matrix, which is told"""
        loss = "{image: {name: contrastive, with: text, temperature: 0.2}}"
        for n in (1, 2):
            with self.subTest(n):
                run = f"board{n}"
                done = self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir",
                                       run, n=n, job=self.job(loss, report__tensorboard="true"))
                self.assert_no_matrix(run, done.text)

    def test_tensorboard_own_loss(self):
        """Nor has a network that gives its loss, although a target is a class"""
        class Own(nn.Module):
            def __init__(self, of):
                super().__init__()
                self.layer, self.of = nn.Linear(6, 10), of

            def forward(self, x):
                return {"own": self.of(self.layer(x).square())}

        np.save(self.path("class.npy"), np.arange(SAMPLES) % 10)
        files = "[image.npy, class.npy]"
        for name, of in (("scalar", torch.mean), ("row", lambda x: x.mean(1))):
            with self.subTest(name):
                torch.export.save(torch.export.export(Own(of).train(), (torch.zeros(7, 6),),
                                                      strict=False), self.path("own.pt2"))
                job = self.job("output own", report__tensorboard="true", data__train=files,
                               data__validation=files)
                job["model.import"] = self.path("own.pt2")
                del job["model.inputs"]
                done = self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir",
                                       name, n=1, job=job)
                self.assert_no_matrix(name, done.text)

    def test_evaluate_own_loss(self):
        """An output beside a loss of the network's own need not have the target's numbers"""
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 300)

            def forward(self, x):
                wide = self.layer(x)
                return {"own": wide.square().mean(), "wide": wide}

        np.save(self.path("number.npy"), self.image[:, 0])
        torch.export.save(torch.export.export(Own().train(), (torch.zeros(7, 6),), strict=False),
                          self.path("own.pt2"))
        files = "[image.npy, number.npy]"
        job = self.job("output own", data__train=files, data__validation=files)
        job["model.import"] = self.path("own.pt2")
        del job["model.inputs"]
        one = ("--local", "--threads", "1", "--device", "cpu", "--run-dir", "own")
        self.run_driver(*one, n=1, job=job)
        done = self.run_driver("--local", "--threads", "1", "--run-dir", "own", "--evaluate", n=1,
                               job=None)
        self.assertIn("validation loss", done.text + done.out)
        self.assertNotRegex(done.text + done.out, "label|precision")

    def test_lost_rank(self):
        """Two ranks go on with the batch of three: the losses are those of one rank"""
        loss = "{image: {name: contrastive, with: text, temperature: 0.2}}"
        want, *_ = self.ours(1, loss)
        job = self.job(loss, cluster__heartbeat_timeout=600, cluster__deadlines__step=600,
                       cluster__min_ranks=2, cluster__replace_timeout=0)
        driver = self.driver("--threads", "1", "--device", "cpu", "--run-dir", "lost", "--inject",
                             "kill:rank1@step7", n=3, job=job)
        ranks = [self.follower("--threads", "1", "--rank", str(k)) for k in (1, 2)]
        for daemon in (driver, ranks[1]):
            self.assert_exit(daemon, dp.FINISHED)
        self.assertEqual(self.events("recovered", "lost")[0]["nranks"], 2)
        with open(self.path("lost", "metrics.csv"), encoding="ascii") as file:
            seen = {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}
        np.testing.assert_allclose([seen[k + 1] for k in range(STEPS)], want, rtol=2e-5)

    def test_refused(self):
        text = "{image: {name: contrastive, with: text}}"
        for more, said in (({"train__accumulate": 2}, "train.accumulate 2 would compare those of "),
                           ({"strategy__shards": 2, "model__sync_batch_norm": "false"},
                            "with strategy.shards each share is computed by itself"),
                           ({"strategy.name": "local_sgd"}, "the ranks' parameters differ")):
            with self.subTest(said):
                driver = self.run_driver("--local", "--threads", "1", "--device", "cpu",
                                         "--run-dir", "refused", n=2, job=self.job(text, **more),
                                         status=dp.USAGE)
                self.assertIn(said, driver.text)
        for text, said in (("{image: contrastive}", "want both outputs of model.import by name"),
                           ("{image: {name: contrastive, with: nothing}}",
                            "nothing is no output of"),
                           ("{image: {name: contrastive, with: scale}}",
                            "takes scale, which is [], want the shape of the other output"),
                           ("{image: {name: contrastive, with: text, scale: text}}",
                            "want one number")):
            with self.subTest(text):
                driver = self.run_driver("--local", "--threads", "1", "--device", "cpu",
                                         "--run-dir", "refused", n=1, job=self.job(text),
                                         status=dp.USAGE)
                self.assertIn(said, driver.text)


if __name__ == "__main__":
    dp.main()

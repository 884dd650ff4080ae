"""Formats of data beside MNIST's: the test writes files of CIFAR, with colour images, and two ranks
train a few steps with them."""

import gzip
import json
import math
import os
import random
import re
import shlex
import struct
import zlib

import dp

RECORDS = 60


def records(n_labels, n_classes, seed):
    """A CIFAR file: the label shows in the red plane."""
    rng = random.Random(seed)
    out = bytearray()
    for _ in range(RECORDS):
        label = rng.randrange(n_classes)
        out += bytes([label % 20, label][-n_labels:])
        out += bytes([2 * label]) * 1024 + rng.randbytes(2048)
    return bytes(out)


def png(width, height, rgb):
    """A file of pixels, three bytes each."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))

    rows = b"".join(b"\0" + rgb[i * 3 * width:(i + 1) * 3 * width] for i in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Data(dp.Case):
    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def train(self, data_format, arch, run):
        job = {"data.format": data_format, "data.path": self.folder, "model.arch": arch,
               "train.global_batch": 16, "train.epochs": 1, "optimizer.lr": 0.01}
        self.run_driver("--local", "--run-dir", run, n=2, job=job)
        epoch, = self.events("epoch", run)
        self.assertEqual(epoch["step"], 4)
        self.assertLess(epoch["validation_loss"], 10)
        return epoch

    def test_cifar10(self):
        self.write("data_batch_1.bin", records(1, 10, 1)[:40 * 3073])
        self.write("data_batch_2.bin.gz", gzip.compress(records(1, 10, 2)[:20 * 3073]))
        self.write("test_batch.bin", records(1, 10, 3))
        for arch in ("mlp", "lenet"):
            epoch = self.train("cifar10", arch, arch)
            self.assertTrue(1.5 < epoch["train_loss"] < 4, epoch)

    def test_cifar100(self):
        self.write("train.bin", records(2, 100, 1))
        self.write("test.bin.gz", gzip.compress(records(2, 100, 2)))
        names = [f"fish_{i}" for i in range(100)]
        self.write("fine_label_names.txt", "\r\n".join(names).encode() + b"\n\n")
        for arch in ("mlp", "lenet"):
            epoch = self.train("cifar100", arch, arch)
            with open(self.path(arch, "checkpoints", "latest", "state.json"),
                      encoding="ascii") as file:
                self.assertEqual(json.load(file)["class_names"], names)
            self.assertTrue(4 < epoch["train_loss"] < 7, epoch)

    def write_rows(self, prefix, n, seed):
        """Features of four numbers, and as targets two sums of them and their signs."""
        rng = random.Random(seed)
        rows = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(n)]
        sums = [[a + b - c, d - 2 * a] for a, b, c, d in rows]
        signs = [[float(s > 0) for s in pair] for pair in sums]
        for name, table in (("x", rows), ("y", sums), ("z", signs)):
            flat = [v for row in table for v in row]
            self.write(f"{prefix}{name}.npy",
                       dp.npy("<f4", (n, len(table[0])), struct.pack(f"<{len(flat)}f", *flat)))

    def test_npy(self):
        """Linear regression and classification by two numbers, on one rank and on three."""
        self.write_rows("", 120, 1)
        self.write_rows("v", 50, 2)
        for loss, y, n, lr, most in (("mse", "y", 1, 0.3, 1e-3), ("mse", "y", 3, 0.3, 1e-3),
                                     ("l1", "y", 3, 0.3, 0.3), ("bce", "z", 3, 2.0, 0.3)):
            run = f"{loss}-{n}"
            self.run_driver("--local", "--run-dir", run, n=n, job={
                "data.format": "npy", "data.path": self.folder, "data.train": f"x.npy,{y}.npy",
                "data.validation": f"vx.npy,v{y}.npy", "model.arch": "mlp", "model.hidden": "[]",
                "model.loss": loss, "train.global_batch": 32, "train.epochs": 20,
                "data.shuffle": "false", "optimizer.lr": lr})
            last = self.events("epoch", run)[-1]
            self.assertLess(last["validation_loss"], most, (loss, last))
            # Several numbers of one sample are no tokens.
            self.assertFalse({"tokens_per_second", "validation_perplexity"} & set(last), last)
            if loss == "bce":
                self.assertGreater(last["validation_accuracy"], 0.85)
            else:  # a real number is near or far, and never correct
                self.assertFalse({"train_accuracy", "validation_accuracy"} & set(last))
        one, three = (self.events("epoch", run)[0] for run in ("mse-1", "mse-3"))
        self.assertAlmostEqual(one["train_loss"], three["train_loss"], delta=1e-5)

    def test_targets_of_bce(self):
        """Sums are no targets from 0 to 1: the job ends as its files are opened."""
        self.write_rows("", 20, 1)
        driver = self.run_driver("--local", n=1, status=dp.USAGE, job={
            "data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
            "model.arch": "mlp", "model.loss": "bce", "train.global_batch": 4})
        self.assertRegex(driver.text, r"training data: npy: .*/y\.npy: offset \d+: a target of "
                                      r"sample \d+ is [-\d.]+, want 0 to 1 with model\.loss: bce")

    def test_the_rank_with_a_bad_number_is_named(self):
        """The sum of gradients is not finite on any rank, but one rank alone has the reason."""
        x = [0.5] * 32
        x[4 * 3 + 1] = float("inf")  # sample 3, which rank 1 has in the first step
        self.write("x.npy", dp.npy("<f4", (8, 4), struct.pack("<32f", *x)))
        self.write("y.npy", dp.npy("|u1", (8,), bytes([0, 1] * 4)))
        job = {"data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
               "model.arch": "mlp", "data.shuffle": "false", "train.global_batch": 4,
               "train.epochs": 1}
        driver = self.run_driver("--local", "--run-dir", "stop", n=2, job=job, status=dp.FAILED)
        self.assertRegex(driver.text, r"dpdriver: error: step 0 was not applied: rank 1 \(.*\): "
                                      r"\S*/x\.npy, row 3: element 1 of \"x\" is inf; want finite "
                                      r"numbers in the training data")
        self.assertRegex(driver.text, "would end alike, with any learning rate: mend what the "
                                      "error names")
        anew, skipping = re.search(r"begin anew from those weights: (.*); or leave such steps out: "
                                   r"(.*)", driver.text).groups()
        self.assertNotIn("a lower rate", driver.text)
        self.assertEqual(self.events("lost", "stop"), [])  # a replacement would do the same
        driver = self.run_driver("--local", "--run-dir", "skip", n=2,
                                 job={**job, "train.on_nonfinite": "skip"})
        self.assertRegex(driver.text, "dpdriver: warning: step 0 was not applied: rank 0: "
                                      "another rank's loss or gradient is not finite")
        self.assertRegex(driver.text, r"dpfollower: warning: step 0 was not applied: rank 1: "
                                      r"\S*/x\.npy, row 3")
        # Both ways that the failed run advises end well: without the step, and with mended data.
        self.assert_exit(self.start(shlex.split(skipping)), dp.FINISHED)
        x[4 * 3 + 1] = 0.25
        self.write("x.npy", dp.npy("<f4", (8, 4), struct.pack("<32f", *x)))
        self.assert_exit(self.start(shlex.split(anew)), dp.FINISHED)

    def test_large_targets_are_told(self):
        """At the start, by --check, and in the error that they lead to; scaled, they are learnt."""
        rng = random.Random(11)
        x = [rng.gauss(0, 1) for _ in range(32)]
        self.write("x.npy", dp.npy("<f4", (32, 1), struct.pack("<32f", *x)))
        self.write("y.npy", dp.npy("<f4", (32,), struct.pack("<32f", *(1e7 + 1e7 * v for v in x))))
        job = {"data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
               "model.arch": "mlp", "model.hidden": "[8]", "model.loss": "mse",
               "train.global_batch": 16, "train.epochs": 9, "optimizer.lr": 0.05}
        told = (r"targets are as large as \S+e\+07, and model\.loss mse is of their squares; want "
                r"data\.targets: \{normalize: auto\}")
        self.assert_exit(self.driver("--check", job=job), dp.FINISHED, "warning: " + told)
        driver = self.run_driver("--run-dir", "run", job=job, status=dp.FAILED)
        self.assertRegex(driver.text, r"error: step \d+ was not applied: .*; " + told)
        self.assertRegex(self.events("warning", "run")[0]["message"], told)
        self.assert_exit(self.driver("--check", job={**job, "data.targets.mean": "[1e7]"}),
                         dp.FINISHED, r"warning: targets are as large as \S+e\+07 when scaled, .*; "
                         r"want a larger data\.targets\.std, or data\.targets")
        driver = self.run_driver("--run-dir", "scaled", job={**job, "data.targets": "auto"})
        self.assertNotIn("warning", driver.text)

    def test_a_bad_number_of_validation_is_named(self):
        """By training and evaluation, and by predictions, which also leave the class out."""
        self.write("x.npy", dp.npy("<f4", (8, 2), struct.pack("<16f", *[0.5] * 16)))
        self.write("v.npy", dp.npy("<f4", (8, 2), struct.pack("<16f", *[0.5] * 13, math.nan, 0, 0)))
        self.write("y.npy", dp.npy("|u1", (8,), bytes([0, 1] * 4)))
        told = r"\S*/v\.npy, row 6: element 1 of \"x\" is nan; want finite numbers in the "
        driver = self.run_driver("--local", "--run-dir", "run", n=2, job={
            "data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
            "data.validation": "v.npy,y.npy", "model.arch": "mlp", "model.hidden": "[4]",
            "train.global_batch": 4, "train.epochs": 2})
        self.assertEqual(len(re.findall("warning: .*" + told, driver.text)), 1)
        warnings = [event["message"] for event in self.events("warning", "run")]
        self.assertRegex(warnings[0], r"validation: the loss of 1 of 8 targets is not finite: "
                                      r"rank 1 \(.*\): " + told + "validation data")
        self.assertEqual(warnings[1], "validation: the loss of 1 of 8 targets is not finite")
        self.assert_exit(self.start([dp.DRIVER, "--evaluate", "--run-dir", "run"]), dp.FINISHED,
                         told)
        self.assert_exit(self.start([dp.DRIVER, "--predict", self.path("out.npy"), "--run-dir",
                                     "run", "--set", "data.validation=v.npy"]), dp.FINISHED,
                         r"--predict: the outputs of 1 of 8 samples are not finite; the first: "
                         + told + "data")
        with open(self.path("out.csv"), encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[7], "6,,")

    def test_ignore_index(self):
        """Rows with the label 255 count nowhere: training goes as it does without them, on one rank
        and on two; a set of nothing else ends the job."""
        rng = random.Random(7)
        rows = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(40)]
        labels = [rng.randrange(3) for _ in rows]
        for name, kept in (("all", range(40)), ("few", [i for i in range(40) if i % 4 != 1])):
            x = [v for i in kept for v in rows[i]]
            y = [255 if i % 4 == 1 else labels[i] for i in kept]
            self.write(f"{name}x.npy", dp.npy("<f4", (len(y), 4), struct.pack(f"<{len(x)}f", *x)))
            self.write(f"{name}y.npy", dp.npy("|u1", (len(y),), bytes(y)))
        self.write("none.npy", dp.npy("|u1", (40,), bytes([255]) * 40))
        job = {"data.format": "npy", "data.path": self.folder, "model.arch": "mlp",
               "model.hidden": "[]", "train.ignore_index": 255, "train.global_batch": 40,
               "train.epochs": 5, "model.init.name": "normal", "optimizer.lr": 0.5}
        losses = []
        for n, name in ((1, "all"), (2, "all"), (1, "few")):
            run = f"{name}-{n}"
            self.run_driver("--local", "--run-dir", run, n=n, job={
                **job, "data.train": f"{name}x.npy,{name}y.npy",
                "data.validation": f"{name}x.npy,{name}y.npy"})
            losses.append([event[key] for event in self.events("epoch", run) for key in (
                "train_loss", "train_accuracy", "validation_loss", "validation_accuracy")])
        for one, two, few in zip(*losses):
            self.assertAlmostEqual(one, two, delta=1e-5)
            self.assertAlmostEqual(one, few, delta=1e-5)
        driver = self.run_driver("--local", "--run-dir", "none", n=2, status=dp.FAILED,
                                 job={**job, "data.train": "allx.npy,none.npy"})
        self.assertIn("epoch 1 trained nothing: all its labels are ignored; want labels other than "
                      "train.ignore_index, 255", driver.text)

    def test_layout(self):
        """Pictures [N,C,H,W] with data.layout nchw train, validate and predict as their
        transposition does, bit for bit, normalised by channel; without the key a warning names
        it."""
        rng = random.Random(8)
        n, c, pixels = 24, 3, 64
        planes = [[[rng.gauss(k, 1 + k) for _ in range(pixels)] for k in range(c)]
                  for _ in range(n)]
        turned = [v for picture in planes for plane in picture for v in plane]
        plain = [picture[k][i] for picture in planes for i in range(pixels) for k in range(c)]
        for name, shape, values in (("nchw", (n, c, 8, 8), turned), ("nhwc", (n, 8, 8, c), plain)):
            self.write(f"{name}.npy", dp.npy("<f4", shape, struct.pack(f"<{len(values)}f",
                                                                       *values)))
        self.write("y.npy", dp.npy("|u1", (n,), bytes(i % 3 for i in range(n))))
        runs = {}
        for layout in ("nchw", "nhwc"):
            self.run_driver("--local", "--run-dir", layout, n=2, job={
                "data.format": "npy", "data.path": self.folder, "data.layout": layout,
                "data.train": f"{layout}.npy,y.npy", "data.validation": f"{layout}.npy,y.npy",
                "data.normalize": "auto", "model.arch": "resnet18", "model.stem": "cifar",
                "train.global_batch": 8, "train.epochs": 1, "optimizer.lr": 0.01})
            self.assertEqual(self.events("warning", layout), [])
            self.assert_exit(self.start([dp.DRIVER, "--predict", f"{layout}-out.npy", "--run-dir",
                                         layout]), dp.FINISHED)
            with open(self.path(f"{layout}-out.npy"), "rb") as file:
                runs[layout] = file.read(), [
                    (event["train_loss"], event["validation_loss"], event["validation_accuracy"])
                    for event in self.events("epoch", layout)]
        self.assertEqual(runs["nchw"], runs["nhwc"])
        self.run_driver("--local", "--run-dir", "told", n=2, job={
            "data.format": "npy", "data.path": self.folder, "data.train": "nchw.npy,y.npy",
            "model.arch": "mlp", "train.global_batch": 8, "train.epochs": 1})
        warning, = self.events("warning", "told")
        self.assertIn("channels; if they have 3, set data.layout: nchw", warning["message"])

    def test_normalize_auto(self):
        """The driver measures the training set; job.yaml has the numbers, and the run goes on with
        them, also where the job file says auto again."""
        content = records(1, 10, 1)
        self.write("data_batch_1.bin", content)
        self.write("test_batch.bin", records(1, 10, 2))
        job = {"data.format": "cifar10", "data.path": self.folder, "data.normalize": "auto",
               "model.arch": "mlp", "train.global_batch": 8, "optimizer.lr": 0.01}
        self.run_driver("--local", "--run-dir", "run", n=2, job={**job, "train.epochs": 1})
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            text = file.read()
        images = [content[at + 1:at + 3073] for at in range(0, len(content), 3073)]
        for c, seen in enumerate(re.search(r"mean: \[(.*)\]", text).group(1).split(", ")):
            channel = [v / 255 for image in images for v in image[1024 * c:1024 * (c + 1)]]
            self.assertAlmostEqual(float(seen), sum(channel) / len(channel), delta=1e-5)
        text = re.sub(r"mean: \[[0-9.]*", "mean: [0.125", text)  # as if measured otherwise
        with open(self.path("run", "job.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        self.run_driver("--local", "--run-dir", "run", "--resume", n=2,
                        job={**job, "train.epochs": 2})
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            self.assertIn("mean: [0.125, ", file.read())
        self.assertEqual(len(self.events("epoch", "run")), 2)

    def test_normalize_auto_of_a_named_run(self):
        """The run that goes on is found by its name, if the job file needs --set to be a job."""
        self.write("data_batch_1.bin", records(1, 10, 1))
        self.write("test_batch.bin", records(1, 10, 2))
        self.write("job.yaml", b"name: named\n")
        job = {"data.format": "cifar10", "data.path": self.folder, "data.normalize": "auto",
               "model.arch": "mlp", "train.global_batch": 8, "optimizer.lr": 0.01}
        args = ("--local", "--job", "job.yaml")
        self.run_driver(*args, n=2, job={**job, "train.epochs": 1})
        name = self.path("runs", "named", "job.yaml")
        with open(name, encoding="utf-8") as file:
            text = re.sub(r"mean: \[[0-9.]*", "mean: [0.125", file.read())
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        self.run_driver(*args, "--resume", n=2, job={**job, "train.epochs": 2})
        with open(name, encoding="utf-8") as file:
            self.assertIn("mean: [0.125, ", file.read())

    def test_normalize_features(self):
        """Of npy files likewise, of as many features as there may be; one that never changes is
        named.  Labels that the job ignores are no reason to refuse the set."""
        rows = [[1e6 + 2 * i, i % 5, *(i * k / 7 for k in range(1, 255))] for i in range(40)]
        for name, columns in (("x", rows), ("c", [[*row[:2], 3.0] for row in rows])):
            flat = [v for row in columns for v in row]
            self.write(f"{name}.npy", dp.npy("<f8", (40, len(columns[0])),
                                             struct.pack(f"<{len(flat)}d", *flat)))
        self.write("y.npy", dp.npy("|u1", (40,), bytes(i % 2 for i in range(40))))
        job = {"data.format": "npy", "data.path": self.folder, "data.normalize": "auto",
               "model.arch": "mlp", "model.hidden": "[]", "train.global_batch": 40,
               "train.epochs": 1}
        self.run_driver("--local", "--run-dir", "run", n=2, job=job)
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("mean: [1000039, 2, ", text)
        self.assertIn("std: [23.0867928, 1.41421356, ", text)
        daemon = self.driver("--check", job={**job, "data.train": "c.npy,y.npy"}, n=1)
        self.assert_exit(daemon, dp.USAGE, r"feature 2 is the same in all samples; leave it out")
        self.write("i.npy", dp.npy("|i1", (40,), bytes(255 if i % 4 else 1 for i in range(40))))
        ignoring = {**job, "data.train": "x.npy,i.npy", "train.ignore_index": -1}
        self.assert_exit(self.driver("--check", job=ignoring, n=1), dp.FINISHED)

    def test_augmentation_after_a_kill(self):
        """The driver is killed within an epoch of drawn crops and flips, and goes on from a
        checkpoint within it: each epoch's losses are those of a run that nobody disturbed, bit for
        bit."""
        self.write("data_batch_1.bin", records(1, 10, 1))
        self.write("test_batch.bin", records(1, 10, 2))
        job = {"data.format": "cifar10", "data.path": self.folder, "model.arch": "mlp",
               "data.augment.crop": 4, "data.augment.flip": "true", "train.global_batch": 8,
               "train.epochs": 3, "optimizer.lr": 0.01, "optimizer.momentum": 0.9,
               "checkpoint.every_steps": 1}
        self.run_driver("--local", "--run-dir", "whole", n=2, job=job)
        self.run_driver("--local", "--run-dir", "plain", n=2, job={**job, "data.augment.crop": 0})
        driver = self.driver("--local", "--run-dir", "cut", *dp.freezing(1, 10, 14), n=2,
                             job={**job, **dp.PATIENT})
        # The next one begins at the end of a step if none is under way.  One is until its event is
        # there; the link comes earlier.
        dp.wait_for("the end of the checkpoint of step 8, or a later one",
                    lambda: any(event["step"] >= 8 for event in self.events("checkpoint", "cut")))
        self.wake(self.local_pid(1), run="cut")
        self.wait_checkpoint("cut", 9)
        driver.kill()
        self.run_driver("--local", "--run-dir", "cut", "--resume", n=2, job=job)
        whole, plain, cut = ([(event["step"], event["train_loss"], event["validation_loss"])
                              for event in self.events("epoch", run)]
                             for run in ("whole", "plain", "cut"))
        self.assertEqual(cut, whole)
        for augmented, other in zip(whole, plain):
            self.assertNotEqual(augmented[1], other[1])

    def resume(self, folder, status=dp.FINISHED):
        return self.run_driver("--run-dir", "run", "--resume", n=1, status=status, job={
            "data.path": self.path(folder), "train.epochs": 1 + len(self.events("epoch", "run"))})

    def test_images(self):
        """Folders of pictures, one of which is cut short: it ends the job, or is left out by both
        ranks, and then one rank trains to the same loss as two."""
        rng = random.Random(4)
        for folder in ("train", "val"):
            for label, name in enumerate(("cat", "dog")):
                os.makedirs(self.path(folder, name))
                for i in range(12):
                    pixel = bytes([200 * label + rng.randrange(50)]) * 3
                    self.write(f"{folder}/{name}/{i}.png", png(20, 16, pixel * 320))
        with open(self.path("train/dog/7.png"), "rb+") as file:
            file.truncate(60)
        job = {"data.format": "images", "data.path": self.folder, "data.size": 8,
               "data.augment.random_resized_crop": "true", "model.arch": "mlp",
               "train.global_batch": 8, "train.epochs": 2, "optimizer.lr": 0.01}
        driver = self.run_driver("--local", n=2, status=dp.FAILED, job=job)
        self.assertRegex(driver.text, r"train/dog/7\.png: as a PNG file: ")
        losses = []
        for n in (1, 2):
            self.run_driver("--local", "--run-dir", f"of-{n}", n=n,
                            job={**job, "data.on_corrupt": "skip"})
            losses.append([event["train_loss"] for event in self.events("epoch", f"of-{n}")])
            self.assertEqual([event["left_out"] for event in self.events("epoch", f"of-{n}")],
                             [1] * len(losses[-1]))
            warnings = [event["message"] for event in self.events("warning", f"of-{n}")]
            self.assertEqual(sum("1 of 24 samples could not be read" in w for w in warnings),
                             len(losses[-1]))
        for one, two in zip(*losses):
            self.assertAlmostEqual(one, two, delta=1e-5)
        self.assertLess(losses[0][1], losses[0][0])
        for i in range(24):
            with open(self.path("train", ("cat", "dog")[i % 2], f"{i // 2}.png"), "rb+") as file:
                file.truncate(60)
        driver = self.run_driver("--local", "--run-dir", "none", n=2, status=dp.FAILED,
                                 job={**job, "data.on_corrupt": "skip"})
        self.assertIn("no sample of epoch 1 could be read (data.on_corrupt: skip)", driver.text)

    def model_of(self, run):
        with open(self.path(run, "checkpoints/latest/model.safetensors"), "rb") as file:
            return file.read()

    def test_damaged_picture_of_a_follower(self):
        """A follower reads a damaged picture, in training or in validation: the job ends with its
        error, and the state that rank 0 holds is saved.  In validation all is trained.  In a step
        rank 0 may hold one step less than the follower: its own part of the sum may be under way
        when the job ends.  It also saves the state if its part of the step takes longer than the
        others need to leave.  The job goes on once the picture is mended, as if nothing had
        happened."""
        for folder in ("train", "val"):
            os.makedirs(self.path(folder, "cat"))
            for i in range(24):
                self.write(f"{folder}/cat/{i:02}.png", png(8, 8, bytes([10 * i]) * 192))
        job = {"data.format": "images", "data.path": self.folder, "data.size": 8,
               "data.shuffle": "false", "model.arch": "mlp", "model.hidden": 4,
               "train.global_batch": 8, "train.epochs": 1, "optimizer.lr": 0.01}
        self.run_driver("--local", "--run-dir", "whole", n=2, job=job)
        held_up = ("--inject", "delay:rank0@reduce1:1500ms")
        for run, name, phase, args, saved in (
                ("load", "train/cat/22.png", "load", (), (1, 2)),
                ("held-up", "train/cat/22.png", "load", held_up, (1, 2)),
                ("validate", "val/cat/22.png", "validate", (), (3,))):
            with self.subTest(run=run):
                with open(self.path(name), "rb") as file:
                    whole = file.read()
                self.write(name, whole[:60])
                driver = self.run_driver("--local", "--run-dir", run, *args, n=2, status=dp.FAILED,
                                         job=job)
                self.write(name, whole)
                error, = self.events("error", run)
                self.assertEqual((error["rank"], error["phase"]), (1, phase))
                self.assertIn(f"{self.path(name)}: as a PNG file: ", error["message"])
                self.assertEqual(driver.text.count("dpdriver: error: "), 1, driver.text)
                self.assertFalse(self.events("lost", run) + self.events("recovered", run))
                checkpoint, = self.events("checkpoint", run)
                self.assertIn(checkpoint["step"], saved)
                if run == "held-up":
                    self.assertIn("rank 0 saves its state when it has done ", driver.text)
                self.run_driver("--local", "--run-dir", run, "--resume", n=2, job=job)
                self.assertEqual(self.events("done", run)[0]["step"], 3)
                self.assertEqual(*(self.model_of(name) for name in ("whole", run)))

    def test_slow_data(self):
        """Decoding takes far longer than training: the epoch's line and event tell for how long
        training waited for data, and which rank did."""
        noise = png(900, 900, random.Random(6).randbytes(3 * 900 * 900))
        os.makedirs(self.path("train/cat"))
        for i in range(48):  # four are ready before the first step
            self.write(f"train/cat/{i}.png", noise)
        job = {"data.format": "images", "data.path": self.folder, "data.size": 4,
               "data.workers": 1, "data.validation": "none", "model.arch": "mlp",
               "model.hidden": 4, "train.global_batch": 1, "train.epochs": 1}
        driver = self.run_driver("--run-dir", "slow", job=job)
        self.assertRegex(driver.text,
                         r"waiting for data \d+ % of the time on rank 0: "
                         r"(set data\.workers higher|the reading threads get too little of)")
        epoch, = self.events("epoch", "slow")
        self.assertGreater(epoch["data_wait_share"], 0.1)
        self.assertGreater(epoch["data_wait_ms_median"], 0)
        self.assertEqual(epoch["data_wait_rank"], 0)

    def test_moved(self):
        """A run goes on with its data from another folder, and refuses other data there: such a
        start changes nothing."""
        for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
            os.mkdir(self.path(folder))
            self.write(f"{folder}/data_batch_1.bin", records(1, 10, seed))
            self.write(f"{folder}/test_batch.bin", records(1, 10, 3))
        self.run_driver("--run-dir", "run", job={
            "data.format": "cifar10", "data.path": self.path("a"), "model.arch": "mlp",
            "train.global_batch": 16, "train.epochs": 1})
        fingerprint = self.events("start", "run")[0]["data"]
        self.assertRegex(fingerprint, "^[0-9a-f]{32}$")
        with open(self.path("run/checkpoints/latest/state.json"), encoding="ascii") as file:
            self.assertEqual(json.load(file)["data"], fingerprint)
        self.resume("b")
        self.assertEqual(self.events("start", "run")[1]["data"], fingerprint)
        driver = self.resume("c", dp.USAGE)
        self.assertRegex(driver.text, r"step-00000008: was trained with other data: .*"
                         rf"{fingerprint[:8]}.*which were in {self.path('b')}, or start a new run")
        with open(self.path("run/job.yaml"), encoding="utf-8") as file:
            self.assertIn(self.path("b"), file.read())
        self.assertEqual(len(self.events("epoch", "run")), 2)


if __name__ == "__main__":
    dp.main()

"""train.average: the averaged weights are those that checkpoints give by hand; they are validated,
resumed and recovered like the trained ones."""

import array
import json
import os
import random
import struct

import dp
from dp import DRIVER, FINISHED, USAGE

# 8 steps an epoch.
JOB = {"data.samples": 512, "data.validation_samples": 251, "train.global_batch": 64,
       "train.epochs": 3, "optimizer.lr": 0.3, "optimizer.momentum": 0.9, "checkpoint.keep": 9}
EMA = {**JOB, "train.average.name": "ema", "train.average.decay": 0.75}
SWA = {**JOB, "train.average.name": "swa", "train.average.start": 1}


class Average(dp.Case):
    def train(self, *args, job=None, run="run"):
        return self.run_driver("--run-dir", run, *args, job=job)

    def tensors(self, step, name, run="run"):
        """The float32 tensors of a safetensors file."""
        path = self.path(run, "checkpoints", f"step-{step:08}", name + ".safetensors")
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        return {key: array.array("f", data[slice(*about["data_offsets"])])
                for key, about in header.items() if about.get("dtype") == "F32"}

    def assert_near(self, seen, want):
        """The tensors are equal but for rounding."""
        self.assertEqual(seen.keys(), want.keys())
        for key, values in want.items():
            for x, y in zip(seen[key], values, strict=True):
                self.assertAlmostEqual(x, y, delta=1e-6)

    def mix(self, parts):
        """The sum of tensors, by (factor, tensors)."""
        return {key: [sum(f * t[key][i] for f, t in parts) for i in range(len(values))]
                for key, values in parts[0][1].items()}

    def tensors_of(self, *steps):
        return [self.tensors(step, "model") for step in steps]

    def test_mean(self):
        """Of epochs 2 and 3; before that the averaged weights are the trained ones."""
        self.train(job=SWA)
        first, second, third = self.tensors_of(8, 16, 24)
        self.assertEqual(self.tensors(8, "model_average"), first)
        self.assertEqual(self.tensors(16, "model_average"), second)
        self.assert_near(self.tensors(24, "model_average"),
                         self.mix([(0.5, second), (0.5, third)]))

    def course(self, now, then, last):
        """How a cosine of so many steps is told that had reached its end."""
        return (rf"schedule cosine is now laid out over {now} steps, not {then}: step {then + 1} "
                rf"has the rate 0\.15, where it would have had 0, and step {then} had {last}; "
                rf"--set schedule\.total_steps={then} keeps the former course")

    def test_longer_job(self):
        """A mean that has begun keeps its weights, and their number, in a run that goes on with
        more epochs; what that does to mean and rate is told, and a former course can be kept."""
        job = {**SWA, "train.epochs": 2, "train.average.start": 0.5, "schedule.name": "cosine",
               "checkpoint.keep": 99}
        self.train(job=job, run="long")
        longer = {**job, "train.epochs": 4}
        told = ("resume: " + self.course(32, 16, r"0\.0028\d+") + r"; the mean of train\.average "
                "began with the weights after step 16 and goes on")
        self.assertRegex(self.train("--check", "--resume", job=longer, run="long").text, told)
        driver = self.train("--resume", job=longer, run="long")
        self.assertRegex(driver.text, told)
        self.assertRegex(self.events("warning", "long")[-1]["message"], told)
        self.assertRegex(driver.out, r"(?m)^next +\S.* train\.epochs=8   # " +
                         self.course(64, 32, r"0\.0007\d+") + "$")
        parts = [self.tensors(step, "model", "long") for step in (16, 24, 32)]
        self.assert_near(self.tensors(32, "model_average", "long"),
                         self.mix([(1 / 3, part) for part in parts]))

        kept = {**job, "train.epochs": 6, "schedule.total_steps": 32}
        again = self.train("--resume", job=kept, run="long")
        self.assertNotIn("laid out", again.text)
        self.assertIn("from step 33 on the learning rate is 0", again.text)
        with open(self.path("long", "job.yaml")) as file:
            self.assertIn("  total_steps: 32\n", file.read())

    def test_mean_of_a_part(self):
        """Every 4 updates of the last three eighths: 24 * 5/8 = 15; those after 19 and 23 count."""
        self.train(job={**SWA, "train.average.start": 0.625, "train.average.every": 4,
                        "checkpoint.every_steps": 1, "checkpoint.keep": 99}, run="part")
        names = os.listdir(self.path("part", "checkpoints"))
        self.assertIn("step-00000024", names)
        steps = [step for step in (19, 23) if f"step-{step:08}" in names]
        if len(steps) == 2:  # a checkpoint may be left out while another is being written
            parts = [(0.5, self.tensors(step, "model", "part")) for step in steps]
            self.assert_near(self.tensors(24, "model_average", "part"), self.mix(parts))

    def test_moving(self):
        """An epoch is 8 updates, each of which the average sees."""
        self.train(job={**EMA, "train.average.every": 8})
        first, second, third = self.tensors_of(8, 16, 24)
        self.assertEqual(self.tensors(8, "model_average"), first)
        self.assert_near(self.tensors(24, "model_average"),
                         self.mix([(0.5625, first), (0.1875, second), (0.25, third)]))

    def test_validated(self):
        """By the events, the log, and --evaluate of either weights."""
        driver = self.train(job=EMA)
        last = self.events("epoch", "run")[-1]
        self.assertNotEqual(last["average_validation_loss"], last["validation_loss"])
        self.assertRegex(driver.text, r"epoch 3/3: .*averaged weights loss \d\.\d{4}, accuracy")
        for which, key in (("trained", "validation_loss"), ("average", "average_validation_loss")):
            for ranks in (["--nranks", "1"], ["--nranks", "2", "--local"]):
                seen = self.start([DRIVER, "--evaluate", "--run-dir", "run", "--weights", which,
                                   "--log-format", "json", *ranks])
                self.assert_exit(seen, FINISHED)
                seen = json.loads(seen.out)
                self.assertAlmostEqual(seen["validation_loss"], last[key], delta=1e-6)
                self.assertAlmostEqual(seen["average_validation_loss"],
                                       last["average_validation_loss"], delta=1e-6)
        self.train(job=JOB, run="plain")
        self.assert_exit(self.start([DRIVER, "--evaluate", "--run-dir", "plain", "--weights",
                                     "average"]), USAGE, r"it has no averaged weights")
        self.assertNotIn("average_validation_loss", self.events("epoch", "plain")[-1])

    def test_training_is_the_same(self):
        """Averaging, and validating the average, moves no trained weight."""
        self.train(job=EMA)
        self.train(job=JOB, run="plain")
        files, plain = self.weights("run"), self.weights("plain")
        self.assertEqual(sorted(set(files) - set(plain)), ["model_average.safetensors"])
        self.assertEqual({name: files[name] for name in plain}, plain)

    def test_half(self):
        """With working copies of the weights, which follow the exchange and back."""
        self.train(job={**EMA, "precision": "bfloat16"})
        self.train(job={**JOB, "precision": "bfloat16"}, run="plain")
        files, plain = self.weights("run"), self.weights("plain")
        self.assertEqual({name: files[name] for name in plain}, plain)

    def test_resumed(self):
        """Bit for bit, from a checkpoint in which the average is as old as the weights."""
        self.train(job=EMA, run="whole")
        self.driver("--run-dir", "cut", "--inject", "kill:rank0@step20", job=EMA).wait_exit()
        self.train("--resume", job=EMA, run="cut")
        self.assertEqual(self.weights("cut"), self.weights("whole"))

    def test_best(self):
        self.train(job={**EMA, "train.best.metric": "average_validation_loss"})
        epochs = {event["step"]: event["average_validation_loss"]
                  for event in self.events("epoch", "run")}
        best = min(epochs, key=epochs.get)
        self.assertEqual(os.readlink(self.path("run", "checkpoints", "best")), f"step-{best:08}")

    def test_losses(self):
        """A rank or the driver lost in a step or in a validation changes no bit of the average."""
        self.lose((None, "kill:rank1@update18", "kill:rank1@validate2", "kill:rank0@validate2"),
                  EMA, 24)

    def lose(self, points, job, step):
        port = dp.free_port()
        lead = ("--port", str(port))
        for point in points:
            with self.subTest(point):
                run = str(point).replace(":", "-")
                inject = ["--inject", point] if point else []
                follower = self.follower("--rank", "1", port=port)
                driver = self.driver(*lead, "--run-dir", run, *inject, n=2, job=job, port=False)
                if point and "rank0" in point:
                    driver.wait_exit()
                    driver = self.driver(*lead, "--run-dir", run, "--resume", n=2, job=job,
                                         port=False)
                elif point:
                    follower.wait_exit()
                    follower = self.follower("--rank", "1", port=port)
                self.assert_exit(driver, FINISHED)
                self.assert_exit(follower, FINISHED)
                self.assertEqual(self.weights(run, f"step-{step:08}"),
                                 self.weights("None", f"step-{step:08}"))

    def write_norms(self):
        """A job whose network has batch norm, and its data: rows of three features in order."""
        rng = random.Random(5)
        rows = [[rng.gauss(3 * k, 1 + k) for k in range(3)] for _ in range(70)]
        flat = [v for row in rows for v in row]
        self.write_npy("x.npy", "<f4", "(70, 3)", struct.pack("<210f", *flat))
        self.write_npy("y.npy", "|u1", "(70,)", bytes(rng.randrange(2) for _ in rows))
        return [flat[3 * i:3 * i + 3] for i in range(70)], {
            "data.format": "npy", "data.path": self.folder, "data.validation": "x.npy,y.npy",
            "data.shuffle": "false", "train.global_batch": 16, "train.epochs": 4,
            "train.average.name": "swa", "train.average.start": 1, "checkpoint.keep": 9,
            "optimizer.lr": 0.1, "model.arch": "layers",
            "model.layers": "[batch_norm, {linear: {units: 4}}, batch_norm, relu, "
                            "{linear: {units: 2}}]"}

    def write_npy(self, name, descr, shape, data):
        with open(self.path(name), "wb") as file:
            file.write(dp.npy(descr, shape, data))

    def update_bn(self, rows, weights, n_batches):
        """The result of torch.optim.swa_utils.update_bn over whole batches of 16, in order."""
        def moments(batch):
            n = len(batch)
            means = [sum(column) / n for column in zip(*batch)]
            return means, [sum((v - m) ** 2 for v in column) / n
                           for column, m in zip(zip(*batch), means)]

        out = [[0.0] * 3, [0.0] * 3, [0.0] * 4, [0.0] * 4]
        for k in range(n_batches):
            batch = rows[16 * k:16 * k + 16]
            means, variances = moments(batch)
            hidden = [[sum(weights["1.weight"][3 * u + i] *
                           ((row[i] - means[i]) / (variances[i] + 1e-5) ** 0.5 *
                            weights["0.weight"][i] + weights["0.bias"][i]) for i in range(3)) +
                       weights["1.bias"][u] for u in range(4)] for row in batch]
            for to, values in zip(out, (means, [v * 16 / 15 for v in variances],
                                        moments(hidden)[0],
                                        [v * 16 / 15 for v in moments(hidden)[1]])):
                for i, v in enumerate(values):
                    to[i] += v / n_batches
        return dict(zip(("0.running_mean", "0.running_var", "2.running_mean", "2.running_var"),
                        out))

    def test_statistics(self):
        """Those of batch norm are computed anew, from whole batches, by any number of ranks; before
        the mean begins they are the trained ones."""
        rows, job = self.write_norms()
        for n, sync, samples in ((1, "true", 0), (3, "true", 0), (2, "false", 20)):
            run = f"{n}-{sync}-{samples}"
            self.run_driver("--local", "--run-dir", run, n=n, job={
                **job, "model.sync_batch_norm": sync, "train.average.statistics_samples": samples})
            self.assertEqual(self.tensors(5, "model_average", run), self.tensors(5, "model", run))
            for step in (10, 20):
                seen = self.tensors(step, "model_average", run)
                want = self.update_bn(rows, seen, 2 if samples else 4)
                for key, values in want.items():
                    self.assertNotEqual(seen[key], self.tensors(step, "model", run)[key])
                    for x, y in zip(seen[key], values, strict=True):
                        self.assertAlmostEqual(x, y, delta=1e-6 * max(1, abs(y)))
            last = self.events("epoch", run)[-1]
            seen = self.start([DRIVER, "--evaluate", "--run-dir", run, "--weights", "average",
                               "--log-format", "json", "--nranks", "1"])
            self.assert_exit(seen, FINISHED)
            self.assertAlmostEqual(json.loads(seen.out)["validation_loss"],
                                   last["average_validation_loss"], delta=1e-6)

    def test_losses_in_statistics(self):
        """A rank or the driver lost while statistics are computed changes no bit of them."""
        self.lose((None, "kill:rank1@statistics3", "kill:rank0@statistics3"), self.write_norms()[1],
                  20)

    def test_divided(self):
        """Each rank averages its own shards: the same bits, after losses and a resume, too."""
        self.run_driver("--local", "--run-dir", "None", n=2, job=EMA)
        want = self.events("epoch", "None")[-1]["average_validation_loss"]
        for zero, point in ((1, "kill:rank1@validate2"), (2, "kill:rank0@validate2"),
                            (3, "kill:rank1@update18")):
            self.lose((point,), {**EMA, "strategy.zero": zero}, 24)
            seen = self.events("epoch", point.replace(":", "-"))[-1]
            self.assertEqual(seen["average_validation_loss"], want)

    def test_moving_with_norms(self):
        """A moving average has the trained statistics."""
        job = {**self.write_norms()[1], "train.average.name": "ema"}
        del job["train.average.start"]
        self.train(job=job)
        average, model = (self.tensors(20, name) for name in ("model_average", "model"))
        self.assertEqual(average.keys(), model.keys())
        for key in ("0.running_mean", "0.running_var", "2.running_mean", "2.running_var"):
            self.assertEqual(average[key], model[key])


if __name__ == "__main__":
    dp.main()

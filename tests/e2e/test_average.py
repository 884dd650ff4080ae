"""train.average: the averaged weights are those that checkpoints give by hand; they are validated,
resumed and recovered like the trained ones."""

import array
import json
import os
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

    def bytes_of(self, run, step=24):
        folder = self.path(run, "checkpoints", f"step-{step:08}")
        out = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                with open(os.path.join(folder, name), "rb") as file:
                    out[name] = file.read()
        return out

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

    def weights(self, *steps):
        return [self.tensors(step, "model") for step in steps]

    def test_mean(self):
        """Of epochs 2 and 3; before that the averaged weights are the trained ones."""
        self.train(job=SWA)
        first, second, third = self.weights(8, 16, 24)
        self.assertEqual(self.tensors(8, "model_average"), first)
        self.assertEqual(self.tensors(16, "model_average"), second)
        self.assert_near(self.tensors(24, "model_average"),
                         self.mix([(0.5, second), (0.5, third)]))

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
        first, second, third = self.weights(8, 16, 24)
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
        files, plain = self.bytes_of("run"), self.bytes_of("plain")
        self.assertEqual(sorted(set(files) - set(plain)), ["model_average.safetensors"])
        self.assertEqual({name: files[name] for name in plain}, plain)

    def test_half(self):
        """With working copies of the weights, which follow the exchange and back."""
        self.train(job={**EMA, "precision": "bfloat16"})
        self.train(job={**JOB, "precision": "bfloat16"}, run="plain")
        files, plain = self.bytes_of("run"), self.bytes_of("plain")
        self.assertEqual({name: files[name] for name in plain}, plain)

    def test_resumed(self):
        """Bit for bit, from a checkpoint in which the average is as old as the weights."""
        self.train(job=EMA, run="whole")
        self.driver("--run-dir", "cut", "--inject", "kill:rank0@step20", job=EMA).wait_exit()
        self.train("--resume", job=EMA, run="cut")
        self.assertEqual(self.bytes_of("cut"), self.bytes_of("whole"))

    def test_best(self):
        self.train(job={**EMA, "train.best.metric": "average_validation_loss"})
        epochs = {event["step"]: event["average_validation_loss"]
                  for event in self.events("epoch", "run")}
        best = min(epochs, key=epochs.get)
        self.assertEqual(os.readlink(self.path("run", "checkpoints", "best")), f"step-{best:08}")

    def test_losses(self):
        """A rank or the driver lost in a step or in a validation changes no bit of the average."""
        port = dp.free_port()
        lead = ("--port", str(port))
        for point in (None, "kill:rank1@update18", "kill:rank1@validate2", "kill:rank0@validate2"):
            with self.subTest(point):
                run = str(point).replace(":", "-")
                inject = ["--inject", point] if point else []
                follower = self.follower("--rank", "1", port=port)
                driver = self.driver(*lead, "--run-dir", run, *inject, n=2, job=EMA, port=False)
                if point and "rank0" in point:
                    driver.wait_exit()
                    driver = self.driver(*lead, "--run-dir", run, "--resume", n=2, job=EMA,
                                         port=False)
                elif point:
                    follower.wait_exit()
                    follower = self.follower("--rank", "1", port=port)
                self.assert_exit(driver, FINISHED)
                self.assert_exit(follower, FINISHED)
                self.assertEqual(self.bytes_of(run), self.bytes_of("None"))

    def test_refused(self):
        """A mean of weights needs statistics of its own."""
        layers = ("[{conv: {channels: 4, kernel: 3}}, batch_norm, relu, flatten, "
                  "{linear: {units: 10}}]")
        with open(self.path("job.yaml"), "w", encoding="ascii") as file:
            file.write("model: {arch: layers, layers: " + layers + "}\ndata: {format: digits}\n")
        daemon = self.driver("--job", "job.yaml", "--set", "train.average.name=swa", job=None)
        self.assert_exit(daemon, USAGE, r".*swa, and .*running statistics \(1\.running_mean\)")
        daemon = self.driver(job={**EMA, "strategy.zero": 1}, n=1)
        self.assert_exit(daemon, USAGE, r"train\.average keeps .*strategy\.zero is 1")
        daemon = self.driver("--job", "job.yaml", "--run-dir", "bn", *dp.sets(EMA), job=None)
        self.assert_exit(daemon, FINISHED)
        average = self.tensors(24, "model_average", "bn")
        self.assertEqual(average["1.running_mean"],
                         self.tensors(24, "model", "bn")["1.running_mean"])
        self.assertEqual(average.keys(), self.tensors(24, "model", "bn").keys())


if __name__ == "__main__":
    dp.main()

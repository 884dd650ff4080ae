"""Training that looks after itself: train.overfit, --find-lr, train.on_spike, and
the requests --set-live, --checkpoint-now, --pause and --go."""

import csv
import hashlib
import json
import os
import random
import re
import shutil
import struct

import dp
from dp import FAILED, FINISHED, REFUSED, STOPPED, USAGE

JOB = {**dp.LIGHT, "data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64}


class Loops(dp.Case):
    def train(self, *args, job=None, n=2, run="run", **kwargs):
        return self.run_driver(*(["--local"] if n > 1 else []), *dp.EXACT, "--run-dir", run, *args,
                               n=n, job={**JOB, **(job or {})}, **kwargs)


class Overfit(Loops):
    JOB = {"train.overfit": 40, "train.epochs": 60}

    def test_same_samples(self):
        """Each step trains the 40 samples, validation sees the same ones, and all are learnt."""
        driver = self.train(job=self.JOB)
        self.assertRegex(driver.text, "of 512 training samples only the first 40 are trained")
        epochs = self.events("epoch", "run")
        self.assertEqual([epoch["step"] for epoch in epochs], list(range(1, 61)))
        for epoch, after in zip(epochs[::20], epochs[1::20]):
            self.assertAlmostEqual(epoch["validation_loss"], after["train_loss"], delta=1e-5)
        self.assertEqual(epochs[-1]["validation_accuracy"], 1)
        self.assertEqual(len(self.events("warning", "run")), 1)

    def test_order_and_resume(self):
        """Steps take the samples in order, on any number of ranks, after a resume, too."""
        job = {"train.overfit": 40, "train.global_batch": 16, "train.epochs": 4}
        self.train(job=job, n=1)
        self.assertEqual(self.events("done", "run")[0]["step"], 12)
        self.train(job={**job, "data.shuffle": "false"}, n=1, run="order")
        self.assertEqual(self.weights("order"), self.weights("run"))
        self.train(job={**job, "train.max_steps": 5}, n=1, run="cut")
        self.train("--resume", job={**job, "train.max_steps": 0}, n=1, run="cut")
        self.assertEqual(self.weights("cut"), self.weights("run"))
        self.train(job=job, n=3, run="three")
        for one, three in zip(self.events("epoch", "run"), self.events("epoch", "three")):
            self.assertAlmostEqual(one["train_loss"], three["train_loss"], delta=1e-5)

    def test_refused(self):
        driver = self.train(job={"train.overfit": 513}, n=1, status=USAGE)
        self.assertRegex(driver.text, "train.overfit is 513, but there are 512 training samples")
        self.train(job=self.JOB | {"train.epochs": 1}, n=1)
        driver = self.train("--resume", job=self.JOB | {"train.overfit": 41}, n=1, status=USAGE)
        self.assertRegex(driver.text, "train.overfit was 40 and is now 41")
        self.run_driver("--evaluate", "--checkpoint", "run", job=None)


class FindLr(Loops):
    """The range test suggests a rate, on any number of ranks, and leaves nothing else."""

    def find(self, *args, job=None, n=2, **kwargs):
        return self.run_driver(*(["--local"] if n > 1 else []), *dp.EXACT, *args, n=n,
                               job={**JOB, "name": "it", **(job or {})}, **kwargs)

    def steps(self, run):
        with open(self.path(run, "find_lr.csv"), encoding="ascii", newline="") as file:
            return list(csv.DictReader(file))

    def test_suggestion(self):
        job = {"schedule.name": "cosine", "schedule.warmup_steps": 10, "checkpoint.every_steps": 5,
               "train.average.name": "ema", "train.stop_after": 5, "optimizer.momentum": 0.9}
        driver = self.find("--find-lr", "--log-format", "json", job=job)
        told = json.loads(driver.out.splitlines()[-1])
        steps = self.steps("runs/it-find-lr")
        self.assertEqual(steps[0]["learning_rate"], "1e-06")
        rates = [float(step["learning_rate"]) for step in steps]
        for rate, after in zip(rates, rates[1:]):
            self.assertAlmostEqual(after / rate, 1e7 ** (1 / 199), delta=1e-6)
        self.assertEqual(told["steps"], len(steps))
        self.assertTrue(1e-4 < told["suggestion"] < told["lowest"] < 10, told)
        names = set(os.listdir(self.path("runs/it-find-lr")))
        self.assertLess({"find_lr.csv", "find_lr.svg", "metrics.csv"}, names)
        self.assertNotIn("checkpoints", names)
        self.assertEqual(os.listdir(self.path("runs")), ["it-find-lr"])
        self.assertEqual(self.events("checkpoint", "runs/it-find-lr"), [])
        self.find("--find-lr", n=1, job={**job, "train.max_steps": 20})
        for one, two in zip(self.steps("runs/it-find-lr-2")[:3], steps[:3]):
            self.assertAlmostEqual(float(one["loss"]), float(two["loss"]), delta=1e-4)

    def test_diverges(self):
        """Numbers that are not finite end the test in order."""
        draw = random.Random(3)
        os.mkdir(self.path("data"))
        for name, width in (("x", 4), ("y", 1)):
            with open(self.path("data", f"{name}.npy"), "wb") as file:
                file.write(dp.npy("<f4", (64, width), struct.pack(
                    f"<{64 * width}f", *(draw.gauss(0, 1) for _ in range(64 * width)))))
        driver = self.run_driver(
            "--find-lr", n=1, job={
                "name": "it", "model.arch": "mlp", "model.hidden": [16], "model.loss": "mse",
                "data.format": "npy", "data.path": "data", "data.train": "[x.npy, y.npy]",
                "schedule.last_lr": 1e6, "train.global_batch": 16})
        done = self.events("done", "runs/it-find-lr")[0]
        self.assertEqual(done["reason"], "nonfinite")
        self.assertLess(done["step"], 200)
        self.assertRegex(driver.out, r"suggestion: optimizer.lr=\d")
        self.assertEqual(self.events("error", "runs/it-find-lr"), [])

    def test_lost_rank(self):
        """A lost rank is replaced, and no step is missing."""
        self.find("--find-lr", "--inject", "kill:rank1@step9", job={"train.max_steps": 20})
        self.assertEqual([step["step"] for step in self.steps("runs/it-find-lr")],
                         [str(step) for step in range(1, 21)])
        self.assertEqual(len(self.events("lost", "runs/it-find-lr")), 1)

    def test_stopped(self):
        driver = self.driver("--find-lr", *dp.freezing(0, 5), n=1, job={**JOB, "name": "it"})
        self.wait_event("inject", run="runs/it-find-lr")
        driver.signal(15)
        dp.thaw(driver.pid)
        self.assertEqual(driver.wait_exit(), STOPPED)
        self.assertFalse(os.path.exists(self.path("runs/it-find-lr/checkpoints")))

    def test_refused(self):
        driver = self.find("--find-lr", "--resume", status=USAGE)
        self.assertRegex(driver.text, "--find-lr and --resume: leave one of them out")


class Spikes(Loops):
    """Step 60 of 100 has samples that are far from all others."""

    JOB = {"model.arch": "mlp", "model.hidden": [16], "data.format": "npy", "data.path": "data",
           "data.train": "[x.npy, y.npy]", "data.shuffle": "false", "train.global_batch": 8,
           "train.epochs": 1, "optimizer.lr": 0.01, "checkpoint.every_steps": 25,
           "checkpoint.keep": 100, "report.every_steps": 1}

    def setUp(self):
        super().setUp()
        draw = random.Random(7)
        x = [draw.gauss(0, 1) for _ in range(800 * 4)]
        y = [int(x[4 * i] > 0) for i in range(800)]
        odd = 60 * 8 + 3
        x[4 * odd:4 * odd + 8] = [1000.0, -700, 300, 10] * 2
        y[odd:odd + 2] = [0, 1]  # one of them is wrong, whatever the network says
        os.mkdir(self.path("data"))
        with open(self.path("data/x.npy"), "wb") as file:
            file.write(dp.npy("<f4", (800, 4), struct.pack(f"<{len(x)}f", *x)))
        with open(self.path("data/y.npy"), "wb") as file:
            file.write(dp.npy("<i8", (800,), struct.pack(f"<{len(y)}q", *y)))

    def train(self, *args, job=None, **kwargs):
        return self.run_driver(*(["--local"] if kwargs.get("n", 2) > 1 else []), *dp.EXACT,
                               "--run-dir", kwargs.pop("run", "run"), *args,
                               **{"n": 2, **kwargs, "job": {**self.JOB, **(job or {})}})

    def spike(self, run):
        events = self.events("spike", run)
        self.assertEqual(len(events), 1, events)
        self.assertEqual(events[0]["step"], 60)
        self.assertGreater(events[0]["loss"], 10 * events[0]["mean"])
        return events[0]

    def losses(self, run):
        with open(self.path(run, "metrics.csv"), encoding="ascii", newline="") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def checkpoints(self, run):
        """The steps of those that are left."""
        return sorted(int(name[5:]) for name in os.listdir(self.path(run, "checkpoints"))
                      if name.startswith("step-"))

    def replay(self, run, step, status=FINISHED):
        daemon = self.start([dp.DRIVER, "replay", run, "--step", str(step), "--log-format", "json",
                             "--nranks", "1", *dp.EXACT])
        self.assert_exit(daemon, status)
        return daemon

    def test_warn(self):
        self.train(run="none", n=1)
        self.train(job={"train.on_spike": "warn"}, n=1)
        self.assertEqual(self.spike("run")["action"], "warn")
        self.assertEqual(self.weights("run"), self.weights("none"))
        self.assertEqual(self.events("spike", "none"), [])

    def test_skip(self):
        """The update of the step is left out, on any number of ranks and with divided state."""
        job = {"train.on_spike": "skip"}
        self.train(job=job, n=1, run="one")
        self.train(job=job, n=3, run="three")
        self.train(job={**job, "strategy.zero": 1}, n=2, run="zero")
        for run in ("one", "three", "zero"):
            with self.subTest(run):
                spike = self.spike(run)
                self.assertEqual((spike["action"], spike["back_to"]), ("skip", None))
                self.assertEqual(self.events("epoch", run)[0]["steps_skipped"], 1)
                self.assertEqual(self.events("done", run)[0]["step"], 100)
        for one, three, zero in list(zip(self.losses("one"), self.losses("three"),
                                         self.losses("zero")))[61:]:
            self.assertAlmostEqual(one, three, delta=1e-4)
            self.assertAlmostEqual(one, zero, delta=1e-4)
        self.assertLess(self.losses("one")[-1], 1)

    def test_rewind(self):
        """All ranks go back to step 50, and go on with the samples of step 61."""
        self.train(job={"train.on_spike": "rewind"}, run="two")
        self.assertEqual(self.spike("two")["back_to"], 50)
        self.assertEqual(self.events("epoch", "two")[0]["steps_skipped"], 11)
        self.assertEqual(self.events("epoch", "two")[0]["samples"], (100 - 11) * 8)
        self.assertEqual(self.events("done", "two")[0]["step"], 100)
        # Going back to the beginning leaves a higher loss than going back to step 50.
        self.train(job={"train.on_spike": "rewind", "checkpoint.every_steps": 0}, n=1, run="begin")
        self.assertEqual(self.spike("begin")["back_to"], 0)
        self.assertGreater(self.losses("begin")[61], self.losses("two")[61])

    def test_repeated(self):
        """A resumed run, and one that loses a rank, decide as an undisturbed one."""
        for action in ("skip", "rewind"):
            job = {"train.on_spike": action}
            self.train(job=job, run=action)
            want = self.weights(action)
            self.train(job={**job, "train.max_steps": 55}, run=f"{action}-cut")
            self.train("--resume", job={**job, "train.max_steps": 0}, run=f"{action}-cut")
            self.train("--inject", "kill:rank1@reduce60", job=job, run=f"{action}-lost")
            for run in (f"{action}-cut", f"{action}-lost"):
                with self.subTest(run):
                    self.spike(run)
                    self.assertEqual(self.weights(run), want)

    def test_few_checkpoints(self):
        """The checkpoint to which a resumed run goes back stays, also if a newer one is the only
        one that is kept."""
        job = {"train.on_spike": "rewind", "checkpoint.keep": 1}
        self.train(job=job, n=1)
        self.train(job={**job, "train.max_steps": 55}, n=1, run="cut")
        self.assertEqual(self.checkpoints("cut"), [50, 55])
        self.train("--resume", job={**job, "train.max_steps": 0}, n=1, run="cut")
        self.assertEqual(self.spike("cut")["back_to"], 50)
        self.assertEqual(self.weights("cut"), self.weights("run"))
        self.assertEqual(self.checkpoints("cut"), [100])

    def train_back(self):
        """Two ranks go back to step 50, although an operator's checkpoint is newer."""
        job = {**self.JOB, **dp.PATIENT, "train.on_spike": "rewind", "checkpoint.hashes": 20,
               "strategy.shards": 2}
        driver = self.driver("--local", *dp.EXACT, "--run-dir", "run", *dp.freezing(1, 56), n=2,
                             job=job)
        self.wait_event("inject", run="run")
        self.assert_exit(self.start([dp.DRIVER, "checkpoint-now", "--run-dir", "run"]), FINISHED)
        self.wake(self.local_pid(1), run="run")
        self.assert_exit(driver, FINISHED)
        self.assertEqual(self.spike("run")["back_to"], 50)
        asked, = set(self.checkpoints("run")) - {25, 50, 75, 100}
        self.assertIn(asked, (57, 58))

    def test_replayed(self):
        """A step behind the spike is the same when it is computed again."""
        self.train_back()
        for first in (50, 25, 0):
            with self.subTest(first):
                told = json.loads(self.replay("run", 62).out)
                self.assertEqual((told["from"], told["to"], told["same"]), (first, 80, True))
            if first:
                shutil.rmtree(self.path("run/checkpoints", f"step-{first:08}"))

    def verify(self, status):
        """The verdict on the run, and (from, to, same) of the steps 87, 62 and 41, which this seed
        draws."""
        daemon = self.start([dp.DRIVER, "verify", "run", "--step", "3", "--seed", "28",
                             "--log-format", "json"])
        self.assert_exit(daemon, status)
        told = json.loads(daemon.out)
        self.assertEqual([step["step"] for step in told["steps"]], [87, 62, 41])
        self.assertEqual(told["files"], [])
        return told["same"], [(step["from"], step["to"], step["same"]) for step in told["steps"]]

    def forge(self, step):
        """Changes the row of this step in hashes.csv, and has record.json agree with that."""
        files = [self.path("run", name) for name in ("hashes.csv", "record.json")]
        with open(files[0], encoding="ascii") as file:
            rows = file.read()
        row = re.search(rf"^{step},(\w+).*$", rows, re.M)
        forged = rows.replace(row[1], row[1][::-1])
        with open(files[1], encoding="utf-8") as file:
            record = file.read()
        old, new = (hashlib.sha256(text.encode()).hexdigest() for text in (rows, forged))
        self.assertIn(old, record)
        for name, text in zip(files, (forged, record.replace(old, new))):
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)

    def test_verified(self):
        """Steps before, across and after the spike are the same, unless a row was forged."""
        self.train_back()
        self.assertEqual(self.verify(FINISHED), (True, [(75, 100, True), (50, 80, True),
                                                        (25, 60, True)]))
        self.forge(80)
        self.assertEqual(self.verify(FAILED), (False, [(75, 100, False), (50, 80, False),
                                                       (25, 60, True)]))

    def test_not_replayed(self):
        """A run that went back elsewhere, because a checkpoint was missing, is not said to differ:
        its steps cannot be computed again."""
        job = {"train.on_spike": "rewind", "checkpoint.hashes": 20}
        self.train(job={**job, "train.max_steps": 55}, n=1)
        shutil.rmtree(self.path("run/checkpoints/step-00000050"))
        self.train("--resume", job={**job, "train.max_steps": 0}, n=1)
        self.assertEqual(self.spike("run")["back_to"], 55)
        self.assertIn("after the spike of step 60 the run went back to step 55, and its job goes "
                      "back to step 50", self.replay("run", 62, status=USAGE).text)
        self.assertIs(json.loads(self.replay("run", 40).out)["same"], True)

    def test_refused(self):
        driver = self.train(job={"train.on_spike": "rewind", "strategy.zero": 2}, status=USAGE)
        self.assertRegex(driver.text, "train.on_spike is rewind, which needs the whole state")


class Live(Loops):
    """Requests to a running driver.  A rank freezes itself at steps, so that the requests come in
    known ones."""

    JOB = {**dp.PATIENT, "data.samples": 4096, "train.epochs": 1, "report.every_steps": 1,
           "optimizer.lr": 0.1}

    def start_frozen(self, *steps, run="run", n=2, job=None):
        """A driver whose rank 1 freezes at the first of the steps."""
        driver = self.driver("--local", *dp.EXACT, "--run-dir", run, *dp.freezing(1, *steps), n=n,
                             job={**JOB, **self.JOB, **(job or {})})
        self.wait_event("inject", run=run)
        return driver

    def ask(self, *words, status=FINISHED, run="run"):
        daemon = self.start([dp.DRIVER, *words, "--run-dir", run])
        self.assert_exit(daemon, status)
        return daemon.text + daemon.out

    def rates(self, run="run"):
        with open(self.path(run, "metrics.csv"), encoding="ascii", newline="") as file:
            return [float(row["learning_rate"]) for row in csv.DictReader(file)]

    def plain(self, run="plain"):
        self.train(job=self.JOB, run=run)
        return self.weights(run)

    def test_checkpoint(self):
        driver = self.start_frozen(9)
        self.assertIn("a checkpoint is written", self.ask("checkpoint-now"))
        self.wake(self.local_pid(1), run="run")
        self.assert_exit(driver, FINISHED)
        first, last = [event["step"] for event in self.events("checkpoint", "run")]
        self.assertIn(first, (10, 11))
        self.assertEqual(last, 64)
        self.assertEqual(self.weights("run"), self.plain())

    def test_pause(self):
        """A paused job loses a rank, and goes on with another; the numbers are the same."""
        driver = self.start_frozen(9)
        self.ask("--pause")
        self.assertIn("paused already", self.ask("pause", status=REFUSED))
        self.wake(self.local_pid(1), run="run")
        step = self.wait_event("pause", run="run")["step"]
        self.assertIn(step, (10, 11))
        self.assertIn("the job is paused", self.ask("--checkpoint-now", status=REFUSED))
        os.kill(self.local_pid(1), 9)
        self.wait_event("lost", run="run")
        self.ask("--go")
        self.assert_exit(driver, FINISHED)
        self.assertEqual(self.events("go", "run")[0]["step"], step)
        self.assertEqual(self.weights("run"), self.plain())

    def test_pause_is_stopped(self):
        driver = self.start_frozen(9)
        self.ask("--pause")
        self.wake(self.local_pid(1), run="run")
        self.wait_event("pause", run="run")
        driver.signal(15)
        self.assert_exit(driver, STOPPED)
        self.train("--resume", job=self.JOB, run="run")
        self.assertEqual(self.weights("run"), self.plain())

    def test_rate(self):
        """The rate changes at a step, and a resume from before it and one from behind repeat it."""
        job = {"checkpoint.every_steps": 5, "checkpoint.keep": 100, "schedule.name": "cosine"}
        driver = self.start_frozen(9, job=job)
        self.ask("--set-live", "optimizer.lr=0.005")
        self.wake(self.local_pid(1), run="run")
        self.assert_exit(driver, FINISHED)
        live, = self.events("live", "run")
        self.assertIn(live["step"], (10, 11))
        self.assertEqual((live["key"], live["value"]), ("optimizer.lr", 0.005))
        rates = self.rates()
        self.train(job={**self.JOB, **job}, run="plain")
        for step, (rate, plain) in enumerate(zip(rates, self.rates("plain"))):
            self.assertAlmostEqual(rate, plain * (1 if step < live["step"] else 0.05), delta=1e-9)
        want = self.weights("run")
        self.assertNotEqual(want, self.weights("plain"))
        for first in (5, 30):
            with self.subTest(first):
                for name in os.listdir(self.path("run/checkpoints")):
                    if name.startswith("step-") and int(name[5:]) > first:
                        shutil.rmtree(self.path("run/checkpoints", name))
                self.train("--resume", job={**self.JOB, **job}, run="run")
                self.assertEqual(self.weights("run"), want)
                self.assertEqual(self.rates(), rates)

    def test_replayed(self):
        """A step that is computed again has the rates that the run had, from the same steps on."""
        job = {"checkpoint.hashes": 4, "strategy.shards": 2}
        driver = self.start_frozen(9, 29, job=job)
        for n, rate in enumerate((0.005, 0.02), 1):
            self.wait_event("inject", n, run="run")
            self.ask("--set-live", f"optimizer.lr={rate}")
            self.wake(self.local_pid(1), run="run")
        self.assert_exit(driver, FINISHED)
        first, second = [event["step"] for event in self.events("live", "run")]
        self.assertLess(first, second)
        for step in (first + 2, 60):
            with self.subTest(step):
                replay = self.start([dp.DRIVER, "replay", "run", "--step", str(step),
                                     "--log-format", "json", "--nranks", "1"])
                self.assert_exit(replay, FINISHED)
                told = json.loads(replay.out)
                self.assertEqual((told["from"], told["same"]), (0, True))
        self.assertEqual(self.rates(), [0.1] * first + [0.005] * (second - first) +
                         [0.02] * (64 - second))

    def test_lost_rank(self):
        """A rank that replaces a lost one has the rate."""
        driver = self.start_frozen(9, 30)
        self.ask("--set-live", "optimizer.lr=0.005")
        self.wake(self.local_pid(1), run="run")
        self.wait_event("inject", 2, run="run")
        os.kill(self.local_pid(1), 9)
        self.assert_exit(driver, FINISHED)
        self.assertEqual(len(self.events("lost", "run")), 1)
        first = self.events("live", "run")[0]["step"]
        self.assertEqual([round(rate, 9) for rate in self.rates()],
                         [0.1] * first + [0.005] * (64 - first))

    def test_refused(self):
        driver = self.start_frozen(9)
        for words, why in ((["--set-live", "train.seed=2"], "only optimizer.lr can change"),
                           (["--set-live", "optimizer.lr=-1"], "want a number above 0"),
                           (["--set-live", "optimizer.lr=1x"], "want a number above 0"),
                           (["--go"], "the job is not paused")):
            with self.subTest(words=words):
                self.assertIn(why, self.ask(*words, status=REFUSED))
        self.wake(self.local_pid(1), run="run")
        self.assert_exit(driver, FINISHED)
        self.assertIn("no driver is running", self.ask("--pause", status=REFUSED))


if __name__ == "__main__":
    dp.main()

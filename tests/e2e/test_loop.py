"""The loop's record (metrics.csv) and its decisions (the best checkpoints, an early stop, a rate
that drops), undisturbed and after losses.  Every decision is by the whole validation set."""

import contextlib
import csv
import os
import re

import dp
from dp import FINISHED

# 8 steps an epoch.
JOB = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 4, "report.every_steps": 3}


class Loop(dp.Case):
    def lead(self, *args, job=None, n=2, run="run"):
        return self.driver("--port", str(self.port_number), "--run-dir", run, *args, n=n,
                           job={**JOB, **(job or {})}, port=False)

    def train(self, *args, job=None, n=2, run="run"):
        """A whole undisturbed run."""
        return self.run_driver(*(["--local"] if n > 1 else []), "--run-dir", run, *args, n=n,
                               job={**JOB, **(job or {})})

    def rows(self, run="run"):
        """The rows without how fast they were."""
        with open(self.path(run, "metrics.csv"), encoding="ascii", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            self.assertFalse(float(row.pop("samples_per_second")) < 0)  # a row told again has nan
        return rows

    def curves(self, run="run"):
        with open(self.path(run, "curves.svg"), encoding="utf-8") as file:
            return file.read()

    def setUp(self):
        super().setUp()
        self.port_number = dp.free_port()


class Metrics(Loop):
    def test_rows(self):
        self.train(n=1)
        with open(self.path("run", "metrics.csv"), encoding="ascii") as file:
            self.assertEqual(file.readline(), "step,epoch,loss,learning_rate,grad_norm,"
                                              "samples_per_second\n")
        rows = self.rows()
        self.assertEqual([int(row["step"]) for row in rows], list(range(3, 33, 3)))
        self.assertEqual([int(row["epoch"]) for row in rows], [1, 1, 2, 2, 2, 3, 3, 3, 4, 4])
        self.assertLess(float(rows[-1]["loss"]), float(rows[0]["loss"]))
        self.train(n=3, run="three")
        for one, three in zip(rows, self.rows("three"), strict=True):
            for key in ("loss", "grad_norm", "learning_rate"):
                self.assertAlmostEqual(float(one[key]), float(three[key]), delta=1e-4)

    def test_one_row_is_an_epoch(self):
        """A row's loss is the mean of its steps: here, of the epoch."""
        self.train(job={"report.every_steps": 8}, n=1)
        for row, epoch in zip(self.rows(), self.events("epoch", "run"), strict=True):
            self.assertAlmostEqual(float(row["loss"]), epoch["train_loss"], delta=1e-7)

    def test_none(self):
        self.train(job={"report.every_steps": 0, "train.epochs": 1}, n=1)
        self.assertFalse(os.path.exists(self.path("run", "metrics.csv")))
        self.assertIn(">Samples per second<", self.curves())  # from the epochs
        self.assertNotIn(">Gradient norm<", self.curves())

    def test_losses(self):
        """No row is missing, twice or different after the loss of a rank, or of the driver."""
        self.train(run="whole")
        for point in ("kill:rank1@reduce17", "kill:rank0@update18"):
            with self.subTest(point):
                daemons = [self.follower("--rank", "1", port=self.port_number)]
                driver = self.lead("--inject", point)
                if "rank0" in point:
                    driver.wait_exit()
                    driver = self.lead("--resume")
                else:
                    daemons[0].wait_exit()
                    daemons = [self.follower("--rank", "1", port=self.port_number)]
                for daemon in (driver, *daemons):
                    self.assert_exit(daemon, FINISHED)
                self.assertEqual(self.rows(), self.rows("whole"))
                self.assertIn("step 32, epoch 4, finished<", self.curves())
                self.assertIn("resumed, step" if "rank0" in point else "rank 1 lost, step",
                              self.curves())
                os.rename(self.path("run"), self.path(point))

    def test_resumed_from_a_checkpoint(self):
        """The rows beyond the checkpoint are those of the run that goes on."""
        self.train(run="whole", n=1)
        self.driver("--run-dir", "run", "--inject", "kill:rank0@step20", n=1, job=JOB).wait_exit()
        with open(self.path("run", "metrics.csv"), "a", encoding="ascii") as file:
            file.write("21,3,9,9,9,9\n24,3,9")
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path("run", "curves.svg"))
        os.mkdir(self.path("run", "curves.svg"))  # in the picture's way
        told = self.train("--resume", n=1).text.count("the run is not drawn: ")
        self.assertEqual(told, 1)
        self.assertEqual(self.rows(), self.rows("whole"))

    def test_resumed_with_other_rows(self):
        """The first row after report.every_steps has changed is the mean of the steps that this
        driver made, with those that the checkpoint has if these begin where the row does.  No row
        is told whose steps are not known."""
        self.train(run="whole", job={"report.every_steps": 1}, n=1)
        losses = [float(row["loss"]) for row in self.rows("whole")]
        thirds = [3, 6, 9, 12, 15]
        for before, after, told in ((3, 7, thirds), (3, 4, thirds), (0, 7, [])):
            with self.subTest(f"{before} to {after}"):
                run = f"from{before}to{after}"
                self.driver("--run-dir", run, "--inject", "kill:rank0@step20", n=1,
                            job={**JOB, "report.every_steps": before}).wait_exit()
                # The checkpoint of step 16 may not be on the disk yet.
                names = os.listdir(self.path(run, "checkpoints"))
                saved = max(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))
                self.train("--resume", run=run, job={"report.every_steps": after}, n=1)
                ends = [step for step in range(saved + 1, 33) if step % after == 0]
                rows = self.rows(run)
                told = [step for step in told if step <= saved]
                self.assertEqual([int(row["step"]) for row in rows], told + ends)
                kept = saved % before or before if before else 1  # steps in the checkpoint
                steps = losses[saved - (kept if kept == saved % after else 0):ends[0]]
                self.assertAlmostEqual(float(rows[len(told)]["loss"]), sum(steps) / len(steps),
                                       delta=1e-6)


# 4 steps an epoch.  The rate is so high that the losses go up and down.
JUMPY = {"data.samples": 256, "optimizer.lr": 0.3, "optimizer.momentum": 0.9, "train.epochs": 9,
         "train.best.metric": "validation_loss", "train.best.keep": 2, "checkpoint.keep": 1,
         "checkpoint.every_epochs": 3, "schedule.name": "plateau", "schedule.patience": 0,
         "schedule.factor": 0.7, "schedule.cooldown": 1, "report.every_steps": 4}


class Decisions(Loop):
    def generations(self, run="run"):
        """The steps of the checkpoints, and those that the links name."""
        names = os.listdir(self.path(run, "checkpoints"))
        links = {name: os.readlink(self.path(run, "checkpoints", name))
                 for name in ("best", "latest") if name in names}
        return sorted(name for name in names if name.startswith("step-")), links

    def validations(self, run="run"):
        """One for each epoch: of those that were trained again, the last one."""
        last = {event["step"]: (event["step"], event["validation_loss"], event.get("best", False))
                for event in self.events("epoch", run)}
        return list(last.values())

    def assert_same(self, run, whole):
        self.assertEqual(self.validations(run), self.validations(whole))
        # A driver that was killed may not have had its last checkpoint on the disk; then no event
        # tells of it.  All others are kept or removed alike.
        steps, links = self.generations(whole)
        kept = self.generations(run)[0]
        written = {f"step-{event['step']:08}" for event in self.events("checkpoint", run)}
        self.assertEqual(self.generations(run),
                         ([step for step in steps if step in written or step in kept], links))
        self.assertEqual([row["learning_rate"] for row in self.rows(run)],
                         [row["learning_rate"] for row in self.rows(whole)])

    def test_best_and_plateau(self):
        """The best of all epochs are kept, though newer ones are worse; the rate drops from the
        first epoch on whenever one is no better than the best before."""
        self.train(job=JUMPY)
        losses = [loss for _, loss, _ in self.validations()]
        best = min(range(len(losses)), key=losses.__getitem__)
        second = min((k for k in range(len(losses)) if k != best), key=losses.__getitem__)
        steps, links = self.generations()
        self.assertEqual(links["best"], f"step-{4 * (best + 1):08}")
        self.assertEqual(links["latest"], "step-00000036")
        self.assertEqual(steps, sorted({f"step-{4 * (k + 1):08}" for k in (best, second, 8)}))
        self.assertEqual([is_best for *_, is_best in self.validations()],
                         [loss == min(losses[:k + 1]) and loss not in losses[:k]
                          for k, loss in enumerate(losses)])
        rate, least, rest, want = 0.3, float("inf"), 0, []
        for loss in losses:
            want.append(rate)
            if loss >= least * (1 - 1e-4) and rest == 0:
                rate, rest = rate * 0.7, 2
            least, rest = min(loss, least), max(rest - 1, 0)
        self.assertLess(want[-1], 0.3)
        got = [float(row["learning_rate"]) for row in self.rows()]
        for seen, wanted in zip(got, want, strict=True):
            self.assertAlmostEqual(seen, wanted, delta=1e-9)

    def test_losses(self):
        """After the loss of a rank or of the driver every decision is the same."""
        self.train(job=JUMPY, run="whole")
        for point in ("kill:rank1@validate3", "kill:rank0@validate4", "kill:rank0@checkpoint12"):
            with self.subTest(point):
                follower = self.follower("--rank", "1", port=self.port_number)
                driver = self.lead("--inject", point, job=JUMPY)
                if "rank0" in point:
                    driver.wait_exit()
                    driver = self.lead("--resume", job=JUMPY)
                else:
                    follower.wait_exit()
                    follower = self.follower("--rank", "1", port=self.port_number)
                for daemon in (driver, follower):
                    self.assert_exit(daemon, FINISHED)
                self.assert_same("run", "whole")
                os.rename(self.path("run"), self.path(point))

    def test_resumed(self):
        """A run that was killed between two validations goes on from its checkpoint as if it had
        not been."""
        self.train(job=JUMPY, run="whole", n=1)
        self.driver("--run-dir", "cut", "--inject", "kill:rank0@step26", n=1,
                    job={**JOB, **JUMPY}).wait_exit()
        self.train("--resume", job=JUMPY, n=1, run="cut")
        self.assert_same("cut", "whole")

    def test_cut_by_max_steps(self):
        """A run that train.max_steps ended inside an epoch, and that is resumed without it, lowers
        its rate after the same epochs as a run of the whole length."""
        self.train(job=JUMPY, run="whole", n=1)
        self.train(job={**JUMPY, "train.max_steps": 26}, n=1, run="cut")
        self.assertEqual(self.events("done", "cut")[0]["reason"], "max_steps")
        self.assertIn(26, [step for step, *_ in self.validations("cut")])
        self.train("--resume", job={**JUMPY, "train.max_steps": 0}, n=1, run="cut")
        self.assertEqual([(step, loss) for step, loss, _ in self.validations("cut") if step != 26],
                         [(step, loss) for step, loss, _ in self.validations("whole")])
        self.assertEqual([row["learning_rate"] for row in self.rows("cut")],
                         [row["learning_rate"] for row in self.rows("whole")])

    def test_early_stop(self):
        """The job ends well, tells why, and has nothing to do any more."""
        job = {"train.epochs": 50, "train.early_stop.patience": 2, "train.early_stop.min_delta": 9,
               "checkpoint.every_epochs": 0}
        for n in (1, 2):
            with self.subTest(n=n):
                run = f"early{n}"
                driver = self.train(job=job, n=n, run=run)
                self.assertRegex(driver.text, r"no better for a while.*train\.early_stop")
                done, = self.events("done", run)
                self.assertEqual((done["step"], done["reason"]), (24, "early_stop"))
                self.assertEqual(self.generations(run)[1], {"latest": "step-00000024"})
                self.assertNotIn("next ", driver.out)
                again = self.train("--resume", job={**job, "train.epochs": 60}, n=n, run=run)
                self.assertRegex(again.text, r"nothing to do: 24 steps .* train\.early_stop")
        self.train(run="plain", job={"train.epochs": 1})
        self.assertEqual(self.events("done", "plain")[0]["reason"], "epochs")

    def test_no_validation(self):
        driver = self.run_driver(n=1, job={**JUMPY, "data.validation_samples": 0},
                                 status=dp.USAGE)
        self.assertRegex(driver.text, "decides by validation, but the job has no data for it; "
                         "leave it out, or set data.validation_samples")
        job = {**self.write_classes(4), "data.validation": "none"}
        for by, keys in (("train.best", {"train.best.metric": "validation_loss"}),
                         ("train.early_stop", {"train.early_stop.patience": 2}),
                         ("schedule.name plateau", {"schedule.name": "plateau"})):
            driver = self.driver("--check", job={**job, **keys}, port=False)
            self.assert_exit(driver, dp.USAGE)
            self.assertRegex(driver.text, f"{by} decides by validation, but data.validation is "
                             f"none; leave {by} out, or name data that validate")
        self.run_driver("--run-dir", "none", job={**job, "train.epochs": 1})
        self.assertNotIn("validation_loss", self.events("epoch", "none")[0])

    def write_classes(self, n):
        """The keys of a data set of so many classes."""
        with open(self.path(f"{n}.x.npy"), "wb") as file:
            file.write(dp.npy("|u1", f"({8 * n}, 3)", bytes(range(24 * n))))
        with open(self.path(f"{n}.y.npy"), "wb") as file:
            file.write(dp.npy("|u1", f"({8 * n},)", bytes(range(n)) * 8))
        return {"data.format": "npy", "data.path": self.folder, "model.arch": "mlp",
                "data.train": f"{n}.x.npy,{n}.y.npy", "data.validation": f"{n}.x.npy,{n}.y.npy",
                "train.global_batch": 16, "train.epochs": 1}

    def test_top5_of_five_classes(self):
        """No decision is made by a metric that is always 1, whichever key asks for it."""
        five = self.write_classes(5)
        for key, rest in (("train.best.metric", {}),
                          ("train.early_stop.metric", {"train.early_stop.patience": 2}),
                          ("schedule.metric", {"schedule.name": "plateau"})):
            with self.subTest(key):
                driver = self.run_driver(n=1, job={**five, **rest, key: "validation_top5"},
                                         status=dp.USAGE)
                self.assertRegex(driver.text, key.replace(".", r"\.") + " is validation_top5, but "
                                 "the network has at most 5 classes, .*; want validation_loss")
        self.run_driver("--run-dir", "six", n=1, job={**self.write_classes(6),
                                                      "train.best.metric": "validation_top5"})
        self.assertLessEqual(self.events("epoch", "six")[0]["validation_top5"], 1)


if __name__ == "__main__":
    dp.main()

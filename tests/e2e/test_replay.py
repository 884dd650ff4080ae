"""A run's hashes.csv: its rows are the same whatever the number of ranks, and none is missing or
twice after losses.  Two runs are compared by them."""

import csv
import os
import re

import dp
from dp import DRIVER, FAILED, FINISHED, USAGE

# 8 steps an epoch; with shares the bits do not depend on the number of ranks.
JOB = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 3, "optimizer.name": "adam", "optimizer.lr": 0.003,
       "checkpoint.hashes": 3}
SHARES = {"strategy.shards": 4}


class Runs(dp.Case):
    def train(self, *args, job=None, n=1, run="run"):
        """A whole undisturbed run."""
        return self.run_driver(*(["--local"] if n > 1 else []), "--run-dir", run, *args, n=n,
                               job={**JOB, **(job or {})})

    def rows(self, run="run"):
        with open(self.path(run, "hashes.csv"), encoding="ascii", newline="") as file:
            return list(csv.DictReader(file))


class Hashes(Runs):
    def test_rows(self):
        self.train()
        with open(self.path("run", "hashes.csv"), encoding="ascii") as file:
            self.assertEqual(file.readline(), "step,state,loss,samples\n")
        rows = self.rows()
        self.assertEqual([int(row["step"]) for row in rows], list(range(3, 25, 3)))
        for row in rows:
            self.assertRegex(row["state"], "^[0-9a-f]{16}$")
            self.assertRegex(row["samples"], "^[0-9a-f]{16}$")
        for key in ("state", "samples", "loss"):
            self.assertEqual(len({row[key] for row in rows}), len(rows))
        self.train(job={"checkpoint.hashes": 1, "train.seed": 2}, run="other")
        other = self.rows("other")
        self.assertEqual([int(row["step"]) for row in other], list(range(1, 25)))
        for row in rows:
            for key in ("state", "samples", "loss"):
                self.assertNotEqual(row[key], other[int(row["step"]) - 1][key])
        self.train(job={"checkpoint.hashes": 0}, run="none")
        self.assertFalse(os.path.exists(self.path("none", "hashes.csv")))

    def test_loss_is_of_the_step(self):
        self.train(job={"report.every_steps": 1, "checkpoint.hashes": 1, "train.epochs": 1})
        with open(self.path("run", "metrics.csv"), encoding="ascii", newline="") as file:
            for row, metrics in zip(self.rows(), csv.DictReader(file), strict=True):
                self.assertEqual(row["loss"], metrics["loss"])

    def test_ranks(self):
        self.train(job=SHARES)
        self.train(job=SHARES, n=3, run="three")
        self.assertEqual(self.rows(), self.rows("three"))

    def test_divided_state(self):
        """The hash does not depend on how the state is divided, nor on the size of buckets."""
        job = {"train.epochs": 1, "checkpoint.hashes": 1}
        self.train(job=job, n=3, run="whole")
        for zero in (1, 2):
            with self.subTest(zero):
                self.train(job={**job, "strategy.zero": zero}, n=3, run=f"zero{zero}")
                self.assertEqual(self.rows(f"zero{zero}"), self.rows("whole"))
        for size in (1 << 12, 1 << 20):
            self.train(job={**job, "strategy.zero": 3, "train.bucket_bytes": size}, n=3,
                       run=f"size{size}")
        self.assertEqual(self.rows(f"size{1 << 12}"), self.rows(f"size{1 << 20}"))

    def test_weights_that_differ(self):
        """Inside an epoch ranks with weights of their own have no common state to hash."""
        self.train(job={"strategy.name": "local_sgd", "train.epochs": 2, "optimizer.name": "sgd",
                        "checkpoint.hashes": 4}, n=2)
        self.assertEqual([row["state"] != "" for row in self.rows()], [False, True] * 2)

    def test_losses(self):
        """No row is missing, twice or different after the loss of a rank, or of the driver."""
        self.train(n=2, run="whole")
        for point in ("kill:rank1@reduce17", "kill:rank0@update18"):
            with self.subTest(point):
                port = dp.free_port()
                args = ("--port", str(port), "--run-dir", "run")
                daemons = [self.follower("--rank", "1", port=port)]
                driver = self.driver(*args, "--inject", point, n=2, job=JOB, port=False)
                if "rank0" in point:
                    driver.wait_exit()
                    driver = self.driver(*args, "--resume", n=2, job=JOB, port=False)
                else:
                    daemons[0].wait_exit()
                    daemons = [self.follower("--rank", "1", port=port)]
                for daemon in (driver, *daemons):
                    self.assert_exit(daemon, FINISHED)
                self.assertEqual(self.rows(), self.rows("whole"))
                os.rename(self.path("run"), self.path(point))

    def test_resumed(self):
        """The row of the checkpoint's step is told again, if the driver before did not write it;
        what lies beyond it is cut."""
        self.train(job={"checkpoint.hashes": 4}, run="whole")
        self.driver("--run-dir", "run", "--inject", "kill:rank0@step22", n=1,
                    job={**JOB, "checkpoint.hashes": 4}).wait_exit()
        names = os.listdir(self.path("run", "checkpoints"))
        saved = max(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))
        before = [row for row in self.rows("whole") if int(row["step"]) < saved]
        with open(self.path("run", "hashes.csv"), "w", encoding="ascii") as file:
            file.write("step,state,loss,samples\n")
            for row in before:
                file.write(",".join(row.values()) + "\n")
        self.train("--resume", job={"checkpoint.hashes": 4})
        self.assertEqual(self.rows(), self.rows("whole"))


class Compare(Runs):
    def compare(self, *args, status=FINISHED):
        daemon = self.start([DRIVER, *args])
        self.assert_exit(daemon, status)
        return daemon.out if status != USAGE else daemon.text

    def cut(self, run, name, change):
        """Change the lines of a run's file."""
        with open(self.path(run, name), encoding="ascii") as file:
            lines = file.read().splitlines()
        with open(self.path(run, name), "w", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in change(lines)))

    def test_runs(self):
        job = {"checkpoint.hashes": 4, "report.every_steps": 2}
        self.train(job=job, run="one")
        self.train(job={**job, "train.epochs": 2}, run="two")
        out = self.compare("compare", "one", "two")
        self.assertIn("one and two are the same, as far as both go", out)
        self.assertIn("hashes.csv   is the same at 4 steps, up to step 16", out)
        self.assertIn("metrics.csv  has the same losses in 8 rows, up to step 16", out)

        # One bit of one state.
        flipped = {"0": "1"}
        self.cut("two", "hashes.csv", lambda lines: lines[:2] + [
            re.sub(r",(.)", lambda m: "," + flipped.get(m[1], "0"), lines[2], count=1)] + lines[3:])
        out = self.compare("--compare", "one", "two", status=FAILED)
        self.assertIn("one and two part at step 8 or before it", out)
        self.assertRegex(out, r"hashes.csv   differs first at step 8: loss \S+ in both, "
                              r"state \w{16} and \w{16}, the same samples\n")
        self.assertIn("hashes.csv   is the same at 1 step, up to step 4\n", out)

        self.cut("two", "metrics.csv", lambda lines: lines[:3] + [
            re.sub(r"^6,1,[^,]*", "6,1,9", lines[3])] + lines[4:])
        out = self.compare("compare", "one", "two", status=FAILED)
        self.assertIn("part at step 6 or before it", out)
        self.assertRegex(out, r"loss first in the row of step 6, the mean of 2 steps: \S+ and 9\n")

        self.train(job={**job, "train.seed": 2}, run="three")
        self.assertIn("other samples", self.compare("compare", "one", "three", status=FAILED))

        self.train(job={"checkpoint.hashes": 5, "report.every_steps": 3, "train.epochs": 1},
                   run="four")
        self.assertIn("have no step in common", self.compare("compare", "one", "four",
                                                             status=USAGE))
        self.cut("four", "hashes.csv", lambda lines: lines + ["7"])
        self.assertIn("four/hashes.csv: line 3 is no row: want 4 columns, and a step above 5",
                      self.compare("compare", "one", "four", status=USAGE))


if __name__ == "__main__":
    dp.main()

"""The record of a run along its steps (metrics.csv), undisturbed and after losses: no row is
missing or there twice, and its numbers agree with the events."""

import csv
import os

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
            self.assertGreaterEqual(float(row.pop("samples_per_second")), 0)
        return rows

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

    def test_losses(self):
        """No row is missing, twice or different after the loss of a rank, or of the driver."""
        self.train(run="whole")
        for point in ("kill:rank1@reduce17", "kill:rank0@update18", "kill:rank0@reduce18",
                      "kill:rank0@checkpoint16"):
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
                os.rename(self.path("run"), self.path(point))

    def test_resumed_from_a_checkpoint(self):
        """The rows beyond the checkpoint are those of the run that goes on."""
        self.train(run="whole", n=1)
        self.driver("--run-dir", "run", "--inject", "kill:rank0@step20", n=1, job=JOB).wait_exit()
        with open(self.path("run", "metrics.csv"), "a", encoding="ascii") as file:
            file.write("21,3,9,9,9,9\n24,3,9")
        self.train("--resume", n=1)
        self.assertEqual(self.rows(), self.rows("whole"))


if __name__ == "__main__":
    dp.main()

"""Tests of deploy/examples/trackers by the trackers' own packages: what a store has at the end is
what metrics.csv and events.jsonl have.  A case whose package is missing is skipped by its name."""
import importlib.util
import os
import pathlib
import signal
import sqlite3
import sys

import find_torch

find_torch.need("mlflow", "sqlalchemy", "alembic")

from models import Case, dp  # noqa: E402

EXAMPLES = pathlib.Path(__file__).parents[2] / "deploy/examples/trackers"
LONG = 120  # trackers begin slowly


class Trackers(Case):
    def begin(self, example, **env):
        command = f"{sys.executable} {EXAMPLES / example}"
        return self.driver("--run-dir", self.path("run"), job={
            **dp.ENDLESS, "train.validate_every": 1, "data.samples": 2048, "report.exec": command},
            env=env)

    def rows(self):
        """The steps of metrics.csv, and the losses of their rows."""
        lines = pathlib.Path(self.path("run", "metrics.csv")).read_text("ascii").splitlines()[1:]
        return {int(line.split(",")[0]): float(line.split(",")[2]) for line in lines}

    def stored(self, database, key):
        if not os.path.exists(database):
            return {}
        with sqlite3.connect(database) as db:
            try:
                return dict(db.execute("select step, value from metrics where key = ?", (key,)))
            except sqlite3.OperationalError:  # the tables are being made
                return {}

    def test_mlflow(self):
        database = self.path("mlflow.db")
        driver = self.begin("mlflow_run.py", MLFLOW_TRACKING_URI=f"sqlite:///{database}")
        dp.wait_for("a metric in the store", lambda: self.stored(database, "validation_loss"), LONG)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED, patience=LONG)
        self.assertEqual(driver.text.count("the command did not get"), 0)
        rows, stored = self.rows(), self.stored(database, "loss")
        self.assertEqual(sorted(stored), sorted(rows))
        for step, loss in rows.items():
            self.assertAlmostEqual(stored[step], loss, delta=1e-6 * abs(loss))
        epochs = {e["step"]: e["validation_loss"] for e in self.events("epoch", "run")
                  if "validation_loss" in e}
        self.assertEqual(self.stored(database, "validation_loss"), epochs)

    def test_wandb(self):
        if not importlib.util.find_spec("wandb"):
            self.skipTest("no package wandb here")
        driver = self.begin("wandb_run.py", WANDB_MODE="offline", WANDB_DIR=self.path())
        dp.wait_for("an offline run", lambda: list(
            pathlib.Path(self.folder).glob("wandb/offline-run-*/run-*.wandb")), LONG)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED, patience=LONG)
        self.assertEqual(driver.text.count("the command did not get"), 0)
        file = next(pathlib.Path(self.folder).glob("wandb/offline-run-*/run-*.wandb"))
        self.assertIn(b"validation_loss", file.read_bytes())


if __name__ == "__main__":
    dp.main()

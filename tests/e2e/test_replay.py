"""A run's hashes.csv: its rows are the same whatever the number of ranks, and none is missing or
twice after losses.  By them two runs are compared, a step that is computed again with the run's,
and numbers of ranks with each other."""

import csv
import json
import os
import re
import shutil

import dp
from dp import DRIVER, FAILED, FINISHED, USAGE
from test_data import png

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

    def cut(self, run, name, change):
        """Change the lines of a run's file."""
        with open(self.path(run, name), encoding="ascii") as file:
            lines = file.read().splitlines()
        with open(self.path(run, name), "w", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in change(lines)))


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
                    self.assertNotEqual(driver.wait_exit(), FINISHED)
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
            file.write(f"{saved + 4},{'0' * 16},9,{'0' * 16}\n")  # to be cut
        self.train("--resume", job={"checkpoint.hashes": 4})
        self.assertEqual(self.rows(), self.rows("whole"))


class Compare(Runs):
    def compare(self, *args, status=FINISHED):
        daemon = self.start([DRIVER, *args])
        self.assert_exit(daemon, status)
        return daemon.out if status != USAGE else daemon.text

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


class Replay(Runs):
    """One run, replayed in many ways; 8 steps an epoch, checkpoints at 8, 16 and 24."""

    def files(self, run):
        return {path: (os.stat(path).st_mtime_ns, os.path.islink(path) and os.readlink(path))
                for folder, folders, names in os.walk(self.path(run))
                for path in (os.path.join(folder, name) for name in folders + names)}

    def replay(self, step, *args, run="run", status=FINISHED):
        """The answer of --replay; nothing is left behind but the run."""
        before = self.files(run) if os.path.isdir(self.path(run)) else None
        os.makedirs(self.path("tmp"), exist_ok=True)
        daemon = self.start([DRIVER, "--replay", run, "--step", str(step), "--log-format", "json",
                             *args], env={**self.env, "TMPDIR": self.path("tmp")})
        self.assert_exit(daemon, status)
        self.assertEqual(os.listdir(self.path("tmp")), [])
        if before:
            self.assertEqual(self.files(run), before)
        return daemon.text if status == USAGE else json.loads(daemon.out)

    def test_replay(self):
        self.train(job=SHARES)
        rows = {int(row["step"]): row for row in self.rows()}
        for step, begin, end, args in ((12, 8, 12, ()), (10, 8, 12, ("--nranks", "3", "--local")),
                                       (2, 0, 3, ()), (18, 16, 18, ("--nranks", "2", "--local"))):
            with self.subTest(step):
                told = self.replay(step, *args)
                self.assertEqual((told["step"], told["from"], told["to"]), (step, begin, end))
                self.assertIs(told["same"], True)
                self.assertEqual(len(told["samples"]), 64)
                self.assertEqual(len({sample["index"] for sample in told["samples"]}), 64)
                if step in rows:
                    self.assertEqual(told["state"], rows[step]["state"])
                    self.assertAlmostEqual(told["loss"], float(rows[step]["loss"]), delta=1e-8)
        # As many ranks as the run had, by default; and for people.
        out = self.start([DRIVER, "replay", "run", "--step", "7"])
        self.assert_exit(out, FINISHED)
        self.assertRegex(out.out, r"(?m)^step +7 of run, computed from step 0 on, up to 9$")
        self.assertRegex(out.out, r"(?m)^the same +3 rows of hashes.csv")
        self.assertRegex(out.out, r"(?m)^samples +64$")

    def test_samples(self):
        """The samples of the step in the order of its batch, and their files."""
        names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(6)]
        for part in ("train", "val"):
            for i, name in enumerate(names):
                os.makedirs(os.path.dirname(self.path(part, name)), exist_ok=True)
                with open(self.path(part, name), "wb") as file:
                    file.write(png(8, 8, bytes([20 * i]) * 192))
        self.run_driver("--run-dir", "run", n=1, job={
            **dp.LIGHT, "data.format": "images", "data.path": self.folder, "data.size": 8,
            "data.shuffle": "false", "train.global_batch": 4, "train.epochs": 2,
            "checkpoint.hashes": 1})
        for step, first in ((2, 4), (6, 8)):  # 3 steps an epoch
            told = self.replay(step)["samples"]
            self.assertEqual([sample["index"] for sample in told], list(range(first, first + 4)))
            for sample in told:
                self.assertTrue(sample["name"].endswith("train/" + names[sample["index"]]), told)

    def test_differs(self):
        """A row that is not what is computed is told, and where only rounding differs."""
        self.train(job=SHARES)
        shutil.copytree(self.path("run"), self.path("other"), symlinks=True)
        self.cut("other", "hashes.csv", lambda lines: lines[:4] + [
            lines[4].replace(lines[4].split(",")[2], "9", 1)] + lines[5:])
        told = self.replay(10, run="other", status=FAILED)
        self.assertEqual((told["same"], told["differs_at"]), (False, 12))
        # Without shards another number of ranks rounds otherwise, and the text says so.
        self.train(run="rounded", n=2)
        told = self.replay(12, "--nranks", "1", run="rounded", status=FAILED)
        self.assertEqual((told["same"], told["differs_at"]), (False, 9))
        self.assertIs(self.replay(12, run="rounded")["same"], True)
        out = self.start([DRIVER, "replay", "rounded", "--step", "12", "--nranks", "1"])
        self.assert_exit(out, FAILED)
        self.assertIn("the losses agree to rounding", out.out)

    def test_damaged(self):
        """A flipped bit of the checkpoint is told."""
        self.train(n=1)
        path = self.path("run", "checkpoints", "step-00000008", "model.safetensors")
        with open(path, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        self.assertRegex(self.replay(10, status=USAGE), r"model.safetensors")
        shutil.rmtree(self.path("run", "checkpoints"))
        self.assertEqual(self.replay(10)["from"], 0)

    def test_refusals(self):
        self.train(job={"checkpoint.hashes": 0, "report.every_steps": 0, "train.epochs": 1})
        told = self.replay(3, status=FAILED)  # nothing to compare with, but the samples are told
        self.assertIsNone(told["same"])
        self.assertEqual(len(told["samples"]), 64)
        self.assertIn("--step 9: the run in run has done 8 steps", self.replay(9, status=USAGE))
        self.assertIn("there is no run directory typo", self.replay(1, run="typo", status=USAGE))
        self.assertIn("in the run run, where nothing is written",
                      self.replay(3, "--run-dir", "run/again", status=USAGE))
        self.assertIn("not there yet", self.replay(3, "--run-dir", "run", status=USAGE))
        self.replay(3, "--run-dir", "kept", status=FAILED)
        self.assertTrue(os.path.exists(self.path("kept", "run", "hashes.csv")))


class Verify(Runs):
    def verify(self, *args, job=None, status=FINISHED):
        daemon = self.start([DRIVER, "--verify", *args, *dp.sets({**JOB, **(job or {})})])
        self.assert_exit(daemon, status)
        return daemon.text if status == USAGE else daemon.out

    def test_verify(self):
        out = self.verify("1,2,3", "--step", "4", job=SHARES).splitlines()
        self.assertEqual([line.split()[:2] for line in out[1:]],
                         [["1", "4"], ["2", "4"], ["3", "4"]])
        self.assertEqual(sum("the same bits" in line for line in out), 2)
        self.assertEqual(len({tuple(line.split()[1:4]) for line in out[1:]}), 1)
        out = self.verify("1,2", "--step", "3")
        self.assertRegex(out, r"the same to rounding: losses differ by up to \S+ of them, bits "
                              r"from step 1 on")
        # The updates of these ranks depend on their number.
        out = self.verify("1,2", "--step", "6", job={"strategy.name": "local_sgd",
                                                     "optimizer.name": "sgd", "optimizer.lr": 0.5},
                          status=FAILED)
        self.assertRegex(out, r"differs from step \d on")

    def test_refusals(self):
        for text in ("", "1", "1,", "0,1", "1,x", "1;2"):
            with self.subTest(text):
                self.assertIn("want", self.verify(text, status=USAGE))
        self.assertRegex(self.verify("1,2", job={"model.arch": "nope"}, status=USAGE),
                         r"--verify: on 1 rank: .*nope")


if __name__ == "__main__":
    dp.main()

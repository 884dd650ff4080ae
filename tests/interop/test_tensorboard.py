"""Tests of report.tensorboard by TensorBoard itself: its reader, which checks every checksum, and
both of its servers show the rows of metrics.csv and the validations of events.jsonl, once each,
after a resume and after a lost driver, too."""
import contextlib
import csv
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import urllib.parse
import urllib.request

import find_torch

find_torch.need("tensorboard")

import numpy  # noqa: E402
from tensorboard.backend.event_processing import event_accumulator  # noqa: E402
from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: E402

from models import Case, dp  # noqa: E402
import browser  # noqa: E402

JOB = {**dp.SMALL, "report.tensorboard": "true", "report.every_steps": 5,
       "checkpoint.every_steps": 12}
ROWS = {"loss/train": 2, "learning_rate": 3, "grad_norm": 4, "samples_per_second": 5}  # columns
SERVER_PATIENCE = 60


def read(folder):
    """TensorBoard's own view of a folder, all points of it."""
    seen = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0})
    seen.Reload()
    return seen


class TensorBoard(Case):
    def rows(self, column):
        with open(self.path("run", "metrics.csv"), encoding="ascii") as file:
            lines = [line.split(",") for line in file.read().splitlines()[1:]]
        return [(int(line[0]), float(line[column])) for line in lines]

    def validations(self, key):
        """The last one of each step: a run that goes on may validate a step again."""
        return sorted({e["step"]: e[key] for e in self.events("epoch", "run")}.items())

    def wanted(self):
        return {**{tag: self.rows(column) for tag, column in ROWS.items()},
                "loss/validation": self.validations("validation_loss"),
                "accuracy/validation": self.validations("validation_accuracy")}

    def assert_points(self, tag, seen, wanted):
        self.assertEqual([step for step, _ in seen], [step for step, _ in wanted], tag)
        for (_, a), (_, b) in zip(seen, wanted, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-6 * abs(b), msg=tag)

    def assert_board(self):
        seen = read(self.path("run", "tensorboard"))
        wanted = self.wanted()
        self.assertEqual(set(seen.Tags()["scalars"]), set(wanted))
        for tag, points in wanted.items():
            self.assert_points(tag, [(e.step, e.value) for e in seen.Scalars(tag)], points)
        self.assert_matrix(seen)
        return seen

    def assert_matrix(self, seen):
        """Each validation has its picture, once, and the table is that of the last one."""
        wanted = self.validations("validation_accuracy")
        pictures = seen.Images("confusion/validation")
        self.assertEqual([p.step for p in pictures], [step for step, _ in wanted])
        for picture in pictures:
            data = picture.encoded_image_string
            self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", data[16:24]), (picture.width, picture.height))
        with open(self.path("run", "confusion.csv"), encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        self.assertEqual(head[1:], [row[0] for row in rows])
        counts = [[int(cell) for cell in row[1:]] for row in rows]
        n = JOB["data.validation_samples"]
        self.assertEqual(sum(map(sum, counts)), n)
        self.assertAlmostEqual(sum(row[i] for i, row in enumerate(counts)) / n, wanted[-1][1],
                               delta=1e-12)
        return counts

    def hparams(self, seen, tag):
        content = seen.summary_metadata[f"_hparams_/{tag}"].plugin_data.content
        return plugin_data_pb2.HParamsPluginData.FromString(content)

    def n_files(self):
        return len(os.listdir(self.path("run", "tensorboard")))

    @contextlib.contextmanager
    def server(self, fast):
        """The address of a server of all runs in the case's folder."""
        argv = [sys.executable, "-m", "tensorboard.main", "--logdir", self.folder, "--port", "0",
                "--host", "127.0.0.1", "--load_fast", fast]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=self.folder) as server:
            try:
                for line in server.stderr:
                    if found := re.search(r"at (http://\S+)", line):
                        break
                yield found[1].rstrip("/")
            finally:
                server.kill()

    def served(self, fast, tag, n):
        """The points of a tag by a server, once it has n of them."""
        query = urllib.parse.urlencode({"run": "run/tensorboard", "tag": tag})
        with self.server(fast) as url:
            url += f"/data/plugin/scalars/scalars?{query}"
            return dp.wait_for(f"{n} points", lambda: self.fetch(url, n), SERVER_PATIENCE)

    def fetch(self, url, n):
        try:
            with urllib.request.urlopen(url, timeout=SERVER_PATIENCE) as answer:
                points = json.load(answer)
        except urllib.error.HTTPError:  # it has not read the run yet
            return None
        return [(step, value) for _, step, value in points] if len(points) >= n else None

    def test_resume(self):
        """The second start repeats nothing, although the run was cut between two checkpoints."""
        self.run_driver("--run-dir", self.path("run"), job={**JOB, "train.max_steps": 30})
        self.assertEqual(self.hparams(self.assert_board(), "session_end_info")
                         .session_end_info.status, 1)
        shutil.rmtree(self.path("run", "checkpoints", "step-00000030"))
        os.unlink(self.path("run", "checkpoints", "latest"))
        self.run_driver("--run-dir", self.path("run"), "--resume", job=JOB)
        self.assertEqual(self.n_files(), 2)
        seen = self.assert_board()
        start = self.hparams(seen, "session_start_info").session_start_info
        self.assertEqual(start.hparams["model.arch"].string_value, "mlp")
        self.assertEqual(start.hparams["train.global_batch"].number_value, 64)
        self.assertNotIn("train.epochs", start.hparams)  # what a resume may change
        self.assertRegex(start.group_name, "^[0-9a-f]{32}$")
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            job = file.read()
        text = seen.Tensors("job")[-1].tensor_proto.string_val[0].decode()
        self.assertEqual([line[4:] for line in text.splitlines()], [*job.splitlines(), ""])
        for fast in ("false", "auto"):
            with self.subTest(load_fast=fast):
                for tag in ("loss/train", "loss/validation"):
                    wanted = self.wanted()[tag]
                    self.assert_points(tag, self.served(fast, tag, len(wanted)), wanted)

    def test_lost_driver(self):
        """Followers keep the state of a driver that was killed; another one goes on with the run.
        The rows that the old one wrote and the new one repeats are shown once."""
        port = dp.free_port()
        arguments = ["--port", str(port), "--run-dir", self.path("run")]
        job = {**JOB, "train.epochs": 6, "checkpoint.every_steps": 0}
        first = self.driver(*arguments, "--inject", "kill:rank0@step77", n=2, job=job, port=False)
        follower = self.follower(port=port)
        self.assertEqual(first.wait_exit(), -9)
        second = self.driver(*arguments, "--resume", n=2, job=job, port=False)
        self.assert_exit(second, dp.FINISHED)
        self.assert_exit(follower, dp.FINISHED)
        self.assertEqual(self.n_files(), 2)
        self.assert_board()

    def test_standby(self):
        """A standby takes over: it writes a file of its own, and no point is there twice."""
        port = dp.free_port()
        job = {**JOB, "train.epochs": 4, "checkpoint.every_steps": 0}
        first = self.driver("--port", str(port), "--run-dir", self.path("run"), "--inject",
                            "kill:rank0@step77", n=2, job=job, port=False,
                            env={"RUNTIME_DIRECTORY": self.folder})
        standby = self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--threads", "1", "--run-dir", self.path("run")])
        standby.wait_line("as its standby")
        follower = self.follower("--rank", "1", port=port)
        first.wait_exit()
        self.assert_exit(standby, dp.FINISHED)
        self.assert_exit(follower, dp.FINISHED)
        self.assertEqual(len(self.events("leader", "run")), 1)
        self.assertEqual(self.n_files(), 2)
        self.assert_board()

    @browser.needed
    def test_tabs(self):
        """The table of HPARAMS has a row for each run, with what they were given and what came of
        it.  IMAGES and TEXT show both runs, too."""
        wanted = []
        for run, rate in (("slow", 0.03125), ("fast", 0.25)):
            self.run_driver("--run-dir", self.path(run), job={**JOB, "optimizer.lr": rate})
            start = self.hparams(read(self.path(run, "tensorboard")), "session_start_info")
            done, = self.events("done", run)
            wanted.append((start.session_start_info.group_name, f"{rate:#.5g}",
                           f"{done['validation_accuracy']:#.5g}"))
        with self.server("false") as url:
            window = browser.Browser()
            self.addCleanup(window.close)
            window.emulate("light", 1600, 900)
            window.ask("/url", {"url": url + "#hparams"})
            for row in wanted:
                with self.subTest(row=row):
                    texts = dp.wait_for("the row", lambda name=row[0]: self.row_of(
                        window.texts(), name), SERVER_PATIENCE)
                    self.assertLess({*row}, {*texts})
            for tab, text in (("images", "confusion/validation"), ("text", "global_batch: 64")):
                window.ask("/url", {"url": "about:blank"})
                window.ask("/url", {"url": f"{url}#{tab}"})
                dp.wait_for(f"{text} twice in #{tab}", lambda text=text: "\n".join(
                    window.texts()).count(text) == 2, SERVER_PATIENCE)

    def row_of(self, texts, name):
        """The texts of a table's row from this trial's name on, up to the next one's."""
        if name not in texts:
            return None
        at = texts.index(name) + 1
        others = itertools.takewhile(lambda text: not re.fullmatch("[0-9a-f]{32}", text),
                                     texts[at:at + 20])
        return [name, *others]

    def test_ranks_count_together(self):
        """The matrix is that of --evaluate, however many ranks counted."""
        for n in (1, 3):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            self.run_driver("--local", "--run-dir", self.path("run"), n=n,
                            job={**JOB, "train.max_steps": 40})
            counts = self.assert_matrix(read(self.path("run", "tensorboard")))
            said = subprocess.run(
                [dp.DRIVER, "--evaluate", "--checkpoint", "latest", "--run-dir", self.path("run"),
                 "--threads", "1", "--log-format", "json"], env=self.env, cwd=self.folder,
                capture_output=True, text=True, timeout=dp.PATIENCE, check=True)
            evaluated = [json.loads(line) for line in said.stdout.splitlines()
                         if '"confusion"' in line]
            self.assertEqual(evaluated[0]["confusion"], counts)

    def test_many_classes(self):
        """Beyond 100 classes there is no picture, which is told once."""
        numpy.save(self.path("x.npy"), numpy.zeros((404, 4), numpy.float32))
        numpy.save(self.path("y.npy"), numpy.arange(404) % 101)
        files = "[x.npy, y.npy]"
        driver = self.run_driver("--run-dir", self.path("run"),
                                 job={**dp.LIGHT, "report.tensorboard": "true", "train.epochs": 2,
                                      "data.format": "npy", "data.path": self.folder,
                                      "data.train": files, "data.validation": files,
                                      "train.global_batch": 101})
        self.assertEqual(driver.text.count("there is no confusion matrix"), 1)
        self.assertEqual(read(self.path("run", "tensorboard")).Tags()["images"], [])
        self.assertFalse(os.path.exists(self.path("run", "confusion.csv")))

    def test_damage(self):
        """The reader sees a bit that differs, so the checksums that it found good were."""
        self.run_driver("--run-dir", self.path("run"), job={**JOB, "train.max_steps": 20})
        folder = self.path("run", "tensorboard")
        n = len(read(folder).Scalars("loss/train"))
        path = os.path.join(folder, os.listdir(folder)[0])
        with open(path, "r+b") as file:
            data = bytearray(file.read())
            at = data.index(b"grad_norm")
            data[at] ^= 1
            file.seek(0)
            file.write(data)
        tags = read(folder).Tags()["scalars"]
        self.assertEqual((n, "loss/train" in tags), (4, False))


if __name__ == "__main__":
    dp.main()

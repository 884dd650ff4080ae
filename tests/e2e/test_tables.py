"""data.format: csv, and data.targets: two ranks train with a table as with arrays that were made of
it by hand, and predictions are in the table's units."""

import ast
import json
import random
import re
import struct

import dp

NAMES = ["b, c", "a", "d"]  # in byte order: a, "b, c", d


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Tables(dp.Case):
    def setUp(self):
        super().setUp()
        self.tables = {}
        rng = random.Random(3)
        # size, kind, and two targets of different scales, all of them exact as float32
        self.rows = {name: [(rng.randrange(-40, 40) / 8, rng.choice(NAMES),
                             rng.randrange(4000, 8000), rng.randrange(64) / 64)
                            for _ in range(n)] for name, n in (("train", 90), ("val", 37))}

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def write_tables(self):
        """The columns of the two files differ in their order."""
        lines = [f'{size},{price},"{kind}",{part}'
                 for size, kind, price, part in self.rows["train"]]
        self.write("train.csv", "\r\n".join(["size,price,kind,part", *lines]).encode())
        lines = [f'"{kind}",{part},{size},{price}' for size, kind, price, part in self.rows["val"]]
        self.write("val.csv", "\n".join(["kind,part,size,price", *lines, ""]).encode())

    def write_arrays(self, mean, std):
        for name, rows in self.rows.items():
            x = [v for size, kind, *_ in rows
                 for v in (size, *(float(kind == word) for word in sorted(NAMES)))]
            y = [f32((v - mean[k]) / std[k]) for row in rows for k, v in enumerate(row[2:])]
            self.write(f"{name}x.npy", dp.npy("<f4", (len(rows), 4),
                                              struct.pack(f"<{len(x)}f", *x)))
            self.write(f"{name}y.npy", dp.npy("<f4", (len(rows), 2),
                                              struct.pack(f"<{len(y)}f", *y)))

    def numbers(self, run):
        """Mean and std of the two targets, as the driver measured them."""
        with open(self.path(run, "job.yaml"), encoding="utf-8") as file:
            text = file.read()
        text = text[text.index("  targets:"):]
        self.assertIn("normalize: given", text)
        return [ast.literal_eval(re.search(key + r": (\[.*?\])", text)[1])
                for key in ("mean", "std")]

    def predict(self, run):
        """The outputs for each row of the validation file."""
        out = self.path(run + ".npy")
        daemon = self.start([dp.DRIVER, "--predict", out, "--run-dir", run, "--nranks", "2",
                             "--local"])
        self.assert_exit(daemon, dp.FINISHED)
        with open(out, "rb") as file:
            data = file.read()
        with open(self.path(run + ".csv"), encoding="utf-8") as file:
            table = [[float(v) for v in line.split(",")[1:]] for line in file.readlines()[1:]]
        self.tables[run] = table
        return list(struct.iter_unpack("<2f", data[-37 * 2 * 4:]))

    def test_targets_are_learnt_by_their_scale(self):
        self.write_tables()
        job = {"data.path": self.folder, "model.arch": "mlp", "model.hidden": "[8]",
               "model.loss": "mse", "train.global_batch": 16, "train.epochs": 2,
               "optimizer.lr": 0.05}
        table = {**job, "data.format": "csv", "data.validation": "val.csv",
                 "data.target": "price, part", "data.targets.normalize": "auto"}
        arrays = {**job, "data.format": "npy", "data.train": "trainx.npy,trainy.npy",
                  "data.validation": "valx.npy,valy.npy"}
        self.run_driver("--local", "--run-dir", "table", n=2, job=table)
        mean, std = self.numbers("table")
        columns = list(zip(*(row[2:] for row in self.rows["train"])))
        for k, column in enumerate(columns):
            self.assertAlmostEqual(mean[k] * 90 / sum(column), 1, delta=1e-6)
            self.assertAlmostEqual(std[k]**2 * 90 / sum((v - mean[k])**2 for v in column), 1,
                                   delta=1e-5)
        self.run_driver("--local", "--run-dir", "table", "--resume", n=2,
                        job={**table, "train.epochs": 3})
        self.assertEqual(self.numbers("table"), [mean, std])
        self.write_arrays(mean, std)
        self.run_driver("--local", "--run-dir", "arrays", n=2, job={**arrays, "train.epochs": 3})
        losses = [[(event["train_loss"], event["validation_loss"])
                   for event in self.events("epoch", run)] for run in ("table", "arrays")]
        self.assertEqual(len(losses[0]), 3)
        self.assertEqual(losses[0], losses[1])
        for ours, learnt in zip(self.predict("table"), self.predict("arrays"), strict=True):
            for k in range(2):
                self.assertAlmostEqual(ours[k], learnt[k] * std[k] + mean[k], delta=1e-6 * mean[k])
        # The table has more digits than the array's float32.
        for ours, learnt in zip(self.tables["table"], self.tables["arrays"], strict=True):
            self.assertAlmostEqual(ours[0], learnt[0] * std[0] + mean[0], delta=1e-8 * mean[0])
        # A run that goes on keeps its numbers, though the job says auto again.
        with open(self.path("table", "job.yaml"), encoding="utf-8") as file:
            text = re.sub(r"(targets:\s+normalize: given\s+mean: )\[.*", r"\1[2, 3]", file.read())
        with open(self.path("table", "job.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        self.run_driver("--local", "--run-dir", "table", "--resume", n=2,
                        job={**table, "train.epochs": 4})
        self.assertEqual(self.numbers("table"), [[2, 3], std])

    def test_figures_about_a_large_mean(self):
        """At 1e8 a float32 holds multiples of 8 only: targets about it are exact, predictions are
        not.  Figures are of the learnt numbers, as the loss is, and errors in the file's units."""
        rng = random.Random(5)
        y = [1e8 + 8 * rng.randrange(4) for _ in range(64)]
        x = [(v - 1e8) / 8 + rng.uniform(-1, 1) for v in y]
        for name, values in (("x.npy", x), ("y.npy", y)):
            self.write(name, dp.npy("<f4", (64, 1), struct.pack("<64f", *values)))
        self.run_driver("--run-dir", "run", n=1, job={
            "data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
            "data.validation": "x.npy,y.npy", "data.targets.normalize": "auto",
            "model.arch": "mlp", "model.hidden": "[8]", "model.loss": "mse",
            "train.global_batch": 16, "train.epochs": 4, "optimizer.lr": 0.05})
        daemon = self.start([dp.DRIVER, "--evaluate", "--log-format", "json", "--run-dir", "run"])
        self.assert_exit(daemon, dp.FINISHED)
        told = json.loads(daemon.out)
        mean = sum(y) / 64
        std = (sum((v - mean)**2 for v in y) / 64)**0.5
        self.assertAlmostEqual(told["r2"], 1 - told["validation_loss"], delta=1e-3)
        self.assertGreater(told["mean_absolute_error"], 0.3 * told["validation_loss"]**0.5 * std)
        self.assertLess(told["mean_absolute_error"], told["validation_loss"]**0.5 * std)

    def test_another_training_file_is_refused(self):
        """More rows are no other file, but more words are: they change numbers of others."""
        self.write_tables()
        job = {"data.format": "csv", "data.path": self.folder, "data.target": "kind",
               "model.arch": "mlp", "train.global_batch": 16, "train.epochs": 1}
        self.run_driver("--run-dir", "run", n=1, job=job)
        with open(self.path("train.csv"), "ab") as file:
            file.write(b"\r\n1,2,a,3")
        wanted = r"data\.scheme is \w{32}, but that of .*train\.csv is \w{32}: its columns, words"
        evaluation = [dp.DRIVER, "--evaluate", "--run-dir", "run",
                      "--set", "data.validation=train.csv"]
        self.assert_exit(self.start(evaluation), dp.FINISHED)
        with open(self.path("train.csv"), "ab") as file:
            file.write(b"\r\n1,2,A,3")
        self.assert_exit(self.start(evaluation), dp.USAGE, wanted)
        self.assert_exit(self.driver("--run-dir", "run", "--resume", n=1,
                                     job={**job, "train.epochs": 2}), dp.USAGE, wanted)

    def test_missing_values_are_told(self):
        """In the log, in an event, and by --check; without data.missing they are refused."""
        self.write("train.csv", b"size,kind,y\n" + b"".join(
            b"%s,%s,%s\n" % (b"" if i % 10 == 3 else b"%d" % i, b"ab"[i % 2:i % 2 + 1],
                             b"yes" if i % 3 else b"no") for i in range(40)))
        job = {"data.format": "csv", "data.path": self.folder, "model.arch": "mlp",
               "data.validation": "every_tenth", "train.global_batch": 12, "train.epochs": 1,
               "data.normalize": "auto"}
        told = (r"train\.csv: column size has no value in 4 rows, the first in line 5: the mean, "
                r"19\.6667, stands for it")
        daemon = self.driver("--check", job=job, n=1)
        self.assert_exit(daemon, dp.USAGE, r"train\.csv: line 5: column size has no value; in all "
                                           r"4 in column size\. Set data\.missing: drop")
        job["data.missing"] = "mean"
        self.assert_exit(self.driver("--check", job=job, n=1), dp.FINISHED, "warning: .*" + told,
                         r"train\.csv: 40 rows; target y of 2 classes; 3 features, of 1 columns of "
                         r"numbers and 1 of words")
        driver = self.run_driver("--local", "--run-dir", "run", n=2, job=job)
        self.assertEqual(len(re.findall("warning: .*" + told, driver.text)), 1)
        warning, = self.events("warning", "run")
        self.assertRegex(warning["message"], told)
        # A prediction has the number of its row in the file, with a target or without.
        self.write("new.csv", b"size,kind,y\n1,a,\n,b,yes\n3,b,no\n4,a,who knows\n")
        daemon = self.start([dp.DRIVER, "--predict", self.path("out.npy"), "--run-dir", "run",
                             "--set", "data.validation=new.csv", "--set", "data.missing=drop"])
        self.assert_exit(daemon, dp.FINISHED,
                         r"warning: .*new\.csv: 1 of 4 rows have a missing value and are left out "
                         r"\(data\.missing\); 2 of 3 rows, the first in line 2, have no target")
        with open(self.path("out.csv"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["sample", "0", "2", "3"])

    def test_all_ranks_drop_rows_without_target(self):
        """Every rank leaves them out of validation, too; only for --predict are they rows."""
        for name, n in (("train.csv", 40), ("val.csv", 20)):
            self.write(name, b"size,y\n" + b"".join(
                b"%d,%s\n" % (i, b"" if i % 10 == 4 else b"%d" % (i % 7)) for i in range(n)))
        job = {"data.format": "csv", "data.path": self.folder, "data.validation": "val.csv",
               "data.missing": "drop", "model.arch": "mlp", "model.loss": "mse",
               "train.global_batch": 12, "train.epochs": 1}
        self.run_driver("--local", "--run-dir", "run", n=2, job=job)
        told = []
        for n in ("1", "2"):
            daemon = self.start([dp.DRIVER, "--evaluate", "--log-format", "json", "--run-dir",
                                 "run", "--nranks", n, "--local"])
            self.assert_exit(daemon, dp.FINISHED)
            told.append(json.loads(daemon.out))
            self.assertEqual(told[-1]["samples"], 18)
        self.assertAlmostEqual(told[0]["validation_loss"], told[1]["validation_loss"], delta=1e-6)
        daemon = self.start([dp.DRIVER, "--predict", self.path("out.npy"), "--run-dir", "run",
                             "--nranks", "2", "--local"])
        self.assert_exit(daemon, dp.FINISHED, "2 of 20 rows, the first in line 6, have no target")
        with open(self.path("out.csv"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 21)


if __name__ == "__main__":
    dp.main()

"""The figures and tables of --evaluate and --predict, for any number of ranks: figures by class,
label or number are computed here again from the logits; the table of the predictions has the names
of files and classes; and samples need no labels."""

import csv
import json
import math
import os
import random
import shutil
import struct
import tarfile
import zlib

import dp
from dp import DRIVER, FINISHED, USAGE


def png(size, color, rng):
    """A square picture, which is of this colour but for noise."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))

    row = lambda: bytes(max(0, min(255, c + rng.randrange(-90, 90))) for c in color * size)
    rows = b"".join(b"\0" + row() for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def ratio(a, b):
    return a / b if b else None


def largest(row):
    return max(range(len(row)), key=lambda k: (row[k], -k))


def softmax(row):
    top = max(row)
    e = [math.exp(x - top) for x in row]
    return [x / sum(e) for x in e]


class Predict(dp.Case):
    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)) or ".", exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(content)

    def write_reals(self, name, rows):
        flat = [v for row in rows for v in row]
        self.write(name, dp.npy("<f4", (len(rows), len(rows[0])),
                                struct.pack(f"<{len(flat)}f", *flat)))

    def evaluate(self, *args, n=1, status=FINISHED, run="run", out="json"):
        daemon = self.start([DRIVER, "--evaluate", "--log-format", out, "--run-dir", run,
                             "--nranks", str(n), *(["--local"] if n > 1 else []), *args])
        self.assert_exit(daemon, status)
        if status != FINISHED:
            return daemon.text
        return json.loads(daemon.out) if out == "json" else daemon.out

    def rows(self, name):
        """The float32 rows of an array of two dimensions."""
        with open(self.path(name), "rb") as file:
            data = file.read()
        start = 10 + struct.unpack("<H", data[8:10])[0]
        self.assertEqual(start % 64, 0)
        self.assertIn(b"{'descr': '<f4', 'fortran_order': False, 'shape': (", data[10:start])
        n = int(data[10:start].split(b"(")[1].split(b",")[0])
        flat = struct.unpack(f"<{(len(data) - start) // 4}f", data[start:])
        width = len(flat) // n
        return [flat[i * width:(i + 1) * width] for i in range(n)]

    def table(self, name):
        with open(self.path(name), encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def assert_near(self, seen, want):
        if want is None:
            self.assertIsNone(seen)
        else:
            self.assertAlmostEqual(seen, want, delta=1e-5 * (1 + abs(want)))

    def train(self, loss, y, hidden="[8]", **more):
        self.run_driver("--run-dir", "run", job={
            "data.format": "npy", "data.path": self.folder, "data.train": f"x.npy,{y}.npy",
            "data.validation": f"vx.npy,v{y}.npy", "model.arch": "mlp", "model.hidden": hidden,
            "model.loss": loss, "train.global_batch": 32, "train.epochs": 3, "optimizer.lr": 0.1,
            **more})

    def make(self, n_validation=83):
        """Features; classes 0 to 4, of which 4 is too rare to be found, and -1, which is ignored;
        two sums and a constant; and signs."""
        rng = random.Random(3)
        self.made = {}
        for prefix, n in (("", 200), ("v", n_validation)):
            x = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(n)]
            c = [4 if i % 40 == 7 else -1 if i % 11 == 5 else
                 (r[0] > 0) + 2 * (r[1] + rng.gauss(0, 1) > 0.7) for i, r in enumerate(x)]
            y = [[r[0] + r[1] + rng.gauss(0, 1), r[2] - 100, 0.5] for r in x]
            z = [[float(r[0] + rng.gauss(0, 0.5) > 0), float(r[1] > 1)] for r in x]
            self.write_reals(f"{prefix}x.npy", x)
            self.write_reals(f"{prefix}y.npy", y)
            self.write_reals(f"{prefix}z.npy", z)
            self.write(f"{prefix}c.npy", dp.npy("|i1", (n,), struct.pack(f"{n}b", *c)))
            self.made[prefix] = {"x": x, "c": c, "y": y, "z": z}

    def test_classes(self):
        """Confusion matrix, precision, recall and F1, as scikit-learn has them."""
        self.make()
        self.train("cross_entropy", "c",
                   **{"train.ignore_index": -1, "data.class_names": "[a, 'b, c', d, e, rare]"})
        want = self.made["v"]["c"]
        for n in (1, 2, 3):
            result = self.evaluate("--predict", f"{n}.npy", n=n)
            rows = self.rows(f"{n}.npy")
            got = [largest(row) for row in rows]
            matrix = [[sum(w == i and g == k for w, g in zip(want, got)) for k in range(5)]
                      for i in range(5)]
            self.assertEqual(result["confusion"], matrix)
            self.assertEqual(sum(map(sum, matrix)), result["targets"])
            names = ["a", "b, c", "d", "e", "rare"]
            self.assertEqual([c["class"] for c in result["classes"]], names)
            for k, c in enumerate(result["classes"]):
                right, count = matrix[k][k], sum(matrix[k])
                predicted = sum(row[k] for row in matrix)
                self.assertEqual((c["count"], c["predicted"], c["correct"]),
                                 (count, predicted, right))
                self.assert_near(c["precision"], ratio(right, predicted))
                self.assert_near(c["recall"], ratio(right, count))
                self.assert_near(c["f1"], ratio(2 * right, count + predicted))
            # Ignored samples are predicted, too, but not judged.
            self.assertEqual(result["predictions"], f"{n}.csv")
            head, *table = self.table(f"{n}.csv")
            self.assertEqual(head, ["sample", "class", "probability"])
            self.assertEqual(len(table), 83)
            for i, (row, (sample, name, p)) in enumerate(zip(rows, table)):
                self.assertEqual((int(sample), name), (i, names[got[i]]))
                self.assertAlmostEqual(float(p), max(softmax(row)), delta=1e-5)
            # Without the file the figures are the same.
            del result["logits"], result["predictions"]
            self.assertEqual(self.evaluate(n=n), result)
        self.assertIsNone(result["classes"][4]["precision"])  # never predicted
        text = self.evaluate(out="text")
        self.assertRegex(text, r"\nclass  precision     recall         f1      count\n"
                               r"a  +\d\.\d{4}")
        self.assertRegex(text, r"\nrare  +-  +0\.0000  +0\.0000  +2\n")
        self.assertRegex(text, r"\n 1  b, c +\d+ +\d+ +\d+ +\d+ +\d+\n")

    def test_numbers(self):
        """R2 and the mean absolute error, of each output and over all."""
        self.make()
        self.train("mse", "y", hidden="[]")
        want = self.made["v"]["y"]
        for n in (1, 3):
            result = self.evaluate("--predict", f"{n}.npy", n=n)
            rows = self.rows(f"{n}.npy")
            r2s, errors = [], []
            for k, o in enumerate(result["outputs"]):
                t, y = [struct.unpack("f", struct.pack("f", w[k]))[0] for w in want], \
                       [row[k] for row in rows]
                mean = sum(t) / len(t)
                spread = sum((v - mean) ** 2 for v in t)
                off = sum((a - b) ** 2 for a, b in zip(y, t))
                r2s.append(1 - off / spread if spread > 1e-9 else 1.0 if off == 0 else 0.0)
                errors.append(sum(abs(a - b) for a, b in zip(y, t)) / len(t))
                self.assert_near(o["r2"], r2s[k])
                self.assert_near(o["mean_absolute_error"], errors[k])
            self.assert_near(result["r2"], sum(r2s) / 3)
            self.assert_near(result["mean_absolute_error"], sum(errors) / 3)
            self.assertGreater(r2s[0], 0.3)
            head, *table = self.table(f"{n}.csv")
            self.assertEqual(head, ["sample", "value_0", "value_1", "value_2"])
            for i, (row, line) in enumerate(zip(rows, table, strict=True)):
                self.assertEqual(line[0], str(i))
                for text, y in zip(line[1:], row, strict=True):
                    self.assertEqual(struct.pack("f", float(text)), struct.pack("f", y))
        self.assertRegex(self.evaluate(out="text"),
                         r"\nall +R2 -?\d+\.?\S*  mean absolute error \d")

    def test_labels(self):
        """Each label of bce has its own precision and recall, and its probability in the table."""
        self.make()
        self.train("bce", "z", **{"data.class_names": "[left, up]"})
        result = self.evaluate("--predict", "o.npy", n=2)
        rows, want = self.rows("o.npy"), self.made["v"]["z"]
        for k, (label, name) in enumerate(zip(result["labels"], ["left", "up"], strict=True)):
            right = sum(w[k] > 0.5 and r[k] > 0 for w, r in zip(want, rows))
            self.assertEqual(label["label"], name)
            self.assertEqual(label["count"], sum(w[k] > 0.5 for w in want))
            self.assert_near(label["precision"], ratio(right, sum(r[k] > 0 for r in rows)))
            self.assert_near(label["recall"], ratio(right, label["count"]))
        head, *table = self.table("o.csv")
        self.assertEqual(head, ["sample", "left", "up"])
        for row, line in zip(rows, table, strict=True):
            for text, y in zip(line[1:], row):
                self.assertAlmostEqual(float(text), 1 / (1 + math.exp(-y)), delta=1e-6)

    def test_arrays_without_targets(self):
        self.make()
        for loss, y in (("cross_entropy", "c"), ("mse", "y")):
            self.train(loss, y, **{"train.ignore_index": -1, "train.epochs": 1,
                                "optimizer.lr": 0.001})
            self.evaluate("--predict", f"p{y}.npy")
            result = self.evaluate("--predict", f"q{y}.npy", "--set", "data.validation=vx.npy", n=2)
            self.assertEqual(self.table(f"p{y}.csv")[0], self.table(f"q{y}.csv")[0])
            for one, other in zip(self.rows(f"p{y}.npy"), self.rows(f"q{y}.npy"), strict=True):
                for a, b in zip(one, other):
                    self.assert_near(a, b)
            self.assertEqual(set(result),
                             {"checkpoint", "step", "samples", "logits", "predictions"})
            self.assertRegex(self.evaluate("--set", "data.validation=vx.npy", status=USAGE),
                             r"data.validation is vx.npy, want two files")
            self.remove("run")

    def remove(self, folder):
        shutil.rmtree(self.path(folder))

    def test_pictures(self):
        rng = random.Random(1)
        colors = {'a, "b"': (200, 30, 30), "cat": (30, 200, 30), "dög": (30, 30, 200)}
        for part, n in (("train", 12), ("val", 5)):
            for name, color in colors.items():
                for i in range(n):
                    self.write(f"{part}/{name}/{i}.png", png(8, color, rng))
        for path in ("new/x.png", "new/deep/y.png", "new/cat/z.png"):
            self.write(path, png(8, colors["cat"], rng))
        self.run_driver("--run-dir", "run", job={
            "data.format": "images", "data.path": self.folder, "data.size": 8, "model.arch": "mlp",
            "model.hidden": "[8]", "train.global_batch": 12, "train.epochs": 3})
        names = sorted(colors)
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            self.assertIn('class_names: ["a, \\"b\\"", "cat", "dög"]', file.read())
        folder = self.path("run", "checkpoints", "latest")
        with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["class_names"], names)
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        self.assertEqual(json.loads(head["__metadata__"]["class_names"]), names)

        result = self.evaluate("--predict", "val.npy", n=3)
        table = self.table("val.csv")
        self.assertEqual(table[0], ["file", "class", "probability"])
        self.assertEqual([row[0] for row in table[1:]],
                         [f"val/{name}/{i}.png" for name in names for i in range(5)])
        right = sum(row[0].split("/")[1] == row[1] for row in table[1:])
        self.assertEqual(sum(c["correct"] for c in result["classes"]), right)
        self.assertGreater(right, 7)
        # A picture that cannot be read is in the table, but predicted and judged it is not.
        self.write("val/cat/2.png", b"\x89PNG torn")
        result = self.evaluate("--predict", "torn.npy", "--set", "data.on_corrupt=skip", n=2)
        self.assertEqual([row for row in self.table("torn.csv") if row[0] == "val/cat/2.png"],
                         [["val/cat/2.png", "", ""]])
        self.assertEqual([c["count"] for c in result["classes"]], [5, 4, 5])
        self.assertEqual(sum(map(sum, result["confusion"])), result["targets"])
        self.shards()
        # No class folders, folders in each other, and one that happens to have a class' name.
        result = self.evaluate("--predict", "new.npy", "--set", "data.validation=new", n=2)
        self.assertNotIn("validation_loss", result)
        self.assertEqual([row[0] for row in self.table("new.csv")[1:]],
                         ["new/x.png", "new/cat/z.png", "new/deep/y.png"])
        text = self.evaluate("--predict", "one.npy", "--set",
                             "data.validation=" + self.path("new", "x.png"), out="text")
        self.assertRegex(text, r": no labels, 1 samples; logits in one.npy, predictions in one.csv")
        self.assertEqual(self.table("one.csv")[1:], self.table("new.csv")[1:2])
        self.refuse_pictures()

    def shards(self):
        """Samples of shards are named by shard and key, and predictions need no KEY.cls."""
        os.makedirs(self.path("shards"))
        with tarfile.open(self.path("shards", "a.tar"), "w") as file:
            for i in range(3):
                file.add(self.path("val", "dög", f"{i}.png"), f"k{i}.png")
        self.evaluate("--predict", "shards.npy", "--set", "data.validation=shards")
        self.assertEqual([row[0] for row in self.table("shards.csv")[1:]],
                         [f"shards/a.tar/k{i}" for i in range(3)])
        self.assertEqual([row[1:] for row in self.table("shards.csv")[1:]],
                         [row[1:] for row in self.table("val.csv")[11:14]])

    def refuse_pictures(self):
        """Only predictions do without labels; a table is not written over; and classes do not
        change their names unnoticed."""
        text = self.evaluate("--set", "data.validation=new", status=USAGE)
        self.assertRegex(text, r"class folder deep is not among the training set's .*--predict")
        self.write("o.csv", b"mine")
        self.assertRegex(self.evaluate("--predict", "o.npy", status=USAGE),
                         r"--predict: o.csv is there already: remove it")
        self.assertRegex(self.evaluate("--predict", "p.csv", status=USAGE),
                         r"--predict: p.csv is the name of a table, want OUT.npy")
        self.write("text.txt", b"no picture")
        self.assertRegex(self.evaluate("--predict", "q.npy", "--set", "data.validation=text.txt",
                                       status=USAGE), r"it is a file that ends otherwise than .jpg")
        os.rename(self.path("train", "cat"), self.path("train", "zebra"))
        os.rename(self.path("val", "cat"), self.path("val", "zebra"))
        self.assertRegex(self.evaluate(status=USAGE),
                         r"class 1 of the training data is dög, the job's \(data.class_names\) "
                         r"is cat")


if __name__ == "__main__":
    dp.main()

"""Test of EMNIST and QMNIST with torchvision: its data sets and our format `mnist` make the same
pictures, not transposed, and the same classes of the same files.

It needs a Python with torchvision and safetensors (find_torch.py), and is skipped (77) without one.
Our samples come from the program in $DPLOGITS (logits.c).
"""
import os

import find_torch

find_torch.need("torchvision", "safetensors", "numpy")

import numpy as np  # noqa: E402
import torchvision  # noqa: E402
from torchvision.datasets import EMNIST, QMNIST  # noqa: E402

from models import Case, dp  # noqa: E402

N, SIDE = {"train": 130, "test": 70}, 28


def write_idx(path, array, code):
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    with open(path, "wb") as file:
        file.write(header + array.tobytes())


class Sets(Case):
    @classmethod
    def setUpClass(cls):
        print(f"torchvision {torchvision.__version__}", flush=True)

    def write(self, folder, prefix, name, labels):
        """Random pictures, and these labels"""
        os.makedirs(self.path(folder), exist_ok=True)
        pictures = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), SIDE, SIDE))
        path = self.path(folder, prefix)
        write_idx(f"{path}-images-idx3-ubyte", pictures.astype(np.uint8), 8)
        write_idx(f"{path}-{name}", labels, 12 if labels.ndim == 2 else 8)

    def compare(self, split, folder, theirs, first=0):
        """Their sets for training and for tests, and ours"""
        n_classes = len(theirs[0].classes) - first
        ours = self.our_samples(dict(format="mnist", path=self.path(folder), split=split),
                                SIDE * SIDE, n_classes)
        for (x, y), data in zip(ours, theirs, strict=True):
            wanted = np.stack([np.asarray(picture) for picture, _ in data])
            self.assertTrue(np.array_equal(np.rint(x * 255).reshape(wanted.shape), wanted))
            self.assertEqual(y.tolist(), [label - first for _, label in data])

    def test_emnist(self):
        """letters has labels from 1 on in torchvision, whose class 0 is N/A."""
        for split, names in EMNIST.classes_split_dict.items():
            first = int(names[0] == "N/A")
            for part, n in N.items():
                labels = np.arange(n) % (len(names) - first) + first
                self.write("EMNIST/raw", f"emnist-{split}-{part}", "labels-idx1-ubyte",
                           labels.astype(np.uint8))
            self.compare(split, "EMNIST/raw",
                         [EMNIST(self.folder, split, train=train) for train in (True, False)],
                         first)

    def test_names(self):
        """job.yaml has torchvision's names of the classes."""
        self.write("raw", "emnist-balanced-train", "labels-idx1-ubyte",
                   np.arange(47).astype(np.uint8))
        self.run_driver("--local", "--run-dir", "run", *dp.sets({
            "model.arch": "mlp", "data.format": "mnist", "data.path": self.path("raw"),
            "data.split": "balanced", "data.validation": "none", "train.epochs": 1,
            "train.global_batch": 47}), n=1, job=None)
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            names = next(line for line in file if "class_names" in line).split(":", 1)[1].strip()
        self.assertEqual([name.strip(' "') for name in names.strip("[]").split(",")],
                         EMNIST.classes_split_dict["balanced"])

    def test_qmnist(self):
        for part, n in N.items():
            labels = np.random.default_rng(n).integers(-2**31, 2**31, (n, 8))
            labels[:, 0] = np.arange(n) % 10
            self.write("QMNIST/raw", f"qmnist-{part}", "labels-idx2-int", labels.astype(">i4"))
        self.compare("qmnist", "QMNIST/raw", [QMNIST(self.folder, what) for what in N])


if __name__ == "__main__":
    dp.main()

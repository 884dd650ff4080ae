"""Formats of data beside MNIST's: the test writes files of CIFAR, with colour images, and two ranks
train a few steps with them."""

import gzip
import random

import dp

RECORDS = 60


def records(n_labels, n_classes, seed):
    """A CIFAR file: the label shows in the red plane."""
    rng = random.Random(seed)
    out = bytearray()
    for _ in range(RECORDS):
        label = rng.randrange(n_classes)
        out += bytes([label % 20, label][-n_labels:])
        out += bytes([2 * label]) * 1024 + rng.randbytes(2048)
    return bytes(out)


class Data(dp.Case):
    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def train(self, data_format, arch, run):
        job = {"data.format": data_format, "data.path": self.folder, "model.arch": arch,
               "train.global_batch": 16, "train.epochs": 1, "optimizer.lr": 0.01}
        self.run_driver("--local", "--run-dir", run, n=2, job=job)
        epoch, = self.events("epoch", run)
        self.assertEqual(epoch["step"], 4)
        self.assertLess(epoch["validation_loss"], 10)
        return epoch

    def test_cifar10(self):
        self.write("data_batch_1.bin", records(1, 10, 1)[:40 * 3073])
        self.write("data_batch_2.bin.gz", gzip.compress(records(1, 10, 2)[:20 * 3073]))
        self.write("test_batch.bin", records(1, 10, 3))
        for arch in ("mlp", "lenet"):
            epoch = self.train("cifar10", arch, arch)
            self.assertTrue(1.5 < epoch["train_loss"] < 4, epoch)

    def test_cifar100(self):
        self.write("train.bin", records(2, 100, 1))
        self.write("test.bin.gz", gzip.compress(records(2, 100, 2)))
        for arch in ("mlp", "lenet"):
            epoch = self.train("cifar100", arch, arch)
            self.assertTrue(4 < epoch["train_loss"] < 7, epoch)


if __name__ == "__main__":
    dp.main()

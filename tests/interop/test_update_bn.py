"""Tests that batch norm's statistics of averaged weights are those of
torch.optim.swa_utils.update_bn: tests/golden/averages.json has them, with the network's weights and
the samples.

A run starts from these weights, with a rate so small that no update moves them.  So their mean is
the same weights, whose statistics are compared.
"""
import json
import os
import struct

import safefile
from models import Case, dp

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "averages.json")
SHAPES = {"1.weight": [4, 3], "4.weight": [2, 4]}  # the others are vectors
LAYERS = "[batch_norm, {linear: {units: 4}}, batch_norm, relu, {linear: {units: 2}}]"


class UpdateBn(Case):
    def setUp(self):
        super().setUp()
        with open(GOLDEN, encoding="ascii") as file:
            self.golden = json.load(file)["update_bn"]
        self.write_start()
        samples = self.golden["samples"]
        self.n = len(samples) // 3
        self.write("x.npy", dp.npy("<f4", f"({self.n}, 3)",
                                   struct.pack(f"<{len(samples)}f", *samples)))
        self.write("y.npy", dp.npy("|u1", f"({self.n},)", bytes(i % 2 for i in range(self.n))))

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def write_start(self):
        """The file that PyTorch's model would have, with other statistics."""
        tensors = {name: safefile.of_floats(SHAPES.get(name, [len(values)]), values)
                   for name, values in self.golden["parameters"].items()}
        for name, width in (("0", 3), ("2", 4)):
            tensors[f"{name}.running_mean"] = safefile.of_floats([width], [7.0] * width)
            tensors[f"{name}.running_var"] = safefile.of_floats([width], [9.0] * width)
            tensors[f"{name}.num_batches_tracked"] = ("I64", [], struct.pack("<q", 5))
        safefile.write(self.path("start.safetensors"), tensors)

    def job(self, n_batches):
        batch = self.golden["batch"]
        whole = self.n // batch
        return {"model.arch": "layers", "model.layers": LAYERS, "model.init.name": "file",
                "model.init.path": self.path("start.safetensors"), "data.format": "npy",
                "data.path": self.folder, "data.train": "x.npy,y.npy",
                "data.validation": "x.npy,y.npy", "data.shuffle": "false",
                "train.global_batch": batch, "train.epochs": 3, "optimizer.lr": 1e-30,
                "train.average.name": "swa", "train.average.start": 1,
                "train.average.statistics_samples": 0 if n_batches == whole else n_batches * batch}

    def assert_near(self, seen, want, name):
        for x, y in zip(seen, want, strict=True):
            self.assertAlmostEqual(x, y, delta=1e-6 * max(1, abs(y)), msg=name)

    def test_statistics(self):
        for n_ranks in (1, 3):
            for n_batches, want in self.golden["statistics"].items():
                run = f"{n_ranks}-{n_batches}"
                self.run_driver(*self.arguments(self.job(int(n_batches)), run), n=n_ranks, job=None)
                tensors = safefile.read(self.path(run, "checkpoints", "latest",
                                                  "model_average.safetensors"))
                for name, values in self.golden["parameters"].items():
                    self.assertEqual(list(safefile.floats(tensors[name])), values)
                for name, values in want.items():
                    self.assert_near(safefile.floats(tensors[name]), values, name)


if __name__ == "__main__":
    dp.main()

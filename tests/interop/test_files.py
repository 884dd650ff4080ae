"""Tests of checkpoints as files, read and written by Python's standard library alone: names,
dtypes, shapes, bytes."""

import math
import os
import struct

import safefile
from models import COUNTS, MODELS, SHAPES, SMALL, STATES, Case, dp

STEPS = 2 * math.ceil(SMALL["data.samples"] / SMALL["train.global_batch"])
# One step whose update is too small to change any float32 but zero.
STILL = {"train__max_steps": 1, "optimizer__lr": 1e-30, "optimizer__momentum": 0}


def fan_in(name, shapes):
    """The fan in of the layer to which a weight or a bias belongs."""
    return math.prod(shapes[name.rsplit(".", 1)[0] + ".weight"][1:])


class Files(Case):
    def test_names_and_shapes(self):
        for name in MODELS:
            with self.subTest(model=name):
                folder = self.train(name, run=name)
                found = safefile.read(os.path.join(folder, "model.safetensors"))
                want = {**{k: ("F32", v) for k, v in {**SHAPES[name], **STATES[name]}.items()},
                        **{k: ("I64", []) for k in COUNTS[name]}}
                self.assertEqual({k: v[:2] for k, v in found.items()}, want)
                for key in COUNTS[name]:
                    self.assertEqual(struct.unpack("<q", found[key][2]), (STEPS,))
                momentum = safefile.read(os.path.join(folder, "optimizer.safetensors"))
                self.assertEqual({k: v[:2] for k, v in momentum.items()},
                                 {f"{k}.momentum_buffer": ("F32", v)
                                  for k, v in SHAPES[name].items()})
                for key, tensor in {**found, **momentum}.items():
                    if tensor[0] == "F32":
                        self.assertTrue(all(map(math.isfinite, safefile.floats(tensor))), key)
                        self.assertTrue(any(safefile.floats(tensor)), f"{key} is all zeros")

    def test_no_momentum(self):
        """Without momentum, optimizer.safetensors has no tensors and is still a valid file."""
        folder = self.train("lenet", **STILL)
        self.assertEqual(safefile.read(os.path.join(folder, "optimizer.safetensors")), {})

    def test_initial_values(self):
        """Initial values are PyTorch's: U(-b,b), b = 1/sqrt(fan in), for weights and biases; 1 and
        0 for norms."""
        for name in MODELS:
            shapes = SHAPES[name]
            folder = self.train(name, run=name, **STILL)
            for key, tensor in safefile.read(os.path.join(folder, "model.safetensors")).items():
                if key not in shapes:
                    continue
                values = safefile.floats(tensor)
                if key.startswith("bn"):
                    self.assertLess(max(abs(v - key.endswith("weight")) for v in values), 1e-20)
                    continue
                bound = 1 / math.sqrt(fan_in(key, shapes))
                self.assertLessEqual(max(map(abs, values)), bound * (1 + 1e-6), key)
                self.assertGreater(max(map(abs, values)), bound * 0.7, key)
                if len(values) > 1000:
                    self.assertAlmostEqual(sum(values) / len(values), 0, delta=0.1 * bound)

    def foreign_file(self, name):
        """A model file as another program might write it: another order of tensors, metadata, and
        no value twice."""
        tensors, count = {}, 0
        for key, shape in reversed({**SHAPES[name], **STATES[name]}.items()):
            n = math.prod(shape)
            values = [math.sin(count + i) / 16 + ("var" in key) for i in range(n)]
            tensors[key] = safefile.of_floats(shape, values)
            count += n
        for key in COUNTS[name]:
            tensors[key] = ("I64", [], struct.pack("<q", 7))
        safefile.write(self.path("start.safetensors"), tensors, {"format": "pt"})
        return tensors

    def test_foreign_file_goes_through_unchanged(self):
        for name in MODELS:
            with self.subTest(model=name):
                given = self.foreign_file(name)
                folder = self.train(name, run=name, model__init__name="file",
                                    model__init__path=self.path("start.safetensors"), **STILL)
                found = safefile.read(os.path.join(folder, "model.safetensors"))
                for key in SHAPES[name]:
                    self.assertEqual(found[key][:2], given[key][:2])
                    for a, b in zip(safefile.floats(found[key]), safefile.floats(given[key])):
                        self.assertLessEqual(abs(a - b), 1e-20, key)

    def test_own_checkpoint_starts_a_run(self):
        """A run that starts from a checkpoint's model file begins with the loss at which the first
        run ended."""
        folder = self.train("lenet", run="first", train__epochs=4)
        path = os.path.join(folder, "model.safetensors")
        self.train("lenet", run="second", model__init__name="file", model__init__path=path,
                   **STILL)
        first = self.events("epoch", "first")[-1]
        second = self.events("epoch", "second")[-1]
        self.assertEqual(second["validation_loss"], first["validation_loss"])
        self.assertEqual(second["validation_accuracy"], first["validation_accuracy"])

    def test_bad_files(self):
        """Exit status 2, and the message names the tensor and both shapes."""
        start = self.path("start.safetensors")
        good = self.foreign_file("lenet")
        weight = good["conv2.weight"]
        transposed = dict(good, **{"fc1.weight": ("F32", [800, 128], good["fc1.weight"][2])})
        longer = dict(good, **{"fc2.bias": safefile.of_floats([11], [0.5] * 11)})
        double = dict(good, **{"conv2.weight": ("F64", weight[1], 2 * weight[2])})
        missing = {k: v for k, v in good.items() if k != "conv2.bias"}
        extra = dict(good, **{"conv3.bias": safefile.of_floats([3], [1, 2, 3])})
        for tensors, *patterns in (
                (transposed, r'tensor "fc1\.weight" is F32 \[800,128\].*wants F32 \[128,800\]'),
                (longer, r'tensor "fc2\.bias" is F32 \[11\].*wants F32 \[10\]'),
                (double, r'tensor "conv2\.weight" is F64 .*wants F32 \[50,20,5,5\]'),
                (missing, r'no tensor "conv2\.bias"'),
                (extra, r'tensor "conv3\.bias" is not part of this model'),
                (self.foreign_file("lenet5"), r"start\.safetensors: \d+ differences.*tensor ")):
            safefile.write(start, tensors)
            self.refused("lenet", start, "model.init", "start.safetensors", *patterns)

    def test_damaged_files(self):
        start = self.path("start.safetensors")
        self.foreign_file("mlp")
        with open(start, "rb") as file:
            data = file.read()
        for damaged in (data[:-1], data + b"\0", data[:100], data[:7], b"", b"PK\3\4" * 100):
            with open(start, "wb") as file:
                file.write(damaged)
            self.refused("mlp", start, r"start\.safetensors")
        os.unlink(start)
        self.refused("mlp", start, r"start\.safetensors")


if __name__ == "__main__":
    dp.main()

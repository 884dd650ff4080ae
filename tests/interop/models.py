"""models - the models of the interop tests, with PyTorch's names and shapes, and a test case that
trains them by the real daemons."""
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
import dp  # noqa: E402

MODELS = {
    "lenet": {"model.arch": "lenet"},
    "lenet5": {"model.arch": "lenet5"},
    "mlp": {"model.arch": "mlp", "model.hidden": "40,24", "model.batch_norm": "true"},
}

# PyTorch's names and shapes of the parameters, and of batch norm's running statistics.
SHAPES = {
    "lenet": {"conv1.weight": [20, 1, 3, 3], "conv1.bias": [20], "conv2.weight": [50, 20, 5, 5],
              "conv2.bias": [50], "fc1.weight": [128, 800], "fc1.bias": [128],
              "fc2.weight": [10, 128], "fc2.bias": [10]},
    "lenet5": {"conv1.weight": [6, 1, 5, 5], "conv1.bias": [6], "conv2.weight": [16, 6, 5, 5],
               "conv2.bias": [16], "fc1.weight": [120, 400], "fc1.bias": [120],
               "fc2.weight": [84, 120], "fc2.bias": [84], "fc3.weight": [10, 84],
               "fc3.bias": [10]},
    "mlp": {"fc1.weight": [40, 784], "fc1.bias": [40], "bn1.weight": [40], "bn1.bias": [40],
            "fc2.weight": [24, 40], "fc2.bias": [24], "bn2.weight": [24], "bn2.bias": [24],
            "fc3.weight": [10, 24], "fc3.bias": [10]},
}
STATES = {
    "lenet": {}, "lenet5": {},
    "mlp": {"bn1.running_mean": [40], "bn1.running_var": [40],
            "bn2.running_mean": [24], "bn2.running_var": [24]},
}
COUNTS = {"lenet": [], "lenet5": [], "mlp": ["bn1.num_batches_tracked", "bn2.num_batches_tracked"]}

# Two ranks have different shares, and the last step of an epoch has fewer samples.
SMALL = {"data.format": "digits", "data.samples": 501, "data.validation_samples": 203,
         "train.global_batch": 65, "train.epochs": 2, "optimizer.lr": 0.05,
         "optimizer.momentum": 0.9}


# The device on which the ranks compute.  The GPU suite asks for a GPU, which they share.
DEVICE = os.environ.get("DPTRAIN_TEST_DEVICE", "cpu")


LOGITS = os.path.abspath(os.environ.get(
    "DPLOGITS", os.path.join(dp.ROOT, "build/tests/interop/logits")))


class Case(dp.Case):
    """A test case whose train() returns the folder of the run's last checkpoint."""

    def our_samples(self, data, n_features, n_classes):
        """The samples of the training set and of the validation set of the section `data` of a job,
        as a program reads them (logits.c): for each x, a flat array, and y"""
        import numpy as np  # needed here alone
        import safetensors.numpy
        job, model, out = self.path("job.yaml"), self.path("model.safetensors"), self.path("out")
        with open(job, "w", encoding="utf-8") as file:
            json.dump(dict(name="samples", train=dict(global_batch=1, epochs=1),
                           model=dict(arch="mlp", hidden=[1]),
                           optimizer=dict(name="sgd", lr=0.1), data=data), file)
        zeros = {"fc1.weight": (1, n_features), "fc1.bias": (1,),
                 "fc2.weight": (n_classes, 1), "fc2.bias": (n_classes,)}
        safetensors.numpy.save_file({k: np.zeros(s, np.float32) for k, s in zeros.items()}, model)
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        done = subprocess.run([LOGITS, job, model, out], check=False, capture_output=True,
                              text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(np.fromfile(os.path.join(out, f"{name}.x"), np.float32),
                 np.fromfile(os.path.join(out, f"{name}.y"), np.int32))
                for name in ("train", "validation")]

    def driver(self, *args, **kwargs):
        shares = ["--test-shared-gpu"] if DEVICE != "cpu" else []
        return super().driver(*args, "--device", DEVICE, *shares, **kwargs)

    def arguments(self, job, run):
        return ["--local", "--threads", "1", "--run-dir", run, *dp.sets(job)]

    def train(self, name, run="run", **more):
        """Train a model.  more: keys of the job, with __ instead of the dot."""
        job = {**SMALL, **MODELS[name], **{k.replace("__", "."): v for k, v in more.items()}}
        self.run_driver(*self.arguments(job, run), n=2, job=None)
        return self.path(run, "checkpoints", "latest")

    def refused(self, name, model, *patterns):
        """Assert that a run from this model file ends with status 2 and says why."""
        job = {**SMALL, **MODELS[name], "model.init.name": "file", "model.init.path": model}
        driver = self.driver(*self.arguments(job, "refused"), n=2, job=None)
        self.assert_exit(driver, dp.USAGE, *patterns)
        self.assertFalse(os.path.exists(self.path("refused")))

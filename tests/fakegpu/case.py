"""Jobs of the tests on a simulated GPU, and comparisons of the numbers and files of two runs."""

import dp

LENET = {"data.samples": 240, "data.validation_samples": 100, "train.global_batch": 24,
         "train.epochs": 2, "optimizer.lr": 0.1}
# For tests that do not look at the kernels: a simulated convolution is slow.
JOB = {**LENET, "model.arch": "mlp", "model.hidden": "[24]"}
MANY = {"DPTRAIN_FAKE_GPUS": "3"}

undisturbed = {}


class Case(dp.Case):
    def train(self, *args, n=1, run, job=JOB, **kwargs):
        """Train, and return the epoch events of the whole run."""
        self.run_driver("--run-dir", self.path(run), *args, n=n, job=job, **kwargs)
        return self.events("epoch", run)

    def undisturbed(self, job):
        """The epoch events of an undisturbed run of two ranks on GPUs; each job is trained once."""
        key = str(job)
        if key not in undisturbed:
            run = f"whole{len(undisturbed)}"
            undisturbed[key] = self.train("--device", "cuda", "--local", n=2, run=run, job=job)
        return undisturbed[key]

    def assert_near(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertEqual(x["step"], y["step"])
            for key in ("train_loss", "validation_loss"):
                self.assertLess(abs(x[key] - y[key]), tolerance * abs(x[key]), (key, x, y))

    def like_the_cpu(self, job, name="", n=2, tolerance=1e-5):
        """n ranks on GPUs train as n on CPUs do; the epoch events of the GPUs."""
        cpu, gpu = (self.train("--device", device, "--local", n=n, run=device + name, job=job,
                               env=MANY) for device in ("cpu", "cuda"))
        self.assert_near(cpu, gpu, tolerance)
        return gpu

    def files(self, run):
        """The bytes of the newest checkpoint's files."""
        found = {}
        for name in ("model", "optimizer"):
            with open(self.path(run, "checkpoints", "latest", name + ".safetensors"), "rb") as f:
                found[name] = f.read()
        return found

"""The summed gradients of a step: report.gradients writes them, and `replay --dump` for a step that
is computed again.  Plain SGD says what they must be: the change of the weights over the rate."""

import array
import json
import math
import os
import resource
import struct

import dp
import test_preference as pairs
from dp import DRIVER, FAILED, FINISHED, USAGE
from test_texts import TEMPLATE, tokenizer

# An epoch is one step, so each step has its checkpoint.
RATE = 0.25
SGD = {"optimizer.name": "sgd", "optimizer.lr": RATE, "optimizer.momentum": 0,
       "schedule.name": "constant", "checkpoint.keep": 9}
JOB = {**dp.LIGHT, **SGD, "data.samples": 30, "data.validation_samples": 32,
       "train.global_batch": 30, "train.epochs": 3, "checkpoint.hashes": 1, "report.gradients": 2}


def tensors(path):
    """The tensors of a safetensors file, which are all float32."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__")
    assert {about["dtype"] for about in header.values()} == {"F32"}
    return {key: array.array("f", data[slice(*about["data_offsets"])])
            for key, about in header.items()}


class Base(dp.Case):
    def train(self, job=None, n=1, run="run", whole=False, status=FINISHED):
        """whole: the job stands for itself."""
        return self.run_driver(*(["--local"] if n > 1 else []), *dp.EXACT, "--run-dir", run, n=n,
                               status=status, job=job if whole else {**JOB, **(job or {})})

    def assert_near(self, seen, want):
        self.assertEqual(seen.keys(), want.keys())
        for key, values in want.items():
            for x, y in zip(seen[key], values, strict=True):
                self.assertAlmostEqual(x, y, delta=1e-5)

    def weights(self, step, run, name="model"):
        return tensors(self.path(run, "checkpoints", f"step-{step:08}", name + ".safetensors"))

    def check(self, run="run", path=None, step=2, near=1e-5, factor=1.0):
        """The file has the gradients of that step; returns them."""
        before, after = (self.weights(at, run) for at in (step - 1, step))
        seen = tensors(path or self.path(run, f"gradients-{step:08}.safetensors"))
        self.assertLessEqual(seen.keys(), after.keys())
        for key in after.keys() - seen.keys():  # is frozen
            self.assertEqual(before[key], after[key])
        most = 0
        for key, values in seen.items():
            for x, old, new in zip(values, before[key], after[key], strict=True):
                self.assertAlmostEqual(factor * x, (old - new) / RATE, delta=near, msg=key)
                most = max(most, abs(x))
        self.assertGreater(most, 1e-3)
        return seen

    def replay(self, step, to, *args, run="run", status=FINISHED, words=(), **more):
        os.makedirs(self.path("tmp"), exist_ok=True)
        daemon = self.start([DRIVER, "replay", run, "--step", str(step), "--dump", to,
                             "--log-format", "json", *dp.EXACT, *args],
                            env={**self.env, "TMPDIR": self.path("tmp")}, **more)
        self.assert_exit(daemon, status, *words)
        self.assertEqual(os.listdir(self.path("tmp")), [])
        return json.loads(daemon.out) if status == FINISHED else daemon.text


class Gradients(Base):
    def test_kinds(self):
        """However the ranks share samples, sums and state."""
        self.train()
        whole = self.check()
        for i, (n, job) in enumerate((
                (3, {}), (2, {"strategy.zero": 1}), (3, {"strategy.zero": 2}),
                (3, {"strategy.zero": 3, "train.bucket_bytes": 4096}),
                (2, {"strategy.shards": 5}), (2, {"train.accumulate": 3}))):
            with self.subTest(job, n=n):
                self.train(job, n=n, run=f"run{i}")
                seen = self.check(f"run{i}")
                self.assert_near(seen, whole)
                self.assertEqual([name for name in os.listdir(self.path(f"run{i}"))
                                  if name.startswith("gradients")],
                                 ["gradients-00000002.safetensors"])

    def test_scales(self):
        """The file is not clipped, and float32."""
        self.train({"train.clip_norm": 0.1})
        seen = tensors(self.path("run", "gradients-00000002.safetensors"))
        norm = sum(x * x for values in seen.values() for x in values) ** 0.5
        self.check(factor=0.1 / norm)
        self.train({"precision": "bfloat16", "train.grad_dtype": "bfloat16"}, run="brain", n=2)
        self.check("brain", near=1e-3)

    def test_refusals(self):
        driver = self.driver("--run-dir", "own", n=1,
                             job={**JOB, "strategy.name": "local_sgd"})
        self.assert_exit(driver, USAGE, r"report.gradients \(--dump\) is 2, but with strategy.name "
                                        r"local_sgd the ranks do not sum gradients")

    def test_not_written(self):
        """The run goes on, and says so.  A step that is not made is told at the start."""
        told = self.train({"train.epochs": 1})
        self.assertRegex(told.text, "warning: report.gradients is 2, but the last step is 1: no "
                                    "gradients will be written")
        more = dp.sets({"train.epochs": 2, "report.gradients": 1})
        told = self.run_driver("--run-dir", "run", "--resume", *more, job=None)
        self.assertRegex(told.text, "warning: report.gradients is 1, but training goes on after "
                                    "step 1: no gradients will be written")
        self.train({"train.epochs": 1}, run="other")
        os.mkdir(self.path("other", "gradients-00000002.safetensors"))
        told = self.run_driver("--run-dir", "other", "--resume", *dp.sets({"train.epochs": 3}),
                               job=None)
        self.assertRegex(told.text,
                         "the gradients of step 2 could not be written: .*Is a directory")
        self.assertEqual([name for name in os.listdir(self.path("other"))
                          if name.startswith("gradients")], ["gradients-00000002.safetensors"])


class Dump(Base):
    """One step of a run, computed again."""

    def test_replay(self):
        job = {"report.gradients": 0, "strategy.shards": 5}
        self.train(job)
        seen = {}
        for step, args in ((1, ()), (3, ()), (3, ("--nranks", "2", "--local"))):
            with self.subTest(step, args=args):
                to = f"step{step}{''.join(args)}.safetensors"
                told = self.replay(step, to, *args)
                self.assertEqual((told["same"], told["gradients"]), (True, to))
                seen[step, args] = tensors(self.path(to))
        self.check(path=self.path("step3.safetensors"), step=3)
        first, third, other = seen.values()
        self.assertEqual(third, other)  # by shares, so bit by bit
        self.assertNotEqual(first, third)
        self.assertFalse(any(name.startswith("gradients") for name in
                             os.listdir(self.path("run"))))

        # No file is replaced, and none is left by halves.
        self.replay(3, "step3.safetensors", status=USAGE,
                    words=[r"--dump: step3.safetensors is there already"])
        os.symlink("nowhere", self.path("link.safetensors"))
        self.replay(3, "link.safetensors", status=USAGE,
                    words=[r"--dump: link.safetensors is there already"])
        self.replay(3, "none/x.safetensors", status=USAGE, words=[r"--dump: .*folder none/"])
        size = os.path.getsize(self.path("step3.safetensors"))

        def limit():  # as a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 100, size - 100))

        before = set(os.listdir(self.path(".")))
        self.replay(1, "big.safetensors", preexec_fn=limit, status=USAGE,
                    words=[r"safetensors: writing .*File too large"])
        self.assertEqual(set(os.listdir(self.path("."))), before)


class NotFinite(Base):
    """A step that is not applied, because something of rank 0 is not finite."""

    def check_numbers(self, path):
        """Rank 0 looks for the reason in the gradients' place, and would leave zeros there."""
        weights = {key: values for key, values in tensors(self.path(path)).items()
                   if key.endswith("weight")}
        self.assertEqual(len(weights), 2)
        for key, values in weights.items():
            self.assertFalse(all(math.isfinite(x) for x in values), key)

    def job_of(self, x):
        """A job of three steps, of four of these samples each, that writes the second one's"""
        for name, data in (("x.npy", dp.npy("<f4", (12, 4), struct.pack("<48f", *x))),
                           ("y.npy", dp.npy("|u1", (12,), bytes([0, 1] * 6)))):
            with open(self.path(name), "wb") as file:
                file.write(data)
        return {**SGD, "data.format": "npy", "data.path": self.folder, "data.train": "x.npy,y.npy",
                "data.shuffle": "false", "model.arch": "mlp", "model.hidden": [8],
                "train.global_batch": 4, "train.epochs": 1, "checkpoint.hashes": 1,
                "report.gradients": 2}

    def test_of_parameters(self):
        """The reason is found by computing the step again: those before made large parameters."""
        job = self.job_of([size * x for size in [1, -1] * 6 for x in (0.5, -0.25, 0.125, 1)])
        told = self.train({**job, "optimizer.lr": 1e6, "model.hidden": [64] * 8,
                           "train.on_nonfinite": "skip", "report.gradients": 3}, whole=True)
        self.assertRegex(told.text, r"step 2 was not applied: rank 0: \S+ \(linear\)")
        numbers = tensors(self.path("run/gradients-00000003.safetensors")).values()
        self.assertFalse(all(math.isfinite(x) for values in numbers for x in values))

    def test_of_samples(self):
        x = [0.5] * 48
        x[4 * 4 + 1] = math.nan  # sample 4, of the second step
        job = self.job_of(x)
        for i, (n, more) in enumerate(((1, {}), (2, {}), (2, {"strategy.zero": 2}))):
            with self.subTest(more, n=n):
                told = self.train({**job, **more, "train.on_nonfinite": "skip"}, n=n, whole=True,
                                  run=f"skip{i}")
                self.assertRegex(told.text, r"step 1 was not applied: rank 0: \S*/x\.npy, row 4")
                self.check_numbers(f"skip{i}/gradients-00000002.safetensors")
        self.train(job, whole=True, run="stop", status=FAILED)
        self.check_numbers("stop/gradients-00000002.safetensors")
        told = self.replay(2, "two.safetensors", run="stop")
        self.assertEqual((told["same"], told["from"], told["to"]), (True, 1, 2))
        self.check_numbers("two.safetensors")
        self.replay(3, "three.safetensors", run="stop", status=USAGE,
                    words=[r"--step 3: the run in .* has done 1 steps"])


class Adapters(Base):
    def test_lora(self):
        """With LoRA, in an imported network, the file has the adapters alone."""
        os.mkdir(self.path("net"))
        for name, text in (
                ("pairs.jsonl", "".join(json.dumps(line) + "\n" for line in pairs.lines())),
                ("net/config.json", json.dumps(pairs.CONFIG)),
                ("net/tokenizer.json", json.dumps(tokenizer())),
                ("net/tokenizer_config.json", json.dumps({"eos_token": "<end>",
                                                          "chat_template": TEMPLATE}))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        job = {**pairs.JOB, **SGD, "train.global_batch": 54, "train.epochs": 3,
               "report.gradients": 2}
        self.train(job, whole=True)
        seen = self.check()
        self.assertTrue(all("lora" in name for name in seen), list(seen))
        self.train(job, n=2, run="two", whole=True)
        self.assert_near(self.check("two"), seen)


if __name__ == "__main__":
    dp.main()

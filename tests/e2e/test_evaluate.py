"""--evaluate: the weights of a checkpoint are validated over any number of ranks, whatever is lost
meanwhile, and the run that they are of stays as it is."""

import array
import ast
import json
import math
import os
import resource
import shutil
import signal
import struct

import dp
from dp import DRIVER, FAILED, FINISHED, STOPPED, USAGE

# 8 steps an epoch; a validation set that no number of ranks divides.
JOB = {"data.samples": 512, "data.validation_samples": 251, "train.global_batch": 64,
       "train.epochs": 3, "optimizer.lr": 0.3, "optimizer.momentum": 0.9,
       "train.best.metric": "validation_loss", "checkpoint.keep": 3}


class Evaluate(dp.Case):
    def setUp(self):
        super().setUp()
        self.run_driver("--run-dir", "run", job=JOB)
        self.epochs = {event["step"]: event for event in self.events("epoch", "run")}

    def evaluate(self, *args, status=FINISHED, where=("--run-dir", "run")):
        """A whole evaluation on this machine; its result."""
        daemon = self.start([DRIVER, "--evaluate", "--log-format", "json", *where, *args])
        self.assert_exit(daemon, status)
        if status == FINISHED:
            self.assertEqual(len(daemon.out.splitlines()), 1, daemon.out)
            return json.loads(daemon.out)
        self.assertEqual(daemon.out, "")
        return daemon.text

    def assert_result(self, result, step):
        """The result is that of the training run's own validation after this step."""
        want = self.epochs[step]
        self.assertEqual(result["step"], step)
        self.assertEqual(result["samples"], 251)
        self.assertAlmostEqual(result["validation_accuracy"], want["validation_accuracy"],
                               delta=1e-12)
        self.assertEqual(result["validation_top5"], want["validation_top5"])
        self.assertGreater(result["validation_top5"], result["validation_accuracy"])
        self.assertAlmostEqual(result["validation_loss"], want["validation_loss"], delta=1e-6)
        self.assertTrue(result["checkpoint"].endswith(f"checkpoints/step-{step:08}"), result)

    def files(self):
        """All that the run directory holds, with the times of changes."""
        return {path: (os.stat(path).st_mtime_ns, os.path.islink(path) and os.readlink(path))
                for folder, folders, names in os.walk(self.path("run"))
                for path in (os.path.join(folder, name) for name in folders + names)}

    def test_any_ranks_and_checkpoints(self):
        before = self.files()
        for ranks in ([], ["--nranks", "2", "--local"], ["--nranks", "3", "--local"]):
            with self.subTest(ranks):
                self.assert_result(self.evaluate(*ranks), 24)
        best = min(self.epochs, key=lambda step: self.epochs[step]["validation_loss"])
        self.assert_result(self.evaluate("--checkpoint", "best"), best)
        for step in (8, 16):
            folder = self.path("run", "checkpoints", f"step-{step:08}")
            self.assert_result(self.evaluate("--checkpoint", folder, where=()), step)
        self.assert_result(self.evaluate("--checkpoint", "run", where=()), 24)
        self.assertEqual(self.files(), before)

    def test_copied_without_links(self):
        """A copy that follows links has folders in their places.  The best is what the newest
        checkpoint says, whatever is in the folder of that name; a run that goes on links again.  A
        folder that is no second copy, and not missed, stays as it is.  A new run of the same name
        is another folder, so --check says nothing of these."""
        best = min(self.epochs, key=lambda step: self.epochs[step]["validation_loss"])
        shutil.copytree(self.path("run"), self.path("copy"))
        shutil.rmtree(self.path("copy", "checkpoints", "best"))
        os.rename(self.path("copy", "checkpoints", "step-00000008"),
                  self.path("copy", "checkpoints", "best"))
        where = ("--run-dir", "copy")
        self.assert_result(self.evaluate("--checkpoint", "best", where=where), best)
        self.assert_result(self.evaluate(where=where), 24)
        job = {**JOB, "train.epochs": 4, "checkpoint.keep": 1}
        check = self.driver("--check", "--resume", *where, job=job)
        self.assert_exit(check, FINISHED,
                         "latest is a folder, as a copy .* second copy of step-00000024, and "
                         "would be removed",
                         "best is a folder that says it is step-00000008, and is neither newer")
        self.assertIn("would go on        in copy, from step 24", check.out)
        os.makedirs(self.path("runs"))
        os.symlink("../copy", self.path("runs", "copied"))
        new = self.driver("--check", job={**job, "name": "copied"})
        self.assert_exit(new, FINISHED)
        self.assertNotIn("is a folder", new.text)
        kept = os.listdir(self.path("copy", "checkpoints", "best"))
        self.assertIn("model.safetensors", kept)
        self.run_driver("--resume", *where, job=job)
        self.assertEqual(os.listdir(self.path("copy", "checkpoints", "best")), kept)
        shutil.rmtree(self.path("copy", "checkpoints", "best"))
        job["train.epochs"] = 5
        self.run_driver("--resume", *where, job=job)
        losses = {event["step"]: event["validation_loss"] for event in self.events("epoch", "copy")}
        names = {"latest": "step-00000040", "best": f"step-{min(losses, key=losses.get):08}"}
        self.assertEqual(set(os.listdir(self.path("copy", "checkpoints"))),
                         {*names, *names.values()})
        for link, name in names.items():
            self.assertEqual(os.readlink(self.path("copy", "checkpoints", link)), name)

    def test_text(self):
        daemon = self.start([DRIVER, "--evaluate", "--run-dir", "run"])
        self.assert_exit(daemon, FINISHED)
        self.assertRegex(daemon.out, r"^run/checkpoints/step-00000024: validation loss \d\.\d+, "
                                     r"accuracy \d+\.\d\d %, top-5 \d+\.\d\d %, "
                                     r"251 samples\nclass +precision ")

    def test_other_data(self):
        few = self.evaluate("--set", "data.validation_samples=100")
        self.assertEqual(few["samples"], 100)
        self.assertNotEqual(few["validation_loss"], self.epochs[24]["validation_loss"])

    def test_named_by_its_job_file(self):
        """The run is found by the name in a job file that needs --set to be a job."""
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write("name: named\n")
        settings = {"data.format": "digits", "model.arch": "mlp", **JOB}
        where = ["--job", "job.yaml"]
        for key, value in settings.items():
            where += ["--set", f"{key}={value}"]
        self.run_driver("--job", "job.yaml", job=settings)
        self.epochs = {event["step"]: event for event in self.events("epoch", "runs/named")}
        self.assert_result(self.evaluate(where=where), 24)

    def test_damaged(self):
        """As for --resume, the newest checkpoint that is whole is taken; but nothing is moved."""
        path = self.path("run", "checkpoints", "step-00000024", "model.safetensors")
        with open(path, "r+b") as file:
            file.truncate(1000)
        before = self.files()
        self.assert_result(self.evaluate(), 16)
        text = self.evaluate("--checkpoint", os.path.dirname(path), where=(), status=USAGE)
        self.assertIn("model.safetensors", text)
        self.assertEqual(self.files(), before)

    def test_refused(self):
        os.makedirs(self.path("empty"))
        shutil.copytree(self.path("run", "checkpoints", "step-00000008"), self.path("moved"))
        cases = [
            (["--run-dir", "nowhere"], r"no checkpoint in nowhere; give --run-dir"),
            (["--checkpoint", "empty"], r"--checkpoint empty: there is no checkpoint in empty"),
            (["--checkpoint", "moved"], r"job.yaml is missing: --job names the job"),
            (["--run-dir", "run", "--set", "model.arch=mlp"], r"tensor \"conv\S+ is not part of "
                                                             r"this model"),
            (["--run-dir", "run", "--resume"], r"--evaluate and --resume: leave one"),
            (["--run-dir", "run", "--check"], r"--evaluate and --check: leave one"),
        ]
        for args, words in cases:
            with self.subTest(args):
                daemon = self.start([DRIVER, "--evaluate", *args])
                self.assert_exit(daemon, USAGE, words)
        self.assert_exit(self.start([DRIVER, "--nranks", "1", "--checkpoint", "best"]), USAGE,
                         r"--checkpoint belongs to --evaluate, --predict, --export, --merge and "
                         r"--sample")
        self.run_driver("--run-dir", "plain", job={**JOB, "train.epochs": 1,
                                                   "train.best.metric": "none"})
        self.assertRegex(self.evaluate("--checkpoint", "best", status=USAGE,
                                       where=("--run-dir", "plain")), r"train\.best keeps")

    def read_array(self, name):
        """The float32 rows of a file in NumPy's format, read without NumPy."""
        with open(self.path(name), "rb") as file:
            self.assertEqual(file.read(8), b"\x93NUMPY\1\0")
            text = file.read(struct.unpack("<H", file.read(2))[0]).decode("ascii")
            self.assertEqual(file.tell() % 64, 0)
            about = ast.literal_eval(text)
            data = array.array("f", file.read())
        self.assertEqual((about["descr"], about["fortran_order"]), ("<f4", False))
        self.assertEqual(len(data), math.prod(about["shape"]))
        width = math.prod(about["shape"][1:])
        return about["shape"], [data[i:i + width] for i in range(0, len(data), width)]

    def test_predict(self):
        """One row a sample, in the set's order, whatever the number of ranks and batches; the
        loss and accuracy follow from the rows."""
        rows = {}
        for n in (1, 2, 3):
            out = f"{n}.npy"
            ranks = ["--nranks", str(n), *(["--local"] if n > 1 else [])]
            result = self.evaluate("--predict", out, *ranks)
            self.assert_result(result, 24)
            self.assertEqual(result["logits"], out)
            shape, rows[n] = self.read_array(out)
            self.assertEqual(shape, (251, 10))
        for n in (2, 3):
            for one, other in zip(rows[1], rows[n], strict=True):
                for x, y in zip(one, other, strict=True):
                    self.assertAlmostEqual(x, y, delta=1e-4)
        # Rows differ from each other, so none stands twice.
        self.assertEqual(len({tuple(row) for row in rows[1]}), 251)
        # The mean over the first 100 samples is that of a set that has just these.
        few = self.evaluate("--predict", "few.npy", "--set", "data.validation_samples=100")
        for one, other in zip(rows[1][:100], self.read_array("few.npy")[1], strict=True):
            self.assertEqual(one.tolist(), other.tolist())
        self.assertEqual(few["samples"], 100)

    def test_predict_bfloat16(self):
        self.evaluate("--predict", "wide.npy")
        self.evaluate("--predict", "half.npy", "--set", "precision=bfloat16")
        wide, half = (self.read_array(name)[1] for name in ("wide.npy", "half.npy"))
        differ = 0
        for one, other in zip(wide, half, strict=True):
            for x, y in zip(one, other, strict=True):
                self.assertAlmostEqual(x, y, delta=0.1 + 0.05 * abs(x))
                differ += x != y
        self.assertGreater(differ, 1000)

    def test_predict_tokens(self):
        """A row of logits for each token; sets whose samples have too many are refused."""
        with open(self.path("t.txt"), "w", encoding="ascii") as file:
            file.write("to be or not to be " * 100)
        job = {"data.format": "text", "data.path": "t.txt", "data.tokenizer": "bytes",
               "model.arch": "gpt", "model.layers": 1, "model.heads": 2, "model.width": 16,
               "model.context": 8, "train.global_batch": 16, "train.epochs": 1}
        self.run_driver("--run-dir", "tokens", job=job)
        where = ("--run-dir", "tokens")
        result = self.evaluate("--predict", "t.npy", "--nranks", "2", "--local", where=where)
        n = result["samples"]
        self.assertEqual(result["targets"], 8 * n)
        self.assertAlmostEqual(result["validation_perplexity"],
                               math.exp(result["validation_loss"]), delta=1e-9)
        shape, _ = self.read_array("t.npy")
        self.assertEqual(shape[:2], (n, 8))
        self.assertGreaterEqual(shape[2], 256)
        text = self.evaluate("--predict", "large.npy", "--set", "model.vocab=70000", "--set",
                             "model.context=64", where=where, status=USAGE)
        self.assertRegex(text, r"the logits of one sample have 17 MiB, \d+ in all, want at most 16")

    def test_export(self):
        """The network or its state dict as a file; interop/onnx_export runs such files."""
        before = self.files()
        where = ("--run-dir", "run", "--log-format", "json")
        for to, step, args in (("a.onnx", 24, ()), ("b.safetensors", 24, ()),
                               ("c.onnx", 8, ("--checkpoint", "run/checkpoints/step-00000008"))):
            daemon = self.start([DRIVER, "--export", to, *where, *args])
            self.assert_exit(daemon, FINISHED)
            told = json.loads(daemon.out)
            self.assertTrue(told.pop("checkpoint").endswith(f"run/checkpoints/step-{step:08}"))
            self.assertEqual(told, {"step": step, "exported": to})
        weights = self.weights("run")["model.safetensors"]
        with open(self.path("b.safetensors"), "rb") as file:
            self.assertEqual(file.read(), weights)
        first, = struct.unpack("<Q", weights[:8])
        begin, end = json.loads(weights[8:8 + first])["fc1.weight"]["data_offsets"]
        with open(self.path("a.onnx"), "rb") as file:
            self.assertTrue(weights[8 + first + begin:8 + first + end] in file.read())
        for args, status, pattern in (
                (["a.onnx"], USAGE, "a.onnx is there already"),
                (["no/d.onnx"], USAGE, "no file can be made in folder no/: No such file"),
                (["d.onnx", "--weights", "average"], USAGE, "has no averaged weights"),
                (["d.safetensors", "--weights", "average"], USAGE, "has no averaged weights"),
                (["d.onnx", "--set", "model.arch=lenet5"], USAGE,
                 r"checkpoint has F32 conv1.weight \[20,1,3,3\], and the job's network F32 \[6,")):
            self.assert_exit(self.start([DRIVER, "--export", *args, "--run-dir", "run"]), status,
                             pattern)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        for to in ("d.onnx", "d.safetensors"):
            full = self.start([DRIVER, "--export", to, "--run-dir", "run"], preexec_fn=limit)
            self.assert_exit(full, FAILED, f"{to}: writing .* left: File too large")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("d")], [])
        self.assertEqual(self.files(), before)

    def test_predict_refused(self):
        with open(self.path("there.npy"), "w", encoding="ascii") as file:
            file.write("mine")
        text = self.evaluate("--predict", "there.npy", status=USAGE)
        self.assertRegex(text, r"--predict: there.npy is there already: remove it")
        with open(self.path("there.npy"), encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")
        text = self.evaluate("--predict", "no/such.npy", status=USAGE)
        self.assertRegex(text, r"--predict: no file can be made in folder no/: No such file")

    def test_predict_full_disk(self):
        """The room is taken before anything is computed; nothing stays."""
        limit = 4096
        daemon = self.start(
            [DRIVER, "--predict", "full.npy", "--run-dir", "run"],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assert_exit(daemon, FAILED, r"--predict: full.npy: taking \d+ bytes: ")
        self.assertEqual([name for name in os.listdir(self.folder) if "full" in name], [])

    def test_predict_with_losses(self):
        self.evaluate("--predict", "whole.npy")
        driver = self.lead("--predict", "lost.npy", "--inject", "kill:rank1@validate3")
        self.follower("--rank", "1").wait_exit()
        follower = self.follower("--rank", "1")
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        whole, lost = (self.read_array(name)[1] for name in ("whole.npy", "lost.npy"))
        for one, other in zip(whole, lost, strict=True):
            for x, y in zip(one, other, strict=True):
                self.assertAlmostEqual(x, y, delta=1e-4)
        driver = self.lead("--predict", "none.npy", "--inject", "kill:rank1@validate3",
                           "--set", "cluster.replace_timeout=0")
        self.follower("--rank", "1").wait_exit()
        self.assert_exit(driver, FAILED)
        self.assertEqual([name for name in os.listdir(self.folder) if "none" in name], [])

    def lead(self, *args):
        if os.path.exists(self.path("port")):
            os.unlink(self.path("port"))
        return self.start([DRIVER, "--evaluate", "--log-format", "json", "--run-dir", "run",
                           "--nranks", "2", "--port", "0", "--port-file", self.path("port"), *args])

    def test_a_lost_follower_is_replaced(self):
        driver = self.lead("--inject", "kill:rank1@validate3")
        lost = self.follower("--rank", "1")
        lost.wait_exit()
        follower = self.follower("--rank", "1")
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        self.assert_result(json.loads(driver.out), 24)

    def test_a_lost_follower_ends_it_clearly(self):
        driver = self.lead("--inject", "kill:rank1@validate3", "--set", "cluster.replace_timeout=0")
        self.follower("--rank", "1").wait_exit()
        self.assert_exit(driver, FAILED, r"rank 1 .*was lost, last seen during validate")
        self.assertEqual(driver.out, "")

    def test_a_lost_driver_ends_its_followers(self):
        """They hold nothing that is not in the checkpoint: they do not wait for another driver."""
        driver = self.lead("--inject", "kill:rank0@validate3")
        follower = self.follower("--rank", "1")
        driver.wait_exit()
        self.assert_exit(follower, FAILED, patience=dp.SOON)

    def test_stopped(self):
        driver = self.lead()
        driver.wait_line("listening")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, r"stopped by SIGTERM before the evaluation began")

    def test_beside_a_training_run(self):
        """It takes no port of the driver that trains."""
        port = dp.free_port()
        self.driver("--run-dir", "run", "--resume", "--port", str(port), "--inject",
                    "stop:rank0@step25", n=1, job={**JOB, "train.epochs": 4}, port=False)
        self.wait_event("inject", run="run")
        self.assert_result(self.evaluate(), 24)


if __name__ == "__main__":
    dp.main()

"""record.json, and --verify RUN: what a run was, so that a stranger can check it.  The files and
the signature are checked, then steps that are drawn at random are computed again."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import dp
from dp import DRIVER, FAILED, FINISHED, USAGE

# 4 steps an epoch; with shares the bits do not depend on the number of ranks.
JOB = {"data.samples": 256, "data.validation_samples": 64, "train.global_batch": 64,
       "train.epochs": 2, "optimizer.name": "sgd", "checkpoint.hashes": 2, "strategy.shards": 2}


class Record(dp.Case):
    def train(self, *args, n=1, run="run", **more):
        return self.run_driver(*(["--local"] if n > 1 else []), "--run-dir", run, *args, n=n,
                               **{"job": JOB, **more})

    def record(self, run="run"):
        with open(self.path(run, "record.json"), encoding="utf-8") as file:
            return json.load(file)

    def sha256(self, *path):
        with open(self.path(*path), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def verify(self, run, *args, status=FINISHED):
        os.makedirs(self.path("tmp"), exist_ok=True)
        daemon = self.start([DRIVER, "verify", run, "--log-format", "json", *args],
                            env={**self.env, "TMPDIR": self.path("tmp")})
        self.assert_exit(daemon, status)
        self.assertEqual(os.listdir(self.path("tmp")), [])
        return daemon.text if status == USAGE else json.loads(daemon.out)

    def copy(self, to, run="run"):
        shutil.copytree(self.path(run), self.path(to), symlinks=True)

    def change(self, run, name, old, new):
        with open(self.path(run, name), "r+", encoding="utf-8") as file:
            text = file.read()
            self.assertIn(old, text)
            file.seek(0)
            file.write(text.replace(old, new, 1))
            file.truncate()

    def keys(self, name):
        """A new key, and its public half."""
        for words in (("genpkey", "-algorithm", "ed25519", "-out", name),
                      ("pkey", "-in", name, "-pubout", "-out", name + ".pub")):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)
        return name, name + ".pub"

    def test_record(self):
        self.train(n=2)
        told = self.record()
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            self.assertEqual(told["job"]["yaml"], file.read())
        self.assertEqual(told["program"]["sha256"], self.sha256(DRIVER))
        self.assertEqual(told["plan"], {"ranks": 2, "device": "cpu", "strategy": "allreduce",
                                        "shards": 2, "share_threads": 1, "global_batch": 64,
                                        "steps_per_epoch": 4})
        self.assertEqual(told["hashes"], {"rows": 4, "step": 8,
                                          "sha256": self.sha256("run", "hashes.csv")})
        self.assertEqual(told["checkpoint"], {"step": 8})
        with open(self.path("run", "events.jsonl"), encoding="utf-8") as file:
            start = next(e for e in map(json.loads, file) if e["event"] == "start")
        self.assertEqual(told["data"]["fingerprint"], start["data"])

        seen = self.verify("run", "--step", "2", "--seed", "7")
        self.assertIs(seen["same"], True)
        self.assertIs(seen["same_program"], True)
        self.assertEqual((seen["signature"], seen["files"], seen["seed"]), ("none", [], 7))
        self.assertEqual(len({step["step"] for step in seen["steps"]}), 2)
        self.assertTrue(all(step["same"] and step["rows"] > 0 for step in seen["steps"]))
        again = self.verify("run", "--step", "2", "--seed", "7")
        self.assertEqual(again, seen)

        # A run that goes on has no record until it ends again.
        self.run_driver("--run-dir", "run", "--resume", "--inject", "kill:rank0@step11",
                        job={**JOB, "train.epochs": 3}, status=-9)
        self.assertIn("run/record.json is not there", self.verify("run", status=USAGE))

    def test_edited(self):
        """The changed file is named, and then nothing is computed."""
        self.train()
        for name, old, new, blamed in (
                ("hashes.csv", "\n4,", "\n5,", "hashes.csv"),
                ("job.yaml", "seed: 1", "seed: 2", "job.yaml"),
                ("record.json", '"step": 8', '"step": 4', "record.json"),
                ("record.json", '"shards": 2', '"shards": 4', "record.json"),
                ("record.json", "global_batch: 64", "global_batch: 32", "job.yaml")):
            with self.subTest(name):
                self.copy("other")
                self.change("other", name, old, new)
                seen = self.verify("other", status=FAILED)
                self.assertEqual([file["file"] for file in seen["files"]], [blamed])
                self.assertEqual((seen["same"], seen["steps"]), (False, []))
                shutil.rmtree(self.path("other"))
        os.unlink(self.path("run", "hashes.csv"))
        out = self.start([DRIVER, "--verify", "run"])
        self.assert_exit(out, FAILED)
        self.assertIn("file       hashes.csv: it is not there\n", out.out)
        self.assertIn("verdict    DIFFERS: files\n", out.out)

    def test_forged(self):
        """A record that fits a forged hashes.csv: the steps show it."""
        self.train()
        before = self.sha256("run", "hashes.csv")
        with open(self.path("run", "hashes.csv"), encoding="ascii") as file:
            state = file.read().splitlines()[4].split(",")[1]
        self.change("run", "hashes.csv", state, state[::-1])
        self.change("run", "record.json", before, self.sha256("run", "hashes.csv"))
        seen = self.verify("run", "--step", "8", status=FAILED)
        self.assertEqual(seen["files"], [])
        self.assertEqual({step["differs_at"] for step in seen["steps"]} - {None}, {8})

    def test_other_data(self):
        def write(last):
            with open(self.path("train.csv"), "w", encoding="ascii") as file:
                file.write("x,y\n" + "".join(f"{i % 7},{i % 3}\n" for i in range(64)) + last)

        write("1,2\n")
        self.train(job={"data.format": "csv", "data.path": self.folder, "data.target": "y",
                        "data.train": "train.csv", "train.validate_every": 0,
                        "model.arch": "mlp", "model.hidden": "[4]", "train.global_batch": 16,
                        "train.epochs": 1, "checkpoint.hashes": 1})
        self.assertIs(self.verify("run", "--step", "1")["same"], True)
        write("2,2\n")
        seen = self.verify("run", "--step", "1", status=FAILED)
        self.assertEqual(seen["files"], [])
        self.assertIn("the data are others", seen["steps"][0]["how"])

    def test_signature(self):
        (key, public), (_, foreign) = self.keys("one"), self.keys("two")
        self.train("--sign", key, job={**JOB, "train.epochs": 1})
        told = self.record()
        self.assertEqual(told["checkpoint"]["model_sha256"],
                         self.sha256("run", "checkpoints", "latest", "model.safetensors"))
        # openssl alone can check it.
        words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in",
                 "run/record.json", "-sigfile", "run/record.sig"]
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)

        seen = self.verify("run", "--key", public, "--step", "1")
        self.assertEqual((seen["same"], seen["signature"]), (True, "valid"))
        self.assertEqual(self.verify("run", "--step", "1")["signature"], "unchecked")
        seen = self.verify("run", "--key", foreign, status=FAILED)
        self.assertEqual((seen["same"], seen["signature"], seen["steps"]), (False, "wrong", []))
        self.assertIn("want an Ed25519 public key", self.verify("run", "--key", key, status=USAGE))

        self.copy("other")
        self.change("other", "record.json", '"version"', ' "version"')
        self.assertEqual(self.verify("other", "--key", public, status=FAILED)["signature"], "wrong")
        with open(self.path("run", "record.sig"), "r+b") as file:
            file.truncate(63)
        self.assertEqual(self.verify("run", "--key", public, status=FAILED)["signature"], "wrong")
        os.unlink(self.path("run", "record.sig"))
        seen = self.verify("run", "--key", public, status=FAILED)
        self.assertEqual((seen["same"], seen["signature"]), (False, "missing"))

    def test_refusals(self):
        self.assertIn("there is no run directory typo", self.verify("typo", status=USAGE))
        os.makedirs(self.path("run"))
        with open(self.path("run", "record.json"), "w", encoding="ascii") as file:
            file.write("{}")
        self.assertIn("run/record.json: format is 0, want 1", self.verify("run", status=USAGE))
        for args, pattern in (
                (("run", "job.yaml"), "--verify run takes no --job, which belongs to --verify 1,2"),
                (("1,2", "--seed", "1"), "--verify 1,2 takes no --seed, .* --verify RUN"),
                (("1,2", "--key", "k"), "--verify 1,2 takes no --key, .* --verify RUN")):
            with self.subTest(args):
                self.assertRegex(self.verify(*args, status=USAGE), pattern)
        # Without hashes no step can be compared.
        self.train("--set", "checkpoint.hashes=0", run="bare", job={**JOB, "train.epochs": 1})
        seen = self.verify("bare", status=FAILED)
        self.assertEqual((seen["files"], seen["steps"], seen["last_step"]), ([], [], 0))
        self.assertEqual(seen["weights"], "unchecked")
        # A standby reads its key at its start, too.
        daemon = self.start([DRIVER, "--standby", "--root", "127.0.0.1:1", "--sign", "missing"])
        self.assert_exit(daemon, USAGE, re.escape("--sign: key missing"))
        # A key that does not do is told before anything is trained.
        daemon = self.driver("--sign", "missing", "--run-dir", "new")
        self.assert_exit(daemon, USAGE, re.escape("--sign: key missing"))
        self.assertFalse(os.path.exists(self.path("new")))


if __name__ == "__main__":
    dp.main()

"""dpdriver --init: for each kind of data that a folder may hold it writes a job file that --check
accepts and that trains a step; it replaces nothing, and asks only on a terminal."""

import gzip
import io
import json
import os
import pty
import random
import re
import struct
import subprocess
import tarfile

import dp
import test_texts
from test_data import png

HEADER = r"# A job for the data in {}, by dpdriver \d+\.\d+\.\d+\."


class Init(dp.Case):
    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def init(self, *folders, status=dp.FINISHED, out="job.yaml"):
        done = subprocess.run([dp.DRIVER, "init", *folders, "--out", out], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=dp.PATIENCE, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def lines(self, out="job.yaml"):
        """The file's settings: {key: value as it stands there}"""
        settings, groups = {}, []
        with open(self.path(out), encoding="utf-8") as file:
            for line in file:
                found = re.match(r"( *)([\w]+):(?: (.*))?\n", line)
                if found:
                    depth = len(found[1]) // 2
                    groups[depth:] = [found[2]]
                    if found[3] is not None:
                        settings[".".join(groups)] = found[3]
        return settings

    def prove(self, *folders, **wanted):
        """The written job is checked, and trains a step.  The keys of `wanted` have these values;
        two underscores stand for a dot."""
        out = f"{re.sub('[^a-z0-9]', '', folders[-1])}.yaml"
        self.init(*folders, out=out)
        settings = self.lines(out)
        for key, value in wanted.items():
            self.assertEqual(settings.get(key.replace("__", ".")), value, (key, settings))
        for more in (["--check"], ["--set", "train.max_steps=1", "--run-dir", out + ".run",
                                   "--set", "data.validation=none"]):
            done = self.driver("--job", out, "--threads", "1", *more, n=1, job=None)
            self.assert_exit(done, dp.FINISHED)
        with open(self.path(out), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, HEADER.format(re.escape(os.path.realpath(self.path(folders[-1])))))
        self.assertIn("\n  # The number of samples of a step,", text)  # of train.global_batch
        self.assertLessEqual(max(map(len, text.splitlines())), 140)

    def idx(self, folder, prefix, packed=False, side=28):
        rng = random.Random(1)
        for kind, content in (
                ("images-idx3", struct.pack(">4i", 0x803, 20, side, side) +
                 rng.randbytes(20 * side * side)),
                ("labels-idx1", struct.pack(">2i", 0x801, 20) + bytes(i % 10 for i in range(20)))):
            self.write(f"{folder}/{prefix}-{kind}-ubyte{'.gz' if packed else ''}",
                       gzip.compress(content) if packed else content)

    def test_mnist(self):
        self.idx("mnist", "train")
        self.idx("mnist", "t10k")
        self.prove("mnist", data__format="mnist", data__validation="t10k", model__arch="lenet")
        self.idx("zipped/raw", "train", True)  # in a folder of the folder, and nothing validates
        self.prove("zipped", data__path=self.real("zipped/raw"), data__validation=None)
        self.idx("small", "train", side=8)
        self.prove("small", model__arch="mlp")
        for part in ("train", "test"):
            self.idx("emnist", f"emnist-digits-{part}")
        self.prove("emnist", data__split="digits")

    def real(self, name):
        return os.path.realpath(self.path(name))

    def test_cifar(self):
        rng = random.Random(1)
        cifar = b"".join(bytes([i]) + rng.randbytes(3072) for i in range(10))
        self.write("cifar-10/data_batch_1.bin", cifar)
        self.write("cifar-10/test_batch.bin", cifar)
        self.prove("cifar-10", data__format="cifar10", model__stem="cifar")
        for name in ("train", "test"):
            self.write(f"cifar-100/{name}.bin", b"".join(bytes([0, i]) + rng.randbytes(3072)
                                                         for i in range(10)))
        self.prove("cifar-100", data__format="cifar100")

    def test_images(self):
        rng = random.Random(1)
        for folder in ("train", "val"):
            for name in ("cat", "dog"):
                self.write(f"pets/{folder}/{name}/0.png", png(8, 8, rng.randbytes(192)))
        self.prove("pets", data__format="images", data__train="train", data__validation="val",
                   model__arch="resnet18")
        for name in ("cat", "dog"):  # class folders without a folder that trains
            self.write(f"bare/{name}/0.png", png(8, 8, rng.randbytes(192)))
        self.prove("bare", data__format="images", data__validation="none")
        os.makedirs(self.path("shards", "train"))
        with tarfile.open(self.path("shards", "train", "a.tar"), "w") as tar:
            for i in range(2):
                for end, content in (("png", png(8, 8, rng.randbytes(192))),
                                     ("cls", str(i).encode())):
                    member = tarfile.TarInfo(f"{i}.{end}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        self.prove("shards", data__format="images", data__train="train")

    def test_npy(self):
        rng = random.Random(1)
        classes = bytes(i % 3 for i in range(12))
        for name in ("train", "test"):
            self.write(f"rows/x_{name}.npy", dp.npy("<f4", (12, 5), struct.pack(
                "<60f", *(rng.gauss(0, 1) for _ in range(60)))))
            self.write(f"rows/y_{name}.npy", dp.npy("|u1", (12,), classes))
        self.prove("rows", data__format="npy", data__train="[x_train.npy, y_train.npy]",
                   data__validation="[x_test.npy, y_test.npy]", model__loss=None,
                   data__normalize__source="auto")
        self.write("amounts/x.npy", dp.npy("<f8", (12, 5), bytes(480)))  # they cannot be scaled
        self.write("amounts/y.npy", dp.npy("<f4", (12,), struct.pack("<12f", *range(12))))
        self.prove("amounts", model__loss="mse", data__targets__normalize="auto",
                   data__normalize__source=None)
        self.write("planes/images.npy", dp.npy("|u1", (4, 3, 32, 32), rng.randbytes(4 * 3072)))
        self.write("planes/labels.npy", dp.npy("<i8", (4,), struct.pack("<4q", 0, 1, 2, 0)))
        self.prove("planes", data__layout="nchw", model__arch="lenet")

    def test_csv(self):
        rows = [f'{i},{20 + i % 7},"{("Basel", "Bern, BE")[i % 2]}",{"" if i == 3 else 1950 + i},'
                f"same,{i * 9.5}" for i in range(60)]
        self.write("prices/data.csv", "\n".join(["id,size,city,year,land,price", *rows]))
        self.prove("prices", data__format="csv", data__target="price", data__drop="[id, land]",
                   data__missing="mean", data__unknown="none", model__loss="mse",
                   data__validation="every_tenth", data__targets__normalize="auto")
        self.write("iris.tsv", "label\ta\tb\n" + "".join(
            f"{('red', 'blue')[i % 2]}\t{i}\t{i * i}\n" for i in range(30)))
        self.prove("iris.tsv", data__target="label", data__delimiter="tab", model__loss=None)
        self.write("bare.csv", "".join(f"{i},{i * i},{i % 2}\n" for i in range(30)))
        self.prove("bare.csv", data__header="false", data__target='"column 3"', model__loss=None)

    def test_tokens(self):
        rng = random.Random(1)
        tokens = [rng.randrange(50257) for _ in range(2100)]
        for name in ("train", "val"):
            self.write(f"gpt/{name}.bin", struct.pack("<2100H", *tokens))
        self.prove("gpt", data__format="tokens", data__train="[train.bin]",
                   data__validation="[val.bin]", model__arch="gpt")
        self.write("wide/train.bin", struct.pack("<2100I", *(2 * t for t in tokens)))
        settings = self.init("wide") and self.lines()
        self.assertEqual(settings["data.dtype"], "uint32")
        self.assertEqual(int(settings["model.vocab"]) % 64, 0)
        self.assertGreater(int(settings["model.vocab"]), 2 * max(tokens))

    def test_text(self):
        self.write("poem/input.txt", "To be, or not to be, that is the question.\n" * 60)
        self.prove("poem", data__format="text", data__tokenizer="chars", model__arch="gpt")
        self.write("corpus/a.txt", "the other mother " * 400)
        self.write("corpus/b.jsonl", '{"text": "the end"}\n' * 20)
        self.write("corpus/tokenizer.json", json.dumps(test_texts.tokenizer()))
        self.write("corpus/tokenizer_config.json", json.dumps({"eos_token": "<end>"}))
        self.prove("corpus", data__tokenizer=self.real("corpus/tokenizer.json"))

    def test_network(self):
        """A folder of Hugging Face is trained on the texts of another one."""
        config = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
                  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                  "tie_word_embeddings": True, "vocab_size": 260}
        for name, content in (("config.json", config), ("tokenizer.json", test_texts.tokenizer()),
                              ("tokenizer_config.json", {"eos_token": "<end>"})):
            self.write(f"llama/{name}", json.dumps(content))
        self.write("texts/a.txt", "the other mother " * 2000)
        self.prove("llama", "texts", model__import=self.real("llama"), model__arch=None,
                   model__context="64", model__init__name="random", data__path=self.real("texts"))
        error = self.init("llama", status=dp.USAGE, out="alone.yaml").stderr
        self.assertIn("network of Hugging Face without data: name the folder of the texts", error)
        self.write("table/train.csv", "a,b\n1,2\n3,4\n")
        error = self.init("llama", "table", status=dp.USAGE, out="alone.yaml").stderr
        self.assertIn("and the data are csv: want texts or tokens", error)

    def test_refusals(self):
        os.makedirs(self.path("empty"))
        error = self.init("empty", status=dp.USAGE).stderr
        self.assertRegex(error, r"empty has no data that are known here; want IDX files .*\n$")
        self.assertEqual(len(error.splitlines()), 1)
        self.assertFalse(os.path.exists(self.path("job.yaml")))
        self.write("a.csv", "a,b\n1,2\n3,4\n")
        self.write("mine.yaml", "mine")
        error = self.init("a.csv", status=dp.USAGE, out="mine.yaml").stderr
        self.assertIn("mine.yaml exists and is not replaced; --out FILE", error)
        error = self.init("gone.yaml", status=dp.USAGE, out="b").stderr
        self.assertRegex(error, r"gone.yaml: No such file .*; want a folder .*--out FILE names")
        self.write("lines/a.jsonl", '{"text": "a"}\n')
        self.assertIn("need a tokenizer.json", self.init("lines", status=dp.USAGE, out="b").stderr)
        with open(self.path("mine.yaml"), encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")

    def ask(self, answers):
        """Runs dpdriver init on a terminal that gives these answers: what it shows, its status."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execv(dp.DRIVER, [dp.DRIVER, "init", "strange"])
        os.write(terminal, answers.encode())
        shown = b""
        try:
            while part := os.read(terminal, 4096):
                shown += part
        except OSError:  # its other end was closed
            pass
        os.close(terminal)
        return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_questions(self):
        """On a terminal a folder that is not recognised leads to five questions."""
        self.write("strange/in.npy", dp.npy("<f4", (8, 2), bytes(range(64))))
        self.write("strange/out.npy", dp.npy("<f4", (8,), bytes(32)))
        shown, status = self.ask("no\nnpy\n[in.npy, out.npy]\n\nmse\n2\n")
        self.assertEqual(status, dp.FINISHED, shown)
        self.assertEqual(len(re.findall(r"^[\w.]+ \[[^\n]*\]: ", shown, re.MULTILINE)), 6, shown)
        self.assertIn('data.format is "no", want', shown)
        settings = self.lines()
        self.assertEqual([settings[key] for key in ("data.format", "data.train", "model.arch",
                                                    "model.loss", "train.epochs", "data.path")],
                         ["npy", "[in.npy, out.npy]", "mlp", "mse", "2", self.real("strange")])
        self.assert_exit(self.driver("--job", "job.yaml", "--check", job=None), dp.FINISHED)
        os.unlink(self.path("job.yaml"))
        shown, status = self.ask("npy\n\x04")
        self.assertEqual(status, dp.USAGE, shown)
        self.assertIn("the questions ended at data.train without an answer", shown)
        self.assertFalse(os.path.exists(self.path("job.yaml")))


if __name__ == "__main__":
    dp.main()

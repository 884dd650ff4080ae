"""Bad job files, data files, checkpoints and messages: each ends in time, with the status and the
one clear text that the table names.  test_args.py has bad arguments, test_launch.py a bad
environment."""

import gzip
import json
import os
import re
import shutil
import socket
import struct
import subprocess

import dp
from dp import DRIVER, FAILED, FINISHED, SMALL, USAGE, sets

# ---- job files: what they hold, what the error says; exit status 2

GOOD = "model: {arch: lenet}\ndata: {format: digits, samples: 500, validation_samples: 100}\n"
JOBS = [
    ("", r"j.yaml: empty, want at least model.arch and data.format"),
    ("[]", r"j.yaml:1:1: a job is a mapping.*this is a list"),
    ("just text", r"j.yaml:1:1: a job is a mapping.*this is a text"),
    ("model: {arch: lenet}\n\0data: {}\n", r"j.yaml: not YAML: control characters.*byte 21"),
    ("\xff\xfe", r"j.yaml: not YAML: .*UTF-8.*byte 0"),
    ("{model: {arch: lenet}, data: {format: digits}", r"j.yaml:2:1: not YAML"),
    ('{"model": {"arch": "lenet"}, "data": {"format": "digits",}', r"j.yaml:2:1: not YAML"),
    ("a: " * 5000, r"j.yaml:1:5: not YAML"),
    ("model: &a {arch: lenet}\ndata: *b\n", r"j.yaml:2:7: not YAML: found undefined alias"),
    (GOOD + "---\n" + GOOD, r"j.yaml:3:1: a second document, want one"),
    ("model: {arch: lenet}\n" + GOOD, r"j.yaml:2:1: model is given twice, first in line 1"),
    ("model: lenet\ndata: {format: digits}\n", r'1:8: model is "lenet", want a mapping'),
    ("model: {arch: resnet}\ndata: {format: digits}\n", r'1:15: model.arch is "resnet", want mlp'),
    ("data: {format: digits}\n", r"model.arch is missing, want mlp, lenet, lenet5"),
    ("model: {arch: lenet}\n", r"data.format is missing, want mnist, digits, cifar10, cifar"),
    ("model: {arch: lenet}\ndata: {format: mnist}\n", r"data.path is missing, want a path"),
    ("model: {arch: lenet}\ndata: {format: tsv}\n", r'data.format is "tsv", want mnist, digits, '),
    ("model: {arch: mlp, hidden: [0]}\ndata: {format: digits}\n", r"1:28: model.hidden is 0, want"),
    ("model: {arch: lenet, hidden: [3]}\ndata: {format: digits}\n", r"only if model.arch is mlp"),
    ("model: {arch: mlp, dropout: 1}\ndata: {format: digits}\n", r"dropout is 1, want .* below 1"),
    ("model: {arch: lenet, init: {name: file}}\ndata: {format: digits}\n", r"init.path is missing"),
    ("model: {arch: lenet, init: {name: file, path: no.st}}\ndata: {format: digits}\n",
     r"model.init: .*no.st: No such file"),
    ("model: {arch: lenet}\ndata: {format: text, path: j.yaml}\n",
     r"training data: text: the job's model has no model.context, .*want a model.arch that reads"),
    (GOOD + "train: {global_batch: 0}\n", r"3:23: train.global_batch is 0, want an integer from 1"),
    (GOOD + "train: {global_batch: 2.5}\n", r"train.global_batch is 2.5, want an integer"),
    (GOOD + "train: {global_batch: many}\n", r'train.global_batch is "many", want an integer'),
    (GOOD + "train: {global_batch: [1]}\n", r"train.global_batch is a list, want an integer"),
    (GOOD + "train: {epochs: 99999999999999999999}\n", r"epochs is 9{20}, want an integer from 1"),
    (GOOD + "train: {seed: -1}\n", r"train.seed is -1, want an integer from 0"),
    (GOOD + "train: {Epochs: 3}\n", r'unknown key "train.Epochs".*train.epochs'),
    (GOOD + "train: {on_nonfinite: explode}\n", r'is "explode", want stop or skip'),
    (GOOD + "optimizer: {name: adamax}\n", r'optimizer.name is "adamax", want'),
    (GOOD + "optimizer: {groups: [{match: fc1.bias, lr_scale: fast}]}\n",
     r'optimizer.groups\[0\]: lr_scale is "fast", want'),
    (GOOD + "optimizer: {no_decay: [biases]}\n", r"optimizer.no_decay is .*bias, norm or embed"),
    (GOOD + "optimizer: {lr: nan}\n", r'optimizer.lr is "nan", want a number above 0'),
    (GOOD + "optimizer: {lr: -0.1}\n", r"optimizer.lr is -0.1, want a number above 0"),
    (GOOD + "optimizer: {nesterov: true}\n", r"nesterov needs optimizer.momentum above 0"),
    (GOOD + "schedule: {name: step}\n", r"step needs one of schedule.every_steps and"),
    (GOOD + "precision: float8\n", r'precision is "float8", want float32'),
    (GOOD + "checkpoint: {keep: 0}\n", r"checkpoint.keep is 0, want an integer from 1"),
    (GOOD + "cluster: {min_ranks: 3}\n", r"cluster.min_ranks is 3, want at most --nranks, 2"),
    (GOOD + "cluster: {max_ranks: 1, min_ranks: 2}\n", r"min_ranks is 2, want at most .*max_ranks"),
    (GOOD + "cluster: {deadlines: {step: -1}}\n", r"deadlines.step is -1, want a number from 0.1"),
    (GOOD + "cluster: {heartbeat_timeout: soon}\n", r'"soon", want a number from 2 to 3600 s'),
    (GOOD + "name: a/b\n", r'name is "a/b", want a name of 1 to 64 letters'),
    (GOOD + "name: ''\n", r'name is "", want a name'),
    (GOOD + "model2: {}\n", r'3:1: unknown key "model2"; the closest known key is model'),
]

# ---- data files: what differs from four good ones, what the error says; exit status 2

N = 60
TRAIN_X, TRAIN_Y = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
HELD_X, HELD_Y = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def images(n=N, magic=2051, rows=28, columns=28):
    return struct.pack(">IIII", magic, n, rows, columns) + b"\7" * (n * rows * columns)


def labels(n=N, last=9):
    return struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n - 1)) + bytes([last])


def damaged(data, at):
    """Changes the byte that is `at` bytes from the end."""
    return data[:-at] + bytes([data[-at] ^ 0x55]) + data[len(data) - at + 1:]


PACKED = gzip.compress(images())
FIFO, FOLDER = "fifo", "folder"  # the new content of a file; None removes it
FILES = [
    ({TRAIN_X: None}, r"no images in folder .*/d, looked for train-images-idx3-ubyte, .*\.gz"),
    ({TRAIN_Y: None}, r"no labels in folder .*/d, looked for train-labels-idx1-ubyte"),
    ({HELD_X: None, HELD_Y: None}, r"validation data: .*no images .*looked for t10k-images"),
    ({TRAIN_X: b""}, r"offset 0: the file ends within its header"),
    ({TRAIN_X: images()[:7]}, r"offset 7: the file ends within its header, want 16 bytes"),
    ({TRAIN_X: images()[:-1]}, r"offset 16: 47039 bytes follow.*\[60,28,28\].*truncated"),
    ({TRAIN_X: images() + b"x"}, r"offset 47056: bytes follow the array \[60,28,28\]"),
    ({TRAIN_X: b"<html>Not found</html>" * 99}, r"offset 0: magic is 0x3c68746d, want 0x00000803"),
    ({TRAIN_X: labels()}, r"number of dimensions is 1, want 3 to 4; .*swapped\?"),
    ({TRAIN_Y: labels(N - 1)}, r"offset 4: 59 labels, want 60, as many as images"),
    ({TRAIN_Y: labels(last=10)}, r"offset 67: label of sample 59 is 10, want 0 to 9"),
    ({TRAIN_X: images(rows=27)}, r"validation samples are x \[28,28,1\].* x \[27,28,1\]"),
    ({TRAIN_X: images(0), TRAIN_Y: labels(1)[:7] + b"\0"}, r"extents are \[0,28,28\]"),
    ({TRAIN_X: struct.pack(">IIII", 2051, 2**31, 28, 28)}, r"as many as \[2147483648,28,28\]"),
    ({TRAIN_X: struct.pack(">IIII", 2051, 60, 2**31, 2**31)}, r"as many as \[60,2147483648,21"),
    ({TRAIN_X: None, TRAIN_X + ".gz": b"\x1f\x8b\x08rubbish"}, r"ubyte.gz: .*gzip data is damaged"),
    ({TRAIN_X: None, TRAIN_X + ".gz": PACKED[:-20]}, r"ubyte.gz: .*ends within the gzip data"),
    ({TRAIN_X: None, TRAIN_X + ".gz": damaged(PACKED, 6)}, r"ubyte.gz: .*incorrect data check"),
    ({TRAIN_X: FOLDER}, r"train-images-idx3-ubyte: is not a regular file"),
    ({TRAIN_X: FIFO}, r"train-images-idx3-ubyte: is not a regular file"),
]

# ---- checkpoints: what is done to a run with two, exit status of --resume, what it says

LAST, ONE_BEFORE = "checkpoints/step-00000020", "checkpoints/step-00000010"


def write(path, change):
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(change(content))


def damage(name, at=3):
    return lambda run: write(f"{run}/{LAST}/{name}", lambda content: damaged(content, at))


def change_state(key, value):
    def change(content):
        return json.dumps({**json.loads(content), key: value}).encode()
    return lambda run: write(f"{run}/{LAST}/state.json", change)


def replace(name, content):
    return lambda run: write(f"{run}/{name}", lambda _: content)


def remove(name):
    return lambda run: os.unlink(f"{run}/{name}")


def without_other(do):
    def both(run):
        shutil.rmtree(f"{run}/{ONE_BEFORE}")
        do(run)
    return both


def follow_link(run):
    """Does what cp -rL does to the link."""
    latest = run + "/checkpoints/latest"
    os.unlink(latest)
    shutil.copytree(f"{run}/checkpoints/step-00000020", latest)


def replace_by_folder(name):
    def do(run):
        link = f"{run}/checkpoints/{name}"
        if os.path.lexists(link):
            os.unlink(link)
        os.makedirs(link + "/notes")
    return do


SKIPS = r"skipping a damaged checkpoint: .*step-00000020/"
CHECKPOINTS = [
    (damage("model.safetensors"), FINISHED, SKIPS + "model.safetensors: its content has hash"),
    (damage("optimizer.safetensors"), FINISHED, SKIPS + "optimizer.safetensors: "),
    (replace(LAST + "/model.safetensors", b"x" * 100), FINISHED, SKIPS + "model.safetensors: "),
    (replace(LAST + "/model.safetensors", b""), FINISHED, SKIPS + "model.safetensors: "),
    (remove(LAST + "/model.safetensors"), FINISHED, SKIPS + "model.safetensors: No such file"),
    (remove(LAST + "/state.json"), FINISHED, SKIPS + "state.json: No such file"),
    (replace(LAST + "/state.json", b""), FINISHED, SKIPS + "state.json: line 1"),
    (replace(LAST + "/state.json", b'{"step":'), FINISHED, SKIPS + "state.json: line 1: unexp"),
    (replace(LAST + "/state.json", b"[]"), FINISHED, SKIPS + "state.json: line 1: not an object"),
    (change_state("step", -5), FINISHED, SKIPS + "state.json: its hash is"),
    (change_state("step", "x"), FINISHED, SKIPS + "state.json: its hash is"),
    (change_state("format", 9), FINISHED, SKIPS + "state.json: its hash is "),
    (remove("checkpoints/latest"), FINISHED, r"step 30,"),
    (follow_link, FINISHED, r"latest is a folder.*; it is a second copy of step-00000020, "),
    (replace_by_folder("latest"), FINISHED,
     r"checkpoint of step 30 is written, but no link to it: \S+latest is a folder, so no "),
    (replace_by_folder("best"), FINISHED, r"warning: \S+best is a folder and no checkpoint, "),
    (without_other(damage("model.safetensors")), USAGE, r"no complete checkpoint .*another --run"),
    (without_other(remove(LAST + "/state.json")), USAGE, r"no complete checkpoint .*1 looked at"),
    (remove("job.yaml"), USAGE, r"--resume: there is no run in run .*no job.yaml"),
    (replace("job.yaml", b"{"), USAGE, r"run/job.yaml:2:1: not YAML"),
    (lambda run: write(run + "/events.jsonl", lambda content: content + b'{"event":"ep'), FINISHED,
     r"a torn last line of 12 bytes is cut"),
    (lambda run: (os.unlink(run + "/events.jsonl"), os.mkdir(run + "/events.jsonl")), FAILED,
     r"events.jsonl: cannot be written: Is a directory"),
    (lambda run: (shutil.rmtree(run + "/checkpoints"), open(run + "/checkpoints", "wb").close()),
     USAGE, r"checkpoints: Not a directory"),
]

# ---- messages: what a stranger sends to a driver that waits for a follower, what the driver says


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """A protobuf field: an integer, or bytes, text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(body):
    return b"DPT1" + struct.pack(">I", len(body)) + body


def protocol():
    with open(os.path.join(dp.ROOT, "common", "wire", "msg.h"), encoding="ascii") as file:
        return int(re.search(r"MSG_PROTOCOL = (\d+)", file.read())[1])


VERSION = subprocess.check_output([DRIVER, "--version"], text=True).split()[1]


def hello(**changes):
    values = {1: protocol(), 2: VERSION, 3: -1, 4: "host", 5: "id", 6: 7, 7: "cpu", 9: "cpu"}
    values.update({int(key[1:]): value for key, value in changes.items()})
    return frame(field(2, b"".join(field(*item) for item in values.items() if item[1] is not None)))


MESSAGES = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", r"looks like an HTTP request"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", r"it has a secret.*looks like a TLS connection"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", r"looks like an SSH connection"),
    (b"DPT2\0\0\0\5hello", r"another version of dptrain's protocol"),
    (b"DPT1\0\0\0\0", r"a message of 0 bytes, want 1 to 65536"),
    (b"DPT1\0\1\0\1", r"a message of 65537 bytes, want 1 to"),
    (b"DPT1\x7f\xff\xff\xff", r"a message of 2147483647 bytes"),
    (frame(b"\xff" * 20), r"20 bytes that are no Control message"),
    (frame(field(1, 0)), r"Control.body is empty"),
    (frame(field(5, b"")), r"Ready.layout has 0 bytes, want 16"),
    (frame(field(16, b"")), r"[Hh]eartbeat"),
    (hello(f4="h" * 5000), r"host"),
    (hello(f4="a\x1b[2Jb"), r"host"),
    (hello(f3=-7), r"rank"),
    (hello(f3=70000), r"rank"),
    (hello(f1=999), r"protocol|version"),
    (hello(f6=-1), r"pid"),
    (hello(f11=b"t" * 1000), r"advertise"),
]


class BadInput(dp.Case):
    def refused(self, args, pattern):
        done = subprocess.run([DRIVER, *args], cwd=self.folder, env=self.env, timeout=dp.PATIENCE,
                              capture_output=True, text=True, errors="replace", check=False)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.stderr.count(": error: "), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_count(self):
        """With those of test_args.py well above a hundred."""
        self.assertGreaterEqual(len(JOBS) + len(FILES) + len(CHECKPOINTS) + len(MESSAGES), 100)

    def test_jobs(self):
        for text, pattern in JOBS:
            with self.subTest(text=text[-60:]):
                with open(self.path("j.yaml"), "w", encoding="latin-1") as file:
                    file.write(text)
                self.refused(["--nranks", "2", "--check", "--job", "j.yaml"], pattern)

    def make_files(self, changes):
        shutil.rmtree(self.path("d"), ignore_errors=True)
        os.mkdir(self.path("d"))
        good = {TRAIN_X: images(), TRAIN_Y: labels(), HELD_X: images(), HELD_Y: labels()}
        for name, content in {**good, **changes}.items():
            if content == FIFO:
                os.mkfifo(self.path("d", name))
            elif content == FOLDER:
                os.mkdir(self.path("d", name))
            elif content is not None:
                with open(self.path("d", name), "wb") as file:
                    file.write(content)

    def test_files(self):
        job = sets({"model.arch": "lenet", "data.format": "mnist", "data.path": "d",
                    "data.validation": "t10k"})
        for changes, pattern in FILES:
            with self.subTest(changes=list(changes), pattern=pattern):
                self.make_files(changes)
                self.refused(["--nranks", "1", "--check", *job], pattern)
        self.make_files({})
        subprocess.run([DRIVER, "--nranks", "1", "--check", *job], cwd=self.folder, env=self.env,
                       capture_output=True, timeout=dp.PATIENCE, check=True)

    def test_checkpoints(self):
        job = {"data.samples": 500, "data.validation_samples": 100, "train.global_batch": 50,
               "train.epochs": 2}
        self.run_driver("--run-dir", "good", job=job)
        for number, (do, status, pattern) in enumerate(CHECKPOINTS):
            with self.subTest(number=number, pattern=pattern):
                shutil.rmtree(self.path("run"), ignore_errors=True)
                shutil.copytree(self.path("good"), self.path("run"), symlinks=True)
                do(self.path("run"))
                driver = self.driver("--resume", "--run-dir", "run", job={"train.epochs": 3})
                self.assert_exit(driver, status, pattern)
                if status == FINISHED:
                    self.assertEqual(self.events("done", run="run")[-1]["step"], 30)

    def test_checkpoints_gone(self):
        """The disk of the checkpoints is not mounted: nothing of the run changes.  Once it is, the
        run goes on."""
        job = {"data.samples": 500, "data.validation_samples": 100, "train.global_batch": 50,
               "train.epochs": 1}
        self.run_driver("--run-dir", "run", job=job)
        os.rename(self.path("run/checkpoints"), self.path("disk"))
        os.symlink("../off", self.path("run/checkpoints"))

        def content():
            return {entry.path: open(entry.path, "rb").read()
                    for entry in os.scandir(self.path("run")) if entry.is_file()}

        before = content()
        for more in ([], ["--check"]):
            driver = self.driver("--resume", "--run-dir", "run", *more, job={"train.epochs": 2})
            self.assert_exit(driver, USAGE, r"--resume in run: the run has a checkpoint of step 10 "
                             r"by .*run/checkpoints is a link to \.\./off, which is missing; mount")
            self.assertEqual(content(), before)
        os.rename(self.path("disk"), self.path("off"))
        self.run_driver("--resume", "--run-dir", "run", job={"train.epochs": 2})
        self.assertEqual(self.events("done", run="run")[-1]["step"], 20)

    def send_all(self, messages):
        """Each comes from a stranger of its own.  The driver logs only so many in a while."""
        driver = self.driver(n=2, job=SMALL)
        port = self.wait_port()
        for text, pattern in messages:
            with self.subTest(text=text[:40]):
                with socket.create_connection(("127.0.0.1", port)) as sock:
                    address = rf"127.0.0.1:{sock.getsockname()[1]}\b"
                    sock.sendall(text)
                    said = driver.wait_line(rf"{address}.*").group(0)
                    self.assertRegex(said, pattern)
                    self.assertTrue(said.isprintable(), said)
                    dp.hear_out(sock)  # the driver may say why before it closes
        follower = self.follower()
        self.assert_exit(follower, FINISHED)
        self.assert_exit(driver, FINISHED)
        shutil.rmtree(self.path("runs"))

    def test_messages(self):
        for at in range(0, len(MESSAGES), 6):
            self.send_all(MESSAGES[at:at + 6])


if __name__ == "__main__":
    dp.main()

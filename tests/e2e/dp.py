"""dp - real daemons for end-to-end tests.

A test case starts drivers and followers and waits, with deadlines, for their lines, events and
exits.  At its end it asserts that none of its processes is left.  Every process carries a mark in
its environment, by which even a process that changed its group is found.

DPDRIVER and DPFOLLOWER name the programs (meson sets them); without them those of build/ are taken.
"""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DRIVER = os.path.abspath(os.environ.get("DPDRIVER", os.path.join(ROOT, "build/driver/dpdriver")))
FOLLOWER = os.path.abspath(
    os.environ.get("DPFOLLOWER", os.path.join(ROOT, "build/follower/dpfollower")))

# The deadline, in seconds, of every wait.  It is long, because everything takes longer under a
# sanitizer or on a busy machine; a test that passes never waits for it.
PATIENCE = float(os.environ.get("DPTRAIN_PATIENCE", "120"))
# The limit for what the product promises to do within seconds, even on a busy machine.  A daemon
# that leaves only because one of cluster.deadlines passed takes longer: they are 60 s and more.
SOON = max(30, PATIENCE / 5)
MARK = "DPTRAIN_TEST_MARK"

FINISHED, FAILED, USAGE, REFUSED, STOPPED = range(5)

# The device of the tests that also train on simulated GPUs (tests/fakegpu): "cpu" or "cuda".
DEVICE = os.environ.get("DPTRAIN_TEST_DEVICE", "cpu")
# Arguments for daemons whose results are compared bit by bit: the bits depend on the number of
# threads.
EXACT = ("--threads", "1", "--device", DEVICE)

# For jobs whose network does not matter: it trains in a third of the time of the demo's, and its
# state still travels in several pieces (MESH_PIECE_MAX).
LIGHT = {"model.arch": "mlp", "model.hidden": [64]}
# The demo's data, few: 32 steps an epoch of 64 samples.
SMALL = {**LIGHT, "data.samples": 2048, "data.validation_samples": 512, "train.global_batch": 64,
         "train.epochs": 2}
# A job that goes on until the test ends it.
ENDLESS = {**LIGHT, "data.samples": 20000, "data.validation_samples": 256, "train.global_batch": 64,
           "train.epochs": 100000}
# A job whose followers end when they lose their driver.
FORSAKEN = {"cluster.driver_timeout": 0}
# Ranks that write a checkpoint together go on with it after each step.  These steps last long
# enough for the checkpoint of step 16, also on a busy machine.
WHILE_SAVING = ",".join(f"delay:rank1@step{step}:300ms" for step in range(17, 22))
# A job that ends when it loses a rank, the driver's included, because no rank may be replaced.
RIGID = {"cluster.replace_timeout": 0, **FORSAKEN}
# A job that loses no rank for being silent or slow.  One of its ranks freezes itself (freezing),
# and the others wait for it until the test has done its work and wakes it, however fast the machine
# is.
PATIENT = {"cluster.heartbeat_timeout": 600, "cluster.deadlines.step": 600}


def sets(values):
    """The --set arguments for a dict of job keys."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def nested(values):
    """The same dict as a job file holds it: section by section."""
    job = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        place = job
        for name in sections:
            place = place.setdefault(name, {})
        place[last] = value
    return job


def npy(descr, shape, data):
    """A file as numpy.save() writes it."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def freezing(rank, *steps):
    """Arguments for a driver: this rank freezes itself at the beginning of each of these steps."""
    return "--inject", ",".join(f"stop:rank{rank}@step{step}" for step in steps)


def wait_for(what, condition, patience=None):
    """Polls until condition() is true, and returns its value."""
    deadline = time.monotonic() + (patience or PATIENCE)
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience or PATIENCE:.0f} s in vain for {what}")
        time.sleep(0.005)


# A process that a shell starts in the background ignores SIGINT, and so would its children.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

reserved = []


def free_port():
    """A port for a driver that starts after its followers.  This process keeps the port bound and
    never listens at it: so the system gives the port to no other process, while a listener with
    SO_REUSEADDR, such as the driver's, may take it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    reserved.append(sock)
    return sock.getsockname()[1]


def hear_out(sock):
    """All bytes that come until the other side closes, whether it has read everything or not."""
    sock.settimeout(PATIENCE)
    heard = b""
    try:
        while part := sock.recv(65536):
            heard += part
    except ConnectionResetError:
        pass
    return heard


class Daemon:
    """A process whose standard error is read line by line."""

    def __init__(self, argv, cwd, env, prefix=(), **popen):
        self.name = os.path.basename(argv[0])
        self.argv = argv
        self.lines = []
        self.out = ""
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            [*prefix, *argv], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, text=True, errors="replace", **popen)
        self.readers = [threading.Thread(target=self._read_err, daemon=True),
                        threading.Thread(target=self._read_out, daemon=True)]
        for reader in self.readers:
            reader.start()

    @property
    def pid(self):
        return self.process.pid

    def _read_err(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)
            self.changed.notify_all()

    def _read_out(self):
        self.out = self.process.stdout.read()

    @property
    def text(self):
        return "\n".join(line for line in self.lines if line is not None)

    def wait_line(self, pattern, patience=None, start=0):
        """Waits for a line that has `pattern`, from line `start` on, and returns the match."""
        deadline = time.monotonic() + (patience or PATIENCE)
        seen = start
        with self.changed:
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    match = line is not None and re.search(pattern, line)
                    if match:
                        return match
                    if line is None:
                        raise AssertionError(f"{self.name} ended without {pattern!r}:\n{self.text}")
                if not self.changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"{self.name} did not say {pattern!r}:\n{self.text}")

    def wait_exit(self, patience=None):
        try:
            status = self.process.wait(patience or PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.text}") from None
        for reader in self.readers:
            reader.join(patience or PATIENCE)
        return status

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.process.kill()

    def state(self):
        """The first line that the daemon logs upon SIGUSR1."""
        start = len(self.lines)
        self.signal(signal.SIGUSR1)
        return self.wait_line(r"state: (.*)", start=start).group(1)


def is_frozen(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def thaw(pid):
    """Wakes a process that has frozen itself or is about to: before, the signal would be lost."""
    wait_for(f"{pid} to freeze", lambda: is_frozen(pid))
    os.kill(pid, signal.SIGCONT)


def marked(mark):
    """{pid: command} of the living processes that carry the mark."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if f"{MARK}={mark}".encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="dptrain-e2e-")
        self.mark = uuid.uuid4().hex
        self.daemons = []
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("OMP_", "DNNL_", "OMPI_", "SLURM_", "MASTER_"))
                    and key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG",
                                    "XDG_RUNTIME_DIR")}
        self.env[MARK] = self.mark

    def tearDown(self):
        failed = self._outcome_failed()
        left = {} if failed else self.left_behind()
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for daemon in self.daemons:
            daemon.wait_exit()
            daemon.process.stdout.close()
            daemon.process.stderr.close()
            if failed:
                print(f"--- {' '.join(daemon.argv)}\n{daemon.text}\n{daemon.out}")
        shutil.rmtree(self.folder)
        self.assertEqual(left, {}, "processes were left behind")

    def _outcome_failed(self):
        result = getattr(self._outcome, "result", None)
        return bool(result) and any(test is self for test, _ in result.errors + result.failures)

    def left_behind(self):
        """{pid: command} of the processes that live although every daemon that the test started has
        ended.  A follower that dies with its driver may take a moment longer."""
        if any(daemon.process.poll() is None for daemon in self.daemons):
            return {}
        until = time.monotonic() + SOON
        while (left := marked(self.mark)) and time.monotonic() < until:
            time.sleep(0.01)
        return left

    def need_hosts(self):
        """Skips the test where network namespaces cannot be made, which play hosts."""
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and iproute2's ip")

    # ---- starting

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def weights(self, run="runs/demo", generation="latest"):
        """The bytes of a checkpoint's files: of the parameters and of the optimizer's slots."""
        folder = self.path(run, "checkpoints", generation)
        out = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                with open(os.path.join(folder, name), "rb") as file:
                    out[name] = file.read()
        return out

    def copied_driver(self):
        """The path of a copy of dpdriver in a folder of its own, bin/, without dpfollower.  If the
        programs are a bundle's, the copy finds the bundle's libraries."""
        os.makedirs(self.path("bin"), exist_ok=True)
        lib = os.path.join(os.path.dirname(DRIVER), "..", "lib")
        if os.path.isdir(lib):
            os.symlink(os.path.realpath(lib), self.path("lib"))
        return shutil.copy(DRIVER, self.path("bin", "dpdriver"))

    def start(self, argv, env=None, **popen):
        daemon = Daemon(argv, self.folder, {**self.env, **(env or {})}, **popen)
        self.daemons.append(daemon)
        return daemon

    def driver(self, *args, n=1, job=SMALL, port=True, **popen):
        """Starts a driver, on a free port (wait_port() tells it) unless `port` is False."""
        words = [DRIVER, "--nranks", str(n), *sets(job or {})]
        if port:
            words += ["--port", "0", "--port-file", self.path("port")]
            if os.path.exists(self.path("port")):
                os.unlink(self.path("port"))
        return self.start([*words, *args], **popen)

    def wait_port(self):
        wait_for("the port file", lambda: os.path.exists(self.path("port")))
        with open(self.path("port"), encoding="ascii") as file:
            return int(file.read())

    def follower(self, *args, port=None, once=True, host="127.0.0.1", **popen):
        root = f"{host}:{port if port else self.wait_port()}"
        return self.start([FOLLOWER, "--root", root, *(["--once"] if once else []), *args], **popen)

    # ---- looking

    def events(self, kind=None, run="runs/demo"):
        path = self.path(run, "events.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            whole = [line for line in file.read().splitlines(True) if line.endswith("\n")]
        events = [json.loads(line) for line in whole]
        return [event for event in events if kind in (None, event["event"])]

    def wait_event(self, kind, n=1, run="runs/demo"):
        """Waits for the n-th event of this kind, and returns it."""
        return wait_for(f"event {kind} {n}", lambda: self.events(kind, run)[n - 1:])[0]

    def wait_frozen(self, pid, n=1, run="runs/demo"):
        """Waits until a rank has frozen itself for the n-th time; an event announces it before."""
        self.wait_event("inject", n, run)
        wait_for(f"{pid} to freeze", lambda: is_frozen(pid))

    def wake(self, pid, n=1, run="runs/demo"):
        """Wakes a rank that has frozen itself or is about to."""
        self.wait_event("inject", n, run)
        thaw(pid)

    def wait_checkpoint(self, run, first):
        """Waits for one of this step or a later one."""
        def latest():
            link = self.path(run, "checkpoints", "latest")
            return os.path.islink(link) and int(os.readlink(link).split("-")[1]) >= first

        wait_for(f"a checkpoint from step {first} on", latest, 60)

    def local_pid(self, rank):
        """The pid of the follower that --local started for this rank."""
        return next(pid for pid, argv in marked(self.mark).items() if f"--rank {rank} " in argv)

    def assert_exit(self, daemon, status, *patterns, patience=None):
        got = daemon.wait_exit(patience)
        self.assertEqual(got, status, f"{' '.join(daemon.argv)}\n{daemon.text}")
        for pattern in patterns:
            self.assertRegex(daemon.text, pattern)

    def run_driver(self, *args, status=FINISHED, **kwargs):
        daemon = self.driver(*args, **kwargs)
        self.assert_exit(daemon, status)
        return daemon


class Timed(unittest.TextTestResult):
    """Prints the seconds that each test case took."""

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def stopTest(self, test):
        self.stream.writeln(f"  {time.monotonic() - self.started:.1f} s")
        super().stopTest(test)


def main():
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Timed))

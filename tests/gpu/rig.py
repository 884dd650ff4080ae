"""rig - runs the daemons and the programs of the GPU suite, with all that they say in one log."""

import json
import os
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NONE = 77
PATIENCE = float(os.environ.get("DPTRAIN_PATIENCE", "120"))

# The demo job, small; its last batch is smaller than the others.
JOB = {"data.samples": 4130, "data.validation_samples": 512, "train.global_batch": 64,
       "train.epochs": 1, "optimizer.lr": 0.05}


# NCCL without memory that GPUs map from each other, which a virtual machine may not have.
UNSHARED = {"NCCL_CUMEM_ENABLE": "0"}


class Skip(Exception):
    """This check cannot be made here."""


class Suite:
    def __init__(self, args):
        if args.bundle:
            tools = os.path.abspath(os.path.join(args.bundle, "bin"))
            self.driver = os.path.join(tools, "dpdriver")
            self.follower = os.path.join(tools, "dpfollower")
            self.golden = os.path.join(HERE, "golden.json")
        else:
            build = os.path.abspath(args.build)
            tools = os.path.join(build, "tests", "gpu")
            self.driver = os.path.join(build, "driver", "dpdriver")
            self.follower = os.path.join(build, "follower", "dpfollower")
            self.golden = os.path.join(HERE, "..", "golden", "golden.json")
        self.tools = tools
        self.rehearse = args.rehearse
        self.device = "cpu" if args.rehearse else "cuda"
        self.out = os.path.abspath(args.out)
        self.until = time.monotonic() + 60 * args.minutes
        self.runs = 0
        self.log = open(os.path.join(self.out, "gpu-suite.log"), "a", encoding="utf-8")

    def tool(self, name):
        return os.path.join(self.tools, name)

    def say(self, text):
        """To the user and to the log."""
        print(text, flush=True)
        self.note(text)

    def note(self, text):
        self.log.write(text.rstrip("\n") + "\n")
        self.log.flush()

    def left(self):
        return self.until - time.monotonic()

    # ---- programs ----

    def run(self, name, argv, env=None, limit=2 * PATIENCE):
        """Run to the end; returns its output.  Fails with its last lines."""
        status, text = self.observe(name, argv, env, limit)
        if status == NONE:
            raise Skip(text.strip().splitlines()[-1])
        if status is None and self.left() <= 0:
            raise Skip("no time was left to end it (--minutes)")
        if status != 0:
            tail = "\n".join(text.splitlines()[-25:])
            what = f"ended with {status}" if status is not None else "did not end in time"
            raise AssertionError(f"{argv[0]} {what}:\n{tail}")
        return text

    def observe(self, name, argv, env=None, limit=2 * PATIENCE):
        """Run, with all that it says in the log; (status, or None: stopped, and its output)."""
        path = os.path.join(self.out, name + ".log")
        start, limit = time.monotonic(), max(1.0, min(limit, self.left()))
        self.note(f"$ {' '.join([f'{k}={v}' for k, v in (env or {}).items()] + argv)}")
        with open(path, "w", encoding="utf-8") as output:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True,
                                     env={**os.environ, "CUDNN_LOGLEVEL_DBG": "1",
                                          "CUDNN_LOGDEST_DBG": "stderr", **(env or {})})
            try:
                status = self.watch(name, child, path, start + limit)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        self.note(f"{text}\n-- {name}: status {status}, {time.monotonic() - start:.1f} s")
        return status, text

    def watch(self, name, child, path, until):
        """Its status; None if it is still there at `until`, after noting where it stands."""
        said = time.monotonic()
        while True:
            try:
                return child.wait(min(5, max(0.01, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if now >= until:
                self.note(stacks_of(child.pid))
                return None
            if now - said > 30:
                said = now
                print(f"    {name}: {until - now:.0f} s left; {last_line(path)}", flush=True)

    # ---- training ----

    def command(self, n_ranks, device, sets, run_dir):
        argv = [self.driver, "--nranks", str(n_ranks), "--port", "0", "--device", device,
                "--run-dir", run_dir, "--threads", "1"]
        if n_ranks > 1:
            argv += ["--local"]
            if device != "cpu":
                argv += ["--test-shared-gpu"]
        for key, value in {**JOB, **sets}.items():
            argv += ["--set", f"{key}={value}"]
        return argv

    def new_run(self):
        self.runs += 1
        return os.path.join(self.out, f"run-{self.runs}")

    def train(self, name, n_ranks, device, sets, env=None):
        """The events of a whole run."""
        run_dir = self.new_run()
        self.run(name, self.command(n_ranks, device, sets, run_dir), env)
        return events_of(run_dir)

    def train_explained(self, name, n_ranks, sets):
        """train on the GPU; where it fails, the log tells what becomes of it without recorded
        steps, for ranks also without memory that they share, and all that NCCL and cuDNN say."""
        try:
            return self.train(name, n_ranks, self.device, sets)
        except AssertionError:
            plain = {**sets, "train.record": "false"}
            self.try_again(name, "without recorded steps", n_ranks, plain, {})
            if n_ranks > 1:
                self.try_again(name, "without shared memory", n_ranks, sets, UNSHARED)
            raise

    def try_again(self, name, what, n_ranks, sets, env):
        status, _ = self.observe(
            f"{name}_{what.replace(' ', '_')}",
            self.command(n_ranks, self.device, sets, self.new_run()),
            {"NCCL_DEBUG": "INFO", "CUDNN_LOGLEVEL_DBG": "2", **env}, PATIENCE)
        self.say(f"    {name}: {what} it ended with {status} (in the log)")


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return lines[-1][:120] if lines else "it says nothing"


def descendants(pid):
    """pid, and all below it."""
    found = [pid]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = read(f"/proc/{entry}/stat").rpartition(")")[2].split()
            if fields and int(fields[1]) == pid:
                found += descendants(int(entry))
    return found


def tasks_of(pid):
    try:
        return sorted(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def stacks_of(top):
    """Where the threads of a process and its children stand; by gdb where there is one."""
    gdb = shutil.which("gdb") or shutil.which("cuda-gdb")
    text = []
    for pid in descendants(top):
        text.append(f"-- process {pid}: {read(f'/proc/{pid}/cmdline')!r}")
        for task in tasks_of(pid):
            at = f"/proc/{pid}/task/{task}"
            text.append(f"   thread {task} {read(at + '/comm')}: "
                        f"{read(at + '/wchan')}, syscall {read(at + '/syscall')[:60]}")
        if gdb:
            done = subprocess.run(["timeout", "-k", "5", "60", gdb, "-batch", "-p", str(pid), "-ex",
                                   "thread apply all bt"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace")
            text.append(done.stdout)
    return "\n".join(text)


def events_of(run_dir):
    with open(os.path.join(run_dir, "events.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


FACTS = ["date -u", "cat commit 2>/dev/null || git describe --always --dirty", "uname -a",
         "cat /etc/os-release", "cat /proc/driver/nvidia/version",
         "nvidia-smi", "nvidia-smi -q", "nvidia-smi topo -m", "ls -l /dev/nvidia* /dev/shm",
         "nvcc --version", "ls -d /usr/local/cuda*",
         "PATH=$PATH:/sbin ldconfig -p | grep -E 'cuda|cudnn|nccl|cublas|nvrtc|nvJitLink'",
         "python3 -m pip list 2>/dev/null | grep -iE 'nvidia|torch|nccl'", "ip -brief address",
         "ulimit -a", "nproc", "free -m", "df -h /dev/shm /tmp",
         "env | grep -E '^(CUDA|NVIDIA|NCCL|CUDNN|CUBLAS|LD_|DPTRAIN)'",
         "dmesg 2>/dev/null | grep -iE 'nvrm|xid' | tail -n 20"]


def note_facts(suite):
    top = os.path.join(HERE, "..", "..")
    for command in FACTS:
        done = subprocess.run(["timeout", "60", "sh", "-c", command], cwd=top,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        suite.note(f"$ {command}\n{done.stdout}")

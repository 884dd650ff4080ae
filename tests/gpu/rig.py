"""rig - runs the daemons and the programs of the GPU suite, each for a limited time, with all that
they say in one log."""

import json
import os
import subprocess
import tempfile
import time

from process import PATIENCE, debuggers, end, read, stacks_of

HERE = os.path.dirname(os.path.abspath(__file__))
NONE = 77

SHORT = PATIENCE / 3  # for what is tried once more, and for what follows something that hung

# So many checks of a group hang, and the rest of it is left out; under compute-sanitizer what is
# slow need not hang.  With a patience of 90 s that makes, where NCCL hangs on one GPU: for reduce_2
# 50 s, for it says itself that it is stuck, or else 90 s; 30 s for each of two other ways; 30 s for
# ranks_2, and for it once more: 210 s.  Where all of one rank hangs as well: 180 s at most for the
# first, 30 s for each of three more, and for one of them once more: 300 s.  Debuggers take a few
# seconds each time, and 30 s once, if they hang.  That is nine minutes; --minutes 9 sees to it.
MOST_HANGS = {"one": 4, "several": 2}

# The demo job, small; its last batch is smaller than the others.
JOB = {"data.samples": 4130, "data.validation_samples": 512, "train.global_batch": 64,
       "train.epochs": 1, "optimizer.lr": 0.05}

LIBRARIES_TELL = {"CUDNN_LOGLEVEL_DBG": "1", "CUDNN_LOGDEST_DBG": "stderr",
                  "CUDA_LOG_FILE": "stderr"}
STUCK = "gpu_reduce: is stuck in"  # said of itself: nobody need wait any longer
FIRST_KEPT, LAST_KEPT = 60_000, 140_000  # characters of one output, in the log of all


class Skip(Exception):
    """This check cannot be made here, or now."""


class Hang(AssertionError):
    """A program did not end in time."""


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
        self.is_real = not args.rehearse  # a GPU of NVIDIA's
        self.device = "cpu" if args.rehearse else "cuda"
        self.out = os.path.abspath(args.out)
        self.work = tempfile.mkdtemp(prefix="dptrain-gpu-")  # what else is written; packed at last
        self.start = time.monotonic()
        self.until = self.start + 60 * args.minutes
        self.group = "one"   # of the check that runs now
        self.hangs = dict.fromkeys(MOST_HANGS, 0)
        self.ranks_env = {}  # what several ranks on one GPU were found to need
        self.trained = {}    # on the CPU or not: events of what others are compared with
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

    def limit(self, wanted):
        """How long a program may take now."""
        return max(0.1, min(wanted, self.left(), SHORT if self.n_hangs() else wanted))

    def n_hangs(self):
        return self.hangs.get(self.group, 0)

    def give_up(self, what):
        """It did not end in time: a hang, or ours."""
        if self.left() <= 0:
            raise Skip("cut off by --minutes")
        if self.group in self.hangs:
            self.hangs[self.group] += 1
        raise Hang(what)

    # ---- programs ----

    def run(self, name, argv, env=None, limit=PATIENCE, apart=False):
        """Run to the end; returns its output.  Fails with its last lines."""
        status, text = self.observe(name, argv, env, limit, apart)
        if status == NONE:
            raise Skip(text.strip().splitlines()[-1] if text.strip() else "it says 77")
        tail = "\n".join(line[:160] for line in text.splitlines()[-16:])
        if status is None:
            self.give_up(f"{argv[0]} did not end in time:\n{tail}")
        if status < 0:
            self.debug(name, argv, env)
        assert status == 0, f"{argv[0]} ended with {status}:\n{tail}"
        return text

    def debug(self, name, argv, env):
        """Run what a signal ended once more, for the log to tell where that was."""
        for program in debuggers()[:1]:
            again = [a + "-again" if a.startswith(self.work) else a for a in argv]
            self.observe(name + "_debugged",
                         [program, "-batch", "-ex", "set pagination off", "-ex", "run",
                          "-ex", "thread apply all bt", "--args", *again], env, SHORT)

    def observe(self, name, argv, env=None, limit=PATIENCE, apart=False):
        """Run, with all that it says in the log; (status, or None: stopped, and its output).
        apart: the output is without what comes on stderr."""
        path = os.path.join(self.work, name + ".log")
        env = {**(self.ranks_env if self.group == "several" else {}), **(env or {})}
        start, limit = time.monotonic(), self.limit(limit)
        self.note(f"$ {' '.join([f'{k}={v}' for k, v in env.items()] + argv)}   "
                  f"(at most {limit:.0f} s)")
        with open(path, "w", encoding="utf-8") as output, \
                open(path + ".stderr", "w", encoding="utf-8") as errors:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=errors if apart else subprocess.STDOUT,
                                     start_new_session=True,
                                     env={**os.environ, **LIBRARIES_TELL, **env})
            try:
                status = self.watch(name, child, path, start + limit)
            finally:
                if child.poll() is None:
                    self.note(end(child))
        text = read(path)
        self.note(f"{clipped(text)}\n{clipped(read(path + '.stderr'))}\n-- {name}: "
                  f"status {status}, {time.monotonic() - start:.1f} s")
        return status, text

    def watch(self, name, child, path, until):
        """Its status; None if it is still there at `until`, or is stuck, after noting where it
        stands."""
        said = time.monotonic()
        while True:
            try:
                return child.wait(min(1, max(0.01, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if now >= until or STUCK in end_of(path):
                self.note(stacks_of(child.pid, self.left))
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
        return os.path.join(self.work, f"run-{self.runs}")

    def train(self, name, n_ranks, device, sets, env=None):
        """The events of a whole run."""
        run_dir = self.new_run()
        self.run(name, self.command(n_ranks, device, sets, run_dir), env)
        return events_of(run_dir)

    def train_explained(self, name, n_ranks, sets):
        """train on the GPU; where it fails, the log tells what becomes of it without recorded
        steps, and where that fails, too, with every kernel waited for."""
        try:
            return self.train(name, n_ranks, self.device, sets)
        except AssertionError as failure:
            plain = {**sets, "train.record": "false"}
            env = {"NCCL_DEBUG": "INFO", "CUDNN_LOGLEVEL_DBG": "2"}
            if self.try_again(name, "without recorded steps", n_ranks, plain, env) != 0 and \
                    not isinstance(failure, Hang):
                self.try_again(name, "with every kernel waited for", n_ranks, plain,
                               {**env, "CUDA_LAUNCH_BLOCKING": "1"})
            raise

    def try_again(self, name, what, n_ranks, sets, env):
        status, _ = self.observe(
            f"{name}_{what.replace(' ', '_')}",
            self.command(n_ranks, self.device, sets, self.new_run()), env, SHORT)
        how = f"ended with {status}" if status is not None else "did not end in time"
        self.say(f"    {name}: {what} it {how} (in the log)")
        return status

    def reference(self, on_cpu=False):
        """The events of one rank in float32, which others are compared with: trained once."""
        if on_cpu not in self.trained:
            self.trained[on_cpu] = None
            self.trained[on_cpu] = self.train("one_rank_cpu", 1, "cpu", {}) if on_cpu else \
                self.train_explained("one_rank", 1, {})
        if not self.trained[on_cpu]:
            raise Skip("the training that it is compared with did not end well before")
        return self.trained[on_cpu]


def clipped(text):
    """Not so much of it that the log would be too large to take away."""
    if len(text) <= FIRST_KEPT + LAST_KEPT:
        return text
    return (text[:FIRST_KEPT] + f"\n[... {len(text) - FIRST_KEPT - LAST_KEPT} characters are only "
            f"in the archive ...]\n" + text[-LAST_KEPT:])


def end_of(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 4000))
        return file.read().decode("utf-8", "replace").strip()


def last_line(path):
    return (end_of(path).splitlines() or ["it says nothing"])[-1][:120]


def events_of(run_dir):
    with open(os.path.join(run_dir, "events.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]

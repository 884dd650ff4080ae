"""rig - runs the daemons and the programs of the GPU suite, each for a limited time, with all their
output in one log."""

import json
import os
import subprocess
import tempfile
import time

from process import PATIENCE, debuggers, end, read, stacks_of

HERE = os.path.dirname(os.path.abspath(__file__))
NONE = 77

SHORT = PATIENCE / 3  # seconds for a second try, and for a program that runs after another hung

# After so many checks of a group hung, the rest of the group is left out.  There is no number for
# compute-sanitizer's group: a check there may be slow and not hang.
# The time that hanging checks take, with a patience of 90 s:
#   - NCCL hangs on one GPU: 50 s for reduce_2, which says itself that it is stuck, or else 90 s;
#     30 s for each of two other settings; 30 s for ranks_2, and 30 s for its second try: 210 s.
#   - All checks of one rank hang, too: at most 180 s for the first, 30 s for each of three more,
#     and 30 s for one second try: 300 s.
#   - Debuggers take a few seconds each time, and 30 s once, if they hang.
# Together that is nine minutes; the other groups add 90 s and 30 s each.  --minutes 9 enforces it.
MOST_HANGS = {"one": 4, "networks": 2, "several": 2, "networks_2": 1, "strategies": 2, "pytorch": 1}

# The demo job, small; its last batch is smaller than the others.
JOB = {"data.samples": 4130, "data.validation_samples": 512, "train.global_batch": 64,
       "train.epochs": 1, "optimizer.lr": 0.05}

LIBRARIES_TELL = {"CUDNN_LOGLEVEL_DBG": "1", "CUDNN_LOGDEST_DBG": "stderr",
                  "CUDA_LOG_FILE": "stderr"}
STUCK = "gpu_reduce: is stuck in"  # the program's own words: waiting longer is useless
FIRST_KEPT, LAST_KEPT = 60_000, 140_000  # characters of one output that the log keeps


class Skip(Exception):
    """This check cannot be made here, or now."""


class Hang(AssertionError):
    """A program did not end in time."""


def driver_of(args):
    """The driver that the suite runs, or None if neither a build nor a bundle is given."""
    if args.bundle:
        return os.path.abspath(os.path.join(args.bundle, "bin", "dpdriver"))
    return os.path.abspath(os.path.join(args.build, "driver", "dpdriver")) if args.build else None


class Suite:
    def __init__(self, args):
        self.driver = driver_of(args)
        if args.bundle:
            self.tools = os.path.dirname(self.driver)
            self.follower = self.tool("dpfollower")
            self.golden = os.path.join(HERE, "golden.json")
        else:
            build = os.path.abspath(args.build)
            self.tools = os.path.join(build, "tests", "gpu")
            self.follower = os.path.join(build, "follower", "dpfollower")
            self.golden = os.path.join(HERE, "..", "golden", "golden.json")
        self.rehearse = args.rehearse
        self.is_real = not args.rehearse  # a GPU of NVIDIA's
        self.device = "cpu" if args.rehearse else "cuda"
        self.out = os.path.abspath(args.out)
        self.work = tempfile.mkdtemp(prefix="dptrain-gpu-")  # all other files; packed at the end
        self.start = time.monotonic()
        self.until = self.start + 60 * args.minutes
        self.group = "one"   # of the check that runs now
        self.hangs = dict.fromkeys(MOST_HANGS, 0)
        self.ranks_env = {}  # the settings that several ranks on one GPU were found to need
        self.trained = {}    # {on the CPU or not: events of the reference run}
        self.runs = 0
        self.log = open(os.path.join(self.out, "gpu-suite.log"), "a", encoding="utf-8")

    def tool(self, name):
        return os.path.join(self.tools, name)

    def say(self, text):
        """Print text for the user, and write it to the log."""
        print(text, flush=True)
        self.note(text)

    def note(self, text):
        self.log.write(text.rstrip("\n") + "\n")
        self.log.flush()

    def left(self):
        return self.until - time.monotonic()

    def limit(self, wanted):
        """The seconds that a program may take now."""
        return max(0.1, min(wanted, self.left(), SHORT if self.n_hangs() else wanted))

    def n_hangs(self):
        return self.hangs.get(self.group, 0)

    def give_up(self, what):
        """A program did not end in time: count it as a hang, or skip if --minutes are over."""
        if self.left() <= 0:
            raise Skip("cut off by --minutes")
        if self.group in self.hangs:
            self.hangs[self.group] += 1
        raise Hang(what)

    # ---- programs ----

    def run(self, name, argv, env=None, limit=PATIENCE, apart=False):
        """Run a program to its end and return its output.  A failure tells its last lines."""
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
        """Run a program that a signal ended once more in a debugger, so that the log tells where it
        ended."""
        for program in debuggers()[:1]:
            again = [a + "-again" if a.startswith(self.work) else a for a in argv]
            self.observe(name + "_debugged",
                         [program, "-batch", "-ex", "set pagination off", "-ex", "run",
                          "-ex", "thread apply all bt", "--args", *again], env, SHORT)

    def observe(self, name, argv, env=None, limit=PATIENCE, apart=False):
        """Run a program, with all its output in the log; (status, or None: it was stopped; its
        output).  apart: the returned output is without stderr."""
        path = os.path.join(self.work, name + ".log")
        env = {**self.ranks_env, **(env or {})}
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
        """The status of a child; None if the child still runs at `until`, or is stuck.  Then the
        log tells where its threads stand."""
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
        """sets: changes of the demo job; or a whole job, if they name its data."""
        is_slow = device == "cpu" and self.is_real  # the networks have a GPU's size
        n_threads = min(8, len(os.sched_getaffinity(0)) // n_ranks) if is_slow else 1
        argv = [self.driver, "--nranks", str(n_ranks), "--port", "0", "--device", device,
                "--run-dir", run_dir, "--threads", str(max(1, n_threads))]
        if n_ranks > 1:
            argv += ["--local"]
            if device != "cpu":
                argv += ["--test-shared-gpu"]
        for key, value in {**({} if "data.format" in sets else JOB), **sets}.items():
            argv += ["--set", f"{key}={value}"]
        return argv

    def new_run(self):
        self.runs += 1
        return os.path.join(self.work, f"run-{self.runs}")

    def train(self, name, n_ranks, device, sets, env=None, more=()):
        """Train, and return the events of the whole run.  more: further arguments."""
        run_dir = self.new_run()
        self.run(name, [*self.command(n_ranks, device, sets, run_dir), *more], env)
        return events_of(run_dir)

    def train_explained(self, name, n_ranks, sets):
        """Train on the GPU.  If that fails, it runs again without recorded steps, and if that
        fails, too, once more with a wait after every kernel; the log has the results."""
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
        """The events of the reference run, one rank in float32; it is trained only once."""
        if on_cpu not in self.trained:
            self.trained[on_cpu] = None
            self.trained[on_cpu] = self.train("one_rank_cpu", 1, "cpu", {}) if on_cpu else \
                self.train_explained("one_rank", 1, {})
        if not self.trained[on_cpu]:
            raise Skip("the training that it is compared with did not end well before")
        return self.trained[on_cpu]


def clipped(text):
    """The beginning and the end of a long text, so that the log stays small enough to take away."""
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

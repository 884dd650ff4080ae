#!/usr/bin/env python3
"""recovery - measures how long training stands still when a rank, or the driver, is killed.

    recovery.py [--build DIR] [--rounds N] [--torch PYTHON]... [--record] [--check]

Three ranks on this machine train LeNet, batch 192.  N times in the same job, the follower of rank 1
is killed by SIGKILL, and the time until the next step is done is measured:

  a spare waits       with cluster.spares 1: the spare takes the place at once; before the next
                      round another spare has joined and is ready.
  started again       without spares: a new follower is started as soon as the killed one has ended,
                      as a service manager does; it must start, connect and open its data first.
  driver started      the driver is killed and started again with --resume as soon as it has ended;
  again               the followers keep the state and find it.
  a standby leads     the driver is killed beside a standby, which leads.  Before the next round
                      that one has a standby of its own, which votes.
  torchrun            with --torch, for that Python's PyTorch: a worker of the same training is
                      killed; torchrun restarts all of them (--max-restarts), by its default
                      --monitor-interval and by one of 10 ms.  A restart that fails is followed by
                      the next, and counts into the time.

"seen" is by this script's clock, from kill(2) until the event `recovered` (torchrun: the next
step's line) can be read.  "recovered" is the time in that event, from when the loss is known.
"steps lost" is the most in a round; torchrun's training has no checkpoint here and loses all steps.
The goal with a waiting spare or a standby is 1 s, in every round; with a driver that is started
again, 1 s from its start ("recovered").  --record appends the table to RESULTS.md beside this file;
--check runs each of our four cases once and judges no time.  Exit status 1: the
goal is missed.
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import bench

GOAL_S = 1.0
PATIENCE_S = 120
BATCH = 192
RANKS = 3
RESTARTS = 20  # that torchrun may need for one round: failed restarts count into its time
# Gloo opens connections when they are first used.  If all ranks connect at the start, one of
# PyTorch 2.15's connections is often refused.
TORCH_ENV = {"OMP_NUM_THREADS": "1", "TORCH_GLOO_LAZY_INIT": "1"}
STEPS_BETWEEN = 20  # steps done, at least, before the next rank is killed
JOB = {"model.arch": "lenet", "data.samples": 19200, "data.validation_samples": 0,
       "train.global_batch": BATCH, "train.epochs": 100000, "train.validate_every": 0,
       "checkpoint.every_epochs": 0}


class Failed(Exception):
    pass


class Group:
    """Processes that end with this block, and a folder that is removed with them."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="dptrain-bench-")
        self.processes = []
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, words, **popen):
        with open(self.path("log"), "ab") as log:
            process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, **popen)
        self.processes.append(process)
        return process

    def wait_for(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not (got := condition()):
            if time.monotonic() > deadline or self.processes[0].poll() is not None:
                raise Failed(f"there never came {what}:\n{self.read('log')[-2000:]}")
            time.sleep(0.001)
        return got

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""


class Ours(Group):
    def __init__(self, build, spares):
        self.programs = {"dpdriver": bench.driver_of(build),
                         "dpfollower": bench.follower_of(build)}
        self.spares = spares

    def lead(self, port, *more):
        job = {**JOB, "cluster.spares": self.spares}
        return self.start([self.programs["dpdriver"], "--nranks", str(RANKS), "--threads", "1",
                           "--port", port, "--port-file", "port", "--run-dir", "run", *more,
                           *(word for key, value in job.items()
                             for word in ("--set", f"{key}={value}"))])

    def begin(self):
        self.lead("0")
        self.wait_for("the driver's port", lambda: self.read("port"))
        self.followers = {}
        for _ in range(RANKS - 1 + self.spares):
            self.follow()
        self.wait_for("the first step", lambda: self.events("first_step"))

    def follow(self):
        process = self.start([self.programs["dpfollower"], "--root",
                              f"127.0.0.1:{self.read('port').strip()}", "--once", "--threads", "1"])
        self.followers[process.pid] = process

    def events(self, kind):
        lines = self.read("run/events.jsonl").split("\n")[:-1]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def status(self):
        done = subprocess.run([self.programs["dpdriver"], "--status", "--run-dir", "run",
                               "--log-format", "json"], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise Failed(f"--status: {done.stderr}{self.read('log')[-2000:]}")
        return json.loads(done.stdout)

    def is_settled(self, since):
        """Do all ranks train, is the spare (if any) ready, and are enough steps done?"""
        time.sleep(0.02)  # asking takes time from the ranks, too
        status = self.status()
        roles = [rank["role"] for rank in status["ranks"]]
        return (status["stage"] == "train" and roles.count("member") == RANKS and
                roles.count("spare") == self.spares and
                status["step"] >= since + STEPS_BETWEEN and status)

    def blow(self, n_before):
        """Make one round: the seconds by this script's clock, and the event."""
        since = self.status()["step"]
        status = self.wait_for("the ranks to train", lambda: self.is_settled(since))
        victim = self.followers[next(r["pid"] for r in status["ranks"] if r["rank"] == 1)]
        struck = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        if not self.spares:
            victim.wait()
            self.follow()
        event = self.wait_for("recovery", lambda: self.events("recovered")[n_before:])[0]
        seen = time.monotonic() - struck
        victim.wait()
        if self.spares:
            self.follow()
        return {"seen": seen, "recovered": event["seconds"], "lost": event["steps_lost"]}

    def rounds(self, n):
        rounds = [self.blow(i) for i in range(n)]
        if len(self.events("lost")) != n or self.events("error"):
            raise Failed(f"more than the {n} followers were lost:\n{self.read('log')[-2000:]}")
        return rounds


class OurDriver(Ours):
    def blow(self, n_before):
        since = self.status()["step"]
        self.wait_for("the ranks to train", lambda: self.is_settled(since))
        victim = self.processes[0]
        struck = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.lead(self.read("port").strip(), "--resume")
        self.processes[0] = self.processes.pop()
        event = self.wait_for("recovery", lambda: self.events("recovered")[n_before:])[0]
        if event["source"] != "followers":
            raise Failed(f"the state came from elsewhere: {event}")
        return {"seen": time.monotonic() - struck, "recovered": event["seconds"],
                "lost": event["steps_lost"]}

    def rounds(self, n):
        rounds = [self.blow(i) for i in range(n)]
        if self.events("lost") or self.events("error"):
            raise Failed(f"more than the driver was lost:\n{self.read('log')[-2000:]}")
        return rounds


class OurStandby(OurDriver):
    def begin(self):
        super().begin()
        self.leader = self.read("port").strip()
        self.stand_by()

    def stand_by(self):
        """Start one, and wait for the formation in which it votes."""
        n = len(self.events("standby"))
        if os.path.exists(self.path("next")):
            os.unlink(self.path("next"))
        self.standby = self.start([self.programs["dpdriver"], "--standby", "--threads", "1",
                                   "--root", f"127.0.0.1:{self.leader}", "--run-dir", "run",
                                   "--port", "0", "--port-file", "next"])
        self.wait_for("a standby's vote", lambda: any(
            event["address"] for event in self.events("standby")[n:]))
        self.leader = self.read("next").strip()

    def blow(self, n_before):
        since = self.status()["step"]
        self.wait_for("the ranks to train", lambda: self.is_settled(since))
        victim, self.processes[0] = self.processes[0], self.standby
        struck = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        event = self.wait_for("recovery", lambda: self.events("recovered")[n_before:])[0]
        seen = time.monotonic() - struck
        victim.wait()
        self.stand_by()
        return {"seen": seen, "recovered": event["seconds"], "lost": event["steps_lost"]}


class Torch(Group):
    def __init__(self, python, monitor, n):
        self.words = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                      str(RANKS), "--max_restarts", str(RESTARTS * n)]
        if monitor:
            self.words += ["--monitor_interval", str(monitor)]

    def begin(self):
        self.start([*self.words, os.path.join(bench.HERE, "torch_recovery.py"), self.folder,
                    str(BATCH)], env={**os.environ, **TORCH_ENV})

    def last(self):
        """The pid of rank 0 and the number of its steps; "0", 0 before the first step."""
        try:
            with open(self.path("steps"), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 100))
                lines = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return "0", 0
        pid, step = lines[-1].split() if lines else (b"0", 0)
        return pid.decode(), int(step)

    def blow(self):
        self.wait_for("torchrun's workers to train", lambda: self.last()[1] >= STEPS_BETWEEN)
        pid, lost = self.last()
        struck = time.monotonic()
        os.kill(int(self.read("rank-1")), signal.SIGKILL)
        self.wait_for("torchrun's restart", lambda: self.last()[0] != pid)
        return {"seen": time.monotonic() - struck, "recovered": None, "lost": lost}

    def rounds(self, n):
        return [self.blow() for _ in range(n)]


def spread(values):
    return f"{statistics.median(values):.2f} | {max(values):.2f}"


def row(name, rounds):
    known = [r["recovered"] for r in rounds if r["recovered"] is not None]
    return (f"| {name} | {len(rounds)} | {spread([r['seen'] for r in rounds])} | "
            f"{spread(known) if known else ' | '} | {max(r['lost'] for r in rounds)} |")


def version(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                          capture_output=True, text=True, check=True).stdout.strip()


def measure(args):
    """Measure all cases: {case: list of its rounds}"""
    results = {}
    for name, case, spares in (("a spare waits", Ours, 1), ("started again", Ours, 0),
                               ("driver started again", OurDriver, 0),
                               ("a standby leads", OurStandby, 0)):
        with case(args.build, spares) as ours:
            results[name] = ours.rounds(args.rounds)
        print(row(name, results[name]), flush=True)
    for python in args.torch or ():
        for monitor in (None, 0.01):
            name = (f"torchrun {version(python)}, "
                    f"{f'monitor every {monitor} s' if monitor else 'as it is'}")
            with Torch(python, monitor, args.rounds) as torch:
                results[name] = torch.rounds(args.rounds)
            print(row(name, results[name]), flush=True)
    return results


def describe(args, results, load, met):
    command = f"recovery.py --rounds {args.rounds}" + " --torch PYTHON" * len(args.torch or ())
    text = (f"`{command}`: {RANKS} ranks, LeNet, batch {BATCH}.  Load average before "
            f"{load[0]:.1f}, after {os.getloadavg()[0]:.1f} (its own is up to {RANKS}).  Goal: "
            f"under {GOAL_S:.0f} s in every round with a spare or a standby, and from a driver's "
            f"new start: {'met' if met else 'MISSED'}.")
    return bench.section("Recovery", text, [
        "| SIGKILL of rank 1, or of the driver | rounds | seen: median s | worst s "
        "| recovered: median s | worst s | steps lost |", "|---|---|---|---|---|---|---|",
        *(row(name, rounds) for name, rounds in results.items())])


def run(args):
    if args.check:
        args.rounds = 1
        results = measure(args)
        if not all(r["lost"] <= 1 and 0 < r["recovered"] <= r["seen"]
                   for rounds in results.values() for r in rounds):
            raise Failed(f"these figures cannot be: {results}")
        return 0
    load = os.getloadavg()
    results = measure(args)
    met = (max(r["seen"] for name in ("a spare waits", "a standby leads")
               for r in results[name]) < GOAL_S and
           max(r["recovered"] for r in results["driver started again"]) < GOAL_S)
    return bench.conclude(args, describe(args, results, load, met), met)


def main():
    parser = bench.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--torch", action="append", metavar="PYTHON")
    args = parser.parse_args()
    try:
        sys.exit(run(args))
    except Failed as why:
        sys.exit(f"recovery.py: {why}")


if __name__ == "__main__":
    main()

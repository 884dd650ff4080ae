"""soak - half an hour of losing, freezing, draining, leaving and joining ranks, at random.

    tests/run.sh soak [MINUTES]        DPTRAIN_SEED=N replays the same choices

Jobs of some minutes follow one another.  In each of them something happens to a rank every few
seconds, and now and then to the driver, which is then started again with --resume.  Two kinds of
job take turns:

    learn   the demo: its accuracy at the end must be that of an undisturbed run
    count   the rate is so small that no parameter changes: every epoch's loss must be the same but
            for rounding, as a sample that is left out or taken twice would change it

In both, every epoch has as many samples as the set; replicas are equal after each epoch (else the
driver ends the job); no recovery loses more than one step; there is no error event; the last
checkpoint loads; no process is left; the driver's descriptors, threads and memory do not grow.
"""

import json
import os
import random
import re
import signal
import statistics
import sys
import time
import unittest

import dp
from dp import DRIVER, FINISHED, REFUSED, STOPPED

MINUTES = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
SEED = int(os.environ.get("DPTRAIN_SEED", time.time()))
JOB_MINUTES = 7.0
# Nothing here depends on speed, so a busy machine may be slow.
LONG = 300

N_SAMPLES, GLOBAL_BATCH = 4096, 64
STEPS = N_SAMPLES // GLOBAL_BATCH
JOB = {"data.samples": N_SAMPLES, "data.validation_samples": 1024,
       "train.global_batch": GLOBAL_BATCH, "train.epochs": 1000000, "checkpoint.every_epochs": 2,
       "cluster.min_ranks": 2, "cluster.max_ranks": 5, "cluster.replace_timeout": 3,
       "cluster.join_interval": 1, "cluster.heartbeat_timeout": 3}
KINDS = {"learn": {}, "count": {"optimizer.lr": 1e-30}}
N_RANKS, MOST_FOLLOWERS, LEAST_FOLLOWERS = 4, 6, 2


def usage(pid):
    """The number of descriptors and threads of a process, and its resident MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return (len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]),
            int(status["VmRSS"].split()[0]) / 1024)


class Soak(dp.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("user"), mode=0o700)  # the user's own secret: connections are encrypted
        self.env = {**self.env, "XDG_RUNTIME_DIR": self.path("user")}
        self.random = random.Random(SEED)
        self.counts = {}
        self.recoveries, self.n_epochs, self.n_steps = [], 0, 0
        self.usages = {}
        self.run_dir, self.n_forms = "", 0

    def tearDown(self):
        if self._outcome_failed():
            for event in self.events(run=self.run_dir)[-200:]:
                print(f"  {event}")
        super().tearDown()

    # ---- one job

    def begin_job(self, number, kind):
        self.run_dir = f"job{number}-{kind}"
        self.port = dp.free_port()
        self.job = {**JOB, **KINDS[kind], "train.seed": self.random.randrange(1000000)}
        self.frozen, self.followers = [], []
        self.driver = self.begin_driver()
        for _ in range(N_RANKS - 1):
            self.add()
        self.wait_event("first_step", run=self.run_dir)

    def begin_driver(self, *args):
        self.n_forms = len(self.events("form", self.run_dir))
        return self.start([DRIVER, "--nranks", str(N_RANKS), "--port", str(self.port), "--run-dir",
                           self.run_dir, "--threads", "1", *dp.sets(self.job), *args])

    def begin_follower(self):
        return self.follower("--threads", "1", port=self.port, once=False)

    def happened(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def forget_ended(self):
        self.followers = [f for f in self.followers if f.process.poll() is None]
        self.frozen = [f for f in self.frozen if f.process.poll() is None]

    # ---- what can happen: each leaves enough followers

    def add(self):
        self.followers.append(self.begin_follower())

    def take(self):
        return self.followers.pop(self.random.randrange(len(self.followers)))

    def kill(self):
        self.take().kill()

    def kill_two(self):
        for _ in range(2):
            self.take().kill()

    def freeze(self):
        victim = self.take()
        victim.signal(signal.SIGSTOP)
        self.frozen.append(victim)

    def wake(self):
        """A rank that wakes up may find that it was given up; then it joins again."""
        victim = self.frozen.pop(0)
        victim.signal(signal.SIGCONT)
        self.followers.append(victim)

    def leave(self):
        self.take().signal(signal.SIGTERM)

    def ask(self, *args):
        asked = self.start([DRIVER, *args, "--run-dir", self.run_dir])
        self.assertIn(asked.wait_exit(LONG), (FINISHED, REFUSED), asked.text)
        return asked

    def drain(self):
        """Drains some rank or spare.  The answer tells which: it may have a new number."""
        status = json.loads(self.ask("--status", "--log-format", "json").out)
        mine = {follower.pid for follower in self.followers}
        there = [rank for rank in status["ranks"] if rank.get("pid") in mine]
        if not there:
            return
        rank = self.random.choice(there)
        answer = self.ask("--drain",
                          f"spare{rank['spare']}" if rank["spare"] else str(rank["rank"]))
        if answer.process.returncode == REFUSED:
            self.assertIn("cannot be drained", answer.text)
            return
        gone = int(re.search(r"pid (\d+)", answer.out).group(1))
        for follower in [f for f in self.followers if f.pid == gone]:
            self.assert_exit(follower, STOPPED, "drained by the operator", patience=LONG)

    def freeze_briefly(self):
        victim = self.random.choice(self.followers)
        victim.signal(signal.SIGSTOP)
        self.let_pass(self.random.uniform(0, 1.5))
        victim.signal(signal.SIGCONT)

    def freeze_driver_briefly(self):
        self.driver.signal(signal.SIGSTOP)
        self.let_pass(self.random.uniform(0, 1.5))
        self.driver.signal(signal.SIGCONT)

    def kill_driver(self):
        self.keep_usage()
        self.driver.kill()
        self.driver.wait_exit()
        self.driver = self.begin_driver("--resume")
        while len(self.followers) < N_RANKS - 1:
            self.add()

    def let_pass(self, seconds):
        until = time.monotonic() + seconds
        dp.wait_for("some time", lambda: time.monotonic() > until, LONG)

    def choices(self):
        """The actions that are possible now, each with its weight."""
        n = len(self.followers)
        if self.is_gathering():  # as many as at the start must come
            return [(self.add if n < N_RANKS - 1 else self.freeze_driver_briefly, 1)]
        return [(self.add, 4 if n < MOST_FOLLOWERS else 0),
                (self.kill, 4 if n > LEAST_FOLLOWERS else 0),
                (self.kill_two, 1 if n > LEAST_FOLLOWERS + 1 else 0),
                (self.freeze, 2 if n > LEAST_FOLLOWERS and len(self.frozen) < 2 else 0),
                (self.wake, 3 if self.frozen else 0),
                (self.leave, 2 if n > LEAST_FOLLOWERS else 0),
                (self.drain, 2 if n > LEAST_FOLLOWERS else 0),
                (self.freeze_briefly, 1 if n else 0),
                (self.freeze_driver_briefly, 1),
                (self.kill_driver, 0.4)]

    def disturb(self):
        self.forget_ended()
        whats, weights = zip(*self.choices())
        what = self.random.choices(whats, weights)[0]
        what()
        self.happened(what.__name__)

    def last_events(self):
        """{kind of event: how many there are}."""
        return {event["event"]: i for i, event in enumerate(self.events(run=self.run_dir))}

    def is_training(self):
        """Says whether a step was made since the last action."""
        last = self.last_events()
        return not self.is_gathering() and \
            max(last.get(kind, -1) for kind in ("recovered", "epoch", "first_step")) > \
            max(last.get(kind, -1) for kind in ("lost", "start"))

    def is_gathering(self):
        return len(self.events("form", self.run_dir)) == self.n_forms

    def keep_usage(self):
        """Compares the driver, as late as possible, with itself after its first epoch."""
        if self.driver.process.poll() is None:
            self.usages.setdefault(self.driver.pid, []).append(usage(self.driver.pid))

    # ---- at its end

    def end_job(self, kind):
        self.forget_ended()
        for victim in self.frozen:
            victim.signal(signal.SIGCONT)
        dp.wait_for("training", self.is_training, LONG)
        self.keep_usage()
        self.driver.signal(signal.SIGTERM)
        self.assert_exit(self.driver, STOPPED, patience=LONG)
        for follower in self.followers + self.frozen:
            follower.kill()
        for daemon in self.daemons:
            daemon.wait_exit(LONG)
            daemon.process.stdout.close()
            daemon.process.stderr.close()
        self.daemons.clear()
        self.assertEqual(dp.marked(self.mark), {})
        self.check_events(kind)
        self.check_checkpoint()

    def check_events(self, kind):
        whole = [e for e in self.events("epoch", self.run_dir) if e["step"] == STEPS * e["epoch"]]
        self.assertGreater(len(whole), 1)
        self.assertEqual(sorted({e["epoch"] for e in whole}), list(range(1, len({
            e["epoch"] for e in whole}) + 1)))
        for event in whole:
            self.assertEqual(event["samples"], N_SAMPLES, event)
        self.assertEqual(self.events("error", self.run_dir), [])
        for event in self.events("recovered", self.run_dir):
            self.assertLessEqual(event["steps_lost"], 1, event)
            self.recoveries.append(event["seconds"])
        self.n_epochs += len(whole)
        self.n_steps += STEPS * len(whole)
        if kind == "count":
            for key in ("train_loss", "validation_loss"):
                values = [e[key] for e in whole if key in e]
                spread = (max(values) - min(values)) / statistics.mean(values)
                print(f"  {key}: {values[0]:.9f} in {len(values)} epochs, spread {spread:.1e}")
                self.assertLess(spread, 1e-6)
        else:
            self.check_accuracy(whole)

    def check_accuracy(self, whole):
        n = min(len(whole), 12)
        calm = self.driver_of_calm(n)
        want = self.events("done", calm)[0]["validation_accuracy"]
        got = max(e["validation_accuracy"] for e in whole[-3:] if "validation_accuracy" in e)
        print(f"  accuracy: {100 * got:.2f} % after {len(whole)} epochs, undisturbed "
              f"{100 * want:.2f} % after {n}")
        self.assertGreater(got, want - 0.02)

    def driver_of_calm(self, n):
        calm = f"{self.run_dir}-calm"
        done = self.driver_for(calm, n)
        self.assert_exit(done, FINISHED, patience=10 * LONG)
        return calm

    def driver_for(self, run, n_epochs):
        return self.start([DRIVER, "--nranks", "1", "--port", "0", "--run-dir", run, *dp.sets({
            **self.job, "cluster.min_ranks": 1, "train.epochs": n_epochs})])

    def check_checkpoint(self):
        done = self.start([DRIVER, "--nranks", "1", "--port", "0", "--run-dir", self.run_dir,
                           "--resume", *dp.sets({**self.job, "cluster.min_ranks": 1,
                                                 "train.epochs": 1})])
        self.assert_exit(done, FINISHED, "nothing to do", patience=LONG)

    # ---- all of them

    def test_soak(self):
        print(f"soak for {MINUTES:g} min, DPTRAIN_SEED={SEED}", flush=True)
        kinds, end, number = list(KINDS), time.monotonic() + 60 * MINUTES, 0
        while time.monotonic() < end:
            kind = kinds[number % len(kinds)]
            number += 1
            until = min(end, time.monotonic() + 60 * min(JOB_MINUTES, MINUTES / 2))
            self.begin_job(number, kind)
            print(f"job {number} ({kind})", flush=True)
            self.wait_event("epoch", run=self.run_dir)
            self.keep_usage()
            while time.monotonic() < until:
                self.disturb()
                if self.random.random() < 0.7:  # else at once once more
                    dp.wait_for("training", self.is_training, LONG)
                    self.let_pass(self.random.expovariate(1 / 2.0))
            self.end_job(kind)
            self.summary()
        self.check_usage()

    def summary(self):
        print("  so far: " + ", ".join(f"{name} {n}" for name, n in sorted(self.counts.items())))
        if self.recoveries:
            print(f"  {self.n_epochs} epochs, {self.n_steps} steps, {len(self.recoveries)} "
                  f"recoveries: median {statistics.median(self.recoveries):.2f} s, longest "
                  f"{max(self.recoveries):.2f} s", flush=True)

    def check_usage(self):
        for first, *_, last in (u for u in self.usages.values() if len(u) > 1):
            print(f"  a driver: {first[0]} to {last[0]} descriptors, {first[1]} to {last[1]} "
                  f"threads, {first[2]:.0f} to {last[2]:.0f} MiB")
            self.assertLess(last[0], first[0] + 32)
            self.assertLess(last[1], first[1] + 16)
            self.assertLess(last[2], 2 * first[2] + 100)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(verbosity=2)

"""Faults on purpose (--inject): each fault in each phase, with four ranks.  Either the job goes on,
with the losses of an undisturbed run and at most one step lost, or every rank stops in time and
names the cause.  No process stays, and the last checkpoint loads.

test_inject.py                one fault or two of each kind in each phase
test_inject.py rest QUARTER   a quarter (1 to 4) of all the others
"""

import json
import os
import signal
import sys
import time

import dp
from dp import FAILED, FINISHED, RIGID, SOON, STOPPED

REST = sys.argv[1:2] == ["rest"]

# 16 steps an epoch, 48 in all.  Most cases wait once until a silent rank is given up, so that takes
# 3 s and not the default 5.
JOB = {**dp.LIGHT, "data.samples": 1024, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 3, "train.replica_check": 0, "cluster.heartbeat_timeout": 3,
       **dp.FORSAKEN}
N = 4
DEADLINE = 4  # seconds: the deadline of the phase in which a rank is too late

POINTS = ["gather", "ready", "prepare", "form", "step20", "reduce20", "update20", "validate",
          "checkpoint", "stop"]
BEFORE_TRAINING = ("gather", "ready")
LOSSES = ["kill", "stop", "drop", "drop:in", "drop:out"]

undisturbed = {}
tests = []  # (name, function) of the cases of this run


def spec_of(what, rank, point):
    name, _, how = what.partition(":")
    return f"{name}:rank{rank}@{point}" + (f":{how}" if how else "")


class Faults(dp.Case):
    def losses(self, run):
        return {event["epoch"]: (event["step"], event["train_loss"], event.get("validation_loss"))
                for event in self.events("epoch", run)}

    def expected(self):
        if not undisturbed:
            self.run_driver("--local", "--run-dir", "calm", n=N, job=JOB)
            undisturbed.update(self.losses("calm"))
        return undisturbed

    def assert_as_undisturbed(self, run):
        want, got = self.expected(), self.losses(run)
        self.assertEqual(sorted(got), sorted(want))
        for epoch, calm in want.items():
            self.assertEqual(got[epoch][0], calm[0])
            for seen, wanted in zip(got[epoch][1:], calm[1:]):
                self.assertLess(abs(seen - wanted), 1e-5 * abs(wanted), (epoch, got, want))

    def start_ranks(self, spec, job, n_spares=0, n=N):
        """A driver and its followers, in the order of their ranks, then the spares.  (A rank that
        dies while gathering may be gone before the next follower joins.)"""
        driver = self.driver("--run-dir", "run", "--inject", spec, n=n,
                             job={**job, "cluster.spares": n_spares})
        ranks = [self.follower("--rank", str(k)) for k in range(1, n)]
        for k in range(1, n):
            driver.wait_line(f"rank {k} joined")
        return [driver, *ranks, *(self.follower() for _ in range(n_spares))]

    def wait_injected(self, spec, rank, daemons):
        """Waits for the fault, which the rank and the driver announce once each."""
        event = self.wait_event("inject", run="run")
        self.assertEqual((event["spec"], event["rank"]), (spec, rank))
        said = r"warning: injected fault " + spec
        daemons[0].wait_line(said)
        daemons[rank].wait_line(said)
        daemons[0].wait_line(r"warning: --inject: this job will be disturbed on purpose: " + spec)
        return event

    def assert_exits(self, daemons, status, since=None):
        for daemon in daemons:
            self.assert_exit(daemon, status)
        if since is not None:
            self.assertLess(time.monotonic() - since, SOON)

    def assert_checkpoint_loads(self):
        done = self.run_driver("--run-dir", "run", "--resume", n=1, job=JOB)
        self.assertIn("nothing to do", done.text)

    def end_victim(self, victim, what, status):
        """A frozen rank wakes up and finds that it was given up."""
        if what == "stop":
            dp.thaw(victim.pid)
        self.assert_exit(victim, -signal.SIGKILL if what == "kill" else status)

    # ---- of a follower, with a spare that takes its place

    def lose_follower(self, what, point):
        """A rank that is lost before training only frees its place, unless it is deaf: it has said
        Ready."""
        spec = spec_of(what, 2, point)
        driver, one, victim, three, spare = daemons = self.start_ranks(spec, JOB, n_spares=1)
        event = self.wait_injected(spec, 2, daemons)
        self.assert_exits([driver, one, three, spare], FINISHED)
        self.end_victim(victim, what, FINISHED if point == "stop" else FAILED)
        recovered, lost = self.events("recovered", "run"), self.events("lost", "run")
        if point == "stop" or (point in BEFORE_TRAINING and what != "drop:in"):
            self.assertEqual((recovered, lost), ([], []))
        else:
            self.assertEqual([e["rank"] for e in lost], [2])
            self.assertEqual(len(recovered), 1)
            self.assertLessEqual(recovered[0]["steps_lost"], 1)
            self.assertLess(recovered[0]["time"] - event["time"], SOON)
            self.assertIn(event["phase"], ("open", "prepare", "form", "load", "backward", "reduce",
                                           "update", "validate", "checkpoint", "idle"))
        self.assertEqual(self.events("error", "run"), [])
        self.assertEqual(len(self.events("inject", "run")), 1)
        self.assert_as_undisturbed("run")
        self.assert_checkpoint_loads()

    # ---- of a follower, with nobody to take its place

    def fail_with_follower(self, what, point):
        spec = spec_of(what, 2, point)
        driver, one, victim, three = daemons = self.start_ranks(spec, {**JOB, **RIGID})
        self.wait_injected(spec, 2, daemons)
        since = time.monotonic()
        self.assert_exits([driver, one, three], FAILED, since)
        self.end_victim(victim, what, FAILED)
        error = self.events("error", "run")[0]
        self.assertEqual(error["rank"], 2)
        self.assertRegex(error["message"], r"rank 2 \(.*\) was lost")
        for daemon in (driver, one, three):
            self.assertIn(error["message"], daemon.text)
        self.resume(spec)

    # ---- of the driver

    def lose_driver(self, what, point):
        spec = spec_of(what, 0, point)
        if point in BEFORE_TRAINING:
            self.lose_driver_early(what, spec)
            return
        driver, *followers = daemons = self.start_ranks(spec, {**JOB, **RIGID})
        self.wait_injected(spec, 0, daemons)
        since = time.monotonic()
        self.assert_exits(followers, FINISHED if point == "stop" else FAILED, since)
        if point != "stop":
            for follower in followers:
                self.assertRegex(follower.text, r"lost the driver at 127.0.0.1:\d+")
        if what == "stop":
            dp.thaw(driver.pid)
        self.assert_exit(driver, -signal.SIGKILL if what == "kill" else
                         FINISHED if point == "stop" else FAILED)
        self.resume(spec)

    def lose_driver_early(self, what, spec):
        """The driver is lost before any follower has joined."""
        driver = self.driver("--run-dir", "run", "--inject", spec, n=N, job=JOB)
        self.wait_injected(spec, 0, [driver])
        if what == "stop":
            dp.thaw(driver.pid)
        if what != "kill":
            driver.signal(signal.SIGTERM)
        self.assert_exit(driver, -signal.SIGKILL if what == "kill" else STOPPED)
        if what == "kill":
            self.resume(spec)
        else:
            self.assertFalse(os.path.exists(self.path("run")), "it never trained")

    def resume(self, spec, job=JOB):
        """The same command resumes from the last checkpoint, without the fault."""
        driver = self.driver("--local", "--run-dir", "run", "--resume", "--inject", spec, n=N,
                             job=job)
        self.assert_exit(driver, FINISHED, "what events.jsonl tells of does not happen again")
        self.assertEqual(len(self.events("inject", "run")), 1)
        self.assert_as_undisturbed("run")

    # ---- a rank that is late

    def be_late(self, rank, point):
        spec = spec_of("delay:1s", rank, point)
        daemons = self.start_ranks(spec, JOB)
        self.wait_injected(spec, rank, daemons)
        self.assert_exits(daemons, FINISHED)
        for kind in ("lost", "recovered", "error"):
            self.assertEqual(self.events(kind, "run"), [])
        self.assert_as_undisturbed("run")

    def be_too_late(self, point, deadline):
        """The phase's deadline names the rank that holds it up, and the job goes on without it."""
        spec = spec_of("delay:600s", 2, point)
        job = {**JOB, f"cluster.deadlines.{deadline}": DEADLINE}
        driver, one, victim, three, spare = daemons = self.start_ranks(spec, job, n_spares=1)
        self.wait_injected(spec, 2, daemons)
        since = time.monotonic()
        driver.wait_line(rf"cluster.deadlines.{deadline}.*rank 2")
        self.assert_exit(victim, FAILED,
                         r"the engine does not stop, it has been in \w+.* for \d+\.\d s: leaving")
        self.assertLess(time.monotonic() - since, DEADLINE + SOON)
        self.assert_exits([driver, one, three, spare], FINISHED)
        self.assertEqual([e["rank"] for e in self.events("lost", "run")], [2])
        self.assertLessEqual(self.events("recovered", "run")[0]["steps_lost"], 1)
        self.assert_as_undisturbed("run")


class Injected(Faults):
    """Gets the cases of this run."""


class Flipped(Faults):
    def test_before_the_sum(self):
        """All ranks use the same wrong gradient: replicas stay equal, and the losses change."""
        spec = "flip:rank2@step20:bucket0"
        daemons = self.start_ranks(spec, JOB)
        event = self.wait_injected(spec, 2, daemons)
        self.assertRegex(event["message"], r"the sign bit of element \d+ of \S+'s gradient")
        self.assert_exits(daemons, FINISHED)
        want, got = self.expected(), self.losses("run")
        self.assertEqual(got[1], want[1])
        self.assertNotEqual(got[2][1], want[2][1])

    def flip_after(self, rank):
        spec = f"flip:rank{rank}@step20:reduced0"
        daemons = self.start_ranks(spec, JOB)
        event = self.wait_injected(spec, rank, daemons)
        tensor = event["message"].split("'s")[0].split()[-1]
        self.assert_exits(daemons, FAILED)
        error = self.events("error", "run")[0]
        self.assertEqual(error["rank"], rank)
        self.assertRegex(error["message"],
                         rf"replicas differ after epoch 2 \(step 32\): rank {rank} \(.*\) differs "
                         rf"from rank \d \(.*\) in {tensor}$")
        for daemon in daemons:
            self.assertIn(error["message"], daemon.text)
        self.assertEqual(self.events("checkpoint", "run")[-1]["step"], 16)  # no wrong one
        self.resume(spec)

    def test_after_the_sum(self):
        """One rank's parameters differ: comparing replicas names rank and tensor."""
        self.flip_after(2)

    def test_after_the_sum_on_the_driver(self):
        """The others are the majority, so rank 0 is the one that differs."""
        self.flip_after(0)

    def test_after_the_sum_of_divided_state(self):
        """A rank's part of the state and the copy on the next rank differ: no rank is replaced."""
        spec = "flip:rank1@step20:reduced0"
        job = {**JOB, "strategy.zero": 3}
        daemons = self.start_ranks(spec, job)
        self.wait_injected(spec, 1, daemons)
        self.assert_exits(daemons, FAILED)
        error, = self.events("error", "run")
        self.assertRegex(error["message"], r"rank 2 \(.*\) failed in \w+ of step 32: rank 2's "
                         "copy of rank 1's part of the state differs from the original")
        for daemon in daemons:
            self.assertIn(error["message"], daemon.text)
        self.assertEqual(self.events("lost", "run") + self.events("recovered", "run"), [])
        self.assertEqual(self.events("checkpoint", "run")[-1]["step"], 16)  # no wrong one
        self.resume(spec, job)

    def test_no_such_bucket(self):
        driver = self.driver("--inject", "flip:rank1@step7:bucket9", n=2, job=JOB)
        self.assert_exit(driver, dp.USAGE, r"there is no bucket 9, this model has 1")

    def test_never_there(self):
        driver = self.driver("--local", "--inject", "kill:rank1@step480", n=2,
                             job={**JOB, "train.epochs": 1})
        self.assert_exit(driver, FINISHED,
                         r"--inject kill:rank1@step480: did not happen: rank 1 never came there")
        self.assertEqual(self.events("inject"), [])


class Skipped(Faults):
    def test_ranks_that_differ(self):
        """Rank 1 is one collective ahead, and rank 2, which is frozen, holds the others in the one
        before.  The driver says so at once; rank 1, which stands alone, has to go and is
        replaced."""
        spec, freeze = "skip:rank1@step20", "stop:rank2@step21"
        job = {**JOB, "cluster.heartbeat_timeout": 600, "cluster.deadlines.step": 600}
        driver, odd, held, three, spare = self.start_ranks(f"{spec},{freeze}", job, n_spares=1)
        odd.wait_line(f"injected fault {spec}: the all-reduce of bucket 0 of step 20 is left out")
        driver.wait_line("the ranks differ in what they reduce next")
        dp.wait_for("rank 2 to be told to freeze", lambda: freeze in [
            event["spec"] for event in self.events("inject", "run")])
        dp.wait_for("rank 2 to freeze", lambda: dp.is_frozen(held.pid))
        held.signal(signal.SIGCONT)
        self.assert_exits([driver, held, three, spare], FINISHED)
        self.assertRegex(driver.text, r"ranks had reduced different things: the sums of the steps "
                         r"from \d+ to \d+ may be wrong")
        warnings = [event["message"] for event in self.events("warning", "run")]
        self.assertTrue(any("may be wrong" in text for text in warnings))
        self.assert_exit(odd, FAILED)
        lost, = self.events("lost", "run")
        self.assertEqual(lost["rank"], 1)
        self.assertRegex(  # steps 22 and 21, or earlier if the driver knew earlier
            lost["reason"], r"the ranks differ in what they reduce next: rank 1 \(.*, pid "
            rf"{odd.pid}\) in bucket 0 of step 2[12] \((\d+) bytes\) and rank 0 \(.*\) in bucket 0 "
            r"of step 2[01] \(\1 bytes\)(, which [23] agree on)?$")
        self.assertIn(lost["reason"], odd.text)
        recovered, = self.events("recovered", "run")
        self.assertEqual(recovered["nranks"], N)
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.check_rings(lost["reason"])
        self.assert_checkpoint_loads()  # replicas are compared after each epoch

    def test_one_that_is_done_too_early(self):
        """The ranks do not differ on the way: the odd rank's epoch ends one collective short."""
        driver, odd, *others = self.start_ranks("skip:rank1@step20", JOB, n_spares=1)
        self.assert_exits([driver, *others], FINISHED)
        self.assert_exit(odd, FAILED)
        lost, = self.events("lost", "run")
        self.assertEqual(lost["rank"], 1)
        self.assertRegex(lost["reason"], "is done with 1 collective fewer than the others|"
                                         "the ranks differ in what they reduce next")
        recovered, = self.events("recovered", "run")
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.assert_checkpoint_loads()

    def check_rings(self, reason):
        """The incident file shows the same: one collective has another step on rank 1."""
        with open(self.path("run/incidents/incident-1.json"), encoding="utf-8") as file:
            incident = json.load(file)
        self.assertIn(reason, incident["message"])
        steps = {rank["rank"]: {c["number"]: c["step"] for c in rank["collectives"]}
                 for rank in incident["ranks"]}
        number = next(n for n, step in steps[0].items() if step == 20)
        self.assertEqual(steps[1][number], 21)


class Local(Faults):
    def test_frozen(self):
        """A local follower that is frozen can only end, and be replaced, if it is killed."""
        driver = self.driver("--run-dir", "run", "--local", "--inject", "stop:rank2@step20", n=N,
                             job=JOB)
        self.assert_exit(driver, FINISHED, r"rank 2 .* was lost",
                         r"the local follower with pid \d+, whose rank was lost, does not end: "
                         r"killed", r"was killed by SIGKILL: starting another one")
        self.assertLessEqual(self.events("recovered", "run")[0]["steps_lost"], 1)
        self.assert_as_undisturbed("run")


def often(what, point):
    """Says whether a case is tried every time: each phase is, with a closed connection, and with a
    silent rank where that differs."""
    return what == "kill" or (what, point) in (
        ("drop", "step20"), ("drop:in", "form"), ("drop:out", "update20"), ("stop", "ready"),
        ("stop", "reduce20"), ("stop", "stop"), ("drop", "checkpoint"))


def add(kind, is_often, *args):
    """Adds a test for this case if it belongs to this run."""
    name = "_".join((kind.__name__, *(str(arg) for arg in args))).replace(":", "_")

    def test(self):
        kind(self, *args)

    if is_often != REST:
        tests.append(("test_" + name, test))


def add_all():
    for point in POINTS:
        for what in LOSSES:
            add(Faults.lose_follower, often(what, point), what, point)
        for what in ("kill", "stop", "drop"):
            is_often = (what, point) in (("kill", "gather"), ("kill", "form"), ("kill", "reduce20"),
                                         ("kill", "checkpoint"), ("stop", "step20"))
            add(Faults.lose_driver, is_often, what, point)
        for rank in (0, 2):
            is_often = (rank, point) in ((2, "form"), (0, "validate"))
            add(Faults.be_late, is_often, rank, point)
    for point in POINTS[2:-1]:
        for what in ("kill", "stop", "drop:in"):
            is_often = (what, point) in (("kill", "prepare"), ("stop", "validate"))
            add(Faults.fail_with_follower, is_often, what, point)
    for point, deadline in (("prepare", "prepare"), ("step20", "step"), ("update20", "step"),
                            ("validate", "validate"), ("checkpoint", "checkpoint")):
        add(Faults.be_too_late, point == "step20", point, deadline)


if __name__ == "__main__":
    add_all()
    if REST:
        tests = tests[int(sys.argv[2]) - 1::4]
        del sys.argv[1:3], Flipped, Skipped, Local  # these are no part of the rest
    for name, test in tests:
        setattr(Injected, name, test)
    dp.main()

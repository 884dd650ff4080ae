"""Ranks are lost, are replaced, or leave: training goes on as if nothing had happened.
The losses must be those of the same job without a disturbance (training.py)."""

import os
import signal
import time

import dp
import training
from dp import ENDLESS, FAILED, FINISHED, PATIENT, SOON, STOPPED, freezing
from training import CALM, JOB, SLOW

# A rank freezes itself in step 70, in the third epoch, until the test wakes it.
STEP = 70
HELD = {**JOB, **PATIENT, "cluster.replace_timeout": 600}
# 4 steps an epoch.
LONG_VALIDATION = {**HELD, "data.samples": 256, "data.validation_samples": 20000,
                   "train.epochs": 4}


class Recovery(training.Case):
    # ---- a spare waits

    def with_spare(self, job, *args, reach=None):
        """Rank 1 is lost, by a fault that `args` inject or by a kill after `reach` returns.  The
        others must finish as if nothing had happened."""
        driver, victim, other, spare = self.start_ranks(job, *args, spares=1)
        spare.wait_line("as a spare")
        if reach:
            reach(driver, other)
            struck = time.time()
            victim.kill()
            self.wake(other.pid)
        else:
            struck = self.wait_event("inject")["time"]
        event = self.wait_event("recovered")
        print(f"  from the blow to the next step: {event['time'] - struck:.2f} s; "
              f"known for {event['seconds']:.2f} s; {event['steps_lost']} steps lost")
        for daemon in (driver, other, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assertEqual([event["rank"] for event in self.events("lost")], [1])
        self.assertRegex(other.text, r"rank 1 .* was lost.*this rank keeps its state")
        self.assertRegex(other.text, r"this rank holds the state of step \d+")
        self.assert_as_undisturbed(job, 3)
        return victim

    def test_spare_after_kill_in_training(self):
        self.with_spare(HELD, *freezing(2, STEP),
                        reach=lambda driver, other: self.wait_frozen(other.pid))

    def test_spare_after_kill_with_moments(self):
        """AdamW's moments and the number of its updates come with the state."""
        self.with_spare({**HELD, "optimizer.name": "adamw", "optimizer.lr": 0.005},
                        *freezing(2, STEP), reach=lambda driver, other: self.wait_frozen(other.pid))

    def test_spare_after_kill_at_the_first_steps(self):
        self.with_spare(HELD, *freezing(2, STEP), reach=lambda *_: self.wait_event("form"))

    def test_spare_after_kill_in_validation(self):
        def reach(driver, other):
            self.wait_frozen(other.pid)
            self.wait_phase(driver, "validat")

        self.with_spare(LONG_VALIDATION, "--inject", "stop:rank2@validate", reach=reach)

    def test_spare_after_kill_at_the_checkpoint(self):
        self.with_spare(HELD, *freezing(2, STEP), reach=lambda *_: self.wait_event("epoch"))

    def test_spare_after_sigstop(self):
        """No connection closes: missing heartbeats tell.  A rank that wakes up is told to go."""
        job = {**JOB, "cluster.driver_timeout": 2}  # the driver has ended
        victim = self.with_spare(job, *freezing(1, STEP))
        victim.signal(signal.SIGCONT)
        self.assert_exit(victim, FAILED)

    # ---- a replacement comes

    def test_fresh_follower(self):
        driver, victim, other = self.start_ranks({**JOB, **PATIENT}, *freezing(2, STEP))
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        driver.wait_line("waiting up to 60 s for a replacement")
        other.wait_line("waits for the next formation")
        fresh = self.follower()
        for daemon in (driver, other, fresh):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assert_as_undisturbed(JOB, 3)

    def test_two_at_once_of_four(self):
        driver, *ranks = self.start_ranks(HELD, *freezing(3, STEP), n=4)
        self.wait_frozen(ranks[2].pid)
        for victim in ranks[:2]:
            victim.kill()
        self.wake(ranks[2].pid)
        driver.wait_line("waiting up to")
        fresh = [self.follower(), self.follower()]
        for daemon in (driver, ranks[2], *fresh):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(len(self.events("lost")), 2)
        self.assertEqual(self.events("error"), [])
        self.assert_as_undisturbed(HELD, 4)

    def test_again_and_again(self):
        """Rank 1 is killed, then the rank that replaced it, and so on."""
        driver, victim, other = self.start_ranks(HELD, *freezing(2, 70, 165, 260))
        for n in (1, 2, 3):
            self.wait_frozen(other.pid, n)
            said = len(driver.lines)
            victim.kill()
            self.wake(other.pid, n)
            driver.wait_line("waiting up to", start=said)
            victim = self.follower()
            self.wait_event("recovered", n)
        for daemon in (driver, victim, other):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(n_times=3, nranks=3)
        self.assert_as_undisturbed(HELD, 3)

    def test_a_follower_that_does_not_fit_is_refused(self):
        """A follower whose data differ from the job's is refused; the job waits for another."""
        for name in ("a", "b"):
            self.write_data(name, seed=ord(name))
        job = {**HELD, "data.format": "mnist", "data.path": self.path("a"),
               "data.validation": "t10k"}
        del job["data.samples"], job["data.validation_samples"]
        driver, victim, other = self.start_ranks(job, *freezing(2, STEP))
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        driver.wait_line("waiting up to")
        broken = self.follower("--data", self.path("b"))
        self.assert_exit(broken, dp.REFUSED, "the data differs")
        driver.wait_line("left before it took part: refused")
        fresh = self.follower()
        for daemon in (driver, other, fresh):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered()

    def test_local(self):
        """--local starts a follower in place of the lost one."""
        driver = self.driver("--local", *freezing(1, STEP), n=3, job=HELD)
        self.wait_event("inject")
        victim, other = self.local_pid(2), self.local_pid(1)
        self.wait_frozen(other)
        os.kill(victim, signal.SIGKILL)
        self.wake(other)
        driver.wait_line("a local follower was killed by SIGKILL: starting another one")
        self.assert_exit(driver, FINISHED)
        self.assert_recovered(nranks=3)
        self.assert_as_undisturbed(HELD, 3)

    # ---- no replacement comes

    def test_fewer_ranks(self):
        job = {**HELD, **CALM, "cluster.min_ranks": 2, "cluster.replace_timeout": 0.5}
        driver, victim, other = self.start_ranks(job, *freezing(2, STEP))
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        driver.wait_line("going on with 2 ranks")
        for daemon in (driver, other):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=2)
        self.assertEqual(self.events("done")[0]["step"], 12 * 32)
        self.assert_as_undisturbed(job, 3)

    def test_a_rate_that_follows_the_ranks(self):
        """optimizer.scale_lr_by_ranks: once a rank is lost, the rate is the same as that of a
        schedule which changes at this step."""
        job = {**JOB, "train.epochs": 1, "optimizer.lr": 0.02}
        self.run_driver("--local", "--run-dir", "turning", n=1,
                        job={**job, "optimizer.lr": 0.06, "schedule.name": "step",
                             "schedule.every_steps": 20, "schedule.gamma": 2 / 3})
        driver = self.driver("--inject", "kill:rank2@step20", n=3,
                             job={**job, "optimizer.scale_lr_by_ranks": "true",
                                  "cluster.min_ranks": 2, "cluster.replace_timeout": 0})
        other = self.follower("--rank", "1")
        self.follower("--rank", "2")
        for daemon in (driver, other):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=2)
        (want,), (got,) = self.losses("turning"), self.losses()
        self.assertEqual(got[:2], want[:2])
        self.assertLess(abs(got[2] - want[2]), 1e-4 * want[2])

    def test_the_driver_alone(self):
        job = {**HELD, "cluster.min_ranks": 1, "cluster.replace_timeout": 0}
        driver, victim = self.start_ranks(job, *freezing(0, STEP), n=2)
        self.wait_frozen(driver.pid)
        victim.kill()
        self.wake(driver.pid)
        self.assert_exit(driver, FINISHED, "going on with 1 rank")
        self.assert_recovered(nranks=1)
        self.assertEqual(len(self.losses()), 12)

    def test_too_few(self):
        """After the timeout the job ends, and every rank names the first cause."""
        job = {**ENDLESS, "cluster.replace_timeout": 1}
        driver, victim, other = self.start_ranks(job)
        self.wait_event("first_step")
        victim.kill()
        since = time.monotonic()
        for daemon in (driver, other):
            self.assert_exit(daemon, FAILED, r"rank 1 .*was lost.*no replacement came within 1 s")
        self.assertLess(time.monotonic() - since, SOON)
        self.assertEqual(self.events("error")[0]["rank"], 1)

    def test_stopped_while_waiting(self):
        """SIGTERM while the driver waits for a rank: the ranks that are left write a checkpoint."""
        driver, victim, other = self.start_ranks({**HELD, "train.epochs": 100000},
                                                 *freezing(2, 20))
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        driver.wait_line("waiting up to")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, "resume with")
        self.assert_exit(other, STOPPED)
        self.assertEqual(len(self.events("checkpoint")), 1)

    # ---- leaving and joining in order

    def test_polite_leave(self):
        """A follower that gets SIGTERM finishes the step and leaves; a spare takes its place."""
        driver, leaver, other, spare = self.start_ranks(HELD, *freezing(2, STEP), spares=1)
        spare.wait_line("as a spare")
        self.wait_frozen(other.pid)
        leaver.signal(signal.SIGTERM)
        leaver.wait_line("leaving after this step")
        self.wake(other.pid)
        self.assert_exit(leaver, STOPPED)
        for daemon in (driver, other, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assertEqual(self.events("recovered")[0]["steps_lost"], 0)
        self.assertRegex(self.events("lost")[0]["reason"], "left: stopped by SIGTERM")
        self.assert_as_undisturbed(HELD, 3)

    def test_growing(self):
        """Followers that come while the job runs join it beyond --nranks.  One of them leaves, and
        the others go on at once.  The losses are those of an undisturbed run."""
        job = {**SLOW, **PATIENT, **CALM, "train.epochs": 20, "cluster.replace_timeout": 600,
               "cluster.max_ranks": 4, "cluster.min_ranks": 2, "cluster.join_interval": 0.2}
        driver, other = self.start_ranks(job, *freezing(1, STEP, 560), n=2)
        self.wait_frozen(other.pid)
        late = [self.follower(), self.follower()]
        self.wait_spares(2)
        self.wake(other.pid)
        for daemon in late:
            daemon.wait_line(r"takes part as rank \d of [34]")
        self.wait_frozen(other.pid, 2)
        self.assertEqual(self.events("form")[-1]["nranks"], 4)
        self.assert_exit(self.follower(), dp.REFUSED, "the job has all its 4 ranks")
        late[0].signal(signal.SIGTERM)
        late[0].wait_line("leaving after this step")
        self.wake(other.pid, 2)
        self.assert_exit(late[0], STOPPED)
        driver.wait_line("going on with 3 ranks")
        for daemon in (driver, other, late[1]):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(self.events("error"), [])
        self.assertEqual([e["nranks"] for e in self.events("form")][-1], 3)
        self.assertNotRegex(driver.text, "waiting up to")
        self.assert_as_undisturbed(job, 2)

    def test_joining_later(self):
        """A job that went on with fewer ranks lets another rank in, and loses no epoch."""
        job = {**HELD, "train.epochs": 100000, "cluster.min_ranks": 1, "cluster.replace_timeout": 0,
               "cluster.join_interval": 0.2}
        driver, victim = self.start_ranks(job, n=2)
        self.wait_event("epoch", 2)
        victim.kill()
        driver.wait_line("going on with 1 rank")
        fresh = self.follower()
        self.assertEqual(self.wait_event("form", 3)["nranks"], 2)
        n_epochs = len(self.losses())
        self.wait_event("epoch", n_epochs + 2)
        driver.signal(signal.SIGTERM)
        for daemon in (driver, fresh):
            self.assert_exit(daemon, STOPPED)
        whole = [row[:2] for row in self.losses()[:n_epochs + 2]]
        self.assertEqual(whole, [(k, 32 * k) for k in range(1, n_epochs + 3)])


if __name__ == "__main__":
    dp.main()

"""A standby waits beside the driver and leads in its place once it is lost.
The losses must be those of the same job without a disturbance, bit for bit (training.py)."""

import fcntl
import os
import random
import signal
import time
import unittest

import dp
import training
from dp import ENDLESS, FAILED, FINISHED, REFUSED, SOON, STOPPED, USAGE

# 8 steps an epoch, each with a validation and a checkpoint.  SLOW has the demo's network, for what
# has to befall the job while it trains; what is injected at a step comes in time with any network.
SLOW = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
        "train.epochs": 6}
JOB = {**SLOW, **dp.LIGHT}
N_RANDOM = int(os.environ.get("DPTRAIN_KILLS", "3"))


def is_locked(path):
    with open(path, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Standby(training.Case):
    def setUp(self):
        super().setUp()
        self.port_number = dp.free_port()
        self.secret = []

    def lead(self, *args, job=None, n=3, run="run", **popen):
        return self.driver("--port", str(self.port_number), "--run-dir", run, *self.secret, *args,
                           n=n, job=job or JOB, port=False, **popen)

    def stand_by(self, *args, run="run", port=None):
        return self.start([dp.DRIVER, "--standby", "--root",
                           f"127.0.0.1:{port or self.port_number}", "--port", "0", "--threads", "1",
                           *(["--run-dir", run] if run else []), *self.secret, *args])

    def join(self, job=None, inject=None, n=3, run="run"):
        """The standby is a voter of the first formation: it joins before the last rank does."""
        driver = self.lead(*(["--inject", inject] if inject else []), job=job, n=n,
                           env={"RUNTIME_DIRECTORY": self.folder})
        standby = self.stand_by(run=run)
        standby.wait_line("as its standby")
        return driver, standby, [self.follower("--rank", str(k), *self.secret,
                                               port=self.port_number) for k in range(1, n)]

    def assert_all_finish(self, *daemons):
        for daemon in daemons:
            self.assert_exit(daemon, FINISHED)

    def assert_same(self, job=None, n=3, run="run"):
        """Every epoch has one line, and its losses are those of an undisturbed job."""
        self.assertEqual(self.losses(run), self.expected(job or JOB, n))
        self.assertEqual(self.events("error", run), [])

    def assert_led(self, run="run"):
        leader, = self.events("leader", run)
        recovered, = self.events("recovered", run)
        self.assertEqual(recovered["source"], "followers")
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.assertEqual(leader["from"], f"127.0.0.1:{self.port_number}")
        self.assertGreater(leader["term"], 1)
        return recovered

    # ---- killed

    def test_killed_at_each_point(self):
        for point in ("step20", "reduce20", "update20", "validate2", "checkpoint24"):
            with self.subTest(point):
                driver, standby, followers = self.join(inject=f"kill:rank0@{point}")
                driver.wait_exit()
                self.assert_all_finish(standby, *followers)
                self.assert_same()
                self.assert_led()
                os.rename(self.path("run"), self.path(f"run-{point}"))

    def test_killed_at_any_moment(self):
        noise = random.Random()
        for _ in range(N_RANDOM):
            moment = noise.uniform(0, 0.6)
            with self.subTest(moment=moment):
                driver, standby, followers = self.join(job=SLOW)
                self.wait_event("first_step", run="run")
                until = time.monotonic() + moment
                dp.wait_for("the moment", lambda until=until: time.monotonic() > until)
                driver.kill()
                driver.wait_exit()
                self.assert_all_finish(standby, *followers)
                self.assert_same(SLOW)
                os.rename(self.path("run"), self.path(f"run-{moment}"))

    def test_time_to_the_next_step(self):
        """It counts from the driver's last event, which comes just before it kills itself."""
        driver, standby, followers = self.join(inject="kill:rank0@step20")
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        recovered = self.assert_led()
        last, = self.events("inject", "run")
        seconds = recovered["time"] - last["time"]
        print(f"  from the kill to the next step: {seconds:.2f} s")
        self.assertLess(seconds, SOON)

    def test_no_checkpoint_is_read(self):
        """There is none: the followers' state is all there is."""
        job = {**JOB, "checkpoint.every_epochs": 0}
        driver, standby, followers = self.join(job=job, inject="kill:rank0@step20")
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assert_same(job)

    def test_its_bits_are_wrong(self):
        """The driver's own rank computes a wrong gradient: it hands over after that step, or before
        it if each repetition is wrong, too."""
        job = {**JOB, "train.audit": 1, "strategy.shards": 3, "checkpoint.every_epochs": 0}
        for n_flips in (1, 3):
            with self.subTest(n_flips):
                self.hand_over_after(n_flips, job)
                os.rename(self.path("run"), self.path(f"run-{n_flips}"))

    def hand_over_after(self, n_flips, job):
        inject = ",".join(["flip:rank0@step5:bucket0"] * n_flips)
        driver, standby, followers = self.join(job=job, inject=inject)
        self.assert_exit(driver, STOPPED, r"its bits were wrong: the standby at \S+ leads from")
        self.assert_all_finish(standby, *followers)
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["healed"]), (0, 5, n_flips == 1))
        self.assertLessEqual(self.assert_led()["steps_lost"], n_flips == 3)
        self.assert_same(job)

    def test_a_rank_found_wrong_before_leaves(self):
        """The job needs the rank when it is found.  The next driver knows of it, and lets it go
        once a spare has come."""
        job = {**ENDLESS, "train.audit": 1, "strategy.shards": 3, "cluster.spares": 1}
        driver, standby, (wrong, other) = self.join(
            job=job, inject="flip:rank1@step5:bucket0,kill:rank0@step20")
        driver.wait_exit()
        self.assertRegex(driver.text, r"rank 1 \(.*\) stays for now, although its bits were wrong")
        standby.wait_line(r"bits of rank 1 \(.*\) were found wrong before")
        spare = self.follower(port=int(standby.wait_line(r"listening on \S+:(\d+)").group(1)))
        self.assert_exit(wrong, STOPPED, "drained, because its bits were wrong")
        self.wait_event("recovered", 2, run="run")
        standby.signal(signal.SIGTERM)
        for daemon in (standby, other, spare):
            self.assert_exit(daemon, STOPPED)

    def test_divided_state(self):
        """The shards that died with the driver come from their buddy."""
        frozen = {"optimizer.groups": "[{match: fc1.*, frozen: true}]"}
        for zero, more in ((1, {}), (2, {}), (3, {}), (3, frozen)):
            job = {**JOB, "model.arch": "mlp", "optimizer.name": "adam", "strategy.zero": zero,
                   "checkpoint.every_epochs": 0, **more}
            with self.subTest(zero=zero, more=more):
                driver, standby, followers = self.join(job=job, inject="kill:rank0@update20")
                driver.wait_exit()
                self.assert_all_finish(standby, *followers)
                self.assert_same(job)
                self.assert_led()
                os.rename(self.path("run"), self.path(f"run-{zero}-{len(more)}"))

    def test_divided_state_without_buddies(self):
        """The driver's shards are nowhere else, so the standby reads the checkpoint."""
        job = {**JOB, **dp.PATIENT, "model.arch": "mlp", "optimizer.name": "adam",
               "strategy.zero": 2, "strategy.buddy": "false"}
        driver, standby, followers = self.join(
            job=job, inject=f"{dp.WHILE_SAVING},stop:rank1@step22,kill:rank0@update22")
        self.wait_checkpoint("run", 16)
        self.wake(followers[0].pid, run="run")
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assertRegex(standby.text, "no other rank held its part .*: training goes back to the "
                         "checkpoint of step 16")
        recovered, = self.events("recovered", "run")
        self.assertEqual(recovered["source"], "checkpoint")
        self.assert_same(job)

    def test_a_run_directory_of_its_own(self):
        """It has the events from the place on that was replicated, and the job."""
        driver, standby, followers = self.join(inject="kill:rank0@step20", run="own")
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assert_led("own")
        self.assertEqual(self.losses("run") + self.losses("own"), self.expected(JOB, 3))
        self.assertTrue(os.path.exists(self.path("own", "job.yaml")))
        self.assertTrue(os.path.exists(self.path("own", "checkpoints", "latest")))

    def test_one_follower(self):
        driver, standby, followers = self.join(inject="kill:rank0@step20", n=2)
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assert_same(n=2)

    def test_with_a_secret(self):
        self.assert_exit(self.start([dp.DRIVER, "--make-secret", "secret"]), FINISHED)
        self.secret = ["--secret-file", "secret"]
        driver, standby, followers = self.join(inject="kill:rank0@step20")
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assert_same()

    # ---- frozen

    def test_frozen_and_thawed(self):
        """The driver that wakes up is told by the standby that it is deposed."""
        job = {**SLOW, "cluster.heartbeat_timeout": 2, "train.epochs": 20}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20")
        self.wait_event("recovered", run="run")
        driver.signal(signal.SIGCONT)
        self.assert_exit(driver, FAILED, r"another driver leads this run: .*this one ends")
        self.assertTrue(os.path.exists(self.path("deposed")))
        self.assertNotIn("--resume", driver.text, "it would depose the new driver")
        self.assert_all_finish(standby, *followers)
        self.assert_same(job)

    @unittest.skipUnless("DPTRAIN_KILLS" in os.environ, "for tests/run.sh driver_lost")
    def test_frozen_for_half_a_minute(self):
        """With the deadlines that a job has."""
        job = {**SLOW, "train.epochs": 20}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20")
        self.wait_frozen(driver.pid, run="run")
        until = time.monotonic() + 30
        dp.wait_for("the moment", lambda: time.monotonic() > until)
        driver.signal(signal.SIGCONT)
        self.assert_exit(driver, FAILED, r"another driver leads this run: .*this one ends")
        self.assert_all_finish(standby, *followers)
        self.assert_same(job)

    def test_frozen_and_thawed_with_another_directory(self):
        """Only the standby itself can tell it."""
        job = {**JOB, "cluster.heartbeat_timeout": 2, "train.epochs": 100000}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20", run="own")
        self.wait_event("recovered", run="own")
        driver.signal(signal.SIGCONT)
        self.assert_exit(driver, FAILED, "with term 1001, .* 1; so says the standby")
        for kind, n in (("form", 1), ("epoch", 2), ("error", 0), ("done", 0)):
            self.assertEqual(len(self.events(kind, "run")), n, kind)
        standby.signal(signal.SIGTERM)
        for daemon in (standby, *followers):
            self.assert_exit(daemon, STOPPED)

    def test_frozen_and_killed(self):
        """Its lock on the directory is the standby's then: nobody resumes the run meanwhile."""
        job = {**JOB, "cluster.heartbeat_timeout": 2, "train.epochs": 100000}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20")
        self.wait_event("recovered", run="run")
        driver.kill()
        driver.wait_exit()
        dp.wait_for("the standby's lock", lambda: is_locked(self.path("run", "events.jsonl")))
        self.assert_exit(self.lead("--resume", job=job), USAGE, "another dpdriver is using it")
        standby.signal(signal.SIGTERM)
        self.assert_exit(standby, STOPPED, "resume with: .* --nranks 3 --resume --run-dir ")
        for daemon in followers:
            self.assert_exit(daemon, STOPPED)

    # ---- a follower is lost, too

    def test_a_follower_dies_with_the_driver(self):
        """The votes suffice, so the standby leads at once, and the follower is replaced as after
        any loss: long before cluster.driver_timeout."""
        job = {**JOB, "cluster.driver_timeout": 3600, "cluster.replace_timeout": 3600}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20", n=4)
        self.wait_frozen(driver.pid, run="run")
        for daemon in (driver, followers[2]):
            daemon.kill()
        standby.wait_line("rank 3 was lost together with the driver")
        new = self.follower(port=int(standby.wait_line(r"listening on \S+:(\d+)").group(1)))
        self.assert_all_finish(standby, *followers[:2], new)
        self.assert_same(job, 4)
        lost, = self.events("lost", "run")
        self.assertEqual(lost["rank"], 3)
        self.assert_led()

    def test_the_others_go_on(self):
        job = {**JOB, **training.CALM, "cluster.driver_timeout": 3600, "cluster.min_ranks": 2,
               "cluster.replace_timeout": 0}
        driver, standby, followers = self.join(job=job, inject="stop:rank0@step20", n=4)
        self.wait_frozen(driver.pid, run="run")
        for daemon in (driver, followers[0]):
            daemon.kill()
        self.assert_all_finish(standby, *followers[1:])
        self.assertEqual(self.assert_led()["nranks"], 3)

    # ---- the standby is lost

    def test_the_standby_is_killed_and_comes_back(self):
        job = {**ENDLESS, "cluster.join_interval": 0.5}
        driver, standby, followers = self.join(job=job)
        self.wait_event("first_step", run="run")
        standby.kill()
        driver.wait_line("the standby at .* was lost.*the job goes on without it")
        self.wait_event("standby", 2, run="run")  # a formation without it
        self.assertIsNone(self.events("standby", "run")[1]["address"])
        standby = self.stand_by()
        self.wait_event("standby", 3, run="run")  # and one with the next
        self.wait_event("form", 3, run="run")
        status = self.start([dp.DRIVER, "--status", "--run-dir", "run"])
        self.assert_exit(status, FINISHED)
        self.assertRegex(status.out, r"\nstandby at 127\.0\.0\.1:\d+\n")
        driver.kill()
        self.wait_event("recovered", run="run")
        standby.signal(signal.SIGTERM)
        for daemon in (standby, *followers):
            self.assert_exit(daemon, STOPPED)
        self.assertEqual(self.events("lost", "run"), [])

    def test_it_ends_with_the_job(self):
        driver, standby, followers = self.join()
        self.assert_all_finish(driver, standby, *followers)
        self.assert_same()
        self.assertEqual(len(self.events("form", "run")), 1)

    def test_it_is_stopped(self):
        driver, standby, followers = self.join(job=ENDLESS)
        self.wait_event("first_step", run="run")
        standby.signal(signal.SIGTERM)
        self.assert_exit(standby, STOPPED, "stopped by SIGTERM")
        driver.wait_line("the standby at .* was lost: stopped by SIGTERM")
        driver.signal(signal.SIGTERM)
        for daemon in (driver, *followers):
            self.assert_exit(daemon, STOPPED)

    # ---- both lost

    def test_a_driver_that_restarts_asks_the_standby(self):
        """Two of three followers are held up, so the standby may not lead.  The driver that is
        started again asks it, and goes on once all have come."""
        driver, standby, followers = self.join(job={**SLOW, "train.epochs": 20}, n=4)
        self.wait_event("first_step", run="run")
        for follower in followers[:2]:
            follower.signal(signal.SIGSTOP)
            dp.wait_for("its freezing", lambda pid=follower.pid: dp.is_frozen(pid))
        said = len(standby.lines)
        driver.kill()
        driver.wait_exit()
        standby.wait_line("lost the driver", start=said)
        driver = self.lead("--resume", job={**SLOW, "train.epochs": 20}, n=4)
        standby.wait_line("as its standby", start=said)
        for follower in followers[:2]:
            follower.signal(signal.SIGCONT)
        self.assert_all_finish(driver, standby, *followers)
        self.assert_same({**SLOW, "train.epochs": 20}, 4)
        self.assertEqual(self.events("leader", "run"), [])
        self.assertEqual(self.events("recovered", "run")[0]["source"], "followers")

    def test_a_restarted_driver_alone_does_not_go_on(self):
        """The standby may lead the run: of the ranks none came, so nobody can know.  The service
        manager may start the driver again, as it was not deposed."""
        job = {**JOB, "cluster.driver_timeout": 2, "cluster.min_ranks": 1}
        driver, standby, followers = self.join(job=job, inject="kill:rank0@step20")
        for daemon in (standby, *followers):  # as a network that is cut
            driver.wait_line("rank 2 joined")
            self.wait_event("first_step", run="run")
        for daemon in (standby, *followers):
            daemon.kill()
        driver.kill()
        driver.wait_exit()
        driver = self.lead("--resume", job=job, env={"RUNTIME_DIRECTORY": self.folder})
        self.assert_exit(driver, FAILED, "the standby .* may lead this run: neither it nor enough "
                         "ranks were heard for 2 s .*resume with --set cluster.driver_timeout=0")
        self.assertFalse(os.path.exists(self.path("deposed")))

    def test_the_next_driver_has_another_job(self):
        """The standby leads the job of the driver that it lost last."""
        driver = self.lead(job={**SLOW, "train.epochs": 3}, run="first")
        standby = self.stand_by()
        standby.wait_line("as its standby")
        driver.kill()
        driver.wait_exit()
        said = len(standby.lines)
        driver = self.lead("--inject", "kill:rank0@step20")
        standby.wait_line("as its standby", start=said)
        followers = [self.follower(port=self.port_number) for _ in range(2)]
        driver.wait_exit()
        self.assert_all_finish(standby, *followers)
        self.assert_same()

    # ---- stopped and resumed

    def test_all_are_stopped_and_others_resume(self):
        """No follower of the job before lives, and its standby does not, either."""
        for first in ("standby", "driver"):
            with self.subTest(first):
                driver, standby, followers = self.join(job=ENDLESS)
                self.wait_event("first_step", run="run")
                for daemon in (standby, driver) if first == "standby" else (driver, standby):
                    daemon.signal(signal.SIGTERM)
                for daemon in (driver, standby, *followers):
                    self.assert_exit(daemon, STOPPED)
                driver = self.lead("--resume", job=ENDLESS)
                followers = [self.follower(port=self.port_number) for _ in range(2)]
                self.wait_event("first_step", 2, run="run")
                driver.signal(signal.SIGTERM)
                for daemon in (driver, *followers):
                    self.assert_exit(daemon, STOPPED)
                os.rename(self.path("run"), self.path(f"run-{first}"))

    # ---- it could not lead

    def test_without_the_data(self):
        """Both are told at once, and it does not end the job of the others by leading it."""
        self.write_data("data", seed=1)
        job = {**ENDLESS, "data.format": "mnist", "data.path": "data", "data.validation": "t10k"}
        del job["data.samples"], job["data.validation_samples"]
        driver = self.lead(job=job)
        followers = [self.follower(port=self.port_number) for _ in range(2)]
        self.wait_event("first_step", run="run")
        os.rename(self.path("data"), self.path("gone"))
        self.assert_exit(self.stand_by(), USAGE, "the standby cannot lead this job: .*data")
        driver.wait_line("the standby at .* was lost: the standby cannot lead this job: .*data.*; "
                         "the job goes on without it")
        driver.signal(signal.SIGTERM)
        for daemon in (driver, *followers):
            self.assert_exit(daemon, STOPPED)

    # ---- refused

    def test_no_driver(self):
        standby = self.stand_by("--wait", "1")
        self.assert_exit(standby, REFUSED, "no driver at")

    def test_a_wrong_secret(self):
        for name in ("one", "other"):
            self.assert_exit(self.start([dp.DRIVER, "--make-secret", name]), FINISHED)
        self.secret = ["--secret-file", "one"]
        self.lead(job=ENDLESS)
        self.secret = ["--secret-file", "other"]
        standby = self.stand_by()
        self.assert_exit(standby, REFUSED, "secret")

    def test_a_second_one(self):
        self.join(job=ENDLESS)
        self.assert_exit(self.stand_by(), REFUSED, "the job has a standby already, at 127.0.0.1:")

    def test_a_job_whose_followers_keep_nothing(self):
        self.lead(job={**ENDLESS, "cluster.driver_timeout": 0})
        self.assert_exit(self.stand_by(), REFUSED, "cluster.driver_timeout is 0")

    def test_a_follower_that_is_new(self):
        _, standby, _ = self.join(job=ENDLESS)
        port = int(standby.wait_line(r"listening on 127.0.0.1:(\d+)").group(1))
        self.assert_exit(self.follower(port=port), REFUSED, "this is the standby of the driver at")

    def test_options(self):
        for args, text in ((["--root", "a:1"], "--root belongs to --standby"),
                           (["--standby"], "--standby needs --root"),
                           (["--standby", "--root", "a:1", "--nranks", "2"], "leave --nranks out"),
                           (["--standby", "--root", "a"], "--root")):
            self.assert_exit(self.start([dp.DRIVER, *args]), USAGE, text)


if __name__ == "__main__":
    dp.main()

"""The driver is lost, and the job goes on: its followers keep their state and find it again.
The losses must be those of the same job without a disturbance, bit for bit (training.py)."""

import json
import os
import random
import shutil
import signal
import socket
import threading
import time

import dp
import training
from dp import ENDLESS, FAILED, FINISHED, SOON, STOPPED, USAGE

# 8 steps an epoch, each with a validation and a checkpoint.  SLOW has the demo's network, for what
# has to befall the job while it trains; what is injected at a step comes in time with any network.
SLOW = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
        "train.epochs": 6}
JOB = {**SLOW, **dp.LIGHT}
POINTS = ["gather", "ready", "prepare", "form", "step20", "reduce20", "update20", "validate2",
          "checkpoint24", "stop"]
# A job file must name these; the demo has the same.
DEMO = {"name": "demo", "model.arch": "lenet", "data.format": "digits"}
# Divided among the ranks; Adam has two slots.
DIVIDED = {**JOB, "model.arch": "mlp", "optimizer.name": "adam", "optimizer.lr": 0.001}
# For kills at random moments: jobs in which one phase takes most of the time.
VALIDATING = {**SLOW, "data.samples": 128, "data.validation_samples": 8192}
SAVING = {**JOB, "checkpoint.every_steps": 1, "model.arch": "mlp",
          "model.hidden": [512, 512]}
# A driver may be killed between the last checkpoint and its word to the followers.  Its successor
# has nothing to do but to tell them.  It waits two seconds longer than this for those that were
# told before.
STOPPING = {**JOB, "cluster.heartbeat_timeout": 2}
# Each phase: its job, the sign that it begins, and the seconds from then on of which one is chosen.
PHASES = {
    "gather": (JOB, lambda test, driver: None, 0.3),
    "form": (JOB, lambda test, driver: test.wait_joined(driver), 0.05),
    "step": (SLOW, lambda test, driver: test.wait_event("first_step", run="run"), 0.4),
    "validation": (VALIDATING, lambda test, driver: test.wait_event("epoch", run="run"), 0.4),
    "checkpoint": (SAVING, lambda test, driver: test.wait_event("checkpoint", run="run"), 0.4),
    "divided": ({**DIVIDED, "strategy.zero": 2},
                lambda test, driver: test.wait_event("first_step", run="run"), 0.4),
    "stop": (STOPPING, lambda test, driver: test.wait_event("epoch", 6, run="run"), 0.1),
}
N_KILLS = int(os.environ.get("DPTRAIN_KILLS", "1"))  # in each phase
SEED = int(os.environ.get("DPTRAIN_SEED", time.time()))


class DriverLost(training.Case):
    def setUp(self):
        super().setUp()
        self.port_number = dp.free_port()

    def lead(self, *args, job=None, n=3, run="run"):
        return self.driver("--port", str(self.port_number), "--run-dir", run, *args, n=n,
                           job=job or JOB, port=False)

    def start_ranks_of(self, *args, job=None, n=3):
        followers = [self.follower("--rank", str(k), port=self.port_number) for k in range(1, n)]
        return self.lead(*args, job=job, n=n), *followers

    def assert_same(self, job=None, n=3):
        """Every epoch has one line, and its losses are those of an undisturbed job."""
        self.assertEqual(self.losses("run"), self.expected(job or JOB, n))
        self.assertEqual(self.events("error", "run"), [])
        for event in self.events("recovered", "run"):
            if event.get("source") != "checkpoint":
                self.assertLessEqual(event["steps_lost"], 1)

    def kill_and_restart(self, driver, followers, job=None):
        driver.wait_exit()
        successor = self.lead("--resume", job=job)
        for daemon in (successor, *followers):
            self.assert_exit(daemon, FINISHED)
        self.assert_same(job)
        return successor

    # ---- restarted

    def test_killed_at_each_point(self):
        for point in POINTS:
            with self.subTest(point):
                driver, *followers = self.start_ranks_of("--inject", f"kill:rank0@{point}")
                self.kill_and_restart(driver, followers)
                if point not in ("gather", "ready", "prepare", "form", "stop"):
                    self.assertEqual(self.events("recovered", "run")[-1]["source"], "followers")
                os.rename(self.path("run"), self.path(f"run-{point}"))

    def wait_joined(self, driver):
        for rank in (1, 2):
            driver.wait_line(f"rank {rank} joined")

    def start_like_systemd(self):
        """The command of the unit: it is the same at each start."""
        return self.driver("--port", str(self.port_number), "--resume", "--job", "job.yaml",
                           "--run-dir", "run", n=3, job=None, port=False)

    def stand_by(self):
        return self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{self.port_number}",
                           "--port", "0", "--threads", "1", "--run-dir", "run"])

    def kill_at(self, phase, choose, standbys=0):
        job, wait_begin, seconds = PHASES[phase]
        driver = self.start_like_systemd()
        others = [self.stand_by() for _ in range(standbys)]
        others += [self.follower("--rank", str(k), port=self.port_number) for k in (1, 2)]
        wait_begin(self, driver)
        time.sleep(choose.uniform(0, seconds))
        driver.kill()
        driver.wait_exit()
        successor = self.start_like_systemd()
        for daemon in others:
            self.assert_exit(daemon, FINISHED)
        if standbys:  # one of the two has led
            self.assert_led_or_not(successor)
        else:
            self.assert_exit(successor, FINISHED)
        self.assert_same(job)

    def assert_led_or_not(self, successor):
        """The driver that was started again led, or found that the standby does."""
        status = successor.wait_exit()
        self.assertIn(status, (FINISHED, FAILED, USAGE), successor.text)
        if status != FINISHED:
            self.assertRegex(successor.text, "another driver leads this run|"
                             "another dpdriver is using it")

    def test_killed_in_each_phase(self):
        """At a random moment of it.  tests/run.sh driver_lost N kills N times in each phase."""
        print(f"  DPTRAIN_SEED={SEED}", flush=True)
        choose = random.Random(SEED)
        for phase, (job, _, _) in PHASES.items():
            with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
                json.dump(dp.nested({**DEMO, **job}), file)
            for n in range(N_KILLS):
                with self.subTest(phase, n=n):
                    self.kill_at(phase, choose)
                shutil.rmtree(self.path("run"), ignore_errors=True)

    def test_killed_beside_a_standby(self):
        """The driver is started again like a unit, while its standby wants to lead.  tests/run.sh
        driver_lost does that in each phase, else it is one."""
        print(f"  DPTRAIN_SEED={SEED}", flush=True)
        choose = random.Random(SEED)
        for phase in PHASES if "DPTRAIN_KILLS" in os.environ else [choose.choice([*PHASES])]:
            with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
                json.dump(dp.nested({**DEMO, **PHASES[phase][0]}), file)
            for n in range(N_KILLS):
                with self.subTest(phase, n=n):
                    self.kill_at(phase, choose, standbys=1)
                shutil.rmtree(self.path("run"), ignore_errors=True)

    def test_time_to_the_next_step(self):
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step20")
        self.kill_and_restart(driver, followers)
        event, = self.events("recovered", "run")
        print(f"  from the new process to the next step: {event['seconds']:.2f} s")
        self.assertEqual((event["source"], event["nranks"]), ("followers", 3))
        self.assertLess(event["seconds"], SOON)
        self.assertIn("keeping the state and looking for it", followers[0].text)
        self.assertIn("again, as a rank; the state of step", followers[0].text)

    def test_no_checkpoint_is_read(self):
        """There is none: the followers' state is all there is."""
        job = {**JOB, "checkpoint.every_epochs": 0}
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step20", job=job)
        self.kill_and_restart(driver, followers, job)
        self.assertEqual(self.events("recovered", "run")[0]["source"], "followers")

    def test_the_checkpoint_if_no_follower_kept_more(self):
        """The driver is killed at step 20, once the checkpoint of step 16 is on the disk."""
        driver, *followers = self.start_ranks_of("--inject", "stop:rank1@step18,kill:rank0@step20",
                                                 job={**JOB, **dp.PATIENT})
        self.wait_checkpoint("run", 16)
        self.wake(followers[0].pid, run="run")
        driver.wait_exit()
        for follower in followers:
            follower.kill()
        driver = self.lead("--resume")
        fresh = [self.follower(port=self.port_number) for _ in range(2)]
        for daemon in (driver, *fresh):
            self.assert_exit(daemon, FINISHED)
        self.assert_same()
        event, = self.events("recovered", "run")
        self.assertEqual((event["source"], event["steps_lost"]), ("checkpoint", 4))

    def test_again_and_again(self):
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step10")
        for step in (20, 30):
            driver.wait_exit()
            driver = self.lead("--resume", "--inject", f"kill:rank0@step{step}")
        self.kill_and_restart(driver, followers)
        self.assertEqual(len(self.events("recovered", "run")), 3)

    # ---- divided state

    def test_divided_state_of_followers(self):
        """The driver dies once a step's sums are there, and with it its shards.  Their buddy has a
        copy: no checkpoint is read."""
        for zero in (1, 2, 3):
            job = {**DIVIDED, "strategy.zero": zero, "checkpoint.every_epochs": 0}
            with self.subTest(zero=zero):
                driver, *followers = self.start_ranks_of("--inject", "kill:rank0@update20", job=job)
                self.kill_and_restart(driver, followers, job)
                recovered, = self.events("recovered", "run")
                self.assertEqual(recovered["source"], "followers")
                os.rename(self.path("run"), self.path(f"run-{zero}"))

    def test_divided_state_newer_than_the_checkpoint(self):
        """The driver that is started again reads step 16, and takes what the followers have."""
        job = {**DIVIDED, **dp.PATIENT, "strategy.zero": 3}
        driver, *followers = self.start_ranks_of(
            "--inject", f"{dp.WHILE_SAVING},stop:rank1@step22,kill:rank0@update22", job=job)
        self.wait_checkpoint("run", 16)
        self.wake(followers[0].pid, run="run")
        self.kill_and_restart(driver, followers, job)
        recovered, = self.events("recovered", "run")
        self.assertEqual(recovered["source"], "followers")

    def test_divided_state_without_buddies(self):
        """The driver's shards are nowhere else, so training goes back to the checkpoint."""
        job = {**DIVIDED, **dp.PATIENT, "strategy.zero": 2, "strategy.buddy": "false"}
        driver, *followers = self.start_ranks_of(
            "--inject", f"{dp.WHILE_SAVING},stop:rank1@step22,kill:rank0@update22", job=job)
        self.wait_checkpoint("run", 16)
        self.wake(followers[0].pid, run="run")
        successor = self.kill_and_restart(driver, followers, job)
        recovered, = self.events("recovered", "run")
        self.assertEqual(recovered["source"], "checkpoint")
        self.assertRegex(successor.text, "state of step 23 is not whole any more: .*no other rank "
                         "held its part .*: training goes back to step 16")

    # ---- which state, which driver

    def test_another_strategy(self):
        """State that was kept under another strategy is refused, and the followers come as new
        ones: the run goes on from the checkpoint under the new strategy."""
        job = {**JOB, **dp.PATIENT, "model.arch": "mlp", "strategy.name": "local_sgd",
               "strategy.outer": "nesterov"}
        driver, *followers = self.start_ranks_of("--inject", "stop:rank1@step18,kill:rank0@step20",
                                                 job=job)
        self.wait_checkpoint("run", 16)
        self.wake(followers[0].pid, run="run")
        driver.wait_exit()
        driver = self.lead("--resume", job={**JOB, **dp.PATIENT, "model.arch": "mlp",
                                            "strategy.name": "allreduce", "strategy.zero": 2})
        for daemon in (driver, *followers):
            self.assert_exit(daemon, FINISHED)
        for follower in followers:
            self.assertIn("other options of the job, under which only a checkpoint can go on",
                          follower.text)
        self.assertIn("resume: strategy was {name: local_sgd, outer: nesterov} and is now "
                      "{name: allreduce, zero: 2}; dropped", driver.text)
        recovered, = self.events("recovered", "run")
        self.assertEqual(recovered["source"], "checkpoint")
        self.assertEqual([event["step"] for event in self.events("epoch", "run")],
                         [8, 16, 24, 32, 40, 48])


    def test_another_run_gets_fresh_followers(self):
        """A new run at the same address takes no state of the one before.  Its driver has the
        secret, so the followers believe it at once."""
        self.assert_exit(self.start([dp.DRIVER, "--make-secret", "secret"]), FINISHED)
        secret = ("--secret-file", "secret")
        driver = self.lead(*secret, "--inject", "kill:rank0@step20")
        followers = [self.follower(*secret, "--rank", str(k), port=self.port_number)
                     for k in (1, 2)]
        driver.wait_exit()
        driver = self.lead(*secret, run="other")
        for daemon in (driver, *followers):
            self.assert_exit(daemon, FINISHED)
        self.assertIn("it kept the state of another run", driver.text)
        self.assertEqual(self.losses("other"), self.expected(JOB, 3))

    def test_another_run_that_proves_nothing(self):
        """Without a secret anybody could be that driver: the followers keep their state, and find
        the driver of their run."""
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step20")
        driver.wait_exit()
        other = self.lead(run="other")
        for follower in followers:
            follower.wait_line("is of no use yet: it kept the state of another run")
        other.kill()
        self.kill_and_restart(other, followers)
        self.assertEqual(self.events("recovered", "run")[0]["source"], "followers")

    def test_a_follower_that_gives_up(self):
        job = {**ENDLESS, "cluster.driver_timeout": 1}
        driver, follower = self.start_ranks_of(job=job, n=2)
        self.wait_event("first_step", run="run")
        driver.kill()
        self.assert_exit(follower, FAILED, "none that goes on with the run was found within 1 s")

    def test_a_follower_that_is_stopped_while_it_looks(self):
        driver, follower = self.start_ranks_of(job=ENDLESS, n=2)
        self.wait_event("first_step", run="run")
        driver.kill()
        follower.wait_line("looking for it")
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED, "stopped by SIGTERM")

    def test_a_driver_that_ends_is_not_waited_for(self):
        driver, follower = self.start_ranks_of(job=ENDLESS, n=2)
        self.wait_event("first_step", run="run")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)

    def test_another_process_answers(self):
        """The followers do not believe it, look on, and find the driver."""
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step20")
        driver.wait_exit()
        stranger = Stranger(self.port_number)
        for follower in followers:
            follower.wait_line("is of no use yet")
        stranger.close()
        self.kill_and_restart(driver, followers)
        self.assertEqual(self.events("recovered", "run")[0]["source"], "followers")
        for follower in followers:
            # A connection that the stranger's end breaks off is another reason, and told, too.
            told = follower.text.count("is of no use yet: not a dptrain peer")
            self.assertEqual(told, 1, follower.text)

    def test_a_secret_that_the_driver_has(self):
        """A search tries both secrets.  The refusal after it is not taken for a wrong secret."""
        for name in ("old", "new"):
            self.assert_exit(self.start([dp.DRIVER, "--make-secret", name]), FINISHED)
        driver = self.lead("--secret-file", "old", "--inject", "kill:rank0@step20", n=2)
        follower = self.follower("--secret-file", "old", "--secret-file", "new",
                                 port=self.port_number)
        driver.wait_exit()
        follower.wait_line("looking for it")
        driver = self.lead("--secret-file", "new", n=2, run="other")
        for daemon in (driver, follower):
            self.assert_exit(daemon, FINISHED)
        self.assertIn("it kept the state of another run", follower.text)
        self.assertNotIn("does not have this secret", follower.text)

    def test_a_driver_alone_does_not_go_on(self):
        """It waits for its ranks; with cluster.min_ranks 1 it goes on alone after a while."""
        job = {**JOB, **training.CALM, "cluster.driver_timeout": 1}
        driver, *followers = self.start_ranks_of("--inject", "kill:rank0@step20", job=job)
        driver.wait_exit()
        for follower in followers:
            self.assert_exit(follower, FAILED)
        driver = self.lead("--resume", job=job)
        driver.wait_line("waiting for rank 1, rank 2 to join")
        self.assertEqual(len(self.events("form", "run")), 1)
        driver.kill()
        driver.wait_exit()
        driver = self.lead("--resume", job={**job, "cluster.min_ranks": 1})
        self.assert_exit(driver, FINISHED, "no more ranks came: going on with 1")

    # ---- frozen

    def test_frozen_and_thawed(self):
        """The followers leave a driver that is silent, and come back to it with their state."""
        job = {**JOB, "cluster.heartbeat_timeout": 2}
        driver, *followers = self.start_ranks_of("--inject", "stop:rank0@step20", job=job)
        for follower in followers:
            follower.wait_line("lost the driver.*no sign of life.*keeping the state")
        driver.signal(signal.SIGCONT)
        for daemon in (driver, *followers):
            self.assert_exit(daemon, FINISHED)
        self.assert_same(job)

    # ---- replaced

    def assert_deposed(self, driver):
        self.assert_exit(driver, FAILED, "another driver leads this run.*this one ends")
        self.assertNotIn("--resume", driver.text, "it would depose the new driver")

    def test_the_directory_has_another_owner(self):
        """Its followers are not told to end: they look for the other driver."""
        driver, follower = self.start_ranks_of(job=ENDLESS, n=2)
        self.wait_event("first_step", run="run")
        with open(self.path("run", "owner"), encoding="utf-8") as file:
            owner = json.load(file)
        owner.update(id="0" * 32, term=owner["term"] + 1)
        with open(self.path("run", "owner.new"), "w", encoding="utf-8") as file:
            json.dump(owner, file)
        os.rename(self.path("run", "owner.new"), self.path("run", "owner"))
        self.assert_deposed(driver)
        follower.wait_line("keeping the state and looking for it")
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)
        for kind in ("error", "done", "lost"):
            self.assertEqual(self.events(kind, "run"), [])

    def test_frozen_and_replaced(self):
        """The followers go over to the driver that took the run over; the one before ends when it
        wakes up.  The directory is renamed and copied, as a lock of the frozen one holds it."""
        job = {**SLOW, "cluster.heartbeat_timeout": 2, "train.epochs": 20}
        switch = Switch(self.port_number)
        self.addCleanup(switch.close)
        frozen = self.lead("--inject", "stop:rank0@step20", job=job)
        frozen.wait_line("listening")  # until then the switch closes what comes
        followers = [self.follower("--rank", str(k), port=switch.port) for k in (1, 2)]
        for follower in followers:
            follower.wait_line("lost the driver.*keeping the state")
        os.rename(self.path("run"), self.path("before"))
        shutil.copytree(self.path("before"), self.path("run"), symlinks=True,
                        ignore=shutil.ignore_patterns("status.sock"))
        switch.to = self.port_number = dp.free_port()
        successor = self.lead("--resume", job=job)
        self.wait_event("recovered", run="run")
        frozen.signal(signal.SIGCONT)
        self.assert_deposed(frozen)
        for daemon in (successor, *followers):
            self.assert_exit(daemon, FINISHED)
        self.assert_same(job)
        self.assertEqual(self.events("recovered", "run")[0]["source"], "followers")


class Stranger:
    """Answers each connection in another protocol."""

    def __init__(self, port):
        self.socket = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                end, _ = self.socket.accept()
            except OSError:
                return
            with end:
                end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread up, which holds the port
        self.socket.close()


class Switch:
    """Carries connections from a port of its own to the port `to`, which may change."""

    def __init__(self, to):
        self.to = to
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    @staticmethod
    def carry(source, sink):
        try:
            while part := source.recv(65536):
                sink.sendall(part)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.socket.close()


if __name__ == "__main__":
    dp.main()

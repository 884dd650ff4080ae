"""Ranks are killed, stopped and frozen in jobs that replace none: every rank ends within seconds
and names the first cause.  test_recovery.py has the jobs that go on."""

import os
import re
import shlex
import signal
import time

import dp
from dp import ENDLESS, FAILED, FINISHED, RIGID, SOON, STOPPED

# Validation takes long enough to be hit.
LONG_VALIDATION = {**ENDLESS, "data.samples": 256, "data.validation_samples": 100000}


class Faults(dp.Case):
    def start_three(self, job=ENDLESS):
        driver = self.driver(n=3, job={**job, **RIGID})
        return [driver, self.follower("--rank", "1"), self.follower("--rank", "2")]

    def wait_phase(self, driver, phase):
        """Waits until SIGUSR1 shows this phase."""
        dp.wait_for(f"phase {phase}", lambda: driver.state().startswith(phase))

    def assert_all_gone(self, daemons, since, status=FAILED, within=SOON):
        for daemon in daemons:
            self.assert_exit(daemon, status)
        self.assertLess(time.monotonic() - since, within)
        self.assertEqual(self.left_behind(), {})

    def lose_follower(self, reach, job=ENDLESS):
        driver, victim, other = daemons = self.start_three(job)
        reach(driver)
        since = time.monotonic()
        victim.kill()
        victim.wait_exit()
        self.assert_all_gone([driver, other], since)
        error = self.wait_event("error")
        self.assertEqual(error["rank"], 1)
        self.assertIn("rank 1", error["message"])
        lost = self.events("lost")[0]
        self.assertEqual((lost["rank"], lost["host"]), (1, os.uname().nodename))
        self.assertRegex(lost["reason"], r"closed the connection|the connection to \S+ broke")
        self.assertEqual(error["host"], lost["host"])
        self.assertIsInstance(error["phase"], str)
        self.assertGreaterEqual(error["step"], 0)
        for daemon in (driver, other):  # one message, the same on every rank
            self.assertIn(error["message"], daemon.text)
        return daemons

    # ---- kill -9 of a follower

    def test_follower_killed_while_gathering(self):
        """The place of a follower that left before training is free for another follower."""
        driver = self.driver(n=3)
        victim = self.follower("--rank", "1")
        driver.wait_line("rank 1 joined")
        victim.kill()
        driver.wait_line(r"rank 1 .*left before training began.*its place is free again")
        daemons = [driver, self.follower("--rank", "1"), self.follower("--rank", "2")]
        for daemon in daemons:
            self.assert_exit(daemon, FINISHED)

    def test_follower_killed_while_forming(self):
        self.lose_follower(lambda driver: self.wait_event("form"))

    def test_follower_killed_while_training(self):
        """Rank 0 writes the state that it holds, though no checkpoint was due."""
        failed, _, _ = self.lose_follower(lambda driver: self.wait_event("first_step"))
        saved, = self.events("checkpoint")
        error, = self.events("error")
        self.assertGreater(saved["step"], 0)
        # The lost rank was last heard in that step; rank 0 may have done some more since then.
        self.assertLessEqual(error["step"], saved["step"] + 1)
        self.assertIn(f"to go on from the newest checkpoint, {saved['path']}:", failed.text)

    def test_follower_killed_while_validating(self):
        self.lose_follower(lambda driver: self.wait_phase(driver, "validat"), LONG_VALIDATION)

    def test_checkpoint_survives(self):
        """The last checkpoint is intact, and the command that the driver shows resumes from it."""
        failed, _, _ = self.lose_follower(lambda driver: self.wait_event("checkpoint"),
                                          {**ENDLESS, "data.samples": 2048})
        saved = self.events("checkpoint")[-1]
        path, command = re.search(r"to go on from the newest checkpoint, (\S+): (.*)",
                                  failed.text).groups()
        self.assertEqual(path, saved["path"])
        os.unlink(self.path("port"))
        driver = self.start([*shlex.split(command), "--local", "--set",
                             f"train.epochs={saved['step'] // 32 + 1}"])
        self.assert_exit(driver, FINISHED, "going on with the run")
        self.assertGreater(self.events("done")[-1]["step"], saved["step"])

    def test_follower_killed_at_the_checkpoint(self):
        """A checkpoint follows each epoch's event: the kill hits about then."""
        self.lose_follower(lambda driver: self.wait_event("epoch"),
                           {**ENDLESS, "data.samples": 2048})

    # ---- kill -9 of the driver

    def lose_driver(self, reach, job=ENDLESS):
        driver, *followers = self.start_three({**job, **dp.FORSAKEN})
        reach(driver)
        since = time.monotonic()
        driver.kill()
        self.assert_all_gone(followers, since)
        for follower in followers:
            self.assertRegex(follower.text, r"lost the driver at 127.0.0.1:\d+")

    def test_driver_killed_while_gathering(self):
        driver = self.driver(n=3, job=RIGID)
        follower = self.follower()
        driver.wait_line("rank 1 joined")
        since = time.monotonic()
        driver.kill()
        self.assert_all_gone([follower], since)
        self.assertRegex(follower.text, "lost the driver")

    def test_driver_killed_while_forming(self):
        self.lose_driver(lambda driver: self.wait_event("form"))

    def test_driver_killed_while_training(self):
        self.lose_driver(lambda driver: self.wait_event("first_step"))

    def test_driver_killed_while_validating(self):
        self.lose_driver(lambda driver: self.wait_phase(driver, "validat"), LONG_VALIDATION)

    def test_driver_killed_at_the_checkpoint(self):
        """The job can be resumed, whether the checkpoint was torn or whole."""
        job = {**ENDLESS, "data.samples": 2048}
        self.lose_driver(lambda driver: self.wait_event("epoch", 2), job)
        epochs = self.events("epoch")[-1]["epoch"] + 2
        self.run_driver("--local", "--resume", n=2, job={**job, "train.epochs": epochs})
        self.assertEqual(self.events("done")[-1]["step"], epochs * 32)

    def test_follower_outlives_its_driver(self):
        """Without --once a follower waits for the next driver, which can resume the run."""
        port = dp.free_port()
        follower = self.follower(port=port, once=False)
        driver = self.driver("--port", str(port), n=2, port=False,
                             job={**ENDLESS, **dp.FORSAKEN, "data.samples": 2048})
        self.wait_event("checkpoint")
        driver.kill()
        driver.wait_exit()
        follower.wait_line("lost the driver")
        follower.wait_line("waiting for the next driver")
        epochs = self.events("checkpoint")[-1]["step"] // 32 + 2
        driver = self.driver("--port", str(port), "--resume", n=2, port=False,
                             job={**ENDLESS, "data.samples": 2048, "train.epochs": epochs})
        self.assert_exit(driver, FINISHED)
        self.assertEqual(self.events("done")[-1]["step"], 32 * epochs)
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)

    # ---- at any moment between Hello and the first steps

    MOMENTS = [0.02 * i for i in range(10)]  # seconds after the follower has joined

    def join_and_wait(self, moment):
        """A driver and a follower, this long after the driver let the follower in."""
        run = f"run-{moment:.2f}"
        driver = self.driver("--run-dir", run, n=2, job={**ENDLESS, **RIGID})
        follower = self.follower()
        driver.wait_line("rank 1 joined")
        since = time.monotonic()
        dp.wait_for("the moment", lambda: time.monotonic() > since + moment)
        return driver, follower

    def test_follower_killed_at_any_moment(self):
        """While gathering, the place becomes free; later the job ends and names the rank."""
        for moment in self.MOMENTS:
            with self.subTest(moment=moment):
                driver, follower = self.join_and_wait(moment)
                follower.kill()
                said = driver.wait_line(r"left before training began|error: (.*)")
                if said.group(1):
                    self.assertIn("rank 1", said.group(1))
                    self.assert_exit(driver, FAILED)
                else:
                    driver.signal(signal.SIGTERM)
                    self.assert_exit(driver, STOPPED)

    def test_driver_killed_at_any_moment(self):
        for moment in self.MOMENTS:
            with self.subTest(moment=moment):
                driver, follower = self.join_and_wait(moment)
                since = time.monotonic()
                driver.kill()
                self.assert_all_gone([follower], since)
                self.assertIn("lost the driver", follower.text)

    def test_local_leaves_no_orphans(self):
        driver = self.driver("--local", n=3, job=ENDLESS)
        self.wait_event("first_step")
        self.assertEqual(len(dp.marked(self.mark)), 3)
        os.kill(self.local_pid(2), signal.SIGSTOP)  # this one does not see its driver die
        driver.kill()
        driver.wait_exit()
        dp.wait_for("the followers' end", lambda: not dp.marked(self.mark), SOON)

    def test_local_leaves_no_orphan_that_dials(self):
        """A follower that has not found its driver yet, and would look for it for ever."""
        program = self.copied_driver()
        self.write_follower(program, f'exec {dp.FOLLOWER} "$@" --root 127.0.0.1:1')
        driver = self.start([program, "--local", "--nranks", "2", "--port", "0",
                             *dp.sets(ENDLESS)])
        driver.wait_line("waiting for a driver at 127.0.0.1:1:")
        self.assertEqual(len(dp.marked(self.mark)), 2)
        driver.kill()
        driver.wait_exit()
        dp.wait_for("the follower's end", lambda: not dp.marked(self.mark), SOON)

    def write_follower(self, program, *lines):
        """A dpfollower beside this dpdriver: a shell script."""
        path = os.path.join(os.path.dirname(program), "dpfollower")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(("#!/bin/sh", *lines, "")))
        os.chmod(path, 0o755)

    def test_local_followers_that_fail_at_once(self):
        """Only three are started in place of a killed one, and not one after the other for ever."""
        program, starts = self.copied_driver(), self.path("starts")
        self.write_follower(program, f"echo >>{starts}",
                            f'[ $(wc -l <{starts}) != 1 ] || exec {dp.FOLLOWER} "$@"', "exit 1")
        driver = self.start([program, "--local", "--nranks", "2", "--port", "0",
                             *dp.sets({**ENDLESS, "cluster.replace_timeout": 600})])
        self.wait_event("first_step")
        os.kill(self.local_pid(1), signal.SIGKILL)
        again = "starting another one"
        dp.wait_for("the last start", lambda: driver.text.count(again) > 3 or re.search(
            "3 local followers were replaced within 60 s: no more of them are started",
            driver.text))
        self.assertEqual(driver.text.count(again), 3)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_local_follower_killed(self):
        driver = self.driver("--local", n=3, job={**ENDLESS, **RIGID})
        self.wait_event("first_step")
        since = time.monotonic()
        os.kill(self.local_pid(2), signal.SIGKILL)
        self.assert_all_gone([driver], since)
        self.assertEqual(self.events("error")[0]["rank"], 2)

    # ---- frozen

    def test_follower_frozen(self):
        """After SIGSTOP no connection closes: the missing heartbeats tell."""
        driver, victim, other = self.start_three()
        self.wait_event("first_step")
        since = time.monotonic()
        victim.signal(signal.SIGSTOP)
        self.assert_all_gone([driver, other], since)
        self.assertEqual(self.events("error")[0]["rank"], 1)
        said = re.search(r"no sign of life for (\d+\.\d) s", self.events("lost")[0]["reason"])
        self.assertGreaterEqual(float(said.group(1)), 5)  # cluster.heartbeat_timeout
        victim.signal(signal.SIGCONT)  # it wakes up and finds that it was given up
        self.assert_exit(victim, FAILED)

    def test_driver_frozen_for_a_moment(self):
        """A driver that was suspended does not blame its followers for its own silence."""
        driver = self.driver(n=2, job={**ENDLESS, "cluster.heartbeat_timeout": 30})
        follower = self.follower()
        self.wait_event("first_step")
        driver.signal(signal.SIGSTOP)
        dp.wait_for("SIGSTOP", lambda: dp.is_frozen(driver.pid))
        pause = time.monotonic() + 3
        dp.wait_for("three seconds", lambda: time.monotonic() > pause)
        driver.signal(signal.SIGCONT)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertEqual(self.events("lost"), [])


if __name__ == "__main__":
    dp.main()

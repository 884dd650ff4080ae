"""Runs that are stopped and resumed: SIGTERM, Ctrl-C, --resume, and run directories that exist.
Also the commands that the driver shows at the end, which must work as they stand."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time

import dp
from dp import DRIVER, ENDLESS, FAILED, FINISHED, FOLLOWER, SMALL, STOPPED, USAGE, freezing

JOB = {**ENDLESS, "data.samples": 2048}

IGNORING = ("sh", "-c", 'trap "" INT && exec "$@"', "sh")


class Stop(dp.Case):
    def test_polite(self):
        """All ranks finish the step, save and stop; the driver shows how to resume."""
        driver = self.driver(n=2, job=JOB)
        follower = self.follower()
        self.wait_event("first_step")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, r"SIGTERM: stopping", r"resume with: .*--resume")
        self.assert_exit(follower, STOPPED)
        saved = self.events("checkpoint")[-1]["step"]
        epoch = self.events("epoch")[-1]
        self.assertEqual(epoch["step"], saved)  # also written for an epoch that was cut short
        self.assertGreater(saved, 0)

    def test_a_local_follower_that_is_still_dialing(self):
        """A follower that was to replace another has not found the driver when the job ends.  It is
        stopped, and the driver does not wait for it."""
        driver = self.lost_replacement()
        driver.wait_line("waiting for a driver at 127.0.0.1:1:")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, "dpfollower: warning: stopped by SIGTERM while waiting")
        self.assertNotRegex(driver.text, "does not end")

    def lost_replacement(self):
        """A driver with --local whose first follower was killed; the next one dials elsewhere."""
        program = self.copied_driver()
        with open(self.path("bin/dpfollower"), "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nmkdir {self.path("been")} && exec {FOLLOWER} "$@"\n'
                       f'exec {FOLLOWER} "$@" --root 127.0.0.1:1\n')
        os.chmod(self.path("bin/dpfollower"), 0o755)
        driver = self.start([program, "--local", "--nranks", "2", "--port", "0",
                             *dp.sets({**JOB, "cluster.replace_timeout": 600})])
        self.wait_event("first_step")
        os.kill(self.local_pid(1), signal.SIGKILL)
        return driver

    def test_resume_as_told(self):
        """The command that the driver shows works as it stands, and resumes where it stopped."""
        driver = self.driver("--local", n=2, job=JOB)
        self.wait_event("epoch")
        driver.signal(signal.SIGINT)
        self.assert_exit(driver, STOPPED)
        saved = self.events("checkpoint")[-1]["step"]
        command = re.search(r"resume with: (.*)", driver.text).group(1)
        epochs = saved // 32 + 2
        os.unlink(self.path("port"))
        again = self.start([*shlex.split(command), "--set", f"train.epochs={epochs}"])
        self.assert_exit(again, FINISHED)
        self.assertEqual(self.events("done")[-1]["step"], 32 * epochs)
        self.assertEqual(os.listdir(self.path("runs")), ["demo"])
        steps = [event["step"] for event in self.events("epoch")]
        self.assertEqual(steps, sorted(steps))

    def test_after_a_step(self):
        """train.stop_after stops a job at an epoch's end, too, and the command shown passes it."""
        job = {**JOB, "train.stop_after": 32}
        self.assert_exit(self.driver("--local", n=2, job=job), STOPPED)
        again = self.start([DRIVER, "--local", "--resume", "--run-dir", self.path("runs/demo"),
                            "--port", "0"])
        self.assert_exit(again, STOPPED, "nothing to do: 32 steps are done, and train.stop_after")
        command = re.search(r"resume with: (.*)", again.text).group(1)
        again = self.start([*shlex.split(command), "--set", "train.max_steps=40"])
        self.assert_exit(again, FINISHED)
        self.assertEqual({event["step"] for event in self.events("epoch")}, {32, 40})

    def test_twice(self):
        """A second signal stops at once."""
        driver = self.driver(n=2, job=ENDLESS)
        follower = self.follower()
        self.wait_event("first_step")
        since = time.monotonic()
        driver.signal(signal.SIGTERM)
        driver.signal(signal.SIGINT)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertNotIn("error", driver.text + follower.text)
        self.assertLess(time.monotonic() - since, dp.SOON)
        self.assertEqual(self.left_behind(), {})

    def test_while_gathering(self):
        driver = self.driver(n=2)
        self.wait_port()
        driver.wait_line("listening")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, "before training began")

    def test_ignored_interrupt(self):
        """A shell in a script starts "command &" with SIGINT ignored, which the daemons say."""
        driver = self.driver(n=3, prefix=IGNORING)
        driver.wait_line("SIGINT is ignored, .*; SIGTERM stops the job")
        driver.wait_line("listening")
        follower = self.follower(once=False, prefix=IGNORING)
        follower.wait_line("SIGINT is ignored, .*; SIGTERM stops this follower")
        driver.wait_line("rank 1 joined")  # by then the follower catches SIGTERM
        for daemon in (driver, follower):
            daemon.signal(signal.SIGTERM)
            self.assert_exit(daemon, STOPPED)
        driver = self.driver("--local", n=2, prefix=IGNORING)  # its followers need not say it
        driver.wait_line("listening")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assertEqual(driver.text.count("SIGINT is ignored"), 1)
        driver = self.driver(n=2)
        driver.wait_line("listening")
        driver.signal(signal.SIGINT)
        self.assert_exit(driver, STOPPED)
        self.assertNotIn("SIGINT is ignored", driver.text)

    def test_local_while_gathering(self):
        """Local followers that have not found the driver yet end without a word."""
        driver = self.driver("--local", n=3)
        driver.wait_line("run directory")
        driver.signal(signal.SIGINT)
        self.assert_exit(driver, STOPPED, "before training began")
        wrong = self.run_driver("--local", n=3, status=USAGE,
                                job={"data.format": "mnist", "data.path": "nowhere"})
        for text in (driver.text, wrong.text):
            self.assertNotIn("does not end", text)
        self.assertEqual(self.left_behind(), {})

    def test_local_follower_is_stopped_first(self):
        """A batch system signals all processes at once.  A follower that does not catch signals yet
        ends before the driver gets its own: then the job was stopped, and has not failed.
        """
        program = self.copied_driver()
        for number, status in ((signal.SIGTERM, STOPPED), (signal.SIGKILL, FAILED)):
            with open(self.path("bin/dpfollower"), "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\nkill -{number} $$\n")
            os.chmod(self.path("bin/dpfollower"), 0o755)
            driver = self.start([program, "--local", "--nranks", "2", "--port", "0",
                                 *dp.sets(SMALL)])
            self.assert_exit(driver, status, rf"rank 1 was killed by {number.name} before training")
            self.assertEqual("error" in driver.text, status == FAILED)
            self.assertFalse(os.path.exists(self.path("runs")))

    def test_resume_without_checkpoint(self):
        """If a run ended before its first checkpoint, --resume starts from step 0."""
        def gathering(driver):
            driver.wait_line("run directory")
            driver.signal(signal.SIGINT)

        def twice(driver):
            self.wait_event("inject", run=driver.run)
            driver.signal(signal.SIGTERM)
            driver.wait_line("SIGTERM: stopping after this step")
            driver.signal(signal.SIGINT)

        def killed(driver):
            self.wait_event("inject", run=driver.run)
            driver.kill()

        job = {**JOB, "cluster.deadlines.step": 600}
        held = ("--inject", "delay:rank0@step3:3600s")  # no test waits for the end of this step
        begins = "the run has no checkpoint yet: starting from the beginning"
        for name, n, end, status, then, found in (
                ("gathering", 2, gathering, STOPPED, USAGE, "there is no run in gathering"),
                ("twice", 1, twice, STOPPED, FINISHED, begins),
                ("killed", 1, killed, -signal.SIGKILL, FINISHED, begins)):
            with self.subTest(name):
                driver = self.driver("--run-dir", name, *held, n=n, job=job)
                driver.run = name
                end(driver)
                self.assert_exit(driver, status)
                self.assertEqual(self.events("checkpoint", name), [])
                self.assertEqual(os.path.exists(self.path(name)), name != "gathering")
                self.assertEqual(os.path.exists(self.path(name, "checkpoints")), name == "killed")
                again = self.run_driver("--run-dir", name, "--resume", status=then,
                                        job={**job, "train.max_steps": 3})
                self.assertIn(found, again.text)
                if then == FINISHED:
                    self.assertEqual(self.events("done", name)[-1]["step"], 3)

    def test_resume_damaged(self):
        """--resume does not start from step 0 if all checkpoints are damaged."""
        self.run_driver(job={**SMALL, "train.epochs": 1})
        os.unlink(self.path("runs/demo/checkpoints/latest/state.json"))
        driver = self.run_driver("--resume", status=USAGE)
        self.assertIn("holds no complete checkpoint (1 looked at)", driver.text)

    def test_follower_stopped(self):
        """A follower that no other may replace gets SIGTERM: the job ends and names it."""
        driver = self.driver(n=3, job={**ENDLESS, **dp.RIGID})
        one, two = self.follower("--rank", "1"), self.follower("--rank", "2")
        self.wait_event("first_step")
        one.signal(signal.SIGTERM)
        self.assert_exit(one, STOPPED)
        self.assert_exit(driver, dp.FAILED, "rank 1")
        self.assert_exit(two, dp.FAILED, "rank 1")

    def in_terminal(self, *args, job):
        """Starts a driver in a terminal of its own; returns its pid and the terminal's master."""
        pid, master = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.folder)
                os.execve(DRIVER, [DRIVER, *args, "--port", "0", *dp.sets(job)],
                          {**self.env, "TERM": "xterm"})
            finally:
                os._exit(127)
        return pid, master

    def test_ctrl_c(self):
        """With --local in a terminal, Ctrl-C reaches only the driver, which stops all followers."""
        pid, master = self.in_terminal("--nranks", "2", "--local", job=JOB)
        terminal = Terminal(master)
        dp.wait_for("the live line", lambda: terminal.shows("ETA"))
        os.write(master, b"\x03")
        status = terminal.wait(pid)
        text = terminal.text
        os.close(master)
        self.assertEqual(status, STOPPED, text)
        self.assertIn("SIGINT: stopping", text)
        self.assertRegex(text, r"\r\x1b\[Kepoch \d+/100000  step \d+/\d+  loss ")
        self.assertNotIn("lost", text)
        for line in re.findall(r"(?m)^.*dpfollower: .*$", text):  # its lines stand alone
            self.assertRegex(line, r"^(.*\x1b\[K)?dpfollower: ")
        self.assertEqual(self.left_behind(), {})
        self.assertGreater(self.events("checkpoint")[-1]["step"], 0)

    def test_live_line_is_calm(self):
        """The live line is written at most five times a second, and erased at the end."""
        since = time.monotonic()
        pid, master = self.in_terminal("--nranks", "1", job={**SMALL, "train.epochs": 5})
        terminal = Terminal(master)
        status = terminal.wait(pid)
        seconds = time.monotonic() - since
        os.close(master)
        self.assertEqual(status, FINISHED, terminal.text)
        self.assertLessEqual(terminal.text.count("ETA"), 5 * seconds + 2)
        self.assertNotIn("ETA", terminal.text.rsplit("\x1b[K", 1)[1])


class Terminal:
    """The master side of a pty."""

    def __init__(self, master):
        self.master = master
        self.text = ""

    def read(self):
        """Reads some text; False if there is none."""
        ready, _, _ = select.select([self.master], [], [], 0.05)
        try:
            part = os.read(self.master, 65536) if ready else b""
        except OSError:  # EIO: no process has the other side open any more
            part = b""
        self.text += part.decode(errors="replace")
        return part != b""

    def shows(self, word):
        self.read()
        return word in self.text

    def wait(self, pid):
        """Reads until the process has ended, and returns its exit status."""
        got = []

        def ended():
            self.read()
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                got.append(os.waitstatus_to_exitcode(status))
            return done

        try:
            dp.wait_for("the end of the driver", ended)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        while self.read():
            pass
        return got[0]


class RunDirectories(dp.Case):
    def test_numbered(self):
        for name in ("demo", "demo-2", "demo-3"):
            driver = self.run_driver(job={**SMALL, "train.epochs": 1})
            self.assertIn(f"run directory: runs/{name}", driver.text)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["demo", "demo-2", "demo-3"])
        driver = self.run_driver("--resume", job=SMALL)
        self.assertIn("going on with the run in runs/demo-3", driver.text)

    def test_explicit(self):
        self.run_driver("--run-dir", "mine", job={**SMALL, "train.epochs": 1})
        self.run_driver("--run-dir", "mine", status=USAGE)
        driver = self.run_driver("--run-dir", "mine", "--resume")
        self.assertIn("going on", driver.text)
        self.assertEqual([event["epoch"] for event in self.events("epoch", "mine")], [1, 2])

    def test_number_of_ranks(self):
        """Without --nranks a run goes on with the ranks that it was last started with, or where its
        events are gone, with those that wrote its newest checkpoint."""
        def resume(*words):
            return self.start([DRIVER, "--resume", "--run-dir", "mine", "--port", "0", *words])

        self.run_driver("--run-dir", "mine", job={**SMALL, "train.epochs": 1})
        self.assert_exit(resume("--set", "train.epochs=2"), FINISHED)
        self.run_driver("--run-dir", "mine", "--resume", "--local", n=2, job={"train.epochs": 3})
        self.assert_exit(resume("--local", "--set", "train.epochs=4"), FINISHED,
                         "the run in mine was started with 2 ranks, and so is this one")
        self.assertEqual([event["nranks"] for event in self.events("start", "mine")], [1, 1, 2, 2])
        os.unlink(self.path("mine/events.jsonl"))
        checked = resume("--check")
        self.assert_exit(checked, FINISHED, "--local starts the others on this machine")
        self.assertRegex(checked.out, r"\nranks +2,")
        self.assert_exit(resume("--check", "--set", "cluster.min_ranks=3"), FINISHED)

    def test_two_drivers(self):
        first = self.driver("--run-dir", "mine", job=ENDLESS)
        self.wait_event("first_step", run="mine")
        second = self.start([DRIVER, "--nranks", "1", "--port", "0", "--run-dir", "mine",
                             "--resume", *dp.sets(ENDLESS)])
        self.assert_exit(second, USAGE, "another dpdriver is using it")
        first.signal(signal.SIGTERM)
        self.assert_exit(first, STOPPED)

    def test_resume_other_job(self):
        """--resume refuses a job whose results would differ; settings such as keep may change."""
        self.run_driver(job={**SMALL, "train.epochs": 1})
        with open(self.path("runs/demo/owner"), encoding="utf-8") as file:
            owner = file.read()
        driver = self.run_driver("--resume", job={**SMALL, "optimizer.lr": 0.0625}, status=USAGE)
        self.assertRegex(driver.text, r"optimizer.lr.*0.0625")
        with open(self.path("runs/demo/owner"), encoding="utf-8") as file:
            self.assertEqual(file.read(), owner, "a start that is refused takes the run")
        self.run_driver("--resume", job={**SMALL, "checkpoint.keep": 7})
        self.assertEqual(self.events("done")[-1]["step"], 64)

    def test_resume_under_another_strategy(self):
        """One event names both strategies, what is dropped and what begins anew; job.yaml has the
        new one, so a second resume tells nothing."""
        self.run_driver("--local", n=2,
                        job={**SMALL, "train.epochs": 1, "strategy.name": "local_sgd",
                             "strategy.outer": "nesterov"})
        for epochs, n in ((2, 3), (3, 1)):
            self.run_driver("--local", "--resume", n=n,
                            job={**SMALL, "train.epochs": epochs, "strategy.name": "allreduce",
                                 "strategy.compress": "onebit"})
        told = [(event["step"], event["message"]) for event in self.events("warning")]
        self.assertEqual(told, [(
            32, "resume: strategy was {name: local_sgd, outer: nesterov} and is now "
            "{name: allreduce, compress: onebit}; dropped from the checkpoint: outer_parameters, "
            "outer_momentum_buffer, outer_start_taken; not in the checkpoint, so begun as in a new "
            "run: error")])
        losses = [event["validation_loss"] for event in self.events("epoch")]
        self.assertEqual([event["step"] for event in self.events("epoch")], [32, 64, 96])
        self.assertLess(losses[2], losses[0])

    def write_job(self, name, file_name=None):
        with open(self.path(file_name or name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(f"name: {name}\nmodel: {{arch: mlp}}\n"
                       "data: {format: digits, samples: 2048, validation_samples: 64}\n"
                       "train: {global_batch: 64, epochs: 1}\n")

    def test_resume_nothing(self):
        """--resume with --job starts a run that does not exist yet; without --job it refuses."""
        self.write_job("mine")
        driver = self.run_driver("--resume", "--job", "mine.yaml", job=None)
        self.assertIn("there is no run in runs/mine yet", driver.text)
        for args in (["--resume"], ["--resume", "--run-dir", "runs/typo"]):
            driver = self.run_driver(*args, status=USAGE)
            self.assertRegex(driver.text, r"there is no run in runs/(demo|typo) \(no job.yaml\)")
        self.assertEqual(os.listdir(self.path("runs")), ["mine"])

    def test_stop_among_checkpoints(self):
        """A run that is stopped while checkpoints are written has its last step on disk."""
        driver = self.driver("--local", n=2, job={**JOB, "checkpoint.every_steps": 1})
        self.wait_event("checkpoint", 3)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        step = int(re.search(r"stopped by SIGTERM after step (\d+)", driver.text).group(1))
        written = self.events("checkpoint")
        self.assertEqual(written[-1]["step"], step)
        self.assertEqual([event["step"] for event in written],
                         sorted({event["step"] for event in written}))
        for event in written:
            self.assertGreater(min(event["exposed_seconds"], event["seconds"]), 0)
        self.assertEqual(os.readlink(self.path("runs/demo/checkpoints/latest")),
                         f"step-{step:08}")
        self.run_driver("--local", "--resume", n=2,
                        job={**JOB, "train.max_steps": 0, "train.epochs": 1 + step // 32})

    def test_check_resume(self):
        """--check says what --resume would do: resume from a step, start, or refuse and why."""
        job = {**SMALL, "train.epochs": 1}
        self.write_job("mine")
        driver = self.run_driver("--check", "--resume", "--job", "mine.yaml", "--run-dir", "nosuch",
                                 job=None)
        self.assertIn("there is no run in nosuch yet: it would start from the beginning",
                      driver.text)
        self.run_driver(job=job)
        driver = self.run_driver("--check", "--resume", job=job)
        self.assertRegex(driver.out, r"would go on +in runs/demo, from step 32\n")
        driver = self.run_driver("--check", "--resume", job={**job, "optimizer.lr": 0.0625},
                                 status=USAGE)
        self.assertRegex(driver.text, r"--resume in runs/demo: .*optimizer.lr")
        os.unlink(self.path("runs/demo/checkpoints/latest/state.json"))
        driver = self.run_driver("--check", "--resume", job=job, status=USAGE)
        self.assertIn("holds no complete checkpoint (1 looked at)", driver.text)
        self.assertEqual(os.listdir(self.path("runs")), ["demo"])

    def test_resume_own_job(self):
        """Without --job, --resume takes the run's own job.yaml, of --run-dir or runs/NAME."""
        self.write_job("mine")
        for n in (1, 2):
            self.run_driver("--job", "mine.yaml", job=None)
        self.run_driver("--resume", "--run-dir", "runs/mine", job={"train.epochs": 2})
        self.run_driver("--resume", job={"name": "mine", "train.epochs": 2})
        for run in ("runs/mine", "runs/mine-2"):
            self.assertEqual(self.events("done", run)[-1]["step"], 64)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["mine", "mine-2"])

    def run_next(self, driver):
        """Runs the command that the closing table shows, as it stands."""
        command = re.search(r"(?m)^next +(.*)", driver.out).group(1)
        if os.path.exists(self.path("port")):
            os.unlink(self.path("port"))
        again = self.start(["sh", "-c", command])
        self.assert_exit(again, FINISHED)
        return again

    def test_next_longer(self):
        """The next command of a run with its own settings goes on for twice as many epochs."""
        self.write_job("mine", "it's.yaml")
        job = {"train.global_batch": 32, "train.max_steps": 40, "optimizer.lr": 0.0625}
        driver = self.run_driver("--job", "it's.yaml", "--set=name=other", "--run-d", "a run",
                                 "--local", n=2, job=job)
        self.assertEqual(self.events("done", "a run")[-1]["step"], 40)
        again = self.run_next(driver)
        self.assertEqual(self.events("done", "a run")[-1]["step"], 80)
        self.run_next(again)  # of the command that was shown by the command that was shown
        self.assertEqual(self.events("done", "a run")[-1]["step"], 160)
        self.assertEqual(len(re.findall("max_steps", again.out)), 1)

    def test_next_own_data(self):
        """The next command of the demo works once FOLDER is a folder with MNIST's files."""
        source = os.environ.get("DPTRAIN_DATA", os.path.join(dp.ROOT, "../shared/data"))
        if not os.path.isdir(os.path.join(source, "mnist")):
            self.skipTest(f"no MNIST in {source}")
        os.symlink(os.path.abspath(os.path.join(source, "mnist")), self.path("FOLDER"))
        driver = self.run_driver("--run-dir", "runs/one", job={**SMALL, "train.max_steps": 5})
        again = self.run_next(driver)
        self.assertRegex(again.out, r"(?m)^accuracy ")  # with validation
        self.assertEqual(self.events("done")[-1]["step"], 5)

    def test_resume_finished(self):
        """Nothing is left to do: the driver says so, shows the model, records the end."""
        self.run_driver(job={**SMALL, "train.epochs": 1})
        driver = self.run_driver("--resume", "--local", n=2, job={**SMALL, "train.epochs": 1})
        self.assertRegex(driver.text, r"nothing to do: 32 steps are done, and train.epochs is 1 "
                                      r"\(of 32 steps each\); raise it to go on")
        self.assertIn("--set train.epochs=2\n", driver.out)
        self.assertNotIn("warning", driver.text)
        model = re.search(r"(?m)^model +(\S+)", driver.out).group(1)
        self.assertEqual(model, "runs/demo/checkpoints/step-00000032/model.safetensors")
        self.assertTrue(os.path.isfile(self.path(model)))
        self.assertEqual([event["step"] for event in self.events("done")], [32, 32])

    def test_diverged(self):
        """A run that diverged is not told to go on from its checkpoint, which ends alike."""
        driver = self.run_driver(job={**SMALL, "model.hidden": "[128,64]", "optimizer.lr": 1e6},
                                 status=FAILED)
        saved = self.events("checkpoint")[-1]["path"]
        self.assertRegex(driver.text, rf"going on from {saved} would end alike; a new run with a "
                         rf"lower rate: .* --set optimizer.lr=1e\+05 .*init.path={saved}/model")
        self.assertNotIn("--resume", driver.text.split("would end alike")[1])

    def test_resume_torn_record(self):
        self.run_driver(job={**SMALL, "train.epochs": 1})
        with open(self.path("runs/demo/events.jsonl"), "a", encoding="ascii") as file:
            file.write('{"event":"epo')
        driver = self.run_driver("--resume")
        self.assertIn("a torn last line of 13 bytes is cut", driver.text)
        self.assertEqual([event["epoch"] for event in self.events("epoch")], [1, 2])

    def test_resume_other_ranks(self):
        """A run resumes with another number of ranks where it stopped, also within an epoch."""
        job = {**SMALL, "train.epochs": 3}
        self.run_driver("--local", n=2, job={**job, "train.max_steps": 40})
        self.assertEqual(self.events("epoch")[-1]["step"], 40)
        self.run_driver("--local", "--resume", n=3, job={**job, "train.max_steps": 0})
        self.assertEqual(self.events("done")[-1]["step"], 96)
        self.run_driver("--run-dir", "whole", job=job)
        resumed, whole = self.events("done")[-1], self.events("done", "whole")[-1]
        self.assertLess(abs(resumed["validation_loss"] - whole["validation_loss"]),
                        0.02 * whole["validation_loss"] + 0.02)

    def test_resume_bit_for_bit(self):
        """A run that was stopped and resumed has the same bytes as an uninterrupted run."""
        job = {**SMALL, "train.epochs": 3}
        self.run_driver("--threads", "1", "--run-dir", "cut", job={**job, "train.max_steps": 40})
        self.run_driver("--threads", "1", "--run-dir", "cut", "--resume",
                        job={**job, "train.max_steps": 0})
        self.run_driver("--threads", "1", "--run-dir", "whole", job=job)
        models = []
        for run in ("cut", "whole"):
            with open(self.path(run, "checkpoints/latest/model.safetensors"), "rb") as file:
                models.append(file.read())
        self.assertEqual(*models)


class DiskFull(dp.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("mounting a small tmpfs needs root")
        os.mkdir(self.path("small"))
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs",
                                self.path("small")], capture_output=True, text=True, check=False)
        if mount.returncode != 0:
            self.skipTest(f"mounting a tmpfs: {mount.stderr}")

    def tearDown(self):
        if os.path.ismount(self.path("small")):
            for pid in dp.marked(self.mark):
                os.kill(pid, signal.SIGKILL)
            for daemon in self.daemons:
                daemon.wait_exit()
            subprocess.run(["umount", "-l", self.path("small")], check=True)
        super().tearDown()

    def start_driver(self, *args, n=1, job=JOB):
        """A driver that is frozen before any checkpoint, on a disk with room for events only."""
        driver = self.driver("--run-dir", "small/run", *freezing(0, 20), *args, n=n,
                             job={**job, **dp.PATIENT})
        self.wait_frozen(driver.pid, run="small/run")
        stat = os.statvfs(self.path("small"))
        with open(self.path("small", "filler"), "wb") as file:
            file.write(b"\0" * (stat.f_bavail * stat.f_frsize - (128 << 10)))
        return driver

    def test_goes_on_without(self):
        """A checkpoint that cannot be written is an error event; the last checkpoint is written."""
        driver = self.start_driver("--local", n=2)
        driver.signal(signal.SIGCONT)
        error = self.wait_event("error", run="small/run")
        self.assertEqual(error["phase"], "checkpoint")
        self.assertRegex(error["message"], r"^the checkpoint of step \d+ could not be written: "
                                           r"\S*/checkpoints/\S+: .*No space left")
        os.unlink(self.path("small", "filler"))
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assertEqual(self.events("checkpoint", "small/run")[-1]["step"],
                         self.events("epoch", "small/run")[-1]["step"])

    def test_last_is_missing(self):
        driver = self.start_driver(job={**JOB, "train.epochs": 10})
        driver.signal(signal.SIGCONT)
        self.assert_exit(driver, dp.FAILED, r"No space left")
        self.assertRegex(self.last_error(driver),
                         r"error: trained to step 320, but the final checkpoint could not be "
                         r"written: \S*/checkpoints/\S+: .*No space left")

    def test_stopped_without(self):
        driver = self.start_driver()
        driver.signal(signal.SIGTERM)
        driver.signal(signal.SIGCONT)
        self.assert_exit(driver, dp.FAILED)
        self.assertRegex(self.last_error(driver),
                         r"error: stopped by SIGTERM after step \d+, and the checkpoint could not "
                         r"be written: .*No space left")

    @staticmethod
    def last_error(daemon):
        return [line for line in daemon.lines if line and "error:" in line][-1]


if __name__ == "__main__":
    dp.main()

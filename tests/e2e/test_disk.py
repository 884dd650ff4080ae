"""Disks that hang or are full, and terminals that nobody reads: training goes on, nobody is lost,
and the record says afterwards what it lacks.

A disk hangs by the library DPTRAIN_HANG_LIBRARY, which is preloaded into a daemon (hang.c)."""

import fcntl
import os
import resource
import signal
import subprocess
import time

import dp
from dp import DRIVER, FAILED, FINISHED, FOLLOWER, STOPPED

# With the demo's network, whose checkpoints fill a disk and whose steps fill no record meanwhile.
SMALL, ENDLESS = ({key: value for key, value in job.items() if key not in dp.LIGHT}
                  for job in (dp.SMALL, dp.ENDLESS))
LIBRARY = os.environ.get("DPTRAIN_HANG_LIBRARY")
# Longer than a rank may be silent in these jobs.
QUICK = {"cluster.heartbeat_timeout": 2}
HANG = 5
DIVIDED = {"strategy.zero": 1, "optimizer.momentum": 0.9}
# No checkpoint is written during training, and epochs are short.
EPOCHS = {**ENDLESS, **QUICK, "data.samples": 640, "checkpoint.every_epochs": 0}


def read_some(pipe):
    try:
        return os.read(pipe, 1 << 20).decode(errors="replace")
    except BlockingIOError:
        return ""


class Disk(dp.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("disk"))
        self.is_mounted = False

    def tearDown(self):
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.path("disk")], check=True)
        super().tearDown()

    def test_file_size_limit(self):
        """A file may not be as large as a checkpoint (ulimit -f).  The driver says so, as of a full
        disk, and trains on."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))

        driver = self.driver(job=SMALL, preexec_fn=limit)
        self.assert_exit(driver, FAILED, r"model.safetensors.*File too large",
                         r"trained to step 64, but the final checkpoint could not be written")
        self.assertEqual(len(self.events("epoch")), 2)

    # ---- a disk that hangs

    def hang(self):
        with open(self.path("disk/hangs"), "w", encoding="ascii"):
            pass

    def mend(self):
        os.unlink(self.path("disk/hangs"))

    def start_hanging(self, job, *args, n=2):
        """A driver whose run directory is on a disk that can hang."""
        if not LIBRARY:
            self.skipTest("a library cannot be preloaded under a sanitizer")
        return self.driver("--run-dir", self.path("disk/run"), *args, n=n, job=job,
                           env={"LD_PRELOAD": LIBRARY, "DPTRAIN_HANG": self.path("disk/hangs")})

    def step(self):
        """The step that the driver tells by --status, and so that its loop lives."""
        asked = subprocess.run([DRIVER, "--status", "--run-dir", self.path("disk/run"),
                                "--log-format", "json"], capture_output=True, text=True,
                               check=True, env=self.env, timeout=dp.PATIENCE)
        return max(rank.get("step") or 0 for rank in dp.json.loads(asked.stdout)["ranks"])

    def run_events(self, kind=None):
        return self.events(kind, "disk/run")

    def test_training_goes_on(self):
        """The disk hangs for longer than a rank may be silent; no event is lost."""
        driver = self.start_hanging(EPOCHS)
        follower = self.follower()
        self.wait_event("epoch", 2, run="disk/run")
        self.hang()
        n_events = len(self.run_events())
        start = time.monotonic()
        step = self.step()
        driver.wait_line(r"warning: \S+disk/run: the disk has not answered for \d+ s")
        dp.wait_for("steps", lambda: time.monotonic() - start > HANG and self.step() > step + 20)
        self.assertLessEqual(len(self.run_events()), n_events + 1)
        self.mend()
        driver.wait_line(r"the disk answers again, after \d+ s")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertEqual(self.run_events("lost") + self.run_events("warning"), [])
        epochs = [event["epoch"] for event in self.run_events("epoch")]
        self.assertEqual(epochs, list(range(1, len(epochs) + 1)))

    def test_recovery(self):
        """A rank is lost while the disk hangs: the others go on, and the incident's file and the
        events are written once the disk answers."""
        job = {**EPOCHS, "cluster.min_ranks": 2, "cluster.replace_timeout": 1}
        driver = self.start_hanging(job, n=3)
        followers = [self.follower("--rank", str(k)) for k in (1, 2)]
        self.wait_event("epoch", 1, run="disk/run")
        self.hang()
        step = self.step()
        followers[0].signal(signal.SIGSTOP)
        driver.wait_line(r"warning: rank 1 .* is in ")
        dp.wait_for("steps of the ranks that are left", lambda: self.step() > step + 20)
        self.mend()
        self.wait_event("recovered", run="disk/run")
        driver.wait_line(r"what the ranks did last is in \S+incident-1.json")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(followers[1], STOPPED)
        self.assertEqual([event["rank"] for event in self.run_events("lost")], [1])
        followers[0].kill()

    def test_end(self):
        """A disk that never answers does not keep the job: the driver ends, and says why."""
        job = {**EPOCHS, "cluster.deadlines.checkpoint": 3}
        driver = self.start_hanging(job)
        follower = self.follower()
        self.wait_event("epoch", 1, run="disk/run")
        self.hang()
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, FAILED, "the disk hangs")
        self.assert_exit(follower, FAILED)
        self.mend()

    # ---- a terminal that nobody reads

    def start_unread(self, argv):
        """A daemon whose standard error is a pipe that is nearly full and that nobody reads.
        Returns the daemon and the pipe."""
        name = self.path(f"pipe-{len(self.daemons)}")
        os.mkfifo(name)
        pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        self.addCleanup(os.close, pipe)
        with open(name, "w", encoding="ascii") as file:
            file.write("x" * 4000 + "\n")
        return self.start(["/bin/sh", "-c", 'exec "$@" 2>' + name, "sh", *argv]), pipe

    def test_unread_terminals(self):
        """Nobody reads what driver and follower write: they train on, and end when they are
        told to."""
        driver, pipe = self.start_unread(
            [DRIVER, "--nranks", "3", "--port", "0", "--port-file", self.path("port"),
             *dp.sets(EPOCHS)])
        unread, other_pipe = self.start_unread(
            [FOLLOWER, "--root", f"127.0.0.1:{self.wait_port()}", "--once"])
        follower = self.follower()
        self.wait_event("epoch", 1)
        until = time.monotonic() + HANG
        while time.monotonic() < until:
            for daemon in (driver, unread):
                daemon.signal(signal.SIGUSR1)
            time.sleep(0.02)
        n_epochs = len(self.events("epoch"))
        self.wait_event("epoch", n_epochs + 2)
        text = read_some(pipe)
        self.assertTrue(text.startswith("x" * 4000))
        dp.wait_for("the later lines", lambda: f"epoch {n_epochs}/" in read_some(pipe))
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)  # although nobody reads now
        self.assert_exit(unread, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertEqual(self.events("lost"), [])
        self.assertTrue(read_some(other_pipe).startswith("x" * 4000))

    # ---- a disk that is full

    def mount(self):
        """A disk of 4 MiB for run directories."""
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "disk",
                                  self.path("disk")], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("a small file system needs the right to mount one")
        self.is_mounted = True

    def fill(self):
        """Takes all space, and returns the file that has it."""
        filler = self.path("disk/filler")
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                return filler
        raise AssertionError("the disk is not full")

    def test_full(self):
        """The disk is full for a while: checkpoints and events are missing, which the record tells
        of, and training goes on; once there is room, checkpoints are written again."""
        self.mount()
        job = {**ENDLESS, **QUICK, "data.samples": 640, "checkpoint.keep": 1}
        driver = self.driver("--run-dir", self.path("disk/run"), n=2, job=job)
        follower = self.follower()
        self.wait_event("checkpoint", 2, run="disk/run")
        filler = self.fill()
        driver.wait_line(r"checkpoint of step \d+ could not be written: .*No space left on device")
        driver.wait_line(r"events.jsonl: an event could not be written: ")
        epoch = int(driver.wait_line(r"epoch (\d+)/", start=len(driver.lines)).group(1))
        os.unlink(filler)
        driver.wait_line(rf"epoch {epoch + 2}/")
        dp.wait_for("a checkpoint after the full disk", lambda: any(
            event["event"] == "checkpoint" for event in self.after_gap()))
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertEqual(self.run_events("lost"), [])

    # ---- a folder that moves

    def test_moved(self):
        """The run directory is moved while the job runs: that is told, and once it is back,
        checkpoints are written again.  No command at the end names a folder that is not there."""
        gone = r"checkpoint of step \d+ could not be written: run directory run is gone \(moved"
        driver = self.driver("--run-dir", "run", job={**ENDLESS, "data.samples": 640})
        self.wait_event("checkpoint", run="run")
        os.rename(self.path("run"), self.path("away"))
        driver.wait_line(gone)
        os.rename(self.path("away"), self.path("run"))
        self.wait_event("checkpoint", len(self.events("checkpoint", "run")) + 1, run="run")
        os.rename(self.path("run"), self.path("away"))
        driver.wait_line(gone, start=len(driver.lines))
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, FAILED, r"stopped by SIGTERM .*: run directory run is gone",
                         r"run directory run is gone .*: to go on, move it back")
        self.assertNotIn("--resume --run-dir run", driver.text)

    def test_moved_and_stopped_at_once(self):
        driver = self.driver("--run-dir", "run", n=2, job={**ENDLESS, "data.samples": 640})
        follower = self.follower()
        self.wait_event("checkpoint", run="run")
        os.rename(self.path("run"), self.path("away"))
        driver.wait_line(r"run directory run is gone")
        follower.signal(signal.SIGSTOP)  # so the driver cannot end its step
        driver.signal(signal.SIGTERM)
        driver.wait_line("SIGTERM: stopping")
        driver.signal(signal.SIGINT)
        self.assert_exit(driver, STOPPED, r"was written as run/.*, and its run directory is gone")
        self.assertNotIn("--resume --run-dir run", driver.text)
        follower.kill()

    def test_moved_and_replaced(self):
        """The run directory is moved, and a new run takes its name: the first driver says that, and
        not that another one leads its run."""
        driver = self.driver("--run-dir", "run", job={**ENDLESS, "data.samples": 640})
        self.wait_event("checkpoint", run="run")
        os.rename(self.path("run"), self.path("away"))
        other = self.driver("--run-dir", "run", job={**ENDLESS, "data.samples": 640})
        self.assert_exit(driver, FAILED, r"error: this run's directory was moved or removed, and a "
                                         r"new run has its name now .*this one ends")
        self.assertNotIn("another driver leads this run", driver.text)
        other.signal(signal.SIGTERM)
        self.assert_exit(other, STOPPED)

    # ---- a disk without links

    def test_without_links(self):
        """A disk such as exFAT has text files in the places of links, which is told at the start
        and by --check.  Nothing else is different: the best is found, old ones are removed, and a
        run that is stopped where it went on writes its step's checkpoint again."""
        if not LIBRARY:
            self.skipTest("a library cannot be preloaded under a sanitizer")
        told = r"the file system of run has no symbolic links"
        job = {**SMALL, "train.epochs": 3, "checkpoint.keep": 1,
               "train.best.metric": "validation_loss"}
        env = {"LD_PRELOAD": LIBRARY, "DPTRAIN_NO_LINKS": "1"}
        self.assert_exit(self.driver("--check", "--run-dir", "run", job=job, env=env), FINISHED,
                         told)
        self.assertFalse(os.path.exists(self.path("run")))
        driver = self.driver("--run-dir", "run", job=job, env=env)
        self.assert_exit(driver, FINISHED, told)
        self.assertEqual([event["step"] for event in self.events("checkpoint", "run")],
                         [32, 64, 96])
        self.assertEqual(len(self.events("warning", "run")), 1)
        losses = {event["step"]: event["validation_loss"] for event in self.events("epoch", "run")}
        best = min(losses, key=losses.get)
        names = {"latest": "step-00000096", "best": f"step-{best:08}"}
        self.assertEqual(set(os.listdir(self.path("run/checkpoints"))),
                         {*names, *names.values()})
        for link, name in names.items():
            with open(self.path("run/checkpoints", link), encoding="ascii") as file:
                self.assertEqual(file.read(), name + "\n")
            for where in (["--checkpoint", f"run/checkpoints/{link}"],
                          ["--run-dir", "run", "--checkpoint", link]):
                daemon = self.start([DRIVER, "--evaluate", *where], env=env)
                self.assert_exit(daemon, FINISHED)
                self.assertIn(f"checkpoints/{name}: validation loss", daemon.out)
        driver = self.driver("--resume", "--run-dir", "run", job={**job, "train.epochs": 100000},
                             env=env)
        driver.wait_line("going on with the run")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assertEqual(self.events("error", "run"), [])

    # ---- a state that all ranks write

    def files(self, run):
        """The files of the newest checkpoint."""
        folder = self.path(run, "checkpoints", "latest")
        return {name: open(os.path.join(folder, name), "rb").read()
                for name in ("model.safetensors", "optimizer.safetensors")}

    def run_divided(self, run, *command):
        """Two ranks whose state is divided; the command starts the follower."""
        driver = self.driver("--run-dir", self.path(run), "--threads", "1", n=2,
                             job={**SMALL, **DIVIDED})
        follower = self.start([*command, FOLLOWER, "--once", "--threads", "1", "--root",
                               f"127.0.0.1:{self.wait_port()}"])
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        self.assertEqual([event["step"] for event in self.events("checkpoint", run)][-1], 64)
        self.assertEqual(self.events("error", run), [])
        return self.files(run)

    def test_other_disk(self):
        """A follower that sees an empty folder where the driver has its run directory, as one on
        another machine does, passes its part to the driver.  The checkpoint is the same."""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("another view of the disk needs the right to unshare it")
        os.mkdir(self.path("far"))
        near = self.run_divided("disk/run")
        far = self.run_divided("far/run", "unshare", "-m", "sh", "-c",
                               f'mount -t tmpfs far {self.path("far")} && exec "$@"', "sh")
        self.assertEqual(near, far)

    def test_full_for_all(self):
        """As test_full, where both ranks write.  The follower may be the one that finds no
        room."""
        self.mount()
        driver = self.driver("--run-dir", self.path("disk/run"), n=2,
                             job={**ENDLESS, **DIVIDED, "data.samples": 640, "checkpoint.keep": 1})
        follower = self.follower()
        self.wait_event("checkpoint", 2, run="disk/run")
        filler = self.fill()
        driver.wait_line(r"checkpoint of step \d+ could not be written: .*No space left on device")
        epoch = int(driver.wait_line(r"epoch (\d+)/", start=len(driver.lines)).group(1))
        os.unlink(filler)
        driver.wait_line(rf"epoch {epoch + 2}/")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(follower, STOPPED)
        self.assertEqual(self.run_events("lost"), [])
        self.assertEqual([name for name in os.listdir(self.path("disk/run/checkpoints"))
                          if name.endswith(".tmp")], [])

    # ---- looking

    def after_gap(self):
        """The events after the warning that some are missing."""
        events = self.run_events()
        gaps = [i for i, event in enumerate(events)
                if "lines are missing here" in event.get("message", "")]
        return events[gaps[-1]:] if gaps else []


if __name__ == "__main__":
    dp.main()

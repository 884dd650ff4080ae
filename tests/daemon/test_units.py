#!/usr/bin/env python3
"""The systemd units: systemd-analyze accepts them, and their commands run under a stand-in for
systemd, which hears READY, STATUS, WATCHDOG and STOPPING."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import dp  # noqa: E402
from dp import DRIVER, FOLLOWER, FINISHED, STOPPED  # noqa: E402

UNITS = os.path.join(dp.ROOT, "deploy", "systemd")
NOTIFIES = bool(os.environ.get("DPTRAIN_NOTIFIES"))
JOB = """\
name: units
model: {arch: mlp}
data: {format: digits, samples: 2000, validation_samples: 200}
train: {global_batch: 50, epochs: EPOCHS}
optimizer: {name: sgd, lr: 0.05}
cluster: {CLUSTER}
"""


class Manager:
    """Receives the messages of a daemon to its service manager."""

    def __init__(self, path):
        self.path = path
        self.heard = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                self.heard.append(self.socket.recv(65536).decode())
            except OSError:
                return

    def count_all(self):
        """All messages up to now.  It sends itself one, which comes after all others."""
        mark = f"MARK={len(self.heard)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(mark.encode(), self.path)
        dp.wait_for("its own word", lambda: mark in self.heard)
        return sum(not text.startswith("MARK=") for text in self.heard)

    def wait(self, what):
        dp.wait_for(f"{what} in {self.heard[-3:]}",
                    lambda: any(re.search(what, text) for text in list(self.heard)))


class Units(dp.Case):
    def setUp(self):
        super().setUp()
        self.managers = []
        bin_folder = self.path("bin")
        os.mkdir(bin_folder)
        for program in (DRIVER, FOLLOWER):
            os.symlink(program, os.path.join(bin_folder, os.path.basename(program)))
        for folder in ("etc", "state/dptrain/job", "credentials"):
            os.makedirs(self.path(folder))
        subprocess.run([DRIVER, "--make-secret", self.path("credentials/secret")], env=self.env,
                       check=True, capture_output=True)
        os.chmod(self.path("credentials/secret"), 0o440)  # as systemd does for another user
        self.env.update(PATH=bin_folder + ":" + os.environ["PATH"],
                        CREDENTIALS_DIRECTORY=self.path("credentials"))

    def tearDown(self):
        super().tearDown()
        for manager in self.managers:
            manager.socket.close()

    def unit(self, name, options):
        """Run ExecStart= of the unit's instance `job`, with this test's folders."""
        with open(os.path.join(UNITS, name + "@.service"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        command = re.search(r"(?m)^ExecStart=/bin/sh -c '(.*)'$", text).group(1)
        command = command.replace("%S", self.path("state")).replace("%i", "job")
        command = command.replace("/etc/dptrain", self.path("etc")).replace("$$", "$")
        manager = Manager(self.path(f"notify-{len(self.managers)}"))
        self.managers.append(manager)
        return manager, self.start(
            ["/bin/sh", "-c", command],
            env={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "300000", **options})

    def write_job(self, epochs, cluster="driver_timeout: 2"):
        with open(self.path("etc/job.yaml"), "w", encoding="utf-8") as file:
            file.write(JOB.replace("EPOCHS", str(epochs)).replace("CLUSTER", cluster))

    def start_driver(self):
        if os.path.exists(self.path("port")):
            os.unlink(self.path("port"))
        return self.unit("dpdriver", {"DPDRIVER_OPTIONS":
                                      f"--nranks 2 --port 0 --port-file {self.path('port')}"})

    def start_follower(self):
        return self.unit("dpfollower",
                         {"DPFOLLOWER_OPTIONS": f"--root 127.0.0.1:{self.wait_port()}"})

    def condition(self, runtime):
        """Does ExecCondition= of the driver's unit let it start?"""
        with open(os.path.join(UNITS, "dpdriver@.service"), encoding="utf-8") as file:
            command = re.search(r"(?m)^ExecCondition=/bin/sh -c '(.*)'$", file.read()).group(1)
        return subprocess.run(["/bin/sh", "-c", command.replace("$$", "$")], check=False,
                              env={**self.env, "RUNTIME_DIRECTORY": runtime}).returncode == 0

    def test_replaced_by_another_driver(self):
        """A driver that was replaced is not started again: it would take the run back."""
        runtime = self.path("runtime")
        os.mkdir(runtime)
        self.env["RUNTIME_DIRECTORY"] = runtime
        self.write_job(100000)
        _, driver = self.start_driver()
        self.start_follower()
        run = self.path("state/dptrain/job")
        self.wait_event("first_step", run=run)
        self.assertTrue(self.condition(runtime))
        with open(os.path.join(run, "owner"), encoding="utf-8") as file:
            owner = json.load(file)
        with open(os.path.join(run, "owner.new"), "w", encoding="utf-8") as file:
            json.dump({**owner, "id": "0" * 32, "term": owner["term"] + 1}, file)
        os.rename(os.path.join(run, "owner.new"), os.path.join(run, "owner"))
        self.assert_exit(driver, dp.FAILED, "another driver leads this run")
        self.assertFalse(self.condition(runtime))

    def test_life(self):
        """A driver that is killed is started again, as Restart= does, and resumes."""
        self.write_job(100000)
        manager, driver = self.start_driver()
        follower_manager, follower = self.start_follower()
        run = self.path("state/dptrain/job")
        self.wait_event("checkpoint", run=run)
        if NOTIFIES:
            for heard in (manager, follower_manager):
                heard.wait(r"^READY=1")
                heard.wait(r"^STATUS=.*generation 1")
                heard.wait(r"^WATCHDOG=1")
        driver.kill()
        driver.wait_exit()
        follower.wait_line("waiting for the next driver")
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)
        self.write_job(100001)
        _, driver = self.start_driver()
        follower_manager, follower = self.start_follower()
        self.wait_event("first_step", 2, run=run)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        follower.wait_line("waiting for the next driver")
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)
        if NOTIFIES:
            follower_manager.wait(r"^STOPPING=1")
        # The killed driver may have finished an epoch after its last checkpoint; the next one
        # goes on from that checkpoint, so its steps need not be beyond all of the first one's.
        events = self.events(run=run)
        second = [i for i, event in enumerate(events) if event["event"] == "start"][1]
        saved = [event["step"] for event in events[:second] if event["event"] == "checkpoint"]
        trained = [event["step"] for event in events[second:] if event["event"] == "epoch"]
        self.assertGreater(trained[0], saved[-1], "it began anew")

    def test_cut_short(self):
        """A driver that was killed before it wrote job.yaml does not keep the next start away."""
        self.write_job(100000)
        run = self.path("state/dptrain/job")
        with open(os.path.join(run, "events.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"event": "start"')
        _, driver = self.start_driver()
        _, follower = self.start_follower()
        self.wait_event("first_step", run=run)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)

    def test_limits(self):
        """A job may take 90 % of the memory, and leaves no core file with its secret."""
        for name in ("dpdriver", "dpfollower", "dpstandby"):
            with open(os.path.join(UNITS, name + "@.service"), encoding="utf-8") as file:
                text = file.read()
            for line in ("LimitCORE=0", "MemoryMax=90%", "ProcSubset=pid", "#IPAddressDeny=any"):
                self.assertRegex(text, rf"(?m)^{line}$")

    def test_follower_is_back(self):
        """A follower that is killed is started again, as Restart= does, and takes its place."""
        self.write_job(100000)
        _, driver = self.start_driver()
        _, follower = self.start_follower()
        run = self.path("state/dptrain/job")
        self.wait_event("first_step", run=run)
        follower.kill()
        follower.wait_exit()
        manager, follower = self.start_follower()
        recovered = self.wait_event("recovered", run=run)
        self.assertEqual(recovered["nranks"], 2)
        self.assertLessEqual(recovered["steps_lost"], 1)
        if NOTIFIES:
            manager.wait(r"^STATUS=.*generation 2")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)

    def test_standby(self):
        """It leads when the driver is killed, in the run directory that both share."""
        self.write_job(100000)
        _, driver = self.start_driver()
        root = f"--root 127.0.0.1:{self.wait_port()} --port 0"
        _, standby = self.unit("dpstandby", {"DPSTANDBY_OPTIONS": root})
        standby.wait_line("as its standby")
        _, follower = self.start_follower()
        run = self.path("state/dptrain/job")
        self.wait_event("first_step", run=run)
        driver.kill()
        recovered = self.wait_event("recovered", run=run)
        self.assertEqual((recovered["nranks"], recovered["source"]), (2, "followers"))
        for daemon in (standby, follower):
            daemon.signal(signal.SIGTERM)
            self.assert_exit(daemon, STOPPED)

    def test_watchdog_starves(self):
        """A stopped process does not feed the watchdog; one that runs does."""
        if not NOTIFIES:
            self.skipTest("built without libsystemd")
        self.write_job(100000)
        manager, driver = self.start_driver()
        manager.wait(r"^WATCHDOG=1")
        driver.signal(signal.SIGSTOP)
        dp.wait_for("it to stop", lambda: dp.is_frozen(driver.pid))
        n = manager.count_all()
        time.sleep(0.5)
        self.assertEqual(manager.count_all(), n)
        driver.signal(signal.SIGCONT)
        dp.wait_for("a pulse", lambda: "WATCHDOG=1" in manager.heard[n:])
        driver.kill()
        driver.wait_exit()

    def test_all_ranks_of_a_machine(self):
        """One service of several processes: it is ready when they run, feeds the watchdog for them,
        and passes on the signal that stops it."""
        manager, agent = self.unit("dpfollower", {
            "DPFOLLOWER_OPTIONS": f"--root 127.0.0.1:{dp.free_port()} --ranks 2"})
        if NOTIFIES:
            for message in (r"^READY=1", r"^WATCHDOG=1", r"^STATUS=2 of 2 processes run"):
                manager.wait(message)
        else:
            agent.wait_line(r"process 2 of 2")
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED)
        if NOTIFIES:
            manager.wait(r"^STOPPING=1")

    def test_finished(self):
        self.write_job(1)
        manager, driver = self.start_driver()
        _, follower = self.start_follower()
        self.assert_exit(driver, FINISHED)
        if NOTIFIES:
            manager.wait(r"^STOPPING=1")
        follower.wait_line("waiting for the next driver")
        follower.signal(signal.SIGTERM)
        self.assert_exit(follower, STOPPED)

    def test_drained(self):
        """A drained follower ends with a status that Restart=on-failure takes for success, so it is
        not started again."""
        self.write_job(100000, "min_ranks: 1")
        _, driver = self.start_driver()
        _, follower = self.start_follower()
        run = self.path("state/dptrain/job")
        self.wait_event("first_step", run=run)
        drain = self.start([DRIVER, "--drain", "1", "--run-dir", run])
        self.assert_exit(drain, FINISHED)
        self.assert_exit(follower, STOPPED, "drained by the operator of the driver")
        with open(os.path.join(UNITS, "dpfollower@.service"), encoding="utf-8") as file:
            unit = file.read()
        self.assertRegex(unit, r"(?m)^Restart=on-failure$")
        self.assertRegex(unit, rf"(?m)^SuccessExitStatus={STOPPED}$")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_analyze(self):
        analyze = shutil.which("systemd-analyze")
        if not analyze:
            self.skipTest("no systemd-analyze (Debian: systemd)")
        for name in ("dpdriver", "dpfollower", "dpstandby"):
            with open(os.path.join(UNITS, name + "@.service"), encoding="utf-8") as file:
                text = file.read()
            path = self.path(name + "@job.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.strip()), (0, ""))
            # Exposure at most 2.0 of 10, which systemd calls OK.
            done = subprocess.run([analyze, "security", "--offline=yes", "--threshold=20", path],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)

    def test_helpers(self):
        """systemd understands the sysusers and tmpfiles files, which make the units' user and all
        groups: with a group that is missing a unit does not start (216/GROUP)."""
        with open(os.path.join(UNITS, "dptrain.sysusers"), encoding="utf-8") as file:
            made = dict(reversed(line.split()[:2]) for line in file
                        if re.match(r"[ug] ", line))
        self.assertEqual(made, {"dptrain": "u", "video": "g", "render": "g"})
        for name in ("dpdriver", "dpfollower", "dpstandby"):
            with open(os.path.join(UNITS, name + "@.service"), encoding="utf-8") as file:
                names = re.findall(r"(?m)^(?:User|Group|SupplementaryGroups)=(.*)$", file.read())
            self.assertLessEqual(set(" ".join(names).split()), set(made))
        tmpfiles = shutil.which("systemd-tmpfiles")
        sysusers = shutil.which("systemd-sysusers")
        if not tmpfiles or not sysusers or os.geteuid() != 0:
            self.skipTest("no systemd-tmpfiles and systemd-sysusers, or not root")
        root = self.path("root")
        os.makedirs(os.path.join(root, "etc"))
        subprocess.run([sysusers, f"--root={root}", os.path.join(UNITS, "dptrain.sysusers")],
                       check=True, capture_output=True)
        with open(os.path.join(root, "etc", "passwd"), encoding="utf-8") as file:
            self.assertIn("dptrain:", file.read())
        with open(os.path.join(root, "etc", "group"), encoding="utf-8") as file:
            members = {line.split(":")[0]: line.strip().split(":")[3] for line in file}
        self.assertEqual((members["video"], members["render"]), ("dptrain", "dptrain"))
        subprocess.run([tmpfiles, f"--root={root}", "--create",
                        os.path.join(UNITS, "dptrain.tmpfiles")], check=True, capture_output=True)
        self.assertEqual(os.stat(os.path.join(root, "etc/dptrain")).st_mode & 0o777, 0o750)
        self.assertTrue(os.path.isdir(os.path.join(root, "var/lib/dptrain")))


if __name__ == "__main__":
    unittest.main(verbosity=2)

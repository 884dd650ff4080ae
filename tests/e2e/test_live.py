"""dpdriver status --watch: on a terminal, into a pipe, as JSON; how it tells the end of a run."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios

import dp
from dp import DRIVER, ENDLESS, FAILED, FINISHED, PATIENT, REFUSED, SMALL, STOPPED, USAGE

HOME, END = "\x1b[?7l\x1b[H", "\x1b[J\x1b[?7h"


class Terminal:
    """A terminal of `rows` rows, with a process in it."""

    def __init__(self, rows):
        self.ours, self.theirs = pty.openpty()
        self.text = ""
        self.resize(rows)

    def resize(self, rows):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))

    def take(self):
        """For preexec_fn: standard output and the keyboard are this terminal."""
        fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)
        for fd in (0, 1):
            os.dup2(self.theirs, fd)

    def frames(self, n):
        """The texts of n whole frames, each without its escape sequences."""
        while self.text.count(END) < n:
            self.text += os.read(self.ours, 65536).decode()
        return [frame.partition(HOME)[2] for frame in self.text.split(END)[:n]]

    def close(self):
        os.close(self.ours)
        os.close(self.theirs)


class Live(dp.Case):
    def train(self, *args, n=2, job=ENDLESS, run="runs/demo"):
        driver = self.driver("--local", "--run-dir", run, *args, n=n, job=job)
        self.wait_event("first_step", run=run)
        return driver

    def watch(self, *args, **popen):
        return self.start([DRIVER, "status", "demo", "--watch", *args], **popen)

    def stop(self, driver):
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def terminal(self, rows):
        terminal = Terminal(rows)
        self.addCleanup(terminal.close)
        return terminal

    def test_terminal(self):
        """A frame replaces the one before, and has as many ranks as there is room for."""
        driver = self.train(n=3)
        terminal = self.terminal(11)
        watch = self.watch(env={"TERM": "xterm"}, preexec_fn=terminal.take)
        first, second = terminal.frames(2)
        self.assertTrue(terminal.text.startswith("\x1b[2J" + HOME))  # once, at the beginning
        self.assertEqual(terminal.text.count("\x1b[2J"), 1)
        for frame in (first, second):
            lines = frame.split("\x1b[K\r\n")
            self.assertRegex(lines[0], r"^\w+ for [\d.]+ s, generation 1, .* 3 of 3 ranks")
            self.assertRegex(lines[1], r"^rank +host +pid")
            self.assertEqual([line.split()[0] for line in lines[2:4]], ["0", "1"])
            self.assertIn("and 1 more: dpdriver --status shows all", lines)
            self.assertNotIn("\x1b", "".join(lines))
            self.assertLess(len(lines), 11)
        self.assertNotEqual(first, second)
        terminal.resize(40)
        n = terminal.text.count(END)
        self.assertNotIn("more:", terminal.frames(n + 2)[-1])
        os.write(terminal.ours, b"\x03")
        self.assertEqual(watch.wait_exit(), -signal.SIGINT)
        self.stop(driver)

    def test_dumb_terminal(self):
        """A terminal without escape sequences gets none."""
        driver = self.train(n=1)
        terminal = self.terminal(24)
        watch = self.watch(env={"TERM": "dumb"}, preexec_fn=terminal.take)
        while terminal.text.count("rank  host") < 2:
            terminal.text += os.read(terminal.ours, 65536).decode()
        self.assertNotIn("\x1b", terminal.text)
        watch.signal(signal.SIGTERM)
        watch.wait_exit()
        self.stop(driver)

    def test_done(self):
        """Into a pipe one status follows the other; the end of the run is told."""
        driver = self.train(*dp.freezing(1, 40), job={**SMALL, **PATIENT})
        pid = self.local_pid(1)
        self.wait_frozen(pid)
        watch, lines = self.watch(), self.watch("--log-format", "json")
        dp.wait_for("both to ask", lambda: len(self.asked()) == 2)
        self.wake(pid)
        self.assert_exit(driver, FINISHED)
        self.assert_exit(watch, FINISHED, "--watch: the run in runs/demo is done after step 64")
        self.assert_exit(lines, FINISHED)
        blocks = watch.out.split("\n\n")
        self.assertTrue(all(re.match(r"\w+ for [\d.]+ s, ", block) for block in blocks), blocks)
        self.assertNotIn("\x1b", watch.out)
        for line in lines.out.splitlines():
            self.assertEqual(json.loads(line)["total_steps"], 64)

    def asked(self, run="runs/demo"):
        try:
            with open(self.path(run, "audit.jsonl"), encoding="utf-8") as file:
                return [line for line in map(json.loads, file) if line["event"] == "asked"]
        except FileNotFoundError:
            return []

    def test_audit(self):
        """A process that watches has one line in the audit, however often it asks."""
        driver = self.train(n=1)
        terminal = self.terminal(40)
        watch = self.watch(env={"TERM": "xterm"}, preexec_fn=terminal.take)
        terminal.frames(3)
        self.assertEqual([(line["request"], line["pid"]) for line in self.asked()],
                         [("watch 31", watch.pid)])
        watch.kill()
        self.stop(driver)

    def test_ends(self):
        """A run that stops, fails, or loses its driver."""
        driver = self.train(n=1)
        watch = self.watch()
        dp.wait_for("a question", self.asked)
        self.stop(driver)
        self.assert_exit(watch, STOPPED,
                         r"the run in runs/demo has stopped after step \d+; dpdriver --resume")
        driver = self.train(n=1, run="runs/killed")
        watch = self.start([DRIVER, "--status", "--watch", "--run-dir", "runs/killed"])
        dp.wait_for("a question", lambda: self.asked("runs/killed"))
        driver.kill()
        self.assert_exit(watch, STOPPED, "the run in runs/killed has stopped")
        driver = self.train("--inject", "stop:rank1@step30", run="runs/failed",
                            job={**ENDLESS, **dp.RIGID, "cluster.heartbeat_timeout": 4})
        watch = self.start([DRIVER, "status", "runs/failed", "--watch"])
        self.assert_exit(driver, FAILED)
        self.assert_exit(watch, FAILED, "the run in runs/failed has failed after step")

    def test_standby(self):
        """A standby goes on with the run, and is watched from then on."""
        port = dp.free_port()
        driver = self.driver("--port", str(port), "--run-dir", "runs/demo", n=2, job=ENDLESS,
                             port=False)
        standby = self.start([DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--run-dir", "runs/demo"])
        standby.wait_line("as its standby")
        follower = self.follower("--rank", "1", port=port)
        self.wait_event("first_step")
        watch = self.watch()
        dp.wait_for("a question", self.asked)
        driver.kill()
        self.wait_event("recovered")
        dp.wait_for("a question to the standby", lambda: len(self.asked()) == 2)
        self.assertEqual({line["pid"] for line in self.asked()}, {watch.pid})
        standby.signal(signal.SIGTERM)
        for daemon in (standby, follower):
            self.assert_exit(daemon, STOPPED)
        self.assert_exit(watch, STOPPED, "the run in runs/demo has stopped after step")

    def test_refused(self):
        """Nothing to watch, or too much."""
        os.makedirs(self.path("runs/old"))
        self.assert_exit(self.start([DRIVER, "status", "old", "--watch"]), REFUSED,
                         "--watch: no driver is running in runs/old")
        self.assert_exit(self.start([DRIVER, "--watch", "--nranks", "1"]), USAGE,
                         "--watch belongs to --status")
        self.assert_exit(self.start([DRIVER, "drain", "1", "--watch"]), USAGE, "takes no --watch")

    def test_no_reader(self):
        """Once nobody reads any more, it ends."""
        driver = self.train(n=1)
        ours, theirs = os.pipe()
        watch = self.watch(preexec_fn=lambda: os.dup2(theirs, 1), pass_fds=(theirs,))
        os.close(theirs)
        self.assertTrue(os.read(ours, 100))
        os.close(ours)
        self.assertNotEqual(watch.wait_exit(), 0)
        self.stop(driver)


if __name__ == "__main__":
    dp.main()

"""report.exec with the real driver: the command hears the run, dies with a driver that is killed,
and one that is of no use changes nothing else."""
import json
import os
import signal
import time

import dp
from dp import ENDLESS, FINISHED, SMALL, STOPPED


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Exec(dp.Case):
    def lead(self, command, job):
        return self.driver("--run-dir", self.path("run"), job={**job, "report.exec": command})

    def test_hears(self):
        """It hears the lines of events.jsonl, and between them the rows."""
        driver = self.lead(f"cat > {self.path('heard')}", {**SMALL, "report.every_steps": 5})
        self.assert_exit(driver, FINISHED)
        with open(self.path("heard"), encoding="utf-8") as file:
            heard = [json.loads(line) for line in file]
        rows = [event["step"] for event in heard if event["event"] == "row"]
        self.assertEqual([event for event in heard if event["event"] != "row"],
                         self.events(run="run"))
        with open(self.path("run", "metrics.csv"), encoding="ascii") as file:
            self.assertEqual(rows, [int(line.split(",")[0]) for line in list(file)[1:]])
        self.assertGreater(len(rows), 5)

    def test_killed_driver(self):
        """A command that takes no notice of its input ends, too."""
        file = self.path("pid")
        driver = self.lead(f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 1000", ENDLESS)
        dp.wait_for("the command", lambda: os.path.exists(file))
        with open(file, encoding="ascii") as text:
            pid = int(text.read())
        self.assertTrue(is_alive(pid))
        driver.signal(signal.SIGKILL)
        driver.wait_exit()
        dp.wait_for("its end", lambda: not is_alive(pid))

    def lead_stubborn(self, job):
        """A driver whose command takes no notice of its input and of SIGTERM, and its pid."""
        file = self.path("pid")
        driver = self.lead(f"trap '' TERM; echo $$ > {file}.new; mv {file}.new {file}; "
                           "while :; do sleep 0.1; done", job)
        dp.wait_for("the command", lambda: os.path.exists(file))
        with open(file, encoding="ascii") as text:
            return driver, int(text.read())

    def test_stopped(self):
        """A job that is stopped waits for seconds, not for half a minute."""
        driver, pid = self.lead_stubborn(ENDLESS)
        driver.signal(signal.SIGINT)
        since = time.monotonic()
        self.assert_exit(driver, STOPPED, "waiting for the command of report.exec to end; Ctrl-C",
                         "the command does not end after the job: SIGTERM")
        self.assertLess(time.monotonic() - since, 25)
        self.assertFalse(is_alive(pid))

    def test_hastened(self):
        """Two signals while the end of a job waits kill the command."""
        driver, pid = self.lead_stubborn(SMALL)
        driver.wait_line("waiting for the command of report.exec to end; Ctrl-C")
        driver.signal(signal.SIGINT)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, FINISHED)
        self.assertNotIn("does not end after the job", driver.text)
        self.assertFalse(is_alive(pid))

    def test_of_no_use(self):
        """One that is not there is told, and the run ends as it would without."""
        driver = self.lead("no-such-tracker", SMALL)
        self.assert_exit(driver, FINISHED, "no-such-tracker: not found",
                         "report.exec: the command exited with status 127; it is started again",
                         r"the command did not get \d+ lines")


if __name__ == "__main__":
    dp.main()

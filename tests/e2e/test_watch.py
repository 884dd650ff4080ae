"""The job is held up: the driver names the rank that does it and writes down the last collectives
of all.  Also stragglers, and the live table of --status and SIGUSR1."""

import json
import os
import re
import signal
import stat
import threading

import dp
from dp import DRIVER, ENDLESS, FAILED, FINISHED, REFUSED, RIGID, STOPPED, USAGE

WHO = r"rank {} \([^,]+, pid {}\)"
# All but rank 2.  On a busy machine another rank may be silent, too; it is not among them then.
WAITERS = r"ranks? (0 1 3|0 1|0 3|1 3|0) waits? for (it|them)"


class Watch(dp.Case):
    def start_ranks(self, n, job, *args):
        driver = self.driver(*args, n=n, job=job)
        ranks = [self.follower("--rank", str(k)) for k in range(1, n)]
        self.wait_event("first_step")
        return [driver, *ranks]

    def stop_all(self, driver, *followers):
        driver.signal(signal.SIGTERM)
        for daemon in (driver, *followers):
            self.assert_exit(daemon, STOPPED)

    def incident(self, number=1):
        path = self.path("runs/demo/incidents", f"incident-{number}.json")
        dp.wait_for(path, lambda: os.path.exists(path))
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    # ---- the audit

    def audit(self):
        """(event, request or None, refused or reason) of each line of audit.jsonl."""
        with open(self.path("runs/demo/audit.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            if line["event"] == "asked":
                self.assertEqual(line["uid"], os.getuid())
                self.assertGreater(line["pid"], 0)
        return [(line["event"], line.get("request"), line.get("refused") or line.get("reason"))
                for line in lines]

    def test_audit(self):
        """audit.jsonl tells who asked for what, who was refused, and why."""
        driver, follower = self.start_ranks(2, ENDLESS)
        self.assert_exit(self.start([DRIVER, "--status"]), FINISHED)
        self.assert_exit(self.start([DRIVER, "--drain", "nobody"]), REFUSED)
        self.assert_exit(self.follower("--rank", "1"), REFUSED)
        asked = dp.wait_for("three lines", lambda: self.audit()[2:] and self.audit())
        self.assertEqual(asked[0], ("asked", "status", None))
        self.assertEqual(asked[1][:2], ("asked", "drain nobody"))
        self.assertIn("nobody", asked[1][2])
        self.assertEqual(asked[2][0], "refused")
        self.assertRegex(asked[2][2], r"refused 127.0.0.1:\d+: rank 1 is taken")
        self.stop_all(driver, follower)

    # ---- the culprit

    def test_a_frozen_rank_is_named(self):
        """A warning names a frozen rank before it is lost; the error tells what all did last."""
        job = {**ENDLESS, **RIGID, "cluster.heartbeat_timeout": 8}
        driver, *followers = self.start_ranks(4, job)
        victim = followers[1]
        victim.signal(signal.SIGSTOP)
        who = WHO.format(2, victim.pid)
        driver.wait_line(f"warning: {who} is in .*step \\d+.*silent for .*; "
                         rf"{WAITERS} in bucket \d+")
        for daemon in (driver, followers[0], followers[2]):
            self.assert_exit(daemon, FAILED, r"rank 2 \([^)]+\) was lost.*no sign of life for .*; "
                                             rf"{WAITERS} in bucket \d+")
        self.assertRegex(self.events("error")[0]["message"], WAITERS)
        self.assertEqual(self.events("warning")[0]["rank"], 2)
        self.assertRegex(driver.text, r"what the ranks did last is in \S+incident-1.json")
        self.check_rings(self.incident(), behind=2, asked={0, 1, 3})
        victim.signal(signal.SIGCONT)
        victim.wait_exit()

    def check_rings(self, incident, behind, asked):
        """Rank 0's collectives are always there.  A rank that answers too late is left out; a rank
        that hears of another's end before it is asked shows a failed collective."""
        ranks = {rank["rank"]: rank for rank in incident["ranks"]}
        self.assertEqual([k for k, rank in ranks.items() if rank["behind"]], [behind])
        answered = {k for k, rank in ranks.items() if rank["collectives"]}
        self.assertLessEqual(answered, asked)
        last = {k: ranks[k]["collectives"][-1] for k in answered - {behind}}
        self.assertIn(0, last)
        self.assertIn(last[0]["state"], ("running", "queued"))
        self.assertIsNone(last[0]["ended"])
        for collective in last.values():  # begun and not ended
            self.assertIn(collective["state"], ("running", "queued", "failed"))
            self.assertGreater(collective["handed"], 0)
        # All are in the same collective, or a rank still waits for its part of the one before.
        newest = max(c["number"] for c in last.values())
        self.assertGreaterEqual(min(c["number"] for c in last.values()), newest - 1)
        self.assertEqual(len({(c["step"], c["bucket"], c["bytes"])
                              for c in last.values() if c["number"] == newest}), 1)

    def test_a_deadline_names_the_rank_that_hangs(self):
        """Its heartbeats go on, so only the deadline ends the job; a warning comes before."""
        job = {**ENDLESS, **RIGID, "cluster.deadlines.step": 10}
        driver, *followers = self.start_ranks(4, job, "--inject", "delay:rank3@step40:3600s")
        line = (WHO.format(3, followers[2].pid) + r" is in \w+ of step \d+(, bucket \d+,)? for "
                r"\d+\.\d s; ranks 0-2 wait for it in bucket \d+")
        driver.wait_line(f"warning: {line}")
        self.assert_exit(driver, FAILED,
                         r"no progress for 10 s \(cluster.deadlines.step\): " + line)
        error = self.events("error")[0]
        self.assertEqual((error["rank"], error["step"]), (3, 40))
        self.assertRegex(error["message"], line)
        self.assert_exit(followers[0], FAILED, line)
        self.check_rings(self.incident(), behind=3, asked={0, 1, 2, 3})

    # ---- slow ranks

    def stragglers(self, rank):
        return [event for event in self.events("straggler") if event["rank"] == rank]

    def test_a_slow_rank_is_a_straggler(self):
        """A rank that is stopped again and again is named a straggler, once until it keeps up.
        (On a busy machine other ranks may be slow as well.)"""
        job = {**ENDLESS, "cluster.straggler_window": 2, "cluster.straggler_factor": 3}
        driver, *followers = self.start_ranks(3, job, "--threads", "1")
        enough = threading.Event()

        def pulse():
            while not enough.is_set():
                followers[1].signal(signal.SIGSTOP)
                enough.wait(0.12)
                followers[1].signal(signal.SIGCONT)
                enough.wait(0.01)

        thread = threading.Thread(target=pulse)
        thread.start()
        try:
            dp.wait_for("rank 2 to be a straggler", lambda: self.stragglers(2))
        finally:
            enough.set()
            thread.join()
        self.assertGreaterEqual(self.stragglers(2)[0]["factor"], 3)
        who = WHO.format(2, followers[1].pid)
        driver.wait_line(who + r" is slow: \d+\.\d\d times the median")
        driver.wait_line(who + " keeps up again")
        self.stop_all(driver, *followers)
        said = re.findall(f"{who} (is slow|keeps up again)", driver.text)
        self.assertEqual(said, (["is slow", "keeps up again"] * len(said))[:len(said)])
        self.assertEqual(len(self.stragglers(2)), said.count("is slow"))

    # ---- the live table

    def status(self, *args, want=FINISHED):
        daemon = self.start([DRIVER, "--status", *args])
        self.assert_exit(daemon, want)
        return daemon

    def test_status(self):
        driver, *followers = self.start_ranks(3, ENDLESS)
        table = self.status().out.splitlines()
        self.assertRegex(table[0], r"^(train|validate|checkpoint) for .* generation 1, .* 3 of 3")
        self.assertEqual(table[1].split()[:6], ["rank", "host", "pid", "device", "state", "phase"])
        for k, daemon in enumerate((driver, *followers)):
            self.assertEqual(table[2 + k].split()[:5],
                             [str(k), os.uname().nodename, str(daemon.pid), "cpu", "member"])
        for name in ("demo", "runs/demo", self.path("runs/demo")):
            self.assertIn("3 of 3 ranks", self.status("--run-dir", name).out)

        def ranks():
            return json.loads(self.status("--log-format", "json").out)["ranks"]

        self.assertEqual([rank["pid"] for rank in ranks()],
                         [daemon.pid for daemon in (driver, *followers)])
        dp.wait_for("the time of a step", lambda: ranks()[0]["step_ms"] > 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("runs/demo/status.sock")).st_mode), 0o600)
        self.stop_all(driver, *followers)
        self.assertFalse(os.path.exists(self.path("runs/demo/status.sock")))

    def test_status_without_a_driver(self):
        nobody = self.status(want=REFUSED)
        self.assertIn("no driver is running in runs/*", nobody.text)
        self.assertIn("no run directory typo", self.status("--run-dir", "typo", want=USAGE).text)
        driver = self.driver(n=2)
        self.wait_port()
        dp.wait_for("the socket", lambda: os.path.exists(self.path("runs/demo/status.sock")))
        self.assertIn("missing", self.status().out)
        driver.kill()  # its socket file stays
        driver.wait_exit()
        self.assertTrue(os.path.exists(self.path("runs/demo/status.sock")))
        self.assertIn("no driver is running in runs/demo",
                      self.status("--run-dir", "demo", want=REFUSED).text)

    def test_status_of_several(self):
        drivers = [self.driver("--port-file", self.path(f"port{i}"), n=2) for i in range(2)]
        for run in ("demo", "demo-2"):
            dp.wait_for(run, lambda run=run: os.path.exists(self.path("runs", run, "status.sock")))
        both = self.status(want=USAGE)
        self.assertRegex(both.text, r"several drivers are running: runs/demo\S*, runs/demo")
        self.assertIn("1 of 2 ranks", self.status("--run-dir", "demo-2").out)
        for driver in drivers:
            driver.signal(signal.SIGTERM)
            self.assert_exit(driver, STOPPED)

    def test_sigusr1(self):
        driver, follower = self.start_ranks(2, ENDLESS)
        self.assertRegex(driver.state(), r"generation 1, epoch \d+, step \d+, 2 of 2 ranks")
        driver.wait_line(r"state: rank +host +pid +device +state +phase")
        driver.wait_line(rf"state: +1 +\S+ +{follower.pid} +cpu +member")
        self.assertRegex(follower.state(), r"joined, driver .*, rank 1 of 2, generation 1")
        follower.wait_line(r"state: +engine: \w+, in \w+ of step \d+")
        follower.wait_line(r"state: +collectives: \d+ handed over, \d+ ended")
        follower.wait_line(r"state: +steps: \d+ made, \d+\.\d ms each, \d+\.\d ms of it its own")
        self.stop_all(driver, follower)


if __name__ == "__main__":
    dp.main()

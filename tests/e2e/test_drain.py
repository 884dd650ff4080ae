"""dpdriver --drain: the operator takes ranks, spares and hosts out of a job that runs.
Requests that the driver must refuse are here, too, as are programs that ask by its socket."""

import json
import os
import signal
import socket
import subprocess
import sys

import dp
import training
from dp import DRIVER, ENDLESS, FINISHED, PATIENT, REFUSED, STOPPED, USAGE, freezing
from training import CALM, JOB

# A rank freezes itself in step 40, in the second of four epochs.
HELD = {**JOB, **PATIENT, "train.epochs": 4}
HOST = os.uname().nodename
GONE = "drained by the operator of the driver"


def as_host(name):
    """A prefix that starts a process in a namespace with another host name."""
    be = ("import os, socket, sys; socket.sethostname(sys.argv[1]); "
          "os.execv(sys.argv[2], sys.argv[2:])")
    return ("unshare", "--uts", sys.executable, "-c", be, name)


class Drain(training.Case):
    def drain(self, who, *args, want=FINISHED):
        daemon = self.start([DRIVER, "--drain", str(who), *args])
        self.assert_exit(daemon, want)
        return daemon

    def assert_drained(self, daemon):
        """By exit status 4 a service manager knows that it is not to be started again."""
        self.assert_exit(daemon, STOPPED, GONE)

    def stop_all(self, driver, *followers):
        driver.signal(signal.SIGTERM)
        for daemon in (driver, *followers):
            self.assert_exit(daemon, STOPPED)

    def as_told(self, rank, spare, host, daemon, when):
        """One leaving process, as the answer and the event describe it."""
        return {"rank": rank, "spare": spare, "host": host, "pid": daemon.pid, "when": when}

    def assert_told(self, want):
        got = [{k: v for k, v in event.items() if k not in ("event", "time")}
               for event in self.events("drain")]
        self.assertEqual(got, want)

    def lost(self):
        return [(event["rank"], event["reason"]) for event in self.events("lost")]

    def start_waiting(self, job, *args, n=3):
        """A driver, and followers that outlive their job."""
        driver = self.driver(*args, n=n, job=job)
        ranks = [self.follower("--rank", str(k), once=False) for k in range(1, n)]
        for k in range(1, n):
            driver.wait_line(f"rank {k} joined")
        return [driver, *ranks]

    # ---- which ranks leave, and how the job goes on

    def test_a_spare_goes_on(self):
        driver, leaver, other, spare = self.start_ranks(HELD, *freezing(2, 40), spares=1)
        self.wait_frozen(other.pid)
        self.wait_spares(1)
        self.assertEqual(self.drain(1, "--run-dir", "demo").out,
                         f"rank 1 ({HOST}, pid {leaver.pid}) leaves when the step under way is "
                         "done\n")
        other.signal(signal.SIGCONT)
        self.assert_drained(leaver)
        driver.wait_line(r"drained by the operator: rank 1 .* leaves")
        for daemon in (driver, other, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assertEqual(self.events("recovered")[0]["steps_lost"], 0)
        self.assertEqual(self.lost(), [(1, f"rank 1 ({HOST}) was drained")])
        self.assert_told([self.as_told(1, None, HOST, leaver, "step")])
        self.assert_as_undisturbed(HELD, 3)

    def test_fewer_ranks(self):
        """Two ranks leave one after the other.  A follower without --once does not come back."""
        job = {**HELD, **CALM, "cluster.min_ranks": 1}
        driver, *ranks = self.start_waiting(job, *freezing(1, 40, 80))
        self.wait_frozen(ranks[0].pid)
        self.assertIn("rank 2 ", self.drain(2).out)
        ranks[0].signal(signal.SIGCONT)
        self.assert_drained(ranks[1])
        driver.wait_line("going on with 2 ranks")
        self.wait_frozen(ranks[0].pid, 2)
        self.drain(1)
        ranks[0].signal(signal.SIGCONT)
        self.assert_drained(ranks[0])
        self.assert_exit(driver, FINISHED, "going on with 1 rank")
        self.assertNotRegex(driver.text, "waiting up to")
        self.assertNotRegex(ranks[0].text + ranks[1].text, "waiting for the next driver")
        self.assert_recovered(n_times=2)
        self.assertEqual([e["nranks"] for e in self.events("recovered")], [2, 1])
        self.assertEqual([rank for rank, _ in self.lost()], [2, 1])
        self.assert_as_undisturbed(job, 3)

    def test_a_host(self):
        """Both its ranks leave at the same step; a spare takes the place of one."""
        if subprocess.run(["unshare", "--uts", "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            self.skipTest("a host's name of its own (unshare --uts) needs root")
        job = {**HELD, **CALM, "cluster.min_ranks": 3, "cluster.spares": 1}
        driver = self.driver(*freezing(3, 40), n=4, job=job)
        ranks = [self.follower("--rank", str(k), prefix=as_host(name))
                 for k, name in enumerate(("node7", "node7", "node8"), 1)]
        self.wait_frozen(ranks[2].pid)
        spare = self.follower(prefix=as_host("node8"))
        self.wait_spares(1)
        answer = json.loads(self.drain("node7", "--log-format", "json").out)
        self.assertEqual(answer["leaving"],
                         [self.as_told(k, None, "node7", ranks[k - 1], "step") for k in (1, 2)])
        self.assertEqual(len(answer["text"].splitlines()), 2)
        ranks[2].signal(signal.SIGCONT)
        for leaver in ranks[:2]:
            self.assert_drained(leaver)
        for daemon in (driver, ranks[2], spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assertEqual(self.lost(), [(k, f"rank {k} (node7) was drained") for k in (1, 2)])
        self.assert_told(answer["leaving"])
        self.assert_as_undisturbed(job, 4)

    def test_a_spare(self):
        """A spare leaves at once, and the ranks do not form again."""
        driver, *ranks, spare = self.start_ranks(ENDLESS, n=2, spares=1)
        spare.wait_line("as a spare")
        self.wait_event("first_step")
        self.assertRegex(self.drain("spare1").out,
                         rf"^spare 1 \(.*pid {spare.pid}\) leaves at once\n$")
        self.assert_drained(spare)
        self.assertIn("no such rank or spare", self.drain("spare1", want=REFUSED).text)
        self.stop_all(driver, *ranks)
        self.assertEqual(len(self.events("form")), 1)
        self.assertEqual(self.lost(), [])
        self.assert_told([self.as_told(None, 1, HOST, spare, "now")])

    def test_while_the_ranks_form_again(self):
        """The drain waits until all ranks have formed, and is carried out then."""
        job = {**HELD, **CALM, "cluster.min_ranks": 2}
        driver, victim, leaver, spare = self.start_ranks(job, *freezing(2, 40), spares=1)
        self.wait_frozen(leaver.pid)  # so it does not prepare when told to
        self.wait_spares(1)
        victim.kill()
        driver.wait_line("takes the place of rank 1")
        self.assertIn("as soon as the ranks have formed again", self.drain(2).out)
        leaver.signal(signal.SIGCONT)
        self.assert_drained(leaver)
        for daemon in (driver, spare):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual([e["nranks"] for e in self.events("form")], [3, 3, 2])
        self.assertEqual([rank for rank, _ in self.lost()], [1, 2])
        self.assert_as_undisturbed(job, 3)

    def test_who_cannot_leave_any_more(self):
        """The driver dies before the follower has left: the follower was told to, and ends."""
        job = {**ENDLESS, **PATIENT, **dp.FORSAKEN, "cluster.min_ranks": 2}
        driver, leaver, other = self.start_waiting(job, *freezing(2, 40))
        self.wait_frozen(other.pid)  # so no rank finishes a step
        self.drain(1)
        leaver.wait_line("drained by the operator of the driver: this follower leaves when")
        driver.kill()
        self.assert_exit(leaver, STOPPED, "lost the driver")
        other.signal(signal.SIGCONT)
        other.wait_line("waiting for the next driver")
        other.signal(signal.SIGTERM)
        self.assert_exit(other, STOPPED)

    def test_local(self):
        """--local does not start a follower in place of a drained one."""
        job = {**ENDLESS, "cluster.min_ranks": 2}
        driver = self.driver("--local", n=3, job=job)
        self.wait_event("first_step")
        self.drain(2)
        driver.wait_line(GONE)
        self.wait_event("recovered")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, "going on with 2 ranks")
        self.assertNotRegex(driver.text, "starting another one")

    # ---- why not

    def test_refusals(self):
        driver, *ranks = self.start_ranks(ENDLESS, n=3)
        self.wait_event("first_step")
        here = ("cannot be drained: the driver itself runs there; to stop the job send it SIGTERM, "
                "and go on elsewhere by --resume")
        for who, why in (
                (0, f"rank 0 {here}"),
                (HOST, f"{HOST} {here}"),
                (3, "3 cannot be drained: there is no such rank or spare now"),
                ("rank:3", "rank:3 cannot be drained: there is no such rank or spare now"),
                (f"host:{HOST}", f"host:{HOST} {here}"),
                ("host:2", "host:2 cannot be drained: no rank or spare runs on a host of that "),
                ("spare1", "there is no such rank or spare now"),
                ("node99", "node99 cannot be drained: neither a rank, nor a spare, nor the host"),
                (2, r"2 cannot be drained: 2 ranks would be left, and the job needs 3 \("
                    r"cluster.min_ranks\) and lets in no other before")):
            with self.subTest(who=who):
                refused = self.drain(who, want=REFUSED)
                self.assertRegex(refused.text, rf"error: --drain: .*{why}")
                self.assertEqual(refused.out, "")
        self.stop_all(driver, *ranks)
        self.assertEqual(self.lost(), [])
        self.assertEqual(len(self.events("form")), 1)

    def test_before_training(self):
        driver = self.driver(n=3)
        follower = self.follower("--rank", "1")
        driver.wait_line("rank 1 joined")
        self.assertIn("training has not begun", self.drain(1, want=REFUSED).text)
        driver.signal(signal.SIGTERM)
        for daemon in (driver, follower):
            self.assert_exit(daemon, STOPPED)

    def test_which_driver(self):
        self.assertIn("--drain: no driver is running in runs/*", self.drain(1, want=REFUSED).text)
        self.assertIn("no run directory typo", self.drain(1, "--run-dir", "typo", want=USAGE).text)
        self.assertIn("want the number of a rank", self.drain("a rank", want=USAGE).text)
        self.assertIn("want the number of a rank", self.drain("x" * 261, want=USAGE).text)
        jobs = [self.start_ranks(ENDLESS, n=2), self.start_ranks(ENDLESS, n=2)]
        for run in ("runs/demo", "runs/demo-2"):
            self.wait_event("first_step", run=run)
        self.assertRegex(self.drain(1, want=USAGE).text, "several drivers are running: .*--run-dir")
        for ranks in jobs:
            self.assertNotRegex(ranks[0].text, "drained")
            self.stop_all(*ranks)

    # ---- programs that ask

    def test_as_json(self):
        driver, *ranks = self.start_ranks({**ENDLESS, "cluster.min_ranks": 1}, n=3)
        self.wait_event("first_step")
        answer = self.drain(2, "--log-format", "json")
        said = json.loads(answer.out)
        self.assertRegex(said["text"], r"^rank 2 \(.* leaves .*\n$")
        leaver, = said["leaving"]
        self.assertIn(leaver.pop("when"), ("step", "epoch"))
        self.assertEqual(leaver, {"rank": 2, "spare": None, "host": HOST, "pid": ranks[1].pid})
        self.assert_drained(ranks[1])
        refused = self.drain(2, "--log-format", "json", want=REFUSED)
        self.assertIn("no such rank", json.loads(refused.text)["message"])
        self.stop_all(driver, ranks[0])

    def test_what_is_no_request(self):
        """The client is told that this is no request; the driver goes on."""
        driver, *ranks = self.start_ranks(ENDLESS, n=2)
        self.wait_event("first_step")
        for line in (b"", b"drain", b"drain 1", b"status now\n", b"drain\0 1\n", b"\xff\n",
                     b"drain 1\ndrain 1\n", b"drain " + b"9" * 5000 + b"\n", b"drain  \n"):
            with self.subTest(line=line), socket.socket(socket.AF_UNIX) as sock:
                sock.connect(self.path("runs/demo/status.sock"))
                try:
                    sock.sendall(line)
                    sock.shutdown(socket.SHUT_WR)
                except BrokenPipeError:
                    pass  # the driver has read enough
                answer = dp.hear_out(sock)
                if line:
                    self.assertIn("error", json.loads(answer))
                else:
                    self.assertEqual(answer, b"")
        self.assertEqual(self.lost(), [])
        self.stop_all(driver, *ranks)


if __name__ == "__main__":
    dp.main()

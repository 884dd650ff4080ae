"""Machines that are about to go away: cluster.notice.  A command reads a file that each process has
of its own, so one process on this machine may hear a notice that the others do not."""

import os
import signal

import dp
import training
from dp import FINISHED, PATIENT, STOPPED, freezing
from training import CALM, JOB

HOST = os.uname().nodename
# It waits for the file, which holds the seconds.  At its limit of time it is run anew.
COMMAND = {"cluster.notice": 'until cat "$LEAVES" 2>/dev/null; do sleep 0.2; done'}
HELD = {**JOB, **PATIENT, **COMMAND, "train.epochs": 4}


class Notice(training.Case):
    def setUp(self):
        """The user's own secret proves the driver (daemon/trust.h)."""
        super().setUp()
        os.mkdir(self.path("user"), mode=0o700)
        self.env = {**self.env, "XDG_RUNTIME_DIR": self.path("user")}

    def leaves(self, name):
        return {"env": {"LEAVES": self.path(name)}}

    def send_notice(self, name, seconds="30"):
        with open(self.path(name + ".new"), "w", encoding="ascii") as file:
            file.write(seconds)
        os.rename(self.path(name + ".new"), self.path(name))

    def start_all(self, job, *args, n=3, **kwargs):
        """A driver and its followers, in the order of their ranks."""
        driver = self.driver(*args, n=n, job=job, **self.leaves("0"), **kwargs)
        ranks = [self.follower("--rank", str(k), **self.leaves(str(k))) for k in range(1, n)]
        return [driver, *ranks]

    def wait_noticed(self, rank, seconds=30, run="runs/demo"):
        event = self.wait_event("notice", run=run)
        self.assertEqual({k: v for k, v in event.items() if k not in ("event", "time")},
                         {"rank": rank, "host": HOST, "source": "command", "seconds": seconds})

    def lost(self):
        return [(event["rank"], event["reason"]) for event in self.events("lost")]

    # ---- a follower

    def test_a_spare_takes_its_place(self):
        driver, leaver, other = self.start_all({**HELD, "cluster.spares": 1}, *freezing(2, 40))
        self.wait_frozen(other.pid)
        spare = self.follower(**self.leaves("3"))
        self.wait_spares(1)
        self.send_notice("1")
        self.wait_noticed(1)
        other.signal(signal.SIGCONT)
        self.assert_exit(leaver, STOPPED, "notice of command: this machine goes away")
        for daemon in (driver, other, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=3)
        self.assertEqual(self.events("recovered")[0]["steps_lost"], 0)
        self.assertEqual(self.lost(), [(1, f"rank 1 ({HOST}) left: its machine goes away "
                                           "(notice of command)")])
        self.assert_as_undisturbed(HELD, 3)

    def test_fewer_ranks_go_on(self):
        """A follower without --once does not come back.  SIGTERM follows, as from a machine that
        ends its services."""
        job = {**HELD, **CALM, "cluster.min_ranks": 2}
        driver = self.driver(*freezing(1, 40), n=3, job=job, **self.leaves("0"))
        other = self.follower("--rank", "1", **self.leaves("1"))
        leaver = self.follower("--rank", "2", once=False, **self.leaves("2"))
        self.wait_frozen(other.pid)
        self.send_notice("2", "no number")
        self.wait_noticed(2, None)
        leaver.signal(signal.SIGTERM)
        leaver.wait_line("SIGTERM: this follower leaves already")
        other.signal(signal.SIGCONT)
        self.assert_exit(leaver, STOPPED, "its place in the job is free now")
        for daemon in (driver, other):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(self.events("recovered")[0]["steps_lost"], 0)
        self.assert_as_undisturbed(job, 3)

    def test_a_driver_without_proof_runs_nothing_here(self):
        """The command comes with the job, so a driver that anybody could play cannot have it run;
        its own rank still hears of a notice."""
        job = {**HELD, "train.epochs": 1, "cluster.notice": 'echo >"$LEAVES.ran"; exit 1'}
        driver = self.driver("--insecure", n=2, job=job, **self.leaves("0"))
        other = self.follower("--insecure", **self.leaves("1"))
        for daemon in (driver, other):
            self.assert_exit(daemon, FINISHED)
        self.assertRegex(other.text, "cluster.notice: the command of the driver's job is not run "
                         "here, as no secret proves the driver")
        self.assertTrue(os.path.exists(self.path("0.ran")))
        self.assertFalse(os.path.exists(self.path("1.ran")))

    def test_a_command_that_fails_is_told_of_once(self):
        job = {**JOB, "train.epochs": 1, "cluster.notice": "exit 3"}
        driver = self.run_driver(job=job)
        self.assertRegex(driver.text, "cluster.notice: the command exited with status 3; want 0 ")

    # ---- the driver

    def test_the_standby_leads(self):
        """No step is lost, and nothing is read from a checkpoint."""
        job = {**HELD, "checkpoint.every_epochs": 0}
        port = dp.free_port()
        driver = self.driver("--port", str(port), "--run-dir", "run", *freezing(2, 40), n=3,
                             job=job, port=False, **self.leaves("0"))
        standby = self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--threads", "1", "--run-dir", "run"], **self.leaves("s"))
        standby.wait_line("as its standby")
        ranks = [self.follower("--rank", str(k), port=port, **self.leaves(str(k))) for k in (1, 2)]
        self.wait_frozen(ranks[1].pid, run="run")
        self.send_notice("0")
        self.wait_noticed(0, run="run")
        driver.signal(signal.SIGTERM)
        driver.wait_line("SIGTERM: this driver ends already")
        ranks[1].signal(signal.SIGCONT)
        self.assert_exit(driver, STOPPED, r"the standby at 127.0.0.1:\d+ leads from step 4\d on")
        for daemon in (standby, *ranks):
            self.assert_exit(daemon, FINISHED)
        leader, = self.events("leader", "run")
        self.assertEqual(leader["from"], f"127.0.0.1:{port}")
        recovered, = self.events("recovered", "run")
        self.assertEqual((recovered["source"], recovered["steps_lost"]), ("followers", 0))
        self.assertEqual(self.losses("run"), self.expected(job, 3))
        self.assertEqual(self.events("error", "run") + self.events("lost", "run"), [])

    def test_without_a_standby_it_stops(self):
        job = {**HELD, "train.epochs": 2}
        driver, other = self.start_all(job, *freezing(1, 40), n=2)
        self.wait_frozen(other.pid)
        self.send_notice("0")
        self.wait_noticed(0)
        other.signal(signal.SIGCONT)
        self.assert_exit(driver, STOPPED, r"stopped by the notice that this machine goes away "
                         r"\(command\) after step 4\d .*--resume")
        self.assert_exit(other, STOPPED)
        self.assertEqual(self.events("lost"), [])
        os.unlink(self.path("0"))
        self.run_driver("--local", "--resume", "--run-dir", "runs/demo", n=2, job=job,
                        **self.leaves("0"))
        self.assertEqual(self.final_losses(), self.expected(job, 2))


if __name__ == "__main__":
    dp.main()

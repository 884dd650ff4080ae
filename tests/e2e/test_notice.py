"""Machines that are about to go away: cluster.notice.  A command reads a file that each process has
of its own, so one process on this machine may hear a notice that the others do not."""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import dp
import training
from dp import FINISHED, PATIENT, STOPPED, freezing
from training import CALM, JOB

HOST = os.uname().nodename
# It waits for the file, which holds the seconds.  At its limit of time it is run anew.
COMMAND = {"cluster.notice": 'until cat "$LEAVES" 2>/dev/null; do sleep 0.2; done'}
SPOT_MINUTES = float(os.environ.get("DPTRAIN_SPOT_MINUTES", "0"))
HELD = {**JOB, **PATIENT, **COMMAND, "train.epochs": 4}


class Machines(training.Case):
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


class Notice(Machines):
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

    def test_slurm_s_signal(self):
        """SIGUSR1 by a process of slurmstepd's name, to the agent of a machine's two ranks, which
        passes it on; the same by another sender asks for the state."""
        job = {**dp.ENDLESS, "cluster.min_ranks": 1}
        until = str(int(time.time()) + 900)
        driver = self.driver(n=3, job=job)
        agent = self.follower("--ranks", "2",
                              env={"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": until})
        self.wait_event("first_step")
        agent.signal(signal.SIGUSR1)
        for k in (1, 2):
            agent.wait_line(rf"rank {k}\] dpfollower: state: ")
        self.assertEqual(self.events("notice"), [])
        shutil.copy("/bin/bash", self.path("slurmstepd"))
        os.mkfifo(self.path("fifo"))
        sender = self.start([self.path("slurmstepd"), "-c",
                             f"kill -USR1 {agent.pid}; read -r _ <>fifo"])
        for n in (1, 2):
            event = self.wait_event("notice", n)
            self.assertEqual(event["source"], "slurm")
            self.assertIn(event["seconds"], range(800, 901))
        self.assert_exit(agent, STOPPED)
        sender.kill()
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

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


class Spot(Machines):
    """Three spot machines come and go, beside a driver that stays."""

    def take_back(self, name, daemon, n):
        """A machine is taken back, and another one comes: its follower, a spare until then."""
        self.send_notice(name)
        self.wait_event("notice", n)
        other = self.follower("--rank", "any", **self.leaves(f"{name}+"))
        self.wait_spares(1)
        return daemon, other

    def test_each_goes_once(self):
        """The rank that holds the others up is not the one that goes."""
        job = {**HELD, "train.epochs": 5, "cluster.spares": 1}
        driver, *ranks = self.start_all(
            job, "--inject", "stop:rank1@step40,stop:rank2@step80,stop:rank3@step120", n=4)
        gone = []
        for n, (frozen, leaver) in enumerate(((1, 2), (2, 3), (3, 1)), 1):
            self.wait_frozen(ranks[frozen - 1].pid, n)
            old, ranks[leaver - 1] = self.take_back(str(leaver), ranks[leaver - 1], n)
            ranks[frozen - 1].signal(signal.SIGCONT)
            self.assert_exit(old, STOPPED, "its place in the job is free now")
            gone.append(leaver)
        for daemon in (driver, *ranks):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual([event["rank"] for event in self.events("notice")], gone)
        self.assert_recovered(n_times=3, nranks=4)
        self.assertEqual([event["steps_lost"] for event in self.events("recovered")], [0, 0, 0])
        self.assertEqual(self.losses(), self.expected(job, 4))

    @unittest.skipUnless(SPOT_MINUTES, "DPTRAIN_SPOT_MINUTES says for how long")
    def test_for_minutes(self):
        """Each machine is there for 30 s and away for 5 s, at any moment of the training.  By
        strategy.shards the losses are the same bits with any number of ranks."""
        job = {"data.samples": 20000, "data.validation_samples": 500, "train.global_batch": 64,
               "train.epochs": 1000000, "strategy.shards": 4, "checkpoint.every_epochs": 0,
               "cluster.min_ranks": 1, "cluster.join_interval": 1, **COMMAND}
        driver, *ranks = self.start_all(job, n=4)
        self.wait_event("first_step")
        begun, due, n = time.monotonic(), [10.0, 20.0, 30.0], 0
        while time.monotonic() - begun < 60 * SPOT_MINUTES:
            k = due.index(min(due))
            dp.wait_for("the moment", lambda at=due[k]: time.monotonic() - begun > at)
            n += 1
            self.send_notice(f"{k + 1}")
            self.assert_exit(ranks[k], STOPPED)
            os.unlink(self.path(f"{k + 1}"))
            dp.wait_for("5 s", lambda at=time.monotonic(): time.monotonic() - at > 5)
            ranks[k] = self.follower("--rank", "any", **self.leaves(str(k + 1)))
            due[k] += 35
        driver.signal(signal.SIGTERM)
        for daemon in (driver, *ranks):
            self.assert_exit(daemon, STOPPED)
        losses = self.losses()[:-1]
        self.assertEqual(len(self.events("notice")), n)
        self.assertEqual({event["steps_lost"] for event in self.events("recovered")}, {0})
        print(f"  {n} machines went, {len(losses)} epochs, {losses[-1][1]} steps")
        self.run_driver("--local", "--run-dir", "calm", n=4,
                        job={**job, "train.epochs": len(losses)})
        self.assertEqual(losses, self.losses("calm"))


CLOUDS = {"aws": {"sys_vendor": "Amazon EC2"},
          "gcp": {"sys_vendor": "Google", "product_name": "Google Compute Engine"},
          "azure": {"sys_vendor": "Microsoft Corporation",
                    "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}}
SECONDS = {"aws": range(60, 121), "gcp": range(30, 31), "azure": range(60, 121)}
# Its address is the services', in a network of its own.
ALONE = ("unshare", "--net", "sh", "-c", "ip link set lo up && "
         'ip addr add 169.254.169.254/32 dev lo && exec "$@"', "sh")


class Clouds(training.Case):
    """cluster.notice: auto, the default, beside stand-ins for the services (metadata.py)."""

    def setUp(self):
        super().setUp()
        if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
            self.skipTest("a network of its own (unshare --net, ip) needs root")

    def start_driver(self, cloud, service=None):
        os.mkdir(self.path(cloud))
        for name, word in CLOUDS[cloud].items():
            with open(self.path(cloud, name), "w", encoding="ascii") as file:
                file.write(word + "\n")
        prefix = ("nsenter", f"--net=/proc/{service.pid}/ns/net") if service else ALONE
        return self.driver("--port", "0", "--run-dir", f"run-{cloud}", job=dp.ENDLESS, port=False,
                           prefix=prefix, env={"DPTRAIN_DMI": self.path(cloud),
                                               "http_proxy": "http://127.0.0.1:9"})

    def test_each(self):
        services = {}
        for cloud in CLOUDS:
            script = os.path.join(os.path.dirname(__file__), "metadata.py")
            services[cloud] = self.start([sys.executable, script, cloud], prefix=ALONE)
        for service in services.values():
            service.wait_line("ready")
        drivers = {cloud: self.start_driver(cloud, services[cloud]) for cloud in CLOUDS}
        for cloud, driver in drivers.items():
            driver.wait_line(f"the metadata service of {cloud} is asked every 5 s")
            self.wait_event("first_step", run=f"run-{cloud}")
        self.assertEqual([self.events("notice", f"run-{cloud}") for cloud in CLOUDS], [[], [], []])
        for service in services.values():
            service.signal(signal.SIGUSR1)
        for cloud, driver in drivers.items():
            self.assert_exit(driver, STOPPED, rf"goes away \({cloud}\) after step \d+")
            event, = self.events("notice", f"run-{cloud}")
            self.assertEqual((event["rank"], event["source"]), (0, cloud))
            self.assertIn(event["seconds"], SECONDS[cloud])
            self.assertNotRegex(driver.text, "is tried again")
        for service in services.values():
            service.kill()

    def test_a_service_that_does_not_answer(self):
        """It is told of, and the job goes on."""
        driver = self.start_driver("aws")
        driver.wait_line(r"cluster.notice: the metadata service of aws at 169.254.169.254: .*; "
                         "it is tried again every 5 s")
        self.wait_event("first_step", run="run-aws")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)


# A system with a bus and the real logind, in a /run of their own.  The shutdown goes to STUB.
LOGIND = "/lib/systemd/systemd-logind"
LOGIND_NAME, LOGIND_PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
STUB = os.environ.get("DPTRAIN_SYSTEMD_STUB", "")
BUS = """<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/>
<allow send_type="signal"/><allow receive_sender="*"/></policy></busconfig>"""
SYSTEM = ("unshare", "--mount", "sh", "-c",
          "mount -t tmpfs none /run && mkdir -p /run/dbus /run/systemd/system /run/systemd/seats "
          "/run/systemd/inhibit /run/systemd/users /run/systemd/sessions && "
          'exec dbus-daemon --config-file="$1" --nofork --nopidfile --print-address=2', "sh")


class Shutdown(training.Case):
    """systemd shuts the machine down."""

    def setUp(self):
        super().setUp()
        lacking = [name for name in (LOGIND, "dbus-daemon", "busctl") if not shutil.which(name)]
        if not STUB or lacking:
            self.skipTest(f"{', '.join(lacking) or 'libsystemd'} is lacking")
        with open(self.path("bus.conf"), "w", encoding="ascii") as file:
            file.write(BUS)
        self.system = self.start([self.path("bus.conf")], prefix=SYSTEM)
        try:
            self.system.wait_line("^unix:path=")
        except AssertionError:
            self.skipTest("a /run of its own (unshare --mount) needs root")
        self.inside = ("nsenter", "--target", str(self.system.pid), "--mount",
                       f"--wdns={self.folder}")
        self.manager = self.start([STUB], prefix=self.inside)
        self.manager.wait_line("ready")
        self.start([LOGIND], prefix=self.inside)
        dp.wait_for("logind", lambda: LOGIND_NAME in self.call("list").split())

    def call(self, *words):
        return subprocess.run([*self.inside, "busctl", *words], capture_output=True, text=True,
                              check=False).stdout

    def reboot(self):
        self.call("call", LOGIND_NAME, LOGIND_PATH, f"{LOGIND_NAME}.Manager", "Reboot", "b", "0")

    def start_driver(self):
        return self.driver("--port", "0", n=1, job=dp.ENDLESS, port=False, prefix=self.inside)

    def test_a_shutdown_that_runs_already(self):
        """logind gives no lock any more: that is the notice.  Another program's lock holds the
        shutdown up meanwhile."""
        self.start(["systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "600"],
                   prefix=self.inside)
        dp.wait_for("its lock", lambda: "sleep" in self.call(
            "call", LOGIND_NAME, LOGIND_PATH, f"{LOGIND_NAME}.Manager", "ListInhibitors"))
        self.reboot()
        driver = self.start_driver()
        self.assert_exit(driver, STOPPED, "goes away .*systemd")

    def test_the_driver_stops_in_order(self):
        """logind waits for it, and then goes on."""
        driver = self.start_driver()
        driver.wait_line("cluster.notice: a shutdown of this machine is heard, and held up for 5 s")
        self.wait_event("first_step")
        self.assertIn("dptrain", self.call("call", LOGIND_NAME, LOGIND_PATH,
                                           f"{LOGIND_NAME}.Manager", "ListInhibitors"))
        self.reboot()
        self.assert_exit(driver, STOPPED, r"goes away \(systemd\) after step \d+")
        self.manager.wait_line("started reboot.target")
        event, = self.events("notice")
        self.assertEqual((event["rank"], event["source"], event["seconds"]), (0, "systemd", 5))


if __name__ == "__main__":
    dp.main()

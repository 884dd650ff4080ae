"""Pulled cables: four ranks on two or three hosts (network namespaces), and links that go down.
Needs the right to make network namespaces; skipped without it."""

import re
import signal
import subprocess
import time

import dp
from dp import DRIVER, FAILED, FINISHED, FOLLOWER, PATIENT, RIGID, SOON, STOPPED, freezing

# 16 steps an epoch; the job goes on until the test ends it.
JOB = {"data.samples": 1024, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 100000, **dp.FORSAKEN}


def ip(command):
    return subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)


class Partition(dp.Case):
    """Hosts 0 to 2 are namespaces with a link to a switch, a bridge in a namespace of its own."""

    N_HOSTS = 3

    def setUp(self):
        super().setUp()
        self.need_hosts()
        tag = self.mark[:6]
        self.switch = f"dps{tag}"
        self.hosts = [f"dp{k}{tag}" for k in range(self.N_HOSTS)]
        commands = [f"netns add {name}" for name in (self.switch, *self.hosts)]
        commands += [f"-n {self.switch} link add name sw type bridge",
                     f"-n {self.switch} link set sw up"]
        for k, name in enumerate(self.hosts):
            commands += [
                f"-n {name} link add eth type veth peer name port{k} netns {self.switch}",
                f"-n {self.switch} link set port{k} master sw up",
                f"-n {name} addr add 10.78.0.{k + 1}/24 dev eth",
                f"-n {name} link set eth up",
                f"-n {name} link set lo up"]
        for command in commands:
            done = ip(command)
            if done.returncode != 0:
                self.remove()
                self.skipTest(f"ip {command}: {done.stderr}")

    def tearDown(self):
        super().tearDown()
        self.remove()

    def remove(self):
        for name in (self.switch, *self.hosts):
            ip(f"netns del {name}")

    def cable(self, host, state):
        """Pulls a host's cable ("down"), or plugs it in again ("up")."""
        self.assertEqual(ip(f"-n {self.switch} link set port{host} {state}").returncode, 0)

    def on(self, host):
        return {"prefix": ("ip", "netns", "exec", self.hosts[host])}

    def one(self, host, *args):
        return self.start([FOLLOWER, "--root", "10.78.0.1:7000", "--once", "--insecure",
                           "--threads", "1", *args], **self.on(host))

    def start_ranks(self, hosts, job, *args, spares=()):
        """Rank 0 on host 0, ranks 1.. on `hosts`, then the spares."""
        job = {**job, "cluster.spares": len(spares)}
        driver = self.start([DRIVER, "--nranks", str(1 + len(hosts)), "--port", "7000", "--host",
                             "10.78.0.1", "--insecure", "--threads", "1", *dp.sets(job), *args],
                            **self.on(0))
        driver.wait_line("listening on")
        ranks = [self.one(host, "--rank", str(k)) for k, host in enumerate(hosts, 1)]
        for k in range(1, 1 + len(hosts)):
            driver.wait_line(f"rank {k} joined")
        others = [self.one(host) for host in spares]
        for spare in others:
            spare.wait_line("as a spare")
        self.wait_event("epoch")
        return [driver, *ranks, *others]

    def losses(self):
        return {event["epoch"]: event["train_loss"] for event in self.events("epoch")}

    def test_a_host_of_two_ranks(self):
        """Both ranks of a host are lost and stop by themselves; two spares take their places."""
        driver, one, two, three, *spares = self.start_ranks([0, 1, 1], JOB, spares=[0, 2])
        since = time.monotonic()
        self.cable(1, "down")
        for lost in (two, three):
            self.assert_exit(lost, FAILED, "lost the driver at 10.78.0.1:7000.*no sign of life")
        self.assertLess(time.monotonic() - since, SOON)
        self.wait_event("recovered")
        self.assertLess(time.monotonic() - since, SOON)
        n_epochs = len(self.losses()) + 1  # the next epoch is whole
        self.wait_event("epoch", n_epochs)
        driver.signal(signal.SIGTERM)
        for daemon in (driver, one, *spares):
            self.assert_exit(daemon, STOPPED)
        self.assertEqual(sorted(event["rank"] for event in self.events("lost")), [2, 3])
        for event in self.events("recovered"):
            self.assertLessEqual(event["steps_lost"], 1)
        self.assertEqual(self.events("error"), [])
        disturbed = self.losses()
        calm = self.driver("--local", "--run-dir", "calm", "--threads", "1", n=4,
                           job={**JOB, "train.epochs": n_epochs})
        self.assert_exit(calm, FINISHED)
        for event in self.events("epoch", "calm"):
            self.assertLess(abs(disturbed[event["epoch"]] - event["train_loss"]),
                            1e-5 * event["train_loss"])

    def test_a_cable_that_comes_back(self):
        """A cable that is out for less than the heartbeat's timeout costs time and nothing else."""
        daemons = self.start_ranks([1, 1, 2], {**JOB, **PATIENT, "train.epochs": 10},
                                   *freezing(0, 40))
        self.wait_frozen(daemons[0].pid)
        self.cable(1, "down")
        self.wake(daemons[0].pid)
        out = time.monotonic() + 1.5
        dp.wait_for("a second and a half", lambda: time.monotonic() > out)
        self.cable(1, "up")
        for daemon in daemons:
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(self.events("lost"), [])

    def test_the_host_of_a_relay(self):
        """Its ranks are lost together.  Once the cable is back they come again, by a new connection
        of their agent's: the old one may be silent for long."""
        job = {**JOB, "cluster.min_ranks": 2, "cluster.replace_timeout": 1}
        driver = self.start([DRIVER, "--nranks", "4", "--port", "7000", "--host", "10.78.0.1",
                             "--insecure", "--threads", "1", *dp.sets(job)], **self.on(0))
        driver.wait_line("listening on")
        one = self.one(2, "--rank", "1")
        agent = self.start([FOLLOWER, "--root", "10.78.0.1:7000", "--insecure", "--threads", "1",
                            "--rank", "2", "--ranks", "2", "--relay"], **self.on(1))
        self.wait_event("epoch")
        self.cable(1, "down")
        dp.wait_for("two ranks", lambda: self.events("form")[-1]["nranks"] == 2)
        self.wait_event("recovered")
        self.cable(1, "up")
        since = time.monotonic()
        dp.wait_for("both ranks", lambda: len(re.findall("joined .* as a spare", agent.text)) == 2)
        self.assertLess(time.monotonic() - since, SOON)
        self.assertEqual(agent.text.count("relay: one connection to the driver"), 2)
        self.assertEqual(sorted(event["rank"] for event in self.events("lost")), [2, 3])
        driver.signal(signal.SIGTERM)
        for daemon in (driver, one):
            self.assert_exit(daemon, STOPPED)
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED)

    def test_nobody_to_replace(self):
        """Every rank on both sides stops in time; the driver's side names the lost rank."""
        driver, one, two, three = self.start_ranks([0, 1, 2], {**JOB, **RIGID})
        since = time.monotonic()
        self.cable(1, "down")
        for daemon in (driver, one, three):
            self.assert_exit(daemon, FAILED, r"rank 2 .* was lost.*no sign of life")
        self.assert_exit(two, FAILED, "lost the driver")
        self.assertLess(time.monotonic() - since, SOON)
        self.assertEqual(self.events("error")[0]["rank"], 2)

    def test_the_driver_is_cut_off(self):
        """Followers and driver all stop by themselves; a new driver resumes from the checkpoint."""
        job = {**JOB, **RIGID}
        driver, *followers = self.start_ranks([1, 1, 2], job)
        self.wait_event("checkpoint")
        since = time.monotonic()
        self.cable(0, "down")
        for follower in followers:
            self.assert_exit(follower, FAILED, "lost the driver at 10.78.0.1:7000")
        self.assert_exit(driver, FAILED, "was lost")
        self.assertLess(time.monotonic() - since, SOON)
        saved = self.events("checkpoint")[-1]["step"]
        self.run_driver("--local", "--resume", n=4, job={**job, "train.epochs": saved // 16 + 1})
        self.assertEqual(self.events("done")[-1]["step"], 16 * (saved // 16 + 1))

    def test_two_ranks_that_cannot_reach_each_other(self):
        """Both hear the driver, so no rank is silent: the deadlines end the job on every rank."""
        job = {**JOB, "cluster.deadlines.step": 6, "cluster.deadlines.form": 6,
               "cluster.replace_timeout": 1}
        daemons = self.start_ranks([0, 1, 2], job)
        since = time.monotonic()
        for host, other in ((1, 3), (2, 2)):
            done = ip(f"-n {self.hosts[host]} route add blackhole 10.78.0.{other}/32")
            self.assertEqual(done.returncode, 0, done.stderr)
        # A rank that is behind when the step's deadline passes is lost and not replaced.  If none
        # is behind, the ranks form again and again, in vain.
        for daemon in daemons:
            self.assert_exit(daemon, FAILED, r"no progress for 6 s .*rank [23]|given up after")
        self.assertLess(time.monotonic() - since, 24 + 3 * SOON)  # four formations, 6 s each


if __name__ == "__main__":
    dp.main()

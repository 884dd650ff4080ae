"""Networks as they are: four ranks on four hosts (network namespaces) behind a router of the tests
(router.c), which makes the network slow, lossy or narrow, or cuts it one way.

    test_networks.py [CLASS]     a short form of every case, within seconds each
    test_networks.py MINUTES     every kind of network for so long, under training; prints a table

No rank is declared lost because the network is slow.  A real cut is recovered from, or the job ends
with the right name.  Nothing hangs.  Needs the right to make network namespaces and TUN devices;
skipped without it."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

import dp
from dp import DRIVER, FAILED, FINISHED, FOLLOWER, SOON, STOPPED

ROUTER = os.environ.get("DPTRAIN_ROUTER", os.path.join(dp.ROOT, "build/tests/e2e/router"))
MINUTES = float(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1][0].isdigit() else 0
N_HOSTS = 4
SKIPPED = 77

# 8 steps an epoch, 100 kB of gradients.
JOB = {"model.arch": "mlp", "model.hidden": "32", "data.samples": 512,
       "data.validation_samples": 128, "train.global_batch": 64, "train.epochs": 2}
ENDLESS = {**JOB, "train.epochs": 1000000}
# A rank that is cut off is lost after two seconds, and the others go on without it.
QUICK = {"cluster.heartbeat_timeout": 2, "cluster.min_ranks": 2, "cluster.replace_timeout": 1,
         "cluster.join_interval": 1}

# Kinds of networks: the router's commands for each.
NETWORKS = {
    "no delay": [],
    "1 ms each way": ["delay 1"],
    "20 ms each way": ["delay 20"],
    "100 ms each way": ["delay 100"],
    "1 % of packets lost": ["delay 1", "loss 1"],
    "5 % of packets lost": ["delay 1", "loss 5"],
    "10 % of packets late by 10 ms": ["delay 1", "reorder 10"],
    "10 Mbit/s": ["delay 1", "rate 10"],
    "20 ms, 1 % lost, 10 Mbit/s": ["delay 20", "loss 1", "rate 10"],
}
# The ways between ranks 0 and 1, and ranks 2 and 3.
HALVES = [way for a in (0, 1) for b in (2, 3) for way in ((a, b), (b, a))]


def ip(command):
    return subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)


class World(dp.Case):
    over = {}  # what every job has besides

    def setUp(self):
        super().setUp()
        self.router = None
        self.hosts = [f"dpn{k}{self.mark[:6]}" for k in range(N_HOSTS)]
        self.need_hosts()
        if not os.path.exists(ROUTER):
            self.skipTest(f"there is no {ROUTER}")
        self.addCleanup(self.remove)
        for name in self.hosts:
            done = ip(f"netns add {name}")
            if done.returncode != 0:
                self.skipTest(f"ip netns add: {done.stderr}")
        self.router = subprocess.Popen([ROUTER, *self.hosts], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        said = self.router.stdout.readline()
        if said != "ok\n":
            self.assertEqual(self.router.wait(), SKIPPED, said)
            self.skipTest(said.strip())
        subprocess.run([DRIVER, "--make-secret", self.path("secret")], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def remove(self):
        if self.router:
            self.router.stdin.close()
            self.router.wait(dp.PATIENCE)
            self.router.stdout.close()
        for name in self.hosts:
            ip(f"netns del {name}")

    def network(self, *commands):
        """Gives commands to the router, and returns its last answer."""
        answer = ""
        for command in commands:
            self.router.stdin.write(command + "\n")
            self.router.stdin.flush()
            answer = self.router.stdout.readline()
            self.assertNotRegex(answer, "^error|^$", command)
        return answer.strip()

    def cut(self, *pairs, word="cut"):
        self.network(*(f"{word} {a} {b}" for a, b in pairs))

    def on(self, host):
        return {"prefix": ("ip", "netns", "exec", self.hosts[host])}

    def start_ranks(self, job, *args, once=True):
        """Rank k on host k, with a secret, as between real machines."""
        secret = ("--secret-file", self.path("secret"), "--threads", "1")
        driver = self.start([DRIVER, "--nranks", str(N_HOSTS), "--port", "7000", "--host",
                             "10.79.0.1", *secret, *dp.sets({**job, **self.over}), *args],
                            **self.on(0))
        driver.wait_line("listening on")
        return [driver, *(self.start([FOLLOWER, "--root", "10.79.0.1:7000", "--rank", str(k),
                                      *(["--once"] if once else []), *secret], **self.on(k))
                          for k in range(1, N_HOSTS))]

    def assert_over_fabric(self, driver):
        if self.over:
            self.assertIn("the links between ranks go over tcp;ofi_rxm", driver.text)

    def losses(self, run="runs/demo"):
        return [(event["epoch"], event["train_loss"], event.get("validation_loss"))
                for event in self.events("epoch", run)]

    def stop(self, *daemons):
        daemons[0].signal(signal.SIGTERM)
        for daemon in daemons:
            self.assert_exit(daemon, STOPPED)


class Slow(World):
    """The network is bad, and whole: no rank is lost, and not one bit of the result changes."""
    networks = tuple(NETWORKS)

    def test_every_network(self):
        calm = self.run_driver("--local", "--threads", "1", "--run-dir", "calm", n=N_HOSTS, job=JOB)
        self.assertEqual(calm.process.returncode, FINISHED)
        lost_before = 0
        for name in self.networks:
            commands = NETWORKS[name]
            with self.subTest(name):
                since = time.monotonic()
                self.network("delay 0", "loss 0", "reorder 0", "rate 0", *commands)
                run = re.sub(r"\W+", "-", name)
                daemons = self.start_ranks(JOB, "--run-dir", run)
                for daemon in daemons:
                    self.assert_exit(daemon, FINISHED)
                self.assert_over_fabric(daemons[0])
                self.assertEqual(self.losses(run), self.losses("calm"))
                for kind in ("lost", "error", "recovered"):
                    self.assertEqual(self.events(kind, run), [])
                took, counts = time.monotonic() - since, self.network("counts")
                print(f"{name}: {took:.1f} s, {counts}")
                n_lost = int(re.search(r"lost (\d+)", counts).group(1))
                self.assertEqual(n_lost > lost_before, any("loss" in word for word in commands))
                lost_before = n_lost


class Cut(World):
    """Packets of some hosts no longer arrive at others, in one direction or in both."""

    def lose(self, lost, *pairs):
        """Trains, cuts, and waits until the ranks `lost` are lost and the others go on."""
        daemons = self.start_ranks({**ENDLESS, **QUICK}, once=False)
        self.wait_event("epoch")
        since = time.monotonic()
        self.cut(*pairs)
        self.wait_event("lost", len(lost))
        self.wait_event("recovered")
        took = time.monotonic() - since
        self.assert_over_fabric(daemons[0])
        self.assertLess(took, SOON)
        print(f"after {took:.1f} s the others went on; ", end="", flush=True)
        self.wait_event("epoch", len(self.losses()) + 2)
        self.assertEqual(sorted(event["rank"] for event in self.events("lost")), sorted(lost))
        self.assertEqual(self.events("recovered")[-1]["nranks"], N_HOSTS - len(lost))
        for event in self.events("recovered"):
            self.assertLessEqual(event["steps_lost"], 1)
        return daemons

    def rejoin(self, daemons, *pairs):
        """Mends the network.  The ranks that were lost come back, and all of them train."""
        self.cut(*pairs, word="mend")
        dp.wait_for("all ranks", lambda: self.events("form")[-1]["nranks"] == N_HOSTS)
        self.wait_event("epoch", len(self.losses()) + 2)
        daemons[0].signal(signal.SIGTERM)
        self.assert_exit(daemons[0], STOPPED)
        self.assertEqual(self.events("error"), [])
        for follower in daemons[1:]:
            follower.signal(signal.SIGTERM)
            follower.wait_exit()

    def test_a_rank_that_is_not_heard(self):
        """Rank 2 hears the others, and nothing that it says arrives."""
        pairs = [(2, 0), (2, 1), (2, 3)]
        self.rejoin(self.lose([2], *pairs), *pairs)

    def test_a_rank_that_hears_nothing(self):
        """Rank 3 is heard, and nothing arrives at it."""
        pairs = [(0, 3), (1, 3), (2, 3)]
        self.rejoin(self.lose([3], *pairs), *pairs)

    def test_half_of_the_ranks(self):
        """Ranks 2 and 3 hear each other alone.  The driver's half goes on, the other comes back."""
        self.rejoin(self.lose([2, 3], *HALVES), *HALVES)

    def test_half_of_the_ranks_of_a_rigid_job(self):
        """The same where no rank may be lost: the driver's half ends, and names one of the two."""
        job = {**ENDLESS, **QUICK, "cluster.min_ranks": N_HOSTS, "cluster.replace_timeout": 0}
        driver, one, *others = self.start_ranks(job)
        self.wait_event("epoch")
        self.cut(*HALVES)
        for daemon in (driver, one):
            self.assert_exit(daemon, FAILED, "rank [23] .* was lost.*no sign of life",
                             patience=SOON)
        self.assertIn(self.events("error")[0]["rank"], (2, 3))
        for daemon in others:
            daemon.signal(signal.SIGTERM)
            daemon.wait_exit()

    def cut_driver(self, *pairs):
        """Cuts the driver off from all until every follower looks for it, then mends the network.
        The followers have kept their state: the losses are those of an undisturbed run."""
        daemons = self.start_ranks({**ENDLESS, **QUICK, "cluster.min_ranks": N_HOSTS,
                                    "cluster.replace_timeout": 60})
        self.wait_event("epoch")
        self.cut(*pairs)
        for follower in daemons[1:]:
            follower.wait_line("lost the driver")
        self.cut(*pairs, word="mend")
        since = time.monotonic()
        self.wait_event("recovered")
        print(f"went on {time.monotonic() - since:.1f} s after the mending; ", end="", flush=True)
        n_epochs = len(self.losses()) + 2
        self.wait_event("epoch", n_epochs)
        self.stop(*daemons)
        self.assertEqual(self.events("error"), [])
        for event in self.events("recovered"):
            self.assertLessEqual(event["steps_lost"], 1)
        self.run_driver("--local", "--threads", "1", "--run-dir", "calm", n=N_HOSTS,
                        job={**JOB, "train.epochs": n_epochs})
        self.assertEqual(self.losses()[:n_epochs], self.losses("calm"))

    def test_a_driver_that_is_not_heard(self):
        self.cut_driver((0, 1), (0, 2), (0, 3))

    def test_a_driver_that_hears_nothing(self):
        self.cut_driver((1, 0), (2, 0), (3, 0))

    def test_a_driver_alone(self):
        self.cut_driver(*((a, b) for k in (1, 2, 3) for a, b in ((0, k), (k, 0))))

    def test_a_driver_that_a_standby_replaces(self):
        """The driver on host 0 is cut off from all, and its standby on host 3 leads.  When the
        network is mended the driver learns that it is deposed, and the standby trains on."""
        job = {**ENDLESS, **QUICK}
        secret = ("--secret-file", self.path("secret"), "--threads", "1")
        pairs = [way for k in (1, 2, 3) for way in ((0, k), (k, 0))]
        driver = self.start([DRIVER, "--nranks", "3", "--port", "7000", "--host", "10.79.0.1",
                             "--run-dir", "run", *secret, *dp.sets(job)], **self.on(0))
        driver.wait_line("listening on")
        standby = self.start([DRIVER, "--standby", "--root", "10.79.0.1:7000", "--port", "7001",
                              "--host", "10.79.0.4", "--run-dir", "own", *secret], **self.on(3))
        standby.wait_line("as its standby")
        followers = [self.start([FOLLOWER, "--root", "10.79.0.1:7000", "--rank", str(k), "--once",
                                 *secret], **self.on(k)) for k in (1, 2)]
        self.wait_event("epoch", run="run")
        self.cut(*pairs)
        self.wait_event("recovered", run="own")
        self.cut(*pairs, word="mend")
        self.assert_exit(driver, FAILED, "another driver leads this run: .*so says the standby")
        self.wait_event("epoch", len(self.events("epoch", "own")) + 2, run="own")
        self.stop(standby, *followers)
        recovered, = self.events("recovered", "own")
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.assertEqual(recovered["source"], "followers")
        before, after = ([event["epoch"] for event in self.events("epoch", run)]
                         for run in ("run", "own"))
        self.assertEqual(after, list(range(after[0], after[0] + len(after))))
        self.assertIn(after[0] - before[-1], (0, 1))  # 0: it cannot know that this one was told

    def test_two_ranks_that_never_meet(self):
        """Both hear the driver.  It names the two, and the address that the higher one tries."""
        self.cut((1, 2), (2, 1))
        daemons = self.start_ranks({**JOB, "cluster.deadlines.form": 4})
        pair = r"rank 2 \(.*, pid \d+\) does not reach rank 1 \(.*, pid \d+\) at 10\.79\.0\.2"
        daemons[0].wait_line(r"form took longer than 4 s.*" + pair)
        for daemon in daemons:
            daemon.kill()

    def test_two_ranks_one_way(self):
        """Rank 1 cannot reach rank 2, and both hear the driver, so no rank is silent.  The step's
        deadline gives up the one of the two that is behind.  If none is, the ranks form again and
        again, in vain, and then every rank says that they do not reach each other."""
        job = {**ENDLESS, **QUICK, "cluster.deadlines.step": 4, "cluster.deadlines.form": 4}
        daemons = self.start_ranks(job)
        self.wait_event("epoch")
        self.cut((1, 2))
        dp.wait_for("a verdict", lambda: self.events("lost") or self.events("error"))
        if not self.events("lost"):
            for daemon in daemons:
                self.assert_exit(daemon, FAILED, r"do not reach each other.*given up after")
            return
        self.assertIn(self.events("lost")[0]["rank"], (1, 2))
        self.wait_event("recovered")
        self.wait_event("epoch", len(self.losses()) + 2)
        for daemon in daemons:
            daemon.signal(signal.SIGTERM)
        for daemon in daemons:
            daemon.wait_exit()


@unittest.skipUnless(os.environ.get("DPTRAIN_FABRIC"), "this build has no libfabric")
class FabricSlow(Slow):
    """The same over libfabric, whose endpoints find each other by the hosts' own addresses."""
    over = {"cluster.fabric": "tcp;ofi_rxm"}
    networks = ("1 ms each way", "5 % of packets lost", "20 ms, 1 % lost, 10 Mbit/s")


@unittest.skipUnless(os.environ.get("DPTRAIN_FABRIC"), "this build has no libfabric")
class FabricCut(Cut):
    over = FabricSlow.over


class Minutes(World):
    """tests/run.sh networks MINUTES: each network for so long."""

    def hold(self, name, commands):
        run = re.sub(r"\W+", "-", name)
        self.network("delay 0", "loss 0", "reorder 0", "rate 0", *commands)
        daemons = self.start_ranks(ENDLESS, "--run-dir", run)
        self.wait_event("epoch", run=run)
        before, since = self.events("epoch", run)[-1]["step"], time.monotonic()
        until = since + 60 * MINUTES
        while time.monotonic() < until:
            self.assertTrue(all(daemon.process.poll() is None for daemon in daemons), name)
            time.sleep(0.5)
        last, now = self.events("epoch", run)[-1]["step"], time.monotonic()
        self.stop(*daemons)
        for kind in ("lost", "error", "recovered"):
            self.assertEqual(self.events(kind, run), [], name)
        print(f"| {name} | {last - before} | {(last - before) / (now - since):.1f} |", flush=True)

    def test_hold(self):
        print("| network | steps | steps a second |\n|---|---|---|", flush=True)
        for name, commands in NETWORKS.items():
            self.hold(name, commands)


if __name__ == "__main__":
    if MINUTES:
        del Slow, Cut, FabricSlow, FabricCut
    else:
        del Minutes
    dp.main()

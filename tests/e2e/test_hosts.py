"""--hosts: the driver starts the followers of other machines by ssh.  Here ssh is a script that
runs the remote command on this machine."""

import contextlib
import os
import re
import signal
import stat
import subprocess
import unittest

import dp
import training
from dp import DRIVER, ENDLESS, FAILED, FINISHED, SMALL, STOPPED, USAGE, sets

SSH = """#!/bin/sh
[ "$1 $2 $3" = "-T -o BatchMode=yes" ] || exit 99
while [ "$1" = -T ] || [ "$1" = -o ]; do [ "$1" = -T ] || shift; shift; done
echo "$1" >>ssh.hosts
echo "$2" >>ssh.commands
if [ "$1" = bad ]; then
    echo "ssh: connect to host bad port 22: Connection refused" >&2
    exit 255
fi
exec sh -c "$2"
"""


class Hosts(training.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        os.mkdir(self.path("tmp"))
        self.write("bin/ssh", SSH)
        os.chmod(self.path("bin/ssh"), 0o755)
        self.env.update(PATH=self.path("bin") + ":" + os.environ["PATH"], TMPDIR=self.path("tmp"))
        subprocess.run([DRIVER, "--make-secret", self.path("secret")], env=self.env, check=True,
                       capture_output=True)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read()

    def run_hosts(self, text, *args, job=SMALL):
        self.write("hostfile", text)
        return self.start([DRIVER, "--hosts", "hostfile", "--secret-file", self.path("secret"),
                           "--iface", "lo", "--port", "0", *sets(job), *args])

    def test_two_machines(self):
        """All ranks come, the secret is on no command line, and nothing of it is left."""
        driver = self.run_hosts("# ours\na slots=2 max_slots=4\n\nme@b  # one\n")
        self.assert_exit(driver, FINISHED, r"\[rank \d\] dpfollower: joined .* of 4")
        self.assertEqual(self.events("start")[0]["nranks"], 4)
        self.assertEqual(sorted(self.read("ssh.hosts").split()), ["a", "me@b"])
        secret = self.read("secret").split()[-1]
        self.assertNotIn(secret, self.read("ssh.commands"))
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_machines_are_relays(self):
        """With --relays the ranks of each machine come by one connection."""
        driver = self.run_hosts("a slots=2\nb slots=1\n", "--relays", "2")
        self.assert_exit(driver, FINISHED)
        self.assertEqual(driver.text.count("dpfollower: relay: one connection to the driver"), 2)
        self.assertEqual(len(re.findall(r"joined: .* \(relayed \d\)", driver.text)), 3)

    def test_secret_is_for_its_owner(self):
        driver = self.run_hosts("a\n", job=ENDLESS)
        self.wait_event("first_step")
        files = [os.path.join(self.path("tmp"), name) for name in os.listdir(self.path("tmp"))]
        modes = [stat.S_IMODE(os.stat(name).st_mode) for name in files]
        self.assertEqual(modes, [0o600])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_followers_end_with_a_killed_driver(self):
        """tearDown finds what is left."""
        driver = self.run_hosts("a slots=2\n", job=ENDLESS)
        self.wait_event("first_step")
        driver.kill()
        driver.wait_exit()

    def test_a_machine_comes_back(self):
        """The remote shell is ended, as at a machine's shutdown: its follower ends, too, no secret
        is left, and ssh is started again."""
        driver = self.run_hosts("a\n", job=ENDLESS)
        self.wait_event("first_step")
        self.assertEqual(len(os.listdir(self.path("tmp"))), 1)
        with open(f"/proc/{driver.pid}/task/{driver.pid}/children", encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        driver.wait_line("a, started by --hosts: ssh exited with status 143: "
                         "starting it again in 1 s")
        self.wait_event("recovered")
        self.assert_recovered(nranks=2)
        self.assertEqual(self.read("ssh.hosts").split(), ["a", "a"])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def processes(self, pid):
        """A process and its descendants."""
        found = [pid]
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in self.read(f"/proc/{pid}/task/{thread}/children").split():
                found += self.processes(int(child))
        return found

    def assert_left(self, driver):
        """A machine's ranks left in order, together or one after the other: no step is lost."""
        self.wait_event("recovered")
        self.assertEqual({event["steps_lost"] for event in self.events("recovered")}, {0})
        self.assertTrue(all("left: stopped by SIGTERM" in event["reason"]
                            for event in self.events("lost")))
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_a_machine_is_shut_down(self):
        """All processes of the machine get SIGTERM at once.  Its ranks leave after the step, and it
        is tried again."""
        job = {**ENDLESS, "cluster.min_ranks": 2}
        driver = self.run_hosts("a slots=2\nb\n", job=job)
        self.wait_event("first_step")
        shell = self.processes(driver.pid)[1]
        for pid in self.processes(shell):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        driver.wait_line("a, started by --hosts: ssh exited with status 143: "
                         "starting it again in 1 s")
        self.assert_left(driver)

    def test_the_ranks_of_a_machine_are_stopped(self):
        """SIGTERM to the agent alone: a spare takes its rank's place, and the log says that the
        machine stays away."""
        driver = self.run_hosts("a\n", job={**ENDLESS, "cluster.spares": 1})
        port = driver.wait_line(r"listening on \S+:(\d+) ")[1]
        self.wait_event("first_step")
        spare = self.follower("--secret-file", self.path("secret"), port=port)
        self.wait_spares(1)
        agent = self.processes(driver.pid)[2]
        os.kill(agent, signal.SIGTERM)
        driver.wait_line("a, started by --hosts: ssh exited with status 4: its ranks have left, "
                         "because of a signal, a drain or a notice; it is not started again")
        spare.wait_line("takes part as rank 1 of 2")
        self.assert_left(driver)
        self.assert_exit(spare, STOPPED)

    def test_a_machine_that_stays_away(self):
        """Each attempt comes later; the job goes on."""
        driver = self.run_hosts("a\n", job={**ENDLESS, "cluster.min_ranks": 1,
                                            "cluster.replace_timeout": 1})
        self.wait_event("first_step")
        self.write("bin/ssh", "#!/bin/sh\nexit 255\n")
        with open(f"/proc/{driver.pid}/task/{driver.pid}/children", encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        for seconds in (1, 2, 4):
            driver.wait_line(f"ssh exited with status [0-9]*: starting it again in {seconds} s")
        self.assert_recovered(nranks=1)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_a_rank_of_a_machine_comes_back(self):
        driver = self.run_hosts("a slots=2\n", job=ENDLESS)
        self.wait_event("first_step")
        pid = driver.wait_line(r"rank 2 joined: \S+ \(pid (\d+)\)")[1]
        os.kill(int(pid), signal.SIGKILL)
        driver.wait_line(r"of 2 was killed by SIGKILL: starting it again in 1 s")
        self.wait_event("recovered")
        self.assert_recovered(nranks=3)
        self.assertEqual(self.read("ssh.hosts").split(), ["a"])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_nothing_is_started_again(self):
        """With cluster.replace_timeout: 0 neither a rank nor its machine is."""
        job = {**ENDLESS, "cluster.min_ranks": 1, "cluster.replace_timeout": 0}
        driver = self.run_hosts("a slots=2\n", job=job)
        self.wait_event("first_step")
        ranks = [int(driver.wait_line(rf"rank {k} joined: \S+ \(pid (\d+)\)")[1]) for k in (1, 2)]
        os.kill(ranks[1], signal.SIGKILL)
        self.wait_event("recovered")
        os.kill(ranks[0], signal.SIGKILL)
        driver.wait_line("a, started by --hosts: ssh exited with status 1: it is not started again "
                         r"\(cluster.replace_timeout is 0\)")
        self.wait_event("recovered", 2)
        self.assertNotIn("starting it again", driver.text)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_machine_that_cannot_be_reached(self):
        driver = self.run_hosts("a\nbad slots=3\n")
        self.assert_exit(driver, FAILED, r"ssh: connect to host bad",
                         r"bad, started by --hosts: ssh exited with status 255 before training")
        self.assertFalse(os.path.exists(self.path("runs")))  # the same command can be given again

    def test_refused(self):
        cases = [
            ("a slots=x\n", [], r'hostfile:1: "slots=x", want one machine in a line, with slots=N'),
            ("\n-oProxyCommand=x\n", [], r'hostfile:2: "-oProxyCommand=x" is no name'),
            ("a;b\n", [], r'"a;b" is no name of a machine, want NAME slots=N'),
            ("a\na\n", [], r"hostfile:2: a is there twice"),
            ("# none\n", [], r"no machine is named there"),
            ("a slots=4\n", ["--nranks", "3"], r"--nranks is 3, but hostfile has 4 ranks"),
            ("a\n", ["--nranks", "3", "--local"], r"--local and --hosts: "),
        ]
        for text, args, pattern in cases:
            with self.subTest(text=text):
                self.assert_exit(self.run_hosts(text, *args), USAGE, pattern)
        self.assert_exit(self.start([DRIVER, "--hosts", "hostfile"]), USAGE,
                         r"--hosts needs --secret-file")
        self.assert_exit(self.start([DRIVER, "--hosts", "none", "--insecure"]), USAGE,
                         r"--hosts none: .*No such file")
        self.assert_exit(self.start([DRIVER, "--hosts", "/", "--insecure"]), USAGE,
                         r"--hosts /: .*Is a directory")


if __name__ == "__main__":
    unittest.main(verbosity=2)

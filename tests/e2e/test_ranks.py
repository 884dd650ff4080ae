"""--ranks: one command starts and minds all ranks of a machine."""

import json
import os
import signal
import unittest

import dp
from dp import DRIVER, FOLLOWER, ENDLESS, FAILED, FINISHED, REFUSED, SMALL, STOPPED, USAGE, sets


def children(pid):
    """The ids of a process's children, by the log's number of each (1, 2, ...)."""
    found = {}
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        for child in file.read().split():
            with open(f"/proc/{child}/environ", "rb") as environ:
                for word in environ.read().split(b"\0"):
                    if word.startswith(b"DPTRAIN_MINDER="):
                        found[int(word.split(b":")[1])] = int(child)
    return found


class Ranks(dp.Case):
    def wait_children(self, daemon, n):
        return dp.wait_for("children", lambda: (got := children(daemon.pid)) and len(got) == n
                           and got)

    def test_two_machines(self):
        """Two commands, four ranks; the lines of each rank carry its number."""
        driver = self.driver("--ranks", "2", n=4)
        agent = self.follower("--ranks", "2", "--rank", "2", "--log-format", "json")
        self.assert_exit(driver, FINISHED, r"(?m)^dpdriver: rank 1: --device auto, bound to",
                         r"(?m)^\[rank 1\] dpfollower: joined .* as rank 1 of 4")
        self.assert_exit(agent, FINISHED)
        lines = [json.loads(line) for line in agent.lines if line]
        joined = {line["rank"]: line["message"] for line in lines
                  if line["message"].startswith("joined")}
        self.assertEqual(sorted(joined), [2, 3])
        for rank, message in joined.items():
            self.assertIn(f"as rank {rank} of 4", message)
        for line in lines:  # only the agent's own lines belong to no rank
            self.assertTrue("rank" in line or "process" in line or "(process " in line["message"],
                            line)

    def test_nranks_follows(self):
        """Without --nranks all ranks are here."""
        driver = self.start([DRIVER, "--ranks", "2", "--port", "0", "--bind", "none", *sets(SMALL)])
        self.assert_exit(driver, FINISHED, r"rank 1: --device auto, bound to no CPUs")
        self.assertEqual(self.events("start")[0]["nranks"], 2)

    def test_cpus_are_shared_out(self):
        """Each rank runs on CPUs of its own, if there are enough."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one CPU")
        self.driver(n=4, job=ENDLESS)
        agent = self.follower("--ranks", "2", port=self.wait_port())
        pids = self.wait_children(agent, 2)
        mine = [dp.wait_for("the binding", lambda p=pid: self.bound(p)) for pid in pids.values()]
        self.assertEqual(mine[0] & mine[1], set())
        self.assertEqual(mine[0] | mine[1], os.sched_getaffinity(0))
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED)
        self.daemons[0].signal(signal.SIGTERM)
        self.daemons[0].signal(signal.SIGTERM)
        self.daemons[0].wait_exit()

    def test_quota(self):
        """A CPU quota of the cgroup, here one CPU, sets the number of threads."""
        with open("/proc/self/cgroup", encoding="ascii") as file:
            has_v2 = any(line.startswith("0::") for line in file)
        own = ["unshare", "--mount", "sh", "-c",
               "mount -t tmpfs none /sys/fs/cgroup && echo 100000 100000 >/sys/fs/cgroup/cpu.max "
               "&& exec \"$@\"", "sh"]
        if len(os.sched_getaffinity(0)) < 2 or not has_v2 or self.start([*own, "true"]).wait_exit():
            self.skipTest("one CPU, or no cgroup v2, or nothing can be mounted here")
        says = r"the cgroup's quota is 1 CPU"
        for words, line in (
                ([], rf"using 1 thread, since {says} \(/sys/fs/cgroup/cpu.max\); --threads says"),
                (["--ranks", "1"], rf"rank 0: .*bound to CPUs .*, 1 thread \({says}\)")):
            with self.subTest(words=words):
                job = self.start([*own, DRIVER, "--nranks", "1", "--port", "0", *words,
                                  *sets(SMALL)])
                self.assert_exit(job, FINISHED, line)
        job = self.start([*own, DRIVER, "--nranks", "1", "--port", "0", "--threads", "2",
                          *sets(SMALL)])
        self.assert_exit(job, FINISHED)
        self.assertNotIn("quota", job.text)

    @staticmethod
    def bound(pid):
        """The CPUs of a child, once they are fewer than this process's."""
        cpus = os.sched_getaffinity(pid)
        return cpus != os.sched_getaffinity(0) and cpus

    def test_one_that_dies_is_started_again(self):
        driver = self.driver(n=3, job=ENDLESS)
        agent = self.follower("--ranks", "2", "--rank", "1", once=False)
        self.wait_event("first_step")
        before = self.wait_children(agent, 2)
        os.kill(before[2], signal.SIGKILL)
        agent.wait_line(r"rank 2 \(process 2 of 2\) was killed by SIGKILL: starting it again")
        self.wait_event("recovered")
        after = self.wait_children(agent, 2)
        self.assertEqual(after[1], before[1])  # it alone
        self.assertNotEqual(after[2], before[2])
        self.assertEqual(self.events("form")[-1]["nranks"], 3)
        agent.signal(signal.SIGUSR1)
        agent.wait_line(r"^\[rank 2\] dpfollower: state: ")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        # Both outlive the job, and have been named by the ranks that they were started for.
        agent.wait_line(r"^\[rank 2\] dpfollower: .*waiting for the next driver")
        self.assertNotIn("[process", agent.text)
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED, r"SIGTERM: passed on to 2 processes")

    def test_started_with_signals_blocked(self):
        """A daemon inherits the signals that the program which starts it has blocked."""
        numbers = {signal.SIGCHLD, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            agent = self.follower("--ranks", "2", port=dp.free_port(), once=False)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        os.kill(self.wait_children(agent, 2)[2], signal.SIGKILL)
        agent.wait_line(r"process 2 of 2 was killed by SIGKILL: starting it again")
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED)

    def test_once_starts_none_again(self):
        """The job may go on without a process; the agent's status tells of it."""
        driver = self.driver(n=3, job={**ENDLESS, "cluster.min_ranks": 2,
                                       "cluster.replace_timeout": 1})
        agent = self.follower("--ranks", "2")
        self.wait_event("first_step")
        os.kill(self.wait_children(agent, 2)[2], signal.SIGKILL)
        agent.wait_line(r"process 2 of 2 was killed by SIGKILL$")
        self.wait_event("recovered")
        self.assertEqual(list(self.wait_children(agent, 1)), [1])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assert_exit(agent, FAILED)

    def test_driver_replaces_its_own(self):
        driver = self.driver("--ranks", "3", n=3, job=ENDLESS)
        self.wait_event("first_step")
        pid = self.wait_children(driver, 2)[3]
        os.kill(pid, signal.SIGKILL)
        self.wait_event("recovered")
        self.assertEqual(sorted(self.wait_children(driver, 2)), [2, 3])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, r"resume with: .* --nranks 3 .*--ranks 3 .*--resume")

    def test_children_end_with_their_agent(self):
        """However the agent dies: tearDown finds processes that are left."""
        agent = self.follower("--ranks", "2", port=dp.free_port(), once=False)
        self.wait_children(agent, 2)
        agent.kill()
        agent.wait_exit()

    def test_second_signal_kills(self):
        agent = self.follower("--ranks", "2", port=dp.free_port(), once=False)
        for pid in self.wait_children(agent, 2).values():
            os.kill(pid, signal.SIGSTOP)
        agent.signal(signal.SIGINT)
        agent.wait_line(r"once more kills")
        agent.signal(signal.SIGINT)
        self.assert_exit(agent, STOPPED)

    def test_status_is_the_first_cause(self):
        """Of two processes one finds a place; the other one is refused."""
        driver = self.driver(n=2)
        agent = self.follower("--ranks", "2")
        self.assert_exit(driver, FINISHED)
        self.assert_exit(agent, REFUSED, r"process [12] of 2 exited with status 3")

    def test_refused(self):
        cases = [
            ([DRIVER, "--nranks", "2", "--ranks", "3"], r"--ranks 3 on this machine, but --nranks"),
            ([DRIVER, "--nranks", "2", "--ranks", "2", "--local"], r"--local and --ranks: "),
            ([DRIVER, "--nranks", "2", "--bind", "none"], r"--bind belongs to --ranks"),
            ([DRIVER, "--ranks", "gpus", "--device", "cpu"], r"--ranks gpus: no GPU can be used"),
            ([FOLLOWER, "--root", "127.0.0.1:1", "--ranks", "none"], r'--ranks is "none", want'),
            ([DRIVER, "--standby", "--root", "h:1", "--ranks", "2"], r"--standby and --ranks"),
        ]
        for argv, pattern in cases:
            with self.subTest(argv=argv):
                self.assert_exit(self.start(argv), USAGE, pattern)


if __name__ == "__main__":
    unittest.main(verbosity=2)

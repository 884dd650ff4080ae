"""Ranks that differ in their threads, instruction sets and hosts.
Their replicas must be equal all the same."""

import subprocess

import dp
from dp import DRIVER, FINISHED, FOLLOWER, SMALL


class Unequal(dp.Case):
    def train(self, *followers, driver_args=("--threads", "1")):
        """`followers` are (arguments, environment) pairs.  Replicas are compared after each epoch,
        so a job that finishes has equal ones."""
        driver = self.driver(*driver_args, n=1 + len(followers))
        others = [self.follower(*args, env=env) for args, env in followers]
        for daemon in (driver, *others):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(len(self.events("epoch")), 2)

    def test_threads(self):
        self.train((["--threads", "2"], {}), (["--threads", "3"], {}))

    def test_instruction_sets(self):
        self.train((["--threads", "1"], {"DNNL_MAX_CPU_ISA": "SSE41"}),
                   (["--threads", "2"], {"DNNL_MAX_CPU_ISA": "AVX2"}))


class TwoHosts(dp.Case):
    """Two network namespaces, joined by a veth pair, are two hosts."""

    def setUp(self):
        super().setUp()
        self.need_hosts()
        tag = self.mark[:6]
        self.names = [f"dpa{tag}", f"dpb{tag}"]
        for command in [f"netns add {self.names[0]}", f"netns add {self.names[1]}",
                        f"-n {self.names[0]} link add va type veth peer name vb "
                        f"netns {self.names[1]}"]:
            done = self.ip(command)
            if done.returncode != 0:
                self.remove()
                self.skipTest(f"ip {command}: {done.stderr}")
        for name, device, number in ((self.names[0], "va", 1), (self.names[1], "vb", 2)):
            for command in (f"addr add 10.77.0.{number}/24 dev {device}",
                            f"addr add fd77::{number}/64 dev {device} nodad",
                            f"link set {device} up", "link set lo up"):
                done = self.ip(f"-n {name} {command}")
                self.assertEqual(done.returncode, 0, done.stderr)

    def tearDown(self):
        super().tearDown()
        self.remove()

    def remove(self):
        for name in self.names:
            self.ip(f"netns del {name}")

    @staticmethod
    def ip(command):
        return subprocess.run(["ip", *command.split()], capture_output=True, text=True,
                              check=False)

    def on(self, host):
        return {"prefix": ("ip", "netns", "exec", self.names[host])}

    def job(self, driver_host, root, near_root=None, extra=()):
        """Ranks 0 and 1 are on host 0, rank 2 on host 1."""
        driver = self.start([DRIVER, "--nranks", "3", "--port", "7000", "--host", driver_host,
                             "--insecure", *dp.sets(SMALL), *extra], **self.on(0))
        driver.wait_line("listening on")
        near = self.start([FOLLOWER, "--root", near_root or root, "--rank", "1", "--once",
                           "--insecure", "--threads", "1"], **self.on(0))
        far = self.start([FOLLOWER, "--root", root, "--rank", "2", "--once", "--insecure",
                          "--threads", "1"], **self.on(1))
        for daemon in (driver, near, far):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(len(self.events("epoch")), 2)

    def test_address(self):
        self.job("10.77.0.1", "10.77.0.1:7000")

    def test_near_one_by_loopback(self):
        """Rank 1 connects by 127.0.0.1; rank 2, on the other host, must still reach rank 1."""
        self.job("0.0.0.0", "10.77.0.1:7000", near_root="127.0.0.1:7000")

    def test_ipv6(self):
        self.job("::", "[fd77::1]:7000", near_root="[::1]:7000")

    def test_interface(self):
        self.job("0.0.0.0", "10.77.0.1:7000", near_root="127.0.0.1:7000", extra=("--iface", "va"))

    def test_needs_insecure(self):
        follower = self.start([FOLLOWER, "--root", "10.77.0.1:7000", "--once"], **self.on(1))
        self.assert_exit(follower, dp.USAGE, "--insecure")

    def test_link_goes_down(self):
        """The cable is pulled: no connection closes, yet both sides know within seconds."""
        job = {**dp.ENDLESS, **dp.RIGID}
        driver = self.start([DRIVER, "--nranks", "2", "--port", "7000", "--host", "10.77.0.1",
                             "--insecure", *dp.sets(job)], **self.on(0))
        driver.wait_line("listening on")
        follower = self.start([FOLLOWER, "--root", "10.77.0.1:7000", "--once", "--insecure"],
                              **self.on(1))
        self.wait_event("first_step")
        self.assertEqual(self.ip(f"-n {self.names[0]} link set va down").returncode, 0)
        self.assert_exit(driver, dp.FAILED, "rank 1", patience=dp.SOON)
        self.assert_exit(follower, dp.FAILED, "lost the driver", patience=dp.SOON)


if __name__ == "__main__":
    dp.main()

"""Followers that the driver refuses, strangers at its port, and what each side says about it.
None of them disturbs the job."""

import os
import re
import resource
import socket
import struct
import subprocess

import dp
from dp import FAILED, FINISHED, REFUSED, SMALL, STOPPED, USAGE


class Refusals(dp.Case):
    def stop(self, driver):
        driver.signal(dp.signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_rank_taken(self):
        driver = self.driver(n=3)
        first = self.follower("--rank", "1")
        driver.wait_line("rank 1 joined")
        second = self.follower("--rank", "1")
        self.assert_exit(second, REFUSED, r"refused by the driver at .*rank 1.*pid \d+")
        driver.wait_line(r"refused 127.0.0.1:\d+.*rank 1")
        self.stop(driver)
        self.assert_exit(first, STOPPED)

    def test_rank_out_of_range(self):
        driver = self.driver(n=2)
        follower = self.follower("--rank", "2")
        self.assert_exit(follower, REFUSED, r"refused by the driver.*rank 2")
        self.stop(driver)

    def test_full(self):
        driver = self.driver(n=2, job=dp.ENDLESS)
        first = self.follower()
        self.wait_event("first_step")
        second = self.follower()
        self.assert_exit(second, REFUSED, r"refused by the driver")
        self.stop(driver)
        self.assert_exit(first, STOPPED)

    def test_comes_again(self):
        """Without --once a follower that finds no place asks again, and says each reason once."""
        port = dp.free_port()
        driver = self.driver("--port", str(port), n=2, job=dp.ENDLESS, port=False)
        first = self.follower("--rank", "1", port=port)
        driver.wait_line("rank 1 joined")
        second = self.follower("--rank", "1", port=port, once=False)
        second.wait_line("refused by the driver at .*rank 1 is taken.*trying again, up to every")
        for _ in range(3):
            driver.wait_line(r"refused 127.0.0.1:\d+.*rank 1", start=len(driver.lines))
        self.assertEqual(second.text.count("refused by the driver"), 1, second.text)
        self.stop(driver)
        self.assert_exit(first, STOPPED)
        self.assert_exit(self.driver("--port", str(port), n=2, port=False), FINISHED)
        second.wait_line("joined the driver at")
        second.signal(dp.signal.SIGTERM)
        self.assert_exit(second, STOPPED)

    def test_data_differs(self):
        """A follower with other samples or a broken file is refused; its place is free again."""
        source = os.path.join(os.environ.get("DPTRAIN_DATA",
                                             os.path.join(dp.ROOT, "../shared/data")), "mnist")
        if not os.path.isdir(source):
            self.skipTest(f"no MNIST in {source}")
        source = os.path.abspath(source)
        for folder in ("good", "swapped", "broken", "missing"):
            os.mkdir(self.path(folder))
            for name in os.listdir(source):
                os.symlink(os.path.join(source, name), self.path(folder, name))
        for kind in ("images-idx3", "labels-idx1"):  # these files are for validation
            for prefix, other in (("train", "t10k"), ("t10k", "train")):
                path = self.path("swapped", f"{prefix}-{kind}-ubyte.gz")
                os.unlink(path)
                os.symlink(os.path.join(source, f"{other}-{kind}-ubyte.gz"), path)
        os.unlink(self.path("missing", "train-labels-idx1-ubyte.gz"))
        path = self.path("broken", "train-labels-idx1-ubyte.gz")
        os.unlink(path)
        with open(path[:-3], "wb") as file:
            file.write(struct.pack(">II", 0x801, 60000) + b"\7" * 1000)

        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write("name: mnist\nmodel: {arch: lenet}\n"
                       "data: {format: mnist, path: good, validation: t10k}\n"
                       "train: {global_batch: 256, epochs: 1, max_steps: 5}\n")
        driver = self.driver("--job", "job.yaml", n=2, job=None)
        follower = self.follower("--data", "swapped")
        self.assert_exit(follower, REFUSED, r"samples")
        follower = self.follower("--data", "broken")
        self.assert_exit(follower, USAGE, r"train-labels-idx1-ubyte")
        follower = self.follower("--data", "missing")
        self.assert_exit(follower, USAGE, r"train-labels-idx1-ubyte")
        follower = self.follower("--data", "good")
        self.assert_exit(follower, FINISHED)
        self.assert_exit(driver, FINISHED)

    def test_driver_data_wrong(self):
        """The driver's own data are wrong: status 2, and no run directory is left."""
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write("name: mnist\nmodel: {arch: lenet}\n"
                       "data: {format: mnist, path: nowhere, validation: t10k}\n")
        driver = self.driver("--job", "job.yaml", "--local", n=3, job=None)
        self.assert_exit(driver, USAGE, r"nowhere")
        self.assertEqual(sorted(os.listdir(self.folder)), ["job.yaml", "port"])

    def test_no_driver(self):
        port = dp.free_port()
        follower = self.follower("--wait", "1", port=port)
        self.assert_exit(follower, REFUSED,
                         rf"no driver at 127.0.0.1:{port} within 1 s: .*ECONNREFUSED.*; "
                         r"\d+ attempts?\.")

    def dies_before_its_answer(self, *args):
        """A follower with --once whose driver dies before it has answered Hello."""
        port = dp.free_port()
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(dp.PATIENCE)
            follower = self.follower(*args, port=port)
            server.accept()[0].close()
        return port, follower

    def test_driver_dies_before_its_answer(self):
        """The follower looks for the driver again, and joins the one that is started next."""
        port, follower = self.dies_before_its_answer()
        driver = self.driver("--port", str(port), n=2, port=False, job={**SMALL, "train.epochs": 1})
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)

    def test_driver_dies_and_none_comes(self):
        """... for as long as --wait says since it began to look."""
        port, follower = self.dies_before_its_answer("--wait", "1")
        self.assert_exit(follower, REFUSED, rf"no driver at 127.0.0.1:{port} within 1 s: ")

    def test_nobody_but_itself(self):
        """The driver's port is one that the system gives to clients, and nobody listens at it.  The
        follower may be given it and connect to itself, which it must not take for its driver."""
        script = ("ip link set lo up && echo 40000 40001 >/proc/sys/net/ipv4/ip_local_port_range "
                  '&& exec "$@"')
        if subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", "true"],
                          stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("a network of its own (unshare --net) needs root")
        follower = self.follower("--wait", "1", port=40000,
                                 prefix=("unshare", "--net", "sh", "-c", script, "sh"))
        self.assert_exit(follower, REFUSED, "no driver at 127.0.0.1:40000 .*ECONNREFUSED")

    def test_unproven_driver_by_name(self):
        """A host name may lead to another machine, where nothing proves that the driver is ours.
        The address is known only after connecting.  (A hexadecimal number is looked up, too.)"""
        listen = ("import os, socket, sys; s = socket.create_server(('192.0.2.1', 40000)); "
                  "os.set_inheritable(s.fileno(), True); os.execvp(sys.argv[1], sys.argv[1:])")
        script = ("ip addr add 192.0.2.1/32 dev lo && ip link set lo up && "
                  f'exec python3 -c "{listen}" "$@"')
        prefix = ("unshare", "--net", "sh", "-c", script, "sh")
        if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("a network of its own (unshare --net) needs root")
        follower = self.follower("--wait", "20", host="0xc0000201", port=40000, prefix=prefix)
        self.assert_exit(follower, USAGE, "the driver at 0xc0000201:40000 is not on this machine")

    def test_no_driver_ever(self):
        """Without --once a follower waits until it is told to stop."""
        follower = self.follower("--wait", "1", port=dp.free_port(), once=False)
        follower.wait_line("--wait has no effect without --once")
        follower.wait_line("waiting for a driver")
        self.assertEqual(follower.text.count("--wait has no effect"), 1)
        follower.signal(dp.signal.SIGINT)
        self.assert_exit(follower, STOPPED, "stopped by SIGINT")

    def test_not_a_driver(self):
        """Another program listens there: a web server, and one that says nothing."""
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            server.settimeout(dp.PATIENCE)
            follower = self.follower(port=server.getsockname()[1])
            peer, _ = server.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self.assert_exit(follower, REFUSED, r"no answer from the driver.*")
            peer.close()

    def test_not_a_follower(self):
        """Strangers at the driver's port do not disturb the job."""
        driver = self.driver(n=2, job={**SMALL, "train.epochs": 1})
        port = self.wait_port()
        strangers = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
                     b"DPT1\x7f\xff\xff\xff", b"DPT1\x00\x00\x00\x00", b"DPT1\x00\x00\x00\x05hello",
                     b""]
        socks = []
        for i, text in enumerate(strangers):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(text)
            socks.append(sock)
            if text:
                address = rf"127.0.0.1:{sock.getsockname()[1]}\b"
                driver.wait_line(address)
                self.assertEqual(len(re.findall(address, driver.text)), 1, driver.text)
        follower = self.follower()
        self.assert_exit(follower, FINISHED)
        self.assert_exit(driver, FINISHED)
        for sock in socks:
            sock.close()

    def test_flood(self):
        """A follower joins despite more silent connections than there are places for strangers."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 3000:
            self.skipTest(f"{hard} file descriptors are too few")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        flood = []
        try:
            driver = self.driver(n=2, job={**SMALL, "train.epochs": 1})
            port = self.wait_port()
            for _ in range(1300):
                flood.append(socket.create_connection(("127.0.0.1", port)))
            follower = self.follower(port=port)
            self.assert_exit(follower, FINISHED)
            self.assert_exit(driver, FINISHED)
        finally:
            for sock in flood:
                sock.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_off_this_machine(self):
        """A driver that listens on all addresses (--insecure) is reached from this machine, too."""
        driver = self.driver("--host", "0.0.0.0", "--insecure", "--local", n=2)
        self.assert_exit(driver, FINISHED)

    def start_copy(self):
        return self.start([self.copied_driver(), "--nranks", "2", "--local", "--port", "0"])

    def test_local_program_missing(self):
        driver = self.start_copy()
        self.assert_exit(driver, USAGE, r"--local: dpfollower is not in .*/bin")
        self.assertLessEqual(set(os.listdir(self.folder)), {"bin", "lib"})

    def test_local_follower_fails(self):
        """A local follower that cannot even start ends the job at once, not after the deadline."""
        os.mkdir(self.path("bin"))
        with open(self.path("bin", "dpfollower"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 7\n")
        os.chmod(self.path("bin", "dpfollower"), 0o755)
        driver = self.start_copy()
        self.assert_exit(driver, FAILED, r"local follower of rank 1 exited with status 7")


if __name__ == "__main__":
    dp.main()

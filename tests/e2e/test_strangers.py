"""Strangers at the ranks' data ports, all the time from the first formation to the last step, a
recovery included.  The job finishes as if nobody had come, and each rank tells of them once in each
formation."""

import os
import re
import socket
import struct
import threading
import time

import dp
from dp import DRIVER, FINISHED

# The header of the library that the links once were made of: it wrote what followed at an offset
# that wraps around.
OLD_HEADER = struct.pack("<6Q", 48 + 8208, 0, 0, 8208, 2**64 - 8192, 0) + bytes(8208)

WORDS = [
    b"",
    b"GET / HTTP/1.1\r\nHost: rank\r\nUser-Agent: a scanner that looks at every port\r\n\r\n" * 2,
    OLD_HEADER,
    struct.pack("<6Q", 48, 77, 0, 0, 0, 0) + bytes(48),
    b"dpL1" + struct.pack(">HHHBB", 1, 1, 0, 0, 0) + bytes(68),
    b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + bytes(240),
    bytes(range(256)) * 40,
]
TOLD = r"(\d+) connections to this rank's data port were closed"


def inodes_of(pid):
    """The sockets that a process has open."""
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            match = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            if match:
                found.add(match.group(1))
    except OSError:
        pass
    return found


def listening():
    """{inode: port} of the sockets of this machine that listen on IPv4."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {row[9]: int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}


class Attack(threading.Thread):
    """Throws WORDS at all data ports of the marked processes until it is told to stop."""

    def __init__(self, mark, control_port):
        super().__init__(daemon=True)
        self.mark = mark
        self.control_port = control_port
        self.over = threading.Event()
        self.n_thrown = 0
        self.ports = set()
        self.held = []

    def data_ports(self):
        sockets = listening()
        inodes = set().union(*(inodes_of(pid) for pid in dp.marked(self.mark)))
        return {port for inode, port in sockets.items()
                if inode in inodes and port != self.control_port}

    def throw(self, port, word):
        s = socket.socket()
        s.settimeout(1)
        try:
            s.connect(("127.0.0.1", port))
            if word:
                s.sendall(word)
            self.n_thrown += 1
        except OSError:
            pass
        self.held.append(s)  # each stays open for a while, silent
        if len(self.held) > 40:
            self.held.pop(0).close()

    def run(self):
        while not self.over.is_set():
            ports = self.data_ports()
            self.ports |= ports
            for port in ports:
                for word in WORDS:
                    self.throw(port, word)
            time.sleep(0.02)

    def stop(self):
        self.over.set()
        self.join()
        for s in self.held:
            s.close()


# The links carry as much as those of the demo's LeNet, but the computation, which strangers do not
# disturb, takes little, also under a sanitizer.
JOB = {**dp.SMALL, "train.epochs": 6}
# Each formation lasts at least so long.
PAUSES = ["delay:rank2@step20:1s", "delay:rank2@step100:1s"]


class Strangers(dp.Case):
    def run_attacked(self, n_formations, n_spares, *args, faults=(), more=()):
        driver = self.driver(*args, "--run-dir", "run", "--inject", ",".join([*PAUSES, *faults]),
                             n=3, job={**JOB, "cluster.spares": n_spares})
        attack = Attack(self.mark, self.wait_port())
        attack.start()
        followers = [self.follower(*more) for _ in range(2 + n_spares)]
        driver.wait_exit()
        attack.stop()
        self.assert_exit(driver, FINISHED)
        self.assertGreater(attack.n_thrown, 20)
        self.assertEqual(len(self.events("form", "run")), n_formations)
        self.assertEqual(len(self.events("recovered", "run")), n_formations - 1)
        self.assert_told(n_formations, driver, followers)
        return followers

    def assert_told(self, n_formations, driver, followers):
        warnings = [e for e in self.events("warning", "run") if re.search(TOLD, e["message"])]
        self.assertEqual(len(warnings), n_formations, warnings)
        for said in warnings:
            self.assertGreater(int(re.search(TOLD, said["message"]).group(1)), 0)
        self.assertEqual(len(re.findall(TOLD, driver.text)), n_formations)
        for follower in followers:
            self.assertLessEqual(len(re.findall(TOLD, follower.text)), n_formations)

    def test_without_a_secret(self):
        self.run_attacked(1, 0, "--insecure", more=("--insecure",))

    def test_with_a_secret(self):
        self.start([DRIVER, "--make-secret", "secret"]).wait_exit()
        secret = ("--secret-file", "secret")
        self.run_attacked(1, 0, *secret, "--host", "127.0.0.1", more=secret)

    def test_encrypted(self):
        self.start([DRIVER, "--make-secret", "secret"]).wait_exit()
        secret = ("--secret-file", "secret")
        followers = self.run_attacked(1, 0, *secret, "--host", "127.0.0.1", "--set",
                                      "cluster.encrypt=on", more=secret)
        for follower in followers:
            said = re.findall("the links between ranks are encrypted: TLS by", follower.text)
            self.assertEqual(len(said), 1)

    def test_recovering(self):
        """The spare takes the lost rank's place under attack."""
        self.run_attacked(2, 1, "--insecure", faults=["kill:rank1@step40"], more=("--insecure",))


class Refused(dp.Case):
    def test_encryption_without_a_secret(self):
        for more in ([], ["--check"]):
            driver = self.run_driver("--insecure", *more, n=2, status=dp.USAGE,
                                     job={**dp.SMALL, "cluster.encrypt": "on"})
            self.assertIn("cluster.encrypt is on, which needs a secret: give --secret-file",
                          driver.text)


if __name__ == "__main__":
    dp.main()

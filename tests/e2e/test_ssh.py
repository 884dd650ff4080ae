"""--hosts by a real sshd: a server of this test alone, on a port of its own, with keys of its own.
No file of the user or of the system's server is read or changed."""

import os
import shutil
import signal
import subprocess

import dp
from dp import DRIVER, ENDLESS, FINISHED, SMALL, STOPPED, sets

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
"""

CLIENT = """
Host node1 node2
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""


class Ssh(dp.Case):
    def setUp(self):
        super().setUp()
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if not sshd or not shutil.which("ssh"):
            self.skipTest("no sshd (Debian: openssh-server)")
        if os.geteuid() == 0 and not os.path.isdir("/run/sshd"):
            os.mkdir("/run/sshd", 0o755)  # as the service does; sshd wants it empty
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)],
                           check=True)
        port = dp.free_port()
        for name, text in (("server", SERVER), ("client", CLIENT)):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(text.format(port=port, folder=self.folder))
        os.mkdir(self.path("bin"))
        with open(self.path("bin", "ssh"), "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.path("client")} "$@"\n')
        os.chmod(self.path("bin", "ssh"), 0o755)
        self.env["PATH"] = self.path("bin") + ":" + os.environ["PATH"]
        self.server = self.start([sshd, "-D", "-e", "-f", self.path("server")])
        self.server.wait_line("listening on 127.0.0.1")
        subprocess.run([DRIVER, "--make-secret", self.path("secret")], env=self.env, check=True,
                       capture_output=True)
        with open(self.path("hostfile"), "w", encoding="ascii") as file:
            file.write("node1 slots=2\nnode2\n")

    def tearDown(self):
        if hasattr(self, "server"):
            self.server.signal(signal.SIGTERM)
        super().tearDown()

    def run_hosts(self, job, *args):
        return self.start([DRIVER, "--hosts", "hostfile", "--secret-file", self.path("secret"),
                           "--iface", "lo", "--port", "0", *sets(job), *args])

    def test_a_job(self):
        driver = self.run_hosts(SMALL)
        self.assert_exit(driver, FINISHED, r"\[rank \d\] dpfollower: joined .* of 4")
        self.assertEqual(self.events("start")[0]["nranks"], 4)

    def test_a_lost_rank_and_a_stop(self):
        """The job goes on without a rank that is killed on its machine; SIGTERM ends the job and
        all of its processes."""
        driver = self.run_hosts({**ENDLESS, "cluster.min_ranks": 2,
                                 "cluster.replace_timeout": 0})
        self.wait_event("first_step")
        followers = [pid for pid, command in self.followers().items()]
        self.assertGreaterEqual(len(followers), 3)
        os.kill(max(followers), signal.SIGKILL)
        self.wait_event("recovered")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        dp.wait_for("the followers to end", lambda: not self.followers())

    def followers(self):
        """{pid: command} of those that train; sshd gives them an environment without the mark."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.path.basename(words[0]) == "dpfollower" and self.is_ours(int(entry)):
                found[int(entry)] = " ".join(words)
        return found

    def is_ours(self, pid):
        """Does it descend from this test's sshd?"""
        while pid > 1:
            if pid == self.server.pid:
                return True
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    pid = int(file.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                return False
        return False


if __name__ == "__main__":
    dp.main()

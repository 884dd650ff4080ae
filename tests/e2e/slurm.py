"""slurm - a private Slurm of four nodes on this machine, for tests.

Each node is a network and a UTS namespace with a slurmd of its own; munged and slurmctld run beside
them.  Everything lives in namespaces of the test (alone()): its ports and addresses are nobody
else's, and all processes end with the test, however it ends.  No service of the system is touched.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

from dp import wait_for

SKIPPED = 77
NODES = 4
PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client",
            "ip": "iproute2", "unshare": "util-linux"}
INSIDE = "DPTRAIN_TEST_SLURM_INSIDE"

# ReturnToService and the short times are for the test that loses a node; WaitTime ends the step of
# a site that sets it so, unless srun is told otherwise.
CONFIGURATION = """
ClusterName=dptrain
SlurmctldHost=control(10.77.0.100)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort=6817
SlurmdPort=6818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=5
WaitTime=2
KillWait=5
NodeName=node[1-4] CPUs=4 State=UNKNOWN NodeAddr=10.77.0.[1-4]
PartitionName=all Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def alone():
    """Runs this program again in namespaces of its own, whose processes die with it; there it
    returns."""
    if os.environ.get(INSIDE):
        return
    missing = sorted({package for name, package in PROGRAMS.items()
                      if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")})
    if missing:
        skip(f"no Slurm to start (Debian: {' '.join(missing)})")
    if os.geteuid() != 0:
        skip("namespaces, which play nodes, need root")
    words = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc"]
    can = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if can.returncode != 0:
        skip(f"namespaces cannot be made here: {can.stderr.strip()}")
    env = {**os.environ, INSIDE: "1", "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    sys.exit(subprocess.run([*words, sys.executable, *sys.argv], env=env, check=False).returncode)


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


class Slurm:
    """The daemons, and what a user asks of them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dptrain-slurm-")
        self.daemons = {}
        self._network()
        self._configure()
        try:
            self._start()
        except AssertionError as why:
            self.close()
            skip(f"Slurm does not start here: {why}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def _network(self):
        command("hostname", "control")
        command("mount", "-t", "tmpfs", "none", "/run")
        with open(self.path("hosts"), "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n10.77.0.100 control\n")
            for k in range(1, NODES + 1):
                file.write(f"10.77.0.{k} node{k}\n")
        command("mount", "--bind", self.path("hosts"), "/etc/hosts")
        for words in ("link set lo up", "link add bridge type bridge", "link set bridge up",
                      "address add 10.77.0.100/24 dev bridge"):
            command("ip", *words.split())
        for k in range(1, NODES + 1):
            for words in (f"netns add node{k}",
                          f"link add to{k} type veth peer name eth0 netns node{k}",
                          f"link set to{k} master bridge up",
                          f"-n node{k} link set lo up", f"-n node{k} link set eth0 up",
                          f"-n node{k} address add 10.77.0.{k}/24 dev eth0"):
                command("ip", *words.split())

    def _configure(self):
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("state"))
        with open(self.path("slurm.conf"), "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(folder=self.folder))
        with open(self.path("cgroup.conf"), "w", encoding="ascii") as file:
            file.write("CgroupPlugin=cgroup/v1\n")  # which is not used, and needs no systemd
        with open(self.path("munge.key"), "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(file.name, 0o400)
        os.environ["SLURM_CONF"] = self.path("slurm.conf")

    def _daemon(self, name, *words):
        with open(self.path(f"{name}.out"), "w", encoding="utf-8") as out:
            self.daemons[name] = subprocess.Popen(words, stdout=out, stderr=out,
                                                  stdin=subprocess.DEVNULL)

    def _start(self):
        self._daemon("munged", "munged", "--foreground", "--force", "--key-file",
                     self.path("munge.key"), "--socket", self.path("munge.socket"), "--pid-file",
                     self.path("munged.pid"), "--log-file", self.path("munged.log"), "--seed-file",
                     self.path("munged.seed"))
        wait_for("munged", lambda: os.path.exists(self.path("munge.socket")))
        self._daemon("slurmctld", "slurmctld", "-D")
        for k in range(1, NODES + 1):
            self.start_node(k)
        self.wait_idle()

    def start_node(self, k):
        """Starts a node, or one that was killed again."""
        self._daemon(f"node{k}", "nsenter", f"--net=/run/netns/node{k}", "unshare", "--uts", "sh",
                     "-c", f"hostname node{k}; exec slurmd -D -N node{k}")

    def kill_node(self, k):
        self.kill_on_node(k, "")
        self.daemons[f"node{k}"].wait()

    @staticmethod
    def kill_on_node(k, name):
        """Kills the processes of a node, which are those of its network namespace: all, or those
        whose program has this name."""
        for pid in command("ip", "netns", "pids", f"node{k}").split():
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    if name in file.read():
                        os.kill(int(pid), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass

    @staticmethod
    def wait_idle():
        wait_for("all nodes to be idle", lambda: command(
            "sinfo", "--noheader", "--responding", "--states=idle", "--format=%D",
            check=False).strip() == str(NODES))

    def close(self):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- jobs

    @staticmethod
    def job(number):
        """A job as scontrol shows it: {"JobState": "RUNNING", ...}."""
        text = command("scontrol", "--oneliner", "show", "job", str(number))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_state(self, number, *states, patience=None):
        """Waits for a job to be in one of these states, and returns the job."""
        wait_for(f"job {number} to be {' or '.join(states)}",
                 lambda: self.job(number)["JobState"] in states, patience)
        return self.job(number)

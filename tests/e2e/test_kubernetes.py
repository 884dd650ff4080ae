"""deploy/kubernetes: the pods of job.yaml as a kubelet makes them, on this machine.

Each pod is a network namespace with an address of its own, and in it a container: its process is
number 1, the root is read-only, /dev/shm has 64 MiB, the user is 10001 without any capability, and
the Secret belongs to root with the pod's group.  Needs the right to make namespaces, and PyYAML;
skipped without."""

import os
import re
import shutil
import signal
import subprocess
import unittest

import dp
from dp import DRIVER, FOLLOWER, SMALL

try:
    import yaml
except ImportError:
    yaml = None

KUBERNETES = os.path.join(dp.ROOT, "deploy", "kubernetes")
USER = 10001
# 16 steps an epoch.
JOB = {"model.arch": "lenet", "data.format": "digits", **SMALL, "data.samples": 1024,
       "data.validation_samples": 64, "train.global_batch": 64}

# Arguments: the new root, the folder of the volumes, the folders to be seen at their own paths
# (one word, by spaces), then the command.
CONTAINER = """set -e
root=$1 volumes=$2 seen=$3
shift 3
mount -t tmpfs -o mode=755 pod "$root"
cd "$root"
mkdir -p usr etc/dptrain etc/dptrain-secret dev proc tmp runs data
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount --bind /usr usr
cp /etc/ld.so.cache etc/
touch etc/hosts && mount --bind "$volumes/hosts" etc/hosts
for name in null zero full random urandom; do
    touch dev/$name && mount --bind /dev/$name dev/$name
done
mkdir dev/shm && mount -t tmpfs -o size=64m,mode=1777 shm dev/shm
mount -t tmpfs -o mode=1777 tmp tmp
mount -t proc proc proc
for folder in $seen; do mkdir -p ".$folder" && mount --bind "$folder" ".$folder"; done
mount --bind "$volumes/job" etc/dptrain
mount --bind "$volumes/secret" etc/dptrain-secret
mount --bind "$volumes/runs" runs
mount -o remount,ro "$root"
exec chroot . setpriv --reuid 10001 --regid 10001 --clear-groups --inh-caps=-all \
    --bounding-set=-all --no-new-privs "$@"
"""


def documents(name):
    with open(os.path.join(KUBERNETES, name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def ip(command):
    return subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)


@unittest.skipUnless(yaml, "no python3-yaml")
class Pods(dp.Case):
    N_PODS = 5  # the last one is where a new driver goes

    def setUp(self):
        super().setUp()
        self.need_hosts()
        if not (shutil.which("setpriv") and os.path.islink("/bin")):
            self.skipTest("no setpriv (util-linux), or /bin is a folder of its own")
        job = next(d for d in documents("job.yaml") if d["kind"] == "Job")
        self.n_pods = job["spec"]["completions"]
        self.pod = job["spec"]["template"]["spec"]
        self.container = self.pod["containers"][0]
        self.lost = []  # the pods that a test has killed
        self.make_volumes()
        self.make_network()

    def make_volumes(self):
        for name in ("job", "secret", "runs", "root"):
            os.makedirs(self.path("volumes", name))
        os.chmod(self.folder, 0o755)
        os.chown(self.path("volumes", "runs"), USER, USER)
        with open(self.path("volumes", "job", "job.yaml"), "w", encoding="ascii") as file:
            yaml.safe_dump(dp.nested(JOB), file)
        secret = self.path("volumes", "secret", "secret")
        subprocess.run([DRIVER, "--make-secret", secret], check=True, capture_output=True)
        os.chown(secret, 0, self.pod["securityContext"]["fsGroup"])
        os.chmod(secret, 0o440)
        self.name_driver(0)

    def name_driver(self, pod):
        """The cluster's names for addresses."""
        address = next(e["value"] for e in self.container["env"] if e["name"] == "MASTER_ADDR")
        with open(self.path("volumes", "hosts"), "w", encoding="ascii") as file:
            file.write(f"127.0.0.1 localhost\n10.79.0.{pod + 1} {address}\n")

    def make_network(self):
        tag = self.mark[:6]
        self.switch = f"dks{tag}"
        self.names = [f"dk{k}{tag}" for k in range(self.N_PODS)]
        commands = [f"netns add {name}" for name in (self.switch, *self.names)]
        commands += [f"-n {self.switch} link add name sw type bridge",
                     f"-n {self.switch} link set sw up"]
        for k, name in enumerate(self.names):
            commands += [f"-n {name} link add eth0 type veth peer name port{k} netns {self.switch}",
                         f"-n {self.switch} link set port{k} master sw up",
                         f"-n {name} addr add 10.79.0.{k + 1}/24 dev eth0",
                         f"-n {name} link set eth0 up", f"-n {name} link set lo up"]
        for command in commands:
            done = ip(command)
            if done.returncode != 0:
                self.remove_network()
                self.skipTest(f"ip {command}: {done.stderr}")

    def remove_network(self):
        for name in (self.switch, *self.names):
            ip(f"netns del {name}")

    def tearDown(self):
        super().tearDown()
        self.remove_network()

    def start_pod(self, index, where=None, *more):
        """The container of the pod with this index, in namespace `where` or its own.  One rank a
        pod, on the CPU; `more` are options of the driver."""
        command = [word.replace("--ranks=gpus", "--ranks=1")
                   for word in self.container["command"]]
        at = command.index("--")
        command = [*command[:at], *more, *command[at:]]
        seen = {os.path.join(dp.ROOT, "deploy", "slurm"), os.path.dirname(DRIVER),
                os.path.dirname(FOLLOWER)}
        env = {"PATH": ":".join([*sorted(seen), "/usr/bin", "/usr/sbin"]), "HOME": "/",
               "KUBERNETES_SERVICE_HOST": "10.96.0.1",  # as in every pod
               dp.MARK: self.mark}
        for entry in self.container["env"]:
            path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if path:
                self.assertEqual(
                    path, "metadata.annotations['batch.kubernetes.io/job-completion-index']")
            env[entry["name"]] = str(index) if path else entry["value"]
        words = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                 "sh", "-c", CONTAINER, "sh", self.path("volumes", "root"), self.path("volumes"),
                 " ".join(sorted(seen)), *command]
        daemon = dp.Daemon(words, self.folder, env, prefix=(
            "ip", "netns", "exec", self.names[index if where is None else where]))
        daemon.name = f"pod {index}"
        self.daemons.append(daemon)
        return daemon

    def first_process(self, pod):
        """Process 1 of the pod, by its number here."""
        def child():
            with open(f"/proc/{pod.pid}/task/{pod.pid}/children", encoding="ascii") as file:
                return file.read().split()
        return int(dp.wait_for("the container", child)[0])

    def lose(self, pod):
        self.lost.append(pod)
        os.kill(self.first_process(pod), signal.SIGKILL)
        pod.wait_exit()

    def probe(self, pod, index):
        """The status of the readiness probe, run in the container."""
        words = [*self.container["readinessProbe"]["exec"]["command"]]
        return subprocess.run(
            ["nsenter", "--target", str(self.first_process(pod)), "--mount", "--pid", "--net",
             "--root", "--wd", "setpriv", "--reuid", "10001", "--regid", "10001", "--clear-groups",
             *words], env={"RANK": str(index), "PATH": f"{os.path.dirname(DRIVER)}:/usr/bin"},
            capture_output=True, text=True, check=False)

    def event(self, kind, n=1):
        def there():
            ended = next((pod for pod in self.daemons if pod not in self.lost and
                          pod.process.poll() is not None), None)
            self.assertIsNone(ended, ended and ended.text)
            path = self.path("volumes", "runs", "mnist", "events.jsonl")
            return os.path.exists(path) and self.count(kind) >= n
        dp.wait_for(f"{n} of {kind}", there)

    def count(self, kind):
        with open(self.path("volumes", "runs", "mnist", "events.jsonl"), encoding="utf-8") as file:
            return file.read().count(f'"event":"{kind}"')

    def get(self, where, path):
        """(status, body) of the driver's page, as a stranger in that namespace gets it."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[where], "python3", "-c",
             "import sys, urllib.request, urllib.error\n"
             "try: r = urllib.request.urlopen(sys.argv[1], timeout=10)\n"
             "except urllib.error.HTTPError as e: r = e\n"
             "print(r.status, r.read().decode())", f"http://10.79.0.1:7070{path}"],
            capture_output=True, text=True, check=True)
        status, _, body = done.stdout.partition(" ")
        return int(status), body

    def test_a_job(self):
        """All pods join, the probes answer, and all end with 0."""
        driver = self.start_pod(0, None, "--set", "train.epochs=100000")
        others = [self.start_pod(k) for k in range(1, self.n_pods)]
        self.event("epoch")
        for index, pod in enumerate([driver, *others]):
            done = self.probe(pod, index)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("rank" in done.stdout, index == 0)
        status, body = self.get(1, "/health")
        self.assertEqual(status, 200)
        self.assertIn('"status":"ok"', body)
        for path in ("/metrics", "/api/status", "/"):
            self.assertEqual(self.get(1, path)[0], 401, path)
        with open(f"/proc/{self.first_process(others[0])}/status", encoding="ascii") as file:
            seen = file.read()
        self.assertRegex(seen, r"NSpid:.*\t1\n")
        self.assertRegex(seen, r"CapBnd:\t0+\n")
        self.assertRegex(seen, rf"Uid:\t{USER}\t")
        os.kill(self.first_process(driver), signal.SIGTERM)  # an eviction
        for pod in (driver, *others):
            self.assertEqual(pod.wait_exit(), dp.STOPPED, pod.text)
        self.assertTrue(os.listdir(self.path("volumes", "runs", "mnist", "checkpoints")))

    def test_lost_pods(self):
        """A follower's pod is lost and made anew; then the driver's, which comes back with another
        address.  The job ends."""
        endless = ("--set", "train.epochs=100000", "--set", "checkpoint.every_epochs=1")
        driver = self.start_pod(0, None, *endless)
        others = [self.start_pod(k) for k in range(1, self.n_pods)]
        self.event("epoch")
        self.lose(others[1])
        others[1] = self.start_pod(2)
        self.event("recovered")
        self.event("checkpoint")
        self.lose(driver)
        self.name_driver(self.N_PODS - 1)
        done = self.count("epoch")
        driver = self.start_pod(0, self.N_PODS - 1, *endless)
        self.event("epoch", done + 2)
        self.assertEqual([pod.process.poll() for pod in others], [None] * len(others))
        os.kill(self.first_process(driver), signal.SIGTERM)
        for pod in (driver, *others):
            self.assertEqual(pod.wait_exit(), dp.STOPPED, pod.text)


@unittest.skipUnless(yaml, "no python3-yaml")
class Files(unittest.TestCase):
    def test_all_forms_agree(self):
        """The three files name one image, one Secret, and options that the daemons have."""
        known = set()
        for program in (DRIVER, FOLLOWER):
            text = subprocess.run([program, "--help"], capture_output=True, text=True,
                                  check=True).stdout
            known |= set(re.findall(r"--[a-z][a-z-]*", text))
        for name in ("job.yaml", "elastic.yaml", "jobset.yaml"):
            with open(os.path.join(KUBERNETES, name), encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(set(re.findall(r"image: (\S+)", text)), {"REGISTRY/dptrain"})
            self.assertEqual(set(re.findall(r"secretName: ([\w-]+)", text)), {"dptrain-secret"})
            given = set(re.findall(r"- (--[a-z][a-z-]*)", text))
            self.assertTrue(given)
            self.assertEqual(given - known, set(), name)


if __name__ == "__main__":
    dp.main()

"""deploy/slurm on a real Slurm: how a job ends, what it survives, and where its driver is.

The Slurm is private (slurm.py): four nodes on this machine.  Its WaitTime, 2 s, ends a step soon
after a task has ended, unless srun is told otherwise."""

import json
import os
import re
import shutil
import unittest

import dp
from dp import DRIVER, FOLLOWER, SOON, nested, sets, wait_for
import slurm

SCRIPTS = os.path.join(dp.ROOT, "deploy", "slurm")
RANK = os.path.join(SCRIPTS, "dptrain-rank.sh")
BATCH = os.path.join(SCRIPTS, "dptrain.sbatch")
SMALL = {**dp.SMALL, "data.format": "digits"}
# It goes on until it is stopped, with what ranks are left, and from its newest checkpoint.
ENDLESS = {**SMALL, "train.epochs": 100000, "checkpoint.every_steps": 50,
           "cluster.replace_timeout": 1, "cluster.driver_timeout": 1}


class Slurm(dp.Case):
    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm()

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()

    def setUp(self):
        super().setUp()
        self.lost_nodes = []
        os.mkdir(self.path("bin"))
        for program in (DRIVER, FOLLOWER):
            os.symlink(program, self.path("bin", os.path.basename(program)))
        self.env.update(SLURM_CONF=os.environ["SLURM_CONF"], DPTRAIN_BIN=self.path("bin"))
        self.write("job", SMALL)

    def tearDown(self):
        slurm.command("scancel", "--user=root")
        for k in self.lost_nodes:
            self.slurm.start_node(k)
        self.slurm.wait_idle()
        super().tearDown()

    # ---- jobs

    def write(self, name, values):
        with open(self.path(f"{name}.yaml"), "w", encoding="ascii") as file:
            json.dump(nested(values), file)

    def user(self, *words, env=None):
        """Runs a user's command to its end, and returns what it printed."""
        daemon = self.start(list(words), env=env)
        self.assert_exit(daemon, 0)
        return daemon.out

    def submit(self, *words, nodes=2, job="job", env=None):
        """The number of a job that was submitted; `words` are options of dpdriver."""
        options = [f"--nodes={nodes}"] if nodes else []
        return int(self.user("sbatch", "--parsable", "--output=%x-%j.log", *options, BATCH,
                             f"{job}.yaml", *words, env=env))

    def log(self, number):
        try:
            with open(self.path(f"dptrain-{number}.log"), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def assert_ends(self, number, status, *patterns):
        ended = self.slurm.wait_state(number, "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL",
                                      patience=SOON)
        log = self.log(number)
        self.assertEqual(ended["ExitCode"], f"{status}:0", log)
        for pattern in patterns:
            self.assertRegex(log, pattern)
        left = [name for name in os.listdir(self.path("runs")) if f".{number}." in name]
        self.assertEqual(left, [], "files of the step were left behind")

    def train(self, *words, nodes, env=None):
        """The number of an endless job that trains."""
        self.write("job", ENDLESS)
        number = self.submit(*words, nodes=nodes, env=env)
        self.wait_event("checkpoint", run="runs/job")
        return number

    def stop(self, number):
        slurm.command("scancel", "--signal=TERM", str(number))
        self.assert_ends(number, 4, r"stopped by SIGTERM .* resume with: DPTRAIN_BIN=\S+ sbatch .*"
                                    r"dptrain.sbatch")

    def lose_node(self, k):
        self.slurm.kill_node(k)
        self.lost_nodes.append(k)

    def wait_requeued(self, number):
        wait_for("the job to be requeued", lambda: self.slurm.job(number)["Restarts"] == "1")
        return self.log(number)

    def wait_epoch(self, number):
        """Waits for one epoch more; if it does not come, says what Slurm and the job say."""
        n_epochs = len(self.events("epoch", "runs/job"))
        try:
            self.wait_event("epoch", n_epochs + 1, run="runs/job")
        except AssertionError as error:
            self.fail(f"{error}; {self.slurm.job(number)}\n{self.log(number)}")

    # ---- how a job ends

    def test_refused_job(self):
        """The driver's status is the job's, and no follower waits for it."""
        self.write("job", {**SMALL, "train.epochz": 1})
        self.assert_ends(self.submit(nodes=4), 2, r"unknown key .*epochz", r"dpdriver ended with 2")

    def test_rank_that_gives_up(self):
        """The driver names the rank that did not join in time."""
        number = self.submit("--set", "cluster.deadlines.gather=3",
                             env={"DPTRAIN_FOLLOWER_OPTIONS": "--data /nowhere"})
        self.assert_ends(number, 1, r"--data /nowhere is not a folder",
                         r"gather took longer than 3 s .* missing: rank 1")

    def test_array_and_next(self):
        """Each task of an array has its run; the command for the next one names no secret."""
        out = self.user("sbatch", "--parsable", "--output=%x-%A_%a.log", "--nodes=1",
                        "--array=3,5", BATCH, "job.yaml")
        for task in (3, 5):
            self.assert_ends(f"{int(out)}_{task}", 0)
            self.assertEqual(self.events("done", f"runs/job-{task}")[0]["step"], 64)
        again = re.search(r"^next +((?:DPTRAIN_\w+=\S+ )*sbatch .*--array=3 .*)",
                          self.log(f"{int(out)}_3"), re.M)
        self.assertNotIn("secret", again.group(1))
        number = int(self.user("sh", "-c", again.group(1)).split()[-1])
        self.assert_ends(f"{number}_3", 0)
        self.assertEqual(self.events("done", "runs/job-3")[-1]["step"], 128)

    # ---- where the driver is

    def test_arbitrary_distribution(self):
        """Task 0 is where the user's list begins; SLURM_STEP_NODELIST is sorted."""
        with open(self.path("hosts"), "w", encoding="ascii") as file:
            file.write("node3\nnode1\nnode2\n")
        number = int(self.user("sbatch", "--parsable", "--output=%x-%j.log", "--ntasks=3",
                               "--distribution=arbitrary", BATCH, "job.yaml",
                               env={"SLURM_HOSTFILE": self.path("hosts")}))
        self.assert_ends(number, 0, r"rank 2 .* driver on node3 \(MASTER_ADDR\)")

    def test_components(self):
        """A heterogeneous step: its list of nodes is that of all components, sorted."""
        self.user(DRIVER, "--make-secret", "secret")
        task = [RANK, *sets(SMALL), "--secret-file", "secret", "--", "--secret-file", "secret"]
        step = self.start(["srun", "--nodes=1", "--ntasks=1", "--nodelist=node3", *task,
                           ":", "--nodes=1", "--ntasks=1", "--nodelist=node1", *task],
                          env={"DPTRAIN_STEP": self.path("step"), "MASTER_PORT": "7000"})
        self.assert_exit(step, 0, r"rank 1 .* driver on node3 \(MASTER_ADDR\)")

    # ---- what a job survives

    def test_lost_rank_and_node(self):
        """The job goes on without a rank that was killed, and then without a node."""
        number = self.train("--set", "cluster.min_ranks=2", nodes=4)
        self.slurm.kill_on_node(4, "dpfollower")
        self.wait_event("recovered", run="runs/job")
        self.lose_node(3)
        wait_for("Slurm to lose the node", lambda: self.slurm.job(number)["NumNodes"] == "3")
        self.wait_event("recovered", 2, run="runs/job")
        self.stop(number)

    def test_node_that_is_needed(self):
        """A job with too few ranks is requeued."""
        number = self.train(nodes=2)
        self.lose_node(2)
        self.assertRegex(self.wait_requeued(number), r"1 of 2 nodes are left: requeueing the job")

    def test_node_of_the_driver(self):
        """The job is requeued by a follower, and goes on elsewhere.  Slurm ends that task, and so
        scontrol may fail although it has requeued the job."""
        os.mkdir(self.path("failing"))
        with open(self.path("failing", "scontrol"), "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\n{shutil.which("scontrol")} "$@" || exit\n[ "$1" != requeue ]\n')
        os.chmod(self.path("failing", "scontrol"), 0o755)
        path = f"{self.path('failing')}:{self.env['PATH']}"
        number = self.train(nodes=2, env={"PATH": path})
        self.lose_node(1)
        self.wait_requeued(number)
        self.wait_epoch(number)
        epochs = [event["epoch"] for event in self.events("epoch", "runs/job")]
        self.assertEqual(epochs.count(1), 1, "it began from the beginning")
        self.assertRegex(self.log(number), r"node1 was lost, and the driver with it: .* requeued")
        self.stop(number)


if __name__ == "__main__":
    slurm.alone()
    dp.main()

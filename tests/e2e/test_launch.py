"""A launcher's environment gives the rank, the number of ranks and the driver's address.
The launchers are torchrun, Slurm's srun and Open MPI's mpirun."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import unittest

import dp
from dp import DRIVER, FOLLOWER, FINISHED, STOPPED, USAGE, ENDLESS, SMALL, sets

SCRIPT = os.path.join(dp.ROOT, "deploy", "slurm", "dptrain-rank.sh")
BATCH = os.path.join(dp.ROOT, "deploy", "slurm", "dptrain.sbatch")


def torchrun(rank, size, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port)}


def slurm(rank, size, port):
    """The variables that srun sets.  They name no port; dptrain.sbatch chooses it."""
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size), "MASTER_PORT": str(port),
            "SLURM_STEP_NODELIST": "localhost,other[1-3]", "SLURM_JOB_NODELIST": "no-such-host"}


def find_torchrun():
    """torchrun of the Python that has PyTorch (tests/interop/find_torch.py), or of PATH."""
    python = os.environ.get("DPTRAIN_TORCH_PYTHON")
    beside = os.path.join(os.path.dirname(python), "torchrun") if python else None
    return beside if beside and os.path.exists(beside) else shutil.which("torchrun")


def three_ports():
    """The first of three neighbouring ports, kept as dp.free_port keeps one."""
    while True:
        socks = [socket.socket() for _ in range(3)]
        try:
            for i, sock in enumerate(socks):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("127.0.0.1", socks[0].getsockname()[1] + i if i else 0))
        except (OSError, OverflowError):
            for sock in socks:
                sock.close()
            continue
        dp.reserved.extend(socks)
        return socks[0].getsockname()[1]


class OtherProgram:
    """Has a port, and greets everybody with a line that is not dptrain's."""

    def __init__(self, port):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen()
        self.n_met = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                with self.socket.accept()[0] as met:
                    self.n_met += 1
                    met.sendall(b"SSH-2.0-other\r\n")
            except OSError:
                if self.socket.fileno() < 0:
                    return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Launch(dp.Case):
    def setUp(self):
        super().setUp()
        # One folder with both daemons, as they are installed.
        self.bin = self.path("bin")
        os.mkdir(self.bin)
        for program in (DRIVER, FOLLOWER):
            os.symlink(program, os.path.join(self.bin, os.path.basename(program)))
        self.env["DPTRAIN_BIN"] = self.bin

    def launch(self, launcher, n, job=SMALL):
        port = dp.free_port()
        return [self.start([SCRIPT, *sets(job), "--", "--wait", "50"], env=launcher(rank, n, port))
                for rank in range(n)]

    def test_every_launcher(self):
        for launcher in (torchrun, slurm):
            with self.subTest(launcher=launcher.__name__):
                ranks = self.launch(launcher, 3)
                for rank, daemon in enumerate(ranks):
                    self.assert_exit(daemon, FINISHED, r"by the environment: ")
                    if rank > 0:
                        self.assertRegex(daemon.text, rf"as rank {rank} of 3")
                shutil.rmtree(self.path("runs"))

    def test_tensorflow(self):
        """TF_CONFIG alone: worker 0 drives, at its address in the list."""
        port = dp.free_port()
        cluster = {"worker": [f"127.0.0.1:{port}", "other:1"]}
        ranks = [self.start([program, *words], env={"TF_CONFIG": json.dumps(
                     {"cluster": cluster, "task": {"type": "worker", "index": index}})})
                 for index, (program, words) in enumerate(
                     [(DRIVER, sets(SMALL)), (FOLLOWER, ["--once"])])]
        self.assert_exit(ranks[0], FINISHED, rf"2 ranks \(TF_CONFIG\), port {port} \(TF_CONFIG\)")
        self.assert_exit(ranks[1], FINISHED, r"as rank 1 of 2")

    def test_tasks_of_several_ranks(self):
        """With --ranks a launcher's task is a machine."""
        port = dp.free_port()
        driver = self.start([DRIVER, "--ranks", "2", *sets(SMALL)], env=slurm(0, 2, port))
        agent = self.start([FOLLOWER, "--once", "--ranks", "2"], env=slurm(1, 2, port))
        self.assert_exit(driver, FINISHED, r"2 tasks \(SLURM_NTASKS\)")
        self.assert_exit(agent, FINISHED, r"task 1 \(SLURM_PROCID\)",
                         r"\[rank 2\] dpfollower: joined .* as rank 2 of 4", r"\[rank 3\]")

    def test_torchrun(self):
        """The agent of torchrun listens on MASTER_PORT, and another program on the port above it:
        the driver takes the next one, and the follower finds it."""
        torchrun = find_torchrun()
        if not torchrun:
            self.skipTest("no torchrun (DPTRAIN_TORCH_PYTHON names a Python with PyTorch)")
        port = three_ports()
        other = OtherProgram(port + 1)
        self.addCleanup(other.close)
        for form in (["--standalone"],
                     ["--master-addr", "127.0.0.1", "--master-port", str(port)],
                     ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]):
            with self.subTest(form=form):
                job = self.start([torchrun, *form, "--nproc-per-node", "2", "--no-python",
                                  SCRIPT, *sets(SMALL)])
                self.assert_exit(job, FINISHED, r"port \d+ \(MASTER_PORT \+ 1\)",
                                 r"as rank 1 of 2")
                if "--master-port" in form:  # else the agent takes some port of its own
                    self.assertIn(f"listening on 127.0.0.1:{port + 2} ", job.text)
                    self.assertIn(f"joined the driver at 127.0.0.1:{port + 2} ", job.text)
                shutil.rmtree(self.path("runs"))
        self.assertGreater(other.n_met, 0)

    def test_jobs_of_torchrun_beside_each_other(self):
        """The ports of two jobs overlap: a follower passes by the driver of the other job."""
        port = three_ports()
        job = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2"}
        first = {**torchrun(0, 2, port + 1), **job}  # its driver has port + 2
        other = self.start([DRIVER, *sets(ENDLESS), "--run-dir", self.path("other")], env=first)
        other.wait_line(f"listening on 127.0.0.1:{port + 2} ")
        with OtherProgram(port + 1) as agent:
            own = self.start([DRIVER, *sets(SMALL)], env={**torchrun(0, 2, port), **job})
            own.wait_line("listening on")
            follower = self.start([FOLLOWER, "--once"], env={**torchrun(1, 2, port), **job})
            self.assert_exit(own, FINISHED)
            self.assert_exit(follower, FINISHED)
            self.assertGreater(agent.n_met, 0)
        other.wait_line(f'job "none:{port + 1}", and the follower of "none:{port}"')
        other.signal(signal.SIGTERM)
        self.assert_exit(other, STOPPED)

    def test_hydra(self):
        """Within an allocation the ranks of a node have the SLURM_PROCID of Hydra's proxy there."""
        mpiexec = shutil.which("mpiexec.hydra")
        if not mpiexec:
            self.skipTest("no mpiexec.hydra (Debian: mpich)")
        proxy = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NODELIST": "localhost",
                 "SLURM_JOB_NODELIST": "localhost"}
        command = ["env", *(f"{name}={value}" for name, value in proxy.items()), SCRIPT]
        job = self.start([mpiexec, "-launcher", "fork", "-hosts", "localhost", "-n", "3", *command,
                          *sets(SMALL)], env={"MASTER_PORT": str(dp.free_port())})
        self.assert_exit(job, FINISHED, r"3 ranks \(PMI_SIZE\)", r"rank 2 \(PMI_RANK\)",
                         r"driver on localhost \(SLURM_JOB_NODELIST\)")
        self.assertEqual(self.events("start")[0]["nranks"], 3)

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            self.skipTest("no mpirun (Debian: openmpi-bin)")
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True)
        if "Open MPI" not in version.stdout:
            self.skipTest("mpirun is not Open MPI's")
        root = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(dp.free_port())}
        daemon = self.start([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", SCRIPT,
                             *sets(SMALL)], env=root)
        self.assert_exit(daemon, FINISHED, r"3 ranks \(OMPI_COMM_WORLD_SIZE\)",
                         r"rank 2 \(OMPI_COMM_WORLD_RANK\)")
        self.assertEqual(self.events("start")[0]["nranks"], 3)

    def test_batch_script_removes_its_secret(self):
        """dptrain.sbatch makes a secret for its job alone, and removes it however srun ends."""
        srun = ('#!/bin/bash\nwhile [ "$1" != --secret-file ]; do shift; done\n'
                'stat -c "%a %n" "$2"; cat "$2"; exec sh -c "$ENDING"\n')
        for name, text in (("srun", srun), ("scontrol", "#!/bin/sh\n")):
            with open(os.path.join(self.bin, name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(file.name, 0o755)
        with open(self.path("mnist.yaml"), "w", encoding="ascii") as file:
            file.write("name: mnist\n")
        seen = set()
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_JOB_ID": "77",
               "DPTRAIN_SLURM": os.path.dirname(SCRIPT)}
        for ending, status in (("exit 0", 0), ("exit 4", 4), ("kill -9 $$", 128 + 9)):
            batch = self.start(["bash", BATCH, "mnist.yaml"], env={**env, "ENDING": ending})
            self.assert_exit(batch, status)
            self.assertRegex(batch.out, r"600 .*/runs/mnist\.77\.secret\n"
                             r"dptrain-secret-1 [0-9a-f]{64}")
            self.assertEqual(os.listdir(self.path("runs")), [])
            seen.add(batch.out)
        self.assertEqual(len(seen), 3)  # each start has a secret of its own

    def test_batch_script_in_a_folder_with_spaces(self):
        """Slurm tells the script's path with its arguments, in one line."""
        folder = self.path("a folder")
        os.mkdir(folder)
        for name in ("dptrain.sbatch", "dptrain-rank.sh"):
            shutil.copy(os.path.join(os.path.dirname(BATCH), name), folder)
        for name, text in (("srun", 'for word; do echo "word $word"; done'),
                           ("scontrol", f'echo "   Command={folder}/dptrain.sbatch mnist.yaml x"')):
            with open(os.path.join(self.bin, name), "w", encoding="ascii") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(file.name, 0o755)
        batch = self.start(["bash", BATCH, "mnist.yaml"], env={
            "PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"})
        self.assert_exit(batch, FINISHED)
        self.assertIn(f"word {folder}/dptrain-rank.sh\n", batch.out)

    def test_all_are_stopped_at_once(self):
        """At a job's time limit a batch system sends SIGTERM to every task."""
        ranks = self.launch(torchrun, 3, job=ENDLESS)
        self.wait_event("first_step")
        for daemon in ranks:
            daemon.signal(signal.SIGTERM)
        for daemon in ranks:
            self.assert_exit(daemon, STOPPED)
        self.assertTrue(self.events("checkpoint"))
        self.assertRegex(ranks[0].text, r"resume with: .* --nranks 3 --resume")
        self.assertTrue(os.path.exists(self.path("runs/demo/checkpoints/latest/state.json")))

    def test_command_line_goes_first(self):
        """A follower whose arguments say everything ignores a broken environment."""
        broken = {"RANK": "x", "WORLD_SIZE": "y", "MASTER_PORT": "z"}
        driver = self.driver(n=2, env=broken)
        follower = self.follower("--rank", "1", env=broken)
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        self.assertNotIn("environment", driver.text + follower.text)

    def test_followers_alone(self):
        """srun may start only the followers: then its task 0 takes any free rank."""
        driver = self.driver(n=3)
        followers = [self.follower(env={"SLURM_PROCID": str(task), "SLURM_NTASKS": "2",
                                        "SLURM_STEP_NODELIST": "no-such-host"})
                     for task in range(2)]
        for daemon in (driver, *followers):
            self.assert_exit(daemon, FINISHED)

    def test_deepspeed_configuration(self):
        """A ds_config.json is a job once model and data are given."""
        with open(self.path("ds_config.json"), "w", encoding="ascii") as file:
            file.write('{"train_micro_batch_size_per_gpu": 16, "gradient_clipping": 1.0,\n'
                       ' "optimizer": {"type": "SGD", "params": {"lr": 0.05}},\n'
                       ' "wall_clock_breakdown": true,\n}')
        words = [DRIVER, "--nranks", "2", "--job", "ds_config.json", "--port", "0", *sets(
            {"model.arch": "mlp", "data.format": "digits", "data.samples": 640,
             "data.validation_samples": 64, "train.epochs": 1})]
        check = self.start([*words, "--check"])
        self.assert_exit(check, FINISHED, r"ds_config.json:3:26: wall_clock_breakdown has no effec")
        self.assertIn("  global_batch: 32\n", check.out)
        self.assert_exit(self.start([*words, "--local"]), FINISHED)
        self.assertEqual(self.events("done", "runs/job")[0]["step"], 20)

    def test_told(self):
        """srun has not started a process in a shell of salloc; other machines do not reach a name
        that is a loopback address here."""
        salloc = {"SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "localhost"}
        told = r"SLURM_NTASKS makes this a job of 2 tasks, but srun has not started this process"
        self.assert_exit(self.start([DRIVER, "--check"], env=salloc), FINISHED, told)
        port = dp.free_port()
        driver = self.start([DRIVER, "--port", str(port), *sets(SMALL)], env=salloc)
        follower = self.start([FOLLOWER, "--once", "--root", f"127.0.0.1:{port}"])
        self.assert_exit(driver, FINISHED, told)
        self.assert_exit(follower, FINISHED)
        self.assertRegex(self.events("warning")[0]["message"], told)
        names = [line.split() for line in open("/etc/hosts", encoding="utf-8")]
        own = [words[1] for words in names if len(words) > 1 and words[0].startswith("127.")
               and words[1] != "localhost"]
        if own:
            self.assert_exit(self.start([DRIVER, "--check", "--host", own[0]]), FINISHED,
                             rf"--host {own[0]} is 127\.\S+ on this machine")

    def test_several_machines(self):
        """--insecure listens on all addresses if the launcher says that the step spans nodes."""
        for nodes, where in (("1", r"127\.0\.0\.1"), ("2", r"(\[::\]|0\.0\.0\.0)")):
            port = dp.free_port()
            env = {**slurm(0, 2, port), "SLURM_STEP_NUM_NODES": nodes}
            driver = self.start([DRIVER, "--insecure", *sets(SMALL)], env=env)
            follower = self.start([FOLLOWER, "--insecure", "--once"], env=slurm(1, 2, port))
            self.assert_exit(driver, FINISHED, rf"listening on {where}:{port} ")
            self.assert_exit(follower, FINISHED)
            shutil.rmtree(self.path("runs"))

    def test_refused(self):
        cases = [
            (DRIVER, {"RANK": "1", "WORLD_SIZE": "2"}, r"RANK makes this rank 1, but dpdriver is"),
            (DRIVER, {"WORLD_SIZE": "none"}, r'WORLD_SIZE is "none", want an integer from 1'),
            (DRIVER, {"RANK": "2", "WORLD_SIZE": "2"}, r"RANK is 2, but WORLD_SIZE is 2"),
            (DRIVER, {"MASTER_PORT": "0", "WORLD_SIZE": "2"}, r'MASTER_PORT is "0", want'),
            (FOLLOWER, {"RANK": "1"}, r"--root is missing.*MASTER_ADDR"),
            (FOLLOWER, {"RANK": "-1", "MASTER_ADDR": "a"}, r'RANK is "-1", want'),
            (FOLLOWER, {"SLURM_PROCID": "1", "SLURM_JOB_NODELIST": "a[1"}, r'NODELIST is "a\[1"'),
            (FOLLOWER, {"SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "a,b",
                        "SLURM_DISTRIBUTION": "arbitrary"},
             r"--root is missing: .* with SLURM_DISTRIBUTION it does not say on which host task 0"),
            (SCRIPT, {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_HET_SIZE": "2",
                      "SLURM_NTASKS": "2"},
             r'SLURM_HET_SIZE "2"\): set DPTRAIN_STEP to PATH in a folder that all nodes share'),
            (FOLLOWER, {"TF_CONFIG": "{"}, r"TF_CONFIG is not JSON"),
            (FOLLOWER, {"MASTER_ADDR": "fe80::1%eth0"},
             r"driver at \[fe80::1%eth0\]:7000: fe80::1%eth0 is a link-local IPv6 address"),
            (DRIVER, {"MASTER_ADDR": "fe80::2", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2"},
             r"environment's MASTER_ADDR, where .*: fe80::2 is a link-local IPv6 address"),
            (DRIVER, {"LOCAL_RANK": "x"}, r'LOCAL_RANK is "x", want'),
            (FOLLOWER, {"MASTER_ADDR": "a" * 300}, r"MASTER_ADDR has 300 characters"),
            (DRIVER, {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},
             r"LOCAL_WORLD_SIZE says that the ranks are on several machines, .* --secret-file"),
            (SCRIPT, {}, r"none of RANK, OMPI_COMM_WORLD_RANK, PALS_RANKID, .* is set"),
            (SCRIPT, {"RANK": "0", "DPTRAIN_BIN": "/nowhere", "PATH": "/usr/bin:/bin"},
             r"no dpdriver in /nowhere, .*deploy/slurm, or PATH"),
        ]
        for program, env, pattern in cases:
            with self.subTest(program=program, env=env):
                self.assert_exit(self.start([program], env=env), USAGE, pattern)


if __name__ == "__main__":
    unittest.main(verbosity=2)

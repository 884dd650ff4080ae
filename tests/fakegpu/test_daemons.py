"""Tests of the daemons on a simulated GPU: its plugin is loaded, GPUs are chosen or refused,
training gives the CPU's losses, and ranks are lost."""

import ctypes
import os
import re
import signal
import subprocess

import dp
from case import JOB, LENET, MANY, Case
from dp import FAILED, FINISHED, REFUSED, STOPPED, USAGE, sets

WITH_DRIVER = {"LD_LIBRARY_PATH": os.path.dirname(dp.DRIVER)}
ILLEGAL = r"an illegal memory access was encountered \(cudaError700\)"


def has_driver():
    """Is there a real NVIDIA driver, apart from WITH_DRIVER's?  Asked in the daemons' way."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


class Daemons(Case):
    def test_trains_as_the_cpu_does(self):
        cpu = self.train("--device", "cpu", run="cpu", job=LENET)
        self.assertLess(cpu[1]["train_loss"], cpu[0]["train_loss"])
        for n in (1, 2):
            name = f"gpu{n}"
            gpu = self.train("--device", "cuda", "--local", n=n, run=name, job=LENET)
            self.assert_near(cpu, gpu, 1e-3)
            self.assertEqual(self.events("start", name)[0]["device"], "cuda:0")
        self.assertRegex(self.daemons[-1].text, r"rank 1 joined: .*, on cuda:1; 2 of 2 here")

    def test_batch_norm_and_micro_batches(self):
        job = {**JOB, "model.batch_norm": "true", "model.dropout": 0.2, "train.accumulate": 2,
               "optimizer.momentum": 0.9}
        cpu = self.train("--device", "cpu", "--local", n=2, run="cpu", job=job)
        gpu = self.train("--device", "cuda", "--local", n=2, run="gpu", job=job)
        self.assert_near(cpu, gpu, 1e-3)

    def test_all_gpus_of_a_machine(self):
        """--ranks gpus: a rank for each GPU, each on its own."""
        driver = self.start([dp.DRIVER, "--ranks", "gpus", "--device", "cuda", "--port", "0",
                             *sets({**JOB, "train.max_steps": 1})], env=MANY)
        self.assert_exit(driver, FINISHED, *(
            rf"dpdriver: rank {i}: --device cuda:{i}, " for i in range(3)),
            r"as rank 1 of 3, on cuda:1", r"as rank 2 of 3, on cuda:2")

    def test_local_rank(self):
        """torchrun's LOCAL_RANK is the GPU."""
        driver = self.start([dp.DRIVER, "--device", "cuda", "--port", "0",
                             *sets({**JOB, "train.max_steps": 1})], env={
                                 **MANY, "LOCAL_RANK": "2", "WORLD_SIZE": "1", "RANK": "0"})
        self.assert_exit(driver, FINISHED, r"computing on cuda:2")

    def test_bfloat16_gradients(self):
        """Gradients summed in bfloat16 over 1 to 3 ranks give float32's losses but for rounding."""
        cpu = self.train("--device", "cpu", run="cpu")
        job = {**JOB, "precision": "bfloat16", "train.grad_dtype": "bfloat16"}
        for n in (1, 2, 3):
            driver = self.start([dp.DRIVER, "--nranks", str(n), "--local", "--port", "0",
                                 "--device", "cuda", "--run-dir", self.path(f"gpu{n}"),
                                 *sets(job)], env={"DPTRAIN_FAKE_GPUS": "3"})
            self.assert_exit(driver, FINISHED)
            gpu = self.events("epoch", f"gpu{n}")
            self.assert_near(cpu, gpu, 3e-2)
            self.assertNotEqual([e["train_loss"] for e in cpu], [e["train_loss"] for e in gpu])

    def test_bfloat16_of_divided_state(self):
        """Each rank computes with the rounded parameters of the other ranks' shards, too."""
        job = {**JOB, "precision": "bfloat16", "optimizer.momentum": 0.5}
        whole = self.undisturbed(job)
        for zero in (1, 2, 3):
            part = self.train("--device", "cuda", "--local", n=2, run=f"zero{zero}",
                              job={**job, "strategy.zero": zero, "strategy.buddy": "false"})
            self.assert_near(whole, part, 1e-4)

    def test_recorded_steps_give_the_same_bits(self):
        """With train.record false, the same kernels run one by one."""
        runs = [self.train("--device", "cuda", "--local", n=2, run=record,
                           job={**JOB, "train.record": record}) for record in ("true", "false")]
        for a, b in zip(*runs):
            self.assertEqual(a["train_loss"], b["train_loss"])
            self.assertEqual(a["validation_loss"], b["validation_loss"])

    def test_shares_that_change_on_some_ranks_only(self):
        """In the last step of an epoch one rank of three has a sample less.  All ranks must run,
        record and launch such a step at the same times, or their collectives do not meet, which
        coll.c reports.  Both of 8 and of 7 samples the first rank takes 3 and the last 2; only the
        middle rank's share differs, and it must not launch the recording for the other share."""
        for i, more in enumerate(({}, {"train.accumulate": 3, "train.global_batch": 31},
                                  {"train.global_batch": 8, "data.samples": 63})):
            job = {**JOB, "data.samples": 239, "train.epochs": 4, **more}
            runs = []
            for device in ("cpu", "cuda"):
                run = f"{device} {i}"
                driver = self.start([dp.DRIVER, "--nranks", "3", "--local", "--port", "0",
                                     "--device", device, "--run-dir", self.path(run),
                                     *sets(job)], env={"DPTRAIN_FAKE_GPUS": "3"})
                self.assert_exit(driver, FINISHED)
                runs.append(self.events("epoch", run))
            self.assert_near(*runs, 1e-3)

    def test_a_fault_on_one_rank_is_unrecorded_on_all(self):
        """The fault does not change any result."""
        whole, hurt = (self.train("--device", "cuda", "--local", *inject, n=2, run=f"run{i}",
                                job=JOB)
                       for i, inject in enumerate(((), ("--inject", "delay:rank1@step7:1s"))))
        self.assertEqual([e["train_loss"] for e in whole], [e["train_loss"] for e in hurt])

    def test_a_checkpoint_goes_on_anywhere(self):
        whole = self.train("--device", "cpu", run="whole")
        self.train("--device", "cuda", "--local", n=2, run="part",
                   job={**JOB, "train.epochs": 1})
        rest = self.train("--device", "cpu", "--resume", run="part")
        self.assert_near(whole, rest, 1e-3)

    def test_a_lost_rank_is_replaced(self):
        """Recovery on the device: the new rank takes the survivor's state.  The step that was
        broken off counts as nothing, also for the loss scale, whose window is short here."""
        half = {**JOB, "precision": "float16", "loss_scale.initial": 64, "loss_scale.window": 3}
        zero = {**JOB, "strategy.zero": 1, "optimizer.momentum": 0.5}
        micro = {**zero, "strategy.zero": 3, "train.accumulate": 2, "train.bucket_bytes": 4096}
        for job in (JOB, half, zero, micro):
            name = job.get("precision", "float32") + str(job.get("strategy.zero", ""))
            whole = self.undisturbed(job)
            hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=2,
                              run=f"hurt {name}", job=job)
            recovered = self.events("recovered", f"hurt {name}")[0]
            self.assertEqual(recovered["nranks"], 2)
            self.assertLessEqual(recovered["steps_lost"], 1)
            self.assert_near(whole, hurt, 1e-6)
            self.assertEqual([e.get("loss_scale") for e in whole],
                             [e.get("loss_scale") for e in hurt])

    def test_a_gpu_that_breaks(self):
        """A GPU that breaks fails for the rest of the process: the rank is lost and is named as the
        cause.  The others keep their state and go on with the spare.  The process ends, though it
        was started without --once."""
        driver = self.driver("--device", "cuda", "--run-dir", self.path("hurt"), n=2, env=MANY,
                             job={**JOB, "cluster.spares": 1})
        victim = self.follower("--rank", "1", "--device", "cuda", once=False,
                               env={**MANY, "DPTRAIN_FAKE_BREAK": "9"})
        driver.wait_line("rank 1 joined")
        spare = self.follower("--device", "cuda", env=MANY)
        for daemon in (driver, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_exit(victim, FAILED, ILLEGAL, "this process ends, and a new one may use it")
        lost, = self.events("lost", "hurt")
        self.assertEqual(lost["rank"], 1)
        self.assertRegex(lost["reason"], ILLEGAL)
        recovered, = self.events("recovered", "hurt")
        self.assertEqual(recovered["nranks"], 2)
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.assertEqual(self.events("error", "hurt"), [])
        self.assert_near(self.undisturbed(JOB), self.events("epoch", "hurt"), 1e-6)

    def test_a_library_that_fails(self):
        """A library fails on a whole GPU: the rank is lost, and comes again in the same process."""
        driver = self.driver("--device", "cuda", "--run-dir", self.path("hurt"), n=2, job=JOB)
        victim = self.follower("--device", "cuda", once=False, env={"DPTRAIN_FAKE_FAIL": "9"})
        self.assert_exit(driver, FINISHED)
        dp.wait_for("the job's end", lambda: "waiting for the next driver" in
                    victim.text.partition("finished: ")[2])
        victim.signal(signal.SIGTERM)
        self.assert_exit(victim, STOPPED)
        lost, = self.events("lost", "hurt")
        self.assertRegex(lost["reason"], "rank 1 .* the library failed in collective 9")
        self.assertEqual(self.events("recovered", "hurt")[0]["nranks"], 2)
        self.assertNotIn("this process ends", victim.text)
        self.assert_near(self.undisturbed(JOB), self.events("epoch", "hurt"), 1e-6)

    def test_the_driver_s_gpu_breaks(self):
        """The job ends, which all ranks say; it resumes from the checkpoint of the first epoch."""
        driver = self.driver("--device", "cuda", "--run-dir", self.path("hurt"), n=2, job=JOB,
                             env={"DPTRAIN_FAKE_BREAK": "16"})
        follower = self.follower("--device", "cuda")
        for daemon in (driver, follower):
            self.assert_exit(daemon, FAILED, ILLEGAL)
        error, = self.events("error", "hurt")
        self.assertEqual((error["rank"], error["step"] // 10), (0, 1))
        self.assertRegex(error["message"], ILLEGAL)
        rest = self.train("--device", "cuda", "--local", "--resume", n=2, run="hurt",
                          job=JOB)
        self.assert_near(self.undisturbed(JOB), rest, 1e-6)

    def test_an_overflow_and_a_lost_rank(self):
        """The first steps all overflow, and a rank is lost in one of them.  Whichever it is, each
        step is counted as skipped exactly once, and the search for the scale goes on."""
        half = {**JOB, "train.epochs": 1, "precision": "float16",
                "loss_scale.initial": 16777216, "loss_scale.hysteresis": 2}
        whole = self.undisturbed(half)
        for at in ("4", "7"):  # numbers of collectives; the first collectives share the state
            run = f"hurt {at}"
            driver = self.driver("--device", "cuda", "--run-dir", self.path(run), n=2, env=MANY,
                                 job={**half, "cluster.spares": 1})
            victim = self.follower("--rank", "1", "--device", "cuda",
                                   env={**MANY, "DPTRAIN_FAKE_BREAK": at})
            driver.wait_line("rank 1 joined")
            spare = self.follower("--device", "cuda", env=MANY)
            for daemon in (driver, spare):
                self.assert_exit(daemon, FINISHED)
            self.assert_exit(victim, FAILED, ILLEGAL)
            hurt = self.events("epoch", run)
            self.assert_near(whole, hurt, 1e-6)
            for key in ("steps_skipped", "loss_scale"):
                self.assertEqual(whole[0][key], hurt[0][key])

    def test_stopped_with_two_steps_under_way(self):
        """SIGTERM stops the job after the step, a second SIGINT at once.  The resumed run has the
        bits of a run that was never stopped."""
        for signals in ((signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)):
            run = f"run{len(signals)}"
            driver = self.driver("--device", "cuda", "--run-dir", self.path(run), n=2,
                                 job={**JOB, "train.epochs": 100000})
            follower = self.follower("--device", "cuda")
            self.wait_event("checkpoint", run=run)
            for number in signals:
                driver.signal(number)
                driver.wait_line("stopping after this|stopped")
            self.assert_exit(driver, STOPPED)
            self.assert_exit(follower, STOPPED)
            n_epochs = self.events("checkpoint", run)[-1]["step"] // 10 + 1
            job = {**JOB, "train.epochs": n_epochs}
            self.run_driver("--device", "cuda", "--local", "--resume", "--run-dir",
                            self.path(run), n=2, job=job)
            last = self.events("epoch", run)[-1]
            want = self.undisturbed(job)[-1]
            for key in ("epoch", "step", "samples", "train_loss", "validation_loss"):
                self.assertEqual(last[key], want[key], key)

    def test_a_rank_that_looks_at_its_state(self):
        """Rank 0 writes a checkpoint after each step, so it has one step in flight where rank 1 has
        two.  Both void the step that was queued behind an overflow."""
        job = {**JOB, "precision": "float16", "loss_scale.initial": 16777216,
               "loss_scale.hysteresis": 2}
        free = self.train("--device", "cuda", "--local", n=2, run="free", job=job)
        held = self.train("--device", "cuda", "--local", n=2, run="held",
                          job={**job, "checkpoint.every_steps": 1})
        self.assert_near(free, held, 1e-12)
        self.assertIn("a gradient overflowed in float16", self.daemons[-1].text)
        for epoch in free + held:
            self.assertGreater(epoch["comm_exposed_ms_median"], 0)

    def test_auto(self):
        """auto takes a GPU where there is an NVIDIA driver; without one it does not even look."""
        job = {**JOB, "train.max_steps": 3}
        command = [dp.DRIVER, "--nranks", "2", "--local", "--port", "0", *sets(job)]
        for env, device in ((WITH_DRIVER, "cuda:0"), ({}, "cpu"),
                            ({**WITH_DRIVER, "DPTRAIN_FAKE_TROUBLE": "no luck"}, "cpu")):
            if device == "cpu" and not env and has_driver():
                continue
            driver = self.start([*command, "--run-dir", self.path(f"run{len(self.daemons)}")],
                                env=env)
            self.assert_exit(driver, FINISHED)
            run = f"run{len(self.daemons) - 1}"
            self.assertEqual(self.events("start", run)[0]["device"], device)
        self.assertRegex(driver.text, r"--device auto: no GPU can be used: no luck; computing on")

    def test_two_on_one_gpu_are_refused(self):
        driver = self.driver("--device", "cuda:1", n=2, job=JOB)
        driver.wait_line(r"listening on")
        first = self.follower("--device", "cuda:1")
        self.assert_exit(first, REFUSED, r"cuda:1 of .* \(Simulated, GPU-fake-1\) is used by rank "
                         r"0 already; free there: cuda:0 \(Simulated, GPU-fake-0\)")
        other = self.follower("--device", "cpu")
        self.assert_exit(other, REFUSED, r"runs on cuda:1, as its driver does, and not on cpu")
        third = self.follower("--device", "cuda")
        self.assert_exit(third, FINISHED, r"on cuda:0")
        self.assert_exit(driver, FINISHED, r"rank 1 joined: .*, on cuda:0; 2 of 2 here")

    def test_a_cpu_job_takes_no_gpu(self):
        driver = self.driver("--device", "cpu", n=2, job=JOB)
        self.assert_exit(self.follower("--device", "cuda"), REFUSED, r"runs on cpu.* not on cuda")
        self.assert_exit(self.follower("--device", "auto"), FINISHED, r"on cpu")
        self.assert_exit(driver, FINISHED)

    def test_slices_of_one_gpu_are_refused(self):
        """Our error names both ranks, and comes before NCCL's, which takes slices for one GPU."""
        driver = self.driver("--device", "cuda", n=2, job=JOB, env={"DPTRAIN_FAKE_SLICE": "1"})
        driver.wait_line(r"computing on cuda:0 \(Simulated, MIG-fake-1\)")
        slice2 = self.follower("--device", "cuda", env={"DPTRAIN_FAKE_SLICE": "2"})
        self.assert_exit(slice2, REFUSED, r"cuda:0 of .* \(Simulated, MIG-fake-2\) is a slice of "
                         r"the GPU \(PCI 0000:01:00.0\) of which rank 0 uses MIG-fake-1")
        other = self.follower("--device", "auto", env=WITH_DRIVER)  # two GPUs; one is rank 0's
        self.assert_exit(other, FINISHED, r"on cuda:1")
        self.assert_exit(driver, FINISHED)

    def test_no_gpu_where_the_job_has(self):
        """The driver says why and what to do, and tells the follower, which says it, too."""
        driver = self.driver("--device", "cuda", n=2, job=JOB)
        driver.wait_line("listening on")
        says = (r"runs on cuda:0, and the follower on .* has no GPU that it can use: no luck; mend "
                r"that there, or start dpdriver with --device cpu")
        bad = self.follower("--device", "auto",
                            env={**WITH_DRIVER, "DPTRAIN_FAKE_TROUBLE": "no luck"})
        self.assert_exit(bad, REFUSED, says,
                         r"--device auto: no GPU can be used: no luck; there is only the CPU")
        if not has_driver():
            bare = self.follower("--device", "auto")
            self.assert_exit(bare, REFUSED, r"use: there is no NVIDIA driver \(libcuda.so.1\); ")
            self.assertNotIn("--device auto", bare.text)
        self.assert_exit(self.follower("--device", "cuda"), FINISHED)
        self.assert_exit(driver, FINISHED, says)

    def test_too_few_gpus_for_local_ranks(self):
        for check in ((), ("--check",)):
            driver = self.driver("--device", "cuda", "--local", *check, n=3, job=JOB)
            self.assert_exit(driver, USAGE, r"--local: 3 processes \(3 by --nranks, 0 by "
                             r"cluster.spares\) need a GPU each, and 2 can be used here; take "
                             r"--nranks 2, or --device cpu")
            self.assertNotIn("the job is fine", driver.out)

    def test_too_few_gpus_for_local_spares(self):
        """The numbers that the message advises do work."""
        def check(n, spares, status, *says):
            driver = self.driver("--device", "cuda", "--local", "--check", n=n, env=MANY,
                                 job={**JOB, "cluster.spares": spares})
            self.assert_exit(driver, status, *says)
            return driver
        check(3, 1, USAGE, r"4 processes \(3 by --nranks, 1 by cluster.spares\) need a GPU each, "
              r"and 3 can be used here; take --nranks 2, or --device cpu")
        self.assertIn("the job is fine", check(2, 1, FINISHED).out)
        check(1, 3, USAGE, r"3 can be used here; take fewer cluster.spares, or --device cpu")
        driver = self.driver("--device", "cuda", "--check", n=9, job=JOB)
        self.assert_exit(driver, FINISHED)  # followers on other machines

    def test_more_ranks_than_cpus_can_join(self):
        """The limit for ranks on CPUs is none for ranks on GPUs."""
        for device, status in (("cuda", FINISHED), ("cpu", USAGE)):
            driver = self.driver("--device", device, "--check", n=65536, job=JOB)
            self.assert_exit(driver, status)

    def test_the_driver_says_what_it_took(self):
        for device, gpu in (("cuda", r"cuda:0 \(Simulated, GPU-fake-0\)"), ("cpu", None)):
            driver = self.driver("--device", device, n=1, job={**JOB, "train.max_steps": 2})
            self.assert_exit(driver, FINISHED)
            if gpu:
                self.assertRegex(driver.text, f"dpdriver: computing on {gpu}\n")
            else:
                self.assertNotIn("computing on", driver.text)

    def test_iface_is_nccl_s_network(self):
        """--iface sets NCCL's variables before NCCL is loaded, in the driver and in the followers
        that it starts; the user's own setting wins."""
        shown = "DPTRAIN_FAKE_SHOW"
        self.env = {key: value for key, value in self.env.items() if not key.startswith("NCCL_")}
        for more, values in (({}, {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET"}),
                             ({"NCCL_SOCKET_IFNAME": "ib"}, {"NCCL_SOCKET_IFNAME": "ib"})):
            for name, value in values.items():
                driver = self.driver("--device", "cuda", "--local", "--iface", "lo", n=2,
                                     env={**more, shown: name},
                                     job={**JOB, "train.max_steps": 1})
                self.assert_exit(driver, FINISHED)
                seen = re.findall(f"fakegpu: process (\\d+) has {name} (.*)", driver.text)
                self.assertEqual(len({pid for pid, _ in seen}), 2, driver.text)
                self.assertEqual({what for _, what in seen}, {value})
                said = re.findall(r"(\w+): warning: --iface lo: the environment's "
                                  r'NCCL_SOCKET_IFNAME is "ib"', driver.text)
                self.assertEqual(said, ["dpdriver"] if more else [])  # the driver says it for all

    def test_iface_is_not_nccl_s_network(self):
        """Each process that was started by the user and uses NCCL warns."""
        job = {**JOB, "train.max_steps": 1}
        env = {"NCCL_SOCKET_IFNAME": "ib"}
        for device, n_said in (("cuda", 1), ("cpu", 0)):
            driver = self.driver("--device", device, "--iface", "lo", n=2, env=env, job=job)
            driver.wait_line("listening on")
            follower = self.follower("--device", "auto", "--iface", "lo",
                                     env={**env, **WITH_DRIVER})
            self.assert_exit(follower, FINISHED)
            self.assert_exit(driver, FINISHED)
            for daemon in (driver, follower):
                said = re.findall(r"warning: --iface lo: .* is \"ib\", and NCCL", daemon.text)
                self.assertEqual(len(said), n_said, daemon.text)

    def test_a_small_shared_memory(self):
        """A container's /dev/shm of 64 MiB: one warning a machine, none where it is large enough or
        not used."""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("another /dev/shm needs the right to mount it")
        for size, env, n_said in (("64m", {}, 1), ("1g", {}, 0),
                                  ("64m", {"NCCL_SHM_DISABLE": "1"}, 0)):
            prefix = ("unshare", "-m", "sh", "-c",
                      f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh")
            driver = self.driver("--device", "cuda", "--local", n=2, env=env, prefix=prefix,
                                 job={**JOB, "train.max_steps": 1})
            self.assert_exit(driver, FINISHED)
            said = re.findall(r"(\w+): warning: /dev/shm has 64 MiB, and NCCL .*: want 1024 MiB .*"
                              "NCCL_SHM_DISABLE=1", driver.text)
            self.assertEqual(said, ["dpdriver"] * n_said, driver.text)

    def test_a_bad_gpu_is_left_out(self):
        env = {"DPTRAIN_FAKE_BAD": "0"}
        driver = self.start([dp.DRIVER, "--nranks", "1", "--device", "cuda", "--port", "0",
                             *sets({**JOB, "train.max_steps": 2})], env=env)
        self.assert_exit(driver, FINISHED)
        self.assertEqual(self.events("start")[0]["device"], "cuda:1")
        driver = self.start([dp.DRIVER, "--nranks", "1", "--device", "cuda:0"], env=env)
        self.assert_exit(driver, USAGE, r"cuda:0 \(Simulated\) cannot be used: it is broken")

    def test_no_driver(self):
        env = {"DPTRAIN_FAKE_TROUBLE": "there is no NVIDIA driver (libcuda.so.1)"}
        for program, more in ((dp.DRIVER, ["--nranks", "1"]), (dp.FOLLOWER, ["--root", "h:1"])):
            daemon = self.start([program, *more, "--device", "cuda"], env=env)
            self.assert_exit(daemon, USAGE, r"--device cuda: no GPU can be used: there is no "
                             r"NVIDIA driver \(libcuda.so.1\)")
            self.assertEqual(len([line for line in daemon.lines if line]), 1)

    def test_ranks_of_no_gpus(self):
        """One line refuses them; nothing is said of computing on the CPU."""
        driver = self.start([dp.DRIVER, "--ranks", "gpus"],
                            env={**WITH_DRIVER, "DPTRAIN_FAKE_TROUBLE": "no luck"})
        self.assert_exit(driver, USAGE, r"--ranks gpus: no GPU can be used here: no luck; --ranks")
        self.assertEqual(len([line for line in driver.lines if line]), 1)

    def test_check(self):
        driver = self.driver("--check", "--device", "cuda", n=2, job=JOB)
        self.assert_exit(driver, FINISHED)
        for pattern in (r"driver, knows CUDA: 13.0", r"cuDNN: 9.19.0", r"NCCL: 2.28.9",
                        r"cuda:1: Simulated, 1.0 GiB, capability 9.0, GPU-fake-1: can be used",
                        r"they fit: 2 GPUs can be used", r"looked for in",
                        r"ranks +2, this one on cuda:0 \(Simulated, GPU-fake-0\)"):
            self.assertRegex(driver.out, pattern)
        driver = self.driver("--check", "--device", "cuda:7", n=2, job=JOB)
        self.assert_exit(driver, USAGE, r"there is no cuda:7: this machine has 2 GPUs")
        self.assertRegex(driver.out, r"they do not fit: there is no cuda:7")



if __name__ == "__main__":
    dp.main()

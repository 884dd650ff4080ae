"""Tests of the daemons on a simulated GPU: its plugin is loaded, GPUs are chosen or refused, and
training gives the CPU's losses."""

import ctypes
import os
import re
import signal

import dp
from dp import FAILED, FINISHED, REFUSED, STOPPED, USAGE, sets

LENET = {"data.samples": 240, "data.validation_samples": 100, "train.global_batch": 24,
         "train.epochs": 2, "optimizer.lr": 0.1}
# For tests that do not look at the kernels: a simulated convolution is slow.
JOB = {**LENET, "model.arch": "mlp", "model.hidden": "[24]"}
MANY = {"DPTRAIN_FAKE_GPUS": "3"}
WITH_DRIVER = {"LD_LIBRARY_PATH": os.path.dirname(dp.DRIVER)}
ILLEGAL = r"an illegal memory access was encountered \(cudaError700\)"


undisturbed = {}


def has_driver():
    """Is there a real NVIDIA driver, apart from WITH_DRIVER's?  Asked in the daemons' way."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


class Daemons(dp.Case):
    def train(self, *args, n=1, run, job=JOB, **kwargs):
        """Train, and return the epoch events of the whole run."""
        self.run_driver("--run-dir", self.path(run), *args, n=n, job=job, **kwargs)
        return self.events("epoch", run)

    def undisturbed(self, job):
        """The epoch events of an undisturbed run of two ranks on GPUs; each job is trained once."""
        key = str(job)
        if key not in undisturbed:
            run = f"whole{len(undisturbed)}"
            undisturbed[key] = self.train("--device", "cuda", "--local", n=2, run=run, job=job)
        return undisturbed[key]

    def assert_near(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertEqual(x["step"], y["step"])
            for key in ("train_loss", "validation_loss"):
                self.assertLess(abs(x[key] - y[key]), tolerance * abs(x[key]), (key, x, y))

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

    def like_the_cpu(self, job, name="", n=2, tolerance=1e-5):
        """n ranks on GPUs train as n on CPUs do; the epoch events of the GPUs."""
        cpu, gpu = (self.train("--device", device, "--local", n=n, run=device + name, job=job,
                               env=MANY) for device in ("cpu", "cuda"))
        self.assert_near(cpu, gpu, tolerance)
        return gpu

    def test_compressed_gradients(self):
        """With each way to compress, GPUs train as CPUs do, and not as they do without."""
        job = {**JOB, "data.samples": 230, "optimizer.momentum": 0.5}
        plain = self.like_the_cpu(job)
        for kind in ("float16", "bfloat16", "uint8", "powersgd", "onebit"):
            gpu = self.like_the_cpu({**job, "strategy.compress": kind}, name=kind)
            self.assertNotEqual([e["train_loss"] for e in gpu], [e["train_loss"] for e in plain])

    def test_a_rank_is_lost_while_gradients_are_compressed(self):
        """The strategy makes its memory and programs anew with the new ranks.  The lost rank's
        errors of compression are lost."""
        job = {**JOB, "optimizer.momentum": 0.5, "strategy.compress": "onebit"}
        whole = self.train("--device", "cuda", "--local", n=2, run="whole", job=job)
        hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=2,
                          run="hurt", job=job)
        self.assertEqual([e["nranks"] for e in self.events("recovered", "hurt")], [2])
        self.assert_near(whole, hurt, 0.2)

    def test_qadam(self):
        """The steps of the warm-up queue other collectives than those after it, and so does the
        smaller last step of an epoch."""
        job = {**JOB, "data.samples": 230, "strategy.name": "qadam", "strategy.warmup_steps": 4,
               "optimizer.name": "adam", "optimizer.lr": 0.004}
        self.like_the_cpu(job)

    def test_local_sgd(self):
        """Ranks exchange parameters; and they meet: before a checkpoint inside an epoch, where no
        step may be queued ahead, and after a rank was lost."""
        job = {**JOB, "data.samples": 230, "strategy.name": "local_sgd", "strategy.every": 3,
               "optimizer.momentum": 0.5}
        self.like_the_cpu(job)
        epochs = self.like_the_cpu({**job, "strategy.start": 4, "strategy.outer": "nesterov",
                                    "checkpoint.every_steps": 4}, name="outer")
        self.assertEqual({e["replicas"] for e in epochs}, {"mean over ranks"})
        hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=2,
                          run="hurt", job=job)
        self.assertEqual([e["nranks"] for e in self.events("recovered", "hurt")], [2])
        self.assertLess(hurt[1]["validation_loss"], hurt[0]["validation_loss"])

    def test_decentralized(self):
        """With all ranks; and with one peer, where one of three ranks rests in each round."""
        job = {**JOB, "data.samples": 230, "strategy.name": "decentralized",
               "optimizer.momentum": 0.5}
        self.like_the_cpu({**job, "strategy.every": 2, "train.accumulate": 2})
        self.like_the_cpu({**job, "strategy.peers": "shift_one"}, name="one", n=3)

    def test_low_precision_decentralized(self):
        """Codes travel in a ring of three; of two ranks each is both neighbours of the other.  At
        the end of each epoch the ranks compare hashes of what they know of each other."""
        job = {**JOB, "data.samples": 230, "strategy.name": "low_precision_decentralized",
               "optimizer.momentum": 0.5}
        self.like_the_cpu(job, tolerance=2e-4)  # a last bit may change a code
        self.like_the_cpu({**job, "strategy.every": 3, "checkpoint.every_steps": 4}, name="three",
                          n=3, tolerance=2e-4)
        hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=2,
                          run="hurt", job=job)
        self.assertEqual([e["nranks"] for e in self.events("recovered", "hurt")], [2])
        self.assertLess(hurt[1]["validation_loss"], hurt[0]["validation_loss"])

    def test_adasum(self):
        """A pair, and a tree of three ranks, in the last step of whose epochs one rank has no
        sample."""
        job = {**JOB, "strategy.name": "adasum", "optimizer.lr": 0.05}
        self.like_the_cpu(job)
        self.like_the_cpu({**job, "data.samples": 218}, name="three", n=3)

    def test_buckets_are_measured(self):
        """Where each collective takes long, fewer and larger buckets are taken after 8 steps, which
        changes no bit of a sum of two ranks; and a rank that replaces another has the same
        buckets."""
        job = {**JOB, "model.hidden": "[512,512,512,512,512,512,512,512]", "train.global_batch": 4,
               "data.samples": 40, "data.validation_samples": 10, "train.epochs": 1,
               "train.bucket_bytes": "auto"}
        slow = {"DPTRAIN_FAKE_LATENCY": "100"}
        plain = self.train("--device", "cuda", "--local", n=2, run="plain",
                           job={**job, "train.bucket_bytes": 4 << 20})
        auto = self.train("--device", "cuda", "--local", n=2, run="auto", job=job, env=slow)
        cut, = self.events("buckets", "auto")
        self.assertEqual((cut["step"], cut["n_buckets"]), (8, 2))
        self.assertGreater(cut["bucket_bytes"], 4 << 20)
        self.assert_near(plain, auto, 1e-12)
        hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step9", n=2,
                          run="hurt", job=job, env=slow)
        self.assertEqual([e["nranks"] for e in self.events("recovered", "hurt")], [2])
        self.assertEqual([e["n_buckets"] for e in self.events("buckets", "hurt")], [2])
        self.assert_near(plain, hurt, 1e-12)

    def test_fixed_shares(self):
        """With fixed shares any number of ranks, and a run that loses a rank, end with the same
        bytes, which are near the CPU's.  With 5 shares some ranks compute more of them than
        others, and hold several partial sums; the last step of an epoch is smaller."""
        more = {"DPTRAIN_FAKE_GPUS": "4"}
        job = {**JOB, "data.samples": 230, "model.hidden": "[24,30]", "optimizer.momentum": 0.9,
               "train.bucket_bytes": 4096, "strategy.shards": 5}
        norm = {**job, "model.batch_norm": "true", "model.sync_batch_norm": "false",
                "data.samples": 240, "train.global_batch": 48, "train.accumulate": 2,
                "train.clip_norm": 0.5, "strategy.shards": 4}
        for i, one in enumerate((job, norm)):
            cpu = self.train("--device", "cpu", "--local", n=2, run=f"cpu{i}", job=one)
            whole = self.train("--device", "cuda", run=f"1 of {i}", job=one, env=more)
            self.assert_near(cpu, whole, 1e-3)
            for n in (2, 3, 4):
                run = f"{n} of {i}"
                again = self.train("--device", "cuda", "--local", n=n, run=run, job=one, env=more)
                self.assert_near(whole, again, 1e-15)
                self.assertEqual(self.files(f"1 of {i}"), self.files(run))
        hurt = self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=3,
                          run="hurt", job=job, env=more)
        self.assertEqual([e["nranks"] for e in self.events("recovered", "hurt")], [3])
        self.assertEqual(self.files("1 of 0"), self.files("hurt"))
        self.assertEqual(len(hurt), 2)

    def files(self, run):
        """The bytes of the newest checkpoint's files."""
        found = {}
        for name in ("model", "optimizer"):
            with open(self.path(run, "checkpoints", "latest", name + ".safetensors"), "rb") as f:
                found[name] = f.read()
        return found

    def test_divided_state(self):
        """Divided state trains as the plain all-reduce does, on the same GPUs bit for bit, and its
        checkpoints have the same bytes, which any other run goes on from."""
        job = {**JOB, "data.samples": 230, "model.hidden": "[24,30]", "optimizer.momentum": 0.9,
               "train.bucket_bytes": 4096, "checkpoint.every_steps": 4}
        norm = {**job, "model.batch_norm": "true", "train.accumulate": 2}
        half = {**job, "precision": "bfloat16", "train.grad_dtype": "bfloat16",
                "optimizer.name": "adamw", "optimizer.lr": 0.01}
        del half["optimizer.momentum"]
        for i, (one, n, stages) in enumerate(((job, 3, (1, 2, 3)), (norm, 2, (1,)),
                                              (half, 2, (1, 2)))):
            plain = self.train("--device", "cuda", "--local", n=n, run=f"plain{i}", job=one,
                               env=MANY)
            for stage in stages:
                for buddy in ("true", "false"):
                    run = f"zero{stage}{i}{buddy}"
                    zero = {**one, "strategy.zero": stage, "strategy.buddy": buddy}
                    divided = self.train("--device", "cuda", "--local", n=n, run=run, job=zero,
                                         env=MANY)
                    self.assert_near(plain, divided, 1e-12)
                    self.assertEqual(self.files(f"plain{i}"), self.files(run))
        whole = self.train("--device", "cpu", run="whole", job=job)
        for stage in (1, 3):
            run = f"part{stage}"
            self.train("--device", "cuda", "--local", n=2, run=run,
                       job={**job, "train.epochs": 1, "strategy.zero": stage})
            self.assert_near(whole, self.train("--device", "cpu", "--resume", run=run, job=job),
                             1e-3)

    def test_state_in_the_host_s_memory(self):
        """The same bits and files as with all of the state in the GPU's memory, also after a rank
        was lost, and after a resume on another number of ranks."""
        job = {**JOB, "data.samples": 230, "model.hidden": "[24,30]", "optimizer.name": "adamw",
               "optimizer.lr": 0.01, "train.bucket_bytes": 4096, "train.average.name": "ema",
               "train.average.decay": 0.9}
        plain = self.train("--device", "cuda", "--local", n=3, run="plain", job=job, env=MANY)
        for stage, word in ((0, "optimizer"), (1, "optimizer"), (3, "all")):
            one = {**job, "strategy.zero": stage, "strategy.offload": word}
            for inject in ((), ("--inject", "kill:rank1@step7")):
                run = f"{stage}{word}{len(inject)}"
                seen = self.train("--device", "cuda", "--local", *inject, n=3, run=run, job=one,
                                  env=MANY)
                self.assert_near(plain, seen, 1e-12)
                self.assertEqual(self.files("plain"), self.files(run))
            self.train("--device", "cuda", "--local", n=2, run=f"part{stage}",
                       job={**one, "train.epochs": 1})
            rest = self.train("--device", "cuda", "--local", "--resume", n=3,
                              run=f"part{stage}", job=one, env=MANY)
            self.assert_near(plain, rest, 1e-5)
        driver = self.driver("--device", "cuda", "--check", n=2,
                             job={**JOB, "strategy.zero": 2, "strategy.offload": "all"})
        self.assert_exit(driver, USAGE, r"strategy.offload is all with strategy.zero 2, but a GPU "
                         "computes with whole parameters in its own memory; want strategy.zero 3, "
                         "or strategy.offload optimizer")

    def test_a_rank_leaves_a_divided_state(self):
        """Rank 0 takes the whole state, from the GPUs' memory or from their hosts', and gives it to
        the ranks that go on."""
        slow = {**MANY, "DPTRAIN_FAKE_SLOW": "20"}
        job = {**JOB, "train.epochs": 4, "train.bucket_bytes": 4096, "strategy.zero": 3,
               "optimizer.momentum": 0.9, "checkpoint.every_steps": 4, "cluster.spares": 1}
        for word in ("none", "all"):
            run = f"drained {word}"
            driver = self.driver("--device", "cuda", "--run-dir", self.path(run), n=2, env=slow,
                                 job={**job, "strategy.offload": word})
            leaver = self.follower("--rank", "1", "--device", "cuda", env=slow)
            driver.wait_line("rank 1 joined")
            spare = self.follower("--device", "cuda", env=slow)
            self.wait_event("checkpoint", run=run)
            self.assert_exit(self.start([dp.DRIVER, "--drain", "1", "--run-dir", self.path(run)]),
                             FINISHED)
            self.assert_exit(leaver, STOPPED)
            for daemon in (driver, spare):
                self.assert_exit(daemon, FINISHED)
            recovered, = self.events("recovered", run)
            self.assertEqual(recovered["steps_lost"], 0)
            plain = {key: value for key, value in job.items() if key != "cluster.spares"}
            self.assert_near(self.undisturbed(plain), self.events("epoch", run), 1e-12)

    def test_divided_gradients_of_micro_batches(self):
        """Stages 2 and 3 sum the gradients of each micro-batch by themselves, in another order than
        stage 1.  The last step of an epoch has smaller micro-batches, of fewer ranks."""
        job = {**JOB, "data.samples": 218, "model.hidden": "[24,30]", "optimizer.momentum": 0.9,
               "train.bucket_bytes": 4096, "train.accumulate": 3}
        for stage in (2, 3):
            self.like_the_cpu({**job, "strategy.zero": stage}, name=str(stage), n=3)
        plain = self.train("--device", "cuda", "--local", n=3, run="plain", job=job, env=MANY)
        self.assert_near(plain, self.events("epoch", "cuda3"), 1e-4)

    def test_a_divided_average(self):
        """The averages take the place of the parameters that stage 3 gathers for a validation."""
        self.like_the_cpu({**JOB, "model.hidden": "[24,30]", "train.bucket_bytes": 4096,
                           "strategy.zero": 3, "train.average.name": "ema",
                           "train.average.decay": 0.9}, n=3)

    def lose_in_a_divided_step(self, what, at, job, whole):
        """Rank 1 of three fails in a collective and comes again; nothing else is lost."""
        run = f"{what}{at}{job['strategy.zero']}{job['strategy.buddy']}"
        driver = self.driver("--device", "cuda", "--run-dir", self.path(run), n=3, job=job,
                             env=MANY)
        victim = self.follower("--rank", "1", "--device", "cuda", once=False,
                               env={**MANY, what: str(at)})
        other = self.follower("--rank", "2", "--device", "cuda", env=MANY)
        for daemon in (driver, other):
            self.assert_exit(daemon, FINISHED)
        dp.wait_for("the job's end", lambda: "waiting for the next driver" in
                    victim.text.partition("finished: ")[2])
        victim.signal(signal.SIGTERM)
        self.assert_exit(victim, STOPPED)
        recovered, = self.events("recovered", run)
        self.assertLessEqual(recovered["steps_lost"], 1)
        self.assertNotIn("goes back", driver.text)
        self.assert_near(whole, self.events("epoch", run), 1e-12)

    def test_a_rank_with_divided_state_is_lost(self):
        """A step has five collectives: sums of gradients, those for the buddy, the control vector,
        the sum of the check, and parameters, which stage 3 gathers first.  In whichever of them a
        rank fails, the job ends with the numbers of an undisturbed one, although broken collectives
        leave garbage.  Without a buddy, a rank that alone lacks the sum of the check makes the
        update later."""
        job = {**JOB, "train.epochs": 1, "optimizer.momentum": 0.9}
        whole = self.train("--device", "cuda", "--local", n=3, run="whole", job=job, env=MANY)
        for stage in (1, 2, 3):
            zero = {**job, "strategy.zero": stage, "strategy.buddy": "true"}
            for at in range(20, 25) if stage != 2 else ():
                self.lose_in_a_divided_step("DPTRAIN_FAKE_FAIL", at, zero, whole)
            zero["strategy.buddy"] = "false"
            for at in range(20, 24):
                self.lose_in_a_divided_step("DPTRAIN_FAKE_LOSE", at, zero, whole)

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
            is_at_once = "stopped at once by SIGINT" in driver.text  # or the second came too late
            self.assert_exit(follower, FAILED if is_at_once else STOPPED)
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

    def test_a_slow_gpu_gets_less(self):
        """Steps are recorded anew for the new shares, which change the results by rounding alone.
        In a step with synchronised batch norm the device measures how long it waits for others."""
        job = {**JOB, "data.samples": 1000, "train.epochs": 1, "optimizer.lr": 0.02,
               "model.batch_norm": "true"}
        whole = self.train("--device", "cuda", "--local", n=2, run="whole", job=job)
        driver = self.driver("--device", "cuda", "--run-dir", self.path("slow"), n=2,
                             job={**job, "cluster.rebalance": "true"})
        follower = self.follower("--device", "cuda", env={"DPTRAIN_FAKE_SLOW": "40"})
        for daemon in (driver, follower):
            self.assert_exit(daemon, FINISHED)
        first = self.events("rebalance", "slow")[0]
        self.assertEqual(first["step"], 16)
        self.assertEqual(sum(first["shares"]), 24)
        self.assertLess(first["shares"][1], 12)
        self.assert_near(whole, self.events("epoch", "slow"), 1e-4)

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

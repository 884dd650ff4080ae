"""Tests of the strategies on a simulated GPU: each trains as on CPUs, or as the plain all-reduce
does there, also when ranks are lost and when state is divided."""

import os
import signal

import dp
from case import JOB, MANY, Case
from dp import FINISHED, STOPPED, USAGE


# Jobs whose state is divided, two of them with a part that is frozen.
PLAIN = {**JOB, "data.samples": 230, "model.hidden": "[24,30]", "train.bucket_bytes": 4096,
         "checkpoint.every_steps": 4}
DIVIDED = {
    "job": {**PLAIN, "optimizer.momentum": 0.9},
    "norm": {**PLAIN, "optimizer.momentum": 0.9, "model.batch_norm": "true", "train.accumulate": 2},
    "half": {**PLAIN, "precision": "bfloat16", "train.grad_dtype": "bfloat16",
             "optimizer.name": "adamw", "optimizer.lr": 0.01},
    "scaled": {**PLAIN, "optimizer.momentum": 0.9, "precision": "float16"},
    "frozen": {**PLAIN, "optimizer.momentum": 0.9,
               "optimizer.groups": "[{match: fc2.*, frozen: true}]"},
    "again": {**PLAIN, "optimizer.momentum": 0.9, "train.recompute": "blocks",
              "model.arch": "layers", "model.layers":
              "[flatten, linear: {units: 24}, residual: [linear: {units: 24}, tanh], "
              "residual: [tanh, linear: {units: 24}], linear: {units: 10}]",
              "optimizer.groups": "[{match: 1.*, frozen: true}]"},
}
del DIVIDED["again"]["model.hidden"]


class Divided(Case):
    def divide(self, name, n, stages):
        """With each stage the job trains as without, and its checkpoints have the same bytes."""
        job = DIVIDED[name]
        plain = self.train("--device", "cuda", "--local", n=n, run=f"plain-{name}", job=job,
                           env=MANY)
        for stage in stages:
            for buddy in ("true", "false"):
                run = f"zero{stage}-{name}-{buddy}"
                zero = {**job, "strategy.zero": stage, "strategy.buddy": buddy}
                divided = self.train("--device", "cuda", "--local", n=n, run=run, job=zero,
                                     env=MANY)
                self.assert_near(plain, divided, 1e-12)
                self.assertEqual(self.files(f"plain-{name}"), self.files(run))
        if "optimizer.groups" in job:
            self.train("--device", "cuda", "--local", "--inject", "kill:rank1@step7", n=n,
                       run=f"hurt-{name}", job={**job, "strategy.zero": 3}, env=MANY)
            self.assertEqual(self.files(f"plain-{name}"), self.files(f"hurt-{name}"))

    def lose_in_divided_steps(self, *stages):
        job = {**JOB, "train.epochs": 1, "optimizer.momentum": 0.9}
        whole = self.train("--device", "cuda", "--local", n=3, run="whole", job=job, env=MANY)
        for stage in stages:
            zero = {**job, "strategy.zero": stage, "strategy.buddy": "true"}
            for at in range(20, 25) if stage != 2 else ():
                self.lose_in_a_divided_step("DPTRAIN_FAKE_FAIL", at, zero, whole)
            zero["strategy.buddy"] = "false"
            for at in range(20, 24):
                self.lose_in_a_divided_step("DPTRAIN_FAKE_LOSE", at, zero, whole)

    def end_after_one_loss(self, victim, run):
        """The follower that failed has come again, and waits for the next job now."""
        dp.wait_for("the job's end", lambda: "waiting for the next driver" in
                    victim.text.partition("finished: ")[2])
        victim.signal(signal.SIGTERM)
        self.assert_exit(victim, STOPPED)
        recovered, = self.events("recovered", run)
        self.assertLessEqual(recovered["steps_lost"], 1)

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
        self.end_after_one_loss(victim, run)
        self.assertNotIn("goes back", driver.text)
        self.assert_near(whole, self.events("epoch", run), 1e-12)


class Rest(Divided):
    """Only `tests/run.sh all` runs these."""

    def test_divided_state_of_other_jobs(self):
        self.divide("norm", 2, (1,))
        self.divide("half", 2, (1, 2))
        self.divide("scaled", 2, (3,))
        self.divide("frozen", 3, (3,))

    def test_a_rank_is_lost_with_other_stages(self):
        self.lose_in_divided_steps(1, 2)


class Strategies(Divided):
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

    def test_async(self):
        """Rounds run beside the steps of 2 to 4 ranks, whatever their sums take, and leave no rank
        apart.  Without rounds, and with one rank, GPUs train as CPUs do."""
        job = {**JOB, "data.samples": 230, "strategy.name": "async", "optimizer.momentum": 0.5}
        apart = self.like_the_cpu({**job, "strategy.interval": 1e6})
        job["strategy.interval"] = 0
        self.like_the_cpu(job, name="one", n=1)
        for n in (2, 3, 4):
            for late in (0, 40):
                run = f"{n} {late}"
                epochs = self.train("--device", "cuda", "--local", n=n, run=run, job=job,
                                    env={"DPTRAIN_FAKE_GPUS": "4", "DPTRAIN_FAKE_APART": str(late)})
                self.assertEqual({e["replicas"] for e in epochs}, {"mean over ranks"})
                self.assertLess(epochs[1]["validation_loss"], epochs[0]["validation_loss"])
        self.assertNotEqual([e["train_loss"] for e in apart],
                            [e["train_loss"] for e in self.events("epoch", "2 0")])

    def test_micro_batches_and_checkpoints_of_async(self):
        """With micro-batches no step is queued ahead.  A checkpoint inside an epoch waits for the
        round under way, and the run goes on from it."""
        job = {**JOB, "data.samples": 230, "strategy.name": "async", "strategy.interval": 0,
               "precision": "bfloat16", "optimizer.momentum": 0.5}
        late = {"DPTRAIN_FAKE_APART": "40"}
        self.train("--device", "cuda", "--local", n=2, run="micro", env=late,
                   job={**job, "train.accumulate": 2, "checkpoint.every_steps": 4})
        self.train("--device", "cuda", "--local", n=2, run="part", env=late,
                   job={**job, "train.max_steps": 6, "checkpoint.every_steps": 4})
        whole = self.train("--device", "cuda", "--local", "--resume", n=2, run="part", env=late,
                           job={**job, "train.max_steps": 20})
        for epochs in (self.events("epoch", "micro"), whole):
            self.assertLess(epochs[-1]["validation_loss"], epochs[0]["validation_loss"])

    def test_a_rank_is_lost_in_a_round_of_async(self):
        """A rank kills itself while a round is under way; and a rank fails in one of the
        collectives that follow each other, until one was a step's and one a round's: how many
        steps are between two rounds depends on the machine's load."""
        job = {**JOB, "strategy.name": "async", "strategy.interval": 0, "optimizer.momentum": 0.5}
        late = {"DPTRAIN_FAKE_APART": "60"}
        for at in (3, 7, 12):
            run = f"killed {at}"
            epochs = self.train("--device", "cuda", "--local", "--inject", f"kill:rank1@step{at}",
                                n=3, run=run, job=job, env={**MANY, **late})
            self.assertEqual([e["nranks"] for e in self.events("recovered", run)], [3])
            self.assertLess(epochs[1]["validation_loss"], epochs[0]["validation_loss"])
        wanted, at = {"failed in collective", "failed beside the steps in collective"}, 10
        while wanted:
            self.assertLess(at, 60, wanted)
            run = f"failed {at}"
            driver = self.driver("--device", "cuda", "--run-dir", self.path(run), n=2, job=job)
            victim = self.follower("--rank", "1", "--device", "cuda", once=False,
                                   env={"DPTRAIN_FAKE_FAIL": str(at)})
            self.assert_exit(driver, FINISHED)
            self.end_after_one_loss(victim, run)
            epochs = self.events("epoch", run)
            self.assertLess(epochs[1]["validation_loss"], epochs[0]["validation_loss"])
            wanted = {words for words in wanted if words not in victim.text}
            at += 1

    def test_async_is_stopped(self):
        """A recorded run is stopped, with a round under way, and goes on; so does one whose rank is
        killed from outside."""
        job = {**JOB, "strategy.name": "async", "strategy.interval": 0, "train.epochs": 6,
               "data.samples": 960}
        slow = {"DPTRAIN_FAKE_APART": "60", "DPTRAIN_FAKE_SLOW": "10"}
        driver = self.driver("--device", "cuda", "--local", "--run-dir", self.path("run"), n=2,
                             job=job, env=slow)
        self.wait_event("epoch", run="run")
        os.kill(self.local_pid(1), signal.SIGKILL)
        self.wait_event("recovered", run="run")
        self.wait_event("epoch", n=2, run="run")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        self.assertLess(len(self.events("epoch", "run")), 6)
        rest = self.train("--device", "cuda", "--local", "--resume", n=2, run="run", job=job)
        self.assertEqual(sorted({e["epoch"] for e in rest}), list(range(1, 7)))
        self.assertLess(rest[-1]["validation_loss"], rest[0]["validation_loss"])

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

    def test_divided_state(self):
        """Divided state trains as the plain all-reduce does, on the same GPUs bit for bit, and its
        checkpoints have the same bytes, which any other run goes on from."""
        self.divide("job", 3, (1, 2, 3))
        self.divide("half", 2, (3,))
        self.divide("again", 3, (3,))
        whole = self.train("--device", "cpu", run="whole", job=DIVIDED["job"])
        for stage in (1, 3):
            run = f"part{stage}"
            self.train("--device", "cuda", "--local", n=2, run=run,
                       job={**DIVIDED["job"], "train.epochs": 1, "strategy.zero": stage})
            rest = self.train("--device", "cpu", "--resume", run=run, job=DIVIDED["job"])
            self.assert_near(whole, rest, 1e-3)

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

    def test_a_rank_with_divided_state_is_lost(self):
        """A step has five collectives: sums of gradients, those for the buddy, the control vector,
        the sum of the check, and parameters, which stage 3 gathers first.  In whichever of them a
        rank fails, the job ends with the numbers of an undisturbed one, although broken collectives
        leave garbage.  Without a buddy, a rank that alone lacks the sum of the check makes the
        update later."""
        self.lose_in_divided_steps(3)

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



if __name__ == "__main__":
    dp.main()

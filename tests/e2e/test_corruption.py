"""Wrong bits in a run of real processes: who is named, and how the run ends.

Which faults are found, with which strategies, is for tests/train/test_audit.c.  A disk keeps wrong
bytes by the library DPTRAIN_HANG_LIBRARY (hang.c).
"""
import json
import os

import dp
from dp import FAILED, FINISHED, STOPPED

LIBRARY = os.environ.get("DPTRAIN_HANG_LIBRARY")

# 4 steps an epoch, 12 in all.
JOB = {**dp.LIGHT, "data.samples": 256, "data.validation_samples": 64, "train.global_batch": 64,
       "train.epochs": 3, "train.replica_check": 1, **dp.FORSAKEN}


class Corruption(dp.Case):
    def losses(self, run):
        return [(e["epoch"], e["step"], e["train_loss"], e["validation_loss"])
                for e in self.events("epoch", run)]

    def start_job(self, spec, job, n=3, run="run"):
        faults = ["--inject", spec] if spec else []
        return self.driver("--local", "--run-dir", run, *faults, n=n, job=job)

    def expected(self, job, n=3):
        self.assert_exit(self.start_job(None, job, n, "calm"), FINISHED)
        self.assertEqual(self.events("corruption", "calm"), [])
        return self.losses("calm")

    def test_a_rank_takes_the_state_of_the_others(self):
        job = {**JOB, "cluster.on_divergence": "heal"}
        want = self.expected(job)
        driver = self.start_job("flip:rank1@step5:param0", job)
        self.assert_exit(driver, FINISHED, r"rank 1 \(.*\) made another update of the same state "
                         r".* in step 5, first in \S+: it took the state of most ranks")
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["what"], event["share"],
                          event["healed"]), (1, 5, "update", None, True))
        self.assertEqual(self.losses("run"), want)

    def test_the_run_ends_otherwise(self):
        driver = self.start_job("flip:rank2@step5:slot0", {**JOB, "optimizer.momentum": 0.9})
        self.assert_exit(driver, FAILED, r"rank 2 \(.*\) made another update .* in step 5, first "
                         r"in \S+momentum_buffer: the job ends")
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                         (2, 5, "update", False))
        error, = self.events("error", "run")
        self.assertEqual(error["rank"], 2)
        self.assertEqual([e["step"] for e in self.events("checkpoint", "run")], [4])

    def test_a_wrong_state_is_not_spread(self):
        """No step is compared.  Another rank is lost, and the others compare what they hold before
        they go on."""
        job = {**JOB, "train.replica_check": 1e-9, "train.audit": 1e-9,
               "cluster.on_divergence": "heal",
               "cluster.min_ranks": 2, "cluster.replace_timeout": 0}
        driver = self.start_job("flip:rank0@step5:param0,kill:rank3@step7", job, n=4)
        self.assert_exit(driver, FINISHED, r"rank 0 \(.*\) holds a state that differs from that of "
                         r"other ranks, after step 7, first in \S+: it took the state of most")
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                         (0, 7, "state", True))
        self.assertEqual(self.events("epoch", "run")[-1]["step"], 12)

    def test_a_rank_that_computes_wrongly_leaves(self):
        """No wrong update is made: the losses are those of an undisturbed run, to the bit."""
        job = {**JOB, "train.audit": 1, "strategy.shards": 4, "cluster.min_ranks": 2}
        want = self.expected(job)
        driver = self.start_job("flip:rank1@step5:bucket0", job)
        self.assert_exit(driver, FINISHED, r"rank 1 \(.*\) computed a gradient of rank 1's share "
                         r"that another rank does not get, in step 5, first in \S+: it was "
                         r"mended, and no wrong update was made[\s\S]*rank 1 \(.*\) is drained, "
                         r"because its bits are wrong")
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["what"], event["share"],
                          event["healed"]), (1, 5, "gradient", 1, True))
        lost, = self.events("lost", "run")
        self.assertEqual((lost["rank"], lost["reason"].split(") ")[-1]),
                         (1, "was drained, because its bits were wrong"))
        self.assertEqual([e["steps_lost"] for e in self.events("recovered", "run")], [0])
        self.assertEqual(self.losses("run"), want)

    def wait_spare(self):
        def roles():
            status = self.start([dp.DRIVER, "--status", "--run-dir", "run", "--log-format", "json"])
            self.assert_exit(status, FINISHED)
            return [rank["role"] for rank in json.loads(status.out)["ranks"]]

        dp.wait_for("a spare", lambda: "spare" in roles())

    def hashes(self, run):
        with open(self.path(run, "hashes.csv"), encoding="ascii") as file:
            return file.read()

    def test_a_spare_takes_its_place(self):
        """The job needs all its ranks.  Rank 2 holds them up until the spare is ready."""
        job = {**JOB, **dp.PATIENT, "train.audit": 1, "strategy.shards": 4, "checkpoint.hashes": 1}
        want = self.expected(job)
        driver = self.driver("--run-dir", "run", "--inject",
                             "stop:rank2@step3,flip:rank1@step5:bucket0", n=3,
                             job={**job, "cluster.spares": 1})
        wrong, held = [self.follower("--rank", str(k)) for k in (1, 2)]
        for k in (1, 2):
            driver.wait_line(f"rank {k} joined")
        spare = self.follower()
        self.wait_frozen(held.pid, run="run")
        self.wait_spare()
        self.wake(held.pid, run="run")
        self.assert_exit(driver, FINISHED, r"rank 1 \(.*\) is drained, because its bits are wrong")
        self.assert_exit(wrong, STOPPED, "drained, because its bits were wrong")
        for follower in (held, spare):
            self.assert_exit(follower, FINISHED)
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["healed"]), (1, 5, True))
        self.assertEqual([(e["rank"], e["reason"].split(") ")[-1])
                          for e in self.events("lost", "run")],
                         [(1, "was drained, because its bits were wrong")])
        self.assertEqual([(e["nranks"], e["steps_lost"]) for e in self.events("recovered", "run")],
                         [(3, 0)])
        self.assertEqual(self.losses("run"), want)
        self.assertEqual(self.hashes("run"), self.hashes("calm"))

    def test_a_rank_that_stays_wrong_is_lost(self):
        """Three rounds of the step are wrong on rank 2; the other ranks do the step without it."""
        flip = "flip:rank2@step5:bucket0"
        job = {**JOB, "train.audit": 1, "strategy.shards": 4, "cluster.min_ranks": 2,
               "cluster.replace_timeout": 0}
        want = self.expected(job)
        driver = self.start_job(",".join([flip] * 3), job)
        self.assert_exit(driver, FINISHED, r"rank 2 \(.*\) failed in \w+ of step 5: .*this "
                         r"rank computes wrong gradients")
        event, = self.events("corruption", "run")
        self.assertEqual((event["rank"], event["step"], event["healed"]), (2, 5, False))
        self.assertEqual([e["rank"] for e in self.events("lost", "run")], [2])
        self.assertEqual(self.losses("run"), want)

    def test_a_driver_that_stays_wrong_ends_the_job(self):
        """No standby could lead.  The state before the step is saved, and the job can go on."""
        job = {**JOB, "train.audit": 1, "strategy.shards": 3, "cluster.min_ranks": 2}
        want = self.expected(job)
        driver = self.start_job(",".join(["flip:rank0@step6:bucket0"] * 3), job)
        self.assert_exit(driver, FAILED, r"rank 0 \(.*\) computed a gradient .* in step 6, .*: it "
                         r"could not be mended, .*; the job ends, as the driver runs there")
        self.assertEqual([e["step"] for e in self.events("checkpoint", "run")], [4, 6])
        self.assert_exit(self.driver("--local", "--resume", "--run-dir", "run", n=3, job=None),
                         FINISHED)
        self.assertEqual(self.losses("run"), want)

    def test_audits_go_on_with_fewer_ranks(self):
        """The ranks that are left have other shares, and a wrong bit is still found."""
        for stage in (0, 2, 3):
            with self.subTest(zero=stage):
                run = f"zero{stage}"
                job = {**JOB, "train.audit": 1, "cluster.min_ranks": 2, "strategy.zero": stage,
                       "cluster.replace_timeout": 0}
                spec = "kill:rank2@backward5,flip:rank1@step9:bucket0"
                driver = self.start_job(spec, job, run=run)
                self.assert_exit(driver, FINISHED)
                self.assertEqual([e["rank"] for e in self.events("lost", run)], [2])
                event, = self.events("corruption", run)
                self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                                 (1, 9, "gradient", True))
                self.assertEqual([e["step"] for e in self.events("epoch", run)], [4, 8, 12])
                recovered, = self.events("recovered", run)
                self.assertEqual(recovered["steps_lost"], 1)

    def test_divided_gradients_are_mended(self):
        """With ZeRO the wrong rank's part of the state goes to the others, and the rank leaves; one
        that stays wrong is lost, and its buddy has its part."""
        flip = "flip:rank1@step5:bucket0"
        for stage, n_flips in ((2, 1), (3, 1), (2, 3), (3, 3)):
            with self.subTest(zero=stage, flips=n_flips):
                run = f"zero{stage}-{n_flips}"
                job = {**JOB, "train.audit": 1, "strategy.zero": stage, "cluster.min_ranks": 2,
                       "optimizer.momentum": 0.9, "cluster.replace_timeout": 0}
                driver = self.start_job(",".join([flip] * n_flips), job, run=run)
                self.assert_exit(driver, FINISHED)
                event, = self.events("corruption", run)
                self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                                 (1, 5, "gradient", n_flips == 1))
                lost, = self.events("lost", run)
                self.assertEqual((lost["rank"], "drained" in lost["reason"]), (1, n_flips == 1))
                self.assertEqual(self.events("epoch", run)[-1]["step"], 12)

    # ---- checkpoints

    def spoiling(self, rank, at):
        """Returns additions to the environment of a rank; rank `at` spoils what it writes."""
        if not LIBRARY:
            self.skipTest("a library cannot be preloaded under a sanitizer")
        return {"LD_PRELOAD": LIBRARY, "DPTRAIN_SPOILS": self.path("spoils")} if rank == at else {}

    def start_spoiling(self, at, job, run):
        """Two ranks, of which rank `at` writes wrong bytes."""
        driver = self.driver("--run-dir", run, n=2, job=job, env=self.spoiling(0, at))
        return driver, self.follower("--rank", "1", env=self.spoiling(1, at))

    def test_a_checkpoint_is_written_again(self):
        for stage, rank in ((0, 0), (1, 0), (1, 1)):
            with self.subTest(zero=stage, rank=rank):
                run = f"spoilt{stage}-{rank}"
                job = {**JOB, "strategy.zero": stage, "optimizer.momentum": 0.9}
                with open(self.path("spoils"), "w", encoding="ascii"):
                    pass
                driver, follower = self.start_spoiling(rank, job, run)
                self.assert_exit(driver, FINISHED, rf"rank {rank} .*wrote a checkpoint of which "
                                 r"the disk gives back other bytes, after step 4.*: it was "
                                 r"written again")
                self.assert_exit(follower, FINISHED)
                event, = self.events("corruption", run)
                self.assertEqual((event["rank"], event["step"], event["what"], event["healed"]),
                                 (rank, 4, "checkpoint", True))
                self.assertEqual([e["step"] for e in self.events("checkpoint", run)], [4, 8, 12])

    def test_a_disk_stays_wrong(self):
        """Each checkpoint fails, whichever rank writes wrong bytes."""
        os.mkdir(self.path("spoils"))
        for stage, rank in ((0, 0), (1, 1)):
            with self.subTest(zero=stage):
                run = f"wrong{stage}"
                job = {**JOB, "strategy.zero": stage, "optimizer.momentum": 0.9}
                driver, follower = self.start_spoiling(rank, job, run)
                self.assert_exit(driver, FAILED, "the final checkpoint could not be written")
                self.assert_exit(follower, FAILED)
                self.assertEqual([(e["rank"], e["step"], e["what"], e["healed"])
                                  for e in self.events("corruption", run)],
                                 [(rank, step, "checkpoint", False) for step in (4, 8, 12)])
                self.assertEqual(self.events("checkpoint", run), [])


if __name__ == "__main__":
    dp.main()

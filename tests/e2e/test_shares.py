"""strategy.shards: a job that loses and gains ranks as it runs ends with the weights of a job that
one rank trains undisturbed, bit for bit.
cluster.rebalance: a slow rank gets a smaller share, and is lost without harm.
train.bucket_bytes: auto: the size that was decided on outlives the loss of a rank."""

import dp
import training
from dp import FINISHED, PATIENT, USAGE, freezing

# 8 steps an epoch, of which the last one is partial.
JOB = {**training.JOB, **PATIENT, "data.samples": 500, "data.validation_samples": 150,
       "train.global_batch": 64, "train.epochs": 4, "cluster.min_ranks": 2,
       "optimizer.momentum": 0.9, "strategy.shards": 5}


class Shares(training.Case):
    def test_ranks_are_lost_and_leave(self):
        """Rank 1 is killed in the midst of a step, and a spare takes its place; that one is drained
        later, and two ranks go on."""
        driver, victim, other, spare = self.start_ranks(JOB, *freezing(2, 13, 21), spares=1)
        spare.wait_line("as a spare")
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        self.wait_event("recovered")
        self.wait_frozen(other.pid, 2)
        drain = self.start([dp.DRIVER, "--drain", "1"])
        self.assert_exit(drain, FINISHED)
        self.wake(other.pid, 2)
        self.assert_exit(driver, FINISHED)
        self.assertEqual([event["nranks"] for event in self.events("recovered")], [3, 2])
        self.run_driver("--run-dir", "alone", n=1, job={**JOB, "cluster.min_ranks": 1})
        self.assertEqual(self.losses(), self.losses("alone"))
        self.assertEqual(self.weights("runs/demo"), self.weights("alone"))
        self.assertFalse(self.told_of_kinds())

    def test_processors_of_two_kinds(self):
        job = {**training.JOB, **PATIENT, "strategy.shards": 2, "train.max_steps": 2,
               "train.audit": 1}
        driver = self.driver(n=2, job=job)
        self.follower(env={"ONEDNN_MAX_CPU_ISA": "SSE41"})
        self.assert_exit(driver, FINISHED, r"train\.audit: 2 of 2 ranks, first rank 0 \(.*, oneDNN "
                         r".*, glibc .*, 1 thread\), have a processor, libraries or a number of "
                         r"threads like no other rank")
        told, = self.told_of_kinds()
        self.assertRegex(told, r"1 of 2 ranks, first rank 1 \(\w+, .*, SSE41, .*\), have a "
                               r"processor or libraries of another kind than rank 0's")
        self.assertEqual(self.events("corruption"), [])

    def told_of_kinds(self):
        return [event["message"] for event in self.events("warning")
                if event["message"].startswith("strategy.shards:")]

    def test_a_slow_rank_is_helped_and_lost(self):
        job = {**training.JOB, **training.CALM, "train.epochs": 2, "cluster.min_ranks": 2,
               "cluster.replace_timeout": 0, "cluster.rebalance": "true"}
        slow = [f"delay:rank2@step{step}:100ms" for step in range(16)]
        driver, *_ = self.start_ranks(job, "--inject", ",".join([*slow, "kill:rank2@step24"]))
        self.assert_exit(driver, FINISHED)
        first = self.events("rebalance")[0]
        self.assertEqual(sum(first["shares"]), job["train.global_batch"])
        self.assertLess(first["shares"][2], job["train.global_batch"] // 3)
        self.assert_recovered(nranks=2)
        self.assert_as_undisturbed({**job, "cluster.rebalance": "false"}, 3)

    def test_buckets_that_were_measured(self):
        """The rank in the place of the one that was killed takes the decision with the state."""
        job = {**training.JOB, **PATIENT, "train.epochs": 2, "train.bucket_bytes": "auto"}
        driver, *_ = self.start_ranks(job, "--inject", "kill:rank1@step12", spares=1)
        self.assert_exit(driver, FINISHED)
        self.assert_recovered(nranks=3)
        told, = self.events("buckets")
        self.assertEqual(told["step"], 8)
        self.assert_as_undisturbed({**job, "train.bucket_bytes": 65536}, 3)

    def test_more_ranks_than_shares(self):
        driver = self.driver(n=2, job={**JOB, "strategy.shards": 1})
        self.assert_exit(driver, USAGE, r"strategy.shards is 1, want at least 2, the number of")


if __name__ == "__main__":
    dp.main()

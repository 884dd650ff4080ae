"""Strategies when ranks are lost, come and leave.  Where each rank updates by its own gradients,
training goes on, and what is validated and saved is the mean over ranks.  Where the state is
divided among the ranks, the losses are those of an undisturbed all-reduce."""

import signal

import dp
import training
from dp import FINISHED, PATIENT, freezing
from training import CALM, JOB

# 8 steps an epoch.  Rank 2 freezes itself in the second epoch and in the fourth.
HELD = {**JOB, **PATIENT, "data.samples": 512, "data.validation_samples": 256, "train.epochs": 5,
        "cluster.min_ranks": 2, "optimizer.momentum": 0.9, "optimizer.lr": 0.02}


class Strategies(training.Case):
    def disturbed(self, replicas="mean over ranks", optimizer=None, **keys):
        """Rank 1 is killed in the midst of a step, and a spare takes its place; that one is drained
        later, and two ranks go on."""
        job = {**HELD, **{f"strategy.{key}": value for key, value in keys.items()}}
        if optimizer:
            job = {key: value for key, value in job.items() if not key.startswith("optimizer.")}
            job |= {f"optimizer.{key}": value for key, value in optimizer.items()}
        driver, victim, other, spare = self.start_ranks(job, *freezing(2, 13, 29), spares=1)
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
        self.assert_exit(other, FINISHED)
        self.assert_recovered(n_times=2)
        self.assertEqual([event["nranks"] for event in self.events("recovered")], [3, 2])
        epochs = self.events("epoch")
        self.assertEqual([event["step"] for event in epochs], [8, 16, 24, 32, 40])
        self.assertEqual({event.get("replicas") for event in epochs}, {replicas})
        self.assertLess(epochs[-1]["validation_loss"], epochs[0]["validation_loss"])

    def test_adasum(self):
        self.disturbed(replicas=None, name="adasum")

    def test_qadam(self):
        self.disturbed(replicas=None, name="qadam", warmup_steps=20,
                       optimizer={"name": "adam", "lr": 0.002})
        self.assertRegex(self.events("warning")[0]["message"], "^strategy.warmup_steps is 20, ")

    def test_local_sgd(self):
        self.disturbed(name="local_sgd", every=3)

    def test_local_sgd_outer(self):
        self.disturbed(name="local_sgd", every=3, outer="nesterov", outer_lr=0.5,
                       outer_momentum=0.5)

    def test_decentralized(self):
        self.disturbed(name="decentralized", peers="shift_one")

    def test_low_precision_decentralized(self):
        self.disturbed(name="low_precision_decentralized")

    def test_async(self):
        self.disturbed(name="async", interval=0)

    def lose_divided(self, **keys):
        """Rank 1 kills itself when it has the sums of a step, rank 2 freezes while the others wait
        for its sums, and the one in rank 1's place loses its connection.  Each time a spare comes.
        The losses are those of an all-reduce that nothing disturbs."""
        plain = {**JOB, "data.samples": 512, "train.epochs": 3, "optimizer.name": "adamw",
                 "optimizer.lr": 0.005, "cluster.heartbeat_timeout": 3, **dp.FORSAKEN}
        faults = "kill:rank1@update5,stop:rank2@reduce11,drop:rank1@step18"
        driver, killed, frozen, *spares = self.start_ranks(
            {**plain, **{f"strategy.{key}": value for key, value in keys.items()}},
            "--inject", faults, spares=3)
        self.assert_exit(driver, FINISHED)
        self.assert_exit(killed, -signal.SIGKILL)
        dp.thaw(frozen.pid)
        self.assert_exit(frozen, dp.FAILED)
        self.assertEqual(sorted(spare.wait_exit() for spare in spares),
                         [FINISHED, FINISHED, dp.FAILED])
        self.assert_recovered(n_times=3, nranks=3)
        self.assert_as_undisturbed(plain, 3)

    def drain_divided(self, **keys):
        """Rank 1 is drained, two ranks go on, and another one joins them."""
        plain = {**JOB, **PATIENT, "optimizer.momentum": 0.9,
                 "optimizer.lr": CALM["optimizer.lr"] / 10, "cluster.min_ranks": 2,
                 "cluster.max_ranks": 3, "cluster.join_interval": 0.2}
        driver, drained, other = self.start_ranks(
            {**plain, **{f"strategy.{key}": value for key, value in keys.items()}},
            "--inject", "stop:rank2@step40,stop:rank1@step70,stop:rank1@step300")
        self.wait_frozen(other.pid)
        self.assert_exit(self.start([dp.DRIVER, "--drain", "1"]), FINISHED)
        self.wake(other.pid)
        self.assert_exit(drained, dp.STOPPED)
        self.wait_frozen(other.pid, 2)  # rank 1 by now
        late = self.follower()
        self.wait_spares(1)
        self.wake(other.pid, 2)
        late.wait_line(r"takes part as rank 2 of 3")
        self.wake(other.pid, 3)
        for daemon in (driver, other, late):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual([event["nranks"] for event in self.events("form")], [3, 2, 3])
        self.assertEqual(self.events("error"), [])
        self.assert_as_undisturbed(plain, 3)

    def test_zero_1(self):
        self.lose_divided(zero=1)

    def test_zero_3(self):
        self.lose_divided(zero=3)

    def test_zero_3_drain_and_join(self):
        self.drain_divided(zero=3)


if __name__ == "__main__":
    dp.main()

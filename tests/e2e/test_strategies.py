"""Every strategy under every fault, in the midst of steps: ranks are killed, frozen, cut off,
drained and added, and at last the driver is killed and the run resumed; or it is stopped in order,
and resumed.

    test_strategies.py [Lost|Back|Resized|Stopped]
                                       the strategies of which each does something that the others
                                       do not
    test_strategies.py rest            the others
    test_strategies.py turns           each strategy in one of Lost, Resized and Stopped, in turn,
                                       and Back
    test_strategies.py others          what `turns` leaves out of allreduce and of the strategies of
                                       which each does something that the others do not

The table WAYS says what each strategy promises.  Where ranks come in the place of others, and the
strategy keeps nothing that is lost with a rank, the run ends with the bits of an undisturbed one.
tests/fakegpu runs `turns` and `others` on simulated GPUs.
"""

import dataclasses
import signal
import sys

import dp
import training
from dp import EXACT, FINISHED, PATIENT

# 40 steps in all.  Two buckets of gradients.
STEPS_AN_EPOCH = 8
JOB = {"model.arch": "mlp", "model.hidden": "48", "data.samples": 512,
       "data.validation_samples": 256, "train.global_batch": 64, "train.epochs": 5,
       "train.bucket_bytes": 65536}
if dp.DEVICE != "cpu":  # a simulated GPU is slow
    JOB |= {"data.samples": 192, "data.validation_samples": 96, "train.global_batch": 24}
MOMENTUM = {"optimizer.momentum": 0.9, "optimizer.lr": 0.02}
ADAM = {"optimizer.name": "adamw", "optimizer.lr": 0.005}
MEAN = "mean over ranks"

# A rank that is lost for each reason, and what its `lost` event tells.
BLOWS = (("kill:rank1@update5", 1, r"closed the connection|the connection to \S+ broke"),
         ("stop:rank2@reduce11", 2, r"no sign of life for \d+\.\d s"),
         ("drop:rank1@step18", 1, r"closed the connection|the connection to \S+ broke"))
END_OF_DRIVER = "kill:rank0@reduce29"


@dataclasses.dataclass
class Way:
    """A strategy by its keys, and what it promises when ranks are lost and replaced or the run is
    stopped and resumed (`replaced`), and when the number of ranks changes (`resized`): the bits of
    the run that is named by `like`, its losses up to rounding, or losses that are at most so much
    worse."""
    keys: dict
    replaced: object
    resized: object
    optimizer: dict = dataclasses.field(default_factory=lambda: MOMENTUM)
    replicas: str = None
    like: dict = None  # the keys of the strategy whose undisturbed run is the measure: the same
    most_lost: int = 1  # steps, by the loss of one rank
    is_ordinary: bool = True
    warns: str = None  # the beginning of the warning that the job gets


BITS, ROUNDING = "bits", "rounding"


def own(keys, is_ordinary=True):
    """A strategy in which each rank updates by its own gradients."""
    return Way(keys, 0.1, 0.1, replicas=MEAN, is_ordinary=is_ordinary)


def divided(stage, is_ordinary=True, **keys):
    """Divided state: the results are those of a plain all-reduce."""
    return Way({"zero": stage, **keys}, BITS, ROUNDING, optimizer=ADAM, like={},
               most_lost=40 if keys else 1, is_ordinary=is_ordinary)


WAYS = {
    "allreduce": Way({"name": "allreduce"}, BITS, ROUNDING, is_ordinary=False),
    "gradient_allreduce": Way({"name": "gradient_allreduce"}, BITS, ROUNDING, is_ordinary=False),
    "adasum": Way({"name": "adasum"}, BITS, 0.1),
    "float16": Way({"compress": "float16"}, BITS, 0.02),
    "bfloat16": Way({"compress": "bfloat16"}, BITS, 0.02, is_ordinary=False),
    "uint8": Way({"compress": "uint8"}, BITS, 0.05, is_ordinary=False),
    "bytegrad": Way({"name": "bytegrad"}, BITS, 0.05),
    "powersgd": Way({"compress": "powersgd", "rank": 2}, 0.1, 0.1),
    "onebit": Way({"compress": "onebit"}, 0.1, 0.1),
    "qadam": Way({"name": "qadam", "warmup_steps": 14}, BITS, 0.1,
                 optimizer={"optimizer.name": "adam", "optimizer.lr": 0.002},
                 warns="strategy.warmup_steps is 14, "),
    "local_sgd": own({"name": "local_sgd", "every": 3}),
    "local_sgd_start": own({"name": "local_sgd", "every": 3, "start": 10}, is_ordinary=False),
    "local_sgd_outer": own({"name": "local_sgd", "every": 3, "outer": "nesterov", "outer_lr": 0.5,
                            "outer_momentum": 0.5}),
    "decentralized": own({"name": "decentralized"}),
    "decentralized_shift_one": own({"name": "decentralized", "peers": "shift_one"}),
    "low_precision_decentralized": own({"name": "low_precision_decentralized"}),
    "async": own({"name": "async", "interval": 0}),
    "zero_1": divided(1),
    "zero_2": divided(2),
    "zero_3": divided(3),
    "zero_3_without_buddies": divided(3, buddy="false", is_ordinary=False),
    "shards": Way({"shards": 5}, BITS, BITS, like={"shards": 5}),
    "zero_3_frozen": dataclasses.replace(
        divided(3, is_ordinary=False),
        optimizer={**ADAM, "optimizer.groups": "[{match: fc1.weight, frozen: true}]"}),
}


class Case(training.Case):
    def start_all(self, job, *args, spares=0):
        driver = self.driver(*EXACT, *args, n=3, job={**job, "cluster.spares": spares})
        ranks = [self.follower("--rank", str(k), *EXACT) for k in (1, 2)]
        for k in (1, 2):
            driver.wait_line(f"rank {k} joined")
        return [driver, *ranks, *(self.follower(*EXACT) for _ in range(spares))]

    def job(self, way, keys=None):
        keys = way.keys if keys is None else keys
        return {**JOB, **way.optimizer, **{f"strategy.{key}": keys[key] for key in keys}}

    def assert_promise(self, way, promise, job):
        """Compares this run, which went to its end, with the same job undisturbed."""
        like = {key: value for key, value in job.items() if not key.startswith("strategy.")}
        keys = way.keys if way.like is None else way.like
        like |= {f"strategy.{key}": value for key, value in keys.items()}
        losses, weights = self.undisturbed(like, 3, *EXACT)
        got = self.final_losses()
        self.assertEqual([row[:2] for row in got], [row[:2] for row in losses])
        if promise == BITS:
            self.assertEqual(got, losses)
            self.assertLessEqual(set(self.losses()), set(losses))  # nothing else was ever told
            self.assertEqual(self.weights("runs/demo"), weights)
        elif promise == ROUNDING:
            self.assert_close(got, losses)
        else:
            self.assertLess(got[-1][3], losses[-1][3] * (1 + promise))


class Lost(Case):
    """Ranks are lost, and the number of ranks stays the same."""

    def check(self, way):
        """A rank kills itself when it has the sums of a step, another one freezes while it waits
        for them, and one loses its connection.  Each time a spare comes.  Then the driver kills
        itself, and the run is resumed from its checkpoint."""
        job = {**self.job(way), "cluster.heartbeat_timeout": 3, **dp.FORSAKEN}
        faults = ",".join([*(blow[0] for blow in BLOWS), END_OF_DRIVER])
        driver, killed, frozen, *spares = self.start_all(job, "--inject", faults, spares=3)
        self.assert_exit(driver, -signal.SIGKILL)
        self.assert_exit(killed, -signal.SIGKILL)
        dp.thaw(frozen.pid)
        for daemon in (frozen, *spares):
            self.assert_exit(daemon, dp.FAILED)
        lost = self.events("lost")
        self.assertEqual([event["rank"] for event in lost], [rank for _, rank, _ in BLOWS])
        for event, (_, _, reason) in zip(lost, BLOWS):
            self.assertRegex(event["reason"], reason)
        recovered = self.events("recovered")
        self.assertEqual([event["nranks"] for event in recovered], [3, 3, 3])
        for event in recovered:
            self.assertLessEqual(event["steps_lost"], way.most_lost)
        self.run_driver("--local", "--resume", *EXACT, n=3, job=job)
        self.assertEqual(self.events("error"), [])
        self.assertEqual({event.get("replicas") for event in self.events("epoch")}, {way.replicas})
        if way.warns:
            self.assertRegex(self.events("warning")[0]["message"], "^" + way.warns)
        self.assert_promise(way, way.replaced, job)


class Back(Case):
    """The newest state of divided parameters is lost with its holders: training goes back to the
    newest checkpoint, or to the beginning."""

    def lose(self, way, faults):
        job = {**self.job(way), **dp.FORSAKEN}
        driver, *_ = self.start_all(job, "--inject", faults, spares=2)
        self.assert_exit(driver, FINISHED)
        self.assertEqual(self.events("error"), [])
        said = [event["message"] for event in self.events("warning")]
        self.assertTrue(any("training goes back to the checkpoint of step" in text or
                            "so training begins again" in text for text in said), said)
        self.assert_promise(way, BITS, job)

    def test_a_rank_and_its_buddy(self):
        """Each waits until the other one has its sums, too: one that is told of the other's loss
        before would leave the step, and live on."""
        self.lose(WAYS["zero_3"], ",".join(f"{fault}:rank{k}@update20{how}" for k in (1, 2)
                                           for fault, how in (("delay", ":500ms"), ("kill", ""))))

    def test_in_a_validation(self):
        """The epoch whose end was lost is validated once it has been trained again."""
        self.lose(WAYS["zero_3_without_buddies"], "kill:rank1@validate3")


class Resized(Case):
    """Ranks leave and join in order."""

    def check(self, way):
        """Rank 1 is drained, and a spare takes its place; that one is drained, too, and two ranks
        go on until another one joins them."""
        job = {**self.job(way), **PATIENT, "cluster.min_ranks": 2, "cluster.max_ranks": 3,
               "cluster.join_interval": 0.2}
        # In step 22 rank 0 gives the driver time to see that another rank is ready.
        held = "stop:rank2@step5,stop:rank2@step13,stop:rank1@step21,delay:rank0@step22:1s"
        driver, one, other, spare = self.start_all(job, "--inject", held, spares=1)
        for n, leaver in enumerate((one, spare), 1):
            self.wait_frozen(other.pid, n)
            if n == 1:
                self.wait_spares(1)
            self.assert_exit(self.start([dp.DRIVER, "--drain", "1"]), FINISHED)
            self.wake(other.pid, n)
            self.assert_exit(leaver, dp.STOPPED)
        self.wait_frozen(other.pid, 3)  # rank 1 by now
        late = self.follower(*EXACT)
        self.wait_spares(1)
        self.wake(other.pid, 3)
        late.wait_line(r"takes part as rank 2 of 3")
        for daemon in (driver, other, late):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual([event["nranks"] for event in self.events("form")], [3, 3, 2, 3])
        self.assertEqual([event["rank"] for event in self.events("lost")], [1, 1])
        self.assertEqual({event["reason"] for event in self.events("lost")},
                         {f"rank 1 ({event['host']}) was drained"
                          for event in self.events("drain")})
        self.assertEqual(self.events("error"), [])
        self.assert_promise(way, way.resized, job)


class Stopped(Case):
    """The run is stopped in order, and resumed."""

    def losses(self, run="runs/demo"):
        """The losses of whole epochs; the one that was cut short is told, too."""
        return [row for row in super().losses(run) if row[1] % STEPS_AN_EPOCH == 0]

    def check(self, way):
        """SIGTERM comes in the midst of an epoch, in a step in which all wait for rank 1.  The
        ranks stop soon after that step: in the next one rank 0 gives rank 1 time to hear of it."""
        job = {**self.job(way), **PATIENT}
        driver, one, other = self.start_all(
            job, "--inject", "stop:rank1@step9,delay:rank0@step10:200ms")
        self.wait_frozen(one.pid)
        driver.signal(signal.SIGTERM)
        driver.wait_line("SIGTERM: stopping")
        self.wake(one.pid)
        for daemon in (driver, one, other):
            self.assert_exit(daemon, dp.STOPPED)
        saved = self.events("checkpoint")[-1]["step"]
        self.assertIn(saved, range(10, 16))
        resumed = self.run_driver("--local", "--resume", *EXACT, n=3, job=job)
        self.assertRegex(resumed.text, f"step {saved}")
        for kind in ("error", "lost"):
            self.assertEqual(self.events(kind), [])
        self.assert_promise(way, way.replaced, job)


KINDS = (Lost, Resized, Stopped)


def chosen(part):
    """(class, strategy) of the tests that an argument names."""
    turns = {(KINDS[i % len(KINDS)], name) for i, name in enumerate(WAYS)}
    pairs = [(kind, name) for name in WAYS for kind in KINDS]
    if part == "turns":
        return [pair for pair in pairs if pair in turns]
    if part == "others":
        return [(kind, name) for kind, name in pairs if (kind, name) not in turns and
                (name == "allreduce" or WAYS[name].is_ordinary)]
    return [(kind, name) for kind, name in pairs if WAYS[name].is_ordinary == (part != "rest")]


def add_all(part):
    for kind, name in chosen(part):
        setattr(kind, f"test_{name}", lambda self, way=WAYS[name]: self.check(way))


if __name__ == "__main__":
    add_all(sys.argv[1] if sys.argv[1:] else None)
    if sys.argv[1:2] in (["rest"], ["others"]):
        del Back
    if sys.argv[1:2] in (["rest"], ["turns"], ["others"]):
        del sys.argv[1]
    dp.main()

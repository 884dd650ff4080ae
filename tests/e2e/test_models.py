"""Every kind of model loses a rank, then all ranks at once, and is resumed: the run ends with the
bits of an undisturbed one.  Batch norm's statistics, dropout, augmentation, tokens, averaged
weights and bfloat16 are among what has to be the same.

test_models.py [Models|Large]
"""

import json
import os
import random
import struct

import dp
import training

# 4 steps an epoch, 12 in all; the ranks' parts of a batch differ.  Checkpoints are inside epochs.
JOB = {"train.global_batch": 5, "train.epochs": 3, "checkpoint.every_epochs": 0,
       "checkpoint.every_steps": 5, "cluster.heartbeat_timeout": 30, **dp.FORSAKEN}
N_SAMPLES, N_VALIDATION = 20, 5
MOMENTUM = {"optimizer.lr": 0.02, "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.0005}
ADAMW = {"optimizer.name": "adamw", "optimizer.lr": 0.002}
CIFAR = {"data.format": "cifar10", "data.path": "data", "data.augment.crop": 4,
         "data.augment.flip": "true"}
TOKENS = {"data.format": "tokens", "data.path": "data"}
CONTEXT = 16

LAYERS = [
    {"conv": {"channels": 8, "kernel": 3, "stride": 2}}, "batch_norm", "relu",
    {"residual": [{"conv": {"channels": 8, "kernel": 3, "padding": 1}}, "batch_norm", "relu",
                  {"dropout": {"p": 0.2}}]},
    "global_avg_pool", "flatten", {"linear": {"units": 24}}, "relu", {"dropout": {"p": 0.3}},
    {"linear": {"units": 10}}]

MODELS = {
    "vit": {**CIFAR, **ADAMW, "model.arch": "vit", "model.width": 32, "model.depth": 2,
            "model.heads": 2, "model.patch": 8, "model.dropout": 0.1, "train.clip_norm": 1},
    "vit_bfloat16": {**CIFAR, **ADAMW, "model.arch": "vit", "model.width": 32, "model.depth": 2,
                     "model.heads": 2, "model.patch": 8, "precision": "bfloat16"},
    "gpt": {**TOKENS, **ADAMW, "model.arch": "gpt", "model.layers": 2, "model.heads": 2,
            "model.width": 32, "model.context": CONTEXT, "model.vocab": 64, "model.dropout": 0.1},
    "gpt_zero_3": {**TOKENS, **ADAMW, "model.arch": "gpt", "model.layers": 2, "model.heads": 2,
                   "model.width": 32, "model.context": CONTEXT, "model.vocab": 64,
                   "strategy.zero": 3, "train.bucket_bytes": 16384},
    "layers": {**CIFAR, **MOMENTUM, "model.arch": "layers", "model.layers": json.dumps(LAYERS),
               "train.average.name": "ema", "train.average.decay": 0.9},
    "layers_with_own_statistics": {
        **CIFAR, **MOMENTUM, "model.arch": "layers", "model.layers": json.dumps(LAYERS),
        "model.sync_batch_norm": "false", "train.accumulate": 2},
}
# Ranks that write a checkpoint together go on with it after each step.  Here step 9 does not end,
# so two steps before it are long enough for a slow disk.
SLOW_STEPS = ",delay:rank2@step7:1s,delay:rank2@step8:1s"
# Validation takes the running statistics of rank 0.  If each rank has its own, a recovery keeps
# those of rank 0 only if no other rank is a step ahead.  So all have a step's sums before rank 1
# is lost.
TOGETHER = "delay:rank1@update2:1s,"
# Those that take much longer.
LARGE = {
    "resnet18": {**CIFAR, **MOMENTUM, "model.arch": "resnet18", "model.stem": "cifar",
                 "model.drop_path": 0.2, "schedule.name": "cosine"},
}


class Case(training.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("data"))
        rng = random.Random(3)
        for name, n in (("data_batch_1", N_SAMPLES), ("test_batch", N_VALIDATION)):
            self.write(name, b"".join(bytes([i % 10]) + rng.randbytes(3072) for i in range(n)))
        for name, n in (("train", N_SAMPLES), ("val", N_VALIDATION)):
            tokens = [rng.randrange(64) for _ in range(n * CONTEXT + 1)]
            self.write(name, struct.pack(f"<{len(tokens)}H", *tokens))

    def write(self, name, content):
        with open(self.path("data", f"{name}.bin"), "wb") as file:
            file.write(content)

    def lose_all(self, model):
        """Rank 1 kills itself when it has the sums of a step, and a spare takes its place.  In a
        later step, in which all wait for rank 2, all are killed."""
        job = {**JOB, **model}
        faults = (TOGETHER * ("model.sync_batch_norm" in job) +
                  "kill:rank1@update2,stop:rank2@step9" + SLOW_STEPS * ("strategy.zero" in job))
        driver = self.driver(*dp.EXACT, "--inject", faults, n=3, job={**job, "cluster.spares": 1})
        followers = [self.follower("--rank", rank, *dp.EXACT) for rank in ("1", "2")]
        for k in (1, 2):
            driver.wait_line(f"rank {k} joined")
        followers.append(self.follower(*dp.EXACT))
        self.wait_frozen(followers[1].pid, 2)
        self.wait_event("checkpoint")
        for daemon in (driver, *followers):
            daemon.kill()
            daemon.wait_exit()
        self.assert_recovered(nranks=3)
        self.assertEqual([event["rank"] for event in self.events("lost")], [1])
        saved = self.events("checkpoint")[-1]["step"]
        self.assertEqual(saved, 5)
        resumed = self.run_driver("--local", "--resume", *dp.EXACT, n=3, job=job)
        self.assertRegex(resumed.text, f"step {saved}")
        losses, weights = self.undisturbed(job, 3, *dp.EXACT)
        self.assertEqual(self.final_losses(), losses)
        self.assertEqual(self.weights(), weights)


class Models(Case):
    pass


class Large(Case):
    pass


def add_all(case, models):
    for name, model in models.items():
        setattr(case, f"test_{name}", lambda self, model=model: self.lose_all(model))


if __name__ == "__main__":
    add_all(Models, MODELS)
    add_all(Large, LARGE)
    dp.main()

"""strategy_checks - one check of the GPU suite for each way in which ranks can share the work.

The ways are those that `dpdriver --help-job` lists, so a new one has its check as soon as a driver
knows its name."""

import re
import subprocess

from checks import assert_near, losses
from rig import SHORT

# The first part of the checks' names, the key, and its values: all that the driver names but the
# default, or these.
WAYS = [("strategy", "strategy.name", None), ("compress", "strategy.compress", None),
        ("zero", "strategy.zero", None), ("offload", "strategy.offload", None),
        ("shards", "strategy.shards", ["2"]), ("rebalance", "cluster.rebalance", ["true"]),
        ("bucket_bytes", "train.bucket_bytes", ["auto"])]

# Checks by name: more keys of the job, and the tolerance of the losses where it is not NEAR.  A
# number that lies between two codes may get either of them, on a GPU and on a CPU.
NEAR, CODED = 5e-3, 3e-2
MORE = {
    "strategy_qadam": ({"strategy.warmup_steps": 4, "optimizer.name": "adam",
                        "optimizer.lr": 0.002}, CODED),
    "strategy_local_sgd": ({"strategy.every": 3, "strategy.start": 4,
                            "strategy.outer": "nesterov"}, NEAR),
    "strategy_bytegrad": ({}, CODED),
    "strategy_low_precision_decentralized": ({}, CODED),
    "strategy_async": ({"strategy.interval": 0}, 0.5),  # ranks meet at other steps in each run
    "compress_uint8": ({}, CODED),
    "offload_all": ({"strategy.zero": 3}, NEAR),
    "compress_onebit": ({}, CODED),
}


def values_of(text, key):
    """The values of a key but its default, by the text of --help-job: those of a list, or of the
    sentence "It is a, b or c", or the few numbers of a range."""
    found = re.search(rf"^{re.escape(key)}: (.*)\n((?: +.*\n)+)", text, re.M)
    assert found, f"--help-job does not have {key}"
    values = re.findall(r"^ {6}(\w+) ", found[2], re.M)
    if not values:
        legal = re.findall(r"It is (.*?)(?:, and applies|\.)", " ".join(found[2].split()))[-1]
        limits = re.match(r"an integer from (\d+) to (\d+)", legal)
        values = map(str, range(int(limits[1]), int(limits[2]) + 1)) if limits else \
            re.split(r", | or ", legal)
    return [value for value in values if value != found[1]]


def trains(name, key, value):
    more, tolerance = MORE.get(name, ({}, NEAR))

    def check(suite):
        job = {**job_of(suite), key: value, **more}
        seen = losses(suite.train_explained(name, 2, job))
        want = losses(suite.train(name + "_cpu", 2, "cpu", job))
        assert_near("losses", seen, want, tolerance)
    check.__doc__ = f"2 ranks on one GPU train as 2 on CPUs do, with {key} {value}"
    check.__name__ = name
    return check


def job_of(suite):
    """The suite's demo job; a smaller one on a simulated GPU."""
    return {} if suite.is_real else {"model.arch": "mlp", "model.hidden": "[24]",
                                     "data.samples": 330, "train.epochs": 2}


def all_of(driver):
    """The checks of all ways that this driver knows; none if it cannot be asked."""
    try:
        text = subprocess.run([driver, "--help-job"], stdin=subprocess.DEVNULL, check=True,
                              stdout=subprocess.PIPE, text=True, timeout=SHORT).stdout
    except (OSError, subprocess.SubprocessError) as failure:
        print(f"no strategies are checked: {failure}", flush=True)
        return []
    return [trains(f"{first}_{value}", key, value) for first, key, values in WAYS
            for value in values or values_of(text, key)]

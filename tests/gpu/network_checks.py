"""network_checks - the GPU suite's checks that train a ResNet, a vision transformer and GPTs.

Each trains one job on the GPU and on the CPU, and compares the losses of all epochs and of the
validation at the end.  On a simulated GPU the networks are tiny."""

import os
from dataclasses import dataclass, field, replace

import samples
from checks import Killing, assert_near, kill, losses, quiet
from process import PATIENCE
from rig import events_of

EPOCHS = 4  # of one and a half batches each, so that steps of two sizes are recorded and launched


@dataclass(frozen=True)
class Network:
    keys: dict           # of the job file
    write: object        # writes the data set and returns its keys: a function of samples.py
    batch: int           # samples, on a card
    sizes: dict = field(default_factory=dict)       # of model and data, on a card
    tiny_batch: int = 4  # samples, on a simulated GPU
    tiny: dict = field(default_factory=dict)        # keys there instead; None: not that key
    tiny_sizes: dict = field(default_factory=dict)


GPT = {"model.arch": "gpt", "optimizer.name": "adamw", "optimizer.lr": 1e-3,
       "optimizer.betas": "[0.9, 0.95]", "optimizer.weight_decay": 0.1, "train.clip_norm": 1}
GPT_TINY = {"model.layers": 2, "model.heads": 2, "model.width": 32}

RESNET18 = Network(
    {"model.arch": "resnet18", "model.stem": "cifar", "optimizer.lr": 1e-3,
     "optimizer.momentum": 0.9, "optimizer.weight_decay": 5e-4},
    samples.write_cifar, batch=64, tiny_batch=2, tiny={"train.epochs": 2})
# On a simulated GPU a step of ResNet-18 takes seconds, so only one check trains it there; the
# others train a network of the same kinds of layers.
RESNET18_TINY = {
    "model.arch": "layers", "model.stem": None, "optimizer.lr": 0.01, "model.layers":
    "[conv: {channels: 8, kernel: 3, padding: 1, bias: false}, batch_norm, relu, "
    "residual: [conv: {channels: 8, kernel: 3, padding: 1, bias: false}, batch_norm, relu, "
    "conv: {channels: 8, kernel: 3, padding: 1, bias: false}, batch_norm], relu, "
    "{residual: [conv: {channels: 16, kernel: 3, stride: 2, padding: 1, bias: false}, "
    "batch_norm], shortcut: [conv: {channels: 16, kernel: 1, stride: 2, bias: false}, "
    "batch_norm]}, relu, global_avg_pool, flatten, linear: {units: 10}]"}

NETWORKS = {
    "resnet18": RESNET18,
    "resnet18_or_tiny": replace(RESNET18, tiny_batch=8, tiny=RESNET18_TINY),
    "layers": replace(RESNET18, keys={**RESNET18.keys, **RESNET18_TINY,
                                      "model.sync_batch_norm": "false"}, tiny_batch=8, tiny={}),
    "vit_tiny": Network(
        {"model.arch": "vit_tiny", "model.dropout": 0.1, "optimizer.name": "adamw",
         "optimizer.lr": 3e-3, "optimizer.eps": 1e-5},
        samples.write_npy, batch=32, sizes={"side": 64},
        tiny={"model.patch": 4, "model.width": 32, "model.depth": 2, "model.heads": 2,
              "model.mlp": 64}, tiny_sizes={"side": 12}),
    "gpt": Network(
        {**GPT, "model.dropout": 0.1}, samples.write_tokens, batch=16,
        sizes={"context": 128, "vocab": 512}, tiny=GPT_TINY,
        tiny_sizes={"context": 16, "vocab": 61}),
    "gpt_of_text": Network(
        {**GPT, "model.tied": "false"}, samples.write_text, batch=16, sizes={"context": 128},
        tiny=GPT_TINY, tiny_sizes={"context": 16}),
}


def job_of(suite, name, n_batches=1.5):
    """The job of a network, its data set written for so many batches."""
    network = NETWORKS[name]
    batch, sizes = (network.batch, network.sizes) if suite.is_real else \
        (network.tiny_batch, network.tiny_sizes)
    folder = os.path.join(suite.work, "data", f"{name}-{n_batches}")
    os.makedirs(folder, exist_ok=True)
    keys = {**network.keys, **network.write(folder, sizes, int(n_batches * batch), batch),
            "train.global_batch": batch, "train.epochs": EPOCHS}
    keys.update({f"model.{size}": sizes[size] for size in ("context", "vocab") if size in sizes})
    keys.update({} if suite.is_real else network.tiny)
    return {key: value for key, value in keys.items() if value is not None}


def assert_alike(suite, name, seen, want, tolerance, whose="the CPU's"):
    """Losses that hardly move would be equal whatever the gradients are."""
    assert_near("losses", seen, want, tolerance)
    apart = max(abs(a - b) / abs(b) for a, b in zip(seen, want))
    moved = max(abs(loss - want[0]) for loss in want) / want[0]
    suite.say(f"    {name}: losses from {want[0]:.4f} on move by {moved:.1e}, and are within "
              f"{apart:.1e} of {whose}")
    assert moved > 2 * tolerance, "which proves nothing"


def trains(name, network, what, sets=None, n_ranks=1, tolerance=2e-3):
    """A check that n ranks on GPUs train the network as n ranks on CPUs do."""
    def check(suite):
        job = {**job_of(suite, network), **(sets or {})}
        events = suite.train_explained(name, n_ranks, job)
        start = next(e for e in events if e["event"] == "start")
        assert start["device"].startswith(suite.device), f"it ran on {start['device']}"
        seen = losses(events)
        want = losses(suite.train(name + "_cpu", n_ranks, "cpu", job))
        # A simulated GPU rounds as the CPU does, but in kernels of ours that sum in another order.
        assert_alike(suite, name, seen, want, tolerance if suite.is_real else tolerance / 10)
    of_ranks = f"{n_ranks} ranks train " if n_ranks > 1 else ""
    check.__doc__ = f"{of_ranks}{network.replace('_or_tiny', '')} as on the CPU: {what}"
    check.__name__ = name
    return check


BFLOAT16 = {"precision": "bfloat16"}
ONE_RANK = [
    trains("resnet18", "resnet18", "CIFAR-10's files, crops and flips"),
    trains("vit_tiny", "vit_tiny", "NumPy's arrays, dropout"),
    trains("gpt", "gpt", "token files, tied, dropout"),
    trains("gpt_of_text", "gpt_of_text", "a text's characters, a head of its own"),
    trains("resnet18_bfloat16", "resnet18_or_tiny", "in bfloat16", BFLOAT16, tolerance=2e-2),
    trains("gpt_bfloat16", "gpt", "in bfloat16", BFLOAT16, tolerance=2e-2),
]
TWO_RANKS = [
    trains("resnet18_ranks_2", "resnet18_or_tiny", "statistics of both ranks' samples", n_ranks=2),
    trains("resnet18_own_norms", "resnet18_or_tiny", "each rank with statistics of its own",
           {"model.sync_batch_norm": "false"}, n_ranks=2),
    trains("gpt_ranks_2", "gpt", "tied, dropout", n_ranks=2),
    trains("vit_bfloat16_ranks_2", "vit_tiny", "in bfloat16", BFLOAT16, n_ranks=2, tolerance=2e-2),
    trains("gpt_bfloat16_ranks_2", "gpt", "in bfloat16, gradients too",
           {**BFLOAT16, "train.grad_dtype": "bfloat16"}, n_ranks=2, tolerance=2e-2),
]


def replaced(network):
    """A check that a rank of two which is killed is replaced, and that nothing else is lost."""
    name = f"replaced_{network.replace('_or_tiny', '')}"

    def check(suite):
        job = job_of(suite, network)
        # In the midst of an epoch of two steps.
        events = suite.train(name, 2, suite.device, job, more=["--inject", "kill:rank1@update5"])
        recovered = [e for e in events if e["event"] == "recovered"]
        assert [e["nranks"] for e in recovered] == [2], f"{recovered}"
        assert recovered[0]["steps_lost"] <= 1, f"{recovered}"
        whole = suite.train(name + "_whole", 2, suite.device, job)
        assert_alike(suite, name, losses(events), losses(whole), 2e-3 if suite.is_real else 1e-6,
                     "an undisturbed run's")
    check.__doc__ = (f"kill -9 of a rank that trains {network.replace('_or_tiny', '')}: it is "
                     "replaced, and at most a step is lost")
    check.__name__ = name
    return check


def killed_gpt(suite):
    """kill -9 of a rank that trains a GPT: the other goes on alone, from the same step"""
    kill(suite, job_of(suite, "gpt"))


TWO_RANKS += [*map(replaced, ("resnet18_or_tiny", "vit_tiny", "gpt", "layers")), killed_gpt]


def resumed(suite):
    """kill -9 of the driver in the midst of training a GPT: resumed, it ends with the same bits"""
    k = Killing(suite, PATIENCE)
    job = {**job_of(suite, "gpt", 3), "checkpoint.every_epochs": 0, "checkpoint.every_steps": 4}
    try:
        driver = k.start(suite.command(1, suite.device, {**job, "train.epochs": 100000}, k.run_dir))
        k.wait_for("two checkpoints", lambda: len(k.events("checkpoint")) > 1)
        driver.kill()
        driver.wait()
    finally:
        k.end()
    n_steps = k.events("checkpoint")[-1]["step"]  # in the midst of an epoch of 3 steps, mostly
    job["train.epochs"] = n_steps // 3 + 4        # a later checkpoint may not have been told
    suite.run("resumed_rest", suite.command(1, suite.device, job, k.run_dir) + ["--resume"])
    rest = losses(events_of(k.run_dir))[-2:]  # of the last epoch, which is whole
    whole = losses(suite.train("resumed_whole", 1, suite.device, job))[-2:]
    assert rest == whole, f"losses {rest} after step {n_steps}, and uninterrupted {whole}"


def long_job(name):
    return lambda suite: {**job_of(suite, name, 300), "train.epochs": 1}


ONE_RANK += [resumed, quiet(1, "resnet18", long_job("resnet18")), quiet(1, "gpt", long_job("gpt"))]

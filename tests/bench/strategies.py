#!/usr/bin/env python3
"""strategies - time to a given loss over slow links, by strategy, beside PyTorch's DDP.

    strategies.py [--build DIR] [--models lenet,gpt] [--ranks 2,4] [--rates 1000,100]
                  [--hosts N] [--turns] [--only NAME,...] [--steps N] [--torch PYTHON] [--check]
    strategies.py --exposed [the same but --torch]  how much of a step waits for sums

Each rank has a host of its own (--hosts N: so many hosts, with equal shares of the ranks): a
network namespace, joined to a bridge by a pair of virtual interfaces, which tbf (tc) holds to the
rate in both directions.  Links are not encrypted.  With --hosts the ranks are numbered host by
host; with --turns the hosts take turns, so that no sum goes along the chain of ranks (coll/mesh.h).

  lenet  LeNet on MNIST, global batch 256, SGD with rate 0.2, until the mean loss of 20 steps is 0.4
  gpt    a GPT of 4 x 128 on Shakespeare's characters, 12 samples of 64, AdamW, until that is 2.5
  gpt384 the same of 6 x 384 with 12 samples of 256, which --models must name

How many steps a strategy needs does not depend on the rate, so it is found once, on one host.  The
time of a step is the mean of --steps steps (48) at each rate, with the wait at the end.  The time
to the loss is their product.  "pays below" is the rate at which a strategy takes as long as
allreduce, if the time of a step is a + b/rate; a and b follow from the two slowest rates.

--exposed gives the median step of --steps steps (of the last epoch's, if there are more), and how
much of it the engine waited for sums that the backward pass did not hide; of dptrain's steps alone.

--torch PYTHON runs PyTorch's side, too: DDP over gloo, alone and with its hooks for float16 and
PowerSGD.  --check trains little, and only asks whether all figures are there.

Needs the right to make network namespaces, and data in $DPTRAIN_DATA.  Exit status 77: one of these
is missing; which, it says.
"""
import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DATA = os.path.abspath(os.environ.get("DPTRAIN_DATA",
                                      os.path.join(ROOT, "..", "shared", "data")))
SKIPPED = 77
# model: the job, and the loss to reach
MODELS = {
    "lenet": ({"model.arch": "lenet", "data.format": "mnist", "data.path": f"{DATA}/mnist",
               "data.validation": "t10k", "train.global_batch": 256, "optimizer.name": "sgd",
               "optimizer.lr": 0.2}, 0.4),
    "gpt": ({"model.arch": "gpt", "model.layers": 4, "model.heads": 4, "model.width": 128,
             "model.context": 64, "data.format": "text",
             "data.path": f"{DATA}/tinyshakespeare/input.txt", "data.tokenizer": "chars",
             "train.global_batch": 12, "optimizer.name": "adamw", "optimizer.lr": 0.001}, 2.5),
}
MODELS["gpt384"] = ({**MODELS["gpt"][0], "model.layers": 6, "model.heads": 6, "model.width": 384,
                     "model.context": 256}, 2.5)
STRATEGIES = {
    "allreduce": {},
    "float16": {"strategy.compress": "float16"},
    "bfloat16": {"strategy.compress": "bfloat16"},
    "uint8": {"strategy.compress": "uint8"},
    "powersgd": {"strategy.compress": "powersgd"},
    "onebit": {"strategy.compress": "onebit"},
    "local_sgd": {"strategy.name": "local_sgd", "strategy.every": 8},
    "qadam": {"strategy.name": "qadam"},
    "bytegrad": {"strategy.name": "bytegrad"},
    "adasum": {"strategy.name": "adasum"},
    "decentralized": {"strategy.name": "decentralized"},
    "shift_one": {"strategy.name": "decentralized", "strategy.peers": "shift_one"},
    "low_precision": {"strategy.name": "low_precision_decentralized"},
    "async": {"strategy.name": "async"},
    "zero 1": {"strategy.zero": 1},
    "zero 1 without buddy": {"strategy.zero": 1, "strategy.buddy": "false"},
    "zero 2": {"strategy.zero": 2},
    "zero 3": {"strategy.zero": 3},
}
NEEDS_ADAM = {"qadam"}
HOOKS = {"DDP": "none", "DDP float16": "float16", "DDP PowerSGD": "powersgd"}
EVERY = 10  # steps of a row of metrics.csv; two rows are compared with the loss to reach


class Hosts:
    """Network namespaces whose links have a rate, for so many ranks each."""

    def __init__(self, n, ranks=1, turns=False):
        self.of_rank = [k % n if turns else k * n // ranks for k in range(ranks)]
        self.mark = f"dpb{os.getpid() % 100000}"
        self.names = [f"{self.mark}x{k}" for k in range(n)]
        self.hub = f"{self.mark}hub"

    def __enter__(self):
        run(f"ip netns add {self.hub}")
        run(f"ip -n {self.hub} link add bridge type bridge")
        run(f"ip -n {self.hub} link set bridge up")
        for k, name in enumerate(self.names):
            run(f"ip netns add {name}")
            run(f"ip -n {self.hub} link add to{k} type veth peer name net0 netns {name}")
            run(f"ip -n {self.hub} link set to{k} master bridge up")
            run(f"ip -n {name} addr add 10.80.0.{k + 1}/24 dev net0")
            run(f"ip -n {name} link set net0 up")
            run(f"ip -n {name} link set lo up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def limit(self, mbits):
        for k, name in enumerate(self.names):
            for where, device in ((name, "net0"), (self.hub, f"to{k}")):
                run(f"tc -n {where} qdisc replace dev {device} root tbf rate {mbits}mbit "
                    f"burst {max(32, mbits // 4)}kb latency 100ms")

    def on(self, rank):
        return ["ip", "netns", "exec", self.names[self.of_rank[rank]]]


def run(command):
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{command}: {done.stderr.strip()}")


def missing():
    """Return the first thing that this machine lacks, or None."""
    for path in ("mnist", "tinyshakespeare/input.txt"):
        if not os.path.exists(f"{DATA}/{path}"):
            return f"there is no {DATA}/{path}"
    try:
        with Hosts(1) as hosts:
            hosts.limit(100)
    except OSError as problem:
        return str(problem)
    return None


def together(commands, environments=None):
    """Run them at the same time, and return the first one's output."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env={**os.environ, **(environments or {}).get(k, {})})
               for k, command in enumerate(commands)]
    said = [process.communicate()[0] for process in running]
    for process, text in zip(running, said):
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, process.args))}: status {process.returncode}\n"
                     f"{text[-2000:]}")
    return said[0]


def words(job):
    return [word for key, value in job.items() for word in ("--set", f"{key}={value}")]


def train(build, job, ranks, folder, hosts):
    """Train on one host (hosts None) or on `ranks` hosts.  The last epoch event, with the training
    time of all epochs, and the rows of metrics.csv."""
    driver = [f"{build}/driver/dpdriver", "--nranks", str(ranks), "--threads", "1", "--run-dir",
              folder, *words({**job, "train.epochs": 1000, "train.validate_every": 0,
                              "checkpoint.every_epochs": 0, "report.every_steps": EVERY})]
    if hosts is None:
        together([[*driver, "--local", "--port", "0"]])
    else:
        together([[*hosts.on(0), *driver, "--host", "10.80.0.1", "--insecure", "--port", "7000"],
                  *([*hosts.on(k), f"{build}/follower/dpfollower", "--root",
                     "10.80.0.1:7000", "--rank", str(k), "--once", "--insecure", "--threads", "1"]
                    for k in range(1, ranks))])
    with open(f"{folder}/events.jsonl", encoding="utf-8") as f:
        epochs = [e for e in map(json.loads, f) if e["event"] == "epoch"]
    epoch = {**epochs[-1], "train_seconds": sum(e["train_seconds"] for e in epochs)}
    with open(f"{folder}/metrics.csv", encoding="utf-8") as f:
        return epoch, list(csv.DictReader(f))


def first_below(losses, goal):
    """After how many of these the mean of two in a row is at most `goal`; None: never."""
    for i in range(1, len(losses)):
        if (losses[i - 1] + losses[i]) / 2 <= goal:
            return i + 1
    return None


def steps_to_loss(build, model, strategy, ranks, most):
    job, goal = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        rows = train(build, {**job, **strategy, "train.max_steps": most}, ranks, f"{folder}/run",
                     None)[1]
    n = first_below([float(row["loss"]) for row in rows], goal)
    return n and n * EVERY


def epoch_of(build, model, strategy, ranks, hosts, steps):
    with tempfile.TemporaryDirectory() as folder:
        return train(build, {**MODELS[model][0], **strategy, "train.max_steps": steps}, ranks,
                     f"{folder}/run", hosts)[0]


def step_seconds(build, model, strategy, ranks, hosts, steps):
    return epoch_of(build, model, strategy, ranks, hosts, steps)["train_seconds"] / steps


def torch_run(python, model, hook, ranks, hosts, steps):
    """Seconds of a step, and the loss of each."""
    command = [python, f"{HERE}/torch_strategies.py", "--data", DATA, "--model", model, "--hook",
               hook, "--steps", str(steps)]
    where = {k: {"RANK": str(k), "WORLD_SIZE": str(ranks), "MASTER_PORT": "7001",
                 "MASTER_ADDR": "10.80.0.1", "GLOO_SOCKET_IFNAME": "net0"}
             for k in range(ranks)}
    said = together([[*hosts.on(k), *command] for k in range(ranks)], where)
    result = json.loads(said.strip().splitlines()[-1])
    return result["step_seconds"], result["losses"]


def torch_steps_to_loss(losses, goal):
    means = [sum(losses[i:i + EVERY]) / EVERY for i in range(0, len(losses) - EVERY + 1, EVERY)]
    n = first_below(means, goal)
    return n and n * EVERY


def pays_below(base, other, rates):
    """The rate in Mbit/s at which both take as long.  base, other: (steps, {rate: seconds of a
    step}).  Infinite: `other` is always quicker; 0: never, or above a rate only."""
    def line(steps, seconds):
        slow, fast = sorted(rates)[:2]
        b = (seconds[slow] - seconds[fast]) / (1 / slow - 1 / fast)
        return steps * (seconds[slow] - b / slow), steps * b
    (a0, b0), (a1, b1) = line(*base), line(*other)
    if b1 >= b0:
        return float("inf") if b1 == b0 and a1 < a0 else 0
    return float("inf") if a1 <= a0 else (b0 - b1) / (a1 - a0)


def rate_text(rate):
    return {0: "never", float("inf"): "always"}.get(rate, f"{rate:,.0f} Mbit/s")


def print_row(name, steps, seconds, pays):
    cells = [name, str(steps) if steps else "not reached"]
    for value in seconds.values():
        cells += [f"{1e3 * value:,.0f}", f"{steps * value:,.0f}" if steps else "-"]
    print("| " + " | ".join([*cells, pays]) + " |", flush=True)


def measure(o, model, ranks):
    rates = o.rates
    print(f"{model}, {ranks} ranks, until the loss is {MODELS[model][1]}\n")
    head = ["strategy", "steps"]
    for rate in rates:
        head += [f"{rate} Mbit/s: ms a step", "s to the loss"]
    print("| " + " | ".join([*head, "pays below"]) + " |\n|" + "---|" * (len(head) + 1))
    base = {}
    with Hosts(o.hosts or ranks, ranks, o.turns) as hosts:
        for name in [*o.only, *(HOOKS if o.torch else {})]:
            ours = name in STRATEGIES
            if ours and not applies(name, model):
                continue
            seconds, losses = {}, []
            for rate in rates:
                hosts.limit(rate)
                if ours:
                    seconds[rate] = step_seconds(o.build, model, STRATEGIES[name], ranks, hosts,
                                                 o.steps)
                else:
                    first = rate == max(rates)
                    seconds[rate], found = torch_run(o.torch, model, HOOKS[name], ranks, hosts,
                                                     o.most if first else o.steps)
                    losses = found if first else losses
            steps = steps_to_loss(o.build, model, STRATEGIES[name], ranks, o.most) if ours \
                else torch_steps_to_loss(losses, MODELS[model][1])
            first = base.setdefault(ours, (steps, seconds))
            is_base = first[1] is seconds
            known = steps and first[0] and not is_base and len(rates) > 1
            print_row(name, steps, seconds, rate_text(pays_below(first, (steps, seconds), rates))
                      if known else "-")
    print()


def applies(name, model):
    return name not in NEEDS_ADAM or MODELS[model][0]["optimizer.name"].startswith("adam")


def measure_exposed(o, model, ranks):
    print(f"{model}, {ranks} ranks\n\n| strategy | Mbit/s | ms a step | of it exposed | % |\n"
          "|---|---|---|---|---|")
    with Hosts(o.hosts or ranks, ranks, o.turns) as hosts:
        for name in (name for name in o.only if applies(name, model)):
            for rate in o.rates:
                hosts.limit(rate)
                epoch = epoch_of(o.build, model, STRATEGIES[name], ranks, hosts, o.steps)
                step, exposed = epoch["step_ms_median"], epoch["comm_exposed_ms_median"]
                print(f"| {name} | {rate} | {step:,.1f} | {exposed:,.1f} | "
                      f"{100 * exposed / step:.1f} |", flush=True)
    print()


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--models", default="lenet,gpt")
    p.add_argument("--ranks", type=numbers, default=[2, 4])
    p.add_argument("--hosts", type=int, help="of which the ranks are a multiple")
    p.add_argument("--turns", action="store_true", help="rank k on host k mod --hosts")
    p.add_argument("--rates", type=numbers, default=[1000, 100])
    p.add_argument("--only", default=",".join(STRATEGIES))
    p.add_argument("--steps", type=int, default=48)
    p.add_argument("--most", type=int, default=1000, help="steps to reach the loss in")
    p.add_argument("--torch")
    p.add_argument("--exposed", action="store_true")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no namespace stays behind
    o.only = o.only.split(",")
    unknown = [name for name in o.only if name not in STRATEGIES]
    if unknown:
        p.error(f"--only: there is no {unknown[0]!r}; want some of {', '.join(STRATEGIES)}")
    if o.exposed and o.torch:
        p.error("--exposed is of dptrain's steps alone: leave out --torch")
    lacking = missing()
    if lacking:
        print(lacking)
        return SKIPPED
    if o.check:
        o.models, o.ranks, o.only, o.steps, o.most = "lenet", [2], ["allreduce", "uint8"], 4, 20
    for model in o.models.split(","):
        for ranks in o.ranks:
            if not o.exposed:
                measure(o, model, ranks)
            if o.exposed or o.check:
                measure_exposed(o, model, ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""goodput - measures how many steps are left of a run whose ranks are killed again and again.

    goodput.py [--build DIR] [--ranks N] [--minutes M] [--every S]... [--spares N]... [--driver]
               [--set KEY=VALUE]... [--seed N] [--record]
    goodput.py --check       with few ranks and for seconds; no figure is judged

64 ranks on four hosts (network namespaces behind a bridge) train a small MLP with strategy.shards,
first undisturbed for M minutes (10), then for as long in each of these settings:

  --every S   every S seconds (15, and 60) a rank is killed by SIGKILL, chosen at random.  After a
              second, as the units of deploy/systemd have it, a new follower is started.
  --spares N  (2, and 0) so many spares wait, and one takes the place of the rank at once.  With 0
              the others go on without it (cluster.min_ranks) and take in the new follower when it
              has come.
  --set       a key of the job, such as cluster.encrypt=off (links are encrypted: hosts differ)
  --driver    in a last setting with spares the driver is killed, too, half way; a standby leads.

"goodput" is the steps done in that time, divided by those of the undisturbed run.  That was at
another time, when other work may have left the machine more or less; so "by its own halves" divides
them by the steps at the pace of the halves before the losses in the same run.  "a loss" is what
one costs: the steps that are missing, in seconds of the undisturbed run, divided by the losses.
"recovered" is the driver's own figure for it (events.jsonl), from when the loss is known until the
next step is done.  "bits" says whether the hashes of the state (hashes.csv) are those of the
undisturbed run, at every step that both have.

The goal is 99 % at a loss a minute, and 95 % at one in 15 s.  --record appends the table to
RESULTS.md beside this file.  Exit status 1: a goal is missed, or the bits differ; 77: there is no
right to make network namespaces.
"""
import csv
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import bench
from recovery import Failed, Group
from strategies import Hosts, SKIPPED, words

N_HOSTS = 4
RESTART_S = 1  # RestartSec of deploy/systemd
PATIENCE_S = 180
GOALS = {15: 0.95, 60: 0.99}
STANDBY_PORT = 7001


def job_of(ranks, spares):
    # Any number of ranks computes the same bits, so the others can go on at once.
    return {"model.arch": "mlp", "model.hidden": "32", "data.samples": 64 * ranks,
            "data.validation_samples": 0, "train.global_batch": 4 * ranks,
            "train.epochs": 1000000, "train.validate_every": 0, "checkpoint.every_epochs": 0,
            "strategy.shards": ranks, "checkpoint.hashes": 20, "report.every_steps": 1000,
            "cluster.spares": spares, "cluster.min_ranks": ranks // 2,
            "cluster.replace_timeout": 0, "cluster.join_interval": 1}


class Cluster(Group):
    """A job on the hosts; its followers are started again when they were killed."""

    def __init__(self, build, hosts, job, ranks, spares, has_standby=False):
        self.driver = bench.driver_of(build)
        self.follower = bench.follower_of(build)
        self.hosts, self.job, self.ranks, self.spares = hosts, job, ranks, spares
        self.has_standby = has_standby

    def on(self, host):
        return ["ip", "netns", "exec", self.hosts.names[host % N_HOSTS]]

    def begin(self):
        self.followers, self.due = {}, []  # {pid: process}, [(when, host)]
        self.offset, self.seen = 0, []
        self.root = "10.80.0.1:7000"
        subprocess.run([self.driver, "--make-secret", self.path("secret")], check=True,
                       stderr=subprocess.DEVNULL)
        self.start([*self.on(0), self.driver, "--nranks", str(self.ranks), "--threads", "1",
                    "--host", "10.80.0.1", "--port", "7000", "--port-file", "port",
                    "--secret-file", "secret", "--run-dir", "run",
                    *words({**job_of(self.ranks, self.spares), **self.job})])
        self.wait("the driver's port", lambda: self.read("port"))
        for k in range(1, self.ranks + self.spares):
            self.follow(k * N_HOSTS // (self.ranks + self.spares))
        self.wait("the first step", lambda: self.events("first_step"))
        if self.has_standby:
            self.standby = self.start([
                *self.on(1), self.driver, "--standby", "--threads", "1", "--root", self.root,
                "--host", "10.80.0.2", "--port", str(STANDBY_PORT), "--secret-file", "secret",
                "--run-dir", "run"])
            self.wait("a standby's vote",
                      lambda: any(event["address"] for event in self.events("standby")))

    def follow(self, host):
        process = self.start([*self.on(host), self.follower, "--root", self.root, "--once",
                              "--threads", "1", "--secret-file", "secret"])
        self.followers[process.pid] = (process, host)

    def wait(self, what, condition, seconds=PATIENCE_S):
        """Ask rarely: the ranks have the same cores."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.processes[0].poll() is not None:
                raise Failed(f"there never came {what}:\n{self.read('log')[-3000:]}")
            self.start_again()
            time.sleep(0.05)

    def events(self, kind):
        try:
            with open(self.path("run/events.jsonl"), "rb") as file:
                file.seek(self.offset)
                new = file.read()
        except FileNotFoundError:
            return []
        new = new[:new.rfind(b"\n") + 1]
        self.offset += len(new)
        self.seen += map(json.loads, new.splitlines())
        return [event for event in self.seen if event["event"] == kind]

    def step(self):
        done = subprocess.run([self.driver, "--status", "--run-dir", "run", "--log-format", "json"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"--status: {done.stderr}{self.read('log')[-2000:]}")
        return json.loads(done.stdout)["step"]

    def hashes(self):
        """{step: hash of the state}; a step that was done twice must have had one hash."""
        found = {}
        with open(self.path("run/hashes.csv"), encoding="ascii") as file:
            for row in csv.DictReader(file):
                if found.setdefault(int(row["step"]), row["state"]) != row["state"]:
                    raise Failed(f"step {row['step']} has two hashes")
        return found

    # ---- what happens to it

    def start_again(self):
        now = time.monotonic()
        for when, host in [due for due in self.due if due[0] <= now]:
            self.due.remove((when, host))
            self.follow(host)

    def kill_one(self, choices):
        ranks = self.events("form")[-1]["ranks"]
        pids = sorted(r["pid"] for r in ranks if r["pid"] in self.followers)
        process, host = self.followers.pop(choices.choice(pids))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.processes.remove(process)
        self.due.append((time.monotonic() + RESTART_S, host))

    def kill_driver(self):
        victim = self.processes[0]
        self.processes.remove(self.standby)
        self.processes[0] = self.standby  # the one whose end is the job's
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.root = f"10.80.0.2:{STANDBY_PORT}"
        self.wait("the standby's lead", lambda: self.events("leader"))

    def count(self, seconds, every, choices, n_drivers=0):
        """Count for so many seconds, with a loss in the middle of each `every` (0: none): the steps
        done, the number of losses, and the steps and seconds of the halves before losses."""
        done = {"steps": 0, "losses": 0, "calm_steps": 0, "calm_s": 0}
        step, begun = self.step(), time.monotonic()
        calm = (step, begun)  # since when nothing happened; None: the next half has to begin first
        while (now := time.monotonic()) < begun + seconds:
            self.start_again()
            if n_drivers and now >= begun + seconds / 2:
                n_drivers -= 1
                self.kill_driver()
                calm, again = None, next_start(begun, every)
            elif every and now >= begun + (done["losses"] + 0.5) * every:
                if calm:
                    done["calm_steps"] += self.step() - calm[0]
                    done["calm_s"] += time.monotonic() - calm[1]
                self.kill_one(choices)
                done["losses"] += 1
                calm, again = None, next_start(begun, every)
            elif not calm and now >= again:
                calm = (self.step(), time.monotonic())
            time.sleep(max(0.0, min(0.05, begun + seconds - time.monotonic())))
        took = time.monotonic() - begun
        done["steps"] = (self.step() - step) * seconds / took
        return done


def next_start(begun, every):
    """When the next interval begins."""
    return begun + every * ((time.monotonic() - begun) // every + 1)


def measure(args, hosts, every, spares, with_driver):
    choices = random.Random(args.seed)
    with Cluster(args.build, hosts, args.job, args.ranks, spares, with_driver) as cluster:
        done = cluster.count(args.minutes * 60, every, choices, int(with_driver))
        recovered = cluster.events("recovered")
        if cluster.events("error"):
            raise Failed(f"the job failed:\n{cluster.read('log')[-3000:]}")
        return {**done, "every": every, "spares": spares, "driver": with_driver,
                "losses": done["losses"] + with_driver, "hashes": cluster.hashes(),
                "recovered": [event["seconds"] for event in recovered],
                "lost": max((event["steps_lost"] for event in recovered), default=0),
                "formed": len(cluster.events("form"))}


def same_bits(calm, found):
    """How many steps' hashes are in both, and whether all of these are equal."""
    both = calm["hashes"].keys() & found["hashes"].keys()
    return len(both), bool(both) and all(calm["hashes"][k] == found["hashes"][k] for k in both)


def name_of(found):
    if not found["every"]:
        return "undisturbed"
    return (f"a loss every {found['every']:g} s, {found['spares']} spares" +
            (", the driver lost once" if found["driver"] else ""))


def row(found, calm, seconds):
    times = found["recovered"]
    n, same = same_bits(calm, found)
    ratio = found["steps"] / calm["steps"]
    cost = (1 - ratio) * seconds / found["losses"] if found["losses"] else 0
    own = (f"{100 * found['steps'] * found['calm_s'] / (seconds * found['calm_steps']):.1f} %"
           if found["calm_steps"] else "")
    recovered = f"{statistics.median(times):.2f} | {max(times):.2f}" if times else " | "
    return (f"| {name_of(found)} | {found['steps']:,.0f} | {100 * ratio:.1f} % | "
            f"{own} | {found['losses']} | {cost:.2f} | {recovered} | {found['lost']} | "
            f"{'equal' if same else 'DIFFER'} at {n} steps |")


HEAD = ("| run | steps | goodput | by its own halves | losses | a loss costs s "
        "| recovered: median s | worst s | steps lost | bits |\n"
        "|---|---|---|---|---|---|---|---|---|---|")


def settings(args):
    found = [(every, spares, False) for spares in args.spares for every in args.every]
    return found + ([(max(args.every), max(1, *args.spares), True)] if args.driver else [])


def describe(args, rows, load, met):
    more = "".join(f" --set {key}={value}" for key, value in args.job.items())
    text = (f"`goodput.py --minutes {args.minutes:g}{more}`: {args.ranks} ranks on "
            f"{N_HOSTS} network namespaces, an MLP of 32 hidden units, {args.ranks} shares.  Load "
            f"average before {load[0]:.1f}, after {os.getloadavg()[0]:.1f} (its own is many).  "
            f"Goal: 99 % at a loss a minute, 95 % at one in 15 s, equal bits: "
            f"{'met' if met else 'MISSED'}.")
    return bench.section("Goodput", text, [HEAD, *rows])


def run(args, hosts):
    load = os.getloadavg()
    seconds = 60 * args.minutes
    calm = measure(args, hosts, 0, max(args.spares), False)
    rows, met = [row(calm, calm, seconds)], True
    print(HEAD, rows[0], sep="\n", flush=True)
    for setting in settings(args):
        found = measure(args, hosts, *setting)
        rows.append(row(found, calm, seconds))
        print(rows[-1], flush=True)
        met &= same_bits(calm, found)[1]
        met &= found["steps"] / calm["steps"] >= GOALS.get(found["every"], 0)
        if args.check and len(found["recovered"]) < found["losses"]:
            raise Failed(f"{found['losses']} losses, and the recoveries {found['recovered']}")
    return bench.conclude(args, describe(args, rows, load, met), met)


def main():
    parser = bench.arguments(__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, action="append", metavar="S")
    parser.add_argument("--spares", type=int, action="append", metavar="N")
    parser.add_argument("--driver", action="store_true", help="kill the driver once, too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="job")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.job = dict(pair.split("=", 1) for pair in args.job)
    args.every = args.every or [15, 60]
    args.spares = args.spares if args.spares is not None else [2, 0]
    if args.check:
        args.ranks, args.minutes, args.every, args.driver = 6, 0.1, [2.5], True
    try:
        with Hosts(N_HOSTS, args.ranks) as hosts:
            sys.exit(run(args, hosts))
    except OSError as problem:
        print(f"goodput.py: {problem}", file=sys.stderr)
        sys.exit(SKIPPED)
    except Failed as why:
        sys.exit(f"goodput.py: {why}")


if __name__ == "__main__":
    main()

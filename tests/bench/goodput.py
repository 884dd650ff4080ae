#!/usr/bin/env python3
"""goodput - measures how many steps are left of a run whose ranks are killed again and again.

    goodput.py [--build DIR] [--ranks N] [--minutes M] [--starts N] [--turn S] [--every S]...
               [--spares N]... [--driver] [--set KEY=VALUE]... [--seed N] [--record]
    goodput.py --check       with few ranks and for seconds; no figure is judged

64 ranks on four hosts (network namespaces behind a bridge) train a small MLP with strategy.shards.
For each setting two such runs stand side by side, one of them undisturbed, and take turns of S
seconds (60), until each has trained for M minutes (10).  Two runs that stand side by side differ in
pace by some percent for as long as they stand, whoever loses ranks.  So N times (5) two new ones
are started, for M / N minutes each.  The settings:

  --every S   every S seconds (15, and 60) a rank is killed by SIGKILL, chosen at random.  After a
              second, as the units of deploy/systemd have it, a new follower is started.  With 0
              nothing is killed: how far this row is from 100 % is the error of the others.
  --spares N  (2, and 0) so many spares wait, and one takes the place of the rank at once.  With 0
              the others go on without it (cluster.min_ranks) and take in the new follower when it
              has come.
  --set       a key of the job, such as cluster.encrypt=off (links are encrypted: hosts differ)
  --driver    in a last setting with spares the driver is killed, too, half way; a standby leads.

Turns: a machine's pace drifts by more than the losses cost, so a run at another time is no measure.
The run whose turn it is not waits by `dpdriver --pause`: its ranks keep their state and heartbeats
and need next to no CPU time.  (SIGSTOP would stop the heartbeats, too, and the driver would take
its ranks for lost.)  The second pair of turns has the order reversed, the third has it as the first
one, and so on, so that a steady drift falls out.  Both runs are measured alike, by the times and
steps in events.jsonl: from the first epoch's end (16 steps) after --go to the event `pause`, after
which no step is done.  So forming after --go is in neither run's time.  Both number their ranks
host by host at first, as links within a host are faster.  Later a spare of another host takes a
rank's place; what that costs is in "goodput", but not in the figure by its own halves.

Losses happen in the turns of the disturbed run alone, by the clock of its turns, in the middle of
each --every.  One that would come in the last seconds of a turn comes earlier, and a turn goes on
until all ranks and spares are there again: recoveries and the new followers' starts count in full.
No rank is lost in a paused run: it would be replaced, but the pause would be in its "recovered".
A pause would end with its driver, and so the driver, too, is killed in a turn of its run; the next
request goes to the standby that leads then, by the same run directory.

"goodput" is the steps per second of the disturbed run, divided by those of the undisturbed one.
"of single starts" has the least and the largest such ratio of two that stood side by side, and "of
single turns" those of a pair of turns.  "by its own halves" divides by the pace of the halves
before the losses in the same run.  "a loss" is what one costs: the steps that are missing, in
seconds of the undisturbed run, divided by the losses.  "recovered"
is the driver's own figure for it (events.jsonl), from when the loss is known until the next step is
done.  "bits" says whether the hashes of the state (hashes.csv) are those of the undisturbed run, at
every step that both have.

The goal is 99 % at a loss a minute, and 95 % at one in 15 s.  --record appends the table to
RESULTS.md beside this file.  Exit status 1: a goal is missed, the bits differ, or something failed;
2: an option is wrong; 77: there is no right to make network namespaces.
"""
import csv
import json
import math
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
MARGIN_S = 5  # no loss comes in so many seconds at the end of a turn
GOALS = {15: 0.95, 60: 0.99}
PORT = 7000  # of the undisturbed run's driver; then come the other driver's and its standby's


def job_of(ranks, spares):
    # Any number of ranks computes the same bits, so the others can go on at once.
    return {"model.arch": "mlp", "model.hidden": "32", "data.samples": 64 * ranks,
            "data.validation_samples": 0, "train.global_batch": 4 * ranks,
            "train.epochs": 1000000, "train.validate_every": 0, "checkpoint.every_epochs": 0,
            "strategy.shards": ranks, "checkpoint.hashes": 20, "report.every_steps": 1000,
            "cluster.spares": spares, "cluster.min_ranks": ranks // 2,
            "cluster.replace_timeout": 0, "cluster.join_interval": 1}


class Cluster(Group):
    """A job on the hosts, paused but for its turns; followers that were killed start again."""

    def __init__(self, args, hosts, spares, port, has_standby=False):
        self.driver = bench.driver_of(args.build)
        self.follower = bench.follower_of(args.build)
        self.hosts, self.ranks, self.spares, self.port = hosts, args.ranks, spares, port
        self.job = {**job_of(args.ranks, spares), **args.job}
        self.has_standby = has_standby

    def on(self, host):
        return ["ip", "netns", "exec", self.hosts.names[host % N_HOSTS]]

    def begin(self):
        self.followers, self.due = {}, []  # {pid: process}, [(when, host)]
        self.offset, self.seen, self.turns = 0, [], []
        self.root = f"10.80.0.1:{self.port}"
        subprocess.run([self.driver, "--make-secret", self.path("secret")], check=True,
                       stderr=subprocess.DEVNULL)
        self.start([*self.on(0), self.driver, "--nranks", str(self.ranks), "--threads", "1",
                    "--host", "10.80.0.1", "--port", str(self.port), "--port-file", "port",
                    "--secret-file", "secret", "--run-dir", "run", *words(self.job)])
        self.wait("the driver", lambda: self.read("port") and
                  os.path.exists(self.path("run/status.sock")))
        for host in range(N_HOSTS):
            self.follow_on(host)
        self.wait("the first step", lambda: self.events("first_step"))
        if self.has_standby:
            self.stand_by()
        self.wait("all ranks and spares", self.is_whole)
        self.pause()

    def follow_on(self, host):
        """Start a host's followers, and wait for them: they get ranks in the order in which they
        come, and neighbours on one host are faster."""
        n = self.ranks + self.spares
        for k in range(1, n):
            if k * N_HOSTS // n == host:
                self.follow(host)
        wanted = min(1 + len(self.followers), self.ranks)
        self.wait("a host's followers",
                  lambda: json.loads(self.ask("--status"))["here"] >= wanted)

    def stand_by(self):
        self.standby = self.start([
            *self.on(1), self.driver, "--standby", "--threads", "1", "--root", self.root,
            "--host", "10.80.0.2", "--port", str(self.port + 1), "--secret-file", "secret",
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

    def ask(self, request):
        """The answer of the driver that leads the run now."""
        done = subprocess.run([self.driver, request, "--run-dir", "run", "--log-format", "json"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{request}: {done.stderr}{self.read('log')[-2000:]}")
        return done.stdout

    def is_whole(self):
        """Do all ranks train, and are all spares ready?"""
        status = json.loads(self.ask("--status"))
        roles = [rank["role"] for rank in status["ranks"]]
        return (status["stage"] == "train" and roles.count("member") == self.ranks and
                roles.count("spare") == self.spares)

    def marks(self):
        """[(time, step)] of the moments at which the driver told both."""
        self.events("epoch")
        return [(event["time"], event["step"]) for event in self.seen
                if event["event"] in ("epoch", "pause")]

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
        self.root = f"10.80.0.2:{self.port + 1}"
        self.wait("the standby's lead", lambda: self.events("leader"))

    # ---- turns

    def pause(self):
        n = len(self.events("pause"))
        self.ask("--pause")
        self.wait("the pause", lambda: len(self.events("pause")) > n)

    def go(self):
        """Have it train, and return the time from which on its steps count."""
        n = len(self.events("epoch"))
        self.ask("--go")
        self.wait("an epoch's end", lambda: len(self.events("epoch")) > n)
        if self.events("go")[-1]["step"] != self.events("pause")[-1]["step"]:
            raise Failed("the run went on behind another step than that of its pause")
        return self.events("epoch")[n]["time"]

    def take_turn(self, seconds, losses, choices):
        """Train for so long, with these losses: [(seconds of the turn, "rank" or "driver")]."""
        begun, losses = self.go(), list(losses)
        while (now := time.time()) < begun + seconds or losses:
            self.start_again()
            if losses and now >= begun + losses[0][0]:
                if losses.pop(0)[1] == "driver":
                    self.kill_driver()
                else:
                    self.kill_one(choices)
            time.sleep(max(0.0, min(0.05, begun + seconds - time.time())))
        self.wait("new followers", lambda: not self.due)
        self.wait("all ranks and spares", self.is_whole)
        self.pause()
        self.turns.append((begun, self.events("pause")[-1]["time"]))

    def paces(self):
        """Of each turn: (steps, seconds)."""
        return [steps_between(self.marks(), *turn) for turn in self.turns]

    def calm_pace(self, spans):
        """(steps, seconds) of these parts of turns: [(number of the turn, from, to)]."""
        marks = self.marks()
        return total(steps_between(marks, self.turns[k][0] + a, self.turns[k][0] + b)
                     for k, a, b in spans)


def steps_between(marks, begin, end):
    """(steps, seconds) between the first and the last of the marks within these times."""
    within = [mark for mark in marks if begin <= mark[0] <= end]
    return (within[-1][1] - within[0][1], within[-1][0] - within[0][0]) if within else (0, 0)


def total(paces):
    """(steps, seconds) of all together."""
    paces = list(paces)
    return sum(steps for steps, _ in paces), sum(seconds for _, seconds in paces)


def ratio(pace, other):
    return pace[0] * other[1] / (pace[1] * other[0])


def losses_of(seconds, turn, every, with_driver):
    """When which loss comes, by the clock of the run's turns: [(time, "rank" or "driver")].  The
    driver's is about half way, between those of two ranks."""
    if not every:
        return []
    margin = min(MARGIN_S, turn / 4, every / 2)
    found = [((k + 0.5) * every, "rank") for k in range(math.ceil(seconds / every - 0.5))]
    if with_driver:
        found.append(((seconds / 2 // every + 0.75) * every, "driver"))
    return sorted((min(at, at // turn * turn + turn - margin), what) for at, what in found)


def calm_spans(losses, turn, every):
    """The parts of turns before losses of ranks, from each multiple of `every` on: [(number of the
    turn, from, to)]."""
    spans = []
    for k, at in enumerate(at for at, what in losses if what == "rank"):
        for n in range(int(k * every // turn), int(at // turn) + 1):
            begin, end = max(k * every - n * turn, 0), min(at - n * turn, turn)
            if begin < end:
                spans.append((n, begin, end))
    return spans


def in_turns(args, calm, other, losses, seed):
    choices = random.Random(seed)
    for n in range(args.n_turns):
        mine = [(at - n * args.turn, what) for at, what in losses if at // args.turn == n]
        both = [(calm, ()), (other, mine)]
        for cluster, its in both[::-1] if n % 2 else both:
            cluster.take_turn(args.turn, its, choices)


def measure_start(args, hosts, setting, start):
    every, spares, with_driver = setting
    losses = losses_of(args.n_turns * args.turn, args.turn, every, with_driver)
    with Cluster(args, hosts, spares, PORT) as calm, \
            Cluster(args, hosts, spares, PORT + 1, with_driver) as other:
        in_turns(args, calm, other, losses, args.seed + start)
        for cluster in (calm, other):
            if cluster.events("error") or cluster is calm and cluster.events("lost"):
                raise Failed(f"the job failed, or lost what nobody killed:\n"
                             f"{cluster.read('log')[-3000:]}")
        recovered = other.events("recovered")
        return {"losses": len(losses), "calm": calm.paces(), "paces": other.paces(),
                "own": other.calm_pace(calm_spans(losses, args.turn, every)),
                "bits": same_bits(calm.hashes(), other.hashes()),
                "recovered": [event["seconds"] for event in recovered],
                "lost": max((event["steps_lost"] for event in recovered), default=0)}


def measure(args, hosts, setting):
    starts = [measure_start(args, hosts, setting, n) for n in range(args.starts)]
    return together(setting, starts)


def together(setting, starts):
    """Add up what all starts have found."""
    every, spares, with_driver = setting
    return {"every": every, "spares": spares, "driver": with_driver,
            "losses": sum(start["losses"] for start in starts),
            "calm": [pace for start in starts for pace in start["calm"]],
            "paces": [pace for start in starts for pace in start["paces"]],
            "starts": [ratio(total(start["paces"]), total(start["calm"])) for start in starts],
            "own": total(start["own"] for start in starts),
            "bits": (sum(start["bits"][0] for start in starts),
                     all(start["bits"][1] for start in starts)),
            "recovered": [seconds for start in starts for seconds in start["recovered"]],
            "lost": max(start["lost"] for start in starts)}


def same_bits(calm, found):
    """How many steps' hashes are in both, and whether all of these are equal."""
    both = calm.keys() & found.keys()
    return len(both), bool(both) and all(calm[k] == found[k] for k in both)


def name_of(found):
    losses = f"a loss every {found['every']:g} s" if found["every"] else "no loss"
    return (f"{losses}, {found['spares']} spares" +
            (", the driver lost once" if found["driver"] else ""))


def goodput_of(found):
    return ratio(total(found["paces"]), total(found["calm"]))


def row(found):
    times, (n, same) = found["recovered"], found["bits"]
    whole, calm = total(found["paces"]), total(found["calm"])
    single = [ratio(*pair) for pair in zip(found["paces"], found["calm"])]
    n_lost = found["losses"]
    cost = f"{(1 - ratio(whole, calm)) * whole[1] / n_lost:.2f}" if n_lost else ""
    own = f"{100 * ratio(whole, found['own']):.1f} %" if found["own"][0] else ""
    recovered = f"{statistics.median(times):.2f} | {max(times):.2f}" if times else " | "
    return (f"| {name_of(found)} | {60 * whole[0] / whole[1]:,.0f} | "
            f"{60 * calm[0] / calm[1]:,.0f} | {100 * ratio(whole, calm):.1f} % | "
            f"{100 * min(found['starts']):.1f} to {100 * max(found['starts']):.1f} % | "
            f"{100 * min(single):.1f} to {100 * max(single):.1f} % | {own} | {n_lost} | "
            f"{cost} | {recovered} | {found['lost']} | "
            f"{'equal' if same else 'DIFFER'} at {n} steps |")


HEAD = ("| run | steps a minute | undisturbed | goodput | of single starts | of single turns "
        "| by its own halves | losses | a loss costs s | recovered: median s | worst s "
        "| steps lost | bits |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")


def settings(args):
    found = [(every, spares, False) for spares in args.spares for every in args.every]
    return found + ([(max(args.every), max(1, *args.spares), True)] if args.driver else [])


def describe(args, rows, load, met):
    more = "".join(f" --set {key}={value}" for key, value in args.job.items())
    text = (f"`goodput.py --minutes {args.minutes:g} --starts {args.starts} --turn "
            f"{args.turn:g}{more}`: {args.ranks} ranks on {N_HOSTS} network namespaces, an MLP of "
            f"32 hidden units, {args.ranks} shares, in turn with an undisturbed run: "
            f"{args.starts} starts of both, with {args.n_turns} turns of each.  Load average "
            f"before {load[0]:.1f}, after {os.getloadavg()[0]:.1f} (its own is many).  Goal: "
            f"99 % at a loss a minute, 95 % at one in 15 s, equal bits: "
            f"{'met' if met else 'MISSED'}.")
    return bench.section("Goodput", text, [HEAD, *rows])


def run(args, hosts):
    load, rows, met = os.getloadavg(), [], True
    print(HEAD, flush=True)
    for setting in settings(args):
        found = measure(args, hosts, setting)
        rows.append(row(found))
        print(rows[-1], flush=True)
        met &= found["bits"][1] and goodput_of(found) >= GOALS.get(found["every"], 0)
        if args.check and len(found["recovered"]) < found["losses"]:
            raise Failed(f"{found['losses']} losses, and the recoveries {found['recovered']}")
    return bench.conclude(args, describe(args, rows, load, met), met)


def parse(argv=None):
    parser = bench.arguments(__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--starts", type=int, default=5, metavar="N")
    parser.add_argument("--turn", type=float, default=60, metavar="S", help="at most so long")
    parser.add_argument("--every", type=float, action="append", metavar="S")
    parser.add_argument("--spares", type=int, action="append", metavar="N")
    parser.add_argument("--driver", action="store_true", help="kill the driver once, too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="job")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    args.job = dict(pair.split("=", 1) for pair in args.job)
    args.every = args.every or [15, 60]
    args.spares = args.spares if args.spares is not None else [2, 0]
    if args.check:
        args.ranks, args.minutes, args.turn, args.every, args.driver = 6, 0.1, 3, [2.5], True
        args.starts = 1
    if min(args.minutes, args.starts, args.turn, max(args.every)) <= 0 or min(args.every) < 0:
        parser.error("--minutes, --starts, --turn and --every: want numbers above 0; only beside "
                     "another --every it may be 0")
    seconds = 60 * args.minutes / args.starts
    if max(args.every) > seconds:
        parser.error(f"--every {max(args.every):g}: no loss would come in {seconds:g} s; want more "
                     "--minutes, fewer --starts, or a shorter --every")
    args.n_turns = math.ceil(seconds / args.turn)
    args.turn = seconds / args.n_turns
    return args


def main():
    args = parse()
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

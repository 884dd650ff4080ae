#!/usr/bin/env python3
"""swarm - measures the cost of the control plane with up to 100,000 ranks.

    swarm.py [--build DIR] [--ranks N]... [--relayed K] [--rounds N] [--plain] [--beat S]
             [--json FILE] [--record]
    swarm.py --check N [--relayed K] [--build DIR] [--plain]  test it with N ranks; judge no figure
    swarm.py --plot FILE.png --json FILE                      draw the figures that --json kept

For each number of ranks a driver (swarm/driver_main.c: dpdriver's own server, session and TLS,
around an engine that does not train) and one process that plays all its followers (swarm/swarm.c)
talk over loopback, by TLS 1.3 with the shared secret.  Beyond 10,000 ranks 8 followers share a
connection and its TLS, as those of a machine do behind its agent; the sockets between that agent
and its followers are left out.  --relayed K has it so for any number, 0 for none.  A job of so many
ranks is measured once.  Measured, the median of the rounds:

  join       from the first connect until every rank is told to train: the driver has welcomed all,
             sent Form to all and heard from all that they have formed.  By wall clock, and as CPU
             time of the driver and of the swarm, which others' load disturbs least.
  memory     of the driver: how much its resident memory has grown since it listened, for each
             follower; two seconds after the first step.
  heartbeats the driver's CPU time in percent of a core, while nothing else happens.
  lost       from one rank's connection closing until the last of the others has been told to leave
             its collective, and until all have formed anew with a spare in its place.
  abort      the same with nobody to replace it: until the last one knows that the job is over, and
             why.

--record appends the table to RESULTS.md and draws swarm.png, both beside this file (matplotlib:
python3-matplotlib, or pip).  Exit status 1: a goal was missed, or something did not work.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

import bench
from bench import HERE, ROOT, commit_and_cpu

RANKS = [100, 300, 1000, 3000, 10000, 100000]
MANY = 10000  # ranks; beyond, members share connections:
RELAYED = 8   # so many, as many as a machine often has
SPARE_FILES = 200  # open files besides one for each connection
PATIENCE_S = 120
MIN_BEAT_S = 10

# The measurements: key, title of the column, format, goals (at most) up to MANY ranks and beyond.
COLUMNS = [
    ("join_s", "join s", "{:.2f}", (5.0, 20.0)),
    ("join_driver_cpu_s", "driver CPU s", "{:.2f}", None),
    ("join_swarm_cpu_s", "followers' CPU s", "{:.2f}", None),
    ("kib", "KiB per follower", "{:.1f}", (24.0, 20000 / 1024)),
    ("beat_percent", "heartbeats % of a core", "{:.2f}", (5.0, 10.0)),
    ("told_s", "lost: all told s", "{:.3f}", (0.5, 2.0)),
    ("again_s", "lost: formed again s", "{:.2f}", None),
    ("abort_s", "abort s", "{:.3f}", (0.5, 2.0)),
    ("abort_driver_cpu_s", "its driver CPU s", "{:.3f}", None),
]
# The greatest growth of one rank's cost (CPU time, memory) from a third of the ranks to the most.
MOST_GROWTH = 1.35


class Failed(Exception):
    pass


def n_connections(n_ranks, relayed):
    return -(-n_ranks // relayed) if relayed else n_ranks


def relayed_of(args, n_ranks):
    """The members of one connection; 0: each has its own."""
    return (RELAYED if n_ranks > MANY else 0) if args.relayed is None else args.relayed


def need_files(n_ranks, relayed):
    want = n_connections(n_ranks, relayed) + SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= want:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, want))  # the administrator may
    except (OSError, ValueError):
        raise Failed(f"{n_ranks} ranks need {want} open files in each of two processes, and this "
                     f"one may have {hard}: raise the hard limit (ulimit -Hn)") from None


def start_driver(folder, tools, n_ranks, relayed, plain):
    words = [os.path.join(tools, "dpdriver-swarm"), "--nranks", str(n_ranks), "--host", "127.0.0.1",
             "--port", "0", "--port-file", "port", "--run-dir", "run",
             "--set", "cluster.spares=1", "--set", "cluster.replace_timeout=0"]
    if not plain:
        words += ["--secret-file", "secret"]
    if relayed:
        words += ["--relays", str(n_connections(n_ranks, relayed))]
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=log)
    deadline = time.monotonic() + PATIENCE_S
    port = os.path.join(folder, "port")
    while not os.path.exists(port):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise Failed(f"the driver does not listen:\n{log_of(folder)}")
        time.sleep(0.01)
    with open(port, encoding="ascii") as file:
        return process, int(file.read())


def log_of(folder):
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return "\n".join(lines[-20:])


def run_swarm(folder, tools, n_ranks, relayed, driver, port, plain, beat_s):
    patience_s = PATIENCE_S + 2 * interval_s(n_ranks)
    words = [os.path.join(tools, "swarm"), "--n", str(n_ranks), "--port", str(port),
             "--driver-pid", str(driver.pid), "--events", os.path.join("run", "events.jsonl"),
             "--relayed", str(relayed), "--spare", "--beat", str(beat_s),
             "--patience", str(patience_s)]
    if not plain:
        words += ["--secret-file", "secret"]
    swarm = subprocess.run(words, cwd=folder, capture_output=True, text=True,
                           timeout=10 * patience_s, check=False)
    if swarm.returncode != 0:
        raise Failed(f"{swarm.stderr}\nthe driver said last:\n{log_of(folder)}")
    return json.loads(swarm.stdout)


def events_of(folder):
    with open(os.path.join(folder, "run", "events.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_events(folder, n_ranks):
    """Check the driver's events of a whole run."""
    events = events_of(folder)
    count = {kind: sum(e["event"] == kind for e in events)
             for kind in ("start", "join", "form", "first_step", "lost", "recovered", "error")}
    want = {"start": 1, "join": n_ranks, "form": 2, "first_step": 1, "lost": 2, "recovered": 1,
            "error": 1}
    if count != want:
        raise Failed(f"events.jsonl has {count}, want {want}")
    ranks = {e["rank"] for e in events if e["event"] == "join"}
    if ranks != set(range(1, n_ranks)):
        raise Failed("events.jsonl does not tell of every rank that it joined")
    forms = [e["nranks"] for e in events if e["event"] == "form"]
    if forms != [n_ranks, n_ranks]:
        raise Failed(f"the formations had {forms} ranks, want {n_ranks} each")


def check_connections(raw, relayed):
    """Check that the driver has as many more open files as there are connections."""
    more = raw["joined"]["driver_files"] - raw["before"]["driver_files"]
    want = n_connections(raw["followers"], relayed)
    if not want <= more < want + 10:
        raise Failed(f"the driver opened {more} files while {raw['followers']} followers joined, "
                     f"want one for each of {want} connections")


def figures(raw):
    def between(a, b, key):
        return raw[b][key] - raw[a][key]

    followers = raw["followers"]
    return {
        "ranks": raw["ranks"],
        "relayed": raw["relayed"],
        "join_s": raw["joined"]["at"],
        "join_driver_cpu_s": between("before", "joined", "driver_cpu"),
        "join_swarm_cpu_s": between("before", "joined", "own_cpu"),
        "kib": 1024 * between("before", "settled", "driver_mib") / followers,
        "mib": between("before", "settled", "driver_mib"),
        "beat_percent": 100 * between("settled", "beaten", "driver_cpu")
                        / max(between("settled", "beaten", "at"), 1e-3),
        "told_s": raw["lose_pause"]["last"] - raw["lost"]["at"],
        "again_s": between("lost", "recovered", "at"),
        "abort_s": raw["abort_finished"]["last"] - raw["lost_again"]["at"],
        "abort_driver_cpu_s": between("lost_again", "aborted", "driver_cpu"),
    }


def measure(build, n_ranks, relayed, plain, beat_s):
    tools = os.path.join(build, "tests", "bench", "swarm")
    folder = tempfile.mkdtemp(prefix="dptrain-swarm-")
    driver = None
    try:
        subprocess.run([os.path.join(build, "driver", "dpdriver"), "--make-secret", "secret"],
                       cwd=folder, check=True, stderr=subprocess.DEVNULL)
        driver, port = start_driver(folder, tools, n_ranks, relayed, plain)
        raw = run_swarm(folder, tools, n_ranks, relayed, driver, port, plain, beat_s)
        status = driver.wait(PATIENCE_S)
        if status != 1:
            raise Failed(f"the driver's exit status is {status}, want 1:\n{log_of(folder)}")
        check_events(folder, n_ranks)
        check_connections(raw, relayed)
        return figures(raw)
    finally:
        if driver and driver.poll() is None:
            driver.kill()
            driver.wait()
        shutil.rmtree(folder)


def middle(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def interval_s(n_ranks):
    """The seconds between two heartbeats, as the driver has them."""
    return -(-n_ranks // 1000)


def beat_seconds(n_ranks):
    """The seconds of two heartbeat intervals, of many ranks of one."""
    return max(MIN_BEAT_S, (1 if n_ranks > MANY else 2) * interval_s(n_ranks))


def n_rounds(args, n_ranks):
    return 1 if n_ranks > MANY else args.rounds


def measure_all(args):
    rows = []
    for n_ranks in args.ranks:
        runs = []
        for i in range(n_rounds(args, n_ranks)):
            beat_s = args.beat or beat_seconds(n_ranks)
            relayed = relayed_of(args, n_ranks)
            runs.append(measure(args.build, n_ranks, relayed, args.plain, beat_s))
            print(f"{n_ranks} ranks, round {i + 1}: join {runs[-1]['join_s']:.2f} s, "
                  f"{runs[-1]['kib']:.1f} KiB per follower", file=sys.stderr)
        rows.append(middle(runs))
    return rows


# ---- judging and telling


def fewer_ranks(rows, row):
    """The row of the most ranks that are at most a third of this row's; or None."""
    fewer = [other for other in rows if other["ranks"] <= row["ranks"] / 3]
    return max(fewer, key=lambda other: other["ranks"]) if fewer else None


def growth(row, other, key):
    """The cost of one rank in `row`, divided by that in `other`."""
    return (row[key] / row["ranks"]) / (other[key] / other["ranks"])


def verdicts_at(rows, row):
    """The goals' verdicts on this row: [(text, is met)]"""
    is_many = row["ranks"] > MANY
    found = [(f"{title}: {form.format(row[key])} (goal {goals[is_many]:.4g})",
              row[key] <= goals[is_many])
             for key, title, form, goals in COLUMNS if goals]
    other = fewer_ranks(rows, row)
    for key, what in (("join_driver_cpu_s", "driver's CPU time"), ("mib", "memory")):
        if other:
            times = growth(row, other, key)
            found.append((f"{what} per rank grows {times:.2f} times from {other['ranks']:,} ranks "
                          f"(goal {MOST_GROWTH:g})", times <= MOST_GROWTH))
    return found


def judged(rows):
    """The rows with the most ranks: up to MANY, and beyond."""
    sides = ([row for row in rows if (row["ranks"] > MANY) == is_many] for is_many in (0, 1))
    return [max(side, key=lambda row: row["ranks"]) for side in sides if side]


def verdicts(rows):
    """[(the row's ranks, its verdicts)]"""
    return [(row["ranks"], verdicts_at(rows, row)) for row in judged(rows)]


def goals_text(rows):
    parts = []
    for n_ranks, found in verdicts(rows):
        lines = "\n".join(f"- {'met' if met else 'MISSED'}: {text}" for text, met in found)
        parts.append(f"At {n_ranks:,} ranks:\n{lines}\n")
    return "\n".join(parts)


def table(rows):
    lines = ["| ranks | of a connection | " + " | ".join(column[1] for column in COLUMNS) + " |",
             "|---" * (len(COLUMNS) + 2) + "|"]
    for row in rows:
        cells = [f"{row['ranks']:,}", f"{row['relayed'] or 1:.0f}"]
        cells += [form.format(row[key]) for key, _, form, _ in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def describe(rows, args, load):
    commit, machine = commit_and_cpu()
    how = "without TLS" if args.plain else "TLS 1.3 with the shared secret"
    busy = "" if load[0] < 0.5 else "  A busy machine: the CPU times say more than wall times."
    what = textwrap.fill(
        f"{machine}; swarm.py, {how}, medians of {args.rounds}; more than {MANY:,} ranks once.  "
        f"\"of a connection\": followers that share one, as behind an agent.  Load average before "
        f"{load[0]:.1f}, after {os.getloadavg()[0]:.1f} (its own is up to 2).{busy}", 100)
    return (f"## Scale, {time.strftime('%Y-%m-%d %H:%M')}, commit {commit}\n\n{what}\n\n"
            f"{table(rows)}\n\n{goals_text(rows)}")


# ---- drawing


def pyplot():
    try:
        import matplotlib
    except ImportError:
        raise Failed("drawing needs matplotlib: apt install python3-matplotlib, or pip install "
                     "matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    return plt


def straight(rows, key):
    """Linear growth: the line through zero and the row with the most ranks."""
    most = max(rows, key=lambda row: row["ranks"])
    return [most[key] * row["ranks"] / most["ranks"] for row in rows]


def plot(rows, path):
    plt = pyplot()
    x = [row["ranks"] for row in rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    for key, label, style in (("join_s", "join, wall clock", "o-"),
                              ("join_driver_cpu_s", "driver's CPU time of it", "s-"),
                              ("join_swarm_cpu_s", "all followers' CPU time of it", "^-"),
                              ("again_s", "formed again after a loss", "v-"),
                              ("abort_s", "abort heard by all", "d-")):
        left.plot(x, [row[key] for row in rows], style, label=label)
    left.plot(x, straight(rows, "join_driver_cpu_s"), "k:", label="linear")
    left.set_ylabel("seconds")
    right.plot(x, [row["mib"] for row in rows], "o-", label="driver's memory")
    right.plot(x, straight(rows, "mib"), "k:", label="linear")
    right.plot(x, [20000 * n / (1 << 20) for n in x], "r--", label="20,000 bytes per follower")
    right.set_ylabel("MiB")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(x, [f"{n:,}" for n in x])
        axes.minorticks_off()
        axes.set_xlabel("ranks")
        axes.grid(True, alpha=0.3)
        axes.legend()
    figure.suptitle("dptrain's control plane")
    figure.savefig(path, dpi=120)


def record(rows, text):
    bench.record(text)
    plot(rows, os.path.join(HERE, "swarm.png"))


def run(args):
    if args.plot:
        with open(args.json, encoding="ascii") as file:
            plot(json.load(file), args.plot)
        return 0
    for n_ranks in [args.check] if args.check else args.ranks:
        need_files(n_ranks, relayed_of(args, n_ranks))
    if args.check:
        measure(args.build, args.check, relayed_of(args, args.check), args.plain, 1)
        return 0
    if args.record:
        pyplot()  # fails now if it is missing, not after minutes of measuring
    load = os.getloadavg()
    rows = measure_all(args)
    text = describe(rows, args, load)
    print(text)
    if args.json:
        with open(args.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    if args.record:
        record(rows, text)
    return 0 if all(met for _, found in verdicts(rows) for _, met in found) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--ranks", type=int, action="append", metavar="N",
                        help=f"may be repeated (default {RANKS})")
    parser.add_argument("--relayed", type=int, metavar="K",
                        help=f"followers that share a connection, 0: none (default: {RELAYED} "
                             f"beyond {MANY:,} ranks)")
    parser.add_argument("--rounds", type=int, default=3, help=f"up to {MANY:,} ranks")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--beat", type=int, metavar="SECONDS",
                        help="of heartbeats alone (default: two of their intervals)")
    parser.add_argument("--check", type=int, metavar="N", help="only that it works")
    parser.add_argument("--json", metavar="FILE", help="where the figures go, or come from")
    parser.add_argument("--plot", metavar="PNG")
    parser.add_argument("--record", action="store_true", help="to RESULTS.md and swarm.png")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.ranks = sorted(args.ranks or RANKS)
    try:
        return run(args)
    except Failed as why:
        print(f"swarm.py: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

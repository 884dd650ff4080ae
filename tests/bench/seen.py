#!/usr/bin/env python3
"""seen - what it costs a step that a run is looked at: LeNet, batch 8, two ranks, drawn digits.

    seen.py readers|all [--build DIR] [--rounds N] [--epochs N] [--readers N] [--check]

readers  --http with 50 readers of its stream, beside the same job without --http
all      all that shows a run (--http with one reader, tensorboard, a command that hears the events,
         a price, rows of metrics.csv, a timeline of 1,000 steps), beside a job with none of it

The two run in turn, and which one is first changes with each round.  --ranks binds each rank to a
CPU: unbound ranks of a machine of two cores change places, which moves the clock by 30 %.  The wall
time of a step is over all epochs but the first: an epoch has 2,000 steps, about a second.  The CPU
time is of both daemons with start and end, without the readers.  The rows have the medians of the
rounds, and the median and the range of the ratios, pair by pair.  The readers are one process,
which throws away what it reads; on a machine of two cores it takes its time from the ranks, too,
and so does whatever else runs there.

--check trains little, and only asks whether all figures are there, and whether the readers heard
the run until its end.
"""
import argparse
import contextlib
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile

import bench
import strategies
import variants

JOB = {"model.arch": "lenet", "train.global_batch": 8, "data.samples": 16000,
       "data.validation_samples": 256, "train.validate_every": 0, "checkpoint.every_epochs": 0}
CASES = {
    "readers": ({}, {}),
    "all": ({"report.every_steps": 0},
            {"report.every_steps": 10, "report.tensorboard": "true",
             "report.exec": "cat >/dev/null", "report.price_per_rank_hour": 2.5,
             "report.trace": "[1000, 1999]"}),
}


# ---- the readers

def read_streams(port, n):
    """Reads n streams until the server ends them; prints the bytes of the one with the fewest."""
    n_bytes, choose = {}, selectors.DefaultSelector()
    for _ in range(n):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        choose.register(sock, selectors.EVENT_READ)
        n_bytes[sock] = 0
    room = bytearray(1 << 16)
    while choose.get_map():
        for key, _ in choose.select():
            with contextlib.suppress(ConnectionResetError):
                got = key.fileobj.recv_into(room)
                n_bytes[key.fileobj] += got
                if got:
                    continue
            choose.unregister(key.fileobj)
            key.fileobj.close()
    print(min(n_bytes.values()))


class Readers:
    """A process that reads n streams of the driver."""

    def __init__(self, driver, n):
        for line in driver.stderr:
            found = re.search(r"to be looked at: http://127\.0\.0\.1:(\d+)/", line)
            if found:
                break
        else:
            sys.exit("the driver does not say where it can be looked at")
        self.process = subprocess.Popen([sys.executable, __file__, "--streams", found.group(1),
                                         str(n)], stdout=subprocess.PIPE, text=True)

    def n_bytes(self):
        return int(self.process.communicate(timeout=60)[0])


# ---- a run

def run(o, settings, n_readers):
    """Seconds of a step, CPU seconds of one, and the bytes that each reader has got at least."""
    with tempfile.TemporaryDirectory() as folder:
        job = {**JOB, **settings, "train.epochs": o.epochs}
        if o.check:
            job["data.samples"] = 1600
        driver = subprocess.Popen(
            [bench.driver_of(o.build), "--ranks", "2", "--threads", "1", "--port", "0",
             "--run-dir", f"{folder}/run", *(["--http", "0"] if n_readers else []),
             *strategies.words(job)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        readers = Readers(driver, n_readers) if n_readers else None
        said = driver.stderr.read()
        _, status, used = os.wait4(driver.pid, 0)
        driver.returncode = os.waitstatus_to_exitcode(status)
        if driver.returncode != 0:
            sys.exit(f"status {driver.returncode}\n{said[-2000:]}")
        with open(f"{folder}/run/events.jsonl", encoding="utf-8") as file:
            epochs = [e for e in map(json.loads, file) if e["event"] == "epoch"]
        n_steps = epochs[-1]["step"] - epochs[0]["step"]
        return (sum(e["train_seconds"] for e in epochs[1:]) / n_steps,
                (used.ru_utime + used.ru_stime) / epochs[-1]["step"],
                readers.n_bytes() if readers else 0)


def measure(o):
    """Seconds of a step of each round, by the clock and of the processor: without, and with."""
    without, withs = [], []
    for i in range(o.rounds):
        pair = [(CASES[o.case][0], 0, without), (CASES[o.case][1], o.readers, withs)]
        for settings, n_readers, seconds in pair if i % 2 == 0 else reversed(pair):
            *figures, n_bytes = run(o, settings, n_readers)
            if n_readers and n_bytes < 1000 * (o.epochs - 1):
                sys.exit(f"a reader has heard {n_bytes} bytes")
            seconds.append(figures)
    return without, withs


def main():
    if sys.argv[1:2] == ["--streams"]:
        read_streams(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("case", choices=list(CASES))
    p.add_argument("--build", default=bench.default_build())
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--readers", type=int)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    o.readers = o.readers or {"readers": 50, "all": 1}[o.case]
    if o.check:
        o.rounds, o.epochs = 2, 3
    without, withs = measure(o)
    print("| case | figure of a step | without, us | with, us | ratio |\n|---|---|---|---|---|")
    for i, name in enumerate(("wall time", "CPU time of both ranks")):
        base, ours = [f[i] for f in without], [f[i] for f in withs]
        print(f"| {o.case} | {name} | {1e6 * statistics.median(base):,.0f} | "
              f"{1e6 * statistics.median(ours):,.0f} | {variants.ratio_text(ours, base)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

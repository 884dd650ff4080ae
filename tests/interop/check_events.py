#!/usr/bin/env python3
"""check_events - checks a run's events.jsonl against the promises to its readers.

    check_events.py RUN_DIR...      prints what is wrong; exit status 1 if anything is

Other scripts import it: read(run_dir) gives the events, problems(run_dir, ...) the complaints.
Unknown fields are fine; a promised field must be there and have its type.
"""
import json
import math
import os
import re
import sys


def is_text(v):
    return isinstance(v, str) and v != ""


def is_count(v):
    return isinstance(v, int) and not isinstance(v, bool) and v >= 0


def is_real(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)


def is_seconds(v):
    return is_real(v) and v >= 0


def is_share(v):
    return is_real(v) and 0 <= v <= 1


def is_mib(v):
    return isinstance(v, list) and v != [] and all(is_real(x) and x > 0 for x in v)


def is_processes(v):
    return isinstance(v, list) and [p["rank"] for p in v] == list(range(len(v))) and all(
        is_text(p["host"]) and is_count(p["pid"]) for p in v)


def or_null(check):
    """A number that is not finite is written as null, and so is an unknown field of an error."""
    return lambda v: v is None or check(v)


MEASURED = dict(train_loss=or_null(is_real))
VALIDATED = dict(validation_loss=or_null(is_real), validation_accuracy=is_share)

# event -> field -> the check of its value
FIELDS = {
    "start": dict(nranks=is_count, device=is_text, version=is_text, data=is_text),
    "join": dict(rank=is_count, host=is_text),
    "form": dict(generation=is_count, nranks=is_count, step=is_count, seconds=is_seconds,
                 ranks=is_processes),
    "first_step": dict(seconds=is_seconds, rss_mib=is_mib),
    "epoch": dict(MEASURED, epoch=is_count, step=is_count, samples=is_count,
                  train_seconds=is_seconds, samples_per_second=is_real, step_ms_median=is_seconds,
                  comm_exposed_ms_median=is_seconds, data_wait_ms_median=is_seconds,
                  data_wait_share=is_share, data_wait_rank=is_count),
    "checkpoint": dict(step=is_count, path=is_text, seconds=is_seconds,
                       exposed_seconds=is_seconds),
    "lost": dict(rank=is_count, host=or_null(is_text), reason=is_text),
    "inject": dict(spec=is_text, rank=is_count, host=is_text, step=or_null(is_count),
                   message=is_text, phase=or_null(is_text)),
    "corruption": dict(rank=is_count, host=is_text, step=is_count, what=is_text,
                       share=or_null(is_count), healed=lambda v: isinstance(v, bool),
                       message=is_text),
    "straggler": dict(rank=is_count, factor=is_real),
    "recovered": dict(generation=is_count, nranks=is_count, seconds=is_seconds,
                      steps_lost=is_count),
    "done": dict(MEASURED, step=is_count, seconds=is_seconds, peak_rss_mib=is_mib),
    "error": dict(rank=or_null(is_count), host=or_null(is_text), phase=or_null(is_text),
                  step=or_null(is_count), message=is_text),
}


def read_lines(run_dir):
    """(events, complaints about lines)"""
    events, bad = [], []
    with open(os.path.join(run_dir, "events.jsonl"), "rb") as file:
        data = file.read()
    if data and not data.endswith(b"\n"):
        bad.append("the last line is torn")
    for number, line in enumerate(data.splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError as why:
            bad.append(f"line {number} is not JSON: {why}")
            continue
        if isinstance(event, dict):
            events.append(event)
        else:
            bad.append(f"line {number} is no object")
    return events, bad


def read(run_dir):
    return read_lines(run_dir)[0]


def of_kind(events, kind):
    return [e for e in events if e.get("event") == kind]


def check_fields(event, number, validated):
    """Checks one event by itself."""
    kind, bad = event.get("event"), []
    if not is_text(kind):
        return [f"event {number} has no name"]
    wanted = dict(FIELDS.get(kind, {}), time=is_real)
    if validated and kind in ("epoch", "done"):
        wanted.update(VALIDATED)
    for field, check in wanted.items():
        if field not in event:
            bad.append(f"event {number}, {kind}: no field {field}")
        elif not check(event[field]):
            bad.append(f"event {number}, {kind}: {field} is {event[field]!r}")
    return bad


def check_order(events):
    """Checks the order of the events of a run that was not resumed and ended well."""
    kinds, bad = [e.get("event") for e in events], []
    for kind in ("start", "form", "first_step", "done"):
        if kinds.count(kind) != 1:
            bad.append(f"{kinds.count(kind)} {kind} events, want 1")
    if kinds[:1] != ["start"] or kinds[-1:] != ["done"]:
        bad.append(f"begins with {kinds[:1]} and ends with {kinds[-1:]}, want start and done")
    times = [e["time"] for e in events if is_real(e.get("time"))]
    if times != sorted(times):
        bad.append("times go backwards")
    epochs = [(e.get("epoch"), e.get("step")) for e in of_kind(events, "epoch")]
    if [e for e, _ in epochs] != list(range(1, len(epochs) + 1)) or not epochs:
        bad.append(f"epochs are {[e for e, _ in epochs]}, want 1, 2, ...")
    if epochs != sorted(epochs):
        bad.append("steps of the epochs go backwards")
    return bad


def check_ranks(events, nranks):
    bad = []
    joined = sorted(e.get("rank", -1) for e in of_kind(events, "join"))
    if joined != list(range(1, nranks)):
        bad.append(f"ranks {joined} joined, want 1 to {nranks - 1}")
    for kind, field in (("start", "nranks"), ("form", "nranks"), ("first_step", "rss_mib"),
                        ("done", "peak_rss_mib")):
        for event in of_kind(events, kind):
            seen = event.get(field)
            seen = len(seen) if isinstance(seen, list) else seen
            if seen != nranks:
                bad.append(f"{kind}: {field} is of {seen} ranks, want {nranks}")
    return bad


def check_agreement(run_dir, events):
    """Checks events against each other and against the files."""
    bad, done, epochs = [], of_kind(events, "done"), of_kind(events, "epoch")
    if done and epochs:
        for field in ("step", *MEASURED, *VALIDATED):
            if done[-1].get(field) != epochs[-1].get(field):
                bad.append(f"done: {field} is {done[-1].get(field)!r}, in the last epoch "
                           f"{epochs[-1].get(field)!r}")
    saved, folder = of_kind(events, "checkpoint"), os.path.join(run_dir, "checkpoints")
    if saved:
        name = f"step-{saved[-1].get('step', -1):08d}"
        if os.path.basename(str(saved[-1].get("path"))) != name:
            bad.append(f"checkpoint: path is {saved[-1].get('path')!r}, want one ending in {name}")
        latest = os.path.join(folder, "latest")
        if not os.path.islink(latest) or os.readlink(latest) != name:
            bad.append(f"{latest} is no link to {name}")
        for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
            if not os.path.isfile(os.path.join(folder, name, file)):
                bad.append(f"{folder}/{name} holds no {file}")
    if not os.path.isfile(os.path.join(run_dir, "job.yaml")):
        bad.append(f"no job.yaml in {run_dir}")
    return bad


def problems(run_dir, nranks=None, validated=True, whole=True):
    """The complaints, a list of texts that is empty if all is well.

    nranks     the run's number of ranks; None: that of its start event
    validated  every epoch was validated
    whole      the run was begun once and ended well: order and ranks are checked as well
    """
    events, bad = read_lines(run_dir)
    for number, event in enumerate(events, 1):
        bad += check_fields(event, number, validated)
    if whole and not bad:
        bad += check_order(events)
        bad += check_ranks(events, nranks or events[0]["nranks"])
        bad += check_agreement(run_dir, events)
    return bad


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(re.sub(r"\n\n.*", "", __doc__.split("\n\n", 1)[1], flags=re.S))
        return 2
    n_bad = 0
    for run_dir in sys.argv[1:]:
        has_end = any(e.get("event") == "done" for e in read(run_dir))
        validated = all("validation_loss" in e for e in of_kind(read(run_dir), "epoch"))
        for text in problems(run_dir, validated=validated, whole=has_end):
            print(f"{run_dir}: {text}")
            n_bad += 1
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

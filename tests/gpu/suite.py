#!/usr/bin/env python3
"""suite - everything that needs a GPU, in one run; tests/run.sh gpu starts it.

    suite.py --build DIR      the programs of a build folder
    suite.py --bundle DIR     those of a bundle (deploy/bundle.sh)
    --rehearse                the training checks, the CPU in the GPU's place: for the suite itself
    --only NAME, --not NAME   these checks, or all but these (may be repeated): the name of a check
                              or of a group
    --list                    the groups with their checks, and what they test; strategies are only
                              listed beside --build or --bundle, since the driver is asked for them
    --minutes N               begin no check after so long, and cut off what runs then: both count
                              as skipped
    --out DIR                 where the results go (default: a temporary folder, kept on failure)

The results are gpu-suite.log, gpu-properties.json, and gpu-suite.tar.gz with all else that was
written.  The log has everything that it takes to mend a failure: the machine's drivers, libraries
and settings, each check's command, output and time, for what failed the same once more under
compute-sanitizer or without recorded steps, for what hung where its threads stood.

Exit status 0: all passed; 1: some failed; 77: there is no GPU (which it says, and what was looked
for).  The last line is "N passed, N failed, N skipped".
"""

import argparse
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback

from facts import note_aftermath, note_facts
from groups import REHEARSED, groups_of
from rig import MOST_HANGS, NONE, Skip, Suite, driver_of

# The archive must stay small, so it has neither weights nor data sets.
MOST_PACKED, UNPACKED = 4 << 20, {"checkpoints", "data"}  # bytes of a file; folders


def probe(suite):
    """The status of gpu_probe: NONE where there is no GPU.  Prints what was found."""
    status, text = suite.observe("probe", [suite.tool("gpu_probe")])
    print(text, flush=True)
    suite.is_real = "Simulated" not in text
    if status not in (0, NONE):
        how = f"ended with {status}" if status is not None else "did not end in time"
        suite.say(f"FAILED: gpu_probe {how}")
    return status


def make(suite, check):
    """The verdict of a check, and why."""
    if suite.left() <= 0:
        return "skipped", "no time is left (--minutes)"
    if suite.n_hangs() >= MOST_HANGS.get(suite.group, 1):
        return "skipped", f"{suite.n_hangs()} checks of its group hung before"
    try:
        check(suite)
        return "ok", ""
    except Skip as skip:
        return "skipped", str(skip)
    except Exception as failure:  # whatever it is, the checks that follow have their turn
        suite.note(traceback.format_exc())
        return "FAILED", str(failure) if str(failure) else repr(failure)


def run_one(check, suite, group, verdicts):
    start = time.monotonic()
    suite.group = group
    suite.note(f"\n==== {check.__name__}: {check.__doc__} (at {start - suite.start:.0f} s)")
    verdict, why = make(suite, check)
    verdicts[check.__name__] = verdict
    suite.say(f"{verdict}: {check.__name__}: {check.__doc__} "
              f"({time.monotonic() - start:.1f} s){': ' if why else ''}{why}")
    if verdict == "FAILED" and suite.is_real:
        note_aftermath(suite)


def chosen(args):
    """(check, group) in order."""
    return [(c, group) for group, checks in args.groups.items() for c in checks
            if (not args.only or {c.__name__, group} & set(args.only)) and
            not {c.__name__, group} & set(args.without) and
            (not args.rehearse or c.__name__ in REHEARSED)]


def pack(suite):
    """Pack all that was written besides the log into one file, and remove the folder."""
    path = os.path.join(suite.out, "gpu-suite.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for folder, folders, names in os.walk(suite.work):
            folders[:] = sorted(set(folders) - UNPACKED)
            for name in sorted(names):
                file = os.path.join(folder, name)
                if os.path.isfile(file) and os.path.getsize(file) <= MOST_PACKED:
                    archive.add(file, os.path.relpath(file, suite.work), recursive=False)
                else:
                    suite.note(f"not packed: {file}, {os.lstat(file).st_size} bytes")
    return path


def conclude(suite, verdicts, keep):
    """Print the verdicts; returns the exit status."""
    names = {v: [name for name, verdict in verdicts.items() if verdict == v]
             for v in ("ok", "FAILED", "skipped")}
    for verdict in ("FAILED", "skipped"):
        if names[verdict]:
            suite.say(f"{verdict}: {' '.join(names[verdict])}")
    if names["FAILED"] or keep:
        suite.say(f"everything is in {os.path.join(suite.out, 'gpu-suite.log')}, "
                  f"and what was written besides in {pack(suite)}")
    else:
        shutil.rmtree(suite.out)
    print(", ".join(f"{len(names[v])} {word}" for v, word in
                    (("ok", "passed"), ("FAILED", "failed"), ("skipped", "skipped"))), flush=True)
    return 1 if names["FAILED"] or not names["ok"] else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--bundle")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--not", action="append", default=[], dest="without")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out")
    args = parser.parse_args()
    args.groups = groups_of(driver_of(args))
    known = set(args.groups) | {c.__name__ for checks in args.groups.values() for c in checks}
    unknown = (set(args.only) | set(args.without)) - known
    if unknown:
        parser.error(f"no check is named {', '.join(sorted(unknown))}; --list names them")
    if not args.list and bool(args.build) == bool(args.bundle):
        parser.error("one of --build and --bundle is wanted")
    return args


def run_all(suite, checks, keep):
    verdicts = {}
    try:
        status = 0 if suite.rehearse else probe(suite)
        if status == NONE:
            print("nothing was tested: there is no GPU (the reason is above)")
            return NONE
        if not suite.rehearse:
            note_facts(suite)
        if status != 0:
            return conclude(suite, {"gpu_probe": "FAILED"}, keep)
        for check, group in checks:
            run_one(check, suite, group, verdicts)
    except KeyboardInterrupt:
        suite.say("interrupted")
        verdicts.update({c.__name__: verdicts.get(c.__name__, "skipped") for c, _ in checks})
        keep = True
    return conclude(suite, verdicts, keep)


def main():
    args = parse()
    if args.list:
        for group, checks in args.groups.items():
            print(f"{group}:")
            print("\n".join(f"    {c.__name__}: {c.__doc__}" for c in checks))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep = args.out is not None
    args.out = args.out or tempfile.mkdtemp(prefix="dptrain-gpu-suite-")
    os.makedirs(args.out, exist_ok=True)
    suite = Suite(args)
    try:
        status = run_all(suite, chosen(args), keep)
        if status == NONE and not keep:
            shutil.rmtree(args.out)
        return status
    finally:
        suite.log.close()
        shutil.rmtree(suite.work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The runner of the operator table (runner.h) reports each wrong case of the program wrong_cases.

    test_runner.py WRONG_CASES"""

import os
import subprocess
import sys

program = sys.argv[1]


def told(mode, *ways_to_end):
    done = subprocess.run([program, mode], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1"})
    assert done.returncode in ways_to_end, f"{mode}: status {done.returncode}\n{done.stdout}"
    # qemu-user tells a signal that ends the process, too (tests/run.sh arm64).
    return [line for line in done.stdout.splitlines() if not line.startswith("qemu: uncaught")]


def lines_of(text, start):
    return [line[len(start):] for line in text if line.startswith(start)]


def expect(what, seen, want):
    assert seen == want, f"{what}: {seen}, want {want}"
    print(f"ok: {what}")


text = told("values", 1)
expect("each case is named before it runs", lines_of(text, "case "),
       ["bias", "relu", "avg", "gather_labels"])
wrong = lines_of(text, "WRONG: ")
expect("each wrong case is told", [w.split(",")[0] for w in wrong],
       ["case bias", "case avg", "case gather_labels"])
expect("and what is wrong with it",
       [f"({op}): element 1 of " in w for op, w in zip(("bias", "pool2d", "gather"), wrong)],
       [True, True, True])
at = text.index("wrong: " + wrong[0])
expect("and again at the end", [line.strip() for line in text[at + 1:at + 3]], wrong[1:])
expect("the test fails by their number",
       [line for line in text if "3 of the 4 cases that ran are wrong" in line] != [], True)

text = told("device", 1)
expect("no case after the device was lost", lines_of(text, "case "), ["bias"])
expect("the device's last words", [line for line in text if "it is gone" in line
                                   and "takes no more work" in line] != [], True)

text = told("memory", -6)
expect("memory that cannot be read", [text[-2], "its memory is gone" in text[-1]],
       ["case bias", True])

text = told("abort", -6)
expect("what ran when the process ended", lines_of(text, "case ")[-1], "avg")
expect("what was wrong before that", len(lines_of(text, "WRONG: case bias")), 1)

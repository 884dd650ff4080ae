#!/usr/bin/env python3
"""rates - how fast this machine's processor trains, a core: a row of the table in RESULTS.md.

    rates.py [--build DIR] [--rounds N] [--steps N] [--case NAME]... [--mode eager|compiled]...
             [--record] [--check]

The networks are those of imported.py: resnet50 and vit (ViT-S/16) of torchvision, 8 images of 224 x
224 a step; gpt2-124m and llama (15 million parameters) of transformers, 4 samples of 256 tokens a
step.  Each is trained by AdamW in float32 on one thread, by ours and by PyTorch, in turn.  A cell
has the images or tokens a second of ours, those of the best of PyTorch's --modes (both), and the
ratio of the two.

It needs an idle machine, and a Python with torch, torchvision and transformers, which
DPTRAIN_TORCH_PYTHON may name.  --record appends the row to the table, in the section of that name.
--check rehearses with tiny networks.  Exit status 1: a run failed; 77: there is no such Python.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import imported

CASES = ("resnet50", "gpt2-124m", "vit", "llama")
TOKENS_OF_SAMPLE = 256
HEADING = "## CPU training rates"
RESULTS = os.path.join(bench.HERE, "RESULTS.md")


def processor():
    """Its name, by which rows are told apart; some machines hide all but the maker's."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        said = dict(reversed([(part.strip() for part in line.split(":", 1)) for line in file
                              if ":" in line]))
    name = said.get("model name") or "unknown"
    numbers = [said[key] for key in ("cpu family", "model") if key in said]
    return f"{name} ({' / '.join(numbers)})" if numbers else name


def per_second(case, milliseconds):
    batch = imported.CASES[case][0]
    unit = TOKENS_OF_SAMPLE if imported.CASES[case][1] == imported.TOKENS else 1
    return batch * unit * 1e3 / milliseconds


def measure(options, case):
    """Milliseconds of a step, of ours and of the best of PyTorch's modes, and that mode"""
    folder = tempfile.mkdtemp(prefix="dptrain-rates-")
    seen = {}
    try:
        subprocess.run([sys.executable, imported.SIDE, folder, case, "export", "float32",
                        str(imported.CASES[case][0]), "0", *(["--tiny"] if options.check else [])],
                       check=True, stdout=subprocess.DEVNULL)
        for _ in range(options.rounds):
            for who in ("ours", *options.mode):
                said = imported.ours(options, who, case, "float32", folder) if who == "ours" else \
                    imported.theirs(options, case, "float32", who, folder)
                seen.setdefault(who, []).append(said["ms"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    middle = {who: statistics.median(times) for who, times in seen.items()}
    best = min(options.mode, key=middle.get)
    return middle["ours"], middle[best], best


def cell(case, ours, theirs, mode):
    a, b = per_second(case, ours), per_second(case, theirs)
    return f"{a:,.4g} / {b:,.4g} {mode}, {a / b:.2f} x"


def with_row(text, row):
    """RESULTS.md with one row more at the end of the section's table"""
    lines = text.split("\n")
    at = lines.index(HEADING)
    while not lines[at].startswith("|"):
        at += 1
    while at < len(lines) and lines[at].startswith("|"):
        at += 1
    return "\n".join([*lines[:at], row, *lines[at:]])


def row_of(options, cells, load):
    said = [cells.get(case, "") for case in CASES]
    how = f"{options.rounds} x {options.steps} steps, load {load:.1f}"
    return "| " + " | ".join([processor(), *said, how, time.strftime("%Y-%m-%d"),
                              bench.commit_of_tree()]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--mode", action="append", choices=("eager", "compiled"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    imported.find_torch.need("torch", "torchvision", "transformers", "numpy")
    options.mode = options.mode or ["eager", "compiled"]
    if options.check:
        options.rounds, options.steps, options.mode = 1, 2, ["eager"]
    load, cases = os.getloadavg()[0], options.case or CASES
    cells = {case: cell(case, *measure(options, case)) for case in cases}
    row = row_of(options, cells, load)
    print(row)
    with open(RESULTS, encoding="utf-8") as file:
        text = with_row(file.read(), row)
    if options.check:
        assert text.count(row) == 1 and row.count(" x |") == len(cases), row
    if options.record and not options.check:
        with open(RESULTS, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()

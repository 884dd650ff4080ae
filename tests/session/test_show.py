#!/usr/bin/env python3
"""show - session_sim --show: the course of a schedule, a line an event.

test_show.py SESSION_SIM DESIGN.md.  The lines of a seed are the same each time, have their form,
and name a kill and its recovery.  The lines that docs/design.md shows are the program's."""
import re
import subprocess
import sys
import unittest

PROGRAM, DESIGN = sys.argv[1:3]
LINE = re.compile(r" +\d+\.\d{3}  (driver|standby|FAULT|node \d+) +\S")


def show(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def events(text):
    """The lines between the legend and the outcome."""
    legend, _, rest = text.partition("\n\n")
    return legend.split("\n"), rest.rstrip("\n").split("\n")[:-1]


class Show(unittest.TestCase):
    def test_each_kind_of_schedule(self):
        for mode in ("plain", "elastic", "leaders", "standby", "audit"):
            status, text = show("--" + mode, "--show", "3")
            self.assertEqual((status, text), show("--show", "3", "--" + mode))
            self.assertEqual(status, 0, text)
            legend, lines = events(text)
            self.assertIn(f"seed 3 of --{mode}.", legend[0])
            self.assertEqual("  standby " in "\n".join(legend), mode == "standby")
            self.assertEqual(text.split("\n")[-2], "seed 3: ok")
            self.assertGreater(len(lines), 5)
            for line in lines:
                self.assertRegex(line, LINE)
            times = [float(line.split()[0]) for line in lines]
            self.assertEqual(times, sorted(times))

    def test_a_kill_and_its_recovery(self):
        lines = events(show("--elastic", "--show", "621")[1])[1]
        wanted = ["FAULT     node 4 (rank 1) is killed", "driver    rank 1 (host4) was lost",
                  "driver    spare 1 (host1) takes the place of rank 1",
                  "node 1    takes part as rank 1 of 3",
                  "driver    generation 2 is formed: 3 ranks",
                  "driver    recovered after", "driver    the checkpoint of step 4 is on disk",
                  "driver    ends with status 0: finished"]
        found = [i for text in wanted for i, line in enumerate(lines) if text in line]
        self.assertEqual(len(found), len(wanted), "\n".join(lines))
        self.assertEqual(found, sorted(found))

    def test_two_leaders(self):
        text = show("--standby", "--show", "5")[1]
        self.assertIn("FAULT     the driver is cut off", text)
        self.assertIn("standby   leads, with term", text)
        self.assertIn("standby   recovered after", text)

    def test_the_design_shows_real_lines(self):
        with open(DESIGN, encoding="utf-8") as file:
            shown = re.search(r"^ *\$ build/\S*/session_sim (--[^\n]*)\n(.*?)```",
                              file.read(), re.MULTILINE | re.DOTALL)
        lines = [line.strip() for line in shown[2].strip().split("\n")]
        real = [line.strip() for line in events(show(*shown[1].split())[1])[1]]
        self.assertEqual(len(lines), 10)
        at = -1
        for line in lines:
            begin = line.removesuffix(" ...")
            at = next((i for i in range(at + 1, len(real)) if real[i].startswith(begin)), None)
            self.assertIsNotNone(at, f"docs/design.md: --show has no line {line!r}")

    def test_without_a_seed(self):
        status, text = show("--show")
        self.assertEqual(status, 2)
        self.assertIn("--show SEED", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

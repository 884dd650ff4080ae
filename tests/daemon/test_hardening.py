#!/usr/bin/env python3
"""Are the built daemons hardened?  readelf reads what the linker and the compiler left in each
binary.  Two protections leave no trace there; the commands that compiled the product show them."""

import json
import os
import re
import shlex
import subprocess
import unittest

BUILD = os.environ["DPTRAIN_BUILD"]
BINARIES = os.environ["DPTRAIN_BINARIES"].split(":")
IS_SANITIZED = bool(os.environ["DPTRAIN_SANITIZED"])
IS_OPTIMIZED = bool(os.environ["DPTRAIN_OPTIMIZED"])
# The instructions at the entry of main, one of them, by the machine of the ELF header: endbr64; and
# bti c of arm64, or paciasp, which is as good a landing place of calls.
ENTRIES = {62: [bytes.fromhex("f30f1efa")],
           183: [bytes.fromhex("5f2403d5"), bytes.fromhex("3f2303d5")]}
ROOMS = ("common/", "driver/", "follower/", "proto/")
FLAGS = ("-fstack-protector-strong", "-fstack-clash-protection")
MARKED = {62: "-fcf-protection", 183: "-mbranch-protection=standard"}
FORTIFY = "-D_FORTIFY_SOURCE=3"


def readelf(options, path):
    return subprocess.run(["readelf", "-W", *options, path], check=True, text=True,
                          capture_output=True).stdout


def imports(path):
    """The names of the functions and data that this binary takes from libraries."""
    return set(re.findall(r" UND ([\w.]+)", readelf(["--dyn-syms"], path)))


def machine(path):
    """The number of the processor's architecture in the ELF header."""
    with open(path, "rb") as file:
        return int.from_bytes(file.read(20)[18:], "little")


def first_bytes(path, function, n):
    """The first n bytes of the code of this function."""
    address = next(int(line.split()[1], 16) for line in readelf(["-s"], path).splitlines()
                   if re.search(rf" FUNC .* {function}$", line))
    for line in readelf(["-S"], path).splitlines():
        found = re.search(r"\] \.text +PROGBITS +(\w+) (\w+) (\w+)", line)
        if found:
            start, offset, size = (int(x, 16) for x in found.groups())
            assert start <= address < start + size
            with open(path, "rb") as file:
                file.seek(offset + address - start)
                return file.read(n)
    raise AssertionError(f"{path} has no .text")


def missing(path):
    """Name the protections that this binary lacks."""
    dynamic, segments, names = readelf(["-d"], path), readelf(["-l"], path), imports(path)
    stack = re.search(r"GNU_STACK .* (R\w*) ", segments)
    lacks = {
        "PIE (-pie)": not re.search(r"FLAGS_1.*\bPIE\b", dynamic),
        "RELRO (-z relro)": "GNU_RELRO" not in segments,
        "symbols bound at the start (-z now)": not re.search(r"FLAGS_1.*\bNOW\b", dynamic),
        "a stack without code (-z noexecstack)": not stack or "E" in stack.group(1),
        "a guarded stack (-fstack-protector-strong)": "__stack_chk_fail" not in names,
        "a fortified libc (_FORTIFY_SOURCE)":
            IS_OPTIMIZED and not IS_SANITIZED and "__snprintf_chk" not in names,
        "marked entries of functions (-fcf-protection, -mbranch-protection)":
            machine(path) in ENTRIES and
            first_bytes(path, "main", 4) not in ENTRIES[machine(path)],
    }
    return [what for what, is_missing in lacks.items() if is_missing]


def product_commands():
    """(source, command) of each C and C++ file of the product."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            source = os.path.relpath(os.path.join(entry["directory"], entry["file"]),
                                     os.environ["DPTRAIN_SOURCE"])
            if source.startswith(ROOMS) and source.endswith((".c", ".cc")):
                yield source, shlex.split(entry["command"])


def accepts(command, flag):
    """Does the compiler of this command know the flag?"""
    compiler = command[:next(i for i, word in enumerate(command) if word.startswith("-"))]
    return subprocess.run([*compiler, "-Werror", flag, "-x", "c", "-c", "/dev/null", "-o",
                           "/dev/null"], capture_output=True).returncode == 0


class Hardening(unittest.TestCase):
    def test_the_binaries(self):
        for path in BINARIES:
            with self.subTest(path):
                self.assertEqual(missing(path), [])

    def test_no_folder_is_named(self):
        """Nothing in the daemons depends on the folders of sources and build, so that two builds
        of one commit have the same bytes (test_reproducible.py)."""
        for path in BINARIES:
            with self.subTest(path), open(path, "rb") as file:
                data = file.read()
                for folder in () if IS_SANITIZED else (BUILD, os.environ["DPTRAIN_SOURCE"]):
                    self.assertNotIn(folder.encode(), data)

    def test_the_commands(self):
        commands = list(product_commands())
        self.assertGreater(len(commands), 100)
        flags = [*FLAGS, MARKED.get(machine(BINARIES[0]), FLAGS[0])]
        wanted = [flag for flag in flags if accepts(commands[0][1], flag)]
        if IS_OPTIMIZED and not IS_SANITIZED:
            wanted.append(FORTIFY)
        for source, command in commands:
            self.assertEqual([flag for flag in wanted if flag not in command], [], source)

    def test_sanitizers_see_every_call(self):
        if IS_SANITIZED:
            for source, command in product_commands():
                self.assertNotIn(FORTIFY, command, source)


if __name__ == "__main__":
    unittest.main(verbosity=2)

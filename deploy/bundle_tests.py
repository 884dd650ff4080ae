#!/usr/bin/env python3
"""bundle_tests - the tests of a build that can run without it, put into a bundle.

    bundle_tests.py BUILD SOURCE BUNDLE

Of the tests that `meson introspect --tests` names, and that are not of suite `long`, it takes the
programs that need nothing but their arguments, and the end-to-end tests.  It leaves out the tests
that need a compiler, a toolkit, PyTorch or the sources.  It also leaves out those that come out
alike on every machine, and would make the bundle large: the tests on the simulated GPU, of job
files, of data sets' files, of networks, imported and exported ones too, of tokenizers and sampled
text, of what is made to be looked at, of the passes from graph to program, of the state and of
strategies among ranks of one process, of what is judged and saved, and of the fuzz targets' seeds.
BUNDLE/tests/list gets one line for each test, which tests/run.sh reads in the bundle:

    NAME <tab> SECONDS <tab> [VARIABLE=VALUE]... COMMAND, from the bundle's folder
"""
import json
import os
import shlex
import shutil
import subprocess
import sys

LEFT_OUT = {"plugin", "cudasim", "cudnn", "gpu", "fakegpu", "interop", "lint", "bench", "chroot",
            "job", "deepspeed", "import", "export", "see", "fuzz", "state", "strategy", "judge",
            "model", "tokenizer", "data", "generate"}
LEFT_OUT_TESTS = {"golden/data", "golden/half", "golden/pytorch",  # these read the sources
                  "golden/averages_sim", "golden/optimizers_sim",  # on the simulated GPU
                  "program/layout", "program/outputs", "program/plan",  # graphs alone
                  "program/precision", "program/recompute", "program/size", "program/fused",
                  "train/saver", "train/saves",  # a disk that fails
                  "train/forms", "train/sums",  # replace functions
                  "train/zero_lost", "train/zero_overlap",  # likewise
                  "coll/patience",  # likewise
                  "daemon/actions",  # turns of the loop alone
                  "daemon/minder", "daemon/notices", "driver/exec",  # run /bin/sh and /bin/sleep
                  "driver/manual", "e2e/kubernetes",  # read deploy/
                  "optim/groups", "step/flight",  # a job's keys; no device
                  "daemon/nvml"}  # opens made-up libraries of the build


def inside(path, folder):
    return os.path.isabs(path) and os.path.realpath(path).startswith(
        os.path.realpath(folder) + os.sep)


class Packer:
    def __init__(self, build, source, bundle):
        self.build, self.source, self.bundle = build, source, bundle
        self.programs = {}  # path in the build: path in the bundle

    def copy(self, path):
        """Copy a file or folder of the sources to the same place in the bundle."""
        name = os.path.relpath(os.path.realpath(path), os.path.realpath(self.source))
        to = os.path.join(self.bundle, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, to, dirs_exist_ok=True)
        else:
            shutil.copy(path, to)
        return name

    def program(self, path, name):
        if path not in self.programs:
            at = os.path.join("unit", name.replace("/", "_"))
            os.makedirs(os.path.join(self.bundle, "unit"), exist_ok=True)
            subprocess.run(["strip", "-o", os.path.join(self.bundle, at), path], check=True)
            self.programs[path] = at
        return self.programs[path]

    def line(self, test):
        """The line of a test, or None if the test cannot run from a bundle."""
        name, command = test["name"], test["cmd"]
        if name.split("/")[0] in LEFT_OUT or name in LEFT_OUT_TESTS:
            return None
        if any(suite.endswith(":long") for suite in test["suite"]):
            return None
        if name.startswith("e2e/"):
            words = ["python3"]
        elif inside(command[0], self.build):
            words = [self.program(command[0], name)]
        else:
            return None
        words += [self.copy(a) if inside(a, self.source) else a for a in command[1:]]
        env = [f"{k}={v}" for k, v in test["env"].items()
               if self.build not in v and k != "LD_LIBRARY_PATH"]
        return f"{name}\t{test['timeout']}\t{shlex.join(env + words)}\n"


def main():
    build, source, bundle = map(os.path.abspath, sys.argv[1:4])
    done = subprocess.run(["meson", "introspect", build, "--tests"], check=True,
                          capture_output=True, text=True)
    packer = Packer(build, source, bundle)
    lines = [line for line in map(packer.line, json.loads(done.stdout)) if line]
    for name in sorted(os.listdir(os.path.join(source, "tests", "e2e"))):
        if name.endswith(".py"):
            packer.copy(os.path.join(source, "tests", "e2e", name))
    packer.copy(os.path.join(source, "deploy", "slurm"))
    with open(os.path.join(bundle, "tests", "list"), "w", encoding="utf-8") as file:
        file.writelines(lines)
    print(f"{len(lines)} tests")


if __name__ == "__main__":
    main()

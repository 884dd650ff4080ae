#!/usr/bin/env python3
"""Do two builds of one commit have the same bytes?  The sources are copied to two folders, whose
paths differ in length and depth, and each copy builds the daemons in a folder of its own, without
ccache and with the flags of a release.  test_hardening.py looks for paths of this machine in the
daemons that are tested otherwise."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["DPTRAIN_SOURCE"]
TARGETS = ("driver/dpdriver", "follower/dpfollower")
PLACES = (("a", "a/build"), ("much/longer", "other place/b"))  # of the sources; of the build
ENV = {**os.environ, "CCACHE_DISABLE": "1"}


def run(*command, **more):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **more)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}"


def left_out(folder, names):
    """Of the top folder, what is no source of the daemons."""
    return [name for name in names if folder == SOURCE and
            (name in (".git", "tests") or name.startswith("build"))]


def build(folder, source, place):
    """The hashes of the daemons."""
    source, place = os.path.join(folder, source), os.path.join(folder, place)
    shutil.copytree(SOURCE, source, ignore=left_out)
    run("meson", "setup", place, source, "--buildtype=release", "-Dtests=disabled",
        "-Dgpu=disabled", env=ENV)
    run("ninja", "-C", place, *TARGETS, env=ENV)
    hashes = {}
    for target in TARGETS:
        with open(os.path.join(place, target), "rb") as file:
            data = file.read()
        assert folder.encode() not in data, f"{target} names {folder}"
        hashes[target] = hashlib.sha256(data).hexdigest()
    return hashes


class Reproducible(unittest.TestCase):
    def test_two_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            one, other = (build(folder, *place) for place in PLACES)
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""test_onednn3 BUILD_DIR VERSION - the CPU backend built against oneDNN 3.x, and the table of
operators run over it.

VERSION is the oneDNN that the build has.  If that is 3.x, the other tests have done all of this.
The 3.x to build against is the prefix in $DPTRAIN_ONEDNN3, or the one that a Python here has from
`pip install onednn-devel-cpu-gomp`.  Without any the test is skipped (77).
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESTS = ["tests/op/test_cases", "tests/backend/test_cpu", "tests/backend/test_panels",
         "tests/backend/test_widened"]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def major(prefix):
    """The major version of the oneDNN under this prefix, or None."""
    try:
        with open(f"{prefix}/include/oneapi/dnnl/dnnl_version.h", encoding="utf-8") as file:
            found = re.search(r"DNNL_VERSION_MAJOR\s+(\d+)", file.read())
    except OSError:
        return None
    return found and found.group(1)


def find():
    named = os.environ.get("DPTRAIN_ONEDNN3")
    if named and major(named) != "3":
        sys.exit(f"DPTRAIN_ONEDNN3 is {named}: no oneDNN 3.x has its headers there")
    for prefix in [named, sys.prefix]:
        if prefix and major(prefix) == "3":
            return os.path.abspath(prefix)
    return skip("no oneDNN 3.x here; DPTRAIN_ONEDNN3 can name the prefix of one, such as a venv "
                "with onednn-devel-cpu-gomp")


def run(*command, **more):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, **more)


def main():
    build, version = sys.argv[1:]
    if version.startswith("3."):
        skip(f"this build has oneDNN {version} itself")
    prefix = find()
    if not os.path.exists(f"{build}/build.ninja"):
        run("meson", "setup", build, ROOT, "--buildtype=release", "--werror", "-Dtests=enabled",
            "-Dgpu=disabled", f"-Dc_args=-I{prefix}/include",
            f"-Dc_link_args=-L{prefix}/lib -Wl,-rpath,{prefix}/lib", stdout=subprocess.DEVNULL)
    run("ninja", "-C", build, *TESTS)
    for test in TESTS:
        run(f"{build}/{test}", env=dict(os.environ, OMP_WAIT_POLICY="passive"))


if __name__ == "__main__":
    main()

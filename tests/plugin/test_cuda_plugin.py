#!/usr/bin/env python3
"""Tests the real plugin on this machine: its exports, and its messages with and without NVIDIA's
libraries and driver.  Usage: test_cuda_plugin.py PLUGIN SHOW_PLUGIN TOOLKIT."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

plugin, show, toolkit = map(os.path.abspath, sys.argv[1:4])  # some scripts here change the folder
# The real folder of the toolkit's libraries: lib64 may be a link.
lib = os.path.realpath(toolkit + "/lib64")
failures = 0
clean = {k: v for k, v in os.environ.items()
         if k not in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH")}


def check(good, what, text=""):
    global failures
    print(("ok: " if good else "FAILED: ") + what)
    if not good:
        failures += 1
        print(text)


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, env={**clean, **more})
    return done.returncode, done.stdout + done.stderr


def build(folder, library, source):
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/{library}",
                    f"-Wl,-soname,{library}"], input=source, text=True, check=True)


def refused(what, library, source, says):
    """Puts another version of a library first in the search, and checks the error's text."""
    folder = tempfile.mkdtemp()
    try:
        build(folder, library, source)
        status, text = run([show], LD_LIBRARY_PATH=folder)
        check(status == 1 and f"error: {folder}/{library} is {says}" in text, what, text)
    finally:
        shutil.rmtree(folder)


def other_versions():
    """The error names the library's version.  It does not name a missing function, and the program
    does not die."""
    refused("an old NCCL is refused by its version", "libnccl.so.2",
            "int ncclGetVersion(int *v) { *v = 22005; return 0; }",
            "NCCL 2.20.5, want 2.28 or newer: ")
    refused("a cuDNN for another CUDA is refused", "libcudnn.so.9",
            "unsigned long cudnnGetCudartVersion(void) { return 12090; }",
            "a cuDNN for CUDA 12, want one for CUDA 13: ")


# A driver whose functions fail with the code in FAKE_FAILURE.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
static int number(const char *name) { return atoi(getenv(name)); }
int cuInit(unsigned flags) { (void)flags; return number("FAKE_FAILURE"); }
int cuDriverGetVersion(int *v) { *v = number("FAKE_VERSION"); return 0; }
int cuGetProcAddress_v2(const char *name, void **p, int v, unsigned long long flags, int *found)
{
    (void)v, (void)flags;
    *p = !strcmp(name, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
         : strstr(name, "cuGetProcAddress")  ? (void *)cuGetProcAddress_v2
                                             : (void *)cuInit;
    if (found)
        *found = 0;
    return 0;
}
int cuGetProcAddress(const char *name, void **p, int v, unsigned long long flags)
{
    return cuGetProcAddress_v2(name, p, v, flags, NULL);
}
"""


def no_gpu():
    """The message gives the runtime's text about the driver's failure, and the remedy."""
    absent = "CUDA_VISIBLE_DEVICES is empty, which hides all: unset it"
    if not os.path.exists("/dev/nvidiactl"):
        absent = "there is no /dev/nvidiactl: no nvidia module is loaded (modprobe nvidia, dmesg)"
    elif not os.access("/dev/nvidiactl", os.R_OK | os.W_OK):
        absent = "this user may not open /dev/nvidiactl"
    elif not glob.glob("/dev/nvidia[0-9]*"):
        absent = "there is no /dev/nvidia0, nor another"
    with tempfile.TemporaryDirectory() as folder:
        build(folder, "libcuda.so.1", DRIVER)
        for failure, version, says in (
                (100, 13000, "no CUDA-capable device is detected; " + absent),
                (802, 13000, "system not yet initialized; is nvidia-fabricmanager running"),
                (100, 12040, "; the driver is for CUDA 12.4, this is CUDA 13.")):
            _, text = run([show], LD_LIBRARY_PATH=folder, CUDA_VISIBLE_DEVICES="",
                          FAKE_FAILURE=str(failure), FAKE_VERSION=str(version))
            check(re.search("no GPU can be used: .*" + re.escape(says), text), says, text)


def exports():
    _, text = run(["nm", "-D", "--defined-only", plugin])
    names = [line.split()[-1] for line in text.splitlines()]
    check(names == ["dptrain_plugin"], "exports one symbol", text)


def as_it_is():
    status, text = run([show])
    check(status == 0, "loads without LD_LIBRARY_PATH", text)
    for what in ("CUDA runtime: 13.", "cuDNN: 9.", "NCCL: 2.", "cuBLASLt: 13."):
        check(what in text, f"says {what}", text)
    check("nvrtc compiles: yes" in text, "compiles at run time", text)
    if "driver, knows CUDA: none" in text:
        check("no GPU can be used: there is no NVIDIA driver" in text, "says: no driver", text)
        check("error: cuda:0: cannot use the GPU" in text, "does not open", text)


def hidden(script):
    """Runs a shell script in a mount namespace where the libraries are hidden from their usual
    folder and are in $REAL instead."""
    with tempfile.TemporaryDirectory() as work:
        setup = (f"set -e; mkdir -p {work}/real; mount --bind {lib} {work}/real; "
                 f"mount -t tmpfs none {lib}; REAL={work}/real; WORK={work}; ")
        return run(["unshare", "-m", "--propagation", "private", "sh", "-c", setup + script])


def without_toolkit():
    status, text = hidden(f"cd /; exec {show}")
    check(status == 1, "does not load without the toolkit", text)
    check(re.search(r"^error: libraries not found: libcudart.so.13, libcublasLt.so.13, "
                    r"libcudnn.so.9, libcudnn_graph.so.9, libnccl.so.2; ", text, re.M),
          "lists all that is missing", text)


def from_wheels():
    """Libraries in the folders that pip makes are found through the python3 on PATH."""
    builtins = [n for n in os.listdir(lib) if re.fullmatch(r"libnvrtc-builtins\.so\.13\.\d+", n)]
    wheels = {"cu13": ["libcudart.so.13", "libcublasLt.so.13", "libnvrtc.so.13",
                       "libnvJitLink.so.13"] + builtins,
              "cudnn": ["libcudnn.so.9"], "nccl": ["libnccl.so.2"]}
    wheels["cudnn"] += sorted(n for n in os.listdir(lib)
                              if re.fullmatch(r"libcudnn_\w+\.so\.9", n))
    make = "".join(f"mkdir -p $WORK/site/nvidia/{d}/lib; "
                   + "".join(f"ln -s $REAL/{n} $WORK/site/nvidia/{d}/lib/; " for n in names)
                   for d, names in wheels.items())
    status, text = hidden(make + f"cd /; PYTHONPATH=$WORK/site exec {show}")
    check(status == 0, "loads from site-packages/nvidia/*/lib", text)
    check(re.search(r"libcudnn.so.9: /.*/nvidia/cudnn/lib/libcudnn.so.9", text),
          "says where it found cuDNN", text)
    check(re.search(r"libnvrtc-builtins: /.*/nvidia/cu13/lib/libnvrtc-builtins.so.13", text) and
          "nvrtc compiles: yes" in text, "compiles at run time with what pip has", text)


def half_a_cudnn():
    """cuDNN's front library without its parts is reported, and the program does not die."""
    status, text = hidden("mkdir $WORK/lib64; for n in cudart cublasLt; do "
                          "ln -s $REAL/lib$n.so.13 $WORK/lib64/; done; "
                          "ln -s $REAL/libcudnn.so.9 $REAL/libnccl.so.2 $WORK/lib64/; "
                          f"cd /; CUDA_HOME=$WORK exec {show}")
    check(status == 0 and "cuDNN is not whole" in text and "cuDNN: none" in text,
          "half a cuDNN is named", text)


def not_from_here():
    """A folder `nvidia` in the working directory is not searched."""
    status, text = hidden("mkdir -p $WORK/nvidia/cu13/lib; "
                          "ln -s $REAL/libcudart.so.13 $WORK/nvidia/cu13/lib/; "
                          f"cd $WORK; exec {show}")
    check(status == 1 and "error: libraries not found: libcudart.so.13, " in text,
          "does not load from the working directory", text)


exports()
other_versions()
no_gpu()
as_it_is()
namespaces = os.geteuid() == 0 and shutil.which("unshare") and \
    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
if namespaces:
    without_toolkit()
    from_wheels()
    half_a_cudnn()
    not_from_here()
else:
    print("skipped: hiding the toolkit needs root and mount namespaces")
sys.exit(1 if failures else 0)

"""process - runs a program for a limited time, ends a program with all its descendants, and tells
where the threads of a hanging program stand."""

import os
import shutil
import signal
import subprocess
import tempfile

# Seconds that a training on a GPU may take (it needs a few); other limits are fractions of it.
PATIENCE = float(os.environ.get("DPTRAIN_PATIENCE", "90"))
DEBUG_S = min(30, PATIENCE)  # seconds that a debugger may take for one process


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def descendants(top):
    """The process `top` and all its descendants."""
    below = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = read(f"/proc/{entry}/stat").rpartition(")")[2].split()
            if fields:
                below.setdefault(int(fields[1]), []).append(int(entry))
    found = [top]
    for pid in found:
        found += below.get(pid, [])
    return found


def end(child):
    """Kill a child and all its descendants.  Returns "", or the complaint that a process does not
    end: a GPU's driver may hold a process for good, which is not waited for."""
    for pid in reversed(descendants(child.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        return f"process {child.pid} was killed, and is still there after 10 s"
    return ""


def bounded(argv, seconds, **options):
    """Run a program; (status, or None: it took longer; its output).  No child of the program can
    keep us waiting."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True, **options)
        except OSError as error:
            return -1, f"{error}\n"
        try:
            status = child.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            trouble = end(child) if child.poll() is None else ""
        output.seek(0)
        return status, output.read() + trouble


def toolkit_program(name):
    """The path of a program of the CUDA toolkit, on PATH or in the toolkit's folder; or None."""
    places = [shutil.which(name) or ""]
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home:
            places += [os.path.join(home, "bin", name), os.path.join(home, name, name)]
    return next((p for p in places if p and os.path.isfile(p) and os.access(p, os.X_OK)), None)


# ---- where threads stand ----


def tasks_of(pid):
    try:
        return sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return []


def tasks_told(pid):
    for task in tasks_of(pid):
        at = f"/proc/{pid}/task/{task}"
        status = dict(line.split(":", 1) for line in read(at + "/status").splitlines()
                      if ":" in line)
        yield (f"   thread {task} {read(at + '/comm')}: {status.get('State', '?').strip()}, "
               f"{read(at + '/wchan')}, syscall {read(at + '/syscall')[:60]}")
        yield from (f"      {line}" for line in read(at + "/stack").splitlines())


distrusted = set()  # debuggers that took too long


def debuggers():
    """The debuggers that there are; cuda-gdb, which can look at the GPU's kernels, comes first."""
    found = [toolkit_program("cuda-gdb"), shutil.which("gdb")]
    return [p for p in found if p and p not in distrusted]


def backtraces(pid, until):
    """A debugger's output about the threads of a process, and at the end, since it may take long,
    about the GPU's kernels.  until(): seconds left."""
    text = ""
    for program in debuggers():
        status, said = bounded(
            [program, "-batch", "-p", str(pid), "-ex", "set pagination off",
             "-ex", "thread apply all bt", "-ex", "info cuda kernels"], min(DEBUG_S, until()))
        text += f"-- {program} on {pid}: status {status}\n{said}\n"
        if status is None:
            distrusted.add(program)
        if "#0" in said:
            break
    return text


def stacks_of(top, until=lambda: DEBUG_S):
    """The place at which each thread of a process and of its descendants stands: from /proc, and
    from a debugger if there is one and time is left."""
    text, pids = [], descendants(top)
    for pid in pids:
        text.append(f"-- process {pid}: {read(f'/proc/{pid}/cmdline')!r}")
        text += tasks_told(pid)
    for pid in pids:
        if until() > 1:
            text.append(backtraces(pid, until))
    return "\n".join(text)

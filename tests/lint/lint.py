#!/usr/bin/env python3
"""lint - the house's rules that no compiler checks (DESIGN section 1, STYLE).

lint.py [ROOT]: reads every source of the tree, prints what breaks a rule as path:line: text, and
exits with 1 if anything did.  Lines that start with "note:" only ask for a look.
"""
import os
import re
import subprocess
import sys

# common/: a folder includes only itself and the folders before it.
ROOMS = ["base", "config", "inject", "wire", "session", "net", "tensor", "ir", "op", "model",
         "backend", "coll", "program", "optim", "data", "ckpt", "train", "report", "daemon"]

# Who may see an outside library's headers: session/ and wire/ stay pure, and each library stays
# replaceable in one place.
LIBRARIES = [
    (r"uv\.h", {"net", "daemon", "driver", "follower"}),
    (r"openssl/", {"net"}),
    (r"yaml\.h", {"config"}),
    (r"(oneapi/)?dnnl", {"backend"}),
    (r"gloo/", {"coll"}),
    (r"zlib\.h", {"data"}),
    (r"xxhash\.h", {"base"}),
    (r"(sys/)?socket\.h|netinet/|netdb\.h|arpa/", {"net", "coll", "daemon", "driver", "follower"}),
]

# Written by the build, so named without a folder.
GENERATED = re.compile(r".*\.pb-c\.h|op_list\.h")

# What belongs to one machine or to a package host.  Split, so that this file passes its own rule.
FOREIGN = re.compile("|".join([
    "/wo" + r"rk/\w", "/tmp/" + "build", "/ro" + r"ot/\w", r"\bdeb\." + r"debian\.org",
    r"snapshot\." + r"debian", r"\bpypi\." + "org", r"files\.python" + "hosted",
    r"\bpkg\." + "dev"]))

UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b")
WITH_ISSUE = re.compile(r"issue \d+")
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
C_SOURCE = (".c", ".h", ".cc", ".cu", ".cuh")
WIDE = C_SOURCE + (".py", ".sh", ".build", ".proto", ".ci/run")
TEXT = WIDE + (".txt", ".md", ".yaml", ".yml", ".service")
MAX_WIDTH, MAX_LINES, MAX_FUNCTION = 100, 600, 80


def list_files(root):
    """All sources: what git tracks or would track, or without git everything but build folders."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        names = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, folders, files in os.walk(root) for name in files]
        names = [n for n in names if not n.startswith(("build", ".git/", "runs/"))]
    return sorted(n for n in names if n.endswith(TEXT) and os.path.isfile(os.path.join(root, n)))


def room_of(path):
    """"net" for common/net/conn.c, "driver" for driver/main.c, "" for what has no room (tests)."""
    parts = path.split("/")
    if parts[0] == "common" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("driver", "follower") else ""


def check_include(room, kind, name):
    """What is wrong with this include in a file of that room, or None."""
    if not room:
        return None
    for pattern, allowed in LIBRARIES:
        if re.match(pattern, name) and kind == "<" and room not in allowed:
            return f"{room}/ must not see <{name}>; only {', '.join(sorted(allowed))} may"
    if kind == "<" or GENERATED.fullmatch(name):
        return None
    if "/" not in name:
        return f'write "{room}/{name}": includes are written from common/'
    target = name.split("/")[0]
    if name.startswith(("../", "driver/", "follower/")):
        return None if target == room else f'"{name}" is another daemon\'s, or not from common/'
    if target not in ROOMS:
        return None if GENERATED.fullmatch(os.path.basename(name)) else f'"{name}": no such room'
    if room in ROOMS and ROOMS.index(target) > ROOMS.index(room):
        return f'{room}/ must not include "{name}": {target}/ stands below it (DESIGN section 1)'
    return None


def check_includes(path, lines):
    room = room_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        problem = match and check_include(room, match[1], match[2])
        if problem:
            yield number, problem
    if path.startswith("common/") and room not in ROOMS and path.endswith(C_SOURCE):
        yield 1, f"common/{room}/ is no room of DESIGN section 1; give it its place in lint.py"


def check_guard(path, lines):
    if not path.endswith(".h") or "_compat/" in path:  # what stands in for a library's header
        return
    stem = path[len("common/"):] if path.startswith("common/") else path
    want = re.sub(r"\W", "_", stem).upper()
    directives = [line.strip() for line in lines if line.startswith("#")]
    if directives[:2] != [f"#ifndef {want}", f"#define {want}"] or directives[-1] != "#endif":
        yield 1, f"the include guard must be {want}, first and last of all directives"


def check_lines(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_WIDTH and path.endswith(WIDE):
            yield number, f"{len(line)} columns, at most {MAX_WIDTH}"
        if line != line.rstrip() and not path.endswith(".md"):
            yield number, "blanks at the end of the line"
        if FOREIGN.search(line):
            yield number, f"names a machine's folder or a package host: {FOREIGN.search(line)[0]}"
        if UNFINISHED.search(line) and not WITH_ISSUE.search(line):
            yield number, f"{UNFINISHED.search(line)[0]} without an issue"


def check_code(path, lines):
    if not path.endswith(C_SOURCE):
        return
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*#\s*pragma\s+omp", line):
            yield number, "no OpenMP pragma of ours (DESIGN section 4)"
        if re.search(r"(?<![\w.>])exit\(", line) and path.startswith("common/"):
            yield number, "only main exits"
        if re.search(r"(?<!\w)assert\(", line) and not path.startswith("tests/"):
            yield number, "ASSERT of base/util.h is always on; assert() is not"


def long_functions(lines):
    start, name = 0, ""
    for number, line in enumerate(lines, 1):
        if re.match(r"[a-zA-Z_].*\)$", line):
            start, name = number, line
        elif line.startswith("}") and start:
            if number - start > MAX_FUNCTION:
                yield start, f"a function of {number - start} lines: {name[:60]}"
            start = 0


def notes(path, lines):
    """What only asks for a look."""
    if not path.endswith(C_SOURCE):
        return
    if len(lines) > MAX_LINES:
        yield 1, f"{len(lines)} lines; is there a second idea hiding in them?"
    yield from long_functions(lines)


def main(root):
    n_bad = n_files = 0
    for path in list_files(root):
        text = open(os.path.join(root, path), encoding="utf-8", errors="replace").read()
        lines = text.split("\n")
        n_files += 1
        if text and lines.pop():
            print(f"{path}:{len(lines) + 1}: no newline at the end")
            n_bad += 1
        for check in (check_includes, check_guard, check_lines, check_code):
            for number, problem in check(path, lines):
                print(f"{path}:{number}: {problem}")
                n_bad += 1
        for number, problem in notes(path, lines):
            print(f"note: {path}:{number}: {problem}")
    print(f"lint: {n_files} files, {n_bad} breaches")
    return 1 if n_bad or not n_files else 0


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "..")))

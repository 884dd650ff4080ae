#!/usr/bin/env python3
"""lint - checks the rules of this source tree that no compiler checks.

lint.py [ROOT] reads every source of the tree.  It prints each breach of a rule as path:line: text
and exits with 1 if there is one.  A line that starts with "note:" is no breach; it asks for a look.
"""
import os
import re
import subprocess
import sys

# The order of the rooms of common/ stands in this file: a room includes only itself and the rooms
# before it.  (So backend/, for instance, cannot include coll/, which comes later.)
ROOM_LIST = "common/meson.build"

# The rooms that may include an outside library's headers.  session/ and wire/ see none, and each
# library can be replaced in one room.
LIBRARIES = [
    (r"uv\.h", {"net", "daemon", "driver", "follower"}),
    (r"openssl/", {"net", "coll"}),
    (r"yaml\.h", {"config", "deepspeed"}),
    (r"(oneapi/)?dnnl", {"backend"}),
    (r"zlib\.h", {"data", "import"}),
    (r"(jpeglib|jerror)\.h", {"data"}),
    (r"png\.h", {"data", "see"}),
    (r"xxhash\.h", {"base"}),
    (r"rdma/", {"plugin"}),
    (r"(sys/)?socket\.h|netinet/|netdb\.h|arpa/", {"net", "coll", "daemon", "driver", "follower"}),
]

# Headers that the build writes are named without a folder.
GENERATED = re.compile(r".*\.pb-c\.h|\w+_list\.h")

# Names of one machine's folders or of a package host.  They are split here, so that this file
# passes its own rule.
FOREIGN = re.compile("|".join([
    "/wo" + r"rk/\w", "/tmp/" + "build", "/ro" + r"ot/\w", r"\bdeb\." + r"debian\.org",
    r"snapshot\." + r"debian", r"\bpypi\." + "org", r"files\.python" + "hosted",
    r"\bpkg\." + "dev"]))

UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b")
WITH_ISSUE = re.compile(r"issue \d+")
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
C_SOURCE = (".c", ".h", ".cc", ".cu", ".cuh")
WIDE = C_SOURCE + (".py", ".sh", ".build", ".proto", ".ci/run")
COMMENTED = tuple(end for end in WIDE if end != ".proto")
TEXT = WIDE + (".txt", ".md", ".yaml", ".yml", ".service")
UNWRAPPED = re.compile(r"^\s*\||\]\(|://")  # a row of a table, a link
MAX_WIDTH, MAX_LINES, MAX_FUNCTION = 100, 600, 80
MAX_README = 140
# The top level is fixed: these folders, meson's files, and the papers.
TOP_FILE = re.compile(r"meson\.build|[A-Z]+\.md|.*\.(txt|ya?ml)")  # a user's job.yaml may lie here
TOP = {".ci", "common", "deploy", "docs", "driver", "findings", "follower", "proto", "tests"}

# Functions of the product's headers that tests alone call, and that stay: they need what their
# module hides.
TEST_SEAMS = {
    # what a module has done, or has chosen
    "alloc_count", "coll_tcp_is_chained", "coll_tcp_piece", "cudnn_device_described",
    "perm_find", "program_print", "rules_all", "shards_bytes", "tapes_launches",
    # faults on purpose
    "alloc_fail_at", "low_precision_copy",
    # the same without a file, a stream of batches, or division
    "documents_each_line", "idx_parse", "loader_next", "state_new", "zip_parse",
    # the rest of a set of functions of which the product calls others
    "coll_broadcast_async", "graph_output",
    "program_output", "rng_next_normal",
    # the way back from tokens, which no sample of text takes yet
}

# The machines of the driver's session (session/driver_impl.h).
MACHINES = ["membership", "formation", "run", "watch"]


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


def read_rooms(root):
    """The rooms of common/ in their order."""
    path = os.path.join(root, ROOM_LIST)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return re.findall(r"^\s*subdir\('(\w+)'\)", file.read(), re.MULTILINE)


def room_of(path):
    """"net" for common/net/conn.c, "driver" for driver/main.c, "" for a file outside the rooms."""
    parts = path.split("/")
    if parts[0] == "common" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("driver", "follower") else ""


def check_include(rooms, room, kind, name):
    """Says why a file of this room must not have this include; None if it may."""
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
    if target not in rooms:
        return None if GENERATED.fullmatch(os.path.basename(name)) else f'"{name}": no such room'
    if room in rooms and rooms.index(target) > rooms.index(room):
        return f'{room}/ must not include "{name}": {target}/ comes later in {ROOM_LIST}'
    return None


def check_includes(path, lines, rooms):
    room = room_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        problem = match and check_include(rooms, room, match[1], match[2])
        if problem:
            yield number, problem
    if path.startswith("common/") and room not in rooms and path.endswith(C_SOURCE):
        yield 1, f"common/{room}/ is no room: {ROOM_LIST} does not name it"


def check_guard(path, lines):
    if not path.endswith(".h") or "_compat/" in path:  # these replace a header of a library
        return
    stem = path[len("common/"):] if path.startswith("common/") else path
    want = re.sub(r"\W", "_", stem).upper()
    directives = [line.strip() for line in lines if line.startswith("#")]
    if directives[:2] != [f"#ifndef {want}", f"#define {want}"] or directives[-1] != "#endif":
        yield 1, f"the include guard must be {want}, first and last of all directives"


def check_lines(path, lines):
    foreign = FOREIGN.search("\n".join(lines))
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_WIDTH and (path.endswith(WIDE) or
                                      path.endswith(".md") and not UNWRAPPED.search(line)):
            yield number, f"{len(line)} columns, at most {MAX_WIDTH}"
        if line != line.rstrip() and not path.endswith(".md"):
            yield number, "blanks at the end of the line"
        if foreign and FOREIGN.search(line):
            yield number, f"names a machine's folder or a package host: {FOREIGN.search(line)[0]}"
        if UNFINISHED.search(line) and not WITH_ISSUE.search(line):
            yield number, f"{UNFINISHED.search(line)[0]} without an issue"


def check_code(path, lines):
    if not path.endswith(C_SOURCE):
        return
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*#\s*pragma\s+omp", line):
            yield number, "no OpenMP pragma of ours"
        if re.search(r"(?<![\w.>])exit\(", line) and path.startswith("common/"):
            yield number, "only main exits"
        if re.search(r"(?<!\w)assert\(", line) and not path.startswith("tests/"):
            yield number, "ASSERT of base/util.h is always on; assert() is not"


def check_opening(path, lines):
    """Every source of the product opens with at least two lines that say what it is."""
    if not path.endswith(C_SOURCE) or not room_of(path) or "_compat/" in path:
        return
    end = next((n for n, line in enumerate(lines) if "*/" in line), 0)
    if not (lines and lines[0].startswith("/*") and end >= 1):
        yield 1, "opens with no comment of two lines or more that says what this file is"


def check_threads(path, lines):
    """The opening comment of a header of the product has a line on the threads that may call."""
    if not path.endswith(".h") or not room_of(path) or "_compat/" in path:
        return
    opening = "\n".join(lines).split("*/")[0]
    if not re.search(r"(?m)^ \* Threads: ", opening):
        yield 1, 'the opening comment has no line "Threads: ...", which says who may call'


def comments(path, lines):
    """(number of its first line, text) of each comment of a file, docstrings included."""
    text = "\n".join(lines)
    if path.endswith(C_SOURCE):
        pattern = r"/\*(.*?)\*/|((?:(?<!:)//[^\n]*\n\s*)+)"
    elif path.endswith(".py"):
        pattern = r'"""(.*?)"""|((?:(?:^|(?<=\s))#[^\n]*\n[^\S\n]*)+)'
    else:
        pattern = r"()((?:(?:^|(?<=\s))#[^\n]*\n[^\S\n]*)+)"
    for match in re.finditer(pattern, text + "\n", re.DOTALL | re.MULTILINE):
        said = match[1] or match[2] or ""
        yield text.count("\n", 0, match.start()) + 1, re.sub(r"(?m)^\s*(\*|//|#!?)+ ?", "", said)


def check_words(path, lines):
    """A sentence of a comment has a subject: "Who is late ...", "What it has ..." and "Whether it
    is late." lack one."""
    if not path.endswith(COMMENTED):
        return
    for number, text in comments(path, lines):
        for part in re.split(r"(?<=[.?!:;])\s+|\n\s*\n|[-*=]{2,}", text):
            sentence = " ".join(part.split())
            if re.match(r"(Who|What|Whether)\b", sentence) and not sentence.endswith("?"):
                yield number, f'a sentence of the comment has no subject: "{sentence[:50]}"'


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def bare(text):
    """A source without comments and texts; each line stays where it is."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)


def check_names(path, lines, tree):
    """A comment names files that exist: "op/add.c", "op/add", or the test "op/coverage".  The
    paragraph "Life:" of a header names functions that exist."""
    if not path.endswith(COMMENTED):
        return
    for number, text in comments(path, lines):
        for name in re.findall(r"(?<![\w/.-])(" + tree.room + r"/[a-z]\w*(?:\.[a-z]+)?)\b", text):
            if not tree.has(name):
                yield number, f"a comment names {name}, and there is no such file"
        life = re.search(r"(?m)^Life:(.*(?:\n .*)*)", text) if path.endswith(".h") else None
        for word in re.findall(r"\b[a-z]\w*_\w*[a-z0-9]\b", life[1] if life else ""):
            if word not in tree.words:
                yield number, f'"Life:" names {word}, and no code has it'


def check_finding(path, lines, tree):
    """A script of findings/ has the form of findings/README.md, and a row there."""
    if not re.match(r"findings/.*\.(sh|py)$", path):
        return
    head = "\n".join(lines[:40])
    for part in ("Guess: ", "Seen: ", "Exit status: "):
        if f"\n# {part}" not in head:
            yield 1, f'the head of a finding has no line "# {part}..."'
    if f"| `{os.path.basename(path)}` |" not in tree.text.get("findings/README.md", ""):
        yield 1, "findings/README.md has no row for it"


def prototypes(text):
    """(line, name) of each function that a header declares and does not define."""
    for match in re.finditer(r"^(?!typedef|static|return|#)[A-Za-z_][\w \t*]*?[ *](\w+)\(", text,
                             re.MULTILINE):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if re.match(r"\s*(__attribute__\s*\(\(.*\)\)\s*)?;", text[at:]):
            yield text.count("\n", 0, match.start()) + 1, match[1]


# The product's dialect of C (docs/style.md, section 9).
DIALECT = [
    (r"\bsizeof\s?\(\*+[\w.>-]+\)(?!->|\.|\[)|\bsizeof \(",
     "write sizeof *x, sizeof x, or sizeof(type)"),
    (r"\b(bool|_Bool|true|false)\b", "truth is an int: 1 or 0"),
    (r"\b(str|strn|strcase|mem)cmp\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\) == 0",
     "write !strcmp(a, b)"),
    (r"\b(if|while) \((str|strn|mem)cmp\((?:[^()]|\([^()]*\))*\)(\)| \|\|| &&)",
     "write strcmp(a, b) != 0"),
    (r"\b(if|while|ASSERT) ?\(+[\w.>-]+ [!=]= NULL", "a condition asks for p or !p"),
    (r"\bgoto\b", "no goto: if (rc == 0) rc = next(...)"),
    (r"^ *(} else )?if \(\(\w+ = (?!.*(\|\||&&)).*\) [<=!]+ \w+\)( {)?$",
     "assign, and then ask"),
    (r"\b(if|while) \(!?rc\)", "ask for rc < 0, or compare with 0"),
    (r"\bwhile \(1\)", "write for (;;)"),
    (r"; (\+\+|--)[\w.>-]+\)", "write i++"),
    (r"= {};", "write {0}"),
    (r"\bPRI[dioux](8|16|32|64|MAX|PTR)\b",
     "write %lld with (long long), %llu with (unsigned long long)"),
    (r"\bmemset\((\w[\w.>-]*), 0, sizeof \*\1\)|\bmemset\(&(\w[\w.>-]*), 0, sizeof \2\)",
     "write *p = (struct x){0}"),
]
COMPARED = {"cuda/blas.c"}  # structs that memcmp compares: their padding must be zero, too
CUDNN_WORDS = {"bool", "true"}  # an attribute of cuDNN's has this type


def check_dialect(path, tree):
    """The form that most lines have is the form of all: a reader and a search know one way."""
    if not (path.endswith((".c", ".h")) and room_of(path)) or "_compat/" in path:
        return
    for number, line in enumerate(tree.code[path].split("\n"), 1):
        for pattern, want in DIALECT:
            match = re.search(pattern, line)
            if match and not (match[0] in CUDNN_WORDS and path.endswith("cuda/cudnn_graph.c")) and \
                    not ("memset" in match[0] and path.endswith(tuple(COMPARED))):
                yield number, f"{match[0].strip()[:40]}: {want}"


# Words that only compilers for x86-64 have.  The definition of a macro does not use them.
OF_X86 = re.compile(r"(?!\s*#\s*define)(.*mmintrin\.h|.*\b(x86intrin|cpuid)\.h|.*\b(__)?asm(__)?\b|"
                    r".*\b_mm\w*_|.*\b__builtin_(ia32|cpu)_|.*\btarget(_clones)?\()")


def outside_x86(code):
    """(line, its text) of all that compilers for other processors see, too."""
    asks = []  # of each #if around the line: whether it asks for x86-64
    for number, line in enumerate(code.split("\n"), 1):
        word = re.match(r"\s*#\s*(if|el|endif)", line)
        if word and word[1] != "if" and asks:
            asks.pop()
        if word and word[1] != "endif":
            asks.append("__x86_64__" in line and "ifndef" not in line)
        if not any(asks):
            yield number, line


def check_portable(path, lines, tree):
    """Code of x86-64 stands where no other compiler sees it, and so does the include of a header
    with such code.  The link of a build for another processor tells whether it has a twin."""
    if not (path.endswith((".c", ".h")) and room_of(path)):
        return
    for number, line in outside_x86(tree.code[path]):
        name = "#" in line and INCLUDE.match(lines[number - 1])
        if OF_X86.match(line) and path.endswith(".c"):
            yield number, "code of x86-64: put it behind #ifdef __x86_64__, its twin behind #else"
        elif name and "common/" + name[2] in tree.of_x86:
            yield number, f"{name[2]} has code of x86-64: include it behind #ifdef __x86_64__"


def definitions(text):
    """(line, name) of each function that a source defines."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)[ \t]*", "", text)
    for match in re.finditer(r"^(?!typedef|return|else|#)(?:(?:[A-Za-z_][\w<>:,]*|\"\")[ \t*&]+)+"
                             r"(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(", text, re.MULTILINE):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if re.match(r"\s*\{", text[at:]):
            yield text.count("\n", 0, match.start()) + 1, match[1]


def check_functions(path, tree):
    """A profile, a breakpoint and a search find one function by its name.  So a name is defined in
    one file alone (more than once there if #if chooses, or a template is specialized), and no name
    of a static function is one bare word.  The build takes one of the files x.c and x_none.c, or of
    x_2.c and x_3.c: these have the same functions.  The rule spares the functions of headers.  A
    name that says a word twice was made of the file's word and a name that had it already."""
    if path not in tree.defined:
        return
    family = re.sub(r"_(none|\d)$", "", os.path.splitext(path)[0])
    for name, number in tree.defined[path].items():
        others = [p for p in tree.definers[name] if p != path and
                  re.sub(r"_(none|\d)$", "", os.path.splitext(p)[0]) != family]
        if others and name != "main":
            yield number, f"{name}() is {others[0]}'s, too: give each its file's word"
        words = [word.rstrip("s") for word in name.replace("all_to_all", "").split("_")]
        twice = next((w for w in words if len(w) > 2 and words.count(w) > 1), None)
        if twice and name not in tree.declared and path.endswith(C_SOURCE):
            yield number, f"{name}() says {twice} twice"
        if "_" not in name and name not in tree.declared | {"main"}:
            stem = os.path.splitext(os.path.basename(path))[0]
            yield number, f"a static function with a bare word for a name: {stem}_{name}"


def check_users(path, tree):
    """A function that a header of the product declares has a user in another file of the product,
    or in what deploy/ builds.  A user in its own file is enough if a test calls the function, too:
    the test looks at a part of the module alone."""
    if not (path.endswith((".h", ".cuh")) and room_of(path)):
        return
    for number, name in prototypes(tree.code[path]):
        users = tree.users.get(name, [])
        own = [p for p in users if room_of(p) and re.search(
            r"(?m)^[A-Za-z_][\w \t*]*[ *]" + name + r"\([^;{]*\{", tree.code[p])]
        is_tested = any(p.startswith("tests/") for p in users)
        n_own = sum(len(re.findall(rf"\b{name}\b", tree.code[p])) - 1 for p in own)
        is_used = any((room_of(p) or p.startswith("deploy/")) and p != path and p not in own
                      for p in users) or \
            len(re.findall(rf"\b{name}\b", tree.code[path])) > 1  # by a macro beside it
        if is_used and name in TEST_SEAMS:
            yield number, f"{name} has a user: TEST_SEAMS need not name it"
        if is_used or n_own and is_tested:
            continue
        if n_own:
            yield number, f"only {', '.join(own) or path} calls {name}: make it static there"
        elif not is_tested:
            yield number, f"no code calls {name}"
        elif name not in TEST_SEAMS:
            yield number, f"only tests call {name}: move it there"


def check_top(path):
    top, _, below = path.partition("/")
    is_known = top in TOP if below else TOP_FILE.fullmatch(top)
    if not is_known:
        yield 1, f"{top} is new at the top level, which is fixed: {', '.join(sorted(TOP))}, papers"


def seat_parts(text):
    """The machine that writes each member of struct seat, by the comments in session/seat.h."""
    part, owner = "", {}
    for line in (re.search(r"struct seat \{(.*?)\n\};", text, re.S) or [0, ""])[1].split("\n"):
        head = re.match(r"    /\* (\w+) \*/", line)
        part = head[1] if head and head[1] in MACHINES else part
        for member in re.findall(r"(\w+)\s*(?=[,;])", strip_comments(line)):
            owner[member] = part
    return owner


SEAT_WRITE = re.compile(r"(seats\[[^\]]*\]\.|\bs->)(\w+)(?:\.\w+)*\s*(?:=(?!=)|\+\+|--|[-+|&]=)")


def check_seats(machine, lines, owner):
    is_seat = False  # 1: in this function `s` is a seat
    for number, line in enumerate(lines, 1):
        is_seat = line != "}" and (is_seat or bool(re.search(r"struct seat \*s\b", line)))
        for how, member in SEAT_WRITE.findall(line):
            other = owner.get(member, "")
            if other and other != machine and (is_seat or how != "s->"):
                yield number, f"{other} alone writes a seat's {member} (session/seat.h)"


def check_machines(path, lines, tree):
    """The driver's session has four machines.  The header of each names its files.  In those the
    driver is a const view, so that each machine writes its own struct alone.  A machine looks at a
    seat by d->seats, which is const, and writes its own part of it."""
    folder, name = os.path.split(path)
    machine = next((m for m in MACHINES
                    if f"   {name} " in tree.text.get(f"{folder}/{m}.h", "")), None)
    if not machine or not name.startswith("driver_"):
        return
    yield from check_seats(machine, lines, seat_parts(tree.text.get(f"{folder}/seat.h", "")))
    for number, line in enumerate(lines, 1):
        if re.search(r"(?<!const )struct driver \*", line):
            yield number, "a machine sees the driver as const; return a decision"
        if re.search(r"\bd->(membership|formation|run|watch)\.seats\b", line):
            yield number, "write d->seats to look at a seat"


def check_readme(path, lines):
    if path == "README.md" and len(lines) > MAX_README:
        yield 1, f"{len(lines)} lines, at most {MAX_README}"


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
    """These only ask for a look."""
    if not path.endswith(C_SOURCE):
        return
    if len(lines) > MAX_LINES:
        yield 1, f"{len(lines)} lines; is there a second idea hiding in them?"
    yield from long_functions(lines)


class Tree:
    """The names in all sources, with which comments are compared."""

    def __init__(self, root, rooms):
        self.text = {path: open(os.path.join(root, path), encoding="utf-8", errors="replace").read()
                     for path in list_files(root)}
        self.room = "(?:" + "|".join(rooms + ["driver", "follower", "cpu", "cuda", "nccl"]) + ")"
        self.stems = {os.path.splitext(path)[0] for path in self.text}
        self.words = {word for path, text in self.text.items() if path.endswith(C_SOURCE)
                      for word in re.findall(r"\w+", strip_comments(text))}
        self.code = {path: bare(text) for path, text in self.text.items()
                     if path.endswith(C_SOURCE)}
        self.of_x86 = {path for path, code in self.code.items() if path.endswith(".h") and
                       any(OF_X86.match(line) for _, line in outside_x86(code))}
        self.users = {}  # the sources that have a word
        for path, text in self.code.items():
            for word in set(re.findall(r"\w+", text)):
                self.users.setdefault(word, []).append(path)
        self.defined = {path: {name: number for number, name in definitions(text)}
                        for path, text in self.code.items()
                        if room_of(path) and not path.endswith((".h", ".cuh"))}
        self.definers = {}  # the product's sources that define a function
        for path, names in self.defined.items():
            for name in names:
                self.definers.setdefault(name, []).append(path)
        self.declared = {name for path, text in self.code.items() if path.endswith((".h", ".cuh"))
                         for _, name in prototypes(text)}

    def has(self, name):
        """The file of this name, with or without its ending, or a test's, or one of a family."""
        stem, ending = os.path.splitext(name)
        for folder in ("", "common/", "common/backend/", "common/coll/", "tests/"):
            if folder + name in self.text or not ending and (
                    folder + stem in self.stems or
                    any(s.startswith((folder + stem + "_", folder + stem + "/"))
                        for s in self.stems)):
                return True
        return not ending and "tests/" + stem.replace("/", "/test_") in self.stems


def main(root):
    n_bad = n_files = 0
    rooms = read_rooms(root)
    tree = Tree(root, rooms)
    for path, text in tree.text.items():
        lines = text.split("\n")
        n_files += 1
        if text and lines.pop():
            print(f"{path}:{len(lines) + 1}: no newline at the end")
            n_bad += 1
        found = [*check_includes(path, lines, rooms), *check_guard(path, lines),
                 *check_lines(path, lines), *check_code(path, lines), *check_opening(path, lines),
                 *check_threads(path, lines), *check_words(path, lines),
                 *check_names(path, lines, tree), *check_finding(path, lines, tree),
                 *check_users(path, tree), *check_functions(path, tree),
                 *check_dialect(path, tree), *check_portable(path, lines, tree),
                 *check_machines(path, lines, tree), *check_readme(path, lines), *check_top(path)]
        for number, problem in found:
            print(f"{path}:{number}: {problem}")
        n_bad += len(found)
        for number, problem in notes(path, lines):
            print(f"note: {path}:{number}: {problem}")
    print(f"lint: {n_files} files, {n_bad} breaches")
    return 1 if n_bad or not n_files else 0


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "..")))

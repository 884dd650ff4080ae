#!/usr/bin/env python3
"""Tests of lint.py: each rule finds its breach, at its line, and accepts sources that keep the
rule.  Each test lays out a small tree of its own."""
import io
import os
import sys
import tempfile
from contextlib import redirect_stdout

import lint

# The order of the rooms, which lint.py reads from the tree that it checks.
ROOMS = ["base", "config", "wire", "session", "net", "op", "optim", "data", "backend", "coll",
         "program", "train"]
MESON = "".join(f"subdir('{room}')\n" for room in ROOMS)

GUARDED = "#ifndef BASE_A_H\n#define BASE_A_H\n{}\n#endif\n"

# Each source of the product opens with this.  The rows that want no breach get it in front.
OPENING = "/* a - a file.\n * Threads: any. */\n"

# path, content, the complaint that is wanted ("" for none)
CASES = [
    ("common/session/a.c", '#include "wire/msg.h"\n#include "session/b.h"\n', ""),
    ("common/session/a.c", '\n#include "net/conn.h"\n', "a.c:2: session/ must not include"),
    ("common/base/a.c", '#include "config/job.h"\n', "base/ must not include"),
    ("common/optim/a.c", '#include "program/plan.h"\n', "optim/ must not include"),
    ("common/program/a.c", '#include "optim/sgd.h"\n', ""),
    ("common/backend/a.c", '#include "coll/nccl/comm.h"\n', "backend/ must not include"),
    ("common/train/a.c", '#include "data/loader.h"\n#include <stdio.h>\n', ""),
    ("common/session/a.c", "#include <uv.h>\n", "session/ must not see <uv.h>"),
    ("common/wire/a.c", "#include <openssl/ssl.h>\n", "wire/ must not see <openssl/ssl.h>"),
    ("common/session/a.c", "#include <sys/socket.h>\n", "session/ must not see"),
    ("common/train/a.c", "#include <oneapi/dnnl/dnnl.h>\n", "train/ must not see"),
    ("common/net/a.c", "#include <uv.h>\n", ""),
    ("common/wire/a.c", '#include "control.pb-c.h"\n', ""),
    ("common/wire/a.c", '#include "msg.h"\n', 'write "wire/msg.h"'),
    ("common/wire/a.c", '#include "nowhere/msg.h"\n', "no such room"),
    ("common/attic/a.c", "int x;\n", "common/attic/ is no room: common/meson.build"),
    ("common/meson.build", MESON.replace("'net'", "'attic'"), ""),
    ("driver/a.c", '#include "follower/b.h"\n', "another daemon"),
    ("follower/a.c", '#include "driver/b.h"\n', "another daemon"),
    ("driver/a.c", '#include "driver/b.h"\n#include "train/train.h"\n', ""),
    ("common/base/a.h", GUARDED.format("int x;"), ""),
    ("common/base/a.h", "int x;\n", "include guard must be BASE_A_H"),
    ("common/base/b.h", GUARDED.format("int x;"), "include guard must be BASE_B_H"),
    ("driver/a.h", GUARDED.format(""), "include guard must be DRIVER_A_H"),
    ("common/base/a.c", "/* " + "x" * 97 + "\n", ""),
    ("common/base/a.c", "/* " + "x" * 98 + "\n", "a.c:1: 101 columns"),
    ("common/base/a.c", "/* " + "\u00e9" * 97 + "\n", ""),
    ("README.md", "\nsee " + "x" * 97 + "\n", "README.md:2: 101 columns"),
    ("docs/a.md", "x" * 100 + "  \n", "102 columns"),
    ("docs/a.md", "  | " + "x" * 200 + " |\n", ""),
    ("docs/a.md", "[some](" + "x" * 200 + ")\n", ""),
    ("docs/a.md", "x" * 98 + "  \n", ""),
    ("common/base/a.c", "int x; \n", "blanks at the end"),
    ("common/base/a.c", "int x;", "no newline at the end"),
    ("common/base/a.c", "/* TO" + "DO: more */\n", "TO" + "DO without an issue"),
    ("common/base/a.c", "/* TO" + "DO: more (issue 12) */\n", ""),
    ("deploy/a.sh", "cd /wo" + "rk/x\n", "names a machine's folder"),
    ("README.md", "see pypi." + "org\n", "package host"),
    ("common/base/a.c", "#pragma omp parallel\n", "no OpenMP pragma"),
    ("common/base/a.c", "    exit(1);\n", "only main exits"),
    ("common/base/a.c", "    _exit(1);\n    atexit(x);\n", ""),
    ("driver/a.c", "    exit(1);\n", ""),
    ("common/base/a.c", "    assert(x);\n", "ASSERT of base/util.h"),
    ("common/base/a.c", "    static_assert(x);\n    ASSERT(x);\n", ""),
    ("common/base/a.c", "int x;\n", "a.c:1: opens with no comment"),
    ("common/base/a.c", "/* a - one line. */\nint x;\n", "a.c:1: opens with no comment"),
    ("driver/a.c", "#include <x.h>\n/* Two\n * lines. */\n", "a.c:1: opens with no comment"),
    ("driver/a.h", "/* a - b.\n * c. */\nint x; /*\n * Threads: any. */\n",
     'a.h:1: the opening comment has no line "Threads: ...'),
    ("driver/a.c", "/* Two\n * lines. */\nint x; /* What it is. */\n",
     'a.c:3: a sentence of the comment has no subject: "What it is."'),
    ("tests/a.c", "/* It is late.  Who was\n * lost has to go. */\n", '"Who was lost has to go."'),
    ("tests/a.c", "int x;\n// Who was lost goes.\n", 'a.c:2: a sentence of'),
    ("tests/a.c", "/* Whether it\n * is late. */\n", '"Whether it is late."'),
    ("tests/a.c", "/* It asks whether. */\n", ""),
    ("tests/a.c", "/* Who is late?  What now?  It asks who.  Whoever comes. */\n", ""),
    ("tests/a.py", '"""a - b.\n\nWhat is left.\n"""\n', 'a.py:1: a sentence of'),
    ("tests/a.py", "x = 1  # W" "ho waits.\ny = '# W" "hat'\n", 'a.py:1: a sentence of'),
    ("tests/a.sh", "#!/bin/sh\n# run.\n# What is left.\nx=${y#What }\n", 'a.sh:1: a sentence of'),
    ("tests/a.sh", "#!/bin/sh\nx=${y#What is left.}\n", ""),
    ("tests/a.c", "/* Its header is\n * op/none.h. */\n", "a.c:1: a comment names op/none.h"),
    ("tests/a.py", "# common/meson.build and op/none have it.\n", "a comment names op/none"),
    ("tests/op/test_some.c", "/* See op/some, tests/op/test_some.c and x/none.c. */\n", ""),
    ("common/base/a.h", "/* a - b.\n *\n * Life:    a_new -> { a_run\n *          -> a_stop } -> "
     "a_free.\n * Threads: see a_gone. */\n" + GUARDED.format("int a_new, a_run, a_free;"),
     '"Life:" names a_stop, and no'),
    ("common/base/a.h", "/* a - b.\n *\n * Life:    a_new -> a_run.\n * Threads: see a_gone. */\n" +
     GUARDED.format("int a_new, a_run;"), ""),
    ("findings/a.sh", "# a\n#\n# Guess: x\n# Seen:  y\n", 'no line "# Exit status: ..."'),
    ("findings/a.sh", "# a\n#\n# Guess: x\n# Seen:  y\n# Exit status: 0\n", "has no row for it"),
    ("tools/a.py", "x = 1\n", "tools is new at the top level"),
    ("setup.py", "x = 1\n", "setup.py is new at the top level"),
    ("meson.build", "", ""),
    ("README.md", "x\n" * 141, "README.md:1: 141 lines"),
    ("README.md", "x\n" * 140, ""),
]


# The dialect: a line of a function in the product, and the complaint that is wanted.
OF_DIALECT = [
    ("x = xcalloc(1, sizeof(*x->y));", "write sizeof *x"),
    ("x = xcalloc(1, sizeof(struct y) + sizeof *x + sizeof(*x)->y);", ""),
    ("bool x = 1;", "truth is an int"),
    ("x = false;", "truth is an int"),
    ('put("true"); /* true */', ""),
    ("if (x && strncmp(f(a, g(b)), c, 1) == 0 && y)", "write !strcmp"),
    ("if (!strcmp(a, b) && f(x) == 0)", ""),
    ("if (memcmp(a, b, sizeof(c)))", "write strcmp(a, b) != 0"),
    ("if (strcmp(a, b) || c)", "write strcmp(a, b) != 0"),
    ("if (strcmp(a, b) != 0 && strcmp(a, b) < 0)", ""),
    ("if (x->y.z == NULL)", "a condition asks for p or !p"),
    ("const int has_y = x->y != NULL;", ""),
    ("goto out;", "no goto"),
    ("if ((rc = f(g(x), y)) < 0) {", "assign, and then ask"),
    ("} else if ((n = f(x)) == 0)", "assign, and then ask"),
    ("if ((rc = f(x)) < 0 || (rc = g(x)) < 0)", ""),
    ("if (rc)", "ask for rc < 0"),
    ("while (1)", "write for (;;)"),
    ("for (int i = 0; i < n; ++i)", "write i++"),
    ("struct x y = {};", "write {0}"),
    ('printf("%" PRId64, x);', "write %lld with (long long)"),
    ('printf("%lld PRId64", (long long)x);', ""),
    ("memset(x->y, 0, sizeof *x->y);", "write *p = (struct x){0}"),
    ("memset(&x, 0, sizeof x);", "write *p = (struct x){0}"),
    ("memset(x, 0, sizeof x);", ""),
    ("memset(x, 0, n * sizeof *x);", ""),
]

# The files of a machine of the driver's session, beside the header that names them.
MACHINE = ("common/session/run.h", "/* run - a machine.\n *\n *   driver_a.c  does it\n *\n * "
           "Threads: any. */\n#ifndef SESSION_RUN_H\n#define SESSION_RUN_H\n#endif\n")

SEAT = ("common/session/seat.h", "/* seat - two parts.\n * Threads: any. */\n"
        "#ifndef SESSION_SEAT_H\n#define SESSION_SEAT_H\nstruct seat {\n    /* run */\n"
        "    int rss;\n    /* watch */\n    struct progress at; /* where; it is */\n};\n#endif\n")

# path, content, the complaint that is wanted ("" for none), beside this definition of a_run
OF_FUNCTIONS_BESIDE = ("common/base/a_run.c", OPENING + "static int a_run(void)\n{\n}\n")
OF_FUNCTIONS = [
    ("common/op/b.c", "static int b_run(void)\n{\n}\n", ""),
    ("common/op/b.c", "static int a_run(void)\n{\n}\n", "b.c:3: a_run() is common/base/a_run.c"),
    ("driver/b.c", "struct x *a_run(int a(int),\n     int b)\n{\n}\n", "b.c:3: a_run() is"),
    ("common/op/b.cu", "extern \"C\" int a_run(void)\n{\n}\n", "b.cu:3: a_run() is"),
    ("common/base/a_run.c", "#if X\nint a_run(void)\n{\n}\n#else\nint a_run(void)\n{\n}\n"
     "#endif\n", ""),
    ("common/base/a_run_none.c", "int a_run(void)\n{\n}\n", ""),
    ("common/op/a_run_none.c", "int a_run(void)\n{\n}\n", "a_run_none.c:3: a_run() is"),
    ("tests/b.c", "static int a_run(void)\n{\n}\nstatic void run(void)\n{\n}\n", ""),
    ("common/op/b.c", "int x(void)\n{\n    return a_run();\n}\nint a_run(void);\n",
     "b.c:3: a static function with a bare word for a name: b_x"),
    ("common/op/b.c", "static void run(void)\n{\n}\n", "b.c:3: a static function with a bare"),
    ("common/op/b.c", "static int rows_n_row(void)\n{\n}\n", "b.c:3: rows_n_row() says row twice"),
    ("common/op/b.c", "static int b_all_to_all(void)\n{\n}\n", ""),
    ("common/op/b.c", "__attribute__((target(\"a\"), b)) static void run(void)\n{\n}\n", "b_run"),
    ("common/op/b.cu", "static __global__ void __launch_bounds__(9, 2) run(void)\n{\n}\n", "b_run"),
    ("follower/main.c", "int main(void)\n{\n}\n", ""),
]

# path, content, the complaint that is wanted ("" for none)
OF_MACHINES = [
    ("common/session/driver_a.c", "int f(const struct driver *d);\n", ""),
    ("common/session/driver_a.c", "int f(struct driver *d);\n", "sees the driver as const"),
    ("common/session/driver_a.c", "d->run.seats[0].x = 1;\n", "write d->seats"),
    ("common/session/driver_b.c", "int f(struct driver *d);\n", ""),
    ("common/session/driver_a.c", "r->seats[k].rss = s->at = 1;\n", ""),
    ("common/session/driver_a.c", "r->seats[k].at.step++;\n", "watch alone writes a seat's at"),
    ("common/session/driver_a.c", "struct seat *s;\ns->rss = s->at = 1;\n", "a.c:4: watch alone"),
]

# A header of the product that declares f, and the complaint that other sources make of it.
DECLARES = ("common/base/b.h", OPENING + "#ifndef BASE_B_H\n#define BASE_B_H\n{}\n#endif\n")
DEFINES = ("common/base/b.c", OPENING + "int f(int x)\n{\n    return x;\n}\n")
CALLS = 'int a_x(void) { return f(1); }\n'
OF_USERS = [
    ({"common/op/a.c": OPENING + CALLS}, ""),
    ({"driver/a.c": OPENING + CALLS}, ""),
    ({}, "b.h:5: no code calls f"),
    ({"common/op/a.c": OPENING + '/* f(1) */ char *s = "f(1)";\n'}, "no code calls f"),
    ({"tests/a.c": CALLS}, "only tests call f: move it there"),
    ({DEFINES[0]: CALLS}, "only common/base/b.c calls f: make it static"),
    ({DEFINES[0]: CALLS, "tests/a.c": CALLS}, ""),
    ({DECLARES[0]: "#define g(x) \\\n    f(x)"}, ""),
]

# content of a source beside a header with code of x86-64, the complaint that is wanted
X86_HEADER = ("common/base/x.h", OPENING + "#ifndef BASE_X_H\n#define BASE_X_H\n"
              "#include <immintrin.h>\n#endif\n")
OF_X86 = [
    ("#ifdef __x86_64__\n#include <immintrin.h>\n#else\nint x;\n#endif\n", ""),
    ("#include <immintrin.h>\n", "a.c:3: code of x86-64"),
    ("#ifndef __x86_64__\n__m512 x = _mm512_setzero_ps();\n#endif\n", "a.c:4: code of x86-64"),
    ("#ifdef __x86_64__\n#else\nint x = __builtin_cpu_supports(\"fma\");\n#endif\n", "a.c:5: "),
    ("#if defined(__x86_64__) && defined(__GNUC__)\n#if 1\n#endif\n__asm__(\"\");\n#endif\n", ""),
    ("#ifdef __clang__\n__asm__(\"\");\n#endif\n", "a.c:4: code of x86-64"),
    ("#define A __asm__\nint x; /* __asm__ */\n", ""),
    ('#include "base/x.h"\n', "a.c:3: base/x.h has code of x86-64"),
    ('#ifdef __x86_64__\n#include "base/x.h"\n#endif\n', ""),
]

# path, content, what the note must say
NOTES = [
    ("common/base/a.c", "int x;\n" * 599, "a.c:1: 601 lines"),
    ("common/base/a.c", "void a_f(void)\n{\n" + "    x();\n" * 90 + "}\n",
     "a function of 92 lines"),
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        files = {"common/meson.build": MESON, **files} if files else {}
        for path, content in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            open(os.path.join(root, path), "w", encoding="utf-8").write(content)
        said = io.StringIO()
        with redirect_stdout(said):
            status = lint.main(root)
        return status, said.getvalue()


def main():
    n_bad = 0
    for path, content, want in CASES:
        if not want and path.endswith((".c", ".h")):
            content = OPENING + content
        status, said = run({path: content})
        right = (status == 1 and want in said) if want else status == 0
        if not right:
            print(f"{path!r} {content!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for path, content, want in OF_FUNCTIONS:
        status, said = run(dict([OF_FUNCTIONS_BESIDE, (path, OPENING + content)]))
        if status != (1 if want else 0) or want not in said:
            print(f"{path!r} {content!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for line, want in OF_DIALECT:
        status, said = run({"driver/a.c": OPENING + f"int a_x(void)\n{{\n    {line}\n}}\n"})
        if status != (1 if want else 0) or want not in said or want and "a.c:5: " not in said:
            print(f"{line!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for path, content, want in OF_MACHINES:
        status, said = run({MACHINE[0]: MACHINE[1], SEAT[0]: SEAT[1], path: OPENING + content})
        if status != (1 if want else 0) or want not in said:
            print(f"{path!r} {content!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for more, want in OF_USERS:
        files = {DECLARES[0]: DECLARES[1].replace("{}", "int f(int x);\n" +
                                                  more.get(DECLARES[0], "")),
                 DEFINES[0]: DEFINES[1] + more.get(DEFINES[0], "")}
        status, said = run({**more, **files})
        if status != (1 if want else 0) or want not in said:
            print(f"{more!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for content, want in OF_X86:
        status, said = run(dict([X86_HEADER, ("common/base/a.c", OPENING + content)]))
        if status != (1 if want else 0) or want not in said:
            print(f"{content!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for path, content, want in NOTES:
        status, said = run({path: OPENING + content})
        right = f"note: {path}:" in said and want in said
        if status != 0 or not right:
            print(f"{path!r} {content[:99]!r}: want the note {want!r}, status {status}:\n{said}")
            n_bad += 1
    if run({})[0] != 1:
        print("a lint of no file passes")
        n_bad += 1
    n = 1 + sum(map(len, [CASES, OF_FUNCTIONS, OF_DIALECT, OF_MACHINES, OF_USERS, OF_X86, NOTES]))
    print(f"{n} cases, {n_bad} wrong")
    return 1 if n_bad else 0


sys.exit(main())

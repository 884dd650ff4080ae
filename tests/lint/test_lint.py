#!/usr/bin/env python3
"""Each rule of lint.py finds its breach, at its line, and leaves alone what is right."""
import io
import os
import sys
import tempfile
from contextlib import redirect_stdout

import lint

GUARDED = "#ifndef BASE_A_H\n#define BASE_A_H\n{}\n#endif\n"

# path, content, what must be said ("" for nothing)
CASES = [
    ("common/session/a.c", '#include "wire/msg.h"\n#include "session/b.h"\n', ""),
    ("common/session/a.c", '\n#include "net/conn.h"\n', "a.c:2: session/ must not include"),
    ("common/base/a.c", '#include "config/job.h"\n', "base/ must not include"),
    ("common/program/a.c", '#include "optim/sgd.h"\n', "program/ must not include"),
    ("common/train/a.c", '#include "data/loader.h"\n#include <stdio.h>\n', ""),
    ("common/session/a.c", "#include <uv.h>\n", "session/ must not see <uv.h>"),
    ("common/wire/a.c", "#include <openssl/ssl.h>\n", "wire/ must not see <openssl/ssl.h>"),
    ("common/session/a.c", "#include <sys/socket.h>\n", "session/ must not see"),
    ("common/train/a.c", "#include <oneapi/dnnl/dnnl.h>\n", "train/ must not see"),
    ("common/net/a.c", "#include <uv.h>\n", ""),
    ("common/wire/a.c", '#include "control.pb-c.h"\n', ""),
    ("common/wire/a.c", '#include "msg.h"\n', 'write "wire/msg.h"'),
    ("common/wire/a.c", '#include "nowhere/msg.h"\n', "no such room"),
    ("common/attic/a.c", "int x;\n", "common/attic/ is no room"),
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
    ("README.md", "x" * 200 + "  \n", ""),
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
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
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
        status, said = run({path: content})
        right = (status == 1 and want in said) if want else status == 0
        if not right:
            print(f"{path!r} {content!r}: want {want!r}, status {status}, got:\n{said}")
            n_bad += 1
    for path, content in [("common/base/a.c", "int x;\n" * 601),
                          ("common/base/a.c", "void f(void)\n{\n" + "    x();\n" * 90 + "}\n")]:
        status, said = run({path: content})
        if status != 0 or "note: common/base/a.c:1:" not in said:
            print(f"a note is missing, or counts as a breach: {said}")
            n_bad += 1
    if run({})[0] != 1:
        print("a lint of no file passes")
        n_bad += 1
    print(f"{len(CASES) + 3} cases, {n_bad} wrong")
    return 1 if n_bad else 0


sys.exit(main())

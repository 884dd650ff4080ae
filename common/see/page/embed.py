"""embed.py OUT.c FILE... writes the files of the page as arrays of C (see/page.h)."""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

out, names = sys.argv[1], sys.argv[2:]
lines = ["/* Generated from common/see/page/. */", '#include "see/page.h"', ""]
rows = []
for i, name in enumerate(names):
    with open(name, "rb") as file:
        content = file.read()
    base, end = os.path.splitext(os.path.basename(name))
    path = "/" if base == "index" else "/" + base + end
    lines.append(f"static const unsigned char page_bytes_{i}[] = {{")
    lines += [", ".join(map(str, content[at:at + 20])) + "," for at in range(0, len(content), 20)]
    lines.append("};")
    rows.append(f'    {{"{path}", "{TYPES[end]}", page_bytes_{i}, sizeof page_bytes_{i}}},')
lines += ["", "const struct page_asset page_assets[] = {"] + rows + ["    {0},", "};"]
with open(out, "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")

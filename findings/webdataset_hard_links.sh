#!/usr/bin/env bash
# webdataset_hard_links.sh - what webdataset 1.0.2 makes of hard links in a tar shard.
#
# GNU tar stores the second name of a file that has two as a hard link.  Shards of data sets without
# duplicates on disk (cp -l, git annex, rsync --link-dest) hold such members.
#
# Guess: the link is read as the file that it links to, as tarfile.extractfile() does.
# Seen:  the member is left out.  A sample of which both members are links is not there at all, and
#        one of which the picture is a link has a class and no picture.  No error, no warning.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the package cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q webdataset==1.0.2 numpy==2.2.6 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
mkdir "$dir/set" && cd "$dir/set"
for key in a b; do printf 'picture of %s' $key >$key.jpg && printf 1 >$key.cls; done
ln a.jpg c.jpg && ln a.cls c.cls           # a sample of two links
ln b.jpg d.jpg && printf 0 >d.cls          # a sample whose picture is a link
tar --sort=name -cf ../links.tar .
tar -tvf ../links.tar | grep -c 'link to' | sed 's/$/ members are hard links, says tar/'
"$dir/venv/bin/python" - "$dir/links.tar" <<'PY'
import sys
import tarfile

import webdataset

tar = tarfile.open(sys.argv[1])
by_tarfile = {m.name.lstrip("./"): tar.extractfile(m).read() for m in tar if not m.isdir()}
seen = {s["__key__"].lstrip("./"): sorted(k for k in s if not k.startswith("__"))
        for s in webdataset.WebDataset(sys.argv[1], shardshuffle=False)}
print("tarfile reads", by_tarfile["c.jpg"], "from the link c.jpg")
print("webdataset", webdataset.__version__, "reads", seen)
wanted = {"a": ["cls", "jpg"], "b": ["cls", "jpg"], "d": ["cls"]}
sys.exit(0 if by_tarfile["c.jpg"] == b"picture of a" and seen == wanted else 1)
PY

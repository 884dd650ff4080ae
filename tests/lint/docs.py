#!/usr/bin/env python3
"""docs - compares what the documents say with what the daemons and the sources say.

docs.py reads README.md, the papers beside it and docs/, the help of both daemons ($DPDRIVER,
$DPFOLLOWER), and a few lists of the sources.  It prints each difference as path:line: text, and
exits with 1 if there is one.  Then it breaks the documents on purpose, once for each rule, and
exits with 1 if a rule does not notice.
"""
import json
import os
import re
import subprocess
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SECTIONS = ("model|data|train|optimizer|schedule|strategy|cluster|checkpoint|report|loss_scale")
# The dotted names that are another system's, or files.
FOREIGN = re.compile(r"cluster\.(chief|worker)|train\.(py|bin)|\w+\.safetensors|report\.html")
# The choices that README.md or docs/ must name: the document, and what the list is there.
CHOICES = {
    "model.arch": ("README.md", r"^\| Models: ([^|]*) \|"),
    "data.format": ("docs/operating/data.md", r"^\| ((?:`\w+`(?:, )?)+) \|"),
    "optimizer.name": ("docs/operating/training.md", r"`optimizer\.name` is (.*?), with"),
    "strategy.name": ("docs/strategies.md", r"^\| ([^|]*`[^|]*) \|"),
    "strategy.compress": ("docs/strategies.md", r"^\| ([^|]*`compress: [^|]*) \|"),
}
# The daemons' options stand behind these words in a command.
DAEMON = re.compile(r"(?:^|[ /(])(dpdriver|dpfollower)((?: [^`|;&#)]*)?)")
NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|sh|md|cu|cuh|proto|yaml|build|pml|sbatch))`")
EXAMPLES = {"mnist.yaml", "job.yaml", "zero_to_fp32.py", "train.py"}  # not files of this tree


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def members(schema):
    """The names of an object's members, and of its members' members, in a JSON schema."""
    if isinstance(schema, list):
        return {name for part in schema for name in members(part)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties", {}))
    return own | {name for part in schema.values() for name in members(part)}


class Facts:
    """The lists and the help of the daemons and of the sources."""

    def __init__(self):
        self.version = the(r"version: '([\d.]+)'", read("meson.build"), "meson.build")[1]
        self.help = {"dpdriver": run(os.environ["DPDRIVER"], "--help"),
                     "dpfollower": run(os.environ["DPFOLLOWER"], "--help")}
        self.options = {name: set(re.findall(r"^  (--[\w-]+)", text, re.MULTILINE))
                        for name, text in self.help.items()}
        self.verbs = set(re.findall(r"^  (\w+)", self.help["dpdriver"].split("\n\n")[2],
                                    re.MULTILINE))
        self.help["--help-job"] = run(os.environ["DPDRIVER"], "--help-job")
        self.read_keys(self.help["--help-job"])
        self.rooms = re.findall(r"^subdir\('(\w+)'\)", read("common/meson.build"), re.MULTILINE)
        events = read("common/report/events.c")
        self.events = set(re.findall(r'\[EVENT_\w+\] = \{"(\w+)"', events))
        self.fields = set(re.findall(r'(?:put_\w+|json_object_set_new)\(\w+, "(\w+)"', events))
        self.fields -= {"event", "time"}
        path = "common/session/figures.h"
        row = r'^ +X\(\w+, \w+, \w+, "(\w+)", (\w+),((?:[\s\\]*"[^"\n]*")+)\)'
        figures = read(path)
        self.figures = [(key, "".join(re.findall('"([^"]*)"', text)) +
                         ("; absent if it is 0" if when == "IF_ABOVE_0" else ""))
                        for key, when, text in re.findall(row, figures, re.MULTILINE)]
        if len(self.figures) != len(re.findall(r"^ +X\(", figures, re.MULTILINE)):
            sys.exit(f"{path}: only {len(self.figures)} rows look like {row}")
        text = self.help["dpdriver"]
        points = the(r"^POINT.*?\n(.*?)\n\n", text, "dpdriver --help")[1]
        self.points = set(re.findall(r"^  ([a-z]+)", points, re.MULTILINE))
        faults = the(r"^Faults on purpose.*?\n(.*?)\nPOINT", text, "dpdriver --help")[1]
        self.faults = set(re.findall(r"^  ([a-z]+)", faults, re.MULTILINE))
        self.files = set()
        for folder, folders, names in os.walk(TOP):
            here = os.path.relpath(folder, TOP)
            if here == ".":
                folders[:] = [f for f in folders if not f.startswith(("build", ".git", "runs"))]
            self.files |= {os.path.normpath(os.path.join(here, name)) for name in names}

        source = re.compile(r"(common|driver|follower|proto)/.*\.(c|h|cu|cuh|proto)$")
        text = " ".join(read(name) for name in sorted(self.files) if source.match(name))
        self.sources = re.sub(r"[-_\s*/]+", " ", text.lower())
        text = "".join(read(f"common/deepspeed/{part}.c")
                       for part in ("deepspeed", "keys", "job", "optimizer"))
        folder = os.path.join(TOP, "common/optim")  # an optimizer's entry has DeepSpeed's words
        text += "".join(the(r"\.deepspeed = {(.*)}", line, name)[1]
                        for name in sorted(os.listdir(folder))
                        for line in read(f"common/optim/{name}").splitlines()
                        if ".deepspeed = {" in line)
        self.deepspeed = set(".".join(re.findall(r'"([\w.]+)"', text)).split("."))
        schema = json.loads(read("docs/operating/status.schema.json"))
        self.causes = set(schema["properties"]["badput"].pop("properties"))
        self.status = members(schema)
        path = "common/model/layers_kinds.c"
        layers = the(r"^const struct layer_kind layer_kinds.*?^};", read(path), path)[0]
        self.layers = set(re.findall(r'^    {"(\w+)"', layers, re.MULTILINE))

    def read_keys(self, text):
        """The keys of --help-job: their defaults, and those that a resumed run may change."""
        self.defaults, self.resumed, fixed, self.words = {}, set(), set(), {}
        for entry in re.findall(r"^([a-z][\w.]*): (.*)\n((?:    .*\n)+)", text, re.MULTILINE):
            key, default, body = entry
            self.defaults.setdefault(key, set()).add(default)
            may = "A resumed run may change it." in " ".join(body.split())
            (self.resumed if may else fixed).add(key)
            if key == "model.layers" and "applies only if model.arch is layers" in \
                    " ".join(body.split()):
                self.listed_layers = set(re.findall(r"\w+", body))
            if key in CHOICES:
                said = re.findall(r"It is (.*?)(?:, and applies|\. |\.$)", " ".join(body.split()))
                words = re.findall(r"^      (\w+)  ", body, re.MULTILINE) or \
                    re.split(r", | or ", said[-1])
                self.words.setdefault(key, set()).update(words)
        self.resumed -= fixed


def the(pattern, text, path, flags=re.S | re.M):
    """The one match of a pattern that a check starts from."""
    match = re.search(pattern, text, flags)
    if not match:
        sys.exit(f"{path}: nothing looks like {pattern}; lint/docs compares it with the code")
    return match


def places(text, pattern, flags=0):
    """(line, match) of each match."""
    for match in re.finditer(pattern, text, flags):
        yield text.count("\n", 0, match.start()) + 1, match


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(path, text, docs, facts):
    """Each relative link leads to a file, and to a heading of it."""
    for line, link in places(text, r"\]\(([^)\s:]+)\)"):
        name, _, part = link[1].partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if target not in facts.files:
            yield line, f"{link[1]}: there is no such file"
        elif part and part not in [anchor(h) for h in
                                   re.findall(r"^#+ (.*)", docs.get(target, ""), re.MULTILINE)]:
            yield line, f"{link[1]}: there is no such heading"


def check_files(path, text, docs, facts):
    """Each file that stands in `...` exists, if need be in a folder below."""
    for line, name in places(text, NAMED):
        if name[1] in EXAMPLES or "NAME" in name[1]:
            continue
        if not any(f == name[1] or f.endswith("/" + name[1]) for f in facts.files):
            yield line, f"{name[1]}: there is no such file"


def check_keys(path, text, docs, facts):
    """Each key of a job file that stands in `...` is one, and a default behind it is its own."""
    for line, said in places(text, r"`((?:" + SECTIONS + r")\.[a-z_.]*[a-z])\b(?![*/.])"):
        key = said[1]
        if FOREIGN.match(key) or key in facts.defaults or \
                any(k.startswith(key + ".") for k in facts.defaults):
            continue
        yield line, f"{key}: --help-job has no such key"
    for line, said in places(text, r"`((?:" + SECTIONS + r")\.[\w.]+)` \(([\d.]+)\b"):
        if said[2] not in facts.defaults.get(said[1], {said[2]}):
            yield line, f"{said[1]} ({said[2]}): the default is {facts.defaults[said[1]]}"


def check_options(path, text, docs, facts):
    """Each option in a command of a daemon is one of this daemon's."""
    for line, part in places(text, r"`([^`\n]+)`|^\$ (.*)", re.MULTILINE):
        for daemon, words in DAEMON.findall(part[1] or part[2]):
            for option in re.findall(r"(?<= )--[a-z][\w-]*", words):
                if option not in facts.options[daemon]:
                    yield line, f"{daemon} has no {option}"
            verb = re.match(r" ([a-z]+)(?= |$)", words)
            if verb and daemon == "dpdriver" and verb[1] not in facts.verbs:
                yield line, f"dpdriver has no verb {verb[1]}"


def differ(name, said, real):
    """A complaint for what only one of two sets has."""
    if said - real:
        yield 1, f"{name}: {', '.join(sorted(said - real))}: the code has no such word"
    if real - said:
        yield 1, f"{name}: {', '.join(sorted(real - said))}: missing here"


def check_status(path, text, docs, facts):
    """The members of the status, and the causes of lost time, are those of its schema."""
    if path != "docs/operating/watching.md":
        return
    told = the(r"^These are the members of the status: .*?\n\n", text, path)[0]
    yield from differ("members of the status", set(re.findall(r"`(\w+)`", told)), facts.status)
    table = the(r"^\| cause \| time \|.*?\n\n", text, path)[0]
    yield from differ("causes", set(re.findall(r"^\| `(\w+)`", table, re.M)), facts.causes)


def check_lists(path, text, docs, facts):
    """Lists that the documents repeat are complete."""
    for key, (where, pattern) in CHOICES.items():
        if path == where:
            told = " ".join(re.findall(pattern, text, re.MULTILINE | re.DOTALL))
            spans = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", told))))
            for first in re.findall(r"`([a-z]+)\w*` to `\1\w+`", told):  # `vit_tiny` to `vit_base`
                spans |= {w for w in facts.words[key] if w.startswith(first)}
            yield from differ(key, set(), facts.words[key] - spans - {"none"})
    if path == "docs/design.md":
        rooms = re.findall(r"^common/(\w+)/ ", text, re.MULTILINE)
        if rooms != facts.rooms:
            yield 1, f"the rooms are {rooms}, in common/meson.build {facts.rooms}"
    if path == "docs/operating/files.md":
        table = the(r"^\| event \| fields \|\n.*?\n\n[^|]*?\n\n", text, path)[0]
        yield from differ("events", set(re.findall(r"^\| `(\w+)`", table, re.M)), facts.events)
        told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", table))))
        yield from differ("fields of events", set(), facts.fields - told)
        table = the(r"^\| figure of an epoch \|.*?\n\n", text, path)[0]
        said = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
        for i, (key, content) in enumerate(facts.figures):
            if said[i:i + 1] != [(key, content)]:
                yield 1, f"figures of an epoch: want | `{key}` | {content} | in row {i + 1}"
                break
        for key, content in said[len(facts.figures):]:
            yield 1, f"figures of an epoch: {key}: session/figures.h has no such row"
    if path == "docs/operating/watching.md":
        points = the(r"^POINT is (.*?)\n\n", text, path)[1]
        yield from differ("POINT", {p.rstrip("N") for p in re.findall(r"`([a-zN]+)`", points)},
                          facts.points)
        faults = the(r"^\| WHAT \|.*?\n\n", text, path)[0]
        yield from differ("WHAT", set(re.findall(r"^\| `([a-z]+)", faults, re.M)), facts.faults)
    if path == "docs/operating/stopping.md":
        yield from check_resume(path, text, facts)
    if path == "docs/operating/job-file.md":
        rows = the(r"^\| DeepSpeed's \| ours \|.*?\n\n", text, path)[0].split("\n")[2:]
        for name in re.findall(r"`([\w.]+)", " ".join(row.split(" | ")[0] for row in rows)):
            last = name.split(".")[-1]  # "offload_" stands for all that begin so
            if not any(w == last or last.endswith("_") and w.startswith(last)
                       for w in facts.deepspeed):
                yield 1, f"common/deepspeed reads no {name}"


def check_resume(path, text, facts):
    """The keys that a resumed run may change."""
    said = the(r"run\s+may\s+change\s+these\s+keys:\s(.*?)\.\s+`--help-job`", text,
               path)[1]
    said = re.findall(r"`([\w.*]+)`", said)
    covered = {k for k in facts.resumed for s in said
               if k == s or s.endswith("*") and k.startswith(s[:-1])}
    yield from differ("keys of a resumed run", set(), facts.resumed - covered)
    for word in said:
        if not any(k == word or word.endswith("*") and k.startswith(word[:-1])
                   for k in facts.resumed):
            yield 1, f"keys of a resumed run: {word} is none"


def check_glossary(path, text, docs, facts):
    """Each word of the glossary stands there once, and in the sources."""
    if path != "docs/glossary.md":
        return
    seen = set()
    for line, row in places(text, r"^\| \*\*(.*?)\*\*", re.MULTILINE):
        for word in row[1].split(", "):
            if word in seen:
                yield line, f"{word}: has a row already"
            seen.add(word)
            if re.sub(r"[-_]", " ", word.lower()) not in facts.sources:
                yield line, f"{word}: no source has this word"


def check_version(path, text, docs, facts):
    """The changes have a section for the version of meson.build, and bundles are of it."""
    if path == "CHANGELOG.md":
        said = re.findall(r"^## (\d[\d.]*), \d{4}-\d\d-\d\d$", text, re.MULTILINE)
        if facts.version not in said:
            yield 1, f"no section '## {facts.version}, DATE'; meson.build has this version"
    for line, bundle in places(text, r"dptrain-(\d+\.\d+\.\d+)-"):
        if bundle[1] != facts.version:
            yield line, f"{bundle[0]}: meson.build has version {facts.version}"


CHECKS = [check_links, check_files, check_keys, check_options, check_status, check_lists,
          check_glossary, check_version]

# A path, a text in it, what replaces the text, and the complaint that must follow.
BREAKS = [
    ("README.md", "](docs/design.md)", "](docs/desing.md)", "no such file"),
    ("docs/operating/launchers.md", "](ranks.md#losing-the-driver)", "](ranks.md#losing)",
     "no such heading"),
    ("docs/design.md", "`step/step.c`", "`train/stop.c`", "no such file"),
    ("docs/strategies.md", "`strategy.shards", "`strategy.shares", "no such key"),
    ("docs/operating/ranks.md", "`cluster.heartbeat_timeout` (5 s)",
     "`cluster.heartbeat_timeout` (6 s)", "the default is"),
    ("README.md", "dpdriver --make-secret", "dpdriver --make-secrets", "has no --make-secrets"),
    ("README.md", "`dpdriver evaluate ", "`dpdriver evaluates ", "has no verb evaluates"),
    ("docs/coming-from.md", "`dpfollower --ranks 4`", "`dpfollower --nranks 4`", "has no --nranks"),
    ("README.md", "`lenet5`", "", "model.arch: lenet5"),
    ("README.md", "`layers` (your own list)", "", "model.arch: layers"),  # it is elsewhere, too
    ("docs/operating/data.md", "| `npy` |", "| |", "data.format: npy"),
    ("docs/operating/training.md", "`adamw`, `lion`", "`lion`", "optimizer.name: adamw"),
    ("docs/strategies.md", "| `low_precision_decentralized` |", "| |",
     "strategy.name: low_precision_decentralized"),
    ("docs/design.md", "common/wire/ ", "common/wired/ ", "the rooms are"),
    ("docs/operating/files.md", "| `leader` | `term`", "| `term`", "events: leader"),
    ("docs/operating/files.md", "`steps_lost`", "", "fields of events: steps_lost"),
    ("docs/operating/files.md", "\n| `step_ms_median` | the ", "\n| `step_ms_median` | a ",
     "figures of an epoch: want | `step_ms_median` | the "),
    ("docs/operating/files.md", "\n\n`audit.jsonl` has", "\n| `sum` | it |\n\n`audit.jsonl` has",
     "figures of an epoch: sum"),
    ("docs/operating/watching.md", "`grad_norm`, `validation_loss`", "`validation_loss`",
     "members of the status: grad_norm"),
    ("docs/operating/watching.md", "`watts`", "`volts`", "members of the status: volts"),
    ("docs/operating/watching.md", "| `repeated` |", "| |", "causes: repeated"),
    ("docs/operating/watching.md", "POINT is `gather`, ", "POINT is ", "POINT: gather"),
    ("docs/operating/watching.md", "| `stop` | The", "| `halt` | The", "WHAT: halt"),
    ("docs/operating/job-file.md", "| `gradient_clipping`", "| `gradient_clip`",
     "reads no gradient_clip"),
    ("docs/operating/stopping.md", "`train.bucket_bytes`,", "",
     "keys of a resumed run: train.bucket_bytes"),
    ("CHANGELOG.md", "\n## VERSION, 2", "\n## 0.0.0, 2", "no section '## "),
    ("docs/operating/launchers.md", "dptrain-VERSION-", "dptrain-0.0.0-",
     "meson.build has version"),
    ("docs/glossary.md", "| **rank** |", "| **job** |", "job: has a row already"),
    ("docs/glossary.md", "| **rank** |", "| **rankling** |", "rankling: no source has this word"),
]


def headless(text):
    """Sentences of a help text that have no subject, such as "What is minimized." """
    begin = r"(?:^ +|\. +)((?:What|How|Who|Whether)\b[^\n]*)"
    for line, start in places(text, begin, re.MULTILINE):
        yield line, f"a sentence has no subject: {start[1]}"


def complaints(docs, facts, only=None):
    return [f"{path}:{line}: {problem}" for path, text in docs.items()
            if path == (only or path) for check in CHECKS
            for line, problem in check(path, text, docs, facts)]


def main():
    facts = Facts()
    docs = {p: read(p) for p in sorted(f for f in facts.files
                                       if re.match(r"([A-Z]+|docs/.*)\.md$", f))}
    found = complaints(docs, facts)
    found += [f"--help-job: model.layers: {problem}" for _, problem in
              differ("layers", set(), facts.layers - facts.listed_layers)]
    for name, text in facts.help.items():
        found += [f"{name}:{line}: {problem}" for line, problem in headless(text)]
    for text in found:
        print(text)
    if len(list(headless("key: 1\n    What is it.\n    It is. How it is.\n"))) != 2:
        found.append("headless finds nothing")
        print(found[-1])
    for path, old, new, want in BREAKS:
        old = old.replace("VERSION", facts.version)
        broken = complaints({**docs, path: docs[path].replace(old, new)}, facts, path)
        if old not in docs[path] or not any(want in c for c in broken if c not in found):
            found.append(f"{path}: {old!r} made {new!r} should be noticed: {want}")
            print(found[-1])
    print(f"docs: {len(docs)} documents, {len(facts.defaults)} keys, {len(found)} complaints")
    return 1 if found or len(facts.defaults) < 50 or len(facts.layers) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The papers that deploy/manual makes: man pages without a warning of groff, completion that each
shell reads and answers with, and a schema that takes our examples and refuses slips of the pen."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MANUAL = sys.argv.pop(1)

try:
    import jsonschema
    import yaml
except ImportError:
    jsonschema = yaml = None


def paper(name):
    return subprocess.run([MANUAL, name], capture_output=True, text=True, check=True).stdout


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program}")


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


class Pages(unittest.TestCase):
    def render(self, name):
        out, err = run("groff", "-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u",
                       text=paper(name))
        self.assertEqual(err, "", name)
        return out

    @needs("groff")
    def test_dpdriver(self):
        out = self.render("dpdriver.1")
        for wanted in ("DPDRIVER(1)", "train neural networks data-parallel", "EXIT STATUS",
                       "--nranks N", "Belongs to: sample.",
                       "dpdriver train mnist.yaml --ranks gpus   all GPUs", "--secret-file F"):
            self.assertIn(wanted, out)

    @needs("groff")
    def test_dpfollower(self):
        out = self.render("dpfollower.1")
        for wanted in ("DPFOLLOWER(1)", "--root HOST:PORT", "EXIT STATUS", "SIGUSR1"):
            self.assertIn(wanted, out)

    @needs("groff")
    def test_every_key_has_its_place(self):
        out = self.render("dptrain.yaml.5")
        keys = set(re.findall(r"^(\w+(?:\.\w+)+): ", run(DRIVER, "keys")[0], re.MULTILINE))
        self.assertGreater(len(keys), 150)
        told = set(re.findall(r"^ +(\w+(?:\.\w+)+): ", out, re.MULTILINE))
        self.assertEqual(keys - told, set())

    def test_usage(self):
        done = subprocess.run([MANUAL, "nothing"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: dptrain-manual", done.stderr)


DRIVER = os.path.join(os.path.dirname(MANUAL), "..", "..", "driver", "dpdriver")


@needs("bash")
class Bash(unittest.TestCase):
    def complete(self, *words):
        """Words that bash offers for the last of `words`; '=' is a word of its own there."""
        script = paper("bash") + """
            compopt() { :; }
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _dptrain "$1" "${@: -1}" "${@: -2:1}"
            printf '%s\\n' "${COMPREPLY[@]}"
        """
        out, err = run("bash", "-c", script, "bash", *words)
        self.assertEqual(err, "")
        return out.split()

    def test_verbs(self):
        self.assertEqual(self.complete("dpdriver", "st"), ["standby", "status"])
        self.assertIn("train", self.complete("dpdriver", ""))
        self.assertIn("merge", self.complete("dpdriver", "help", ""))

    def test_options_of_a_verb(self):
        self.assertEqual(self.complete("dpdriver", "status", "--wa"), ["--watch"])
        self.assertEqual(self.complete("dpdriver", "train", "--wat"), [])
        self.assertEqual(self.complete("dpfollower", "--ro"), ["--root"])
        self.assertEqual(self.complete("dpfollower", "--rel"), ["--relay"])

    def test_values(self):
        self.assertEqual(self.complete("dpdriver", "train", "--bind", ""), ["auto", "none"])
        self.assertEqual(self.complete("dpdriver", "train", "--bind", "=", "n"), ["none"])
        self.assertEqual(self.complete("dpdriver", "train", "--bind", "="), ["auto", "none"])

    def test_keys(self):
        self.assertEqual(self.complete("dpdriver", "train", "--set", "train.epo"),
                         ["train.epochs="])
        self.assertEqual(self.complete("dpdriver", "train", "--set", "precision", "=", "bf"),
                         ["bfloat16"])
        self.assertIn("adamw", self.complete("dpdriver", "train", "--set", "optimizer.name", "=",
                                             ""))


@needs("zsh")
class Zsh(unittest.TestCase):
    def test_it_is_read(self):
        self.assertEqual(run("zsh", "-n", text=paper("zsh")), ("", ""))

    def offered(self, *words, prefix=""):
        """The calls that zsh's own functions get."""
        script = """
            for name in _arguments _describe compadd _files; do
                eval "$name() { print -r -- $name \\"\\${(@)argv}\\"; }"
            done
            words=("$@"); CURRENT=$#; PREFIX=%s; service=$1
            compset() { :; }
        """ % prefix
        out, err = run("zsh", "-c", script + paper("zsh").replace('$service "$@"', '$service'),
                       "zsh", *words)
        self.assertEqual(err, "")
        return out

    def test_verbs_and_options(self):
        self.assertIn("_describe verb", self.offered("dpdriver", ""))
        out = self.offered("dpdriver", "status", "--")
        self.assertIn("--watch[", out)
        self.assertNotIn("--nranks", out)
        self.assertIn("--root=[", self.offered("dpfollower", "--", prefix="--"))


@needs("fish")
class Fish(unittest.TestCase):
    def complete(self, line):
        out, err = run("fish", "--no-config", "-c",
                       paper("fish") + f"\ncomplete -C '{line}'")
        self.assertEqual(err, "")
        return [row.split("\t")[0] for row in out.splitlines()]

    def test_all(self):
        self.assertEqual(sorted(self.complete("dpdriver sta")), ["standby", "status"])
        self.assertEqual(self.complete("dpdriver status --wat"), ["--watch"])
        self.assertEqual(self.complete("dpdriver train --wat"), [])
        self.assertEqual(self.complete("dpdriver train --set train.epo"), ["train.epochs="])
        self.assertEqual(self.complete("dpdriver train --bind n"), ["none"])
        self.assertEqual(self.complete("dpfollower --roo"), ["--root"])


@unittest.skipUnless(jsonschema, "no python3-jsonschema, python3-yaml")
class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(paper("schema"))
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)

        class Loader(yaml.SafeLoader):
            """Numbers as YAML 1.2 has them: 1e-3 is one."""
        Loader.add_implicit_resolver(
            "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"),
            list("-+0123456789."))
        Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?\d+$"),
                                     list("-+0123456789"))
        cls.loader = Loader

    def faults(self, text):
        return [fault.message for fault in
                self.validator.iter_errors(yaml.load(text, self.loader))]

    def test_examples(self):
        paths = glob.glob(os.path.join(ROOT, "deploy", "examples", "*.yaml"))
        self.assertGreater(len(paths), 10)
        for path in paths:
            with open(path, encoding="utf-8") as file:
                self.assertEqual(self.faults(file.read()), [], path)

    def test_slips(self):
        self.assertEqual(self.faults("train: {epochs: 3}"), [])
        for text in ("train: {epoch: 3}", "train: {epochs: 0}", "train: {epochs: ten}",
                     "optimizer: {name: adamx}", "model: {arch: lenett}", "trains: {}"):
            self.assertNotEqual(self.faults(text), [], text)

    def test_short_forms(self):
        self.assertEqual(self.faults("model: {arch: lenet, init: kaiming}"), [])
        self.assertNotEqual(self.faults("model: {arch: lenet, init: [kaiming]}"), [])

    def test_help_and_default(self):
        epochs = self.schema["properties"]["train"]["properties"]["epochs"]
        self.assertIn("description", epochs)
        self.assertIsInstance(epochs["default"], int)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Test of reading what PyTorch exports: networks of torchvision and of transformers, in training
and in evaluation mode, with a fixed and with a symbolic batch, as exported and decomposed.  The
program in $DPNETWORK (tests/import/show_network.c) prints what we read; nodes, tensors, ties,
inputs and outputs are compared with torch's.  The classes are meson tests of their own.

It needs a Python with torch, torchvision and transformers (find_torch.py), and is skipped (77)
without one.
"""
import collections
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest

import find_torch

find_torch.need("torch", "torchvision", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

EXPORT = pathlib.Path(__file__).parents[2] / "deploy/examples/export.py"
TINY = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
            vocab_size=101)
# Few outputs and several, norms, views, splits of channels, squeeze and excitation.
IMAGE_NETWORKS = {"resnet18": 64, "googlenet": 64, "mobilenet_v3_small": 64,
                  "shufflenet_v2_x0_5": 64}
LARGER = {"inception_v3": 299, "efficientnet_b0": 64, "swin_v2_t": 64, "vit_b_16": 224,
          "convnext_tiny": 64, "densenet121": 64, "regnet_y_400mf": 64}


def load_export():
    spec = importlib.util.spec_from_file_location("export", EXPORT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXPORTER = load_export()


def text_networks():
    t = transformers
    return {
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=101,
                                                 n_positions=32)),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(num_key_value_heads=2, **TINY)),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(num_key_value_heads=2, head_dim=16, **TINY)),
        "bert": (t.BertForSequenceClassification, t.BertConfig(**TINY)),
    }


def two_norms():
    """For the forms of an export, which do not depend on the network"""
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                         nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 10))


def graph_targets(module):
    """Targets of a graph's nodes, and of its nested graphs"""
    for node in module.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "__name__", "") == "getitem":
            continue
        if "wrap_with_set_grad_enabled" in str(node.target):
            yield from graph_targets(getattr(module, node.args[1].target))
        else:
            yield str(node.target).removeprefix("aten.")


class Shown:
    """The lines that show_network prints, by the first word of a line"""

    def __init__(self, path):
        done = subprocess.run([os.environ["DPNETWORK"], path], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr
        self.lines = collections.defaultdict(list)
        for line in done.stdout.splitlines():
            self.lines[line.split()[0]].append(line.split())
        self.is_eval = " evaluation: " in done.stdout.splitlines()[0]

    def names(self, kind):
        return [words[1] for words in self.lines[kind]]

    def targets(self):
        return [words[2].split("(")[0] for words in self.lines["node"]]


class Reading(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def read(self, program):
        path = os.path.join(self.folder.name, "net.pt2")
        torch.export.save(program, path)
        return Shown(path)

    def check(self, network, program, n_more=0):
        """n_more: nodes that we append for buffers that the signature changes"""
        shown = self.read(program)
        targets = list(graph_targets(program.graph_module))
        self.assertEqual(shown.targets()[:len(targets)], targets)
        self.assertEqual(shown.targets()[len(targets):], ["copy_.default"] * n_more)
        state = network.state_dict()
        self.assertEqual(sorted(shown.names("parameter") + shown.names("buffer")), sorted(state))
        self.assertEqual(sorted(shown.names("parameter")), sorted(
            name for name, _ in network.named_parameters(remove_duplicate=False)))
        by_name = {w[1]: w[2] for kind in ("parameter", "buffer") for w in shown.lines[kind]}
        for name, tensor in state.items():
            self.assertEqual(by_name[name].split("[")[1].strip("]"),
                             ",".join(map(str, tensor.shape)), name)
        return shown

    def read_images(self, networks):
        for name, size in networks.items():
            with self.subTest(name):
                network, places, names = EXPORTER.image_network(name, size, 11)
                program = torch.export.export(network.train(), places, names, strict=False)
                shown = self.check(network, program)
                self.assertFalse(shown.is_eval)
                self.assertEqual(shown.names("input"), ["x"])
                n_outputs = {"googlenet": 3, "inception_v3": 2}.get(name, 1)
                self.assertEqual(len(shown.lines["output"]), n_outputs)


class Some(Reading):
    def test_images(self):
        self.read_images(IMAGE_NETWORKS)

    def test_texts(self):
        for name, (kind, config) in text_networks().items():
            with self.subTest(name):
                network = kind(config)
                call = {"input_ids": torch.zeros(7, 16, dtype=torch.long)}
                if name != "bert":
                    call["use_cache"] = False
                program = torch.export.export(network.train(), (), call, strict=False)
                shown = self.check(network, program)
                self.assertEqual(shown.names("input"), ["input_ids"])
                self.assertEqual(shown.names("output"), ["logits"])
                ties = [w[1] for w in shown.lines["parameter"] if w[-1].startswith("tied=")]
                self.assertEqual(ties, ["lm_head.weight"] if name == "gpt2" else [])

    def test_strict(self):
        network = transformers.GPT2LMHeadModel(text_networks()["gpt2"][1])
        call = {"input_ids": torch.zeros(7, 16, dtype=torch.long), "use_cache": False}
        shown = self.check(network, torch.export.export(network.train(), (), call, strict=True))
        self.assertEqual(shown.names("output"), ["logits"])

    def test_symbolic_batch(self):
        network = two_norms()
        batch = torch.export.Dim("batch")
        program = torch.export.export(network.train(), (torch.randn(7, 3, 16, 16),), strict=False,
                                      dynamic_shapes=({0: batch},))
        shown = self.check(network, program)
        self.assertEqual(len(shown.lines["symbol"]), 1)
        symbol = shown.names("symbol")[0]
        self.assertEqual(shown.lines["output"][0][-1], f"F32[7={symbol},10]")

    def test_evaluation(self):
        network = two_norms().eval()
        program = torch.export.export(network, (torch.randn(7, 3, 16, 16),), strict=False)
        self.assertTrue(self.check(network, program).is_eval)

    def test_decomposed(self):
        network = two_norms()
        program = torch.export.export(network.train(), (torch.randn(7, 3, 16, 16),), strict=False)
        self.check(network, program.run_decompositions(), n_more=6)

    def test_pickle(self):
        path = os.path.join(self.folder.name, "net.pt")
        torch.save(two_norms().state_dict(), path)
        done = subprocess.run([os.environ["DPNETWORK"], path], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("this is a pickle of torch.save, which is never read", done.stderr)
        self.assertIn("deploy/examples/export.py", done.stderr)


class Rest(Reading):
    """Only `tests/run.sh all` runs this."""

    def test_images(self):
        self.read_images(LARGER)


if __name__ == "__main__":
    unittest.main()

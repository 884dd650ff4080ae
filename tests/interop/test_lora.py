"""Tests of low-rank adapters with peft: 20 steps of ours from its adapters have its losses, on
one to three ranks and in a network that PyTorch exported; it loads the adapters that we write, and
we refuse those that would be another function.

They are skipped (77) where there is no such package (find_torch.py).
"""
import glob
import json
import os

import find_torch

find_torch.need("numpy", "torch", "transformers", "peft", "safetensors", "onnxruntime")

import gpt  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from training import STEPS, Training, dp, largest_difference  # noqa: E402

RATE, EPS = 3e-3, 1e-5


def config(**more):
    return peft.LoraConfig(r=4, lora_alpha=16, **more)


def begin(base, lora):
    """The base with adapters, of which none is 0."""
    model = peft.get_peft_model(base, lora)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name or ".lora_embedding_A." in name:
                weight.add_(torch.randn(weight.shape) * 0.05)
    return model


def train(model, loss_of):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE,
                                  eps=EPS)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def in_blocks(weight):
    """The numbers that model.base: int8 makes of a weight (common/tensor/blocks.h)."""
    flat = weight.flatten()
    rows = F.pad(flat, (0, -len(flat) % 64)).view(-1, 64)
    bits = (rows.abs().amax(1) / 127).view(torch.int32)
    scale = ((bits + 127 + (bits >> 8 & 1)) & ~255).view(torch.float32).unsqueeze(1)
    return ((rows / scale).round() * scale).flatten()[:len(flat)].view(weight.shape)


FORMS = {"int8": in_blocks, "bfloat16": lambda weight: weight.bfloat16().float()}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(12, 48), torch.nn.Linear(48, 12, bias=False)
        self.norm = torch.nn.LayerNorm(12)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Lora(Training):
    def ours(self, run, n, keys):
        job = {**keys, "data.path": self.path("data"), "model.lora.rank": 4, "model.lora.alpha": 16,
               "model.lora.path": self.path("theirs-lora"), "optimizer.name": "adamw",
               "optimizer.lr": RATE, "optimizer.eps": EPS, "optimizer.weight_decay": 0.01,
               "train.epochs": STEPS, "checkpoint.every_epochs": STEPS // 2}
        self.run_driver(*self.arguments(job, run), n=n, job=None)
        return [epoch["train_loss"] for epoch in self.events("epoch", run)]

    def gpt_base(self, tied=True):
        network = gpt.Gpt(tied=tied)
        torch.manual_seed(3)
        network.write_data(self.path("data"))
        base = network.make()
        network.save(base, self.path("theirs"))
        return network, base

    def gpt_keys(self, network):
        return {**network.keys(), "model.init.name": "file", "model.init.path": self.path("theirs"),
                "model.lora.match": "*.c_attn, *.mlp.c_*", "train.global_batch": gpt.N}

    def test_gpt(self):
        network, base = self.gpt_base()
        lora = config(target_modules=["c_attn", "c_fc", "mlp.c_proj"], fan_in_fan_out=True)
        model = begin(base, lora)
        model.save_pretrained(self.path("theirs-lora"))
        x, y = network.train
        wanted = train(model, lambda m: F.cross_entropy(network.logits(m, x), y))
        self.assertLess(wanted[-1], 0.9 * wanted[0])
        for n in (1, 2, 3):
            losses = self.ours(f"lora-{n}", n, self.gpt_keys(network))
            self.assertLessEqual(largest_difference(losses, wanted), 1e-4, (n, losses, wanted))
        self.check_adapters(network, "lora-3")
        self.check_merged(network, "lora-3")
        self.check_refused(network)

    def check_adapters(self, network, run):
        """peft has our predictions with our adapters, and the base is as it was."""
        folder = self.path(run, "checkpoints", "latest")
        base = network.make()
        start = gpt.AutoModelForCausalLM.from_pretrained(self.path("theirs"))
        base.load_state_dict(start.state_dict())
        model = peft.PeftModel.from_pretrained(base, folder).eval()
        x, _ = network.validation
        with torch.no_grad():
            logits = network.logits(model, x)
        out = self.path("lora.npy")
        self.run_driver("--local", "--threads", "1", "--run-dir", run, "--predict", out, n=1,
                        job=None)
        ours = torch.from_numpy(np.load(out)).view(logits.shape)
        self.assertLessEqual((ours - logits).abs().max(), 1e-4 * logits.abs().max())
        self.check_exported(x, run, ours)
        first = start.state_dict()
        self.check_frozen(run, {name: first[name] for name in first if name != "lm_head.weight"})

    def check_merged(self, network, run):
        """The merged weights are those of peft's merge_and_unload."""
        base = gpt.AutoModelForCausalLM.from_pretrained(self.path("theirs"))
        self.check_merged_of(base, run, {"lm_head.weight"} if network.name == "gpt" else set())

    def check_merged_of(self, base, run, but):
        merged = self.path("merged.safetensors")
        self.assert_exit(self.start([dp.DRIVER, "--run-dir", run, "--merge", merged]), 0)
        model = peft.PeftModel.from_pretrained(base, self.path(run, "checkpoints", "latest"))
        theirs = model.merge_and_unload().state_dict()
        ours = load_file(merged)
        os.remove(merged)
        self.assertEqual(set(ours), set(theirs) - but)
        for name, weight in ours.items():
            self.assertLessEqual((weight - theirs[name]).abs().max(), 1e-6, name)

    def test_embedding(self):
        """Adapters of an embedding that is no head."""
        network, base = self.gpt_base(tied=False)
        model = begin(base, config(target_modules=["wte", "c_attn"], fan_in_fan_out=True))
        model.save_pretrained(self.path("theirs-lora"))
        x, y = network.train
        wanted = train(model, lambda m: F.cross_entropy(network.logits(m, x), y))
        keys = {**self.gpt_keys(network), "model.lora.match": "*.wte, *.c_attn"}
        for run, more in (("embedding", {}), ("embedding-int8", {"model.base": "int8"})):
            losses = self.ours(run, 2, {**keys, **more})
            self.assertLessEqual(largest_difference(losses, wanted), 1e-2 if more else 1e-4,
                                 (losses, wanted))
            self.check_merged(network, run)

    def test_convolutions(self):
        """Adapters of convolutions, one of them in groups, whose adapters cannot be merged."""
        torch.manual_seed(4)
        make = lambda groups: torch.nn.Sequential(  # noqa: E731
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GELU(),
            torch.nn.Conv2d(8, 8, (3, 1), stride=2, groups=groups), torch.nn.GELU(),
            torch.nn.Conv2d(8, 4, 1, bias=False), torch.nn.Flatten(), torch.nn.Linear(48, 5))
        x, y = torch.randn(24, 3, 7, 7), torch.randint(5, (24,))
        np.save(self.path("data", "x.npy"), x.numpy())
        np.save(self.path("data", "y.npy"), y.numpy().astype("int32"))
        for groups in (1, 2):
            model = make(groups)
            net = self.path(f"conv-{groups}.pt2")
            torch.export.save(torch.export.export(model, (x,)), net)
            first = make(groups)
            first.load_state_dict(model.state_dict())
            lora = begin(model, config(target_modules=["0", "2", "4", "6"]))
            lora.save_pretrained(self.path("theirs-lora"))
            wanted = train(lora, lambda m: F.cross_entropy(m(x), y))
            run = f"conv-{groups}"
            losses = self.ours(run, 2, {
                "model.import": net, "data.format": "npy", "data.train": "x.npy, y.npy",
                "data.layout": "nchw", "data.validation": "none", "train.global_batch": 24,
                "model.lora.match": "0, 2, 4, 6"})
            self.assertLessEqual(largest_difference(losses, wanted), 1e-4, (losses, wanted))
            if groups == 1:
                self.check_merged_of(first, run, set())
                continue
            peft.PeftModel.from_pretrained(first, self.path(run, "checkpoints", "latest"))
            driver = self.start([dp.DRIVER, "--run-dir", run, "--merge",
                                 self.path("merged.safetensors")])
            self.assert_exit(driver, dp.USAGE)
            self.assertRegex(driver.text, "2.weight. is of a convolution of several groups")

    def test_base(self):
        """A base in fewer bits has the losses of the float32 numbers that it stands for: peft's,
        and ours to the bit."""
        network, base = self.gpt_base()
        lora = config(target_modules=["c_attn", "c_fc", "mlp.c_proj"], fan_in_fan_out=True)
        x, y = network.train
        for form, change in FORMS.items():
            packed = network.make()
            packed.load_state_dict({name: change(weight) if weight.dim() > 1 else weight
                                    for name, weight in base.state_dict().items()})
            network.save(packed, self.path(f"packed-{form}"))
            torch.manual_seed(5)
            model = begin(packed, lora)
            model.save_pretrained(self.path("theirs-lora"))
            wanted = train(model, lambda m: F.cross_entropy(network.logits(m, x), y))
            keys = {**self.gpt_keys(network), "model.base": form}
            for n in (1, 3):
                losses = self.ours(f"{form}-{n}", n, keys)
                self.assertLessEqual(largest_difference(losses, wanted), 1e-4, (losses, wanted))
            wide = {**self.gpt_keys(network), "model.init.path": self.path(f"packed-{form}")}
            self.assertEqual(self.ours(f"wide-{form}", 3, wide), losses)
            self.check_resumed(f"{form}-resumed", keys, losses)
            self.check_lacks_base(network, f"{form}-3")

    def check_resumed(self, run, keys, losses):
        """A run that is resumed takes its base from the file again, and goes on to the bit."""
        self.ours(run, 3, {**keys, "train.max_steps": STEPS // 2})
        self.run_driver("--local", "--threads", "1", "--run-dir", run, "--resume", "--set",
                        f"train.max_steps={STEPS}", n=3, job=None)
        self.assertEqual([epoch["train_loss"] for epoch in self.events("epoch", run)], losses)

    def check_lacks_base(self, network, run):
        """A checkpoint has no weight of the base, and peft loads its adapters; merging adds them
        to the weights of the file, not to those in fewer bits."""
        seen = load_file(self.path(run, "checkpoints", "latest", "model.safetensors"))
        self.assertEqual([name for name in seen if seen[name].dim() > 1 and ".lora_" not in name],
                         [])
        self.assertIn("transformer.ln_f.weight", seen)
        self.assertFalse(os.path.exists(self.path(run, "checkpoints", "latest", "config.json")))
        driver = self.start([dp.DRIVER, "--run-dir", run, "--export", self.path("w.safetensors")])
        self.assert_exit(driver, dp.USAGE)
        self.assertRegex(driver.text, "lacks the frozen base, .*want dpdriver merge")
        self.check_merged(network, run)

    def test_tied_head(self):
        """Adapters of an embedding whose weight a head reads as well cannot be merged."""
        network, _ = self.gpt_base()
        keys = {**self.gpt_keys(network), "data.path": self.path("data"), "model.lora.rank": 4,
                "model.lora.match": "*.wte", "train.max_steps": 1}
        self.run_driver(*self.arguments(keys, "tied"), n=1, job=None)
        driver = self.start([dp.DRIVER, "--run-dir", "tied", "--merge", self.path("m.safetensors")])
        self.assert_exit(driver, dp.USAGE)
        self.assertRegex(driver.text, r"wte.weight. is no weight of embeddings alone.*match")
        self.assertFalse(os.path.exists(self.path("m.safetensors")))

    def check_frozen(self, run, first):
        """Every checkpoint, also one that is written while training goes on, has the base."""
        folders = sorted(glob.glob(self.path(run, "checkpoints", "step-*")))
        self.assertEqual(len(folders), 2)
        for folder in folders:
            seen = load_file(os.path.join(folder, "model.safetensors"))
            for name, weight in first.items():
                self.assertTrue(torch.equal(seen[name], weight), f"{folder}: {name}")

    def check_exported(self, x, run, logits):
        """onnxruntime has our logits with the merged network."""
        self.assert_exit(self.start([dp.DRIVER, "--run-dir", run, "--export",
                                     self.path("net.onnx")]), 0)
        session = onnxruntime.InferenceSession(self.path("net.onnx"))
        seen = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        seen = torch.from_numpy(seen).view(logits.shape)
        self.assertLessEqual((seen - logits).abs().max(), 1e-4 * logits.abs().max())

    def check_refused(self, network):
        """Adapters for fewer layers, or for others, and a path that is not there."""
        for match, path, wanted in (
                ("*.c_attn, *.mlp.c_*, *.attn.c_proj", "theirs-lora",
                 r"model.lora.path: .*no tensor .*attn.c_proj.lora_[AB].weight.*model.lora.match"),
                ("*.c_attn", "theirs-lora", r"model.lora.path: .*mlp.* is no adapter of this mod"),
                ("*.c_attn", "none", r"model.lora.path: .*/none/adapter_config.json")):
            keys = {**self.gpt_keys(network), "data.path": self.path("data"), "model.lora.rank": 4,
                    "model.lora.alpha": 16, "model.lora.match": match,
                    "model.lora.path": self.path(path)}
            driver = self.start([dp.DRIVER, "--nranks", "1", "--port", "0",
                                 *self.arguments(keys, "refused")])
            self.assert_exit(driver, dp.USAGE)
            self.assertRegex(driver.text, wanted)

    def test_import(self):
        """A network that PyTorch exported, with adapters in all layers but the last."""
        torch.manual_seed(4)
        model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(12, 5))
        x, y = torch.randn(24, 12), torch.randint(5, (24,))
        np.save(self.path("data", "x.npy"), x.numpy())
        np.save(self.path("data", "y.npy"), y.numpy().astype("int32"))
        torch.export.save(torch.export.export(model, (x,)), self.path("net.pt2"))
        first = {name: weight.clone() for name, weight in model.state_dict().items()}
        lora = begin(model, config(target_modules=["up", "down"]))
        lora.save_pretrained(self.path("theirs-lora"))
        wanted = train(lora, lambda m: F.cross_entropy(m(x), y))
        losses = self.ours("lora-import", 2,
                           {"model.import": self.path("net.pt2"), "data.format": "npy",
                            "data.train": "x.npy, y.npy", "data.validation": "none",
                            "train.global_batch": 24})
        self.assertLessEqual(largest_difference(losses, wanted), 1e-4, (losses, wanted))
        with open(self.path("lora-import", "checkpoints", "latest", "adapter_config.json"),
                  encoding="utf-8") as file:
            self.assertEqual(sorted(json.load(file)["target_modules"]),
                             ["0.down", "0.up", "1.down", "1.up"])
        self.check_frozen("lora-import", first)
        with torch.no_grad():
            self.check_exported(x, "lora-import", lora.eval()(x))


if __name__ == "__main__":
    dp.main()

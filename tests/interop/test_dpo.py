"""Test of model.loss dpo beside PyTorch and peft: 20 steps of AdamW from the same adapters have the
losses of a run in float64, on one and two ranks, in micro-batches, with the base in fewer bits, and
to 1e-2 of the first one in bfloat16;
the accuracy is the share of pairs in which the chosen answer gained more, and validations have
those of peft with our adapters.

It needs a Python with torch, transformers and peft (find_torch.py), and is skipped (77) without.
"""
import copy
import json
import random

import find_torch

find_torch.need("numpy", "torch", "transformers", "peft", "safetensors", "onnxruntime")

import peft  # noqa: E402
import torch  # noqa: E402
import transformers as t  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from test_lora import in_blocks  # noqa: E402
from training import dp, largest_difference  # noqa: E402

STEPS, CONTEXT, RATE, EPS, BETA = 20, 24, 3e-3, 1e-5, 0.3
END = 256  # other tokens are bytes
PAIRS, CHECKED = 7, 3  # of training, which three ranks cannot share equally; of validation
LLAMA = t.LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, intermediate_size=48, vocab_size=260,
                      max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=END,
                      initializer_range=0.2, attention_dropout=0.1, use_cache=False)
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tokenizer():
    plain = {byte: chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))}
    others = [byte for byte in range(256) if byte not in plain]
    vocab = {**plain, **{byte: chr(256 + i) for i, byte in enumerate(others)}}
    return {"version": "1.0", "pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "added_tokens": [{"id": END, "content": "<end>", "special": True, "normalized": False}],
        "model": {"type": "BPE", "vocab": {vocab[i]: i for i in range(256)}, "merges": []}}


def pairs(n, seed):
    """Answers of different lengths; one is cut at the context."""
    draw = random.Random(seed)
    text = lambda most: "".join(draw.choices("abcde", k=draw.randint(1, most)))  # noqa: E731
    return [{"prompt": text(8), "chosen": text(12), "rejected": text(12) if i else text(9) * 9}
            for i in range(n)]


def log_p(model, prompt, answer):
    """Of the answer's tokens and the end, as far as they fit into the context."""
    tokens = [*prompt.encode(), *answer.encode(), END][:CONTEXT + 1]
    logits = model(torch.tensor([tokens[:-1]])).logits[0]
    each = F.log_softmax(logits, -1)[range(len(tokens) - 1), tokens[1:]]
    return each[len(prompt) - 1:].sum()


def margins(model, lines):
    """How much more the chosen answers gained than the rejected ones"""
    rows = []
    for line in lines:
        gain = [log_p(model, line["prompt"], line[key]) for key in ("chosen", "rejected")]
        with torch.no_grad(), model.disable_adapter():
            first = [log_p(model, line["prompt"], line[key]) for key in ("chosen", "rejected")]
        rows.append(gain[0] - first[0] - gain[1] + first[1])
    return torch.stack(rows)


def loss_of(model, lines):
    return -F.logsigmoid(BETA * margins(model, lines)).mean()


def accuracy_of(model, lines):
    return (margins(model, lines) > 0).double().mean().item()


class Dpo(dp.Case):
    def write(self, name, lines):
        with open(self.path("data", name), "w", encoding="ascii") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        torch.manual_seed(3)
        self.lines, self.checked = pairs(PAIRS, 1), pairs(CHECKED, 2)
        dp.os.mkdir(self.path("data"))
        self.write("train.jsonl", self.lines)
        self.write("check.jsonl", self.checked)
        self.base = t.LlamaForCausalLM(LLAMA)
        self.base.save_pretrained(self.path("net"))
        for name, content in (("tokenizer.json", tokenizer()),
                              ("tokenizer_config.json", {"eos_token": "<end>"})):
            with open(self.path("net", name), "w", encoding="ascii") as file:
                json.dump(content, file)

    def begin(self, base, name):
        """Adapters of which none is 0, except in the first step's base."""
        model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=16,
                                                          target_modules=LAYERS)).eval()
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if ".lora_B." in key:
                    weight.add_(torch.randn(weight.shape) * 0.05)
        model.save_pretrained(self.path(name))
        return model.double()

    def train(self, model):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE,
                                      eps=EPS)
        losses, right = [], []
        for _ in range(STEPS):
            right.append(accuracy_of(model, self.lines))
            optimizer.zero_grad()
            loss = loss_of(model, self.lines)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, right

    def ours(self, run, n, adapters, **keys):
        job = {"model.import": self.path("net"), "model.context": CONTEXT,
               "model.loss": f"{{name: dpo, beta: {BETA}}}", "model.lora.rank": 4,
               "model.lora.alpha": 16, "model.lora.path": self.path(adapters),
               "data.format": "text", "data.path": self.path("data"), "data.train": "train.jsonl",
               "data.validation": "check.jsonl", "train.global_batch": PAIRS,
               "train.epochs": STEPS, "train.validate_every": STEPS, "optimizer.name": "adamw",
               "optimizer.lr": RATE, "optimizer.eps": EPS, "optimizer.weight_decay": 0.01, **keys}
        return self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", run,
                               n=n, job=job)

    def compare(self, run, wanted, right):
        epochs = self.events("epoch", run)
        losses = [epoch["train_loss"] for epoch in epochs]
        worst = largest_difference(losses, wanted)
        print(f"{run}: {wanted[0]:.4f} -> {wanted[-1]:.4f}, within {worst:.1e}", flush=True)
        self.assertLessEqual(worst, 1e-4, (losses, wanted))
        for epoch, share in zip(epochs, right, strict=True):
            self.assertAlmostEqual(epoch["train_accuracy"], share, 6)
        return epochs[-1]

    def check_validation(self, run, epoch):
        """peft's loss and accuracy with our adapters"""
        model = peft.PeftModel.from_pretrained(
            copy.deepcopy(self.plain), self.path(run, "checkpoints", "latest")).double().eval()
        with torch.no_grad():
            loss = loss_of(model, self.checked).item()
            self.assertAlmostEqual(epoch["validation_accuracy"], accuracy_of(model, self.checked),
                                   6)
        self.assertLessEqual(abs(epoch["validation_loss"] - loss), 1e-4 * loss)

    def test_steps(self):
        self.plain = copy.deepcopy(self.base)
        wanted, right = self.train(self.begin(self.base, "theirs"))
        self.assertLess(wanted[-1], 0.7 * wanted[0])
        self.assertGreater(len(set(right)), 1)
        for n, more in ((1, {}), (2, {}), (2, {"train.accumulate": 2})):
            run = f"run{n}-{len(more)}"
            self.ours(run, n, "theirs", **more)
            self.check_validation(run, self.compare(run, wanted, right))
        self.ours("half", 2, "theirs", precision="bfloat16")
        losses = [epoch["train_loss"] for epoch in self.events("epoch", "half")]
        worst = max(abs(a - b) for a, b in zip(losses, wanted, strict=True)) / wanted[0]
        self.assertLessEqual(worst, 1e-2, losses)
        self.assertGreater(worst, 1e-6)  # else nothing was rounded

    def test_base(self):
        """The reference has the numbers of the base in fewer bits, as the network has."""
        for form, change in (("int8", in_blocks), ("bfloat16", lambda w: w.bfloat16().float())):
            base = t.LlamaForCausalLM(LLAMA)
            base.load_state_dict({name: change(weight) if weight.dim() > 1 else weight
                                  for name, weight in self.base.state_dict().items()})
            wanted, right = self.train(self.begin(base, form))
            self.ours(f"run-{form}", 2, form, **{"model.base": form})
            self.compare(f"run-{form}", wanted, right)


if __name__ == "__main__":
    dp.main()

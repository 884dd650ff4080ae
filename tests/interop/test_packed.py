"""Test of packed documents (data.pack) beside transformers' models, which compute each document by
itself, so that positions begin anew: 20 steps of AdamW on 1 to 3 ranks have losses no further from
PyTorch's in float64 than twice those of PyTorch in float32, or 3e-5 of the loss, to which rounding
may grow in these steps; the first loss is within 2e-6.

    test_packed.py [NAME,NAME ...]     some of the networks; all by default

It needs a Python with torch and transformers (find_torch.py), and is skipped (77) without one.
"""
import csv
import sys

import find_torch

find_torch.need("torch", "transformers", "safetensors", "numpy")  # with these arguments
chosen = ",".join(sys.argv[1:]).split(",") if len(sys.argv) > 1 else []
del sys.argv[1:]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers as t  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from models import dp  # noqa: E402
from test_folder import FAMILIES, VOCAB, move  # noqa: E402

STEPS, CONTEXT, END, RATE = 20, 32, 2, 0.003
RANKS = (1, 2, 3)
NETWORKS = {
    **{name: FAMILIES[name] for name in ("llama3", "yarn", "mistral", "qwen3", "smollm3", "olmo2",
                                         "gemma3")},
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_layer=2, n_head=4, n_embd=64, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0, use_cache=False)),
}
NETWORKS["gpt2_folder"] = NETWORKS["gpt2"]


def make(name):
    kind, config = NETWORKS[name]
    return kind(config)


def write_documents(path):
    """Returns the pieces of at most CONTEXT inputs with their targets."""
    draw = np.random.default_rng(1)
    texts = []
    for _ in range(30):
        text = [int(draw.integers(3, VOCAB))]
        for _ in range(int(draw.choice([0, 3, 10, 17, 50]))):
            text.append(3 + (text[-1] * 7 + 3) % (VOCAB - 3) if draw.random() < 0.7
                        else int(draw.integers(3, VOCAB)))
        texts.append([*text, END])
    np.save(path, np.concatenate(texts).astype(np.int32))
    return [(torch.tensor(text[at:-1][:CONTEXT]), torch.tensor(text[at + 1:][:CONTEXT]))
            for text in texts for at in range(0, len(text) - 1, CONTEXT)]


def train(name, state, pieces, dtype):
    network = make(name).to(dtype).train()
    network.load_state_dict({k: v.to(dtype) for k, v in state.items()})
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    n_targets = sum(len(y) for _, y in pieces)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0
        for x, y in pieces:
            rows = network(input_ids=x[None], use_cache=False).logits[0]
            loss = F.cross_entropy(rows, y, reduction="sum") / n_targets
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


class Packed(dp.Case):
    def model(self, name):
        if name == "gpt2":
            return {"model.arch": "gpt", "model.init.name": "file",
                    "model.init.path": self.path("net")}
        return {"model.import": self.path("net"), "model.context": CONTEXT}

    def losses(self, name, n, n_pieces):
        """Of steps of all samples at once"""
        job = {**self.model(name), "data.format": "tokens", "data.path": self.folder,
               "data.train": "tokens.npy", "data.pack": "true", "data.end_token": END,
               "train.global_batch": n_pieces, "train.epochs": STEPS, "report.every_steps": 1,
               "optimizer.name": "adamw", "optimizer.lr": RATE, "optimizer.weight_decay": 0.01}
        self.run_driver("--local", "--threads", "1", "--device", "cpu", "--run-dir", f"run{n}",
                        n=n, job=job)
        with open(self.path(f"run{n}", "metrics.csv"), encoding="ascii") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def check(self, name):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        network = make(name)
        move(network)
        state = {k: v.clone() for k, v in network.state_dict().items()}
        network.save_pretrained(self.path("net"))
        pieces = write_documents(self.path("tokens.npy"))
        double, single = (train(name, state, pieces, d) for d in (torch.float64, torch.float32))
        for n in RANKS:
            ours, most = self.losses(name, n, len(pieces)), 3e-5
            self.assertLessEqual(abs(ours[0] - double[0]) / double[0], 2e-6)
            self.assertEqual(len(ours), STEPS)
            for step, (a, b, c) in enumerate(zip(ours, double, single)):
                most = max(most, 2 * abs(c - b) / b)
                self.assertLessEqual(abs(a - b) / b, most, f"step {step + 1} on {n} ranks")
            self.assertLess(sum(ours[-5:]), sum(ours[:5]))


def add(name):
    setattr(Packed, f"test_{name}", lambda self: self.check(name))


for network_name in chosen or NETWORKS:
    add(network_name)

if __name__ == "__main__":
    dp.main()

#!/usr/bin/env python3
"""language_models - the losses that deploy/examples' language models reach, and PyTorch's beside.

    language_models.py [--build DIR] [--text FILE] [--steps N] [--check]

The two jobs of deploy/examples are trained as their heads say, on FILE (DPTRAIN_DATA's
tinyshakespeare): llama-shakespeare.yaml, once with Llama's shape and once with Qwen 2's, and
qwen2-chat-lora.yaml on what the latter makes.  transformers and peft train networks of the same
shapes on the same tokens by the same recipe, one thread, float32: Llama from their own initial
weights, and adapters on the checkpoint that ours wrote.  A conversation is a row of its own there,
and a step has as many rows as ours has conversations on average.  The table has the loss of the
last validation, per token.

--steps shortens all trainings.  --check rehearses with three steps.  Nothing is timed: losses do
not depend on the machine's load.
Exit status 0: measured; 1: a run failed; 77: no Python with torch, transformers, peft, tokenizers.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import bench

sys.path.insert(0, os.path.join(bench.ROOT, "tests", "interop"))
import find_torch  # noqa: E402

EXAMPLES = os.path.join(bench.ROOT, "deploy", "examples")
CONTEXT, BATCH, STEPS = 256, 8, 300
IGNORED = -100


def warmup(n_steps):
    """Steps of warming up: those of llama-shakespeare.yaml, or fewer in a shorter training"""
    return 30 if n_steps == STEPS else min(10, n_steps - 1)


def ours(options, folder, job, name, *words):
    """Trains a job; the loss of its last validation, and how many steps it took."""
    run = os.path.join(folder, "runs", name)
    steps = ["--set", f"train.max_steps={options.steps}", "--set",
             f"schedule.warmup_steps={warmup(options.steps)}"] if options.steps else []
    subprocess.run([os.path.join(options.build, "driver", "dpdriver"), "--job",
                    os.path.join(EXAMPLES, job), "--nranks", "1", "--port", "0", "--threads", "1",
                    "--run-dir", run, *words, *steps], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        epochs = [event for event in map(json.loads, file) if event["event"] == "epoch"]
    return epochs[-1]["validation_loss"], epochs[-1]["step"]


def example(script, *words):
    subprocess.run([sys.executable, os.path.join(EXAMPLES, script), *words], check=True)


def rate(step, n, lr, least, warmup):
    if step < warmup:
        return lr * (step + 1) / warmup
    return least + (lr - least) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (n - warmup)))


def fit(network, optimizer, batches, recipe):
    """One step for each of `batches`; recipe: rate's arguments behind the number of steps."""
    import torch

    network.train()
    for step, (ids, labels) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, len(batches), *recipe)
        network(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in network.parameters() if p.requires_grad], 1)
        optimizer.step()
        optimizer.zero_grad()


def judge(network, batches):
    """The mean loss of all targets."""
    import torch

    network.eval()
    total = n = 0
    with torch.no_grad():
        for ids, labels in batches:
            here = int((labels[:, 1:] != IGNORED).sum())
            total += network(input_ids=ids, labels=labels).loss.item() * here
            n += here
    return total / n


def blocks(tokenizer, text):
    """Samples of CONTEXT tokens with the target behind each: training's and validation's."""
    import torch

    with open(text, encoding="utf-8") as file:
        tokens = tokenizer.encode(file.read()).ids + [0]
    n = (len(tokens) - 1) // CONTEXT
    rows = torch.tensor([tokens[i * CONTEXT:(i + 1) * CONTEXT + 1] for i in range(n)])
    n_validate = n // 10
    return rows[:n - n_validate], rows[n - n_validate:]


def pretrain(folder, text, n_steps):
    import torch
    import transformers
    from tokenizers import Tokenizer

    train, validate = blocks(Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), text)
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder))
    decayed = [p for p in network.parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": [p for p in network.parameters() if p.dim() < 2],
                               "weight_decay": 0}], betas=(0.9, 0.95), weight_decay=0.1)
    n_epochs = n_steps * BATCH // len(train) + 1
    order = torch.cat([torch.randperm(len(train)) for _ in range(n_epochs)])
    batches = [(rows, rows) for rows in
               (train[order[i * BATCH:(i + 1) * BATCH]] for i in range(n_steps))]
    fit(network, optimizer, batches, (0.001, 0.0001, warmup(n_steps)))
    return judge(network, [(rows, rows) for rows in validate.split(BATCH)])


def conversations(folder, file):
    """(tokens, labels) of each line; the assistant's texts with their end marks are learnt."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            ids, labels = [], []
            for message in json.loads(line)["messages"]:
                head = f"<|im_start|>{message['role']}\n"
                is_learnt = message["role"] == "assistant"
                for text, learnt in ((head, False), (message["content"] + "<|im_end|>", is_learnt),
                                     ("\n", False)):
                    part = tokenizer(text, add_special_tokens=False).input_ids
                    ids += part
                    labels += part if learnt else [IGNORED] * len(part)
            out.append((ids[:CONTEXT + 1], labels[:CONTEXT + 1]))
    return out


def padded(rows):
    import torch

    longest = max(len(ids) for ids, _ in rows)
    return (torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows]),
            torch.tensor([labels + [IGNORED] * (longest - len(labels)) for _, labels in rows]))


def tune(folder, file, n_steps):
    import peft
    import torch
    import transformers

    rows = conversations(folder, file)
    n_validate = len(rows) // 10
    train, validate = rows[:-n_validate], rows[-n_validate:]
    network = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(1)
    network = peft.get_peft_model(network, peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad],
                                  weight_decay=0)
    before = judge(network, [padded(validate[i:i + 32]) for i in range(0, n_validate, 32)])
    order = torch.cat([torch.randperm(len(train)) for _ in range(2)]).tolist()
    a_step = len(order) // n_steps if n_steps > 3 else 8
    batches = [padded([train[k] for k in order[i * a_step:(i + 1) * a_step]])
               for i in range(n_steps)]
    fit(network, optimizer, batches, (0.002, 0, min(10, n_steps - 1)))
    return before, judge(network, [padded(validate[i:i + 32]) for i in range(0, n_validate, 32)])


def measure(options, folder):
    """A row of the table after the other"""
    import torch

    torch.set_num_threads(1)
    # The tokens are written beside the text.
    options.text = shutil.copy(options.text, os.path.join(folder, "input.txt"))
    for kind in ("llama", "qwen2"):
        place = os.path.join(folder, kind)
        example("language_model.py", kind, options.text, place)
        loss, n_steps = ours(options, folder, "llama-shakespeare.yaml", kind,
                             "--set", f"model.import={place}", "--set",
                             f"data.path={options.text}")
        theirs = pretrain(place, options.text, n_steps)
        yield f"{kind} from scratch", n_steps, "", loss, theirs
    talk = os.path.join(folder, "conversations.jsonl")
    example("conversations.py", options.text, talk)
    base = os.path.join(folder, "runs", "qwen2", "checkpoints", "latest")
    loss, n_steps = ours(options, folder, "qwen2-chat-lora.yaml", "lora", "--set",
                         f"model.import={base}", "--set", f"data.path={talk}")
    before, theirs = tune(base, talk, n_steps)
    yield "qwen2 tuned by adapters", n_steps, f"{before:.4f}", loss, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=bench.default_build())
    parser.add_argument("--text", default=os.path.join(
        os.environ.get("DPTRAIN_DATA", os.path.join(bench.ROOT, "..", "shared", "data")),
        "tinyshakespeare", "input.txt"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    find_torch.need("torch", "transformers", "peft", "tokenizers")
    options.build, options.text = map(os.path.abspath, (options.build, options.text))
    if options.check:
        options.steps = 3
    with tempfile.TemporaryDirectory(prefix="dptrain-language-") as folder:
        print("| network | steps | before | ours | PyTorch |\n|---|---|---|---|---|", flush=True)
        for name, n_steps, before, mine, theirs in measure(options, folder):
            print(f"| {name} | {n_steps} | {before} | {mine:.4f} | {theirs:.4f} |", flush=True)


if __name__ == "__main__":
    main()

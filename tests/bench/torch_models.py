#!/usr/bin/env python3
"""torch_models - the PyTorch half of models.py: trains one network on one thread for some steps,
and prints one line of JSON.

    torch_models.py --model NAME --precision float32|bfloat16 --kind eager|compiled
                    --steps N --batch N
    torch_models.py --model NAME --export FILE

resnet50 and vit_small are torchvision's, llama is of transformers; --export writes one for dptrain.

As favourable to PyTorch as we know how: one batch that lies ready in memory, channels_last,
scaled_dot_product_attention, fused AdamW, gradients written instead of added to zeros; the
allocator's settings come from the environment (models.py).  bfloat16 is autocast.  The CPU time is
that of the steps after the first two, the wall time the median of them.  With WORLD_SIZE > 1 it is
one process of a DistributedDataParallel group over gloo; the batch is that of all processes.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch_networks import Gpt, VitTiny, resnet18

CONTEXT, VOCAB = 256, 65
FOREIGN = ("resnet50", "vit_small", "llama")


class Llama(nn.Module):
    """15 million parameters, of which a fifth are the table of its tokens"""

    VOCAB = 8192

    def __init__(self):
        super().__init__()
        import transformers  # a case of its own needs it
        self.net = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=self.VOCAB, hidden_size=384, intermediate_size=1024, num_hidden_layers=7,
            num_attention_heads=6, num_key_value_heads=6, max_position_embeddings=CONTEXT,
            tie_word_embeddings=True, use_cache=False))

    def forward(self, tokens):
        return self.net(input_ids=tokens, use_cache=False).logits


def foreign(name):
    """The network that somebody else wrote, in training mode"""
    if name == "llama":
        return Llama().train()
    import torchvision  # likewise
    if name == "resnet50":
        return torchvision.models.resnet50().train()
    return torchvision.models.VisionTransformer(224, 16, 12, 6, 384, 1536).train()


def foreign_input(name, batch):
    if name == "llama":
        return torch.randint(Llama.VOCAB, (batch, CONTEXT))
    return torch.randn(batch, 3, 224, 224)


def export(name, path):
    program = torch.export.export(foreign(name), (foreign_input(name, 3),), strict=False)
    torch.export.save(program, path)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.steps, self.last = kind(256, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.steps(x)[0][:, -1])


def make(args, batch):
    """Model, optimizer, inputs and labels"""
    if args.model == "gpt":
        model = Gpt(layers=6, heads=6, width=384, context=CONTEXT, vocab=VOCAB)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        x = torch.randint(VOCAB, (batch, CONTEXT))
        return model, optimizer, x, torch.randint(VOCAB, (batch * CONTEXT,))
    if args.model in FOREIGN:
        model, x = foreign(args.model), foreign_input(args.model, batch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        if args.model == "llama":
            return model, optimizer, x, torch.randint(Llama.VOCAB, (batch, CONTEXT))
        return (model.to(memory_format=torch.channels_last), optimizer,
                x.contiguous(memory_format=torch.channels_last), torch.randint(1000, (batch,)))
    y = torch.randint(10, (batch,))
    if args.model in ("lstm", "gru"):
        model = Recurrent({"lstm": nn.LSTM, "gru": nn.GRU}[args.model])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        return model, optimizer, torch.randn(batch, 100, 256), y
    if args.model == "vit_tiny":
        model = VitTiny().to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        x = torch.randn(batch, 3, 224, 224)
    else:
        model = resnet18().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4,
                                    nesterov=True, fused=True)
        x = torch.randn(batch, 3, 32, 32)
    return model, optimizer, x.contiguous(memory_format=torch.channels_last), y


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["gpt", "resnet18", "vit_tiny", "lstm", "gru", *FOREIGN],
                        required=True)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--kind", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--export", metavar="FILE")
    args = parser.parse_args()
    if args.export:
        export(args.model, args.export)
        return
    torch.set_num_threads(1)
    torch.manual_seed(1)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    model, optimizer, x, y = make(args, args.batch // size)
    if size > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    def loss_on(x, y):
        with torch.autocast("cpu", torch.bfloat16) if args.precision == "bfloat16" else \
                contextlib.nullcontext():
            logits = model(x)
        return F.cross_entropy(logits.float().flatten(0, -2), y.flatten())

    loss_of = torch.compile(loss_on) if args.kind == "compiled" else loss_on
    start, ends = 0.0, []
    for step in range(args.steps + 2):
        if step == 2:
            start = cpu_seconds()
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    if not torch.isfinite(loss):
        raise SystemExit(f"loss is {loss.item()}")
    print(json.dumps(dict(
        cpu_s=(cpu_seconds() - start) / args.steps, version=torch.__version__,
        wall_s=statistics.median(b - a for a, b in zip(ends[1:], ends[2:])),
        rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)), flush=True)
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

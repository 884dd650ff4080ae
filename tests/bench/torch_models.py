#!/usr/bin/env python3
"""torch_models - the PyTorch half of models.py: trains one network on one thread for some steps,
and prints one line of JSON.

    torch_models.py --model gpt|resnet18 --precision float32|bfloat16 --kind eager|compiled
                    --steps N [--batch N]

As favourable to PyTorch as we know how: one batch that lies ready in memory, channels_last,
scaled_dot_product_attention, fused AdamW, gradients written instead of added to zeros; the
allocator's settings come from the environment (models.py).  bfloat16 is autocast.  The CPU time is
that of the steps after the first two.
"""
import argparse
import contextlib
import json
import resource

import torch
from torch import nn
from torch.nn import functional as F

CONTEXT, WIDTH, LAYERS, HEADS, VOCAB = 256, 384, 6, 6, 65


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, HEADS, c // HEADS).transpose(1, 2)
                   for y in self.qkv(self.norm_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.blocks(self.token(tokens) + self.position.weight[:tokens.shape[1]])
        return F.linear(self.norm(x), self.token.weight).flatten(0, 1)


class Basic(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(k), nn.BatchNorm2d(k)
        self.down = None if c == k else nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False),
                                                      nn.BatchNorm2d(k))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (self.down(x) if self.down else x), inplace=True)


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for i, width in enumerate([64, 128, 256, 512]):
        layers += [Basic(before, width, 2 if i else 1), Basic(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make(args):
    """Model, optimizer, inputs and labels"""
    if args.model == "gpt":
        model = Gpt()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        x = torch.randint(VOCAB, (args.batch, CONTEXT))
        return model, optimizer, x, torch.randint(VOCAB, (args.batch * CONTEXT,))
    model = resnet18().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4,
                                nesterov=True, fused=True)
    x = torch.randn(args.batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    return model, optimizer, x, torch.randint(10, (args.batch,))


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["gpt", "resnet18"], required=True)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--kind", choices=["eager", "compiled"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, optimizer, x, y = make(args)

    def loss_on(x, y):
        with torch.autocast("cpu", torch.bfloat16) if args.precision == "bfloat16" else \
                contextlib.nullcontext():
            logits = model(x)
        return F.cross_entropy(logits.float(), y)

    loss_of = torch.compile(loss_on) if args.kind == "compiled" else loss_on
    start = 0.0
    for step in range(args.steps + 2):
        if step == 2:
            start = cpu_seconds()
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
    if not torch.isfinite(loss):
        raise SystemExit(f"loss is {loss.item()}")
    print(json.dumps(dict(cpu_s=(cpu_seconds() - start) / args.steps, version=torch.__version__,
                          rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))


if __name__ == "__main__":
    main()

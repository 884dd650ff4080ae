"""gpt - GPT-2's network in PyTorch, with Hugging Face's names and layouts, so that its state dict
is that of transformers' GPT2LMHeadModel with a tied head."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out]."""

    def __init__(self, n_in, n_out, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * std)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.02)

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width, 0.1)
        self.c_proj = Conv1D(width, width, 0.05)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(c, dim=2))
        score = q @ k.transpose(2, 3) / math.sqrt(c // self.heads)
        score = score.masked_fill(torch.ones(t, t).tril() == 0, -math.inf)
        return self.c_proj((score.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width, 0.1)
        self.c_proj = Conv1D(4 * width, width, 0.05)

    def forward(self, x):
        y = self.c_fc(x)
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, vocab, context, layers, heads, width):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt(nn.Module):
    """The logits of each token, as rows; with a head of its own, or with wte's weight."""

    def __init__(self, vocab, context, layers, heads, width, tied=True):
        super().__init__()
        self.transformer = Transformer(vocab, context, layers, heads, width)
        self.lm_head = None if tied else nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.transformer(tokens)
        y = self.lm_head(x) if self.lm_head else F.linear(x, self.transformer.wte.weight)
        return y.flatten(0, 1)

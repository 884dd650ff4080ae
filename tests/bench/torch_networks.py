"""torch_networks - the networks of the benchmarks as PyTorch's users write them.

Gpt: GPT-2's blocks, its output tied to its token embedding.  ResNets: torchvision's networks
without their names; ResNet-18 has the stem for images of 32 x 32.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.norm_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(context, width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

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


class VitBlock(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(c, eps=1e-6), nn.LayerNorm(c, eps=1e-6)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(n, t, 3, self.heads, c // self.heads).permute(
            2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class VitTiny(nn.Module):
    """As our vit_tiny: patches of 16 pixels, 12 blocks of width 192 with 3 heads."""

    def __init__(self, width=192, side=224, patch=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(VitBlock(width, 3) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x)[:, 0]))


class Bottleneck(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, k, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
            nn.Conv2d(k, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
            nn.Conv2d(k, 4 * k, 1, bias=False), nn.BatchNorm2d(4 * k))
        self.down = None if c == 4 * k else nn.Sequential(
            nn.Conv2d(c, 4 * k, 1, stride, bias=False), nn.BatchNorm2d(4 * k))

    def forward(self, x):
        return F.relu(self.body(x) + (self.down(x) if self.down else x), inplace=True)


def resnet50(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    before = 64
    for i, (width, n) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for j in range(n):
            layers.append(Bottleneck(before, width, 2 if i and j == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))

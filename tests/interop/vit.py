"""vit - torchvision's VisionTransformer in PyTorch: torchvision's own where it is installed, else
modules with the same names, layouts and order."""
from functools import partial

import torch
from torch import nn

try:
    from torchvision.models import vision_transformer as torchvision
except ImportError:
    torchvision = None


class Block(nn.Module):
    def __init__(self, width, heads, mlp):
        super().__init__()
        norm = partial(nn.LayerNorm, eps=1e-6)
        self.ln_1, self.ln_2 = norm(width), norm(width)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, mlp), nn.GELU(), nn.Dropout(0),
                                 nn.Linear(mlp, width), nn.Dropout(0))

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.self_attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, length, width, depth, heads, mlp):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, length, width).normal_(std=0.02))
        self.layers = nn.Sequential()
        for i in range(depth):
            self.layers.add_module(f"encoder_layer_{i}", Block(width, heads, mlp))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    def __init__(self, image, patch, width, depth, heads, mlp, classes):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = Encoder((image // patch) ** 2 + 1, width, depth, heads, mlp)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(width, classes))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


def make(image, patch, width, depth, heads, mlp, classes):
    """A model of which no value is 0 or 1, not even in norms and biases."""
    if torchvision:
        model = torchvision.VisionTransformer(image, patch, depth, heads, width, mlp,
                                              num_classes=classes)
    else:
        model = VisionTransformer(image, patch, width, depth, heads, mlp, classes)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.05)
    return model

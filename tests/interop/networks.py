"""networks - networks for images, as training.py describes them: torchvision's own, and lists of
layers."""
import os

import numpy as np
import safetensors.torch
import torch
import torchvision
from torch import nn

CLASSES = 10


def write_samples(to, name, n, size, seed):
    """Write n images [n,H,W,C] of a colour per class, with noise, and their labels.  The last class
    is one of them, which tells how many classes there are.  Returns both for PyTorch."""
    draw = np.random.default_rng(seed)
    y = np.arange(CLASSES - n, CLASSES)
    colour = (y[:, None] * 41 * (np.arange(3) + 1)) % 130
    x = draw.integers(0, 120, (n, size, size, 3)) + colour[:, None, None, :]
    x = (x / 255).astype(np.float32)
    np.save(os.path.join(to, f"{name}.x.npy"), x)
    np.save(os.path.join(to, f"{name}.y.npy"), y)
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y)


class Images:
    """The parts that these networks share.  n_samples: in each set.  image: pixels of a side.
    model_keys(): of the job file."""
    n_samples, image = 6, 32

    def keys(self):
        return {**self.model_keys(), "data.format": "npy",
                "data.train": "[train.x.npy, train.y.npy]",
                "data.validation": "[validation.x.npy, validation.y.npy]"}

    def write_data(self, to):
        self.train = write_samples(to, "train", self.n_samples, self.image, 1)
        self.validation = write_samples(to, "validation", self.n_samples, self.image, 2)
        return self.n_samples

    def save(self, model, to):
        path = os.path.join(to, "model.safetensors")
        safetensors.torch.save_file(model.state_dict(), path)
        return path

    def load(self, folder):
        model = self.make()
        path = os.path.join(folder, "model.safetensors")
        model.load_state_dict(safetensors.torch.load_file(path), strict=True)
        return model

    def logits(self, model, x):
        return model(x)


def with_cifar_stem(resnet):
    """The network for small images: its first convolution has no stride, and no pool follows."""
    resnet.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    resnet.maxpool = nn.Identity()
    return resnet


class ResNet(Images):
    """torchvision's.  The last norm of each block begins small, as with zero_init_residual: else a
    deep network of random weights makes percents of the loss out of one rounding.

    These take long, so they train in fewer ways than the lists of layers, whose kernels they share:
    those compare both optimizers in both precisions on one rank and on two."""

    def __init__(self, depth, stem, image):
        self.name, self.depth, self.stem, self.image = f"resnet{depth}", depth, stem, image
        self.n_samples = 4 if depth == 18 else 6
        self.rates = ({"sgd": 0.001, "adamw": 2e-5} if depth == 18 else
                      {"sgd": 1e-5, "adamw": 2e-6})
        self.runs = {"sgd": (("float32", 1), ("float32", 2), ("bfloat16", 2))}
        if depth == 18:
            self.runs["adamw"] = (("float32", 2),)

    def model_keys(self):
        return {"model.arch": self.name, "model.stem": self.stem}

    def make(self):
        model = getattr(torchvision.models, self.name)(num_classes=10)
        for block in model.modules():
            if isinstance(block, torchvision.models.resnet.BasicBlock):
                nn.init.uniform_(block.bn2.weight, 0.1, 0.3)
            elif isinstance(block, torchvision.models.resnet.Bottleneck):
                nn.init.uniform_(block.bn3.weight, 0.1, 0.3)
        return with_cifar_stem(model) if self.stem == "cifar" else model


class ViT(Images):
    """ViT-tiny, for 16 patches and the class token.  No value is 0 or 1, not even in norms and
    biases."""
    name, image = "vit_tiny", 64
    rates = {"sgd": 0.002, "adamw": 2e-5}

    def model_keys(self):
        return {"model.arch": self.name, "model.image": self.image}

    def make(self):
        model = torchvision.models.VisionTransformer(
            image_size=self.image, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192,
            mlp_dim=768, num_classes=10)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape) * 0.05)
        return model


class Norms(Images):
    """Group norm in a residual, instance norm, layer norm and a transposed convolution."""
    name = "norms"
    rates = {"sgd": 0.002, "adamw": 2e-4}
    text = ("[conv: {channels: 12, kernel: 3, stride: 2, padding: 1}, group_norm: {groups: 3}, "
            "silu, residual: [conv: {channels: 12, kernel: 3, padding: 1}, "
            "group_norm: {groups: 4}, leaky_relu], "
            "conv_transpose: {channels: 8, kernel: 3, stride: 2, padding: 1, output_padding: 1}, "
            "instance_norm, gelu, adaptive_avg_pool: {size: 4}, flatten, layer_norm, "
            "linear: {units: 10}]")

    def model_keys(self):
        return {"model.arch": "layers", "model.layers": self.text}

    def make(self):
        inner = Residual(nn.Conv2d(12, 12, 3, padding=1), nn.GroupNorm(4, 12), nn.LeakyReLU())
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.SiLU(), inner,
            nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1, output_padding=1),
            nn.InstanceNorm2d(8), nn.GELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
            nn.LayerNorm(128), nn.Linear(128, 10))


class Residual(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + x


class Layers(Images):
    """A list of layers with a residual, and the same in PyTorch."""
    name = "layers"
    rates = {"sgd": 0.02, "adamw": 2e-3}
    text = ("[conv: {channels: 12, kernel: 3, padding: 1, bias: false}, batch_norm, relu, "
            "max_pool: {kernel: 3, stride: 2, padding: 1}, "
            "residual: [conv: {channels: 12, kernel: 3, padding: 1}, batch_norm, relu, "
            "conv: {channels: 12, kernel: 3, padding: 1, groups: 2}], tanh, "
            "conv: {channels: 20, kernel: 3, stride: 2, dilation: 2}, gelu, "
            "avg_pool: {kernel: 2}, flatten, linear: {units: 32}, relu, linear: {units: 10}]")

    def model_keys(self):
        return {"model.arch": "layers", "model.layers": self.text}

    def make(self):
        inner = Residual(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
                         nn.Conv2d(12, 12, 3, padding=1, groups=2))
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1), inner, nn.Tanh(), nn.Conv2d(12, 20, 3, 2, dilation=2),
            nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(180, 32), nn.ReLU(),
            nn.Linear(32, 10))


class Activations(Layers):
    """The activations that the other list lacks."""
    name = "activations"
    text = ("[conv: {channels: 12, kernel: 3}, silu, avg_pool: {kernel: 2}, "
            "conv: {channels: 16, kernel: 3}, leaky_relu, residual: [softmax], "
            "max_pool: {kernel: 2}, flatten, linear: {units: 32}, gelu_tanh, "
            "linear: {units: 16}, sigmoid, linear: {units: 10}, log_softmax]")

    def make(self):
        return nn.Sequential(
            nn.Conv2d(3, 12, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(12, 16, 3), nn.LeakyReLU(),
            Residual(nn.Softmax(1)), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 32),
            nn.GELU("tanh"), nn.Linear(32, 16), nn.Sigmoid(), nn.Linear(16, 10), nn.LogSoftmax(1))

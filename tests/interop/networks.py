"""networks - the networks of test_networks.py.  Each class gives the keys of the job file, and
makes the same network in PyTorch."""
from torch import nn

import resnet
import vit


class ResNet:
    """Small rates, because a deep network makes much of a rounding error."""

    def __init__(self, depth, stem):
        self.rate = 0.005 if depth == 18 else 0.00005
        self.name, self.depth, self.stem = f"resnet{depth}", depth, stem

    def keys(self, case):
        del case
        return {"model.arch": self.name, "model.stem": self.stem}

    def make(self):
        return resnet.make(self.depth, 10, self.stem)


class ViT:
    """Pixels of 32, 16 patches and the class token."""
    name, rate = "vit_tiny", 20
    size = {"patch": 8, "width": 64, "depth": 4, "heads": 4, "mlp": 160}

    def keys(self, case):
        del case
        return {"model.arch": self.name, "model.image": 32,
                **{f"model.{key}": value for key, value in self.size.items()}}

    def make(self):
        return vit.make(32, classes=10, **self.size)


class Norms:
    """Group norm in a residual, instance norm, layer norm and a transposed convolution."""
    name, rate = "norms", 20
    text = ("[conv: {channels: 12, kernel: 3, stride: 2, padding: 1}, group_norm: {groups: 3}, "
            "silu, residual: [conv: {channels: 12, kernel: 3, padding: 1}, "
            "group_norm: {groups: 4}, leaky_relu], "
            "conv_transpose: {channels: 8, kernel: 3, stride: 2, padding: 1, output_padding: 1}, "
            "instance_norm, gelu, adaptive_avg_pool: {size: 4}, flatten, layer_norm, "
            "linear: {units: 10}]")

    def keys(self, case):
        del case
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


class Layers:
    """A list of layers with a residual, and the same in PyTorch."""
    name, rate = "layers", 40
    text = ("[conv: {channels: 12, kernel: 3, padding: 1, bias: false}, batch_norm, relu, "
            "max_pool: {kernel: 3, stride: 2, padding: 1}, "
            "residual: [conv: {channels: 12, kernel: 3, padding: 1}, batch_norm, relu, "
            "conv: {channels: 12, kernel: 3, padding: 1, groups: 2}], tanh, "
            "conv: {channels: 20, kernel: 3, stride: 2, dilation: 2}, gelu, "
            "avg_pool: {kernel: 2}, flatten, linear: {units: 32}, relu, linear: {units: 10}]")

    def keys(self, case):
        del case
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
    name, rate = "activations", 40
    text = ("[conv: {channels: 12, kernel: 3}, silu, avg_pool: {kernel: 2}, "
            "conv: {channels: 16, kernel: 3}, leaky_relu, max_pool: {kernel: 2}, flatten, "
            "linear: {units: 32}, gelu_tanh, linear: {units: 16}, sigmoid, linear: {units: 10}]")

    def make(self):
        return nn.Sequential(
            nn.Conv2d(3, 12, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(12, 16, 3), nn.LeakyReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 32), nn.GELU("tanh"), nn.Linear(32, 16),
            nn.Sigmoid(), nn.Linear(16, 10))

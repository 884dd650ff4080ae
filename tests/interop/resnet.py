"""resnet - torchvision's residual networks in PyTorch: torchvision's own where it is installed,
else modules with the same names, layouts and order."""
from torch import nn
from torch.nn import functional as F

try:
    from torchvision.models import resnet as torchvision
except ImportError:
    torchvision = None

DEPTHS = {18: ("basic", [2, 2, 2, 2]), 34: ("basic", [3, 4, 6, 3]),
          50: ("bottleneck", [3, 4, 6, 3])}


class Block(nn.Module):
    """A basic block (two convolutions) or a bottleneck (three)."""

    def __init__(self, kind, before, width, stride):
        super().__init__()
        after = width if kind == "basic" else 4 * width
        sizes = ([(before, width, 3, stride), (width, width, 3, 1)] if kind == "basic" else
                 [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)])
        self.n = len(sizes)
        for i, (c, k, kernel, step) in enumerate(sizes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(c, k, kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(k))
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False),
                                            nn.BatchNorm2d(after))

    def forward(self, x):
        h = x
        for i in range(1, self.n + 1):
            h = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(h))
            h = F.relu(h) if i < self.n else h
        return F.relu(h + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, depth, classes):
        super().__init__()
        kind, counts = DEPTHS[depth]
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.maxpool, channels = nn.MaxPool2d(3, 2, 1), 64
        for i, n in enumerate(counts):
            blocks = []
            for k in range(n):
                blocks.append(Block(kind, channels, 64 << i, 2 if i and not k else 1))
                channels = (64 << i) * (1 if kind == "basic" else 4)
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


def make(depth, classes, stem):
    if torchvision:
        model = getattr(torchvision, f"resnet{depth}")(num_classes=classes)
    else:
        model = ResNet(depth, classes)
    if stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = nn.Identity()
    return model

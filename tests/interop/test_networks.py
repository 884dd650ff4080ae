"""Tests of networks for images with PyTorch and torchvision (training.py): from their weights 20
steps of ours have their losses, and with our file they give our logits.

They are skipped (77) where there are no such packages (find_torch.py).
"""
import find_torch

find_torch.need("numpy", "safetensors", "torch", "torchvision")

import torch  # noqa: E402

import networks  # noqa: E402
from training import Training, dp  # noqa: E402


class Networks(Training):
    def test_layers(self):
        self.compare(networks.Layers())

    def test_activations(self):
        self.compare(networks.Activations())

    def test_norms(self):
        self.compare(networks.Norms())

    def test_vit(self):
        self.compare(networks.ViT())

    def test_resnet18(self):
        self.compare(networks.ResNet(18, "cifar", 32))

    def test_resnet50(self):
        torch.set_num_threads(2)  # with one PyTorch convolves 1x1 without oneDNN, many times slower
        self.compare(networks.ResNet(50, "imagenet", 64))


if __name__ == "__main__":
    dp.main()

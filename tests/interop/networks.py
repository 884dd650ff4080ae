"""networks - the networks of test_networks.py: the job's keys, and the same in PyTorch."""
import resnet


class ResNet:
    def __init__(self, depth, stem):
        self.name, self.depth, self.stem = f"resnet{depth}", depth, stem

    def keys(self, case):
        del case
        return {"model.arch": self.name, "model.stem": self.stem}

    def make(self):
        return resnet.make(self.depth, 10, self.stem)

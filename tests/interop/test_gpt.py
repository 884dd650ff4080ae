"""Tests of GPT-2's network with transformers (training.py): from the file that save_pretrained has
written 20 steps of ours have the losses of GPT2LMHeadModel, and from_pretrained loads our folder.

They are skipped (77) where there is no such package (find_torch.py).
"""
import find_torch

find_torch.need("numpy", "torch", "transformers")

import gpt  # noqa: E402
from training import Training, dp  # noqa: E402


class GPT(Training):
    def test_tied(self):
        self.compare(gpt.Gpt(tied=True))
        self.assertGreater(self.events("epoch", "gpt-sgd-float32-1")[-1]["tokens_per_second"], 0)

    def test_own_head(self):
        self.compare(gpt.Gpt(tied=False))


if __name__ == "__main__":
    dp.main()

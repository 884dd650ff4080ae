"""Tests that the real daemons have the same losses on MNIST with any number of ranks and
micro-batches.

LeNet starts from PyTorch's default weights, in float32.  The data are looked for in
$DPTRAIN_DATA/mnist and in ../shared/data/mnist beside the tree; without them the test is skipped
(77).
"""

import os
import sys

import check_events
from models import dp

DATA = os.path.join(os.environ.get("DPTRAIN_DATA", os.path.join(dp.ROOT, "..", "shared", "data")),
                    "mnist")
# Between steps 40 and 60, where the loss falls from 2 to 0.5, a rate of 0.2 is almost too high:
# with some seeds the loss bounces there, and rounding decides how.  From seed 1's weights and order
# PyTorch's own splits in 1 to 4 parts differ by 1.8 % over the epoch (0.6678 to 0.6797), while its
# first 20 steps agree to 1e-7; ours behaves alike.  With seed 2 the loss falls smoothly.
SEED = 2
JOB = {"model.arch": "lenet", "data.format": "mnist", "data.path": os.path.abspath(DATA),
       "data.validation": "t10k", "train.global_batch": 256, "train.epochs": 1, "train.seed": SEED,
       "optimizer.lr": 0.2, "checkpoint.every_epochs": 0}

# ranks, micro-batches
SPLITS = [(1, 1), (2, 1), (3, 1), (4, 1), (1, 4), (3, 4)]


class Base(dp.Case):
    def losses(self, n, accumulate, **more):
        run = f"run-{n}-{accumulate}"
        self.run_driver("--local", "--threads", "1", "--run-dir", run, n=n,
                        job={**JOB, "train.accumulate": accumulate,
                             **{k.replace("__", "."): v for k, v in more.items()}})
        self.assertEqual(check_events.problems(self.path(run), nranks=n), [])
        epoch, = self.events("epoch", run)
        return epoch

    def compare(self, splits, train_tolerance, validation_tolerance, **more):
        """Compare the losses of all splits with those of the first."""
        found = {split: self.losses(*split, **more) for split in splits}
        want = found[splits[0]]
        text = ", ".join(f"{n} x {k}: {e['train_loss']:.7f} {e['validation_loss']:.7f}"
                         for (n, k), e in found.items())
        print(f"\nranks x micro-batches: training loss, validation loss: {text}", flush=True)
        for split, epoch in found.items():
            for key, tolerance in (("train_loss", train_tolerance),
                                   ("validation_loss", validation_tolerance)):
                with self.subTest(split=split, key=key):
                    difference = abs(epoch[key] - want[key]) / want[key]
                    self.assertLess(difference, tolerance, text)
        return want

    def epoch(self, splits, steps, accuracy):
        """Splits add in different orders, and the steps amplify the rounding; the tolerances are
        what that may amount to."""
        want = self.compare(splits, 3e-3, 5e-2, train__max_steps=steps)
        self.assertEqual(want["step"], steps)
        self.assertGreater(want["validation_accuracy"], accuracy)


class Equal(Base):
    def test_twenty_steps(self):
        want = self.compare(SPLITS, 1e-5, 1e-4, train__max_steps=20)
        self.assertEqual(want["step"], 20)
        self.assertLess(want["train_loss"], 2.31)

    def test_hundred_steps(self):
        self.epoch([(1, 1), (3, 4)], 100, 0.85)  # both ways to split at once


class Rest(Base):
    """Takes minutes, and only `tests/run.sh all` runs it."""

    def test_first_epoch(self):
        self.epoch(SPLITS, 235, 0.93)


if __name__ == "__main__":
    if not os.path.isdir(DATA):
        print(f"skipped: no MNIST in {DATA}; set DPTRAIN_DATA to the folder that holds mnist/")
        sys.exit(77)
    dp.main()

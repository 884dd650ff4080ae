"""Training that looks after itself: train.overfit."""

import dp
from dp import USAGE

JOB = {**dp.LIGHT, "data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64}


class Loops(dp.Case):
    def train(self, *args, job=None, n=2, run="run", **kwargs):
        return self.run_driver(*(["--local"] if n > 1 else []), *dp.EXACT, "--run-dir", run, *args,
                               n=n, job={**JOB, **(job or {})}, **kwargs)


class Overfit(Loops):
    JOB = {"train.overfit": 40, "train.epochs": 60}

    def test_same_samples(self):
        """Each step trains the 40 samples, validation sees the same ones, and all are learnt."""
        driver = self.train(job=self.JOB)
        self.assertRegex(driver.text, "of 512 training samples only the first 40 are trained")
        epochs = self.events("epoch", "run")
        self.assertEqual([epoch["step"] for epoch in epochs], list(range(1, 61)))
        for epoch, after in zip(epochs[::20], epochs[1::20]):
            self.assertAlmostEqual(epoch["validation_loss"], after["train_loss"], delta=1e-5)
        self.assertEqual(epochs[-1]["validation_accuracy"], 1)
        self.assertEqual(len(self.events("warning", "run")), 1)

    def test_order_and_resume(self):
        """Steps take the samples in order, on any number of ranks, after a resume, too."""
        job = {"train.overfit": 40, "train.global_batch": 16, "train.epochs": 4}
        self.train(job=job, n=1)
        self.assertEqual(self.events("done", "run")[0]["step"], 12)
        self.train(job={**job, "train.max_steps": 5}, n=1, run="cut")
        self.train("--resume", job={**job, "train.max_steps": 0}, n=1, run="cut")
        self.assertEqual(self.weights("cut"), self.weights("run"))
        self.train(job=job, n=3, run="three")
        for one, three in zip(self.events("epoch", "run"), self.events("epoch", "three")):
            self.assertAlmostEqual(one["train_loss"], three["train_loss"], delta=1e-5)

    def test_refused(self):
        driver = self.train(job={"train.overfit": 513}, n=1, status=USAGE)
        self.assertRegex(driver.text, "train.overfit is 513, but there are 512 training samples")
        self.train(job=self.JOB | {"train.epochs": 1}, n=1)
        driver = self.train("--resume", job=self.JOB | {"train.overfit": 41}, n=1, status=USAGE)
        self.assertRegex(driver.text, "train.overfit is 40")
        self.run_driver("--evaluate", "--checkpoint", "run", job=None)


if __name__ == "__main__":
    dp.main()

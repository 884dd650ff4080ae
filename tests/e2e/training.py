"""training - jobs whose losses must be those of the same job when nothing disturbs it.
The tests of recovery and of draining derive their cases from Case."""

import json
import os
import random
import struct

import dp

# 32 steps an epoch.  SLOW has the demo's network, for jobs that must not end before something else.
SLOW = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 16,
        "train.epochs": 12}
JOB = {**SLOW, **dp.LIGHT}
# For jobs that go on with another number of ranks, whose sums are rounded differently.  Training at
# the usual rate amplifies rounding from 1e-10 to 1e-2 within 20 epochs, and at 0.006 it did to 2e-5
# on a processor with AVX2.  At this rate it stays below 1e-8 there, while a step that is lost or
# done twice changes a loss by 2e-5 or more.
CALM = {"optimizer.lr": 0.004}

undisturbed = {}


class Case(dp.Case):
    def losses(self, run="runs/demo"):
        return [(event["epoch"], event["step"], event["train_loss"],
                 event.get("validation_loss", 0)) for event in self.events("epoch", run)]

    def write_data(self, name, seed):
        """Writes noise as MNIST's four files."""
        noise = random.Random(seed)
        os.mkdir(self.path(name))
        for prefix, n in (("train", 512), ("t10k", 64)):
            images = struct.pack(">iiii", 0x803, n, 28, 28) + noise.randbytes(n * 784)
            labels = struct.pack(">ii", 0x801, n) + bytes(i % 10 for i in range(n))
            for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
                with open(self.path(name, f"{prefix}-{kind}-ubyte"), "wb") as file:
                    file.write(content)

    def undisturbed(self, job, n, *args):
        """The losses of the same job when nothing befalls it, and its weights."""
        key = (n, *args, *sorted((k, str(v)) for k, v in job.items()
                                 if not k.startswith("cluster.")))
        if key not in undisturbed:
            run = f"calm-{len(undisturbed)}"
            self.run_driver("--local", "--run-dir", run, *args, n=n, job=job)
            undisturbed[key] = self.losses(run), self.weights(run)
        return undisturbed[key]

    def expected(self, job, n):
        """The losses of the same job when no rank is lost."""
        return self.undisturbed(job, n)[0]

    def final_losses(self):
        """The losses of each epoch.  An epoch that ended after the checkpoint from which the run
        was resumed was told before, and again after it."""
        return list({row[0]: row for row in self.losses()}.values())

    def assert_close(self, got, want):
        """These losses differ by rounding alone."""
        self.assertEqual([row[:2] for row in got], [row[:2] for row in want])
        for row, calm in zip(got, want):
            for seen, wanted in zip(row[2:], calm[2:]):
                self.assertLess(abs(seen - wanted), 1e-5 * abs(wanted), (row, calm))

    def assert_as_undisturbed(self, job, n):
        """If the number of ranks changes from `n` on the way, the job must be CALM."""
        self.assert_close(self.losses(), self.expected(job, n))

    def assert_recovered(self, n_times=1, nranks=None):
        events = self.events("recovered")
        self.assertEqual(len(events), n_times)
        for event in events:
            self.assertLessEqual(event["steps_lost"], 1)
            self.assertGreaterEqual(event["steps_lost"], 0)
            self.assertGreaterEqual(event["generation"], 2)
            if nranks:
                self.assertEqual(event["nranks"], nranks)
        self.assertEqual(self.events("error"), [])

    def wait_spares(self, n):
        """Waits until so many spares are ready to take part at once."""
        def roles():
            status = self.start([dp.DRIVER, "--status", "--log-format", "json"])
            self.assert_exit(status, dp.FINISHED)
            return [rank["role"] for rank in json.loads(status.out)["ranks"]]

        dp.wait_for(f"{n} spares", lambda: roles().count("spare") == n)

    def start_ranks(self, job, *args, n=3, spares=0, **kwargs):
        """A driver and its followers, in the order of their ranks, then the spares."""
        driver = self.driver(*args, n=n, job={**job, "cluster.spares": spares}, **kwargs)
        ranks = [self.follower("--rank", str(k)) for k in range(1, n)]
        for k in range(1, n):
            driver.wait_line(f"rank {k} joined")
        return [driver, *ranks, *(self.follower() for _ in range(spares))]

    def wait_phase(self, driver, phase):
        dp.wait_for(f"phase {phase}", lambda: driver.state().startswith(phase))

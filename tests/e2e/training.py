"""training - jobs whose losses are compared with those of the same job, undisturbed."""

import json

import dp

# 32 steps an epoch.
JOB = {"data.samples": 2048, "data.validation_samples": 512, "train.global_batch": 64,
       "train.epochs": 12}

undisturbed = {}


class Case(dp.Case):
    def losses(self, run="runs/demo"):
        return [(event["epoch"], event["step"], event["train_loss"],
                 event.get("validation_loss", 0)) for event in self.events("epoch", run)]

    def expected(self, job, n):
        """The losses of the same job, with nothing lost."""
        key = (n, *sorted((k, v) for k, v in job.items() if not k.startswith("cluster.")))
        if key not in undisturbed:
            self.run_driver("--local", "--run-dir", "calm", n=n, job=job)
            undisturbed[key] = self.losses("calm")
        return undisturbed[key]

    def assert_as_undisturbed(self, job, n):
        want, got = self.expected(job, n), self.losses()
        self.assertEqual([row[:2] for row in got], [row[:2] for row in want])
        for row, calm in zip(got, want):
            for seen, wanted in zip(row[2:], calm[2:]):
                self.assertLess(abs(seen - wanted), 1e-5 * abs(wanted), (row, calm))

    def assert_near_undisturbed(self, job, n):
        """Of other numbers of ranks: equal but for rounding, which training amplifies."""
        want, got = self.expected(job, n), self.losses()
        self.assertEqual([row[:2] for row in got], [row[:2] for row in want])
        for row, calm in zip(got, want):
            self.assertLess(abs(row[2] - calm[2]), 1e-2)

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
        """Until there are so many that could take part at once."""
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

"""Where the time of a run went: the account in the events adds up to the wall time, by a loss, a
killed driver and a resume."""

import dp
from dp import FINISHED

CAUSES = ["start", "data", "checkpoint", "validation", "lost", "repeated", "waiting"]
# 8 steps an epoch, each with a validation and a checkpoint.
JOB = {**dp.LIGHT, "data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 4}
TOLD = ("form", "epoch", "checkpoint", "done")


class Goodput(dp.Case):
    def assert_adds_up(self, event):
        badput = event["badput"]
        self.assertEqual(list(badput), CAUSES)
        for seconds in badput.values():
            self.assertGreaterEqual(seconds, 0)
        productive = event["goodput"] * event["wall_seconds"]
        self.assertLess(abs(sum(badput.values()) + productive - event["wall_seconds"]), 1e-3)

    def accounts(self, run="run"):
        told = [event for event in self.events(run=run) if event["event"] in TOLD]
        for event in told:
            self.assert_adds_up(event)
        walls = [event["wall_seconds"] for event in told]
        self.assertEqual(walls, sorted(walls))
        return told

    def test_the_sum_is_the_wall_time(self):
        driver = self.run_driver("--local", "--run-dir", "run", n=2, job=JOB)
        told = self.accounts()
        self.assertEqual({event["event"] for event in told}, set(TOLD))
        done, = self.events("done", "run")
        first, = self.events("first_step", "run")
        badput = done["badput"]
        self.assertLess(abs(done["wall_seconds"] - done["seconds"]), 1e-3)
        self.assertLess(abs(badput["start"] + badput["waiting"] - first["seconds"]), 0.1)
        self.assertGreater(badput["start"], 0)
        self.assertGreater(badput["validation"], 0)
        self.assertEqual(badput["repeated"], 0)
        self.assertEqual(badput["lost"], 0)
        self.assertGreater(done["goodput"], 0)
        self.assertRegex(driver.out, r"goodput   \d+\.\d % of the time; start ")

    def test_a_price(self):
        job = {**JOB, "report.price_per_rank_hour": 3.6e6}  # a thousand for each second of a rank
        driver = self.run_driver("--local", "--run-dir", "run", n=2, job=job)
        costs = [event["cost"] for event in self.accounts()]
        self.assertEqual(costs, sorted(costs))
        done, = self.events("done", "run")
        self.assertLess(abs(done["cost"] - 3.6e6 * done["rank_hours"]), 1e-6 * done["cost"])
        self.assertLessEqual(done["rank_hours"], 2 * done["wall_seconds"] / 3600)
        self.assertGreater(done["rank_hours"], done["wall_seconds"] / 3600)
        self.assertLess(abs(4 * done["cost_per_epoch"] - done["cost"]), 1e-6 * done["cost"])
        self.assertRegex(driver.out, r"cost      \d+\.\d\d, \d+\.\d\d an epoch")
        self.run_driver("--local", "--run-dir", "free", n=1, job=JOB)
        self.assertNotIn("cost", self.events("done", "free")[0])

    def test_a_loss(self):
        self.run_driver("--local", "--run-dir", "run", "--inject", "kill:rank1@step12", n=3,
                        job=JOB)
        self.accounts()
        done, = self.events("done", "run")
        recovered, = self.events("recovered", "run")
        self.assertLess(abs(done["badput"]["lost"] - recovered["seconds"]), 1e-3)
        self.assertGreater(done["badput"]["repeated"], 0)
        self.assertLess(abs(done["wall_seconds"] - done["seconds"]), 1e-3)

    def test_a_killed_driver_and_a_resume(self):
        job = {**JOB, **dp.FORSAKEN}
        self.driver("--local", "--run-dir", "run", "--inject", "kill:rank0@step12", n=2,
                    job=job).wait_exit()
        before = self.accounts()[-1]
        self.run_driver("--local", "--run-dir", "run", "--resume", status=FINISHED, n=2, job=job)
        self.accounts()
        done, = self.events("done", "run")
        self.assertGreater(done["badput"]["repeated"], 0)
        self.assertGreater(done["badput"]["start"], before["badput"]["start"])
        ran = before["wall_seconds"] + done["seconds"]
        self.assertGreaterEqual(done["wall_seconds"] + 1e-3, ran)

    def test_a_standby_with_a_directory_of_its_own(self):
        """It knows the account from heartbeats, which go once a second."""
        port = str(dp.free_port())
        driver = self.driver("--port", port, "--run-dir", "run", "--inject",
                             "delay:rank1@step10:2500ms,kill:rank0@step20", n=3, job=JOB,
                             port=False)
        standby = self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--threads", "1", "--run-dir", "own"])
        standby.wait_line("as its standby")
        followers = [self.follower("--rank", str(k), port=int(port)) for k in (1, 2)]
        driver.wait_exit()
        for daemon in (standby, *followers):
            self.assert_exit(daemon, FINISHED)
        before, after = self.accounts("run")[-1], self.accounts("own")
        self.assertGreater(before["wall_seconds"], 2.5)
        self.assertGreater(after[0]["wall_seconds"], before["wall_seconds"])
        self.assertGreater(after[0]["badput"]["lost"], 0)
        self.assertGreaterEqual(after[0]["badput"]["start"], before["badput"]["start"])


if __name__ == "__main__":
    dp.main()

"""Jobs of 1, 2 and 3 ranks that nothing disturbs, started in every way, and their files.
Their losses depend on the job alone, and not on the number of ranks."""

import json
import os
import re
import time

import dp
from dp import FINISHED, SMALL

EPOCH_FIELDS = {"epoch", "step", "train_loss", "train_seconds", "samples_per_second",
                "step_ms_median", "comm_exposed_ms_median", "validation_loss",
                "validation_accuracy", "validation_top5"}


class Happy(dp.Case):
    def check_record(self, n, epochs=2, run="runs/demo"):
        """events.jsonl has the promised events and fields, in order."""
        events = self.events(run=run)
        kinds = [event["event"] for event in events]
        self.assertEqual(kinds[0], "start")
        self.assertEqual(kinds[-1], "done")
        self.assertEqual(sorted(event["rank"] for event in self.events("join", run)),
                         list(range(1, n)))
        self.assertEqual(kinds.count("form"), 1)
        self.assertEqual(kinds.count("first_step"), 1)
        times = [event["time"] for event in events]
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(times[-1] - time.time()), 600)

        start, = self.events("start", run)
        self.assertEqual(start["nranks"], n)
        self.assertEqual(start["device"], "cpu")
        self.assertRegex(start["version"], r"^\d+\.\d+")
        form, = self.events("form", run)
        self.assertEqual((form["generation"], form["nranks"]), (1, n))
        first, = self.events("first_step", run)
        self.assertEqual(len(first["rss_mib"]), n)
        self.assertGreater(min(first["rss_mib"]), 1)
        self.assertGreater(first["seconds"], 0)

        found = self.events("epoch", run)
        self.assertEqual([event["epoch"] for event in found], list(range(1, epochs + 1)))
        self.assertEqual([event["step"] for event in found], [32 * k for k in range(1, epochs + 1)])
        for event in found:
            self.assertLessEqual(EPOCH_FIELDS, set(event))
            self.assertGreater(event["samples_per_second"], 0)
            self.assertGreater(event["step_ms_median"], 0)
        done, = self.events("done", run)
        self.assertEqual(done["step"], 32 * epochs)
        self.assertEqual(len(done["peak_rss_mib"]), n)
        for key in ("train_loss", "validation_loss", "validation_accuracy", "validation_top5"):
            self.assertEqual(done[key], found[-1][key])
        return found

    def check_run_dir(self, run="runs/demo"):
        """The run directory has job.yaml, checkpoints and `latest`."""
        self.assertTrue(os.path.isfile(self.path(run, "job.yaml")))
        folder = self.path(run, "checkpoints")
        latest = os.readlink(os.path.join(folder, "latest"))
        self.assertRegex(latest, r"^step-\d{8}$")
        self.assertEqual(sorted(os.listdir(os.path.join(folder, "latest"))),
                         ["model.safetensors", "optimizer.safetensors", "state.json"])
        for event in self.events("checkpoint", run):
            self.assertEqual(set(event), {"event", "time", "step", "path", "seconds",
                                          "exposed_seconds", "wall_seconds", "goodput", "badput",
                                          "rank_hours"})
        self.assertEqual(int(latest[5:]), self.events("checkpoint", run)[-1]["step"])
        self.assertEqual([name for name in os.listdir(self.path(run)) if name.endswith(".new")], [])

    def test_one_rank(self):
        driver = self.run_driver(n=1)
        found = self.check_record(1)
        self.check_run_dir()
        self.assertLess(found[-1]["train_loss"], found[0]["train_loss"])
        self.assertRegex(driver.out, r"(?m)^ +epoch +training loss +validation loss +accuracy")
        self.assertRegex(driver.out, r"(?m)^accuracy +\d+\.\d\d %")
        model = re.search(r"(?m)^model +(\S+)", driver.out).group(1)
        self.assertTrue(os.path.isfile(self.path(model)), model)
        self.assertRegex(driver.out, rf"(?m)^next +{re.escape(dp.DRIVER)} --nranks 1 ")
        self.assertEqual(len(re.findall(r"epoch \d/2: step", driver.text)), 2)
        self.assertNotIn("\033", driver.text)

    def test_job_alone(self):
        """Without --nranks a job trains on one rank."""
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write("name: mine\nmodel: {arch: lenet}\ndata: {format: digits, samples: 64, "
                       "validation_samples: 8}\ntrain: {global_batch: 32, epochs: 1}\n")
        driver = self.start([dp.DRIVER, "--job", "job.yaml", "--port", "0"])
        self.assert_exit(driver, dp.FINISHED, "the job waits for no other rank")
        start, = self.events("start", "runs/mine")
        self.assertEqual(start["nranks"], 1)

    def test_local(self):
        for n in (2, 3):
            with self.subTest(n=n):
                run = f"local{n}"
                driver = self.run_driver("--local", "--run-dir", run, "--threads", "1", n=n)
                self.check_record(n, run=run)
                self.check_run_dir(run)
                self.assertEqual(self.left_behind(), {})
                self.assertEqual(driver.text.count(" joined: "), n - 1)

    def test_local_spares(self):
        """Whichever follower says Hello first, the spare gets the place that none asks for."""
        job = {**SMALL, "train.epochs": 1, "cluster.spares": 2}
        for k in range(5):
            with self.subTest(k=k):
                run = f"spares{k}"
                driver = self.run_driver("--local", "--run-dir", run, "--threads", "1", n=3,
                                         job=job)
                self.assertNotIn("refused", driver.text)
                self.assertEqual(len(self.events("done", run)), 1)
                self.assertEqual(self.left_behind(), {})

    def test_shared_gpu_is_loud(self):
        """--test-shared-gpu reaches local followers; only daemons that have it warn of it."""
        job = {**SMALL, "train.epochs": 1}
        text = self.run_driver("--local", "--test-shared-gpu", "--run-dir", "shared", n=2,
                               job=job).text
        for name in ("dpdriver", "dpfollower"):
            self.assertRegex(text, rf"{name}: warning: --test-shared-gpu: FOR TESTS ONLY")
        text = self.run_driver("--local", "--run-dir", "alone", n=2, job=job).text
        self.assertNotIn("test-shared-gpu", text)

    def test_same_numbers(self):
        """The loss depends on the job, not on how many ranks compute it."""
        losses = []
        for n in (1, 2, 3):
            self.run_driver(*(["--local"] if n > 1 else []), "--run-dir", f"r{n}", n=n,
                            job={**SMALL, "train.epochs": 1})
            losses.append(self.events("epoch", f"r{n}")[0]["train_loss"])
        for loss in losses[1:]:
            self.assertLess(abs(loss - losses[0]) / losses[0], 3e-3, losses)

    def test_by_hand(self):
        """Followers start before and after the driver, for a fixed rank and for any."""
        port = dp.free_port()
        early = self.follower("--rank", "2", port=port)
        early.wait_line(rf"waiting for a driver at 127.0.0.1:{port}: .*ECONNREFUSED")
        driver = self.driver("--port", str(port), n=3, port=False)
        driver.wait_line(r"rank 2 joined")
        late = self.follower("--rank", "any", "--threads", "1", port=port)
        for daemon in (driver, early, late):
            self.assert_exit(daemon, FINISHED)
        late.wait_line(r"joined the driver at \S+ .* as rank 1 of 3, on cpu")
        self.check_record(3)

    def test_outlives_jobs(self):
        """A follower without --once takes part in one job after another."""
        port = dp.free_port()
        follower = self.follower(port=port, once=False)
        for run in ("one", "two", "three"):
            driver = self.driver("--port", str(port), "--run-dir", run, n=2, port=False)
            self.assert_exit(driver, FINISHED)
            self.check_record(2, run=run)
            self.assertNotIn("refused", driver.text)
        dp.wait_for("three ends", lambda: follower.text.count("waiting for the next driver") == 3)
        dp.wait_for("its look for the fourth", lambda: "ECONNREFUSED" in follower.text.rsplit(
            "waiting for the next driver", 1)[1])
        self.assertNotIn("error", follower.text)
        follower.signal(dp.signal.SIGTERM)
        self.assert_exit(follower, dp.STOPPED, "stopped by SIGTERM while waiting for a driver")

    def test_own_data_folder(self):
        """MNIST's files lie elsewhere on the follower's machine: --data."""
        source = os.environ.get("DPTRAIN_DATA", os.path.join(dp.ROOT, "../shared/data"))
        mnist = os.path.join(source, "mnist")
        if not os.path.isdir(mnist):
            self.skipTest(f"no MNIST in {mnist}")
        os.symlink(os.path.abspath(mnist), self.path("here"))
        os.symlink(os.path.abspath(mnist), self.path("there"))
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write("name: mnist\nmodel: {arch: lenet}\n"
                       "data: {format: mnist, path: here, validation: t10k}\n"
                       "train: {global_batch: 256, epochs: 1, max_steps: 20}\n")
        driver = self.driver("--job", "job.yaml", n=2, job=None)
        follower = self.follower("--data", self.path("there"))
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        event, = self.events("epoch", "runs/mnist")
        self.assertEqual(event["step"], 20)

    def test_closed_descriptors(self):
        """The daemons run without standard descriptors, as some supervisors start them."""
        for name, closing in (("err", "2>&-"), ("in-out", "<&- >&-"), ("all", "<&- >&- 2>&-")):
            with self.subTest(closing):
                port = str(dp.free_port())
                driver = self.start(["sh", "-c", f'exec "$@" {closing}', "sh", dp.DRIVER,
                                     "--nranks", "2", "--port", port, "--run-dir", name,
                                     *dp.sets({**SMALL, "train.epochs": 1})])
                follower = self.start(["sh", "-c", f'exec "$@" {closing}', "sh", dp.FOLLOWER,
                                       "--once", "--root", f"127.0.0.1:{port}"])
                self.assert_exit(driver, FINISHED)
                self.assert_exit(follower, FINISHED)
                self.assertEqual(self.events("done", name)[-1]["step"], 32)

    def test_json_log(self):
        driver = self.run_driver("--local", "--log-format", "json", n=2)
        programs = set()
        for line in driver.lines[:-1]:
            entry = json.loads(line)
            self.assertLessEqual({"time", "program", "level", "message"}, set(entry))
            programs.add(entry["program"])
        self.assertEqual(programs, {"dpdriver", "dpfollower"})
        self.assertEqual(driver.out, "")

    def test_state(self):
        """SIGUSR1 makes both daemons log their state, and disturbs nothing."""
        driver = self.driver(n=2, job=dp.ENDLESS)
        follower = self.follower()
        self.wait_event("first_step")
        self.assertIn("train", driver.state())
        follower.state()
        for daemon in (driver, follower):  # the name that ps and pgrep show
            with open(f"/proc/{daemon.pid}/comm", encoding="ascii") as file:
                self.assertEqual(file.read().strip(), daemon.name)
            with open(f"/proc/{daemon.pid}/environ", "rb") as file:
                self.assertIn(b"OMP_WAIT_POLICY=passive", file.read().split(b"\0"))
        driver.signal(dp.signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED)
        self.assert_exit(follower, dp.STOPPED)

    def test_state_at_any_time(self):
        """SIGUSR1 ends no daemon, however early or late it comes."""
        driver = self.driver(n=2)
        daemons = [driver, self.follower()]
        for daemon in daemons:
            dp.wait_for("main to begin", lambda pid=daemon.pid: takes_state_signal(pid))
        while any(daemon.process.poll() is None for daemon in daemons):
            for daemon in daemons:
                if daemon.process.poll() is None:
                    daemon.signal(dp.signal.SIGUSR1)
        for daemon in daemons:
            self.assert_exit(daemon, FINISHED)


def takes_state_signal(pid):
    """SIGUSR1 is blocked: it does not end the process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        masks = dict(line.split(":", 1) for line in file)
    return int(masks.get("SigBlk", "0"), 16) >> (dp.signal.SIGUSR1 - 1) & 1


if __name__ == "__main__":
    dp.main()

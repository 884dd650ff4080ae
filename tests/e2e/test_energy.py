"""The energy of a run, from a made-up folder of powercap, whose counter goes on while a job trains:
in events, the closing table, the status and the metrics; by a resume; and on a machine without."""

import json
import os
import re
import signal
import tempfile
import threading
import urllib.request

import dp
from dp import ENDLESS, STOPPED

JOB = {**dp.LIGHT, "data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 4}
SLOW = "delay:rank1@step10:3500ms"  # a run that lasts for some heartbeats
RANGE_J = 1000


class Meter:
    """A package that takes 2 J each 10 ms, and its counter, which goes round each five seconds."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()  # the case's own goes before the thread ends
        self.root, self.joules = self.folder.name, 0
        self.zone = os.path.join(self.root, "intel-rapl:0")
        os.mkdir(self.zone)
        self.put("name", "package-0")
        self.put("max_energy_range_uj", RANGE_J * 1000000)
        self.put("energy_uj", 0)
        self.env = {"DPTRAIN_POWERCAP": self.root}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def put(self, name, value):
        path = os.path.join(self.zone, name)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(f"{value}\n")
        os.rename(path + ".new", path)

    def run(self):
        while not self.over.wait(0.01):
            self.joules += 2
            self.put("energy_uj", self.joules % RANGE_J * 1000000)

    def stop(self):
        self.over.set()
        self.thread.join()
        self.folder.cleanup()


class Energy(dp.Case):
    def meter(self):
        meter = Meter()
        self.addCleanup(meter.stop)
        return meter

    def joules(self, run="run"):
        return [event["joules"]["package"] for event in self.events(run=run) if "joules" in event]

    def test_a_run_and_its_resume(self):
        """Two ranks read the same counter, and each joule counts once."""
        meter = self.meter()
        driver = self.run_driver("--local", "--run-dir", "run", "--inject", SLOW, n=2, job=JOB,
                                 env=meter.env)
        done, = self.events("done", "run")
        self.assertGreater(done["joules"]["package"], 0)
        self.assertLess(done["joules"]["package"], meter.joules)
        self.assertIsNone(done["joules"]["gpu"])
        self.assertNotIn("energy_missing", done)
        self.assertAlmostEqual(4 * done["joules_per_epoch"]["package"], done["joules"]["package"],
                               delta=0.01)
        told = self.joules()
        self.assertEqual(told, sorted(told))
        epochs = sum(event.get("epoch_joules", {}).get("package") or 0
                     for event in self.events("epoch", "run"))
        self.assertLessEqual(epochs, done["joules"]["package"] + 0.01)
        self.assertRegex(driver.out, r"energy    [\d.]+ k?J of processors' packages\n")
        self.run_driver("--local", "--run-dir", "run", "--resume", "--inject",
                        "delay:rank1@step40:2500ms", "--set", "train.epochs=6", n=2, job=None,
                        env=meter.env)
        again = self.events("done", "run")[-1]
        self.assertGreater(again["joules"]["package"], done["joules"]["package"])
        self.assertLess(again["joules"]["package"], meter.joules)

    def test_while_training(self):
        meter = self.meter()
        driver = self.driver("--local", "--http", "0", n=2, job=ENDLESS, env=meter.env)
        url = driver.wait_line(r"to be looked at: (\S+)").group(1)

        def get(path):
            with urllib.request.urlopen(url + path, timeout=30) as answer:
                return answer.read().decode()

        def is_known():
            status = json.loads(get("api/status"))
            ranks = status.get("ranks", [])
            known = len(ranks) == 2 and all(rank.get("cpu") for rank in ranks)
            return status if known and status["joules"]["package"] else None

        status = dp.wait_for("energy of the run", is_known)
        self.assertIsNone(status["energy_missing"])
        self.assertIsNone(status["joules"]["gpu"])
        for rank in status["ranks"]:
            self.assertGreater(rank["memory_bytes"], 1 << 20)
            self.assertIsNone(rank["gpu"])
        tellers = [rank for rank in status["ranks"] if rank["joules"]["package"]]
        self.assertEqual(len(tellers), 1)
        text = get("metrics")
        joules = re.search(r'\ndptrain_energy_joules_total\{run="demo",source="package"\} (\S+)\n',
                           text)
        self.assertGreaterEqual(float(joules.group(1)), status["joules"]["package"])
        for name in ("resident_memory_bytes", "cpu_ratio"):
            found = re.findall(rf'\ndptrain_rank_{name}\{{run="demo",rank="(\d)"', text)
            self.assertEqual(found, ["0", "1"])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_a_machine_without(self):
        driver = self.run_driver("--run-dir", "run", n=1, job=JOB,
                                 env={"DPTRAIN_POWERCAP": "/nowhere"})
        done, = self.events("done", "run")
        self.assertNotIn("joules", done)
        self.assertTrue(done["energy_missing"].startswith("/nowhere has no counter of a processor"))
        self.assertIn("energy    not known: /nowhere has no counter of a processor", driver.out)


if __name__ == "__main__":
    dp.main()

"""The energy and the use of simulated GPUs, from a stand-in for NVIDIA's management library."""

import json
import os
import signal
import urllib.request

import dp
from case import JOB, MANY, Case
from dp import STOPPED

LIBRARY = os.environ["NVML_LIVE"]
KNOWN = {"use": 0.5, "memory_bytes": 1 << 30, "celsius": 40, "watts": 100, "clock_mhz": 1500}
ENDLESS = {**JOB, "train.epochs": 100000}


class Energy(Case):
    def with_library(self):
        folder = self.path("nvidia")
        os.mkdir(folder)
        os.symlink(LIBRARY, os.path.join(folder, "libnvidia-ml.so.1"))
        return {**MANY, "DPTRAIN_POWERCAP": "/nowhere",
                "LD_LIBRARY_PATH": f"{folder}:{os.environ['LD_LIBRARY_PATH']}"}

    def status(self, url, condition):
        def known():
            with urllib.request.urlopen(url + "api/status", timeout=30) as answer:
                status = json.loads(answer.read())
            return status if "ranks" in status and condition(status) else None

        return dp.wait_for("the status of GPUs", known)

    def start_endless(self, device, env):
        driver = self.driver("--local", "--device", device, "--http", "0", n=2, job=ENDLESS,
                             env=env)
        return driver, driver.wait_line(r"to be looked at: (\S+)").group(1)

    def end(self, driver):
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_two_gpus(self):
        """Each GPU's joules count, and those of packages are said to be missing."""
        driver, url = self.start_endless("cuda", self.with_library())
        status = self.status(url, lambda s: all(r["joules"]["gpu"] for r in s["ranks"]))
        for rank in status["ranks"]:
            self.assertEqual(rank["gpu"], KNOWN)
        told = sum(rank["joules"]["gpu"] for rank in status["ranks"])
        self.assertAlmostEqual(status["joules"]["gpu"], told, delta=1e-3)
        self.assertIsNone(status["joules"]["package"])
        self.assertTrue(status["energy_missing"].startswith("/nowhere has no counter"))
        self.end(driver)

    def test_no_library(self):
        driver, url = self.start_endless("cuda", MANY)
        status = self.status(url, lambda s: s["energy_missing"] and "GPUs" in s["energy_missing"])
        self.assertRegex(status["energy_missing"], r"^no counter of GPUs for \d of \d ranks")
        self.assertEqual([rank["gpu"] for rank in status["ranks"]], [None, None])
        driver.wait_line(r"energy, memory and use of the GPU are not known: libnvidia-ml.so.1: ")
        self.end(driver)

    def test_a_cpu_asks_nothing(self):
        driver, url = self.start_endless("cpu", self.with_library())
        status = self.status(url, lambda s: all(r.get("cpu") for r in s["ranks"]))
        self.assertEqual([rank["gpu"] for rank in status["ranks"]], [None, None])
        with open(f"/proc/{driver.pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn("nvml", maps.read())
        self.end(driver)


if __name__ == "__main__":
    dp.main()

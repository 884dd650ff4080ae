"""The nine ways to look at a run, all in one short run of the quickstart's demo that loses a rank:
curves, the live page, the report, Prometheus, TensorBoard, a command, the timeline, goodput, and
energy with cost.  docs/operating/watching.md walks through the same run."""

import json
import os
import re
import signal
import struct
import subprocess
import urllib.request
import xml.etree.ElementTree

import browser
import dp

TAGS = ("loss/train", "loss/validation", "accuracy/validation", "learning_rate", "grad_norm",
        "samples_per_second")
# The demo's network, and few of its samples: 16 steps an epoch.
JOB = {"data.samples": 1024, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 3, "report.every_steps": 4, "report.tensorboard": "true",
       "report.trace": "[18,40]", "report.price_per_rank_hour": 2.5, **dp.PATIENT}
# Rank 2 is lost, and rank 1 waits at step 30 until the job has been looked at.
FAULTS = "kill:rank2@step20,stop:rank1@step30"


def records(data):
    """The records of a file of TensorBoard's."""
    while data:
        n, = struct.unpack("<Q", data[:8])
        yield data[12:12 + n]
        data = data[16 + n:]


class Nine(dp.Case):
    def test_the_demo(self):
        driver = self.driver("--local", "--http", "0", "--inject", FAULTS, n=3,
                             job={**JOB, "report.exec": f"cat > {self.path('heard')}"})
        self.url = driver.wait_line(r"to be looked at: (\S+)").group(1)
        self.wait_event("recovered")
        pid = self.local_pid(1)
        self.wait_event("inject", 2)
        dp.wait_for("rank 1 to wait", lambda: dp.is_frozen(pid))
        for look in (self.look_at_page, self.look_at_metrics):
            with self.subTest(look.__name__):
                look()
        os.kill(pid, signal.SIGCONT)
        self.assert_exit(driver, dp.FINISHED)
        self.done, = self.events("done")
        for look in (self.look_at_curves, self.look_at_report, self.look_at_tensorboard,
                     self.look_at_command, self.look_at_timeline, self.look_at_goodput,
                     self.look_at_energy_and_cost):
            with self.subTest(look.__name__):
                look()
        self.assertRegex(driver.out, r"\ngoodput   [\d.]+ % of the time; start ")
        self.assertRegex(driver.out, r"\ncost      \d+\.\d\d, \d+\.\d\d an epoch")
        self.assertRegex(driver.out, r"\nenergy    ([\d.]+ k?J|not known: .)")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=dp.PATIENCE) as answer:
            return answer.read().decode()

    def look_at_page(self):
        status = json.loads(self.get("api/status"))
        self.assertEqual((status["run"], status["ranks_lost"], status["total_steps"]),
                         ("demo", 1, 48))
        self.assertEqual([rank["rank"] for rank in status["ranks"]], [0, 1, 2])
        self.assertIn("rank 2 lost", self.get("api/curves.svg"))
        self.assertIn("<script src=\"/page.js\"", self.get(""))
        if browser.is_there:
            self.browse(self.url, "recovered")

    def browse(self, url, event):
        """A page lists this event, and Chromium complains of nothing."""
        window = browser.Browser()
        self.addCleanup(window.close)
        window.ask("/url", {"url": url})
        dp.wait_for(event, lambda: event in window.run(
            "document.getElementById('events').textContent"))
        dp.wait_for("curves", lambda: window.run("document.images[0].naturalWidth") > 0)
        self.assertEqual(window.ask("/se/log", {"type": "browser"}), [])
        window.close()

    def look_at_metrics(self):
        text = self.get("metrics")
        for line in ('dptrain_ranks{run="demo"} 3', 'dptrain_ranks_lost_total{run="demo"} 1',
                     'dptrain_recoveries_total{run="demo"} 1'):
            self.assertIn(f"\n{line}\n", text)
        for name in ("loss", "goodput_ratio", "last_step_timestamp_seconds"):
            self.assertRegex(text, rf'\ndptrain_{name}{{run="demo"}} [\d.e+-]+\n')
        self.assertEqual(json.loads(self.get("health"))["status"], "ok")

    def look_at_curves(self):
        """They are there with no option, and mark the lost rank and the recovery."""
        picture = xml.etree.ElementTree.parse(self.path("runs/demo/curves.svg")).getroot()
        words = [text for element in picture.iter() for text in [element.text] if text]
        for word in ("Loss", "Accuracy, %", "Learning rate", "Gradient norm",
                     "Samples per second", "step 48, epoch 3, finished", "checkpoint"):
            self.assertIn(word, words)
        for mark in ("rank 2 lost, step ", "recovered after "):
            self.assertTrue([word for word in words if word.startswith(mark)])

    def look_at_report(self):
        daemon = self.start([dp.DRIVER, "report", "demo"])
        self.assert_exit(daemon, dp.FINISHED)
        path = self.path(daemon.out.strip())
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(set(re.findall(r"https?://[^\s\"'\\]*", text)),
                         {"http://www.w3.org/2000/svg"})
        found = re.search(r'id="dptrain-status">(.*?)</script>', text, re.DOTALL)
        status = json.loads(found.group(1))
        self.assertEqual((status["stage"], status["step"], status["ranks_lost"]), ("done", 48, 1))
        if browser.is_there:
            self.browse("file://" + path, "done")

    def look_at_tensorboard(self):
        folder = self.path("runs/demo/tensorboard")
        name, = os.listdir(folder)
        self.assertTrue(name.startswith("events.out.tfevents."))
        with open(os.path.join(folder, name), "rb") as file:
            told = b"".join(records(file.read()))
        for tag in TAGS:
            self.assertIn(tag.encode(), told)

    def look_at_command(self):
        with open(self.path("heard"), encoding="utf-8") as file:
            heard = [json.loads(line) for line in file]
        self.assertEqual([event for event in heard if event["event"] != "row"], self.events())
        rows = [event["step"] for event in heard if event["event"] == "row"]
        self.assertEqual((rows[-1], rows), (48, sorted(rows)))

    def look_at_timeline(self):
        with open(self.path("runs/demo/trace.json"), encoding="utf-8") as file:
            line = json.load(file)
        self.assertGreaterEqual(line["metadata"]["clock_error_us"], 0)
        self.assertEqual([loss["rank"] for loss in line["metadata"]["lost"]], [2])
        spans = [event for event in line["traceEvents"] if event["ph"] == "X"]
        for rank in (0, 1):
            names = {span["name"] for span in spans if span["pid"] == rank}
            self.assertLessEqual({"step", "wait for data", "conv1", "all-reduce", "update", "form"},
                                 names)
        for epoch in self.events("epoch"):
            self.assertTrue(0 <= epoch["comm_hidden_share"] <= 1)

    def look_at_goodput(self):
        wall, badput = self.done["wall_seconds"], self.done["badput"]
        self.assertLess(abs(sum(badput.values()) + self.done["goodput"] * wall - wall), 1e-3)
        self.assertLess(abs(wall - self.done["seconds"]), 1e-3)
        recovered, = self.events("recovered")
        self.assertLess(abs(badput["lost"] - recovered["seconds"]), 1e-3)

    def look_at_energy_and_cost(self):
        """Joules stand where there is a counter, and the reason where there is none."""
        self.assertTrue(self.done.get("joules") or self.done["energy_missing"])
        self.assertAlmostEqual(self.done["cost"], 2.5 * self.done["rank_hours"], 9)
        self.assertAlmostEqual(3 * self.done["cost_per_epoch"], self.done["cost"], 9)


if __name__ == "__main__":
    dp.main()

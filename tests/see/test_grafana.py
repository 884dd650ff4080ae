"""deploy/grafana: the dashboard and the alerts name only metrics that see/scrape.c writes, and have
what Grafana and Prometheus want of them."""

import json
import os
import re
import shutil
import subprocess
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


METRICS = set(re.findall(r'"(dptrain_\w+)"', read("common", "see", "scrape.c")))


class Grafana(unittest.TestCase):
    def test_metrics_are_ours(self):
        for file in ("dashboard.json", "alerts.yml"):
            named = set(re.findall(r"\bdptrain_\w+", read("deploy", "grafana", file)))
            self.assertTrue(named)
            self.assertEqual(named - METRICS, set(), file)

    def test_the_dashboard(self):
        """The fields without which Grafana does not import a dashboard, or shows nothing."""
        board = json.loads(read("deploy", "grafana", "dashboard.json"))
        self.assertGreaterEqual(board["schemaVersion"], 36)
        self.assertTrue(board["title"] and board["uid"])
        names = [variable["name"] for variable in board["templating"]["list"]]
        self.assertEqual(names, ["datasource", "run"])
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        places = set()
        for panel in board["panels"]:
            self.assertTrue(panel["title"] and panel["type"])
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            self.assertNotIn((at["x"], at["y"]), places)
            places.add((at["x"], at["y"]))
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(refs), len(set(refs)))
            for target in panel["targets"]:
                self.assertIn('{run=~"$run"}', target["expr"])

    @unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian: prometheus)")
    def test_promtool_takes_the_alerts(self):
        path = os.path.join(ROOT, "deploy", "grafana", "alerts.yml")
        told = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)


if __name__ == "__main__":
    unittest.main()

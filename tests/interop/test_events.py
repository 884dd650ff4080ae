"""Tests of events.jsonl and of its checker: the events of real runs pass check_events.py, and it
complains about wrong ones."""

import json
import os

import check_events
from models import Case, dp


class Events(Case):
    def rewrite(self, run, events, tail=""):
        with open(self.path(run, "events.jsonl"), "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(e) + "\n" for e in events) + tail)

    def complaints(self, events, tail="", **how):
        self.rewrite("run", events, tail)
        return check_events.problems(self.path("run"), **how)

    def test_runs(self):
        for n, more in ((1, {}), (3, {"train.validate_every": 0}), (2, {"train.max_steps": 3})):
            with self.subTest(n=n, **more):
                run = f"run{n}"
                self.run_driver(*self.arguments({**dp.SMALL, **more}, run),
                                n=n, job=None)
                validated = "train.validate_every" not in more
                self.assertEqual(
                    check_events.problems(self.path(run), nranks=n, validated=validated), [])

    def test_checker(self):
        """The checker sees a field or event that is missing, a wrong type or order, a torn line."""
        self.train("lenet")
        good = [event for event in check_events.read(self.path("run"))
                if event["event"] not in ("warning", "straggler")]  # of a machine that is busy
        self.assertEqual(self.complaints(good, nranks=2), [])
        self.assertTrue(self.complaints(good, nranks=3))
        self.assertTrue(self.complaints(good, tail='{"event":"ep'))
        self.assertTrue(self.complaints(good, tail="[]\n"))
        self.assertTrue(self.complaints(good + [good[-1]]))
        for i, event in enumerate(good):
            if event["event"] != "checkpoint":
                self.assertTrue(self.complaints(good[:i] + good[i + 1:], nranks=2), event)
            known = {**check_events.FIELDS[event["event"]], "event": 0, "time": 0}
            if event["event"] in ("epoch", "done"):
                known.update(check_events.VALIDATED)
            for field in known:
                rest = {k: v for k, v in event.items() if k != field}
                for wrong in (rest, {**rest, field: {}}, {**rest, field: True}):
                    self.assertTrue(self.complaints(good[:i] + [wrong] + good[i + 1:]),
                                    f"{event['event']}: {field}")
        self.rewrite("run", good)
        os.unlink(self.path("run", "checkpoints", "latest", "model.safetensors"))
        self.assertTrue(check_events.problems(self.path("run")))


if __name__ == "__main__":
    dp.main()

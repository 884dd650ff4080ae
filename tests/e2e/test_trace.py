"""One timeline of all ranks (report.trace): what is in trace.json, on one clock, who held the
others up, and what the file says where a rank is missing."""

import json
import os
import signal
import subprocess
import time

import dp
from dp import FINISHED

# 16 steps an epoch.
JOB = {**dp.LIGHT, "data.samples": 1024, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 2}
THREADS = {"engine", "comm", "comm 2", "loader", "disk"}


def check_event(event):
    """As the Trace Event Format has complete events (X), metadata (M) and instants (i)."""
    for key in ("pid", "tid"):
        assert isinstance(event[key], int) and event[key] >= 0, event
    assert isinstance(event["name"], str) and event["name"], event
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "process_sort_index", "thread_name"), event
        return
    assert event["ph"] in "Xi" and event["ts"] >= 0 and isinstance(event["cat"], str), event
    assert isinstance(event["args"], dict), event
    if event["ph"] == "X":
        assert event["dur"] >= 0 and isinstance(event["args"]["step"], int), event
    else:
        assert event["s"] == "g", event


class Timeline:
    """A trace.json, checked for what must be true of each."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.file = json.load(file)
        self.metadata = self.file["metadata"]
        self.ranks = {rank["rank"]: rank for rank in self.metadata["ranks"]}
        events = self.file["traceEvents"]
        for event in events:
            check_event(event)
        self.instants = [event for event in events if event["ph"] == "i"]
        self.processes = {event["pid"]: event["args"]["name"] for event in events
                          if event["name"] == "process_name"}
        self.threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
                        if event["name"] == "thread_name"}
        self.spans = [event for event in events if event["ph"] == "X"]

    def of(self, rank, thread, name=None):
        return [span for span in self.spans
                if span["pid"] == rank and self.threads[span["pid"], span["tid"]] == thread
                and name in (None, span["name"])]

    def collectives(self):
        """{number: [span of each rank]}"""
        all_of = {}
        for span in self.spans:
            if "collective" in span["args"]:
                all_of.setdefault(span["args"]["collective"], []).append(span)
        return all_of


def end(span):
    return span["ts"] + span["dur"]


class Trace(dp.Case):
    def timeline(self, run="run", name="trace.json"):
        line = Timeline(self.path(run, name))
        for rank in line.processes:
            for thread in THREADS:
                self.assert_nested(line.of(rank, thread))
        return line

    def assert_nested(self, spans):
        """Each two spans of a thread are apart, or one is within the other."""
        open_ends = []
        for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
            while open_ends and open_ends[-1] <= span["ts"]:
                open_ends.pop()
            self.assertTrue(not open_ends or end(span) <= open_ends[-1] + 0.0015, span)
            open_ends.append(end(span))

    def assert_sound(self, line, n, steps):
        """The timeline has all of n ranks, each step of each, and one clock."""
        self.assertEqual(sorted(line.processes), list(range(n)))
        self.assertEqual(set(line.threads.values()), THREADS)
        error = line.metadata["clock_error_us"]
        self.assertGreaterEqual(error, 0)
        for rank in range(n):
            self.assertEqual([span["args"]["step"] for span in line.of(rank, "engine", "step")],
                             list(steps))
            self.assertTrue(line.of(rank, "engine", "wait for data"))
            self.assertTrue(line.of(rank, "engine", "update"))
            self.assertTrue(line.of(rank, "engine", "hand over a bucket"))
            self.assertTrue([span for span in line.of(rank, "engine") if span["cat"] == "linear"])
        self.assertGreaterEqual(min(span["ts"] for span in line.spans), 0)
        self.assertTrue(line.collectives())
        for spans in line.collectives().values():
            self.assertEqual(sorted(span["pid"] for span in spans), list(range(n)))
            last = max(span["ts"] for span in spans)
            for span in spans:
                self.assertGreaterEqual(end(span), last - 2 * error - 0.002)
                self.assertEqual(span["args"].get("last_rank"), spans[0]["args"].get("last_rank"))

    def test_three_ranks(self):
        # The pause is there so that the checkpoint of step 16 is written before the record ends.
        self.run_driver("--local", "--run-dir", "run", "--inject", "delay:rank0@step18:1s", n=3,
                        job={**JOB, "report.trace": [13, 18]})
        line = self.timeline()
        self.assert_sound(line, 3, range(13, 19))
        self.assertEqual(line.metadata["lost"], [])
        for rank in line.ranks.values():
            self.assertEqual((rank["first_step"], rank["last_step"]), (13, 18))
            self.assertEqual((rank["truncated"], rank["kernels"]), (False, "executed"))
            if "measured_offset_us" in rank:  # all ranks are of one machine
                self.assertLessEqual(abs(rank["measured_offset_us"]), rank["measured_error_us"])
        for rank in range(3):  # the end of an epoch is within
            self.assertEqual(len(line.of(rank, "engine", "validate")), 1)
        self.assertEqual(len(line.of(0, "engine", "checkpoint")), 1)
        self.assertEqual(len(line.of(0, "disk", "write a checkpoint")), 1)
        self.assertTrue(line.of(0, "loader", "read a batch"))
        self.assertFalse(os.path.exists(self.path("run", "trace-2.json")))
        for epoch in self.events("epoch", "run"):
            self.assertTrue(0 <= epoch["comm_hidden_share"] <= 1)

    def test_one_rank_to_the_end(self):
        """The run ends before the last step that is asked for."""
        self.run_driver("--run-dir", "run", n=1,
                        job={**JOB, "train.max_steps": 5, "report.trace": [3, 90],
                             "checkpoint.every_steps": 4})
        line = self.timeline()
        self.assertEqual(len(line.of(0, "engine", "copy the state")), 1)
        self.assertEqual([span["args"]["step"] for span in line.of(0, "engine", "step")], [3, 4])
        self.assertEqual(line.ranks[0]["last_step"], 4)

    def test_straggler(self):
        """A rank that is late with its gradients is named for the sums of that step, while the step
        is as long on all ranks."""
        self.run_driver("--local", "--run-dir", "run", "--inject",
                        "delay:rank1@step4:400ms,delay:rank2@backward6:400ms", n=3,
                        job={**JOB, "report.trace": [2, 8]})
        line = self.timeline()
        self.assert_sound(line, 3, range(2, 9))
        for step, rank in ((4, 1), (6, 2)):
            late = [span["args"] for span in line.spans if span["name"] == "all-reduce"
                    and span["args"]["step"] == step and span["args"]["first_waited_us"] > 200e3]
            self.assertTrue(late)
            self.assertEqual({args["last_rank"] for args in late}, {rank})
        walls = {rank: max(span["dur"] for span in line.of(rank, "engine", "step"))
                 for rank in range(3)}
        self.assertGreater(min(walls.values()), 300e3)

    def test_divided_state(self):
        """Collectives have the names of what is done; with ZeRO a rank gives its buddy a copy."""
        for zero, names in ((0, {"all-reduce"}),
                            (2, {"all-reduce", "reduce-scatter", "all-gather", "messages"})):
            run = f"run{zero}"
            self.run_driver("--local", "--run-dir", run, n=2,
                            job={**JOB, "report.trace": [2, 3], "strategy.zero": zero})
            line = self.timeline(run)
            for rank in range(2):  # a copy may end after the record
                self.assertEqual({span["name"] for span in line.spans if span["pid"] == rank
                                  and span["cat"] == "bucket" and "collective" in span["args"]},
                                 names)

    def test_running_job(self):
        """A job that runs is recorded by a word to its driver, twice."""
        job = {**dp.ENDLESS, "cluster.driver_timeout": 0}
        driver = self.driver("--local", "--run-dir", "run", n=2, job=job)
        self.wait_event("first_step", run="run")
        for name in ("trace.json", "trace-2.json"):
            result = subprocess.run([dp.DRIVER, "trace", "0.2", "run"], cwd=self.folder,
                                    env=self.env, check=False, timeout=dp.PATIENCE,
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, FINISHED, result.stderr)
            self.assertIn("2 ranks record from the next step on, for 0.2 s", result.stdout)
            path = self.path("run", name)
            dp.wait_for(name, lambda path=path: os.path.exists(path))
            line = Timeline(path)
            self.assertEqual(sorted(line.processes), [0, 1])
            for rank in (0, 1):
                steps = [span["args"]["step"] for span in line.of(rank, "engine", "step")]
                self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)))
                self.assertEqual(line.ranks[rank]["first_step"], steps[0])
            both = [spans for spans in line.collectives().values() if len(spans) == 2]
            self.assertTrue(both)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED)

    def lose_while_asked(self, seconds):
        """A rank is killed while a timeline of so many seconds is recorded.  Returns False, and has
        shown nothing, if the machine was too slow for that."""
        run = f"run{seconds}"
        driver = self.driver("--run-dir", run, n=2,
                             job={**dp.ENDLESS, "cluster.driver_timeout": 0})
        self.wait_port()
        follower = self.follower("--rank", "1")
        self.wait_event("first_step", run=run)
        ask = [dp.DRIVER, "trace", str(seconds), run]
        options = {"cwd": self.folder, "env": self.env, "check": False, "timeout": dp.PATIENCE,
                   "capture_output": True, "text": True}
        end = time.monotonic() + seconds  # of the record, or sooner
        self.assertEqual(subprocess.run(ask, **options).returncode, FINISHED)
        refused = subprocess.run(ask, **options)
        n_epochs = len(self.events("epoch", run))
        self.wait_event("epoch", n_epochs + 1, run)  # steps are on record by now
        follower.kill()
        is_in_time = time.monotonic() < end
        if is_in_time:
            self.assertEqual(refused.returncode, dp.REFUSED)
            self.assertIn(f"another request's timeline of {seconds} s", refused.stderr)
            self.follower("--rank", "1")
            dp.wait_for("trace.json", lambda: os.path.exists(self.path(run, "trace.json")))
            line = self.timeline(run)
            self.assertEqual(sorted(line.processes), [0])
            self.assertEqual([loss["rank"] for loss in line.metadata["lost"]], [1])
            self.assertRegex(line.ranks[1]["missing"], r"^rank 1 \(.*\) was lost")
            self.wait_event("recovered", run=run)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED)
        return is_in_time

    def test_lost_while_asked(self):
        """A rank that is lost, and replaced, keeps no timeline waiting; another request does wait
        meanwhile."""
        self.assertTrue(any(self.lose_while_asked(seconds) for seconds in (3, 12, 48)))

    def test_asked_before_the_job(self):
        """The job's steps come while another timeline is recorded, which ends before them."""
        driver = self.driver("--local", "--run-dir", "run", "--inject", "delay:rank0@step2:2s", n=2,
                             job={**JOB, "report.trace": [8, 9]})
        self.wait_event("first_step", run="run")
        result = subprocess.run([dp.DRIVER, "trace", "60", "run"], cwd=self.folder, env=self.env,
                                check=False, timeout=dp.PATIENCE, capture_output=True, text=True)
        self.assertEqual(result.returncode, FINISHED, result.stderr)
        self.assert_exit(driver, FINISHED)
        for name, last in (("trace.json", 7), ("trace-2.json", 9)):
            line = self.timeline(name=name)
            self.assertEqual([rank["last_step"] for rank in line.ranks.values()], [last, last])
        self.assertEqual(line.ranks[1]["first_step"], 8)

    def test_lost_rank(self):
        """The file says which rank was lost meanwhile; the other ranks show the recovery."""
        driver = self.driver(
            "--inject", "kill:rank1@step5", "--run-dir", "run", n=3,
            job={**JOB, "report.trace": [3, 9], "cluster.min_ranks": 2,
                 "cluster.replace_timeout": 0})
        self.wait_port()
        for rank in (1, 2):
            self.follower("--rank", str(rank))
        self.assert_exit(driver, FINISHED)
        line = self.timeline()
        self.assertEqual(sorted(line.processes), [0, 1])
        self.assertEqual([loss["rank"] for loss in line.metadata["lost"]], [1])
        for rank in (0, 1):
            kinds = {span["name"] for span in line.of(rank, "engine") if span["cat"] == "recovery"}
            self.assertEqual(kinds, {"prepare", "form"})
            steps = [span["args"]["step"] for span in line.of(rank, "engine", "step")]
            self.assertEqual(sorted(set(steps)), list(range(3, 10)))
            self.assertTrue(line.of(rank, "comm", "state"))  # the ranks agree on the newest one
        self.assertEqual([event["name"] for event in line.instants], ["rank 1 is lost"])

    def test_standby_takes_over(self):
        """The followers' records go on, and the file says whose spans are gone with the driver."""
        port = dp.free_port()
        driver = self.driver("--port", str(port), "--run-dir", "run", "--inject",
                             "kill:rank0@step12", n=3, job={**JOB, "report.trace": [5, 20]},
                             port=False)
        standby = self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--threads", "1", "--run-dir", "run"])
        standby.wait_line("as its standby")
        followers = [self.follower("--rank", str(k), port=port) for k in (1, 2)]
        driver.wait_exit()
        for daemon in (standby, *followers):
            self.assert_exit(daemon, FINISHED)
        line = self.timeline()
        loss, = line.metadata["lost"]
        self.assertEqual(loss["rank"], 0)
        self.assertIn("the driver before this one was lost, with its spans", loss["reason"])
        self.assertEqual([event["name"] for event in line.instants], ["rank 0 is lost"])
        for rank in (1, 2):
            steps = {span["args"]["step"] for span in line.of(rank, "engine", "step")}
            self.assertEqual(sorted(steps), list(range(5, 21)))
        self.assertIn(line.ranks[0]["first_step"], (11, 12))

    def test_wrong(self):
        for value, text in (([5], "want [FIRST, LAST]"), ([7, 3], "want FIRST, LAST of 1 to 1000"),
                            ([0, 1000], "want FIRST, LAST of 1 to 1000")):
            driver = self.driver("--run-dir", "run", n=1, job={**JOB, "report.trace": value},
                                 port=False)
            self.assertEqual(driver.wait_exit(), dp.USAGE)
            self.assertIn(text, driver.text)


if __name__ == "__main__":
    dp.main()

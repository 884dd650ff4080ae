"""dpdriver report: of a run that trains, one that is done, one that was stopped, and of two; what a
browser shows of the file; places that cannot be written."""

import html.parser
import json
import os
import re
import resource
import signal
import urllib.request

import browser
import dp
import schema
from dp import DRIVER, ENDLESS, FAILED, FINISHED, SMALL, STOPPED, USAGE

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../docs/operating/status.schema.json"), encoding="utf-8") as schema_file:
    SCHEMA = json.load(schema_file)
VOID = {"meta", "link", "img", "input", "br"}


class Reader(html.parser.HTMLParser):
    """Checks that elements are closed in their order, and keeps documents and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.documents, self.addresses, self.name = [], {}, [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [v for k, v in attrs.items() if k in ("href", "src") and v]
        if attrs.get("type") == "application/json":
            self.name = attrs["id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()
        self.name = None

    def handle_data(self, data):
        if self.name:
            self.documents[self.name] = json.loads(data)


class Report(dp.Case):
    def report(self, *words, status=FINISHED):
        """The file's path, once it is written."""
        daemon = self.start([DRIVER, "report", *words])
        self.assert_exit(daemon, status)
        return self.path(daemon.out.strip())

    def read(self, path):
        """The documents of a report, which is well formed and names nothing outside itself."""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        reader = Reader(text)
        self.assertEqual(reader.open, [])
        self.assertEqual([a for a in reader.addresses if not a.startswith("data:")], [])
        self.assertEqual(set(re.findall(r"https?://[^\s\"'\\]*", text)),
                         {"http://www.w3.org/2000/svg"})
        if "dptrain-status" in reader.documents:
            self.assertEqual(list(schema.faults(reader.documents["dptrain-status"], SCHEMA,
                                                SCHEMA)), [])
        return reader.documents

    def test_while_training(self):
        """The driver's own status, and the documents that --http gives."""
        driver = self.driver("--local", "--http", "0", "--inject", "kill:rank1@step40", n=2,
                             job=ENDLESS)
        url = driver.wait_line(r"to be looked at: (\S+)").group(1)
        self.wait_event("recovered")
        documents = self.read(self.report("demo"))
        status = documents["dptrain-status"]
        with urllib.request.urlopen(url + "api/status", timeout=30) as answer:
            live = json.load(answer)
        self.assertEqual(set(status), set(live))
        self.assertEqual((status["run"], status["total_steps"], status["ranks_lost"]),
                         (live["run"], live["total_steps"], 1))
        self.assertEqual([r["pid"] for r in status["ranks"]], [r["pid"] for r in live["ranks"]])
        with urllib.request.urlopen(url + "api/recent", timeout=30) as answer:
            recent = json.load(answer)
        seen = documents["dptrain-recent"]
        self.assertEqual(seen, recent[:len(seen)])
        with urllib.request.urlopen(url + "api/job", timeout=30) as answer:
            self.assertEqual(documents["dptrain-job"], answer.read().decode())
        self.assertIn("rank lost", documents["dptrain-curves.svg"])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        status = self.read(self.report("runs/demo", "--out", "later.html"))["dptrain-status"]
        self.assertEqual((status["stage"], status["failed"]), ("stopped", False))
        self.assertEqual(status["step"], self.events("checkpoint")[-1]["step"])

    def test_done(self):
        """By the files alone, the status tells what the last events tell."""
        self.run_driver("--local", n=2, job={**SMALL, "report.price_per_rank_hour": 1000})
        done = self.events("done")[0]
        documents = self.read(self.report("demo"))
        status = documents["dptrain-status"]
        self.assertEqual(
            {key: status[key] for key in ("stage", "run", "step", "total_steps", "progress",
                                          "epoch", "n_epochs", "ranks_lost", "here")},
            {"stage": "done", "run": "demo", "step": 64, "total_steps": 64, "progress": 1,
             "epoch": 2, "n_epochs": 2, "ranks_lost": 0, "here": 2})
        for key in ("validation_loss", "validation_accuracy", "cost", "goodput"):
            self.assertAlmostEqual(status[key], done[key], 6, key)
        self.assertEqual(set(status["badput"]), set(done["badput"]))
        self.assertAlmostEqual(status["cost"], status["cost_forecast"], 6)
        self.assertEqual(documents["dptrain-recent"], self.events())
        self.assertEqual([f for f in os.listdir(self.path("runs/demo")) if f.endswith(".new")], [])

    def test_refused(self):
        """A folder without a run, and places that cannot be written, are named with the remedy."""
        os.makedirs(self.path("empty"))
        self.assert_exit(self.start([DRIVER, "report", "empty"]), USAGE,
                         "--report: empty holds no run: its events.jsonl is missing")
        self.run_driver(job={**SMALL, "train.epochs": 1})
        daemon = self.start([DRIVER, "report", "demo", "--out", "no/such/place.html"])
        self.assert_exit(daemon, FAILED, "--report: .*--out.*no/such/place.html.*No such file")
        self.assertEqual(daemon.out, "")
        os.makedirs(self.path("folder"))
        self.assert_exit(self.start([DRIVER, "report", "demo", "--out", "folder"]), USAGE,
                         "folder is no file that a report could replace; want FILE.html")
        os.mkfifo(self.path("pipe"))
        self.assert_exit(self.start([DRIVER, "report", "demo", "--out", "pipe"]), USAGE, "pipe is")

    def test_full_disk(self):
        """The file that was there stays, and nothing is left beside it."""
        self.run_driver(job={**SMALL, "train.epochs": 1})
        with open(self.path("kept.html"), "w", encoding="ascii") as file:
            file.write("before")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        daemon = self.start([DRIVER, "report", "demo", "--out", "kept.html"], preexec_fn=limit)
        self.assert_exit(daemon, FAILED, "--report: .*kept.html.*too large")
        with open(self.path("kept.html"), encoding="ascii") as file:
            self.assertEqual(file.read(), "before")
        self.assertEqual(sorted(os.listdir(self.folder)), ["kept.html", "port", "runs"])

    def test_two(self):
        """Runs are compared in the present folder: how each went, and where their jobs differ."""
        self.run_driver(job={**SMALL, "train.epochs": 1})
        self.run_driver(job={**SMALL, "train.epochs": 1, "optimizer.lr": 0.5, "name": "fast"})
        documents = self.read(self.report("demo", "runs/fast"))
        self.assertEqual(os.path.exists(self.path("report.html")), True)
        runs = documents["dptrain-runs"]
        self.assertEqual([run["run_dir"] for run in runs], ["runs/demo", "runs/fast"])
        for run, name in zip(runs, ("demo", "fast")):
            done = self.events("done", "runs/" + name)[0]
            self.assertAlmostEqual(run["status"]["validation_loss"], done["validation_loss"], 6)
        differ = {key for key in runs[0]["job"] if runs[0]["job"][key] != runs[1]["job"][key]}
        self.assertEqual(differ, {"name", "optimizer.lr"})
        self.assert_exit(self.start([DRIVER, "report", "demo", "runs/demo"]), USAGE,
                         "--report: runs/demo is given twice")
        self.assert_exit(self.start([DRIVER, "report", *"123456789"]), USAGE,
                         "9 runs are given, and at most 8 can be compared")
        if browser.is_there:
            self.show_two()

    def show_two(self):
        """A line for each run in the curves of the loss, a row in the results, and no complaint."""
        window = browser.Browser()
        self.addCleanup(window.close)
        window.ask("/url", {"url": "file://" + self.path("report.html")})
        self.assertEqual(
            window.run("[...document.querySelectorAll('#results tbody tr')].map("
                       "r => r.firstChild.textContent + ', ' + r.children[1].textContent)"),
            ["demo, done", "fast, done"])
        self.assertEqual(
            window.run("[...document.querySelectorAll('#jobs tbody td:first-child')].map("
                       "k => k.textContent)"), ["name", "optimizer.lr"])
        for line in ("r0", "r1"):
            self.assertGreater(
                window.run(f"document.querySelector('#lines .line.{line}').getTotalLength()"), 20)
        self.assertEqual(
            window.run("getComputedStyle(document.querySelector('#lines .line.r0')).stroke"),
            "rgb(0, 114, 178)")
        self.assertEqual(window.ask("/se/log", {"type": "browser"}), [])

    @browser.needed
    def test_shown(self):
        """A browser shows the file as it shows the page, without any complaint."""
        self.run_driver("--local", "--inject", "kill:rank1@step20", n=2)
        os.makedirs(self.path("runs/demo/incidents"))
        with open(self.path("runs/demo/incidents/incident-1.json"), "w", encoding="ascii") as file:
            json.dump({"time": 1, "message": "rank 1 hangs", "step": 7, "ranks": [
                {"rank": 1, "host": "vm", "behind": True, "collectives": None}]}, file)
        path = self.report("demo")
        window = browser.Browser()
        self.addCleanup(window.close)
        window.ask("/url", {"url": "file://" + path})

        def text(element):
            return window.run(f"document.getElementById('{element}').textContent")

        dp.wait_for("the status", lambda: text("done"))
        self.assertEqual(text("done"), "step 64 of 64, epoch 2 of 2")
        self.assertEqual((text("name"), text("stage")), ("demo", "done: epochs"))
        self.assertRegex(text("link"), "^as of .*20")
        self.assertRegex(text("numbers"), r"Training loss[\d.]+Validation loss[\d.]+")
        self.assertRegex(text("legend"), r"steps that count [\d.]+ %.*lost [\d.]+ %")
        events = window.run("[...document.querySelectorAll('#events b')].map(b => b.textContent)")
        self.assertEqual(events, [e["event"] for e in reversed(self.events())])
        dp.wait_for("curves", lambda: window.run("document.images[0].naturalWidth") > 0)
        self.assertIn("data:", text("job"))
        dp.wait_for("the job to be open", lambda: window.run(
            "document.getElementById('job').getClientRects().length > 0"))
        self.assertIn("step 7: rank 1 hangs", text("incidents"))
        window.run("document.querySelector('#incidents details').open = true")
        dp.wait_for("the incident", lambda: window.run(
            "document.querySelector('#incidents td') !== null"))
        self.assertEqual(window.ask("/se/log", {"type": "browser"}), [])


if __name__ == "__main__":
    dp.main()

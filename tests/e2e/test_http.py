"""--http while a job trains: each path, a rank that is lost, and addresses that are refused."""

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import dp
from dp import DRIVER, ENDLESS, STOPPED, USAGE
from schema import faults

SCHEMA = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                      "../../docs/operating/status.schema.json")


class Http(dp.Case):
    def url(self, driver):
        return driver.wait_line(r"to be looked at: (\S+)").group(1)

    def get(self, url, headers=()):
        request = urllib.request.Request(url, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def get_absolute(self, url, target):
        """The status of a request with a whole address in place of a path, as proxies get it."""
        place = urllib.parse.urlsplit(url)
        with contextlib.closing(http.client.HTTPConnection(place.hostname, place.port,
                                                           timeout=30)) as connection:
            connection.request("GET", target, headers={"Host": place.netloc})
            return connection.getresponse().status

    def test_while_training(self):
        """Two ranks train, one is lost and comes back; all paths tell of it."""
        driver = self.driver("--local", "--http", "0", "--inject", "kill:rank1@step40", n=2,
                             job=ENDLESS)
        url = self.url(driver)
        self.wait_event("recovered")
        status = dp.wait_for("steps", lambda: self.steps(url))
        self.assertEqual((status["run"], status["ranks_lost"], len(status["ranks"])),
                         ("demo", 1, 2))
        self.assertGreater(status["total_steps"], status["step"])
        self.assertIsInstance(status["loss"], float)
        self.assertIsInstance(status["eta_seconds"], float)
        code, text = self.get(url + "metrics")
        self.assertEqual(code, 200)
        self.assertRegex(text, r'\ndptrain_ranks_lost_total\{run="demo"\} 1\n')
        self.assertRegex(text, r'\ndptrain_ranks\{run="demo"\} 2\n')
        self.check_metrics(text)
        self.assertRegex(text, r'\ndptrain_rank_step\{run="demo",rank="1",host="[^"]+"\} \d+\n')
        code, text = self.get(url + "health")
        self.assertEqual((code, json.loads(text)["status"]), (200, "ok"))
        self.assertRegex(self.get(url + "api/job")[1], "(?m)^name: \"demo\"")
        self.assertIn("<script src=\"/page.js\"", self.get(url)[1])
        for path in ("page.js", "page.css", "icon.svg"):
            self.assertEqual(self.get(url + path)[0], 200)
        recent = [event["event"] for event in json.loads(self.get(url + "api/recent")[1])]
        self.assertIn("lost", recent)
        self.assertLess(recent.index("start"), recent.index("recovered"))
        self.assertIn("rank lost", self.get(url + "api/curves.svg")[1])
        self.assertEqual(self.get(url + "api/nothing")[0], 404)
        self.assertEqual(self.get(url + "metrics", [("Host", "a.example")])[0], 403)
        self.assertEqual(self.get_absolute(url, url + "health"), 200)
        self.assertEqual(self.get_absolute(url, "http://a.example/health"), 403)
        self.listen(url)
        self.come_again(url)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_incidents(self):
        """A rank that hangs makes an incident, which can be listed and read; nothing else can."""
        driver = self.driver("--local", "--http", "0", "--inject", "delay:rank1@step40:3600s", n=2,
                             job={**ENDLESS, "cluster.deadlines.step": 5})
        url = self.url(driver)
        self.wait_event("first_step")
        self.assertEqual(self.get(url + "api/incidents")[:2], (200, "[]\n"))
        driver.wait_line("what the ranks did last is in")
        self.assertEqual(dp.wait_for("the count", lambda: json.loads(
            self.get(url + "api/status")[1])["incidents"]), 1)
        code, text = self.get(url + "api/incidents")
        rows = json.loads(text)
        self.assertEqual((code, [row["name"] for row in rows]), (200, ["incident-1.json"]))
        self.assertEqual((rows[0]["stage"], rows[0]["step"]), ("train", 40))
        code, text = self.get(url + "api/incidents/incident-1.json")
        with open(self.path("runs/demo/incidents/incident-1.json"), encoding="utf-8") as file:
            self.assertEqual((code, text), (200, file.read()))
        self.assertEqual(rows[0]["message"], json.loads(text)["message"])
        for name in ("incident-2.json", "..%2Fjob.yaml", "../job.yaml", "..", ".%2e/.%2e/job.yaml",
                     "incident-1.json%2F..%2F..%2Fjob.yaml", "incident-1.json%0a", "%ff",
                     "incident-1.json/", "//etc/passwd", "a" * 4000):
            code, text = self.get(url + "api/incidents/" + name)
            self.assertEqual(code, 404, name)
            self.assertNotIn("demo", text)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def steps(self, url):
        status = json.loads(self.get(url + "api/status")[1])
        return status if status.get("step", 0) > 50 else None

    def check_metrics(self, text):
        """Prometheus's own check of names and types, where it is there."""
        if shutil.which("promtool"):
            told = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                  capture_output=True)
            self.assertEqual((told.returncode, told.stdout + told.stderr), (0, ""))

    def listen(self, url):
        """The stream has a status, rows, and the events of an epoch.  No event is missing, from the
        newest ones that it begins with on, also for a reader who comes again."""
        ids = self.read_stream(url, 6)
        ids += self.read_stream(url, 3, [("Last-Event-ID", ids[-1])])
        driver, begin = ids[0].split("-")
        self.assertEqual(ids, [f"{driver}-{int(begin) + i}" for i in range(len(ids))])

    def come_again(self, url):
        """A reader who comes again gets what follows its id.  One whose id is not this driver's
        gets what a reader without an id gets."""
        ids = self.read_stream(url, 3)
        driver = ids[0].split("-")[0]
        known = [(ids[0], ids[1]), (ids[1], ids[2])]
        foreign = ["x" + ids[1][1:], "x" + ids[1], driver + "_2", driver + "0-2", driver,
                   driver + "-", driver + "-x", driver + "-0", driver + "--2", "-2", ""]
        for last, first in known + [(last, ids[0]) for last in foreign]:
            with self.subTest(last=last):
                self.assertEqual(
                    self.read_stream(url, 1, [("Last-Event-ID", last)], {"event"})[0], first)

    def read_stream(self, url, n, headers=(), wanted=frozenset(("status", "row", "event"))):
        """The ids of the events, at least n, until each wanted kind was seen."""
        seen, ids, lines = set(), [], {}
        request = urllib.request.Request(url + "api/events", headers=dict(headers))
        with urllib.request.urlopen(request, timeout=60) as stream:
            while not wanted <= seen or len(ids) < n:
                line = stream.readline().decode()
                self.assertTrue(line)
                if line != "\n":
                    key, value = line.rstrip("\n").split(": ", 1)
                    lines[key] = value
                    continue
                if "event" in lines:
                    kind = lines["event"]
                    self.assertIn("stage" if kind == "status" else "event",
                                  json.loads(lines["data"]))
                    self.assertEqual("id" in lines, kind == "event")
                    seen.add(kind)
                    ids += [lines["id"]] if kind == "event" else []
                lines = {}
        return ids

    def schema(self):
        with open(SCHEMA, encoding="utf-8") as file:
            return json.load(file)

    def test_schema(self):
        """The status fits its schema in all stages of a run, and the schema has no member that is
        not sent."""
        schema, known, known_of_rank = self.schema(), set(), set()

        def look(is_there):
            status = json.loads(self.get(url + "api/status")[1])
            if "stage" not in status:  # the session has not begun
                return None
            self.assertEqual(list(faults(status, schema, schema)), [])
            known.update(name for name, v in status.items() if v is not None)
            for rank in status["ranks"]:
                known_of_rank.update(name for name, v in rank.items() if v is not None)
            return is_there(status)

        driver = self.driver("--http", "0", n=2, job={
            **ENDLESS, "data.samples": 1024, "report.price_per_rank_hour": 2,
            "report.every_steps": 1, "cluster.spares": 1, "cluster.straggler_window": 1})
        url = self.url(driver)
        dp.wait_for("a free place", lambda: look(
            lambda s: any(rank["role"] == "missing" for rank in s["ranks"])))
        follower = self.follower()
        driver.wait_line("rank 1 joined")
        spare = self.follower()
        dp.wait_for("a cost and an accuracy", lambda: look(
            lambda s: s["cost_forecast"] and s["validation_accuracy"] and s["grad_norm"]))
        dp.wait_for("a spare", lambda: look(
            lambda s: any(rank["role"] == "spare" for rank in s["ranks"])))
        dp.wait_for("factors and memory", lambda: look(
            lambda s: s["ranks"][1].get("factor") and s["ranks"][1].get("memory_bytes")))
        follower.kill()
        dp.wait_for("the loss", lambda: look(lambda s: s["ranks_lost"] == 1))
        self.assertLessEqual(set(schema["properties"]) - known, {"standby", "energy_missing"})
        self.assertLessEqual(set(schema["$defs"]["rank"]["properties"]) - known_of_rank,
                             {"bucket", "cpu", "gpu"})
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        spare.wait_exit()

    def test_schema_refuses(self):
        """A document that does not fit is told, part by part."""
        schema = self.schema()
        status = {name: None for name in schema["required"]}
        told = "\n".join(faults({**status, "nranks": 0, "stage": 7, "failed": 1, "new": 1,
                                 "progress": 2, "ranks": [{"role": "boss", "rank": "1"}]},
                                schema, schema))
        for fault in ("nranks: 0 < 1", "stage: 7 is no string", "failed: 1 is no boolean",
                      "unknown member new", "progress: 2 > 1", "'boss' is none of",
                      r"ranks[0].rank: '1' is no integer or null", "ranks[0]: no spare",
                      "step: None is no integer"):
            self.assertIn(fault, told)

    def test_refused(self):
        """A wrong address is told before training, with the remedy."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assert_exit(self.driver("--http", str(port)), USAGE,
                             rf"--http: .*127.0.0.1:{port}.*EADDRINUSE.*--http 0")
        for value, why in (("0.0.0.0:0", "--secret-file.*--insecure.*--http 0"),
                           ("70000", "want 1 to 65535"), ("x", "want PORT or ADDR:PORT"),
                           ("192.0.2.1:80", "--secret-file")):
            self.assert_exit(self.driver("--http", value), USAGE, re.escape("--http " + value), why)

    def test_foreign_name(self):
        """Without a token a name that is not the server's own is refused, with the remedy."""
        driver = self.driver("--http", "0.0.0.0:0", "--insecure", "--host", "127.0.0.1",
                             job=ENDLESS)
        url = f"http://127.0.0.1:{re.search(r':([0-9]+)/$', self.url(driver)).group(1)}/"
        own = socket.gethostname()
        for host, code in (("evil.example", 403), ("10.0.0.1:80", 200), (own, 200)):
            got, text = self.get(url + "api/job", [("Host", host)])
            self.assertEqual(got, code, host)
            if code == 403:
                self.assertIn("--http NAME:PORT", text)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_token(self):
        """Beyond this machine the link has a token, made of the secret."""
        secret = self.path("secret")
        self.assert_exit(self.start([DRIVER, "--make-secret", secret]), 0)
        driver = self.driver("--http", "0.0.0.0:0", "--secret-file", secret, "--host", "127.0.0.1",
                             job=ENDLESS)
        link = self.url(driver)
        port, token = re.search(r":(\d+)/\?token=([0-9a-f]{32})$", link).groups()
        url = f"http://127.0.0.1:{port}/"
        self.assertEqual(self.get(url + "metrics")[0], 401)
        bearer = [("Authorization", "Bearer " + token)]
        self.assertEqual(self.get(url + "metrics", bearer)[0], 200)
        self.assertEqual(self.get(url + "api/job?token=" + token)[0], 200)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_standby(self):
        """A standby that leads serves the same link, and shows the run from its beginning."""
        secret, port = self.path("secret"), str(dp.free_port())
        self.assert_exit(self.start([DRIVER, "--make-secret", secret]), 0)
        http = ["--http", f"0.0.0.0:{dp.free_port()}", "--secret-file", secret, "--run-dir", "run"]
        driver = self.driver("--port", port, "--host", "127.0.0.1", *http, n=2, port=False,
                             job={**ENDLESS, "report.every_steps": 5})
        standby = self.start([DRIVER, "--standby", "--root", "127.0.0.1:" + port, "--port", "0",
                              "--threads", "1", *http])
        standby.wait_line("as its standby")
        self.follower("--secret-file", secret, port=port)
        link = self.url(driver)
        self.wait_event("epoch", run="run")
        driver.kill()
        with open(self.path("run", "metrics.csv"), encoding="ascii") as file:
            n_rows = len(file.readlines()) - 1
        self.assertEqual(self.url(standby), link)
        port, token = re.search(r":(\d+)/\?token=(\w+)$", link).groups()
        url, bearer = f"http://127.0.0.1:{port}/", [("Authorization", "Bearer " + token)]
        curves = dp.wait_for("the curves", lambda: self.curves_led(url, bearer))
        self.assertGreater(max(line.count("L") for line in re.findall(r' d="([^"]+)"', curves)),
                           n_rows - 2)
        recent = [event["event"] for event in json.loads(self.get(url + "api/recent", bearer)[1])]
        self.assertEqual((recent[0], recent.count("leader")), ("start", 1))
        self.assertLess(recent.index("epoch"), recent.index("leader"))
        self.assertEqual(self.get(url + "api/recent")[0], 401)
        standby.signal(signal.SIGTERM)
        self.assert_exit(standby, STOPPED)

    def test_idle_and_slow(self):
        """500 connections that say nothing, 20 that say a part, and a reader that takes nothing
        hold up neither training nor other readers, also one that comes after all of them."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
        driver = self.driver("--local", "--http", "0", n=2,
                             job={**ENDLESS, "report.every_steps": 1})
        url = self.url(driver)
        port = int(re.search(r":(\d+)/", url).group(1))
        with contextlib.ExitStack() as stack:
            def dial():
                return stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))

            reader = stack.enter_context(urllib.request.urlopen(url + "api/events", timeout=60))
            slow = dial()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for i in range(520):
                sock = dial()
                if i % 26 == 0:
                    sock.sendall(b"GET /api/status HTTP/1.1\r\nHost: loc")
            before = dp.wait_for("a step", lambda: self.step(url))
            dp.wait_for("more steps", lambda: self.step(url) > before + 20)
            self.assertEqual(self.get(url + "metrics")[0], 200)
            steps = set()
            while len(steps) < 50: # of the reader that was there before
                line = reader.readline().decode()
                self.assertTrue(line)
                if line.startswith("data: ") and json.loads(line[6:]).get("event") == "row":
                    steps.add(json.loads(line[6:])["step"])
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def step(self, url):
        return json.loads(self.get(url + "api/status")[1]).get("step", 0)

    def curves_led(self, url, headers):
        code, text = self.get(url + "api/curves.svg", headers)
        return text if code == 200 and "another driver leads" in text else None


if __name__ == "__main__":
    dp.main()

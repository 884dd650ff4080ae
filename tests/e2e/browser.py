"""Headless Chromium, driven by chromedriver's WebDriver protocol."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

ARGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
CHROMEDRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")


# The texts of the page in their order, those of shadow trees, too.
TEXTS = """(function texts(node) {
    const hidden = ["SCRIPT", "STYLE", "NOSCRIPT"];
    if (node.nodeType === Node.TEXT_NODE)
        return node.textContent.trim() ? [node.textContent.trim()] : [];
    if (hidden.includes(node.nodeName))
        return [];
    const parts = [...(node.shadowRoot ? node.shadowRoot.childNodes : []), ...node.childNodes];
    return parts.flatMap(texts);
})(document.body)"""


class Browser:
    """One window.  https://www.w3.org/TR/webdriver2/ names the commands."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="dptrain-browser-")
        self.start_driver()
        options = {"binary": CHROMIUM, "args": ARGS + ["--user-data-dir=" + self.profile]}
        session = self.ask("", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.url += "/" + session["sessionId"]

    def start_driver(self, tries=5):
        """With port 0 chromedriver takes a free port of IPv4, and ends if IPv6 has it in use."""
        for _ in range(tries):
            self.process = subprocess.Popen([CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True,
                                            start_new_session=True)
            said = []
            for line in self.process.stdout:
                said.append(line)
                if "started successfully on port" in line:
                    port = int(line.split()[-1].rstrip("."))
                    self.url = f"http://127.0.0.1:{port}/session"
                    return
            self.process.wait()
        raise AssertionError(f"{CHROMEDRIVER} ended {tries} times:\n{''.join(said)}")

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.ask("/execute/sync", {"script": "return " + script, "args": []})

    def texts(self):
        return self.run(TEXTS)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def command(self, name, **params):
        """A command of Chromium's own protocol."""
        return self.ask("/goog/cdp/execute", {"cmd": name, "params": params})

    def main_thread_ms(self):
        """CPU time of the page's main thread so far: scripts, style, layout and painting."""
        self.command("Performance.enable", timeDomain="threadTicks")
        metrics = self.command("Performance.getMetrics")["metrics"]
        return 1e3 * next(m["value"] for m in metrics if m["name"] == "TaskDuration")

    def emulate(self, scheme, width, height):
        """Light or dark, and the size of the screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=False)

    def shoot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.get("/screenshot")))

    def close(self):
        if self.process.returncode is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.profile, ignore_errors=True)  # a process that dies may write to it


is_there = CHROMEDRIVER and CHROMIUM
needed = unittest.skipUnless(is_there, "chromium and chromium-driver are not there")

"""The page of --http with made-up documents: a thousand ranks, columns that no rank fills, events
that come twice, texts that look like HTML, contrast, and a narrow screen."""

import json
import os
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import browser  # noqa: E402 (it stands beside the end-to-end tests)
import made_up  # noqa: E402
import schema   # noqa: E402

# Texts whose contrast with what is behind them is less than WCAG's 4.5 (large ones: 3).
# https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
PALE = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => parts(color).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (parts(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const pale = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, style = getComputedStyle(e);
    if (!walk.currentNode.data.trim() || !e.checkVisibility()) continue;
    const [a, b] = [light(style.color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
      pale.push(`${walk.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return pale;
})()"""

INCIDENT = {"time": 1.8e9, "message": "rank 2 (<img src=x onerror=broken()>) waits",
            "generation": 1, "stage": "train", "step": 118, "nranks": 2, "ranks": [
                {"rank": 2, "host": "<b>node</b>", "pid": 7, "behind": True, "phase": "backward",
                 "step": 118, "bucket": 3, "phase_seconds": 12.5, "heard_seconds": 4.0,
                 "collectives": None},
                {"rank": 0, "host": "node0", "pid": 1, "behind": False, "phase": "reduce",
                 "step": 118, "bucket": None, "phase_seconds": 1.5, "heard_seconds": 0.0,
                 "collectives": [{"generation": 1, "number": 7, "step": 118, "bucket": 3,
                                  "bytes": 4096, "phase": "backward", "state": "running",
                                  "handed": 2.5, "began": 2.0, "ended": None}]}]}


def event(name, kind):
    return f'event: event\nid: {name}\ndata: {{"event":"{kind}","time":1.8e9}}\n\n'


class MadeUp(unittest.TestCase):
    def test_schema(self):
        """The made-up status is one that a driver may send."""
        with open(os.path.join(ROOT, "docs", "operating", "status.schema.json"),
                  encoding="utf-8") as file:
            wanted = json.load(file)
        self.assertEqual(list(schema.faults(made_up.status_of(50, 3), wanted, wanted)), [])


@browser.needed
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server, cls.url = made_up.serve(lambda path, last: cls.documents(path, last))
        cls.window = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.window.close()
        cls.server.shutdown()
        cls.server.server_close()

    def open(self, documents, status):
        type(self).documents = staticmethod(
            documents or (lambda path, last: [] if path == "/api/incidents" else None))
        self.window.emulate("light", 1100, 1400)
        self.window.ask("/url", {"url": self.url})
        self.show(status)

    def show(self, status):
        self.window.ask("/execute/sync", {"script": "showStatus(arguments[0])", "args": [status]})

    def wait(self, condition):
        """Until it holds in the page, by the page's own frames."""
        self.assertTrue(self.window.run(f"""new Promise((done) => {{
          const begin = Date.now(), look = () => ({condition}) ? done(true) :
            Date.now() - begin > 20000 ? done(false) : requestAnimationFrame(look);
          look();
        }})"""), condition)

    def column(self, i=0):
        return self.window.run(f"[...$('ranks').rows].map((r) => r.cells[{i}].textContent)")

    def test_a_thousand_ranks(self):
        """The rows that can be seen are there, the others are not, and all can be reached."""
        self.open(None, made_up.status_of(1000, 0))
        shown = self.column()
        self.assertEqual(shown, [str(k) for k in range(len(shown))])
        self.assertTrue(15 < len(shown) < 50, shown)
        self.assertEqual(self.window.run("$('table').ariaRowCount"), "1001")
        whole = self.window.run("$('rows').scrollHeight")
        self.window.run("($('rows').scrollTop = 1e6)")
        self.wait("$('ranks').lastChild.cells[0].textContent === '999'")
        self.assertEqual(self.window.run("$('ranks').lastChild.ariaRowIndex"), "1001")
        shown = self.column()
        self.assertEqual(shown, [str(1000 - len(shown) + k) for k in range(len(shown))])
        self.assertAlmostEqual(self.window.run("$('rows').scrollHeight"), whole, delta=2)
        # The last row ends where the table does: no row hides behind an empty space.
        self.assertLess(self.window.run("$('rows').getBoundingClientRect().bottom - "
                                        "$('ranks').lastChild.getBoundingClientRect().bottom"), 24)
        self.show(made_up.status_of(3, 0))  # shorter than where the table is scrolled to
        self.assertEqual(self.column(), ["0", "1", "2"])
        self.show(made_up.status_of(1000, 1))
        self.window.run("$('columns').cells[0].firstChild.click()")
        self.window.run("$('columns').cells[0].firstChild.click()")
        self.window.run("($('rows').scrollTop = 0)")
        self.wait("$('ranks').rows[0].cells[0].textContent === '0'")
        self.window.run("$('columns').cells[0].firstChild.click()")
        self.assertEqual(self.column()[:3], ["999", "998", "997"])

    def test_scrolled(self):
        """Wherever the table is scrolled to, it stays there, and rows fill what can be seen."""
        self.open(None, made_up.status_of(1000, 0))
        for top in (700, 9000, 400, 20000):
            self.window.run(f"($('rows').scrollTop = {top})")
            self.window.run("""new Promise((done) => {
              let n = 30;  // frames, in each of which it might move on
              const frame = () => n-- ? requestAnimationFrame(frame) : done();
              frame();
            })""")
            at, height, first, n = self.window.run(
                "[$('rows').scrollTop, rowHeight, Number($('ranks').rows[0].cells[0].textContent), "
                "$('ranks').rows.length]")
            self.assertEqual(at, top)
            self.assertLessEqual(first * height, top)
            self.assertGreaterEqual((first + n) * height, top + 480)

    def test_print(self):
        """On paper all ranks are there."""
        self.open(None, made_up.status_of(300, 0))
        shown = self.column()
        self.window.run("dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(self.column(), [str(k) for k in range(300)])
        self.window.run("dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.column(), shown)

    def test_only_changes_are_written(self):
        """The same status again changes nothing in the table; another phase changes one cell."""
        status = made_up.status_of(1000, 0)
        self.open(None, status)
        self.window.run("""(window.seen = [],
          new MutationObserver((list) => seen.push(...list.map((m) => m.target.nodeName)))
            .observe($('table'), {subtree: true, childList: true, attributes: true,
                                  characterData: true}))""")
        self.show(status)
        self.assertEqual(self.window.run("new Promise((d) => setTimeout(() => d(seen)))"), [])
        status["ranks"][4]["phase"] = "validate"
        self.show(status)
        self.assertEqual(self.window.run("new Promise((d) => setTimeout(() => d(seen)))"), ["TD"])

    def heads(self):
        return self.window.run("[...$('columns').cells].filter((c) => c.checkVisibility())"
                               ".map((c) => c.textContent)")

    def test_columns(self):
        """A number that no rank knows has no column."""
        status = made_up.status_of(3, 0)
        self.open(None, status)
        self.assertEqual(self.heads()[-8:], ["memory, GiB", "CPU, %", "GPU, %", "GPU memory, GiB",
                                             "GPU, °C", "GPU, W", "GPU, MHz", "energy, J"])
        status["ranks"][0].update(memory_bytes=3 * 2 ** 30, cpu=1.994, joules={"package": None,
                                                                               "gpu": 7.4})
        self.show(status)
        self.assertEqual([self.column(i)[0] for i in (10, 11, 17)], ["3.00", "199", "7"])
        for rank in status["ranks"]:
            rank.update(gpu=None, joules={"package": None, "gpu": None}, cpu=None)
        self.show(status)
        self.assertEqual(self.heads()[-2:], ["heard, s ago", "memory, GiB"])
        self.assertEqual(self.window.run("[...$('ranks').rows[0].cells].filter((c) => "
                                         "c.checkVisibility()).length"), 11)

    def test_energy(self):
        """The run's joules in fitting units, and why some are not known."""
        status = made_up.status_of(3, 0)
        self.open(None, status)
        for joules, missing, text in (
                ({"package": 1234.4, "gpu": None}, None, "Energy so far: processors 1234 J."),
                ({"package": 54321, "gpu": 7.2e6}, None,
                 "Energy so far: processors 54.3 kJ, GPUs 2.00 kWh."),
                ({"package": None, "gpu": 0.4}, "no counter <here>",
                 "Energy so far: GPUs 0 J. Not known: no counter <here>"),
                ({"package": None, "gpu": None}, "no counter", "Energy is not known: no counter"),
                ({"package": None, "gpu": None}, None, ""), (None, None, "")):
            self.show({**status, "joules": joules, "energy_missing": missing})
            self.assertEqual(self.window.run("$('energy').textContent"), text)

    def events(self):
        return self.window.run("[...$('events').querySelectorAll('b')].map((b) => b.textContent)")

    def test_events(self):
        """A stream that breaks and comes again: no event is missing, and none is there twice.
        Another driver tells all of the run anew."""
        streams = {None: [event("a-1", "start"), event("a-2", "join"), event("a-3", "form")],
                   "a-3": [event("a-2", "join"), event("a-3", "form"), event("a-4", "first_step")]}

        def documents(path, last):
            if path == "/api/events":
                return "retry: 10\n\n" + "".join(streams.get(last, []))
            return [] if path == "/api/incidents" else None

        self.open(documents, made_up.status_of(2, 0))
        self.wait("$('events').children.length === 4")
        self.assertEqual(self.events(), ["first_step", "form", "join", "start"])
        streams["a-4"] = [event("b-1", "start"), event("b-2", "recovered")]
        self.wait("$('events').children.length === 2")
        self.assertEqual(self.events(), ["recovered", "start"])

    def open_incident(self):
        head = {key: INCIDENT[key] for key in INCIDENT if key != "ranks"}
        documents = {"/api/incidents": [{"name": "incident-1.json", "bytes": 9, **head}],
                     "/api/incidents/incident-1.json": INCIDENT, "/api/job": "name: <i>large</i>"}
        self.open(lambda path, last: documents.get(path), made_up.status_of(3, 0))
        self.wait("$('incidents').children.length")
        self.window.run("$('incidents').querySelector('summary').click()")
        self.wait("$('incidents').querySelectorAll('details details').length === 1")
        self.window.run("$('incidents').querySelector('details details summary').click()")
        self.wait("$('incidents').textContent.includes('4,096')")
        self.window.run("showEvent({event: 'lost', time: 1.8e9, reason: '<u>x</u>'})")

    def test_texts_are_texts(self):
        self.open_incident()
        self.assertEqual(self.window.run("document.querySelectorAll('img[onerror], td b, pre i, "
                                         "li u').length"), 0)
        for part, words in (("incidents", "<b>node</b>"), ("incidents", "did not answer"),
                            ("incidents", "bucket 3 of step 118: running"), ("events", "<u>x</u>"),
                            ("incidents", "rank 2 (<img src=x onerror=broken()>) waits")):
            self.assertIn(words, self.window.run(f"$('{part}').textContent"))

    def test_contrast(self):
        self.open_incident()
        for scheme in ("light", "dark"):
            self.window.emulate(scheme, 1100, 1400)
            self.assertGreater(self.window.run("document.querySelectorAll('td').length"), 50)
            self.assertEqual(self.window.run(PALE), [], scheme)

    def test_narrow(self):
        """Wide tables scroll by themselves; the page does not."""
        self.open_incident()
        self.window.emulate("light", 400, 1400)
        self.assertTrue(self.window.run("document.documentElement.scrollWidth <= innerWidth"))


if __name__ == "__main__":
    unittest.main()

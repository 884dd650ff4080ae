#!/usr/bin/env python3
"""page - measures how long the page of --http takes for an update, with a thousand ranks.

    page.py [--ranks N] [--updates N] [--assets DIR] [--shots DIR] [--check]

The page's own files run in headless Chromium, with made-up statuses in place of a driver's, in
which all numbers of all ranks have changed.  An update is JSON.parse, showStatus, and all style and
layout that follows; "painted" adds what the browser's main thread does until the frame is painted.
There is one update in a frame.  CPU time is that of the main thread for all of it, mean of all
updates: a busy machine disturbs it least.  The table is as it is after the page has opened,
scrolled to its middle, sorted by a column whose order changes with each update, and filtered.

--assets takes the page's files from another folder, such as an older common/see/page.  --shots
writes pictures: light, dark and 400 pixels wide.  The goal is a median update of less than 16 ms in
each case.  Exit status 1: it is missed.  --check runs three updates and judges no time.
"""
import argparse
import json
import os
import statistics
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[1:1] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tests", "see")]
import browser  # noqa: E402 (it stands beside the end-to-end tests)
import made_up  # noqa: E402

GOAL_MS = 16

# All statuses, and then the times of all updates in ms.
FETCH = """(async () => {
  window.texts = [];
  for (let i = 0; i < %d; i++) texts.push(await (await fetch(`/status/${i}`)).text());
  return texts.length;
})()"""
MEASURE = """(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const begin = performance.now(), channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now() - begin);
    channel.port2.postMessage(0);
  }));
  const updates = [], painted = [];
  await frame();
  for (const text of texts) {
    const begin = performance.now();
    showStatus(JSON.parse(text));
    document.body.getBoundingClientRect();
    updates.push(performance.now() - begin);
    painted.push(updates.at(-1) + await frame());
  }
  return {updates, painted, cells: document.querySelectorAll("td").length};
})()"""

CASES = (
    ("as it opens", "0"),
    ("scrolled to the middle",
     "(document.querySelector('#ranks').closest('.wide').scrollTop = 14000)"),
    ("sorted by the time of a step",
     "[...document.querySelectorAll('#columns button')][7].click()"),
    ("filtered by host",
     "(document.getElementById('filter').value = 'node', "
     "document.getElementById('filter').dispatchEvent(new Event('input')))"),
)


def shoot(window, folder, name):
    """The page as it stands: light, dark, and on a telephone."""
    for word, scheme, width in (("light", "light", 1100), ("dark", "dark", 1100),
                                ("narrow", "light", 400)):
        window.emulate(scheme, width, 1400)
        window.shoot(os.path.join(folder, f"{name}-{word}.png"))


def measure(window, url, args):
    """A row for each case: its name, cells, median, longest, and the same when painted."""
    rows = []
    for name, prepare in CASES:
        window.ask("/url", {"url": url})
        window.run(f"(showStatus({json.dumps(made_up.status_of(args.ranks, 0))}), 0)")
        window.run(prepare)
        window.run(FETCH % args.updates)
        begin = window.main_thread_ms()
        got = window.run(MEASURE)
        busy = (window.main_thread_ms() - begin) / args.updates
        rows.append((name, got["cells"], statistics.median(got["updates"]), max(got["updates"]),
                     statistics.median(got["painted"]), max(got["painted"]), busy))
        if args.shots:
            shoot(window, args.shots, name.replace(" ", "-"))
    return rows


def table_of(rows):
    lines = ["| the table | cells in the document | update, median ms | longest | painted, median "
             "ms | longest | CPU ms |", "|---|---|---|---|---|---|---|"]
    return lines + [f"| {name} | {cells} | " + " | ".join(f"{ms:.1f}" for ms in times) + " |"
                    for name, cells, *times in rows]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--assets", default=made_up.ASSETS)
    parser.add_argument("--shots")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.updates = 3 if args.check else args.updates
    if not browser.is_there:
        print("skipped: chromium and chromium-driver are not there: deploy/deps.sh --tests")
        return 77

    def documents(path, _):
        is_status = path.startswith("/status/")
        return made_up.status_of(args.ranks, int(path[8:])) if is_status else None

    server, url = made_up.serve(documents, args.assets)
    window = browser.Browser()
    try:
        rows = measure(window, url, args)
    finally:
        window.close()
        server.shutdown()
    print("\n".join(table_of(rows)))
    return 0 if args.check or all(row[2] < GOAL_MS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

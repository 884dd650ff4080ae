"""The page's own files, served with made-up statuses in place of a driver's."""

import http.server
import json
import os
import random
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ASSETS = os.path.join(HERE, "..", "..", "common", "see", "page")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript",
         ".svg": "image/svg+xml"}
PHASES = ("load", "forward", "backward", "reduce", "update")


def rank_of(k, i, draw):
    return {"role": "member", "rank": k, "spare": None, "host": f"node{k // 8:03}", "pid": 4000 + k,
            "device": f"cuda:{k % 8}", "phase": draw.choice(PHASES),
            "phase_seconds": draw.random() * 3, "step": 118 + i, "bucket": draw.randrange(8),
            "step_ms": 20 + 5 * draw.random(), "heard_seconds": draw.random(),
            "factor": 2.31 if k % 97 == 5 else 0.9 + 0.2 * draw.random(), "straggler": k % 97 == 5,
            "generation": 1, "memory_bytes": draw.randrange(2 ** 33, 2 ** 34),
            "cpu": 4 * draw.random(),
            "gpu": {"use": draw.random(), "memory_bytes": draw.randrange(2 ** 36, 2 ** 37),
                    "celsius": draw.randrange(50, 80), "watts": draw.randrange(300, 700),
                    "clock_mhz": draw.randrange(1200, 1980)},
            "joules": {"package": 5e3 + i, "gpu": 4e4 + i * k}}


def status_of(n, i):
    """The status of a run with n ranks, of which one is missing, in the i-th second."""
    draw = random.Random(i)
    ranks = [rank_of(k, i, draw) for k in range(n)]
    ranks[n // 3] = {"role": "missing", "rank": n // 3, "spare": None}
    return {"stage": "train", "stage_seconds": 100.0 + i, "generation": 1, "epoch": 2,
            "step": 118 + i, "nranks": n, "here": n - 1, "data_wait_share": 0.0, "standby": None,
            "run": "large", "run_dir": "runs/large", "n_epochs": 10, "total_steps": 4680,
            "progress": (118 + i) / 4680, "eta_seconds": 3000.0 - i, "step_age_seconds": 0.2,
            "loss": 2.3 / (1 + i), "samples_per_second": 120000.0 + i, "learning_rate": 0.2,
            "grad_norm": 1.7, "validation_loss": 0.21, "validation_accuracy": 0.93,
            "ranks_lost": 1, "failed": False, "incidents": 0, "goodput": 0.91,
            "badput": {"start": 4.0, "data": 1.5, "checkpoint": 2.0, "validation": 1.0, "lost": 1.2,
                       "repeated": 0.3, "waiting": 0.0},
            "cost": 12.34, "cost_forecast": 480.0, "joules": {"package": 9e5 + i, "gpu": 8e6 + i},
            "energy_missing": None, "ranks": ranks}


def served(document):
    """(type, content) of a path; None: there is none."""
    if isinstance(document, str):
        return "text/event-stream" if document.startswith("retry") else "text/plain", document
    return None if document is None else ("application/json", json.dumps(document))


def serve(documents, assets=ASSETS):
    """A server, whose `documents` is a function of a path and the id of the newest event that the
    page has heard.  It gives an object, which becomes JSON, or a text; None where nothing is."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            path = self.path.split("?")[0]
            name = "index.html" if path == "/" else path[1:]
            got = served(documents(path, self.headers.get("Last-Event-ID")))
            if not got and "/" not in name and os.path.isfile(os.path.join(assets, name)):
                with open(os.path.join(assets, name), encoding="utf-8") as file:
                    got = TYPES[os.path.splitext(name)[1]], file.read()
            if not got:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", got[0])
            self.end_headers()
            self.wfile.write(got[1].encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/"

"""A stand-in for the metadata services of AWS, Google Cloud and Azure, at 169.254.169.254 of its
own network namespace: metadata.py CLOUD.  SIGUSR1 announces the end of the machine.  It refuses
what the services refuse: no token, no header, an unknown path."""

import datetime
import http.server
import json
import signal
import sys

NAME, TOKEN = "vm_1", "AQAEtoken=="
cloud, leaves = sys.argv[1], []
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=120)


def aws(method, path, headers):
    if (method, path) == ("PUT", "/latest/api/token"):
        return (200, TOKEN) if headers["X-aws-ec2-metadata-token-ttl-seconds"] else (400, "")
    if headers["X-aws-ec2-metadata-token"] != TOKEN:
        return 401, ""
    if path != "/latest/meta-data/spot/instance-action" or not leaves:
        return 404, "<html>Not Found</html>"
    return 200, json.dumps({"action": "terminate", "time": f"{ends:%Y-%m-%dT%H:%M:%SZ}"})


def gcp(_, path, headers):
    if headers["Metadata-Flavor"] != "Google":
        return 403, ""
    if path == "/computeMetadata/v1/instance/maintenance-event":
        return 200, "NONE"
    if path == "/computeMetadata/v1/instance/preempted":
        return 200, "TRUE" if leaves else "FALSE"
    return 404, ""


def azure(_, path, headers):
    if headers["Metadata"] != "true":
        return 400, ""
    if path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
        return 200, NAME
    if path != "/metadata/scheduledevents?api-version=2020-07-01":
        return 404, ""
    event = {"EventType": "Preempt", "Resources": ["vm_0", NAME] if leaves else ["vm_0"],
             "EventStatus": "Scheduled", "NotBefore": f"{ends:%a, %d %b %Y %H:%M:%S GMT}"}
    return 200, json.dumps({"DocumentIncarnation": 1, "Events": [event]})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        status, text = {"aws": aws, "gcp": gcp, "azure": azure}[cloud](self.command, self.path,
                                                                       self.headers)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = answer

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


server = http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler)
signal.signal(signal.SIGUSR1, lambda *_: leaves.append(1))
print("ready", file=sys.stderr, flush=True)
server.serve_forever()

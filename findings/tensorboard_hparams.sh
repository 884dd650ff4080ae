#!/usr/bin/env bash
# tensorboard_hparams.sh - what TensorBoard's HPARAMS tab tells of a run that failed and went on.
#
# A trainer writes a run's hyperparameters at its begin, and how it ended at its end.  A run that
# failed is resumed: it writes another event file into the same folder, with the learning rate that
# was lowered meanwhile, and ends well.
#
# Guess: the newest counts, as it does for the run's scalars: rate 0.01, success.
# Seen:  tensorboard 2.21.0 shows rate 0.1 and "failure" for ever, by both of its servers
#        (--load_fast true and false), beside the newest loss.  The hyperparameters stand in the
#        metadata of their summaries, and of a tag the first metadata count.  So it is in one file,
#        too.  If the first file has no end, the later end is shown.
#
# So a trainer writes an end only for a run that is done, and as hyperparameters only what a resume
# cannot change.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be had.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q tensorboard==2.21.0 tensorboard-data-server==0.7.2 numpy==2.4.6 \
    protobuf==7.36.2 setuptools==80.9.0 2>"$dir/log" || { tail -n 1 "$dir/log"; exit 77; }
"$dir/venv/bin/python" - "$dir/venv/bin/tensorboard" "$dir/runs" <<'PY'
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

PROGRAM, FOLDER = sys.argv[1:]


def start(rate):
    return summary_v2.hparams_pb({"rate": rate}, start_time_secs=1.0)


def end(status):
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=9.0)
    data = plugin_data_pb2.HParamsPluginData(version=0, session_end_info=info)
    summary = summary_pb2.Summary()
    value = summary.value.add(tag=metadata.SESSION_END_INFO_TAG)
    value.metadata.plugin_data.plugin_name = metadata.PLUGIN_NAME
    value.metadata.plugin_data.content = data.SerializeToString()
    value.tensor.CopyFrom(metadata.NULL_TENSOR)
    return summary


def loss(number):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="loss", simple_value=number)])


def write(run, suffix, step, *summaries):
    """An event file; files of a run are read in the order of their names."""
    writer = EventFileWriter(os.path.join(FOLDER, run), filename_suffix=suffix)
    for i, summary in enumerate(summaries):
        writer.add_event(event_pb2.Event(wall_time=step + i, step=step + i, summary=summary))
    writer.close()


def ask(url, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))


def show(load_fast):
    """{run: (rate, status, newest loss)} as the server of --load_fast tells it."""
    argv = [PROGRAM, "--logdir", FOLDER, "--host", "127.0.0.1", "--port", "0", "--load_fast",
            load_fast]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        port = next(found.group(1) for line in server.stdout
                    if (found := re.search(r"http://[\w.]+:(\d+)/", line)))
        url = f"http://127.0.0.1:{port}/data/plugin/"
        runs = set(os.listdir(FOLDER))
        for _ in range(240):  # until it has read all losses
            tags = ask(url + "scalars/tags")
            if set(tags) == runs and all(
                    ask(f"{url}scalars/scalars?run={run}&tag=loss")[-1][2] == 1.0 for run in runs):
                break
            time.sleep(0.25)
        groups = ask(url + "hparams/session_groups", {
            "experimentName": "", "startIndex": 0, "sliceSize": 9,
            "colParams": [{"hparam": "rate"}], "allowedStatuses": [
                "STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]},
        )["sessionGroups"]
        return {session["name"]: (group["hparams"]["rate"], session["status"][7:].lower(),
                                  session["metricValues"][0]["value"])
                for group in groups for session in group["sessions"]}
    finally:
        server.kill()
        server.wait()


FAILURE, SUCCESS = api_pb2.STATUS_FAILURE, api_pb2.STATUS_SUCCESS
write("two_files", ".1", 1, start(0.1), loss(2.0), end(FAILURE))
write("one_file", ".1", 1, start(0.1), loss(2.0), end(FAILURE), start(0.01), loss(1.0),
      end(SUCCESS))
write("no_first_end", ".1", 1, start(0.1), loss(2.0))
time.sleep(1.1)  # their names have the second
write("two_files", ".2", 10, start(0.01), loss(1.0), end(SUCCESS))
write("no_first_end", ".2", 10, start(0.01), loss(1.0), end(SUCCESS))
wanted = {"two_files": (0.1, "failure", 1.0), "one_file": (0.1, "failure", 1.0),
          "no_first_end": (0.1, "success", 1.0)}
status = 0
for load_fast in ("true", "false"):
    seen = show(load_fast)
    for run in sorted(wanted):
        print(f"--load_fast {load_fast}, {run}: rate {seen[run][0]}, {seen[run][1]}, "
              f"newest loss {seen[run][2]}")
    status |= seen != wanted
sys.exit(status)
PY

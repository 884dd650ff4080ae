"""report.exec: python3 deploy/examples/trackers/mlflow_run.py

Logs a run to MLflow's store at MLFLOW_TRACKING_URI, such as http://127.0.0.1:5000 (a server) or
sqlite:////home/me/mlflow.db."""
import json
import os
import sys

import mlflow

with mlflow.start_run(run_name=os.environ["DPTRAIN_RUN"]):
    for line in sys.stdin:
        event = json.loads(line)
        if event.pop("event") in ("row", "epoch") and event.pop("time"):
            mlflow.log_metrics({k: v for k, v in event.items() if isinstance(v, float)},
                               step=event["step"])

"""report.exec: python3 deploy/examples/trackers/wandb_run.py

Logs a run to Weights & Biases.  With WANDB_MODE=offline it stays in the folder wandb, from which
`wandb sync` sends it later."""
import json
import os
import sys

import wandb

with wandb.init(project="dptrain", name=os.environ["DPTRAIN_RUN"]) as run:
    for line in sys.stdin:
        event = json.loads(line)
        if event.pop("event") in ("row", "epoch") and event.pop("time"):
            run.log({k: v for k, v in event.items() if isinstance(v, float)}, step=event["step"])

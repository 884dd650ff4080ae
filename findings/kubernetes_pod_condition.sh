#!/usr/bin/env bash
# kubernetes_pod_condition.sh - a Job whose pod failure rule leaves `status` out is refused by the
# published schemas of Kubernetes up to 1.34, which say themselves that it has a default.
#
# A Job can say that a pod lost to a disruption does not count as a failure: podFailurePolicy with
# onPodConditions: [{type: DisruptionTarget}]. The schema's text of `status` is "Defaults to True".
#
# Guess: since it has a default, it may be left out, in every version that has the field.
# Seen:  kubernetes-validate 1.37.0, which holds the published schemas: from 1.26 to 1.34 `status`
#        is among the required fields, and the Job is refused; from 1.35 on it is not, and the same
#        Job is right. The text is the same in all of them.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the package cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-cache-dir kubernetes-validate==1.37.0 2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
cat >"$dir/check.py" <<'PY'
"""Validates one Job, with and without the status, against the schemas of several versions."""
import sys

import kubernetes_validate

OLD, NEW = ("1.26", "1.30", "1.33", "1.34"), ("1.35", "1.36", "1.37")


def job(condition):
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {"backoffLimit": 2,
                     "podFailurePolicy": {"rules": [{"action": "Ignore",
                                                     "onPodConditions": [condition]}]},
                     "template": {"spec": {"restartPolicy": "Never",
                                           "containers": [{"name": "a", "image": "a:1"}]}}}}


def said(condition, version):
    try:
        kubernetes_validate.validate(job(condition), version, strict=True)
        return "right"
    except kubernetes_validate.ValidationError as error:
        return "refused" if "'status' is a required property" in str(error) else repr(error)


failed = 0
for version in OLD + NEW:
    whole = said({"type": "DisruptionTarget", "status": "True"}, version)
    without = said({"type": "DisruptionTarget"}, version)
    print(f"{version}: with status {whole}, without {without}")
    failed |= (whole, without) != ("right", "refused" if version in OLD else "right")
sys.exit(failed)
PY
"$dir/venv/bin/python" -W ignore "$dir/check.py"

"""deploy/kubernetes by the schemas that Kubernetes publishes, as the package kubernetes-validate
has them: no unknown key at any depth, and each value of its type.  A JobSet is a custom resource,
whose Jobs are looked at."""

import os
import unittest

import find_torch

find_torch.need("kubernetes_validate", "yaml")

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy",
                      "kubernetes")
VERSION = "1.33"  # backoffLimitPerIndex is stable since


def objects(name):
    """Those of a file; a List's, and the Jobs of a JobSet."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        for document in yaml.safe_load_all(file):
            if document["kind"] == "List":
                yield from document["items"]
            elif document["kind"] == "JobSet":
                for job in document["spec"]["replicatedJobs"]:
                    yield {"apiVersion": "batch/v1", "kind": "Job",
                           "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}
            else:
                yield document


class Kubernetes(unittest.TestCase):
    def test_files(self):
        kinds = {}
        for name in ("job.yaml", "jobset.yaml", "elastic.yaml"):
            for document in objects(name):
                kubernetes_validate.validate(document, VERSION, strict=True)
                kinds.setdefault(name, []).append(document["kind"])
        self.assertEqual(kinds, {"job.yaml": ["ConfigMap", "Service", "Job"],
                                 "jobset.yaml": ["Job", "Job"],
                                 "elastic.yaml": ["Service", "Job", "Deployment", "Deployment"]})

    def test_a_slip_is_found(self):
        job = next(d for d in objects("job.yaml") if d["kind"] == "Job")
        job["spec"]["completionmode"] = "Indexed"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, VERSION, strict=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)

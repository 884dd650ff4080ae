"""deploy/grafana/dashboard.json by Grafana's own schema, from which the classes of the package
grafana-foundation-sdk are made: it has no key that Grafana does not know, at any depth, and each
value is of the type that Grafana's class says."""

import enum
import json
import os
import sys
import types
import typing
import unittest

import find_torch

find_torch.need("grafana_foundation_sdk")

from grafana_foundation_sdk.cog import encoder, plugins  # noqa: E402
from grafana_foundation_sdk.models import dashboard as grafana  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def lost(ours, theirs, place="dashboard"):
    """The places of ours that are not in theirs, or have another value there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [p for key in ours for p in lost(ours[key], theirs.get(key, lost), f"{place}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [p for i, pair in enumerate(zip(ours, theirs)) for p in lost(*pair, f"{place}[{i}]")]
    return [] if ours == theirs else [place]


def fits(value, hint):
    """True if a value is of a type as annotations name it.  misfits() looks at the fields of a
    class."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any or hint is object:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in args)
    if origin is typing.Literal:
        return value in args
    if origin is list:
        return isinstance(value, list) and all(fits(one, args[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, args[1]) for one in value.values())
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def misfits(thing, place="dashboard"):
    """The places below an object of Grafana's classes whose value is not of its field's type."""
    if isinstance(thing, list):
        return [p for i, one in enumerate(thing) for p in misfits(one, f"{place}[{i}]")]
    if isinstance(thing, dict):
        return [p for key, one in thing.items() for p in misfits(one, f"{place}.{key}")]
    if not type(thing).__module__.startswith("grafana_foundation_sdk.models"):
        return []
    if isinstance(thing, enum.Enum):
        return []
    hints = typing.get_type_hints(type(thing), vars(sys.modules[type(thing).__module__]))
    return [p for name, value in vars(thing).items()
            for p in ([] if fits(value, hints.get(name, object)) else [f"{place}.{name}"]) +
            misfits(value, f"{place}.{name}")]


class Dashboard(unittest.TestCase):
    def setUp(self):
        plugins.register_default_plugins()
        with open(os.path.join(ROOT, "deploy/grafana/dashboard.json"), encoding="utf-8") as file:
            self.ours = json.load(file)

    def wrong(self):
        theirs = grafana.Dashboard.from_json(self.ours)
        return lost(self.ours, json.loads(encoder.JSONEncoder().encode(theirs))), misfits(theirs)

    def test_schema(self):
        self.assertEqual(self.wrong(), ([], []))
        kinds = {type(panel.options).__module__.split(".")[-1]
                 for panel in grafana.Dashboard.from_json(self.ours).panels}
        self.assertTrue(kinds <= {"timeseries", "stat", "table", "bargauge", "gauge"}, kinds)

    def test_mistakes_are_seen(self):
        """Without this, a package that reads anything would pass the dashboard."""
        panel = self.ours["panels"][0]
        panel["gridpos"] = panel["gridPos"]
        panel["targets"][0]["expression"] = "up"
        panel["id"] = "1"
        panel["fieldConfig"]["defaults"]["unit"] = 7
        self.ours["refresh"] = 10
        unknown, wrong = self.wrong()
        self.assertEqual(sorted(unknown), ["dashboard.panels[0].gridpos",
                                           "dashboard.panels[0].targets[0].expression"])
        self.assertEqual(sorted(wrong), ["dashboard.panels[0].field_config.defaults.unit",
                                         "dashboard.panels[0].id_val", "dashboard.refresh"])


if __name__ == "__main__":
    unittest.main()

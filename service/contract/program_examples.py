"""An example of every kind of column and target, of every kernel and of every stage.

Columns are written here; kernels and stages are made from their dataclasses' defaults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.algorithm import Algorithm
from service import sample

FEATURES: Mapping[str, Mapping[str, Any]] = {
    "numeric": {
        "kind": "numeric",
        "name": "lactate",
        "unit": "mmol/L",
        "lower": 0,
        "upper": 30,
        "may_be_missing": True,
    },
    "categorical": {
        "kind": "categorical",
        "name": "ward",
        "levels": ["medical", "surgical", "other"],
        "other": "other",
    },
}
"""One of every kind, in one table."""

TARGETS: Mapping[str, Mapping[str, Any]] = {
    "real": {"kind": "real", "name": "stay", "unit": "d", "lower": 0, "upper": 100},
    "binary": {
        "kind": "binary",
        "name": "readmitted",
        "levels": ["no", "yes"],
        "event": "yes",
    },
    "classes": {
        "kind": "classes",
        "name": "discharged_to",
        "levels": ["home", "care home", "hospital"],
    },
    "count": {
        "kind": "count",
        "name": "visits",
        "unit": "visits",
        "upper": 50,
        "exposure": "years_observed",
    },
    "time_to_event": {
        "kind": "time_to_event",
        "name": "days_until",
        "unit": "d",
        "event": "died",
        "edges": [30, 90, 180, 365],
        "horizon": 365,
    },
}
"""One of every kind, in one table."""

SCHEMA: Mapping[str, Any] = {
    "features": [*FEATURES.values()],
    "targets": [*TARGETS.values()],
    "patient": "patient_id",
}

_NEEDED: Mapping[str, Any] = {
    "public": sample.PUBLIC_SET,
    "recipes": [
        {"name": "linear", "kernel": 0, "steps": 5},
        {"name": "deep", "kernel": 1, "steps": 60, "penalty": 3.0, "handicap": 2.0},
    ],
}
"""Parameters of stages that have no default."""


def kernel_example(architecture: Architecture) -> Mapping[str, Any]:
    """Return a kernel with the fields that its architecture uses, at their defaults."""
    used = json.loads(KernelSpec(architecture=architecture, inputs=1).to_json())
    first = {"architecture": used.pop("architecture")}
    return first | {name: used[name] for name in used if name not in ("inputs", "version")}


def stage_example(algorithm: Algorithm) -> Mapping[str, Any]:
    """Return a stage with all its parameters, at their defaults where they have one."""
    needed = {own.name for own in fields(algorithm.Spec) if own.default is MISSING}
    parameters = {
        own.name: _NEEDED[own.name] if own.name in needed else _plain(own.default)
        for own in fields(algorithm.Spec)
    }
    return {"algorithm": algorithm.NAME, "version": algorithm.VERSION, "parameters": parameters}


def _plain(value: Any) -> Any:
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def sessions() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return sessions to create, by name, each with what it shows; the shortest first."""
    privacy: Mapping[str, Any] = {
        "differential_privacy": True,
        "epsilon": 4,
        "delta": 1e-6,
        "runs": 2,
        "max_rows_per_patient": 1,
    }
    short = {name: sample.STATED[name] for name in ("schema", "members", "privacy", "model")}
    bounded = {**short["schema"], "patient": "patient_id"}
    kernels: Sequence[Mapping[str, Any]] = [
        {"architecture": "linear"},
        {"architecture": "deep", "hidden": [16], "samples": 32, "linear_part": True},
    ]
    return {
        "five lines": (
            "Five lines: the coordinator makes kernel and stages from the schema",
            {"name": "Length of stay", **short},
        ),
        "every kind of column and target": (
            "Every kind of column and target",
            {"name": "After discharge", **short, "schema": SCHEMA},
        ),
        "differential privacy": (
            "Differential privacy: what two runs together may cost any one patient",
            {"name": "Length of stay, private", **short, "schema": bounded, "privacy": privacy},
        ),
        "kernel and stages": (
            "Kernel and stages, written out",
            {"name": "Length of stay, written out", **sample.STATED},
        ),
        "choice of a kernel": (
            "A choice of kernels: recipes race, and held-out rows choose",
            {
                "name": "Length of stay, chosen",
                **short,
                "choices": kernels,
                "stages": [
                    {"algorithm": "moments"},
                    {"algorithm": "search", "parameters": {"recipes": _NEEDED["recipes"]}},
                    {"algorithm": "linear"},
                    {"algorithm": "completion"},
                    {"algorithm": "recalibration"},
                    {"algorithm": "evaluation"},
                ],
            },
        ),
    }

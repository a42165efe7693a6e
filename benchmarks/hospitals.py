"""Generated patients of several hospitals: length of stay and readmission, with a known truth.

stay = f(age, heart rate, systolic pressure, lactate, comorbidities, ward) + N(0, NOISE²), in days.
Whether a patient is readmitted within 30 days is drawn with a probability that depends on the same
columns (`readmission_risk`). Both functions are the same everywhere, but each hospital has
different patients: children, the elderly, trauma, surgery, or a mixture. So each hospital alone
knows one part of them well and the rest poorly. A tenth of the lactate values are missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOISE = 0.7
WARDS = ("medical", "surgical", "intensive")

Table = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class CaseMix:
    """A hospital's patients: mean and spread of age and of log lactate, and ward frequencies."""

    name: str
    age: tuple[float, float]
    log_lactate: tuple[float, float]
    comorbidities: float
    wards: tuple[float, float, float]


MIXES = (
    CaseMix("childrens", (24.0, 12.0), (0.1, 0.30), 0.6, (0.70, 0.25, 0.05)),
    CaseMix("geriatric", (80.0, 7.0), (0.4, 0.35), 4.0, (0.80, 0.15, 0.05)),
    CaseMix("trauma", (42.0, 14.0), (1.1, 0.45), 1.2, (0.10, 0.40, 0.50)),
    CaseMix("surgical", (58.0, 12.0), (0.5, 0.40), 2.0, (0.05, 0.85, 0.10)),
    CaseMix("county", (55.0, 20.0), (0.5, 0.50), 2.2, (0.55, 0.30, 0.15)),
)

SCHEMA: Mapping[str, Any] = {
    "version": 1,
    "features": [
        {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
        {"kind": "numeric", "name": "heart_rate", "unit": "1/min", "lower": 20, "upper": 260},
        {"kind": "numeric", "name": "systolic", "unit": "mmHg", "lower": 30, "upper": 280},
        {
            "kind": "numeric",
            "name": "lactate",
            "unit": "mmol/l",
            "lower": 0,
            "upper": 40,
            "may_be_missing": True,
        },
        {"kind": "numeric", "name": "comorbidities", "unit": "1", "lower": 0, "upper": 20},
        {"kind": "categorical", "name": "ward", "levels": list(WARDS)},
    ],
    "targets": [{"name": "stay", "unit": "d", "lower": -50, "upper": 200}],
}
READMITTED: Mapping[str, object] = {
    "kind": "binary",
    "name": "readmitted",
    "levels": ["no", "yes"],
    "event": "yes",
}
"""A second target, of `followed_up` patients: whether one is readmitted within 30 days."""


def truth(table: Table) -> NDArray[np.float64]:
    """Return f, in days; a missing lactate value counts as 1.6 mmol/l."""
    age, systolic = (table[name].astype(np.float64) for name in ("age", "systolic"))
    rate, comorbidities = (
        table[name].astype(np.float64) for name in ("heart_rate", "comorbidities")
    )
    lactate = np.nan_to_num(table["lactate"].astype(np.float64), nan=1.6)
    ward = table["ward"]
    stay = 2.0 + 1.2 * np.sin(age / 14.0) + 0.0006 * np.clip(age - 50, 0, None) ** 2
    stay = stay + 1.4 * np.log1p(lactate) + 0.35 * comorbidities
    stay = stay + 1.5 / (1 + np.exp(-(rate - 110) / 10)) + 1.2 / (1 + np.exp((systolic - 95) / 8))
    stay = stay + np.where(ward == "surgical", 0.8 * np.cos(age / 20.0), 0.0)
    return np.asarray(stay + np.where(ward == "intensive", 1.0 + 0.5 * lactate, 0.0))


def readmission_risk(table: Table) -> NDArray[np.float64]:
    """Return the probability of a readmission; a missing lactate value counts as 1.6 mmol/l."""
    age, comorbidities = (table[name].astype(np.float64) for name in ("age", "comorbidities"))
    lactate = np.nan_to_num(table["lactate"].astype(np.float64), nan=1.6)
    logit = -4.0 + 0.5 * comorbidities + 1.3 * np.log1p(lactate)
    logit = logit + 1.2 / (1 + np.exp(-(age - 65) / 6)) + 0.8 * np.sin(age / 14.0)
    logit = logit + np.where(table["ward"] == "intensive", 0.9, 0.0)
    return np.asarray(1 / (1 + np.exp(-logit)))


def patients(mix: CaseMix, rows: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return a table of `rows` patients of one hospital."""
    random = np.random.default_rng([seed, MIXES.index(mix)])
    age = np.clip(random.normal(*mix.age, rows), 0, 105)
    lactate = np.clip(random.lognormal(*mix.log_lactate, rows), 0.2, 30)
    table: dict[str, NDArray[np.generic]] = {
        "age": age.round(1),
        "heart_rate": np.clip(78 + 8 * (lactate - 1) + random.normal(0, 13, rows), 30, 220).round(),
        "systolic": np.clip(
            118 + 0.25 * age - 7 * (lactate - 1) + random.normal(0, 14, rows), 45, 240
        ).round(),
        "lactate": lactate.round(2),
        "comorbidities": np.minimum(random.poisson(mix.comorbidities, rows), 20).astype(np.float64),
        "ward": random.choice(WARDS, rows, p=mix.wards),
    }
    stay = truth(table) + random.normal(0, NOISE, rows)
    table["lactate"] = np.where(random.random(rows) < 0.1, np.nan, table["lactate"])
    return {**table, "stay": stay.round(3)}


def followed_up(mix: CaseMix, rows: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return the same patients with a further column, `readmitted`: "yes" or "no"."""
    table = patients(mix, rows, seed)
    random = np.random.default_rng([seed, MIXES.index(mix), 30])
    happened = random.random(rows) < readmission_risk(table)
    return {**table, "readmitted": np.where(happened, "yes", "no")}


def pooled(tables: list[dict[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Return all rows in one table."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

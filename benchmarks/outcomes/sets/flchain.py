"""Serum free light chains and survival, 7,874 inhabitants of a county aged 50 and more.

Days until death, or until the end of follow-up (72 %). There are no hospitals: sorted by age and
cut into ten. `flc_group` is a decile of kappa + lambda and left out.

`load_5y` is a yes/no outcome of the same rows, which DP-SGD of a logistic regression can learn:
dead within five years (1,825 days). Whoever left follow-up alive before that is left out (195).
"""

from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import Dataset, TimeToEvent, YesNo, flags, take
from benchmarks.outcomes.members import sorted_into
from benchmarks.outcomes.sets.files import read
from kernels.tables.schema import Numeric

EDGES = (182.0, 365.0, 730.0, 1095.0, 1460.0, 1825.0, 2555.0, 3285.0, 4015.0, 4745.0)
"""Days: half a year, then 1, 2, 3, 4, 5, 7, 9, 11 and 13 years."""
FIVE_YEARS = 1825.0

INPUTS = (
    Numeric("age", "a", 18, 120),
    *flags("male"),
    Numeric("sample_year", "a", 1990, 2010),
    Numeric("kappa", "mg/dl", 0, 100),
    Numeric("lambda", "mg/dl", 0, 100),
    Numeric("creatinine", "mg/dl", 0, 30, may_be_missing=True),
    *flags("mgus"),
)


def load(folder: Path) -> Dataset:
    table = read(folder, "flchain")
    del table["flc_group"]
    return Dataset(
        name="flchain",
        inputs=INPUTS,
        outcome=TimeToEvent("time_d", "d", event="death", edges=EDGES),
        table=table,
        hospitals=sorted_into(table["age"], 10),
    )


def load_5y(folder: Path) -> Dataset:
    whole = load(folder).table
    dead = (whole["death"] == 1) & (whole["time_d"] <= FIVE_YEARS)
    known = dead | (whole["time_d"] >= FIVE_YEARS)
    table = take({**whole, "dead_5y": dead.astype(np.float64)}, known)
    del table["time_d"], table["death"]
    return Dataset(
        name="flchain_5y",
        inputs=INPUTS,
        outcome=YesNo("dead_5y"),
        table=table,
        hospitals=sorted_into(table["age"], 10),
    )

"""German health registry: visits to the doctor, 1984 to 1988.

19,609 rows of 6,127 patients, who are the units: all rows of a patient are for training or for
testing, and belong to one member. `hospvis` is an outcome too, not an input.
"""

from pathlib import Path

from benchmarks.outcomes.dataset import Count, Dataset, flags
from benchmarks.outcomes.sets.files import read
from kernels.tables.schema import Numeric


def load(folder: Path) -> Dataset:
    table = read(folder, "rwm5yr")
    del table["hospvis"]
    return Dataset(
        name="rwm5yr",
        inputs=(
            Numeric("year", "a", 1984, 1988),
            Numeric("age", "a", 0, 120),
            *flags("outwork", "female", "married", "kids"),
            Numeric("hhninc", "1000 DEM", 0, 100),
            Numeric("educ", "a", 0, 30),
            *flags("self"),
        ),
        outcome=Count("docvis", "1", upper=200),
        table=table,
        patient="subject",
    )

"""US Medicare: days in hospital of 1,495 patients in 54 hospitals of Arizona.

Hospitals with fewer than 30 rows are one member together. `died` is an outcome too, not an input.
"""

from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import Count, Dataset, flags
from benchmarks.outcomes.members import small_together
from benchmarks.outcomes.sets.files import read
from kernels.tables.schema import Categorical

ADMISSIONS = ("elective", "urgent", "emergency")


def load(folder: Path) -> Dataset:
    table = read(folder, "medpar")
    hospital = table.pop("site")
    kinds = np.stack([table.pop(f"type{number}") for number in (1, 2, 3)], axis=1)
    table["admission"] = np.array(ADMISSIONS, dtype=object)[kinds.argmax(axis=1)]
    del table["died"]
    return Dataset(
        name="medpar",
        inputs=(*flags("hmo", "white", "age80"), Categorical("admission", ADMISSIONS)),
        outcome=Count("los", "d", upper=365),
        table=table,
        hospitals=small_together(hospital, least=30),
    )

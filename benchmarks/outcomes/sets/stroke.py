"""International Stroke Trial: dead or dependent after six months, 19,285 patients.

464 hospitals in 36 countries. The 49 hospitals with at least 100 patients are members; the other
patients are one member per country, and countries with fewer than 50 of them one together. Inputs
are what was known at randomisation, and what was allotted. A deficit that could not be assessed is
missing (and counted in `n_unassessable`); the pilot's patients lack two columns.
"""

from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import Dataset, YesNo, flags
from benchmarks.outcomes.members import by_hospital_or_country
from benchmarks.outcomes.sets.files import levels, read
from kernels.tables.schema import Categorical, Numeric

CONSCIOUSNESS = {0.0: "alert", 1.0: "drowsy", 2.0: "unconscious"}
HEPARIN = {0.0: "none", 1.0: "low", 2.0: "medium"}
SYNDROMES = ("TACS", "PACS", "POCS", "LACS", "OTH")
DEFICITS = tuple(
    f"def_{part}"
    for part in (
        "face",
        "arm",
        "leg",
        "dysphasia",
        "hemianopia",
        "visuospatial",
        "brainstem",
        "other",
    )
)
_MAY_BE_MISSING = ("atrial_fib", "heparin_24h", "aspirin_3d", *DEFICITS)


def load(folder: Path) -> Dataset:
    raw = read(folder, "ist_stroke")
    hospital, country = raw.pop("site"), raw.pop("country")
    syndromes = np.stack([raw.pop(f"type_{each}") for each in SYNDROMES], axis=1)
    table = raw | {
        "consciousness": levels(raw["consciousness"], CONSCIOUSNESS),
        "rx_heparin": levels(raw["rx_heparin"], HEPARIN),
        "syndrome": np.array(SYNDROMES, dtype=object)[syndromes.argmax(axis=1)],
        "dependent": raw["target"],
    }
    del table["target"]
    return Dataset(
        name="stroke",
        inputs=(
            Numeric("delay_h", "h", 0, 48),
            Categorical("consciousness", tuple(CONSCIOUSNESS.values())),
            *flags("male"),
            Numeric("age", "a", 0, 120),
            *flags(
                "on_waking",
                "atrial_fib",
                "ct_before",
                "infarct_visible",
                "heparin_24h",
                "aspirin_3d",
                missing=_MAY_BE_MISSING,
            ),
            Numeric("sbp_mmHg", "mmHg", 40, 320),
            *flags(*DEFICITS, missing=_MAY_BE_MISSING),
            Numeric("n_unassessable", "1", 0, len(DEFICITS)),
            Categorical("syndrome", SYNDROMES),
            *flags("rx_aspirin"),
            Categorical("rx_heparin", tuple(HEPARIN.values())),
        ),
        outcome=YesNo("dependent"),
        table=table,
        hospitals=by_hospital_or_country(hospital, country, least=100, least_country=50),
    )

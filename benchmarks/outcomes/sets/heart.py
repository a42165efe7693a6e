"""UCI Heart Disease: narrowed arteries in 920 patients of four hospitals.

Cleveland 303 rows, Budapest 294, Zürich and Basel 123, Long Beach 200. slope, ca and thal are
almost absent outside of Cleveland. A cholesterol of 0 (all Swiss rows, 49 of Long Beach) and a
blood pressure of 0 mean that it was not measured: missing here.
"""

from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import Dataset, YesNo, flags
from benchmarks.outcomes.sets.files import levels, read
from kernels.tables.schema import Categorical, Numeric

CHEST_PAIN = {1.0: "typical angina", 2.0: "atypical angina", 3.0: "other pain", 4.0: "none"}
ECG = {0.0: "normal", 1.0: "ST-T abnormal", 2.0: "hypertrophy"}
SLOPE = {1.0: "up", 2.0: "flat", 3.0: "down"}
THALLIUM = {3.0: "normal", 6.0: "fixed defect", 7.0: "reversible defect"}
_CODES = {"cp": CHEST_PAIN, "restecg": ECG, "slope": SLOPE, "thal": THALLIUM}


def load(folder: Path) -> Dataset:
    raw = read(folder, "heart_disease", texts=("site",))
    hospitals = raw.pop("site")
    for name in ("chol", "trestbps"):
        raw[name] = np.where(raw[name] == 0, np.nan, raw[name])
    table = raw | {name: levels(raw[name], names) for name, names in _CODES.items()}
    table["disease"] = table.pop("target")
    return Dataset(
        name="heart",
        inputs=(
            Numeric("age", "a", 0, 120),
            *flags("sex"),
            Categorical("cp", tuple(CHEST_PAIN.values())),
            Numeric("trestbps", "mmHg", 40, 300, may_be_missing=True),
            Numeric("chol", "mg/dl", 50, 1000, may_be_missing=True),
            *flags("fbs", missing=("fbs",)),
            Categorical("restecg", tuple(ECG.values()), may_be_missing=True),
            Numeric("thalach", "1/min", 20, 260, may_be_missing=True),
            *flags("exang", missing=("exang",)),
            Numeric("oldpeak", "mm", -10, 10, may_be_missing=True),
            Categorical("slope", tuple(SLOPE.values()), may_be_missing=True),
            Numeric("ca", "1", 0, 3, may_be_missing=True),
            Categorical("thal", tuple(THALLIUM.values()), may_be_missing=True),
        ),
        outcome=YesNo("disease"),
        table=table,
        hospitals=hospitals,
    )

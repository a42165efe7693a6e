"""Breast Cancer Wisconsin (Diagnostic): malignant or not, 569 images of cells, 30 measurements.

Ten quantities of the nuclei in an image, each as its mean, its standard error and its worst value.
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.outcomes.dataset import Dataset, YesNo
from benchmarks.outcomes.sets.files import read
from kernels.tables.schema import Numeric

LARGEST: Mapping[str, float] = {
    "radius": 100,
    "texture": 100,
    "perimeter": 700,
    "area": 10_000,
    "smoothness": 1,
    "compactness": 5,
    "concavity": 5,
    "concave_points": 1,
    "symmetry": 1,
    "fractal_dimension": 1,
}


def load(folder: Path) -> Dataset:
    table = read(folder, "breast_cancer_wdbc")
    table["malignant"] = table.pop("target")
    return Dataset(
        name="wdbc",
        inputs=tuple(
            Numeric(name, "1", 0, upper)
            for quantity, upper in LARGEST.items()
            for name in (f"mean_{quantity}", f"{quantity}_error", f"worst_{quantity}")
        ),
        outcome=YesNo("malignant"),
        table=table,
    )

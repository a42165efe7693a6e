"""Everything that differs by the name of a set: printed numbers, and what was tuned by hand.

[FedBNR]'s printed results are read from the folder `anchors` beside the data, where there is one.
They are not part of this repository; without them the tables have only what was measured here.
FedBNR auto uses nothing of this file but the bars that it is held to.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.fedbnr.protocol import CLIENTS

Anchors = Mapping[tuple[str, str, str, int], float]
"""By metric, row, data set and number of clients."""

METRICS = "rmse", "ece", "mce", "brier"

MOST_RMSE = {"skillcraft": 0.95, "sml": 0.20, "parkinsons": 2.0, "bike": 0.37, "ccpp": 4.0}
"""What FedBNR exact is to reach, with its recipe for each set."""
AUTO_RMSE = {"skillcraft": 0.93, "sml": 0.16, "parkinsons": 1.8, "bike": 0.365, "ccpp": 3.70}
"""What FedBNR auto is to reach, without any."""

SMALL, LARGE = "sml", "ccpp"
"""The sets that clients' agreement and their cost are measured on."""

NEARLY_LINEAR = ("skillcraft",)
PENALTY, PENALTIES = 3.0, {"bike": 30.0}
"""By hand, for FedBNR exact: which sets have a Matérn kernel, and τ where it is another
(`phase1.exact` says why)."""

PROXIMAL = {
    ("skillcraft", 10): 0.5,
    ("skillcraft", 100): 1.0,
    ("sml", 10): 0.1,
    ("sml", 100): 1.0,
    ("parkinsons", 10): 1.0,
    ("parkinsons", 100): 1.0,
    ("bike", 10): 0.1,
    ("bike", 100): 0.01,
    ("ccpp", 10): 0.001,
    ("ccpp", 100): 1.0,
}
"""FedProx's μ as [FedBNR] found it by grid search (table A.1)."""

RHO = {
    ("skillcraft", 10): 5e3,
    ("skillcraft", 100): 5e4,
    ("sml", 10): 5e3,
    ("sml", 100): 5e4,
    ("parkinsons", 10): 1e3,
    ("parkinsons", 100): 5e3,
    ("bike", 10): 5e4,
    ("bike", 100): 5e4,
    ("ccpp", 10): 1e5,
    ("ccpp", 100): 1e5,
}
"""FedLoc's ρ as [FedBNR] found it by grid search (table A.1)."""

_ROWS = {"Central GP": "Central URK"}
"""What [FedBNR] calls its central process is one with a URK."""


def read_anchors(folder: Path) -> Anchors:
    """Read `fedbnr_METRIC.csv`; what is not there has no anchors."""
    found = {}
    for metric in METRICS:
        path = folder / f"fedbnr_{metric}.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                row = _ROWS.get(line["method"], line["method"])
                central = line["clients"] == "central"
                for clients in CLIENTS if central else (int(line["clients"]),):
                    key = metric, row, line["dataset"].lower(), clients
                    found[key] = float(line[metric])
    return found

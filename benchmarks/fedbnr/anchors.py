"""[FedBNR]'s printed numbers, read from the folder `anchors` beside the data, where there is one.

They are not part of this repository; without them the tables have only what was measured here.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.fedbnr.protocol import CLIENTS

Anchors = Mapping[tuple[str, str, str, int], float]
"""By metric, row, data set and number of clients."""

METRICS = "rmse", "ece", "mce", "brier"

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

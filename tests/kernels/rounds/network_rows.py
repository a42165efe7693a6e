"""Three sites, a model and public rows for the algorithms that train networks."""

from typing import Any

import torch

from kernels.model.model import Model
from kernels.rounds.site.site import Part, Site
from tests.kernels.rounds import tables
from tests.kernels.rounds.ensemble.test_predictive import PUBLIC

TRAINING: dict[str, Any] = {"hidden": (6,), "batch_rows": 10, "epochs": 3}
DISTILLING: dict[str, Any] = {"public": PUBLIC, "extra_rows": 8, "distillation_epochs": 2}
SAMPLING: dict[str, Any] = {
    "hidden": (6,),
    "batch_rows": 10,
    "cycles": 2,
    "cycle_epochs": 3,
    "cycle_samples": 2,
}


def sites_and_model() -> tuple[list[Site], Model]:
    sites = [tables.site(n, seed=seed) for seed, n in enumerate((20, 40, 60))]
    return sites, tables.fitted(sites)


def without_rows(site: Site) -> Site:
    return Site(
        {
            part: rows.take(torch.zeros(len(rows), dtype=torch.bool))
            for part, rows in site.records.items()
        }
    )


def missed(sites: list[Site], model: Model, predicted: Any) -> torch.Tensor:
    """σ² as the docstrings have it, from each site's predictions of its rows for stopping."""
    squares, rows = torch.zeros(model.targets).double(), 0
    for number, site in enumerate(sites):
        x, y = site.table(Part.STOPPING, model)
        squares += (predicted(number, x) - y).square().sum(0)
        rows += len(y)
    return (1 + squares) / (1 + rows)

"""Shared by the attacks on served variances (A16): a population, a model of it, and two attacks.

    plain       ranks candidates by their variance
    informed    knows the kernel and other patients of the population: ranks them by how much the
                variance is below that of models of other tables with as many rows

`python -m tests.adversary.variance_oracle` prints the table of docs/threats.md, in five minutes.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.simulation import simulate
from kernels.layer.statistics import Statistics
from kernels.model.exposure import effective_features, membership_auc
from kernels.model.model import Model, known
from kernels.model.prediction import Predictions, predict
from kernels.rounds.automatic import candidates, program_of_candidate
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.adversary.membership import Table, auc, dealt, rows_of
from tests.dealing import DEALING

Floats = NDArray[np.float64]
SHADOWS = 2
MOST = 2_000
"""Most members and strangers that are ranked."""


@dataclass(frozen=True)
class Population:
    """Patients with correlated columns, whose target is linear but for two terms."""

    columns: int
    seed: int = 7

    @property
    def schema(self) -> Schema:
        """The schema that hospitals agree on."""
        columns = tuple(Numeric(f"x{i}", "1", -10, 10) for i in range(self.columns))
        return Schema(columns, (Target("y", "1", -60, 60),))

    def draw(self, rows: int, random: np.random.Generator) -> Table:
        """Return some patients."""
        own, p = np.random.default_rng(self.seed), self.columns
        mixed = own.normal(size=(p, p)) / np.sqrt(p) + np.eye(p)
        slopes = own.normal(size=p) / np.sqrt(p)
        x = np.clip(random.normal(size=(rows, p)) @ mixed, -9, 9)
        y = x @ slopes + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
        y = np.clip(y + 0.7 * random.normal(size=rows), -50, 50)
        return {**{f"x{i}": x[:, i] for i in range(p)}, "y": y}


@dataclass(frozen=True)
class Attacked:
    """A model of one of the automatic program's candidates, its members, and strangers."""

    population: Population
    model: Model
    members: Table
    strangers: Table
    random: np.random.Generator

    @classmethod
    def of(cls, kernel: str, *, columns: int, rows: int, seed: int = 16) -> "Attacked":
        """Train the candidate of this name over five hospitals."""
        population, random = Population(columns), np.random.default_rng(seed)
        members, strangers = population.draw(rows, random), population.draw(MOST, random)
        (own,) = (each for each in candidates(population.schema) if each.name == kernel)
        program = program_of_candidate(population.schema, own)
        model = simulate(program, dealt(members), DEALING, secure=False).model
        return cls(population, model, members, strangers, random)

    def plain(self, served: Callable[[Predictions], Floats]) -> float:
        """Return the AUC of ranking by what is served of predictions: lower is a member."""
        inside, outside = (-served(predict(self.model, who)) for who in self._candidates())
        return auc(inside, outside)

    def informed(self, served: Callable[[Predictions], Floats]) -> float:
        """Return the AUC of ranking by what is served, relative to the same of other tables."""
        scores = [-np.log(served(predict(self.model, who))) for who in self._candidates()]
        for _ in range(SHADOWS):
            other = self._of_others()
            for score, who in zip(scores, self._candidates(), strict=True):
                latent = predict(other, who).latent_variance[:, 0].numpy()
                score += np.log(latent) / SHADOWS
        return auc(*scores)

    def by_residual(self) -> float:
        """Return the AUC of ranking by the error of the mean, by someone who knows the target."""
        errors = [
            -np.abs(np.asarray(who["y"]) - predict(self.model, who).mean[:, 0].numpy())
            for who in self._candidates()
        ]
        return auc(*errors)

    def _candidates(self) -> tuple[Table, Table]:
        return rows_of(self.members, slice(0, MOST)), self.strangers

    def _of_others(self) -> Model:
        """Return the model with the sums of as many other patients."""
        count = len(self.members["y"])
        x, y = standardised(self.model, self.population.draw(count, self.random))
        phi = [self.model.features(x[i : i + MOST]).detach() for i in range(0, count, MOST)]
        sums = Statistics.of_features(torch.cat(phi), y)
        before = known(self.model.statistics, "linear")
        return replace(self.model, statistics=replace(sums, rounding=before.rounding))


def standardised(model: Model, table: Mapping[str, Floats]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a table's features and targets as the kernel reads them."""
    site = Site.of_table(model.schema, table, held_out=0.0, dealing=DEALING)
    return site.table(Part.TRAINING, model)


def latent(predictions: Predictions) -> Floats:
    """Return the latent variance of each row."""
    return predictions.latent_variance[:, 0].numpy()


CASES = (
    *(("linear", 5, rows) for rows in (100, 500, 2000)),
    *(("linear", 30, rows) for rows in (100, 300, 1000, 2000, 5000)),
    *(("inducing", 5, rows) for rows in (100, 300, 1000, 5000, 20_000)),
    *(("inducing", 20, rows) for rows in (100, 300, 1000, 5000)),
    *(("deep, τ = 3", 20, rows) for rows in (1000, 5000)),
)


def main() -> None:
    """Write a line for each kernel, number of columns and number of rows."""
    _write("kernel", "columns", "rows", "d", "plain", "informed", "by residual", "estimate")
    _write(*["---"] * 8)
    for kernel, columns, rows in CASES:
        own = Attacked.of(kernel, columns=columns, rows=rows)
        found = own.plain(latent), own.informed(latent), own.by_residual()
        said = [f"{each:.2f}" for each in (*found, membership_auc(own.model))]
        free = f"{float(effective_features(own.model.posterior).max()):.0f}"
        _write(kernel, str(columns), f"{rows:,}", free, *said)


def _write(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

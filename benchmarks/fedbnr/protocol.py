"""The protocol of [FedBNR] §3.2.2: what is trained on, when to stop, and which round counts.

A method trains in rounds and is judged after each: on validation rows, which decide, and on test
rows, which do not. It stops after PATIENCE rounds without a lower validation error. Two numbers are
reported: the test error at the best validation round, and the least test error of any round, which
is what [FedBNR] prints although it peeks at the test rows. A method without a global model is a
model of each client, and its error is the mean of theirs, each over all test rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.datasets import Dataset, Split
from benchmarks.fedbnr.scoring import Belief, Scored, mean_of, rmse, scored
from client_sdk.simulation import simulate
from kernels.features.spec import KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site

CLIENTS = 10, 100
PATIENCE = 5
VALIDATION = Part.STOPPING, Part.CALIBRATION


@dataclass(frozen=True)
class Column:
    """One column of [FedBNR]'s tables, and a seed of its split."""

    dataset: str
    clients: int
    seed: int

    def split(self, data: Path, *, public: float = 0.0) -> Split:
        """Return the rows as dealt to clients."""
        dataset = Dataset.load(self.dataset, data)
        return dataset.split(clients=self.clients, seed=self.seed, public=public)


@dataclass(frozen=True, eq=False)
class Table:
    """Standardised inputs (n, p) and targets (n, 1)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Tables:
    """A split on one scale, that of all training rows: what methods without a program train on.

    scale: what one deviation of the target is in its unit.
    """

    clients: tuple[Table, ...]
    validation: Table
    test: Table
    scale: float

    @classmethod
    def of(cls, split: Split) -> "Tables":
        """Standardise by the sites' summed moments, as every program does."""
        schema = split.dataset.schema
        kernel = KernelSpec(inputs=len(schema.feature_names))
        program = Program(schema, kernel, (moments.Spec(),), max_rows=20_000)
        model = simulate(program, split.sites, secure=False).model

        def table(site: Site, part: Part) -> Table:
            return Table(*site.table(part, model))

        held_out = [table(site, part) for site in split.sites for part in VALIDATION]
        tested = Site({Part.TRAINING: split.dataset.records(split.test)})
        if model.standardiser is None:
            raise RuntimeError("moments leave a standardiser")
        return cls(
            tuple(table(site, Part.TRAINING) for site in split.sites),
            joined(held_out),
            table(tested, Part.TRAINING),
            model.standardiser.targets[0].scale,
        )


def joined(tables: Sequence[Table]) -> Table:
    """Return the rows of all tables as one."""
    return Table(torch.cat([each.x for each in tables]), torch.cat([each.y for each in tables]))


Predictor = Callable[[Tensor], Belief]
"""From standardised inputs (n, p) to what a model believes of their targets."""


def follow(
    rounds: Iterable[Sequence[Predictor]], tables: Tables, *, patience: int = PATIENCE
) -> Scored:
    """Judge the models of each round, one or one a client, and stop when it no longer helps."""
    judged: list[tuple[float, float]] = []
    best: list[Belief] = []
    for models in rounds:
        validation = [rmse(model(tables.validation.x), tables.validation.y) for model in models]
        beliefs = [model(tables.test.x) for model in models]
        test = [rmse(belief, tables.test.y) for belief in beliefs]
        judged.append((sum(validation) / len(models), sum(test) / len(models)))
        if judged[-1] == min(judged, key=lambda pair: pair[0]):
            best = beliefs
        if stalled([each for each, _ in judged], patience):
            break
    least = min(test for _, test in judged) * tables.scale
    of_best = mean_of([scored(belief, tables.test.y, scale=tables.scale) for belief in best])
    return {**of_best, "rmse_min": least, "rounds": float(len(judged))}


def stalled(errors: Sequence[float], patience: int) -> bool:
    """Say whether the last `patience` errors are all no lower than one before them.

    >>> stalled([3.0, 1.0, 2.0, 1.5], 2), stalled([3.0, 1.0, 2.0, 0.5], 2)
    (True, False)
    """
    best = min(range(len(errors)), key=errors.__getitem__)
    return len(errors) - 1 - best >= patience


def by_size(clients: Sequence[Table]) -> Iterator[tuple[list[int], Table]]:
    """Yield clients with equally many rows as one batch, x (clients, n, p) and y (clients, n, 1).

    Chunks differ by one row at most, so there are no more than three sizes, and a batch trains
    its clients as if one by one at a fraction of the cost.
    """
    sizes: Mapping[int, list[int]] = {
        size: [i for i, each in enumerate(clients) if len(each.y) == size]
        for size in sorted({len(each.y) for each in clients})
    }
    for members in sizes.values():
        yield (
            members,
            Table(
                torch.stack([clients[i].x for i in members]),
                torch.stack([clients[i].y for i in members]),
            ),
        )

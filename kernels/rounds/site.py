"""What one hospital's half of an algorithm sees: its rows, in three parts.

Rows are dealt to training, stopping (when to stop, which variant to keep) and calibration (how wide
the intervals are): a model that is judged on rows it was chosen by would look better than it is.
A patient's rows stay together. The parts are a function of the seed and of the patients, or of the
row numbers where the schema names no patient.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch
from torch import Tensor

from kernels.errors import TooManyRows
from kernels.hashed import uniforms
from kernels.records import Records
from kernels.rounds.model import Model, known
from kernels.schema import Schema
from kernels.standardiser import Rows, Standardiser


class Part(StrEnum):
    """What rows are used for."""

    TRAINING = "training"
    """Fitting."""
    STOPPING = "stopping"
    """Choosing among fits."""
    CALIBRATION = "calibration"
    """Scoring and recalibrating the chosen one."""
    ADDED = "added"
    """New rows that a fitted model takes in."""
    REMOVED = "removed"
    """Rows of the training part that it forgets."""


class Site:
    """One hospital's records in parts, and their standardised rows, computed once.

    A part without records has no rows. `consents` names the algorithms that may show this site's
    own numbers and that its operator has agreed to; by default none.
    """

    def __init__(self, records: Mapping[Part, Records], *, consents: Iterable[str] = ()) -> None:
        self.records = dict(records)
        self.consents = frozenset(consents)
        self._rows: dict[Part, tuple[Standardiser, Rows]] = {}
        self._kept: tuple[Tensor, object] | None = None

    @classmethod
    def of_table(
        cls, schema: Schema, table: Mapping[str, object], *, held_out: float, seed: int
    ) -> "Site":
        """Check a table against the schema and deal its rows; `held_out` is halved."""
        records = Records.for_training(schema, table)
        draw = _draws(records, seed)
        return cls(
            {
                Part.TRAINING: records.take(draw >= held_out),
                Part.STOPPING: records.take(draw < held_out / 2),
                Part.CALIBRATION: records.take((draw >= held_out / 2) & (draw < held_out)),
            }
        )

    def rows(self, part: Part, model: Model) -> Rows:
        """Return the rows of a part as the model's standardiser makes them."""
        standardiser = known(model.standardiser, "moments")
        stored = self._rows.get(part)
        if stored is None or stored[0] != standardiser:
            stored = self._rows[part] = standardiser, standardiser.apply(self.bounded(part, model))
        return stored[1]

    def table(self, part: Part, model: Model) -> tuple[Tensor, Tensor]:
        """Return the standardised features (n, p) and targets (n, T) of a part."""
        rows = self.rows(part, model)
        return rows.features, known(rows.targets, "moments")

    def keep(self, weights: Tensor, computed: object) -> None:
        """Keep what was computed at these weights for the next sum: work saved, nothing else."""
        self._kept = weights, computed

    def take_kept(self, weights: Tensor) -> object | None:
        """Return what was kept, once, if it was computed at these very weights."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and torch.equal(kept[0], weights) else None

    def bounded(self, part: Part, model: Model) -> Records:
        """Return the records of a part, refused if there are more than the plan allows."""
        records = self.records.get(part)
        if records is None:
            anything = next(iter(self.records.values()))
            records = anything.take(torch.zeros(len(anything), dtype=torch.bool))
        if len(records) > model.max_rows:
            raise TooManyRows(
                f"{len(records)} rows for {part}, and this session allows {model.max_rows} a site: "
                "ask for a session with a larger max_rows"
            )
        return records

    def __repr__(self) -> str:
        return f"Site({', '.join(f'{part}: {len(rows)}' for part, rows in self.records.items())})"


def _draws(records: Records, seed: int) -> Tensor:
    if records.patients is None:
        return uniforms(seed, "parts", len(records))
    by_patient = {
        patient: float(uniforms(seed, f"parts/{patient}", 1))
        for patient in dict.fromkeys(records.patients)
    }
    return torch.tensor([by_patient[patient] for patient in records.patients], dtype=torch.float64)

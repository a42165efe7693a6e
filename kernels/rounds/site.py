"""What one hospital's half of an algorithm sees: its rows, in three parts.

Rows are dealt to training, stopping (when to stop, which variant to keep) and calibration (how wide
the intervals are): a model that is judged on rows it was chosen by would look better than it is.
A patient's rows stay together. The parts are a function of the seed and of the patients, or of what
is in the rows where the schema names no patient: a table that was exported again in another order
has the same parts.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch
from torch import Tensor

from kernels.errors import EmptyTable, StateError, TooManyRows
from kernels.hashed import uniforms
from kernels.records import Records
from kernels.rounds.model import Model, known
from kernels.schema import Schema
from kernels.standardiser import CLIP, Rows, Standardiser

_FEW = 20
_MOST_CLIPPED = 0.5


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
        if not records:
            raise EmptyTable("a site has at least one part, be it without rows")
        self.records = dict(records)
        self.consents = frozenset(consents)
        self._rows: dict[Part, tuple[Standardiser, Rows]] = {}
        self._kept: tuple[Model, object] | None = None

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
            rows = standardiser.apply(self.bounded(part, model))
            _check_scales(rows)
            stored = self._rows[part] = standardiser, rows
        return stored[1]

    def table(self, part: Part, model: Model) -> tuple[Tensor, Tensor]:
        """Return the standardised features (n, p) and targets (n, T) of a part."""
        rows = self.rows(part, model)
        return rows.features, known(rows.targets, "moments")

    def keep(self, model: Model, features: object) -> None:
        """Keep features of the model's kernel for the next sum: work saved, nothing else."""
        self._kept = model, features

    def take_kept(self, model: Model) -> object | None:
        """Return what was kept, once, if the same kernel, weights and scales give it."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and kept[0].has_features_of(model) else None

    def updated(self) -> "Site":
        """Return the site after an update: what was added is trained on, what was removed not."""
        changes = (Part.ADDED, Part.REMOVED)
        records: dict[Part, Records] = {
            part: own for part, own in self.records.items() if part not in changes
        }
        training = self.records[Part.TRAINING]
        if removed := self.records.get(Part.REMOVED):
            gone = set(removed.row_keys())
            training = training.take(torch.tensor([key not in gone for key in training.row_keys()]))
        added = [self.records[Part.ADDED]] if Part.ADDED in self.records else []
        records[Part.TRAINING] = Records.concatenate([training, *added])
        return Site(records, consents=self.consents)

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


def _check_scales(rows: Rows) -> None:
    """Refuse scales that no honest sum gives: under them many rows are beyond CLIP deviations.

    A scale that is tiny beside a column's spread would turn it into "is it this patient".
    """
    clipped = (rows.features.abs() >= CLIP).double()
    if len(rows) >= _FEW and bool((clipped.mean(0) > _MOST_CLIPPED).any()):
        raise StateError(
            f"a column of this site is more than {CLIP:g} deviations from the broadcast's mean in "
            f"over {_MOST_CLIPPED:.0%} of its rows: the standardiser is not that of the sites' sum"
        )


def _draws(records: Records, seed: int) -> Tensor:
    keys = records.row_keys()
    by_key = {key: float(uniforms(seed, f"parts/{key.hex()}", 1)) for key in set(keys)}
    return torch.tensor([by_key[key] for key in keys], dtype=torch.float64)

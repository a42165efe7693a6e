"""The kernel's input: features and targets on one scale, the same at every site.

A numeric feature becomes (x − mean)/scale, clipped to ±5, and 0 if it is missing (the mean is
imputed). A column with heavy tails may have a curve, by which (x − mean)/scale is moved to its
normal score before the clip (`kernels.tables.curves`). If the schema allows missing cells, an
indicator follows, 1 where the cell is missing. A categorical column becomes one feature per level,
1 for the row's level and 0 for the others; if the cell is missing, each level's share of the rows
(again the mean). An indicator follows likewise.

These 0s and 1s are not standardised. Their scale is 1 already, and dividing by the deviation of a
level that one row in a thousand has would put its rows 30 deviations away from all others. Targets
become (y − mean)/scale and are not clipped: clipping would change the question that is answered.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import NewerStandardiser, StandardiserError, WrongShape
from kernels.strict_json import (
    decode_list,
    decode_object,
    encode_json,
    is_newer,
    is_number,
    is_text,
    parse_json,
)
from kernels.tables.curves import Curve
from kernels.tables.moments import Moments, mean_and_scale
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

CLIP = 5.0
"""The largest distance of a standardised numeric feature from its mean, in scales."""


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """The kernel's input: n rows of p features and T targets, all finite; the repr shows none."""

    features: Tensor
    """(n, p) float64, named by `feature_names`."""
    targets: Tensor | None
    """(n, T) float64; None if read for prediction."""
    patients: tuple[str, ...] | None
    """As in `Records`."""
    outside: Tensor
    """(n, K) bool: whether a numeric cell is outside the schema's bounds."""
    feature_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {len(self.feature_names)} features)"


@dataclass(frozen=True)
class Scale:
    """The mean and the scale of a numeric feature or a target, in its unit."""

    STORED_AS: ClassVar[str] = "scale"

    name: str
    mean: float
    scale: float


@dataclass(frozen=True)
class Shares:
    """The share of each level of a categorical feature among the rows where it is not missing."""

    STORED_AS: ClassVar[str] = "shares"

    name: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Standardiser:
    """The part of a model that turns `Records` into `Rows`, in the same way at every site.

    Plain data.

    >>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d"),))
    >>> records = Records.for_training(schema, {"age": [40, 60], "stay": [1, 7]})
    >>> standardiser = Standardiser.of(schema, Moments.of(records))
    >>> standardiser.targets
    (Scale(name='stay', mean=4.0, scale=3.0),)
    >>> standardiser.apply(Records.for_prediction(schema, {"age": [45, 119]})).features.tolist()
    [[-0.5], [5.0]]
    """

    STORED_AS: ClassVar[str] = "standardiser"

    numeric: tuple[Scale, ...]
    categorical: tuple[Shares, ...]
    targets: tuple[Scale, ...]
    curves: tuple[Curve, ...] = ()
    """Those of the numeric features that have one, in their order; a target has none."""

    VERSION: ClassVar[int] = 2

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise StandardiserError("; ".join(problems))

    @classmethod
    def of(cls, schema: Schema, moments: Moments) -> "Standardiser":
        """Return the standardiser for the summed moments of all sites (`mean_and_scale`).

        A categorical feature that is missing in every row gets equal shares.
        """
        moments.check(schema)
        rows = moments.rows.item()
        present = (rows - moments.missing).tolist()
        sizes = [len(column.levels) for column in schema.categorical]
        counts = torch.split_with_sizes(moments.levels, sizes)
        return cls(
            numeric=_scales(schema.numeric, present, moments.sums, moments.squares),
            categorical=tuple(
                Shares(column.name, _shares(count))
                for column, count in zip(schema.categorical, counts, strict=True)
            ),
            targets=_scales(
                schema.real,
                [rows] * len(schema.real),
                moments.target_sums,
                moments.target_squares,
            ),
        )

    def apply(self, records: Records) -> Rows:
        """Return rows standardised and imputed, with features ordered as `Schema.feature_names`."""
        schema = records.schema
        self.check(schema)
        mean, scale = self._numeric_columns
        z = (records.numeric - mean) / scale
        for place, curve in self._curved_columns:
            z[:, place] = curve.apply(z[:, place])
        z = z.clamp(-CLIP, CLIP)
        z = z.masked_fill(records.missing, 0.0)
        missing = records.missing.to(z.dtype)
        numbers = zip(torch.split(z, 1, 1), torch.split(missing, 1, 1), strict=True)
        labels = zip(records.levels.unbind(1), self._features_of_level, strict=True)
        blocks = []
        for column in schema.features:
            if isinstance(column, Numeric):
                values, indicator = next(numbers)
                blocks += [values, indicator] if column.may_be_missing else [values]
            else:
                codes, features = next(labels)
                own = features[codes]
                blocks.append(own if column.may_be_missing else own[:, :-1])
        targets = records.targets
        if targets is not None:
            target_mean, target_scale = self.target_columns
            targets = (targets - target_mean) / target_scale
        return Rows(
            features=torch.cat(blocks, dim=1),
            targets=targets,
            patients=records.patients,
            outside=records.outside,
            feature_names=schema.feature_names,
        )

    def in_units(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Convert predictions of standardised targets, each (n, T), to the targets' units."""
        expected = (len(mean), len(self.targets))
        if not mean.shape == variance.shape == expected:
            raise WrongShape(
                f"mean and variance must both have shape (n, {len(self.targets)}), not "
                f"{tuple(mean.shape)} and {tuple(variance.shape)}"
            )
        target_mean, target_scale = self.target_columns
        return mean * target_scale + target_mean, variance * target_scale.square()

    @cached_property
    def target_columns(self) -> tuple[Tensor, Tensor]:
        """The targets' means and scales, each (T,)."""
        return _columns(self.targets)

    @cached_property
    def _made_for(self) -> tuple[list[str], list[tuple[str, int]], list[str]]:
        return (
            [column.name for column in self.numeric],
            [(column.name, len(column.shares)) for column in self.categorical],
            [column.name for column in self.targets],
        )

    @cached_property
    def _numeric_columns(self) -> tuple[Tensor, Tensor]:
        return _columns(self.numeric)

    @cached_property
    def _curved_columns(self) -> tuple[tuple[int, Curve], ...]:
        place = {column.name: index for index, column in enumerate(self.numeric)}
        return tuple((place[curve.name], curve) for curve in self.curves)

    @cached_property
    def _features_of_level(self) -> tuple[Tensor, ...]:
        return tuple(map(features_of_levels, self.categorical))

    def to_json(self) -> str:
        """Return the canonical JSON; floats keep every bit."""
        return encode_json({"version": self.VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "Standardiser":
        """Read a standardiser; `text` is not trusted."""
        wrong: list[str] = []
        plain = parse_json(text, "the standardiser", wrong)
        if is_newer(plain, cls.VERSION):
            raise NewerStandardiser(
                "this standardiser was written by a newer version of veilgp; this one reads "
                f"standardiser version {cls.VERSION}: upgrade veilgp on this machine"
            )
        document = None if wrong else decode_object(_Document, plain, "the standardiser", wrong)
        if document is None:
            raise StandardiserError("; ".join(wrong))
        if type(document.version) is not int or document.version != cls.VERSION:
            wrong.append(f"version must be {cls.VERSION}")
        curves = decode_list(Curve, document.curves, "curves", wrong)
        numeric = decode_list(Scale, document.numeric, "numeric", wrong)
        categorical = decode_list(Shares, document.categorical, "categorical", wrong)
        targets = decode_list(Scale, document.targets, "targets", wrong)
        if wrong:
            raise StandardiserError("; ".join(wrong))
        return cls(numeric, categorical, targets, curves)

    def check(self, schema: Schema) -> None:
        """Refuse a schema whose columns differ from those of this standardiser."""
        theirs = (
            [column.name for column in schema.numeric],
            [(column.name, len(column.levels)) for column in schema.categorical],
            [column.name for column in schema.real],
        )
        if self._made_for != theirs:
            raise StandardiserError(
                "the columns of this standardiser, or their order, differ from those of the "
                "schema; use the standardiser of the same model"
            )


@dataclass(frozen=True)
class _Document:
    """The fields of a standardiser's JSON."""

    version: object
    numeric: object
    categorical: object
    targets: object
    curves: object


def _scales(
    columns: Sequence[Numeric | Target], counts: Sequence[float], sums: Tensor, squares: Tensor
) -> tuple[Scale, ...]:
    each = zip(columns, counts, sums.tolist(), squares.tolist(), strict=True)
    return tuple(
        Scale(column.name, *mean_and_scale(column, count=count, total=total, squares=square))
        for column, count, total, square in each
    )


def _shares(counts: Tensor) -> tuple[float, ...]:
    counts = counts if bool(counts.any()) else torch.ones_like(counts)
    return tuple((counts / counts.sum()).tolist())


def features_of_levels(column: Shares) -> Tensor:
    """Return a row of features for each level, and a last row for missing cells.

    The last column is the indicator, which is used only if cells may be missing.
    """
    table = torch.eye(len(column.shares) + 1, dtype=torch.float64)
    table[-1, :-1] = torch.tensor(column.shares, dtype=torch.float64)
    return table


def _columns(scales: Sequence[Scale]) -> tuple[Tensor, Tensor]:
    """Return means and scales, each (len(scales),)."""
    pairs = [(column.mean, column.scale) for column in scales]
    mean, scale = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).unbind(1)
    return mean, scale


def _problems(standardiser: Standardiser) -> list[str]:
    problems = []
    for column in (*standardiser.numeric, *standardiser.targets):
        if not (is_text(column.name) and is_number(column.mean)):
            problems.append(f"column {column.name!r} needs a name and a finite mean")
        if not (is_number(column.scale) and column.scale > 0):
            problems.append(f"column {column.name!r} needs a positive finite scale")
    problems += [
        f"column {column.name!r} needs a name and shares between 0 and 1"
        for column in standardiser.categorical
        if not (is_text(column.name) and _are_shares(column.shares))
    ]
    if isinstance(standardiser.curves, tuple) and all(
        isinstance(curve, Curve) for curve in standardiser.curves
    ):
        curved = [curve.name for curve in standardiser.curves]
        if curved != [c.name for c in standardiser.numeric if c.name in set(curved)]:
            problems.append("curves must be of different numeric features, in their order")
    else:
        problems.append("curves must be a tuple of Curve")
    return problems


def _are_shares(shares: object) -> bool:
    return isinstance(shares, tuple) and all(
        is_number(share) and 0 <= share <= 1 for share in shares
    )

"""The schema of a session's tables: plain data that hospitals and the coordinator agree on.

A schema names the columns that become features (numeric or categorical), the targets, and
optionally a column that identifies patients, which is never a feature. It is versioned and converts
to JSON and back. A `Schema` object is always valid: building an invalid one, in Python or from
JSON, raises `SchemaRefused` with all its problems.

>>> schema = Schema(
...     features=(
...         Numeric("age", unit="a", lower=0, upper=120),
...         Categorical("sex", levels=("female", "male"), may_be_missing=True),
...     ),
...     targets=(Target("stay", unit="d", lower=0),),
...     patient="patient_id",
... )
>>> schema.feature_names
('age', 'sex=female', 'sex=male', 'sex is missing')
>>> Schema.from_json(schema.to_json()) == schema
True
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from types import UnionType
from typing import Any, ClassVar

from kernels.errors import (
    DuplicateName,
    NewerSchema,
    NothingToLearn,
    SchemaError,
    SchemaRefused,
    WrongBounds,
    WrongField,
    WrongLevels,
)
from kernels.strict_json import (
    decode_list,
    decode_object,
    encode_json,
    is_flag,
    is_newer,
    is_number,
    is_text,
    parse_json,
)


@dataclass(frozen=True)
class Numeric:
    """A number with a unit; one feature, and an indicator if cells may be missing.

    Bounds are inclusive and define which values are possible: a training table that exceeds them is
    refused, and a row to predict is marked. They also keep federated moments exact (`Moments`).
    """

    STORED_AS: ClassVar[str] = "numeric"

    name: str
    unit: str
    """For example "mmHg"; "1" for a dimensionless number."""
    lower: float | None = None
    upper: float | None = None
    may_be_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (self.name, *_indicator(self))


@dataclass(frozen=True)
class Categorical:
    """One of several levels; one feature per level, and an indicator if cells may be missing."""

    STORED_AS: ClassVar[str] = "categorical"

    name: str
    levels: tuple[str, ...]
    other: str | None = None
    """The level for labels that are not in `levels`; if None, these labels are refused."""
    may_be_missing: bool = False

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each level in `levels`."""
        return {level: position for position, level in enumerate(self.levels)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (*(f"{self.name}={level}" for level in self.levels), *_indicator(self))


@dataclass(frozen=True)
class Target:
    """A number to predict, with a unit and inclusive bounds; never missing in training."""

    STORED_AS: ClassVar[str] = "target"

    name: str
    unit: str
    lower: float | None = None
    upper: float | None = None


Feature = Numeric | Categorical


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in the order in which they become features and targets."""

    STORED_AS: ClassVar[str] = "schema"

    features: tuple[Feature, ...]
    targets: tuple[Target, ...]
    patient: str | None = None
    """The column with equal entries in the rows of one patient; not a feature."""

    VERSION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (_is_tuple_of(Feature, self.features) and _is_tuple_of(Target, self.targets)):
            raise SchemaRefused(
                [
                    WrongField(
                        "features must be a tuple of Numeric and Categorical, and targets a tuple "
                        "of Target"
                    )
                ]
            )
        problems = _problems(self.features, self.targets, self.patient)
        if not self.features:
            problems.append(NothingToLearn("features is empty; name at least one column"))
        if not self.targets:
            problems.append(NothingToLearn("targets is empty; name at least one column"))
        if problems:
            raise SchemaRefused(problems)

    @cached_property
    def numeric(self) -> tuple[Numeric, ...]:
        """The numeric features, in order."""
        return tuple(column for column in self.features if isinstance(column, Numeric))

    @cached_property
    def categorical(self) -> tuple[Categorical, ...]:
        """The categorical features, in order."""
        return tuple(column for column in self.features if isinstance(column, Categorical))

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the p features, in order."""
        return tuple(name for column in self.features for name in column.feature_names)

    def to_json(self) -> str:
        """Return the canonical JSON; equal schemas give equal text."""
        return encode_json(
            {
                "version": self.VERSION,
                "features": [_column_to_dict(column) for column in self.features],
                "targets": [_column_to_dict(target) for target in self.targets],
                "patient": self.patient,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Read a schema; fields of columns that have a default may be omitted.

        `text` is not trusted: unknown fields, wrong types and invalid values are refused.
        """
        wrong: list[str] = []
        plain = parse_json(text, "the schema", wrong)
        if is_newer(plain, cls.VERSION):
            raise NewerSchema(
                "this schema was written by a newer version of veilgp; this one reads schema "
                f"version {cls.VERSION}: upgrade veilgp on this machine"
            )
        document = None if wrong else decode_object(_Document, plain, "the schema", wrong)
        if document is None:
            raise SchemaRefused([WrongField(sentence) for sentence in wrong])
        if type(document.version) is not int or document.version != cls.VERSION:
            wrong.append(f"version must be {cls.VERSION}")
        features = _features_from_list(document.features, wrong)
        targets = decode_list(Target, document.targets, "targets", wrong)
        if wrong:
            problems: list[SchemaError] = [WrongField(sentence) for sentence in wrong]
            raise SchemaRefused(problems + _problems(features, targets, document.patient))
        return cls(features, targets, document.patient)


@dataclass(frozen=True)
class _Document:
    """The fields of a schema's JSON."""

    version: object
    features: object
    targets: object
    patient: Any = None


_KINDS: dict[str, type[Feature]] = {"numeric": Numeric, "categorical": Categorical}


def _features_from_list(plain: object, wrong: list[str]) -> tuple[Feature, ...]:
    if not isinstance(plain, tuple):
        wrong.append("features must be a list")
        return ()
    features = []
    for index, column in enumerate(plain):
        where = f"features[{index}]"
        kind = column.get("kind") if isinstance(column, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            wrong.append(f"{where} must be an object whose 'kind' is one of {', '.join(_KINDS)}")
            continue
        others = {name: value for name, value in column.items() if name != "kind"}
        feature = decode_object(_KINDS[kind], others, where, wrong)
        if feature is not None:
            features.append(feature)
    return tuple(features)


def _column_to_dict(column: Feature | Target) -> dict[str, object]:
    kinds = [name for name, kind in _KINDS.items() if isinstance(column, kind)]
    plain = asdict(column)
    for end in ("lower", "upper"):
        if plain.get(end) is not None:
            plain[end] = float(plain[end])  # 0 and 0.0 are equal, so their text must be equal
    return {"kind": kinds[0], **plain} if kinds else plain


def _indicator(column: Feature) -> tuple[str, ...]:
    return (f"{column.name} is missing",) if column.may_be_missing else ()


def _problems(
    features: Sequence[Feature], targets: Sequence[Target], patient: object
) -> list[SchemaError]:
    """Return everything that is wrong with these columns, individually and together."""
    problems: list[SchemaError] = []
    for column in (*features, *targets):
        problems += _column_problems(column)
    if patient is not None and not is_text(patient):
        problems.append(WrongField("patient must be the name of a column, or omitted"))
    names = [*(column.name for column in (*features, *targets)), patient]
    problems += [
        DuplicateName(
            f"{count} columns are named {name!r}; a column must appear only once, as a feature, as "
            "a target or as the patient column"
        )
        for name, count in _repeated(names).items()
    ]
    if not problems:
        derived = _repeated([name for column in features for name in column.feature_names])
        problems += [
            DuplicateName(f"{count} features would be called {name!r}; rename a column or a level")
            for name, count in derived.items()
        ]
    return problems


def _column_problems(column: Feature | Target) -> list[SchemaError]:
    where = f"column {column.name!r}"
    problems: list[SchemaError] = []
    if not is_text(column.name):
        problems.append(WrongField(f"{where}: name must be text that is not blank"))
    if isinstance(column, Categorical):
        problems += _level_problems(column, where)
    else:
        if not is_text(column.unit):
            problems.append(
                WrongField(f"{where}: unit must be text; use '1' if the column has no unit")
            )
        ends = [end for end in (column.lower, column.upper) if end is not None]
        if not all(is_number(end) for end in ends):
            problems.append(
                WrongBounds(f"{where}: lower and upper must be finite numbers, or omitted")
            )
        elif len(ends) == 2 and not ends[0] < ends[1]:
            problems.append(
                WrongBounds(
                    f"{where}: lower must be below upper, but they are {ends[0]} and {ends[1]}"
                )
            )
    if not isinstance(column, Target) and not is_flag(column.may_be_missing):
        problems.append(WrongField(f"{where}: may_be_missing must be true or false"))
    return problems


def _level_problems(column: Categorical, where: str) -> list[SchemaError]:
    texts = _is_tuple_of(str, column.levels) and all(map(is_text, column.levels))
    if not texts or not column.levels:
        return [
            WrongLevels(f"{where}: levels must be a list of at least one text, none of them blank")
        ]
    problems: list[SchemaError] = [
        WrongLevels(f"{where}: the level {level!r} is listed {count} times; list it once")
        for level, count in _repeated(column.levels).items()
    ]
    if column.other is not None and column.other not in column.levels:
        problems.append(
            WrongLevels(f"{where}: other must be one of the levels, not {column.other!r}")
        )
    return problems


def _repeated(names: Sequence[object]) -> dict[str, int]:
    counts = Counter(name for name in names if isinstance(name, str))
    return {name: count for name, count in counts.items() if count > 1}


def _is_tuple_of(kind: type | UnionType, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)

"""What a session's table looks like: plain data that hospitals and the coordinator agree on.

A schema names the columns that become features (numeric or categorical), the targets, and perhaps
a column that says which rows are one patient's, which is never a feature. It is versioned, turns
into JSON and back, and a schema that exists is valid: building a wrong one, in Python or from
JSON, raises `SchemaRefused` with every problem in it.

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
from typing import ClassVar

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
    """A number in a unit; one feature, and an indicator if cells may be missing.

    Bounds are inclusive. They say which values are possible: a training table that exceeds them is
    refused, a row to predict is flagged. They also keep federated moments exact (`Moments`).
    """

    STORED_AS: ClassVar[str] = "numeric"

    name: str
    unit: str
    """As in "mmHg"; "1" for a number without a dimension."""
    lower: float | None = None
    upper: float | None = None
    may_be_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (self.name, *_indicator(self))


@dataclass(frozen=True)
class Categorical:
    """One of several levels; a feature for each, and an indicator if cells may be missing."""

    STORED_AS: ClassVar[str] = "categorical"

    name: str
    levels: tuple[str, ...]
    other: str | None = None
    """The level that absorbs labels which are none of `levels`; without it they are refused."""
    may_be_missing: bool = False

    @cached_property
    def positions(self) -> dict[str, int]:
        """Each level's position among them."""
        return {level: position for position, level in enumerate(self.levels)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (*(f"{self.name}={level}" for level in self.levels), *_indicator(self))


@dataclass(frozen=True)
class Target:
    """A number to predict, in a unit, with inclusive bounds; never missing in training."""

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
    """The column whose equal entries are one patient's rows; not a feature."""

    VERSION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (_is_tuple_of(Feature, self.features) and _is_tuple_of(Target, self.targets)):
            raise SchemaRefused(
                [WrongField("features is a tuple of Numeric and Categorical, targets of Target")]
            )
        problems = _problems(self.features, self.targets, self.patient)
        if not self.features:
            problems.append(NothingToLearn("there is no feature; name at least one column"))
        if not self.targets:
            problems.append(NothingToLearn("there is no target; name at least one column"))
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
        """The p features that rows have, in order."""
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
        """Read a schema; columns may leave out fields with a default.

        `text` is not trusted: unknown fields, wrong types and impossible values are refused.
        """
        wrong: list[str] = []
        plain = parse_json(text, "the schema", wrong)
        if is_newer(plain, cls.VERSION):
            raise NewerSchema(
                f"this schema is of a later version than {cls.VERSION}, the last that this "
                "program knows; upgrade veilgp"
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
        return cls(features, targets, document.patient)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Document:
    """The fields of a schema's JSON."""

    version: object
    features: object
    targets: object
    patient: object = None


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
            plain[end] = float(plain[end])  # 0 and 0.0 are equal, so they give equal text
    return {"kind": kinds[0], **plain} if kinds else plain


def _indicator(column: Feature) -> tuple[str, ...]:
    return (f"{column.name} is missing",) if column.may_be_missing else ()


def _problems(
    features: Sequence[Feature], targets: Sequence[Target], patient: object
) -> list[SchemaError]:
    """List everything that is wrong with these columns, alone and together."""
    problems: list[SchemaError] = []
    for column in (*features, *targets):
        problems += _column_problems(column)
    if patient is not None and not is_text(patient):
        problems.append(WrongField("patient must be the name of a column, or absent"))
    names = [*(column.name for column in (*features, *targets)), patient]
    problems += [
        DuplicateName(
            f"{name!r} names {count} columns; a column is a feature, a target or the patient's, "
            "and only once"
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
        problems.append(WrongField(f"{where}: its name must be text that is not blank"))
    if isinstance(column, Categorical):
        problems += _level_problems(column, where)
    else:
        if not is_text(column.unit):
            problems.append(WrongField(f"{where}: its unit must be text; '1' if it has none"))
        ends = [end for end in (column.lower, column.upper) if end is not None]
        if not all(is_number(end) for end in ends):
            problems.append(WrongBounds(f"{where}: bounds must be finite numbers, or absent"))
        elif len(ends) == 2 and not ends[0] < ends[1]:
            problems.append(
                WrongBounds(
                    f"{where}: its lower bound {ends[0]} must be below its upper bound {ends[1]}"
                )
            )
    if not isinstance(column, Target) and not is_flag(column.may_be_missing):
        problems.append(WrongField(f"{where}: may_be_missing must be true or false"))
    return problems


def _level_problems(column: Categorical, where: str) -> list[SchemaError]:
    texts = _is_tuple_of(str, column.levels) and all(map(is_text, column.levels))
    if not texts or not column.levels:
        return [WrongLevels(f"{where}: its levels must be texts, at least one, none of them blank")]
    problems: list[SchemaError] = [
        WrongLevels(f"{where}: the level {level!r} is there {count} times; keep one")
        for level, count in _repeated(column.levels).items()
    ]
    if column.other is not None and column.other not in column.levels:
        problems.append(WrongLevels(f"{where}: other, {column.other!r}, must be one of its levels"))
    return problems


def _repeated(names: Sequence[object]) -> dict[str, int]:
    counts = Counter(name for name in names if isinstance(name, str))
    return {name: count for name, count in counts.items() if count > 1}


def _is_tuple_of(kind: type | UnionType, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)

"""The schema of a session's tables: plain data that hospitals and the coordinator agree on.

A schema names the columns that become features (numeric or categorical), the targets, and
optionally a column that identifies patients, which is never a feature. A target is of one of five
kinds: a real number, a yes or no, one of several classes, a count, or the time to an event
(`kernels.tables.targets`). A schema is versioned and converts to JSON and back. A `Schema` object
is always valid: building an invalid one, in Python or from JSON, raises `SchemaRefused` with all
its problems.

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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from types import UnionType
from typing import Any, ClassVar, TypeVar

from kernels.errors import (
    DuplicateName,
    NewerSchema,
    NothingToLearn,
    SchemaError,
    SchemaRefused,
    WrongField,
    WrongLevels,
)
from kernels.strict_json import (
    decode_object,
    encode_json,
    is_flag,
    is_newer,
    is_text,
    parse_json,
)
from kernels.tables.column_checks import (
    bound_problems,
    label_code_problems,
    level_problems,
    name_problems,
    number_code_problems,
    repeated,
    unit_problems,
)
from kernels.tables.labels import canonical_label
from kernels.tables.targets import (
    TARGET_KINDS,
    AnyTarget,
    Binary,
    Classes,
    Count,
    Outcome,
    Target,
    TimeToEvent,
    target_problems,
)

C = TypeVar("C", bound="Feature | AnyTarget")


@dataclass(frozen=True)
class Numeric:
    """A number with a unit; one feature, and an indicator if cells may be missing.

    Bounds are inclusive and define which values are possible: a training table that exceeds them is
    refused, and a row to predict is marked. They also keep federated moments exact (`Moments`).

    name: the table's column. lower, upper: the bounds, in `unit`. may_be_missing: whether cells may
    be empty.
    """

    STORED_AS: ClassVar[str] = "numeric"

    name: str
    unit: str
    """For example "mmHg"; "1" for a dimensionless number."""
    lower: float | None = None
    upper: float | None = None
    may_be_missing: bool = False
    missing_codes: tuple[float | str, ...] = ()
    """Cells that mean "missing": numbers outside the bounds, or texts such as "?"."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (self.name, *_indicator(self))


@dataclass(frozen=True)
class Categorical:
    """One of several levels; one feature per level, and an indicator if cells may be missing.

    name: the table's column. levels: the labels that its cells may have. may_be_missing: whether
    cells may be empty.
    """

    STORED_AS: ClassVar[str] = "categorical"

    name: str
    levels: tuple[str, ...]
    other: str | None = None
    """The level for labels that are not in `levels`; if None, these labels are refused."""
    may_be_missing: bool = False
    missing_codes: tuple[str, ...] = ()
    """Labels that mean "missing"; none of them is a level."""

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position in `levels` of each label as it is read (`canonical_label`)."""
        return {canonical_label(level): position for position, level in enumerate(self.levels)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that this column becomes."""
        return (*(f"{self.name}={level}" for level in self.levels), *_indicator(self))


Feature = Numeric | Categorical


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in the order in which they become features and targets.

    features: the columns to predict from. targets: what is predicted.
    """

    STORED_AS: ClassVar[str] = "schema"

    features: tuple[Feature, ...]
    targets: tuple[AnyTarget, ...]
    patient: str | None = None
    """The column with equal entries in the rows of one patient; not a feature."""

    VERSION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (_is_tuple_of(Feature, self.features) and _is_tuple_of(AnyTarget, self.targets)):
            raise SchemaRefused(
                [
                    WrongField(
                        "features must be a tuple of Numeric and Categorical, and targets a tuple "
                        "of Target, Binary, Classes, Count and TimeToEvent"
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

    @cached_property
    def real(self) -> tuple[Target, ...]:
        """The targets that are real numbers, in order."""
        return tuple(target for target in self.targets if isinstance(target, Target))

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The targets of the other kinds, in order."""
        return tuple(target for target in self.targets if not isinstance(target, Target))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns that are read for training, the patient's last."""
        named = [column.name for column in self.features]
        named += [name for target in self.targets for name in target.columns]
        return (*named, *([] if self.patient is None else [self.patient]))

    @cached_property
    def missing_codes(self) -> dict[str, tuple[float | str, ...]]:
        """The missing codes of each column that has any; of labels, as they are read."""
        return {
            column: codes
            for each in (*self.features, *self.targets)
            for column, codes in _codes_of(each).items()
            if codes
        }

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

        A target without a kind is a real number.

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
        features = _from_list(FEATURE_KINDS, document.features, "features", wrong)
        targets = _from_list(TARGET_KINDS, document.targets, "targets", wrong, default="real")
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


FEATURE_KINDS: Mapping[str, type[Feature]] = {"numeric": Numeric, "categorical": Categorical}


def _from_list(
    kinds: Mapping[str, type[C]],
    plain: object,
    name: str,
    wrong: list[str],
    *,
    default: str | None = None,
) -> tuple[C, ...]:
    """Build the valid columns of a list; `default` is the kind of one that names none."""
    if not isinstance(plain, tuple):
        wrong.append(f"{name} must be a list")
        return ()
    found = []
    for index, column in enumerate(plain):
        where = f"{name}[{index}]"
        kind = column.get("kind", default) if isinstance(column, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            wrong.append(f"{where} must be an object whose 'kind' is one of {', '.join(kinds)}")
            continue
        others = {field: value for field, value in column.items() if field != "kind"}
        own = decode_object(kinds[kind], others, where, wrong)
        if own is not None:
            found.append(own)
    return tuple(found)


def _column_to_dict(column: Feature | AnyTarget) -> dict[str, object]:
    kinds = {**FEATURE_KINDS, **TARGET_KINDS}
    kind = next(name for name, own in kinds.items() if type(column) is own)
    plain = asdict(column)
    for end in ("lower", "upper", "horizon"):
        if plain.get(end) is not None:
            plain[end] = float(plain[end])  # 0 and 0.0 are equal, so their text must be equal
    if "edges" in plain:
        plain["edges"] = [float(edge) for edge in plain["edges"]]
    for codes in _CODES & plain.keys():
        plain[codes] = [own if isinstance(own, str) else float(own) for own in plain[codes]]
    return {"kind": kind, **plain}


_CODES = frozenset({"missing_codes", "event_missing_codes", "exposure_missing_codes"})
"""The fields with missing codes."""


def _codes_of(column: Feature | AnyTarget) -> Mapping[str, tuple[float | str, ...]]:
    """Return the missing codes of the table's columns that a feature or a target reads."""
    match column:
        case Categorical() | Binary() | Classes():
            return {column.name: tuple(map(canonical_label, column.missing_codes))}
        case TimeToEvent():
            of_event = tuple(map(canonical_label, column.event_missing_codes))
            return {column.name: column.missing_codes, column.event: of_event}
        case Count(exposure=str(exposure)):
            return {column.name: column.missing_codes, exposure: column.exposure_missing_codes}
    return {column.name: column.missing_codes}


def _indicator(column: Feature) -> tuple[str, ...]:
    return (f"{column.name} is missing",) if column.may_be_missing else ()


def _problems(
    features: Sequence[Feature], targets: Sequence[AnyTarget], patient: object
) -> list[SchemaError]:
    """Return everything that is wrong with these columns, individually and together."""
    problems: list[SchemaError] = []
    for column in features:
        problems += _column_problems(column)
    for target in targets:
        problems += target_problems(target)
    if patient is not None and not is_text(patient):
        problems.append(WrongField("patient must be the name of a column, or omitted"))
    names: list[object] = [column.name for column in features]
    names += [name for target in targets for name in target.columns] + [patient]
    problems += [
        DuplicateName(
            f"{count} columns are named {name!r}; a column must appear only once, as a feature, as "
            "a target or as the patient column"
        )
        for name, count in repeated(names).items()
    ]
    if not problems:
        derived = repeated([name for column in features for name in column.feature_names])
        problems += [
            DuplicateName(f"{count} features would be called {name!r}; rename a column or a level")
            for name, count in derived.items()
        ]
    return problems


def _column_problems(column: Feature) -> list[SchemaError]:
    where = f"column {column.name!r}"
    problems = name_problems(column.name, where)
    if isinstance(column, Categorical):
        problems += level_problems(column.levels, where, least=1)
        problems += label_code_problems(column.missing_codes, column.levels, where)
        listed = column.levels if isinstance(column.levels, tuple) else ()
        if column.other is not None and column.other not in listed:
            problems.append(
                WrongLevels(f"{where}: other must be one of the levels, not {column.other!r}")
            )
    else:
        problems += unit_problems(column.unit, where)
        ends = bound_problems(column.lower, column.upper, where)
        bounds = (None, None) if ends else (column.lower, column.upper)
        problems += [*ends, *number_code_problems(column.missing_codes, where, bounds=bounds)]
    if not is_flag(column.may_be_missing):
        problems.append(WrongField(f"{where}: may_be_missing must be true or false"))
    elif column.missing_codes and not column.may_be_missing:
        problems.append(
            WrongField(f"{where}: missing_codes need may_be_missing: set it to true, or omit them")
        )
    return problems


def _is_tuple_of(kind: type | UnionType, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)

"""Every error that a person can cause in `kernels`, each with a stable code.

    KernelsError
    ├── SpecError                 spec.invalid
    │   ├── UnknownArchitecture   spec.unknown_architecture
    │   └── NewerSpec             spec.newer_version
    ├── WeightsError              weights.invalid
    ├── SchemaError               schema.invalid
    │   ├── SchemaRefused         schema.refused, with all its `problems`:
    │   ├── WrongField            schema.wrong_field
    │   ├── DuplicateName         schema.duplicate_name
    │   ├── WrongLevels           schema.wrong_levels
    │   ├── WrongBounds           schema.wrong_bounds
    │   ├── NothingToLearn        schema.nothing_to_learn
    │   └── NewerSchema           schema.newer_version
    ├── StandardiserError         standardiser.invalid
    │   └── NewerStandardiser     standardiser.newer_version
    ├── TableError                table.invalid
    │   ├── EmptyTable            table.empty
    │   ├── NotFinite             table.not_finite
    │   ├── WrongShape            table.wrong_shape
    │   ├── ChangedTable          table.changed
    │   ├── TableRefused          table.refused, with all its `problems`:
    │   └── ColumnError           table.column
    │       ├── MissingColumn     table.missing_column
    │       ├── WrongLength       table.wrong_length
    │       ├── NotNumeric        table.not_numeric
    │       ├── NotALabel         table.not_a_label
    │       ├── MissingValue      table.missing_value
    │       ├── InfiniteValue     table.infinite_value
    │       ├── UnknownLevel      table.unknown_level
    │       └── OutOfBounds       table.out_of_bounds
    ├── ProgramError              program.invalid
    │   ├── UnknownAlgorithm      program.unknown_algorithm
    │   ├── NewerProgram          program.newer_version
    │   ├── TooManyRows           program.too_many_rows
    │   ├── NotPrivate            program.not_private
    │   ├── UnboundedFeatures     program.unbounded_features
    │   ├── UnboundedColumns      program.unbounded_columns
    │   └── ConsentNeeded         program.consent_needed
    ├── StateError                state.invalid
    │   └── OtherFormat           state.other_format
    ├── ArtifactError             artifact.invalid
    │   ├── DamagedArtifact       artifact.damaged
    │   ├── NewerArtifact         artifact.newer_version
    │   └── OlderArtifact         artifact.older_version
    ├── NotFitted                 model.not_fitted
    ├── StatisticsError           statistics.invalid
    │   ├── NotSymmetric          statistics.not_symmetric
    │   └── NotPositive           statistics.not_positive
    ├── HyperparameterError       hyperparameter.invalid
    └── PredictionError           prediction.invalid
        ├── ImproperProduct       prediction.improper_product
        ├── UnknownMethod         prediction.unknown_method
        └── OneVariance           prediction.one_variance

A message says what is wrong with which value and what to do; it never carries a patient's value.
`public_detail` is what a hospital tells the coordinator of an error: a constant, the same for a
whole branch unless a class has one of its own.
"""

from collections.abc import Sequence
from typing import ClassVar


class KernelsError(ValueError):
    """Root of the tree; `code` is stable across versions and travels over HTTP."""

    code: ClassVar[str] = "kernels"
    public_detail: ClassVar[str] = "the site refuses; the code says why"


class SpecError(KernelsError):
    """A kernel spec has a missing, unknown or impossible field."""

    code = "spec.invalid"
    public_detail = "the session's kernel spec cannot be used at this site"


class UnknownArchitecture(SpecError):
    """A kernel spec names an architecture that this version does not have."""

    code = "spec.unknown_architecture"
    public_detail = "the session's kernel has an architecture that this site's veilgp does not have"


class NewerSpec(SpecError):
    """A spec was written by a newer version than this one."""

    code = "spec.newer_version"
    public_detail = "the session's kernel spec is of a newer version than this site's veilgp"


class WeightsError(KernelsError):
    """A flat weight vector has the wrong length, or is not finite."""

    code = "weights.invalid"
    public_detail = "the weights that were sent do not fit the session's kernel"


class SchemaError(KernelsError):
    """A schema, or one thing in it, is wrong."""

    code = "schema.invalid"
    public_detail = "the session's schema cannot be used at this site"


class SchemaRefused(SchemaError):
    """A schema is refused; `problems` are all that is wrong with it, not the first."""

    code = "schema.refused"

    def __init__(self, problems: Sequence[SchemaError]) -> None:
        super().__init__(_listed("the schema is refused", problems))
        self.problems = tuple(problems)


class WrongField(SchemaError):
    """A field of a schema is absent, unknown or of the wrong type."""

    code = "schema.wrong_field"


class DuplicateName(SchemaError):
    """Two columns have one name, or a column would be feature and target at once."""

    code = "schema.duplicate_name"


class WrongLevels(SchemaError):
    """The levels of a categorical column are empty, repeated, or without the level `other`."""

    code = "schema.wrong_levels"


class WrongBounds(SchemaError):
    """The bounds of a numeric column are not finite, or reversed."""

    code = "schema.wrong_bounds"


class NothingToLearn(SchemaError):
    """A schema has no feature, or no target."""

    code = "schema.nothing_to_learn"


class NewerSchema(SchemaError):
    """A schema was written by a newer version than this one."""

    code = "schema.newer_version"
    public_detail = "the session's schema is of a newer version than this site's veilgp"


class StandardiserError(KernelsError):
    """A standardiser has impossible numbers, or belongs to another schema."""

    code = "standardiser.invalid"
    public_detail = "the standardiser that was sent cannot be used at this site"


class NewerStandardiser(StandardiserError):
    """A standardiser was written by a newer version than this one."""

    code = "standardiser.newer_version"
    public_detail = "the standardiser that was sent is of a newer version than this site's veilgp"


class TableError(KernelsError):
    """A table of rows cannot be used."""

    code = "table.invalid"
    public_detail = "the site's table does not fit the session"


class EmptyTable(TableError):
    """A table has no rows where at least one is needed."""

    code = "table.empty"


class NotFinite(TableError):
    """A table has NaN or infinite cells."""

    code = "table.not_finite"


class WrongShape(TableError):
    """Rows and targets disagree in number, or with the kernel's inputs."""

    code = "table.wrong_shape"


class ChangedTable(TableError):
    """A table that is read again has other rows than when it was checked."""

    code = "table.changed"


class TableRefused(TableError):
    """A table does not fit its schema; `problems` are all that is wrong with it, not the first."""

    code = "table.refused"

    def __init__(self, problems: Sequence[TableError]) -> None:
        super().__init__(_listed("the table does not fit its schema", problems))
        self.problems = tuple(problems)


class ColumnError(TableError):
    """One problem of one column, of `rows` of its rows (0 where rows are not the matter)."""

    code = "table.column"

    def __init__(self, column: str, sentence: str, *, rows: int = 0) -> None:
        super().__init__(f"column {column!r}: {sentence}")
        self.column = column
        self.rows = rows


class MissingColumn(ColumnError):
    """A table lacks a column of its schema."""

    code = "table.missing_column"


class WrongLength(ColumnError):
    """A column is not one-dimensional, or not as long as the others."""

    code = "table.wrong_length"


class NotNumeric(ColumnError):
    """A numeric column has cells that are no numbers."""

    code = "table.not_numeric"


class NotALabel(ColumnError):
    """A categorical or patient column has cells that are neither text nor whole numbers."""

    code = "table.not_a_label"


class MissingValue(ColumnError):
    """Cells are missing where the schema does not allow it."""

    code = "table.missing_value"


class InfiniteValue(ColumnError):
    """A numeric column has infinite cells."""

    code = "table.infinite_value"


class UnknownLevel(ColumnError):
    """A categorical column has cells that are none of its levels."""

    code = "table.unknown_level"


class OutOfBounds(ColumnError):
    """A numeric column of a training table has cells outside the schema's bounds."""

    code = "table.out_of_bounds"


class ProgramError(KernelsError):
    """A program has a missing, unknown or impossible field, or stages in an impossible order."""

    code = "program.invalid"
    public_detail = "the program cannot be run at this site"


class UnknownAlgorithm(ProgramError):
    """A program names an algorithm, or a version of one, that is not installed here."""

    code = "program.unknown_algorithm"
    public_detail = "the program names an algorithm or a version that this site does not have"


class NewerProgram(ProgramError):
    """A program was written by a newer version than this one."""

    code = "program.newer_version"
    public_detail = "the program is of a newer version than this site's veilgp"


class TooManyRows(ProgramError):
    """A site has more rows than the program's bounds were made for."""

    code = "program.too_many_rows"


class NotPrivate(ProgramError):
    """An algorithm, or a choice of its parameters, has no differentially private form."""

    code = "program.not_private"
    public_detail = "the program has a stage without a differentially private form"


class UnboundedFeatures(ProgramError):
    """With differential privacy a kernel's features need a bound that holds for every row."""

    code = "program.unbounded_features"


class UnboundedColumns(ProgramError):
    """With differential privacy numeric columns and targets need both bounds in the schema."""

    code = "program.unbounded_columns"


class ConsentNeeded(ProgramError):
    """An algorithm may show one site's own numbers, and its operator has not agreed to that."""

    code = "program.consent_needed"
    public_detail = "the program has an algorithm that needs the site's consent by name"


class StateError(KernelsError):
    """Bytes that are not the state of any algorithm here."""

    code = "state.invalid"
    public_detail = "the state that was sent is not one that the program has at this stage"


class OtherFormat(StateError):
    """Stored bytes are of another format, or have other fields, than this version reads."""

    code = "state.other_format"
    public_detail = "the state that was sent is of another format than this site's veilgp reads"


class ArtifactError(KernelsError):
    """A stored model, or its card, is not one."""

    code = "artifact.invalid"
    public_detail = "the model that was sent cannot be used at this site"


class DamagedArtifact(ArtifactError):
    """A stored model's bytes are not those that its card, or its id, was made for."""

    code = "artifact.damaged"


class NewerArtifact(ArtifactError):
    """A stored model was written by a newer version than this one."""

    code = "artifact.newer_version"
    public_detail = "the model that was sent is of a newer version than this site's veilgp"


class OlderArtifact(ArtifactError):
    """A stored model was written by a version that is too old for this one."""

    code = "artifact.older_version"
    public_detail = "the model that was sent is of an older version than this site's veilgp reads"


class NotFitted(KernelsError):
    """A model lacks what an earlier stage of its program would have made."""

    code = "model.not_fitted"
    public_detail = "the model that was sent lacks a part that this stage needs"


class StatisticsError(KernelsError):
    """Sufficient statistics cannot have come from any table."""

    code = "statistics.invalid"
    public_detail = "the statistics that were sent cannot be used"


class NotSymmetric(StatisticsError):
    """A scatter matrix, or a gradient with respect to one, is not symmetric."""

    code = "statistics.not_symmetric"


class NotPositive(StatisticsError):
    """A scatter matrix is further from positive semi-definite than rounding explains."""

    code = "statistics.not_positive"


class HyperparameterError(KernelsError):
    """A noise or prior variance is not a positive finite number."""

    code = "hyperparameter.invalid"
    public_detail = "the hyperparameters that were sent cannot be used"


class PredictionError(KernelsError):
    """A predictive distribution is impossible: no positive variance, or crossed interval ends."""

    code = "prediction.invalid"
    public_detail = "the model that was sent does not give usable predictions"


class ImproperProduct(PredictionError):
    """A product of experts, less the prior that all of them counted, has no positive precision."""

    code = "prediction.improper_product"


class UnknownMethod(PredictionError):
    """A model is asked to predict by a method that it does not have."""

    code = "prediction.unknown_method"


class OneVariance(PredictionError):
    """A method that has one variance is asked for its parts, or for recalibrated intervals."""

    code = "prediction.one_variance"


def _listed(what: str, problems: Sequence[KernelsError]) -> str:
    return "\n  - ".join([f"{what}:", *map(str, problems)])

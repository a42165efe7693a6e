"""The errors that users of `kernels` can cause, each with a stable code.

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
    │   ├── WrongCodes            schema.wrong_codes
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
    │       │   └── MissingTarget table.missing_target
    │       ├── InfiniteValue     table.infinite_value
    │       ├── UnknownLevel      table.unknown_level
    │       └── OutOfBounds       table.out_of_bounds
    ├── DealingError              dealing.invalid
    │   └── DealingMissing        dealing.missing
    ├── ProgramError              program.invalid
    │   ├── UnknownAlgorithm      program.unknown_algorithm
    │   ├── NewerProgram          program.newer_version
    │   ├── TooManyRows           program.too_many_rows
    │   ├── FewerRowsThanStated   program.fewer_rows
    │   ├── RareLevel             program.rare_level
    │   ├── NotPrivate            program.not_private
    │   ├── UnboundedFeatures     program.unbounded_features
    │   ├── UnboundedColumns      program.unbounded_columns
    │   └── NoProspect            program.no_prospect
    ├── StateError                state.invalid
    │   ├── OtherFormat           state.other_format
    │   └── StateDiffers          state.differs
    ├── ArtifactError             artifact.invalid
    │   ├── DamagedArtifact       artifact.damaged
    │   ├── NewerArtifact         artifact.newer_version
    │   └── OlderArtifact         artifact.older_version
    ├── NotFitted                 model.not_fitted
    ├── StatisticsError           statistics.invalid
    │   ├── NotSymmetric          statistics.not_symmetric
    │   └── NotPositive           statistics.not_positive
    ├── HyperparameterError       hyperparameter.invalid
    ├── ComputationFailed         computation.failed
    ├── Diverged                  run.diverged
    └── PredictionError           prediction.invalid
        ├── ImproperProduct       prediction.improper_product
        ├── UnknownMethod         prediction.unknown_method
        └── OneVariance           prediction.one_variance

A message says what is wrong with which value and what to do; it never contains a patient's value.
`public_detail` is what a hospital tells the coordinator about an error: a constant, shared by a
whole branch of the tree unless a class defines its own.
"""

from collections.abc import Sequence
from typing import ClassVar


class KernelsError(ValueError):
    """Root of the tree; `code` is stable across versions and is sent over HTTP."""

    code: ClassVar[str] = "kernels"
    public_detail: ClassVar[str] = "the site refuses; the code says why"


class SpecError(KernelsError):
    """A kernel spec has a missing, unknown or invalid field."""

    code = "spec.invalid"
    public_detail = "the session's kernel spec cannot be used at this site"


class UnknownArchitecture(SpecError):
    """A kernel spec names an architecture that this version does not have."""

    code = "spec.unknown_architecture"
    public_detail = "the architecture of the session's kernel is unknown to this site's veilgp"


class NewerSpec(SpecError):
    """A kernel spec was written by a newer version than this one."""

    code = "spec.newer_version"
    public_detail = (
        "the session's kernel spec was written by a newer version than this site's veilgp"
    )


class WeightsError(KernelsError):
    """A flat weight vector has the wrong length, or contains NaN or infinite values."""

    code = "weights.invalid"
    public_detail = "the weights received do not match the session's kernel"


class SchemaError(KernelsError):
    """A schema, or a part of it, is invalid."""

    code = "schema.invalid"
    public_detail = "the session's schema cannot be used at this site"


class SchemaRefused(SchemaError):
    """A schema is refused; `problems` lists everything that is wrong with it."""

    code = "schema.refused"

    def __init__(self, problems: Sequence[SchemaError]) -> None:
        super().__init__(_listed("the schema is refused", problems))
        self.problems = tuple(problems)


class WrongField(SchemaError):
    """A field of a schema is missing, unknown or of the wrong type."""

    code = "schema.wrong_field"


class DuplicateName(SchemaError):
    """Two columns have the same name, or a column is both a feature and a target."""

    code = "schema.duplicate_name"


class WrongLevels(SchemaError):
    """The levels of a categorical column are empty or repeated, or do not include `other`."""

    code = "schema.wrong_levels"


class WrongBounds(SchemaError):
    """The bounds of a numeric column are not finite, or are in the wrong order."""

    code = "schema.wrong_bounds"


class WrongCodes(SchemaError):
    """The missing codes of a column are no list, repeated, or possible values too."""

    code = "schema.wrong_codes"


class NothingToLearn(SchemaError):
    """A schema has no feature, or no target."""

    code = "schema.nothing_to_learn"


class NewerSchema(SchemaError):
    """A schema was written by a newer version than this one."""

    code = "schema.newer_version"
    public_detail = "the session's schema was written by a newer version than this site's veilgp"


class StandardiserError(KernelsError):
    """A standardiser has invalid numbers, or belongs to another schema."""

    code = "standardiser.invalid"
    public_detail = "the standardiser received cannot be used at this site"


class NewerStandardiser(StandardiserError):
    """A standardiser was written by a newer version than this one."""

    code = "standardiser.newer_version"
    public_detail = (
        "the standardiser received was written by a newer version than this site's veilgp"
    )


class TableError(KernelsError):
    """A table cannot be used."""

    code = "table.invalid"
    public_detail = "the site's table does not match the session"


class EmptyTable(TableError):
    """A table has no rows, and at least one is needed."""

    code = "table.empty"


class NotFinite(TableError):
    """A table contains NaN or infinite cells."""

    code = "table.not_finite"


class WrongShape(TableError):
    """Rows and targets differ in number, or do not match the kernel's inputs."""

    code = "table.wrong_shape"


class ChangedTable(TableError):
    """A table has changed between the check of its rows and a later reading."""

    code = "table.changed"


class TableRefused(TableError):
    """A table does not match its schema; `problems` lists everything that is wrong with it."""

    code = "table.refused"

    def __init__(self, problems: Sequence[TableError]) -> None:
        super().__init__(_listed("the table does not match its schema", problems))
        self.problems = tuple(problems)


class ColumnError(TableError):
    """One problem of one column; `rows` is how many rows it affects (0 if it is not about rows)."""

    code = "table.column"

    def __init__(self, column: str, sentence: str, *, rows: int = 0) -> None:
        super().__init__(f"column {column!r}: {sentence}")
        self.column = column
        self.rows = rows


class MissingColumn(ColumnError):
    """A column of the schema is not in the table."""

    code = "table.missing_column"


class WrongLength(ColumnError):
    """A column is not one-dimensional, or its length differs from that of the others."""

    code = "table.wrong_length"


class NotNumeric(ColumnError):
    """A numeric column has cells that are not numbers."""

    code = "table.not_numeric"


class WrongOutcome(ColumnError):
    """A column of an outcome has cells that its kind cannot have."""

    code = "table.wrong_outcome"


class NotALabel(ColumnError):
    """A categorical or patient column has cells that are neither text nor integers."""

    code = "table.not_a_label"


class MissingValue(ColumnError):
    """Cells are missing where the schema does not allow it."""

    code = "table.missing_value"


class MissingTarget(MissingValue):
    """Cells of a target are missing where every row needs one."""

    code = "table.missing_target"


class InfiniteValue(ColumnError):
    """A numeric column has infinite cells."""

    code = "table.infinite_value"


class UnknownLevel(ColumnError):
    """A categorical column has cells that match none of its levels."""

    code = "table.unknown_level"


class OutOfBounds(ColumnError):
    """A numeric column of a training table has cells outside the schema's bounds."""

    code = "table.out_of_bounds"


class DealingError(KernelsError):
    """The secret by which a site deals its rows is not valid."""

    code = "dealing.invalid"
    public_detail = "the site cannot deal its rows to parts"


class DealingMissing(DealingError):
    """Rows are to be dealt, and there is no secret to deal them by."""

    code = "dealing.missing"


class ProgramError(KernelsError):
    """A program has a missing, unknown or invalid field, or its stages are in the wrong order."""

    code = "program.invalid"
    public_detail = "the program cannot be run at this site"


class UnknownAlgorithm(ProgramError):
    """A program names an algorithm, or a version of one, that is not installed here."""

    code = "program.unknown_algorithm"
    public_detail = "the program needs an algorithm or a version that this site does not have"


class NewerProgram(ProgramError):
    """A program was written by a newer version than this one."""

    code = "program.newer_version"
    public_detail = "the program was written by a newer version than this site's veilgp"


class TooManyRows(ProgramError):
    """A site has more rows than the program allows."""

    code = "program.too_many_rows"


class FewerRowsThanStated(ProgramError):
    """All sites together have fewer training rows than the program states."""

    code = "program.fewer_rows"


class RareLevel(ProgramError):
    """A level of an outcome is at fewer sites than the program requires."""

    code = "program.rare_level"


class NotPrivate(ProgramError):
    """An algorithm, or one of its parameter values, has no differentially private form."""

    code = "program.not_private"
    public_detail = "the program has a stage without a differentially private form"


class UnboundedFeatures(ProgramError):
    """Differential privacy needs kernel features with a bound that holds for every row."""

    code = "program.unbounded_features"


class UnboundedColumns(ProgramError):
    """Differential privacy needs a lower and an upper bound for every numeric column and target."""

    code = "program.unbounded_columns"


class NoProspect(ProgramError):
    """With its noise and rows, a program is expected to be no better than predicting the mean."""

    code = "program.no_prospect"


class StateError(KernelsError):
    """Bytes are not the stored state of an algorithm that is installed here."""

    code = "state.invalid"
    public_detail = "the state received is not a state of this stage of the program"


class OtherFormat(StateError):
    """Stored bytes have a format, or fields, that this version does not read."""

    code = "state.other_format"
    public_detail = "the state received has a format that this site's veilgp does not read"


class StateDiffers(StateError):
    """A state is not the one that follows from the totals, or differs from it too often."""

    code = "state.differs"
    public_detail = "the state received is not the one that follows from the totals"


class ArtifactError(KernelsError):
    """A stored model, or its card, is invalid."""

    code = "artifact.invalid"
    public_detail = "the model received cannot be used at this site"


class DamagedArtifact(ArtifactError):
    """The bytes of a stored model do not match its card or its id."""

    code = "artifact.damaged"


class NewerArtifact(ArtifactError):
    """A stored model was written by a newer version than this one."""

    code = "artifact.newer_version"
    public_detail = "the model received was written by a newer version than this site's veilgp"


class OlderArtifact(ArtifactError):
    """A stored model was written by a version that is too old for this one to read."""

    code = "artifact.older_version"
    public_detail = "the model received was written by a version too old for this site's veilgp"


class NotFitted(KernelsError):
    """A model lacks the result of an earlier stage of its program."""

    code = "model.not_fitted"
    public_detail = "the model received lacks a part that this stage needs"


class StatisticsError(KernelsError):
    """Sufficient statistics that no table can produce."""

    code = "statistics.invalid"
    public_detail = "the statistics received cannot be used"


class NotSymmetric(StatisticsError):
    """A scatter matrix, or a gradient with respect to one, is not symmetric."""

    code = "statistics.not_symmetric"


class NotPositive(StatisticsError):
    """A scatter matrix is further from positive semi-definite than rounding can explain."""

    code = "statistics.not_positive"


class HyperparameterError(KernelsError):
    """A noise or prior variance is not a positive finite number."""

    code = "hyperparameter.invalid"
    public_detail = "the hyperparameters received cannot be used"


class ComputationFailed(KernelsError):
    """A computation failed; its cause is for the log of the site where it failed."""

    code = "computation.failed"
    public_detail = "the state received cannot be computed"


class Diverged(KernelsError):
    """The noisy sums of a private run lead its parameters away, instead of to a model."""

    code = "run.diverged"
    public_detail = "the run has diverged"


class PredictionError(KernelsError):
    """A predictive distribution is invalid: its variance is not positive, or its bounds cross."""

    code = "prediction.invalid"
    public_detail = "the model received does not give usable predictions"


class ImproperProduct(PredictionError):
    """A product of experts has no positive precision once the repeated prior is removed."""

    code = "prediction.improper_product"


class UnknownMethod(PredictionError):
    """The model does not have the requested prediction method."""

    code = "prediction.unknown_method"


class OneVariance(PredictionError):
    """A method with a single variance has neither variance parts nor recalibrated intervals."""

    code = "prediction.one_variance"


def _listed(what: str, problems: Sequence[KernelsError]) -> str:
    return "\n  - ".join([f"{what}:", *map(str, problems)])

"""Every error that a person can cause in `kernels`, each with a stable code.

    KernelsError
    ├── SpecError                 spec.invalid
    │   ├── UnknownArchitecture   spec.unknown_architecture
    │   └── NewerSpec             spec.newer_version
    ├── WeightsError              weights.invalid
    ├── TableError                table.invalid
    │   ├── EmptyTable            table.empty
    │   ├── NotFinite             table.not_finite
    │   └── WrongShape            table.wrong_shape
    ├── StatisticsError           statistics.invalid
    │   ├── NotSymmetric          statistics.not_symmetric
    │   └── NotPositive           statistics.not_positive
    ├── HyperparameterError       hyperparameter.invalid
    └── PredictionError           prediction.invalid

A message says what is wrong with which value and what to do; it never carries a patient's value.
"""

from typing import ClassVar


class KernelsError(ValueError):
    """Root of the tree; `code` is stable across versions and travels over HTTP."""

    code: ClassVar[str] = "kernels"


class SpecError(KernelsError):
    """A kernel spec has a missing, unknown or impossible field."""

    code = "spec.invalid"


class UnknownArchitecture(SpecError):
    """A kernel spec names an architecture that this version does not have."""

    code = "spec.unknown_architecture"


class NewerSpec(SpecError):
    """A spec was written by a newer version than this one."""

    code = "spec.newer_version"


class WeightsError(KernelsError):
    """A flat weight vector has the wrong length, or is not finite."""

    code = "weights.invalid"


class TableError(KernelsError):
    """A table of rows cannot be used."""

    code = "table.invalid"


class EmptyTable(TableError):
    """A table has no rows where at least one is needed."""

    code = "table.empty"


class NotFinite(TableError):
    """A table has NaN or infinite cells."""

    code = "table.not_finite"


class WrongShape(TableError):
    """Rows and targets disagree in number, or with the kernel's inputs."""

    code = "table.wrong_shape"


class StatisticsError(KernelsError):
    """Sufficient statistics cannot have come from any table."""

    code = "statistics.invalid"


class NotSymmetric(StatisticsError):
    """A scatter matrix is not symmetric."""

    code = "statistics.not_symmetric"


class NotPositive(StatisticsError):
    """A scatter matrix is further from positive semi-definite than rounding explains."""

    code = "statistics.not_positive"


class HyperparameterError(KernelsError):
    """A noise or prior variance is not a positive finite number."""

    code = "hyperparameter.invalid"


class PredictionError(KernelsError):
    """A predictive distribution is impossible: no positive variance, or crossed interval ends."""

    code = "prediction.invalid"

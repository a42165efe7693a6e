"""The mathematics: random kernels, the Bayesian linear layer, evidence, metrics, schemas.

Pure functions of tensors, and the plain data that hospitals and the coordinator exchange.
Nothing here uses a network, a file or a database.

Names are imported on first use: who reads a schema or an error must not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.features.spec import Architecture, Ending, KernelSpec, Normaliser, Replication
    from kernels.features.urk import URK, starting_weights, weight_count, weight_shapes
    from kernels.layer.evidence import PooledEvidence, client_gradient
    from kernels.layer.local_evidence import negative_log_evidence
    from kernels.layer.posterior import (
        Hyperparameters,
        Posterior,
        Prediction,
        Spectrum,
        rounding_of,
    )
    from kernels.layer.refit import RefitOptions, refit
    from kernels.layer.statistics import Statistics
    from kernels.scores.metrics import Scores
    from kernels.tables.moments import Moments
    from kernels.tables.records import Records
    from kernels.tables.schema import Categorical, Numeric, Schema
    from kernels.tables.standardiser import Rows, Standardiser
    from kernels.tables.targets import Target

__all__ = [
    "URK",
    "Architecture",
    "Categorical",
    "Ending",
    "Hyperparameters",
    "KernelSpec",
    "Moments",
    "Normaliser",
    "Numeric",
    "PooledEvidence",
    "Posterior",
    "Prediction",
    "Records",
    "RefitOptions",
    "Replication",
    "Rows",
    "Schema",
    "Scores",
    "Spectrum",
    "Standardiser",
    "Statistics",
    "Target",
    "client_gradient",
    "negative_log_evidence",
    "refit",
    "rounding_of",
    "starting_weights",
    "weight_count",
    "weight_shapes",
]

_HOMES = {
    "URK": "features.urk",
    "Architecture": "features.spec",
    "Categorical": "tables.schema",
    "Ending": "features.spec",
    "Hyperparameters": "layer.posterior",
    "KernelSpec": "features.spec",
    "Moments": "tables.moments",
    "Normaliser": "features.spec",
    "Numeric": "tables.schema",
    "PooledEvidence": "layer.evidence",
    "Posterior": "layer.posterior",
    "Prediction": "layer.posterior",
    "Records": "tables.records",
    "RefitOptions": "layer.refit",
    "Replication": "features.spec",
    "Rows": "tables.standardiser",
    "Schema": "tables.schema",
    "Scores": "scores.metrics",
    "Spectrum": "layer.posterior",
    "Standardiser": "tables.standardiser",
    "Statistics": "layer.statistics",
    "Target": "tables.targets",
    "client_gradient": "layer.evidence",
    "negative_log_evidence": "layer.local_evidence",
    "refit": "layer.refit",
    "rounding_of": "layer.posterior",
    "starting_weights": "features.urk",
    "weight_count": "features.urk",
    "weight_shapes": "features.urk",
}


if not TYPE_CHECKING:  # to a type checker, a name that is not there is an error

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

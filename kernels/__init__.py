"""The mathematics: random kernels, the Bayesian linear layer, evidence, metrics, schemas.

Pure functions of tensors, and the plain data that hospitals and the coordinator exchange.
Nothing here uses a network, a file or a database.
"""

from kernels.features.spec import Architecture, Ending, KernelSpec, Normaliser, Replication
from kernels.features.urk import URK, starting_weights, weight_count, weight_shapes
from kernels.layer.evidence import PooledEvidence, client_gradient
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.posterior import Hyperparameters, Posterior, Prediction, Spectrum, rounding_of
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

"""The mathematics: random kernels, the Bayesian linear layer, evidence, metrics, schemas.

Pure functions of tensors and the plain data that hospitals and the coordinator both speak of.
Nothing here knows of a network, a file or a database.
"""

from kernels.evidence import PooledEvidence, client_gradient
from kernels.linear import Hyperparameters, Posterior, Prediction, Spectrum, rounding_of
from kernels.local_evidence import negative_log_evidence
from kernels.metrics import Scores
from kernels.moments import Moments
from kernels.records import Records
from kernels.refit import RefitOptions, refit
from kernels.schema import Categorical, Numeric, Schema, Target
from kernels.spec import Architecture, Ending, KernelSpec, Normaliser, Replication
from kernels.standardiser import Rows, Standardiser
from kernels.statistics import Statistics
from kernels.urk import URK, starting_weights, weight_count, weight_shapes

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

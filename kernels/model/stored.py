"""The dataclasses that a stored model consists of."""

from kernels.ensembles.committee import Committee
from kernels.ensembles.distilled import Distilled, Lesson, Opinion, Student
from kernels.ensembles.networks import NetworkSpec
from kernels.ensembles.served_networks import Networks
from kernels.ensembles.student_network import StudentSpec
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Noise, Statistics
from kernels.model.model import Centre, Model
from kernels.model.noise_plan import NoisePlan
from kernels.model.second import Second
from kernels.model.withheld import Withheld
from kernels.outcomes.census import Census
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.scored.evaluated import OutcomeScores
from kernels.outcomes.scored.kinds import STORED as SCORED
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Weighted
from kernels.scores.evaluation import Evaluation, MethodScores
from kernels.scores.gaussians import Gaussian
from kernels.scores.metrics import Scores
from kernels.scores.recalibration import Recalibration
from kernels.scores.student_t import StudentT
from kernels.tables.curves import Curve
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent

MODEL_KINDS: tuple[type, ...] = (
    Model,
    Centre,
    Withheld,
    Second,
    NoisePlan,
    Schema,
    Numeric,
    Categorical,
    Target,
    Binary,
    Classes,
    Count,
    TimeToEvent,
    KernelSpec,
    Standardiser,
    Scale,
    Shares,
    Curve,
    Hyperparameters,
    Statistics,
    Noise,
    Census,
    FittedOutcome,
    Layer,
    Weighted,
    OutcomeScores,
    *SCORED,
    Recalibration,
    StudentT,
    Evaluation,
    MethodScores,
    Scores,
    Committee,
    Gaussian,
    Distilled,
    Lesson,
    Opinion,
    Student,
    StudentSpec,
    Networks,
    NetworkSpec,
)
"""Each is stored under its own short name (`kernels.storage`)."""

"""Fast programs, shared by the tests of runs."""

from client_sdk.simulation import simulate
from kernels import storage
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING
from tests.kernels.rounds import tables

TABLES = tables.tables(3, rows=20)


def _read(*stages: object, kernel: KernelSpec) -> Program:
    program = Program(tables.SCHEMA, kernel, stages, max_rows=1000, held_out=0.4)
    # As every site reads it: after JSON, a bound of 0 is 0.0.
    return Program.from_json(program.to_json())


WHOLE = _read(
    moments.Spec(),
    exact.Spec(steps=2, penalties=(3.0,)),
    linear.Spec(),
    recalibration.Spec(min_rows=1),
    evaluation.Spec(),
    kernel=tables.KERNEL,
)
"""Every kind of stage; 9 sums."""
TINY = _read(
    moments.Spec(),
    linear.Spec(),
    kernel=KernelSpec(architecture=Architecture.RBF, inputs=5, samples=4, seed=3),
)
"""3 sums."""


PRIVATE = Program.from_json(
    Program(
        Schema(
            (Numeric("age", "a", 0, 120), Categorical("ward", ("medical", "surgical"))),
            (Target("stay", "d", 0, 30),),
        ),
        KernelSpec(architecture=Architecture.RBF, inputs=3, samples=4, seed=3),
        (moments.Spec(), linear.Spec(), evaluation.Spec(recalibrated=False)),
        max_rows=1000,
        held_out=0.4,
    ).to_json()
)
"""3 sums over columns that all have bounds, as differential privacy needs."""


def simulated(program: Program, *, model: Model | None = None) -> Model:
    """Return the model that a run of the program over the tables must produce."""
    return simulate(program, TABLES, DEALING, secure=False, model=model).model


def model_bytes(model: Model) -> bytes:
    """Return a model's bytes as they are stored."""
    return storage.encode(model)

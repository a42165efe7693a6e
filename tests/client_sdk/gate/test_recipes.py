"""The range of recipes: it allows every algorithm's defaults and no extreme parameters."""

from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import PolicyFileError, RecipeForbidden
from client_sdk.gate.policy import Policy
from client_sdk.gate.recipes import Recipes
from kernels.features.spec import Architecture, Ending, KernelSpec
from kernels.model.model import Model
from kernels.rounds.automatic import automatic_program
from kernels.rounds.declaration import Before
from kernels.rounds.ensemble import predictive
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.shared.public_set import columns_of
from privacy.securesum.terms import default_terms
from tests.client_sdk.hospitals import drafted
from tests.kernels.rounds.tables import KERNEL, SCHEMA, table
from tests.kernels.rounds.tables import program as program_with

TERMS = default_terms(bytes(16), 5)
PUBLIC = columns_of({name: own for name, own in table(6).items() if name not in ("stay", "cost")})


def _lines(program: Program, recipes: Recipes | None = None) -> list[str]:
    return [problem.name for problem in (recipes or Recipes()).problems(program)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_standard_ranges_allow_the_defaults_of_every_algorithm(name: str) -> None:
    algorithm = ALGORITHMS[name]
    needed: dict[str, Any] = {}
    if "public" in _fields(algorithm.Spec):
        needed["public"] = columns_of(table(6))
    model = Model(SCHEMA, replace(KernelSpec(inputs=KERNEL.inputs)), Program.max_rows)
    if "recipes" in _fields(algorithm.Spec):
        program = automatic_program(SCHEMA)
        needed["recipes"], model = program.stages[1].recipes, program.start()
    own = algorithm.declare(algorithm.Spec(**needed), Before(model=model, students=frozenset()))
    allowed = Recipes(public_sets=() if own.public_set is None else (own.public_set,))
    assert own.rate_times_steps <= allowed.max_rate_times_steps
    assert own.local_passes <= allowed.max_local_passes


def _fields(spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = spec.__dataclass_fields__
    return fields


@pytest.mark.parametrize("architecture", Architecture)
def test_the_standard_ranges_allow_the_defaults_of_every_bounded_kernel(
    architecture: Architecture,
) -> None:
    kernel = KernelSpec(inputs=KERNEL.inputs, architecture=architecture)
    program = replace(program_with(), kernel=kernel)
    bounded = kernel.squared_norm_bound is not None
    assert _lines(program) == ([] if bounded else [""])


def _of_kernel(**changes: Any) -> Program:
    return replace(program_with(), kernel=KernelSpec(inputs=KERNEL.inputs, **changes))


RBF: dict[str, Any] = {"architecture": Architecture.RBF}
COPIES: dict[str, Any] = {"architecture": Architecture.REPLICATED}
EXTREME = {
    "a very short lengthscale": (_of_kernel(**RBF, lengthscale=1e-3), "lengthscale"),
    "a very long lengthscale": (_of_kernel(**RBF, lengthscale=1e6), "lengthscale"),
    "steep frequencies": (_of_kernel(frequency_scale=1e3), "frequency_scale"),
    "wild copies": (_of_kernel(**COPIES, replication_scale=50.0), "replication_scale"),
    "features without a bound": (_of_kernel(**COPIES, ending=Ending.LINEAR), ""),
    "a high rate": (program_with(exact.Spec(learning_rate=0.9)), "max_rate_times_steps"),
    "many local steps": (
        program_with(fedavg.Spec(local_steps=500, learning_rate=1e-4)),
        "max_local_passes",
    ),
    "few rows per site": (replace(program_with(), max_rows=30), "max_rows"),
    "hardly any rows held out": (program_with(held_out=0.004), "held_out"),
    "most rows held out": (program_with(held_out=0.97), "held_out"),
    "a public table": (program_with(predictive.Spec(public=PUBLIC)), "public_sets"),
}


@pytest.mark.parametrize("name", EXTREME)
def test_an_extreme_recipe_is_refused_and_the_coordinator_is_told_why(name: str) -> None:
    program, line = EXTREME[name]
    assert line in _lines(program)
    problem = next(own for own in Recipes().problems(program) if own.name == line)
    assert isinstance(problem, RecipeForbidden)
    assert problem.public_detail.startswith("the site ")


@pytest.mark.parametrize("name", EXTREME)
def test_a_draft_widens_what_the_session_needs_and_says_so(name: str) -> None:
    program, line = EXTREME[name]
    own = drafted(program, TERMS).recipes
    assert _lines(program, own) == ([] if line else [""]), "never features without a bound"


def test_no_rows_held_out_is_no_extreme() -> None:
    assert _lines(program_with(held_out=0.0)) == []


def test_public_tables_are_approved_by_their_digest() -> None:
    program = program_with(predictive.Spec(public=PUBLIC))
    digest = declared(program)[-1].public_set or declared(program)[1].public_set
    assert digest is not None
    assert _lines(program, Recipes(public_sets=(digest,))) == []
    other = columns_of({name: column[::-1] for name, column in dict(PUBLIC).items()})
    moved = program_with(predictive.Spec(public=other))
    assert _lines(moved, Recipes(public_sets=(digest,))) == ["public_sets"]


@pytest.mark.parametrize(
    "line",
    [
        "kernel = 3",
        'kernels = "rbf"',
        'kernels = ["rgb"]',
        "lengthscale = 3",
        "lengthscale = [3]",
        "lengthscale = [3, 2]",
        "held_out = [0.1, nan]",
        "held_out = [true, 1]",
        "max_local_passes = -1",
        'max_rate_times_steps = "10"',
        "public_sets = [3]",
    ],
)
def test_a_wrong_line_is_refused(line: str) -> None:
    with pytest.raises(PolicyFileError):
        Policy.from_toml(f"[recipes]\n{line}")
    with pytest.raises(PolicyFileError):
        Policy.from_toml("recipes = 3")

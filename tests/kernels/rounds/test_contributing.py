"""What a site answers does not depend on its rows: states are tried on made-up rows first."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels import storage
from kernels.errors import ChangedTable, ComputationFailed
from kernels.rounds.algorithm import contributed, rehearsed
from kernels.rounds.broadcast import received
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from tests.kernels.rounds import private, tables

EMPTY = Site({Part.TRAINING: Records.none(tables.SCHEMA)})


def twin(contribute: Any, algorithm: Any = linear) -> Any:
    return SimpleNamespace(**{**vars(algorithm), "contribute": contribute})


def failing(error: BaseException, *, only: Site | None = None) -> Any:
    """Return `linear` that fails as soon as there is a row, or at one site only."""

    def contribute(state: Any, site: Site) -> Any:
        if site.count(Part.TRAINING) and (only is None or site is only):
            raise error
        return linear.contribute(state, site)

    return twin(contribute)


@pytest.fixture(scope="module")
def state() -> Any:
    return linear.initial(linear.Spec(), tables.fitted([tables.site()]))


FAILURES = [
    ValueError("x"),
    AttributeError("x"),
    TypeError("x"),
    OverflowError("x"),
    np.linalg.LinAlgError("x"),
    RuntimeError("x"),
    MemoryError("x"),
    ZeroDivisionError("x"),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_a_state_that_fails_on_any_row_fails_without_rows_too(state: Any, error: Exception) -> None:
    found = []
    for site in (EMPTY, tables.site(2), tables.site()):
        with pytest.raises(ComputationFailed) as failed:
            contributed(failing(error), state, site)
        found.append(str(failed.value))
    assert len(set(found)) == 1


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_any_failure_on_own_rows_is_one_error(state: Any, error: Exception) -> None:
    own = tables.site()
    with pytest.raises(ComputationFailed, match="this site's rows") as failed:
        contributed(failing(error, only=own), state, own)
    assert failed.value.code == "computation.failed"
    assert failed.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError("disk"), ChangedTable("x"), KeyboardInterrupt()])
def test_failures_of_the_machine_are_not_failures_of_the_computation(
    state: Any, error: BaseException
) -> None:
    own = tables.site()
    with pytest.raises(type(error)):
        contributed(failing(error, only=own), state, own)


def test_blocks_that_are_not_those_of_the_layout_are_a_failure(state: Any) -> None:
    for blocks in (
        {},
        {**linear.contribute(state, tables.site()), "cross": np.full((16, 2), np.nan)},
    ):
        with pytest.raises(ComputationFailed):
            rehearsed(twin(lambda *_, own=blocks: own), state)


def test_with_differential_privacy_a_site_that_fails_as_a_whole_contributes_zero() -> None:
    own = private.site(private.table(60, seed=1))
    model = private.fitted(private.program(private.LAYER[0]), [own])
    state = linear.initial(linear.Spec(), private.program(*private.LAYER).start(model))
    noted: list[ComputationFailed] = []
    ready = rehearsed(failing(MemoryError("x"), only=own), state)
    blocks = ready.contributed(own, noted.append)
    assert {name: each.shape for name, each in blocks.items()} == {
        block.name: block.shape for block in linear.layout(state).blocks
    }
    assert not any(each.any() for each in blocks.values())
    assert "MemoryError" in str(noted[0])


def test_what_a_state_implies_is_built_before_the_first_row() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    stages = (linear.Spec(), recalibration.Spec(min_rows=10))
    state = evaluation.initial(evaluation.Spec(), tables.fitted(sites, *stages))
    seen = received(storage.encode(state, broadcast=True), _judging(), 3)
    assert "posterior" not in vars(seen.model)
    ready = rehearsed(evaluation, seen)
    assert "posterior" in vars(ready.state.model)


def _judging() -> Program:
    first = tables.program()
    judged = (linear.Spec(), recalibration.Spec(min_rows=10), evaluation.Spec())
    stages = (first.stages[0], *judged)
    return Program(first.schema, first.kernel, stages, first.max_rows, first.held_out)


def test_bytes_that_no_reader_expects_are_refused_with_a_named_error() -> None:
    program = tables.program()
    state = linear.initial(linear.Spec(), tables.fitted([tables.site()]))
    data = storage.encode(state, broadcast=True)
    assert received(data, program, 1).spec == linear.Spec()
    for damaged in (data[:-1], b"", data.replace(b"linear.state", b"linear.stata")):
        with pytest.raises(ValueError, match=r"."):
            received(damaged, program, 1)

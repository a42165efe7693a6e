"""Every algorithm's updates can be replayed from totals alone, on this machine and on others."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from kernels.rounds import position as positions
from kernels.rounds.plan import declared
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.run_kinds import Kind, program_of
from privacy.layout import SecureTotal
from tests.conformance import shadow
from tests.conformance.shadow import SMALL

PROGRAMS = shadow.programs(SMALL)
OTHER_MACHINE = {**shadow.ALL_AT_ONCE, **shadow.REFERENCE}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every state and every total of the small programs."""
    where = tmp_path_factory.mktemp("replay")
    for name, program in PROGRAMS.items():
        shadow.record(where, name, program, SMALL)
    return where


def chain(where: Path, name: str, program: Program) -> Iterator[tuple[Position, Position]]:
    """Yield every position replayed from the start, from totals alone, with the recorded one."""
    own = positions.start(program, None)
    for theirs in shadow.recorded(where, name, program):
        yield own, theirs
        if not own.finished:
            own, _ = positions.after(own, shadow.total_after(where, name, theirs))


def test_every_installed_algorithm_is_replayed() -> None:
    assert {a.NAME for each in PROGRAMS.values() for a, _ in each.algorithms()} == set(ALGORITHMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_totals_alone_give_every_state_again_bit_for_bit(name: str, recorded: Path) -> None:
    found = [own.digest == theirs.digest for own, theirs in chain(recorded, name, PROGRAMS[name])]
    assert all(found)
    assert len(found) > 1


def test_another_machine_gives_the_same_states_within_the_budgets(recorded: Path) -> None:
    found = shadow.run(recorded, SMALL, OTHER_MACHINE)
    assert set(found) == set(ALGORITHMS)
    assert not [problem for _, _, problems in found.values() for problem in problems]
    budgets = {
        algorithm.NAME: own.replay.budget
        for program in PROGRAMS.values()
        for (algorithm, _), own in zip(program.algorithms(), declared(program), strict=True)
    }
    assert all(off <= budgets[name] / 10 for name, (_, off, _) in found.items())


def test_every_grid_is_that_of_a_field_which_some_state_has(recorded: Path) -> None:
    grids, there = set[tuple[str, str]](), set[tuple[str, str]]()
    for name, program in PROGRAMS.items():
        plans = declared(program)
        for position in shadow.recorded(recorded, name, program):
            algorithm = position.algorithm.NAME
            there |= {(algorithm, field) for field in named(position.state)}
            grids |= {(algorithm, field) for field in plans[position.stage].replay.grids}
    # Some runs lack other parts of a model, such as a recalibration by few rows, and no run has the
    # judges of every kind of outcome, or noise in its outcomes.
    own = {
        (name, field)
        for name, field in grids
        if (not field.startswith("model.") or "outcomes" in field)
        and not field.startswith("outcome_judges.")
        and ".noise." not in field
    }
    assert own <= there
    assert ("outcomes", "fittings.search.kept.prior_variance") in own


def named(part: object, name: str = "") -> Iterator[str]:
    """Yield the names of all fields that are given, as `Replay.grids` spells them."""
    if isinstance(part, tuple):
        for each in part:
            yield from named(each, name)
    elif is_dataclass(part):
        for own in fields(part):
            yield from named(getattr(part, own.name), f"{name}.{own.name}" if name else own.name)
    elif part is not None:
        yield name


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.EVALUATE, Kind.UPDATE])
def test_every_other_kind_of_run_is_replayed_from_the_model_it_starts_from(
    kind: Kind, private: bool, recorded: Path
) -> None:
    name = "private exact" if private else "exact"
    *_, last = shadow.recorded(recorded, name, PROGRAMS[name])
    session = PROGRAMS[name]
    if session.privacy is not None:
        session = replace(session, privacy=replace(session.privacy, update=0.1))
    program = program_of(kind, session)
    sites = shadow.sites_of(program, SMALL)
    first = again = positions.start(program, last.state.model)
    totals = list[SecureTotal]()
    while not first.finished:
        encoding, added = shadow.encoding_of(first, len(sites)), shadow.summed(first, sites)
        totals.append(encoding.decode(added, contributors=len(sites)))
        first, _ = positions.after(first, totals[-1])
        again, _ = positions.after(again, totals[-1])
        assert again.digest == first.digest
    assert first.sum_index == len(totals) > 0


@pytest.mark.slow
def test_no_setting_of_processor_or_library_changes_a_state_of_a_long_run() -> None:
    assert shadow.main([]) == 0

"""`veilgp log`: what has left, by run and stage; every vector on request; one way to count sums."""

from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from client_sdk.events import VectorLeft
from client_sdk.home.home import Home
from client_sdk.home.remembered import Departure, Failure, UnmaskedSamples
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.terminal.command import application
from client_sdk.terminal.departures import Left
from tests.client_sdk.conftest import Make
from tests.client_sdk.hospitals import drive

FIRST = Departure(
    at="2026-11-19T21:00:00+00:00",
    session="s",
    run="r",
    epoch=0,
    slot=0,
    stage=0,
    algorithm="moments/3",
    blocks='["n"]',
    elements=7,
    octets=64,
    sha256="ab",
    sum_number=1,
    rows="cd" * 32,
)


def exact(sum_number: int, *, epoch: int = 0, run: str = "r") -> Departure:
    return replace(
        FIRST,
        run=run,
        epoch=epoch,
        slot=sum_number,
        stage=1,
        algorithm="exact/2",
        elements=1000,
        octets=8000,
        sum_number=sum_number,
    )


def left(*vectors: Departure, names: dict[str, str] | None = None) -> Left:
    return Left(vectors, (), (), names or {})


def test_eighty_vectors_of_a_stage_are_one_line() -> None:
    lines = [*left(FIRST, *map(exact, range(2, 82)), names={"s": "stay"}).by_stage()]
    assert len(lines) == 3
    assert "run r  of session 'stay' s" in lines[0]
    assert "stage 1  moments/3  sum 1" in lines[1]
    for said in ("stage 2", "sums 2 to 81", "80 vectors", "80,000 numbers", "640,000 bytes"):
        assert said in lines[2]


def test_a_repeated_sum_is_one_sum_and_two_vectors() -> None:
    own = left(exact(2), exact(3), exact(3, epoch=1))
    _, line = own.by_stage()
    assert "sums 2 to 3  3 vectors" in line
    assert "1 of them for sums that were repeated" in line
    assert "3 masked vectors for 2 sums" in next(own.in_all())


def test_runs_are_apart_and_sums_of_each_are_counted() -> None:
    own = left(exact(1), exact(1, run="q"))
    assert [line.split()[1] for line in own.by_stage() if line.startswith("run")] == ["r", "q"]
    assert "2 masked vectors for 2 sums" in next(own.in_all())


def test_samples_and_failures_are_never_grouped_away() -> None:
    samples = UnmaskedSamples("r", "s", 0, 0, 5, 50, 400, "ef", "cd" * 32, left_at="now")
    failure = Failure("now", "s", "q", 0, 3, 1, "exact/2", "too large", 4, "cd" * 32)
    lines = [*Left((FIRST,), (samples,), (failure,), {}).by_stage()]
    assert any("NOT MASKED" in line for line in lines)
    assert any("COULD NOT COMPUTE" in line and "sum 4" in line for line in lines)
    assert lines[-2].startswith("run q"), "a run of which nothing has left but which failed"


def test_names_from_a_coordinator_cannot_rewrite_the_terminal() -> None:
    assert all(line.isprintable() for line in left(FIRST, names={"s": "x\x1b[2J\n"}).by_stage())


def test_nothing_is_said_as_nothing() -> None:
    assert [*left().by_stage()] == []
    assert next(left().in_all()).startswith("0 masked vectors for 0 sums")


def test_join_and_log_count_sums_alike_also_if_one_is_lost(make: Make) -> None:
    coordinator, hospitals = make()
    lost: list[Call] = []

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and call.target.endswith("/vectors") and not lost:
            lost.append(call)
            return Lost("no response in time")
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    everything = [*range(1, coordinator.done_sums + 1)]
    for hospital in hospitals:
        joined = [each.sum_number for each in hospital.events if isinstance(each, VectorLeft)]
        store = Home(hospital.path).read()
        logged = [each.sum_number for each in store.departures()]
        store.close()
        assert joined == logged == everything


def test_the_command_lists_stages_vectors_or_totals(tmp_path: Path) -> None:
    with Home(tmp_path).open() as opened:
        from client_sdk.home.remembered import KnownRun
        from privacy.securesum.records import Step

        for each in (FIRST, exact(2), exact(3)):
            opened.store.commit(Step(None), run=KnownRun("r", "s", "train", "{}"), departure=each)
    asked = ["log", "--home", str(tmp_path)]
    stages = CliRunner().invoke(application(), asked).output.splitlines()
    assert len(stages) == 4
    every = CliRunner().invoke(application(), [*asked, "--all"]).output.splitlines()
    assert len(every) == 3
    assert all("SHA-256 ab" in line for line in every)
    (total,) = CliRunner().invoke(application(), [*asked, "--summary"]).output.splitlines()
    assert "3 masked vectors for 3 sums: 2,007 numbers, 16,064 bytes" in total
    assert CliRunner().invoke(application(), [*asked, "--all", "--summary"]).exit_code == 2

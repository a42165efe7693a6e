"""A26: whether, and when, a site answers says whether a part of its rows has a certain patient.

Carried out against version 1: with differential privacy, a state whose judges fail inside the loop
over rows made a site refuse, uncharged, if and only if a part had a row; and the posterior was made
with the first row, so that an answer took 136 ms with one row and 0.7 ms with none. The controls:
states are validated and tried on made-up rows, the charge is on disk before a row is read, from
then on a vector leaves, and every answer waits for its stage's answer time.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import OutgrewRowBand, RowBandChanged, RowBandMissing, WrongTask
from client_sdk.events import AnswerLate, CouldNotCompute, Event
from client_sdk.gate import answer_times
from client_sdk.gate.door import Door
from client_sdk.gate.row_band import ProposedBand, proposed, row_band
from client_sdk.home.home import Home
from client_sdk.home.remembered import Charge
from client_sdk.home.store import Store
from client_sdk.network.exchange import Clock, Exchange, Pause
from kernels import storage
from kernels.errors import KernelsError
from kernels.noisy import noise_aware
from kernels.rounds.algorithm import contributed, rehearsed
from kernels.rounds.broadcast import received
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.rounds.task import program_digest
from kernels.tables.records import Records
from privacy.identity import Identity
from privacy.ledger import Budget
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, Killed, drive
from tests.client_sdk.private import DELTA, PROGRAM, private_session
from tests.kernels.rounds import private
from tests.kernels.rounds.tables import table

Make = Callable[..., tuple[SmallCoordinator, list[Hospital]]]
STAGES = (*private.LAYER, recalibration.Spec(min_rows=1), evaluation.Spec())
JUDGING = private.program(*STAGES, schema=private.ROWS)


@pytest.fixture
def make(homes: Path) -> Make:
    return partial(private_session, homes)


@pytest.fixture(scope="module")
def judging() -> evaluation.State:
    sites = [private.site(private.table(60, seed=s), private.ROWS) for s in range(3)]
    earlier = private.program(*STAGES[:-1], schema=private.ROWS)
    model = private.fitted(earlier, sites)
    return evaluation.initial(evaluation.Spec(), JUDGING.start(model))


def sites_with_and_without_the_patient() -> tuple[Site, Site]:
    """Return two sites: all rows of the second are one patient's, and the first has none."""
    one = Records.for_training(private.ROWS, private.table(1, seed=3))
    return tuple(Site(dict.fromkeys(Part, rows)) for rows in (Records.none(private.ROWS), one))  # type: ignore[return-value]


def answered(state: Any, site: Site) -> str:
    """Return what can be seen of an answer: that there is one, or the code of a refusal."""
    try:
        seen = received(storage.encode(state, broadcast=True), JUDGING, len(STAGES) - 1)
        contributed(evaluation, seen, site)
    except KernelsError as error:
        return error.code
    return "answered"


HOSTILE: dict[str, Callable[[evaluation.State], Any]] = {
    "no judges for a fold": lambda state: state.judges[:1],
    "no judge for a target": lambda state: tuple(each[:1] for each in state.judges),
    "a law instead of a judge": lambda state: (("law",) * 2,) * 2,
    "a number": lambda _: 7,
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("judges", HOSTILE.values(), ids=HOSTILE)
def test_judges_that_fail_on_the_first_row_are_refused_with_and_without_one(
    judging: evaluation.State, judges: Callable[[evaluation.State], Any]
) -> None:
    crafted = replace(judging)
    object.__setattr__(crafted, "judges", judges(judging))
    without, with_patient = sites_with_and_without_the_patient()
    assert answered(crafted, without) == answered(crafted, with_patient) == "state.invalid"
    assert answered(judging, without) == answered(judging, with_patient) == "answered"


def test_the_posterior_is_built_whether_or_not_there_is_a_row(
    judging: evaluation.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    posterior = noise_aware.posterior

    def counted(*given: Any) -> Any:
        built.append("posterior")
        return posterior(*given)

    monkeypatch.setattr(noise_aware, "posterior", counted)
    for site in sites_with_and_without_the_patient():
        built.clear()
        seen = received(storage.encode(judging, broadcast=True), JUDGING, len(STAGES) - 1)
        ready = rehearsed(evaluation, seen)
        assert built == ["posterior"]
        ready.contributed(site)
        assert built == ["posterior"], "nothing is left to build with the first row"


# -- the charge comes first, and then a vector leaves


def failing_at(hospital: Hospital, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `linear` fail over one hospital's rows, of which it has 7 less than the others."""
    hospital.data = {name: cells[:33] for name, cells in hospital.data.items()}  # type: ignore[attr-defined]
    contribute = linear.contribute

    def failing(state: Any, site: Site) -> Any:
        if sum(map(len, site.parts.values())) == 33:
            raise error
        return contribute(state, site)

    monkeypatch.setattr(linear, "contribute", failing)


def opened(hospital: Hospital) -> Store:
    return Home(hospital.path).read()


def charges(hospital: Hospital) -> int:
    store = opened(hospital)
    try:
        return len(store.ledger("table", Budget(100.0, DELTA)).entries)
    finally:
        store.close()


def test_with_privacy_a_site_that_fails_is_charged_and_answers_as_any_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = make()
    failing_at(hospitals[0], AttributeError("inside the loop over rows"), monkeypatch)
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert coordinator.refusals == []
    assert [charges(hospital) for hospital in hospitals] == [2, 2, 2]
    assert [_failures(each) for each in hospitals] == [1, 0, 0]
    (told,) = [each for each in hospitals[0].events if isinstance(each, CouldNotCompute)]
    assert "inside the loop over rows" in str(told)


def _failures(hospital: Hospital) -> int:
    store = opened(hospital)
    try:
        return len(store.failures())
    finally:
        store.close()


def test_the_charge_is_on_disk_before_a_row_is_read_and_holds_after_a_crash(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = make()
    seen: list[int] = []
    contribute = linear.contribute
    whole = sum(map(len, [hospitals[0].data["age"]]))  # type: ignore[index]

    def interrupted(state: Any, site: Site) -> Any:
        if sum(map(len, site.parts.values())) == whole and len(seen) < 2:
            seen.append(charges(hospitals[0]))
            raise Killed
        return contribute(state, site)

    monkeypatch.setattr(linear, "contribute", interrupted)
    monkeypatch.setattr("kernels.rounds.algorithm.ChangedTable", Killed)
    drive(hospitals, coordinator)
    assert seen == [2, 2], "the second sum was charged before its rows were read, once"
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert charges(hospitals[0]) == 2
    assert len(coordinator.uploads) == 6


def test_a_charge_holds_for_another_draw_but_not_for_another_task() -> None:
    charge = Charge("table", 1.0, "s", "r", 0, 3, '{"cost": 1}', "rows", "00")
    assert charge.covers(replace(charge, noise="11", at=2.0))
    for other in ({"release": '{"cost": 2}'}, {"rows": "others"}, {"source": "elsewhere"}):
        assert not charge.covers(replace(charge, **other))


def test_another_task_under_the_charge_of_an_interrupted_one_is_not_answered(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = make()
    before = Charge("table", 1.0, "s", "r", 0, 0, '{"cost": "another"}')
    monkeypatch.setattr(Store, "charge_of", lambda *_: before)
    drive(hospitals, coordinator, first_error=True)
    assert isinstance(hospitals[0].error, WrongTask)
    assert coordinator.uploads == []


# -- answer times


class Time:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waits(rows_s: float, answer_s: float) -> tuple[float, list[Event]]:
    """Return when an answer leaves that took `rows_s` to compute, and what is shown at home."""
    time, events = Time(), list[Event]()
    exchange = Exchange(Identity.generate(), host="x", clock=Clock(monotonic=time))
    nothing: Any = None
    door = Door(nothing, exchange, nothing, nothing, nothing, events.append, (answer_s,))
    began = time.now
    time.now += rows_s
    for effect in door._wait(0, linear, began):
        assert isinstance(effect, Pause)
        time.now += effect.seconds
    return time.now - began, events


def test_an_answer_leaves_after_its_stages_time_however_long_the_rows_took() -> None:
    assert {round(waits(rows_s, 0.2)[0], 9) for rows_s in (0.0, 0.0007, 0.136)} == {0.2}
    assert waits(0.136, 0.2)[1] == []
    late, events = waits(0.5, 0.2)
    assert late == pytest.approx(0.5)
    assert [type(event) for event in events] == [AnswerLate]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Home(tmp_path / "home").open() as home:
        yield home.store


def test_times_are_measured_once_for_a_program_and_a_band(store: Store) -> None:
    first = answer_times.answer_times(store, PROGRAM, 4096, least_s=0.05)
    assert len(first) == len(PROGRAM.stages) + 1
    assert min(first) >= 0.05
    # They are measured once: a clock that cannot be read is not read.
    again = answer_times.answer_times(store, PROGRAM, 4096, least_s=0.05, clock=None)  # type: ignore[arg-type]
    assert again == first


def test_a_band_is_chosen_once_and_no_table_and_no_policy_changes_it(store: Store) -> None:
    assert row_band(store, "table", 8192, 16384) == 16384
    assert row_band(store, "table", 3, 16384) == 16384
    assert row_band(store, "table", 16384, 16384) == 16384
    for rows, chosen in ((3, 4096), (16384, 65536)):
        with pytest.raises(RowBandChanged, match="veilgp row-band"):
            row_band(store, "table", rows, chosen)
    with pytest.raises(OutgrewRowBand, match="veilgp row-band 65536"):
        row_band(store, "table", 16385, 16384)
    store.keep_row_band("table", 65536, by="Dr Ada")
    assert row_band(store, "table", 16385, 65536) == 65536


def test_a_band_is_at_least_twice_the_rows_when_it_is_chosen(store: Store) -> None:
    with pytest.raises(OutgrewRowBand, match="for example 16384"):
        row_band(store, "table", 2049, 4096)
    assert store.row_band("table") is None
    assert row_band(store, "table", 2048, 4096) == 4096


def test_what_a_draft_proposes_says_little_about_the_rows(store: Store) -> None:
    """All tables of 2,049 to 8,192 rows get the same, and without a table all do."""
    assert {ProposedBand.for_table(rows).rows for rows in (1, 30, 2048)} == {4096}
    assert {ProposedBand.for_table(rows).rows for rows in (2049, 5000, 8192)} == {16384}
    assert proposed(store, "table").rows == 4096
    assert proposed(store, "table", {"age": range(5000)}).rows == 16384
    store.keep_row_band("table", 1 << 20, by="Dr Ada")
    assert proposed(store, "table", {"age": range(5000)}).rows == 1 << 20


def bands(hospitals: list[Hospital]) -> list[int | None]:
    found = []
    for hospital in hospitals:
        store = opened(hospital)
        found.append(store.row_band("table"))
        store.close()
    return found


def test_nobody_joins_with_a_band_that_nobody_has_chosen(make: Make) -> None:
    """Without the line the band was a power of two from the rows: 8,192 for 2,100 of them."""
    coordinator, hospitals = make()
    for hospital in hospitals:
        hospital.policy = replace(hospital.policy, least_answer_s=0.05)
        hospital.data = "not-opened.csv"
    drive(hospitals, coordinator)
    assert all(isinstance(hospital.error, RowBandMissing) for hospital in hospitals)
    assert bands(hospitals) == [None] * 3
    assert not coordinator.sums.advertised
    told = [each["detail"] for each in coordinator.refusals]
    assert told == ["the site has not chosen a row band for its answer times"] * 3


def test_hospitals_of_very_different_sizes_have_the_band_that_they_chose(homes: Path) -> None:
    sizes = (30, 700, 2100)
    data = [table(rows, seed=rows) for rows in sizes]
    program = replace(PROGRAM, max_rows=10_000)
    coordinator, hospitals = private_session(homes, program, data=data)
    for hospital in hospitals:
        hospital.policy = replace(hospital.policy, least_answer_s=0.001, row_band=8192)
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert bands(hospitals) == [8192] * 3
    digest = program_digest(program.to_json())
    for hospital in hospitals:
        store = opened(hospital)
        assert store.answer_times(digest, 8192)
        store.close()


def test_every_answer_of_a_hospital_waits(homes: Path) -> None:
    """With a clock that stands still, each wait is the whole answer time, whatever the rows."""
    program = Program.from_json(PROGRAM.to_json())
    waited: dict[int, list[float]] = {}
    for rows in (12, 40):
        coordinator, hospitals = private_session(homes / str(rows), program)
        one = hospitals[0]
        one.data = {name: cells[:rows] for name, cells in one.data.items()}  # type: ignore[attr-defined]
        one.policy = replace(one.policy, least_answer_s=5.0, row_band=4096)
        pauses: list[float] = []
        talk_of(hospitals, coordinator, pauses)
        waited[rows] = sorted(each for each in pauses if each > 1)
    assert waited[12] == waited[40]
    assert len(waited[12]) == 2
    assert np.allclose(waited[12], 5.0)


def talk_of(hospitals: list[Hospital], coordinator: SmallCoordinator, pauses: list[float]) -> None:
    """Run hospitals with a clock that stands still, and note every wait."""
    still = Time()
    talks = {i: _with_clock(hospital, still) for i, hospital in enumerate(hospitals)}
    answers: dict[int, Any] = dict.fromkeys(talks)
    for _ in range(5000):
        for i in list(talks):
            try:
                effect = talks[i].send(answers[i])
            except StopIteration:
                del talks[i]
                continue
            if isinstance(effect, Pause):
                pauses.append(effect.seconds)
                answers[i] = None
            else:
                answers[i] = coordinator.answer(effect)
        if not talks:
            return
    raise AssertionError("not done")


def _with_clock(hospital: Hospital, clock: Time) -> Any:
    hospital.clock = Clock(monotonic=clock)
    return hospital.conversation()

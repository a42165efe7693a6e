"""A session that states no kernel and no stages gets a program made from its schema."""

from typing import Any

import pytest

from kernels.rounds.plan import stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.sized import rows_needed, sized_program
from kernels.rounds.stated.band import USUAL_TABLE
from kernels.strict_json import encode_json
from kernels.tables.schema import Schema
from privacy.securesum.terms import Terms
from tests.service.coordinator import SCHEMA, Coordinator

SHORT: dict[str, Any] = {
    "name": "Length of stay",
    "schema": SCHEMA,
    "members": 5,
    "privacy": {"differential_privacy": False},
    "model": "served",
}
BINARY = {"kind": "binary", "name": "readmitted", "levels": ["no", "yes"], "event": "yes"}
COUNT = {"kind": "count", "name": "visits", "unit": "1"}
NOISY = {"differential_privacy": True, "epsilon": 1.0, "delta": 1e-5}


def created(coordinator: Coordinator, **changes: Any) -> Any:
    answer = coordinator.admin("POST", "/sessions", {**SHORT, **changes})
    assert answer.status_code == 201, answer.text
    shown = coordinator.admin("GET", f"/sessions/{answer.json()['id']}").json()
    assert shown == answer.json()
    return shown


def program_of(session: Any) -> Program:
    return Program.from_json(encode_json(session["program"]))


def test_five_lines_are_a_session(coordinator: Coordinator) -> None:
    made = created(coordinator)
    schema = Schema.from_json(encode_json({"version": Schema.VERSION, **SCHEMA}))
    program = program_of(made)
    assert program == sized_program(schema, smallest_table=None, members=5, min_sites=5)
    assert rows_needed(program) < USUAL_TABLE, "the usual hospital does not refuse it"


@pytest.mark.parametrize("members", [3, 5, 20])
@pytest.mark.parametrize("privacy", [SHORT["privacy"], NOISY], ids=["exact", "private"])
@pytest.mark.parametrize(
    "targets",
    [SCHEMA["targets"], [BINARY], [*SCHEMA["targets"], BINARY, COUNT]],
    ids=["number", "binary", "several"],
)
def test_the_default_is_never_refused(
    coordinator: Coordinator, members: int, privacy: Any, targets: Any
) -> None:
    schema = {**SCHEMA, "targets": targets}
    made = created(coordinator, members=members, privacy=privacy, schema=schema)
    program = program_of(made)
    terms = Terms.decode(bytes.fromhex(made["terms"]))
    assert program.stages[0].min_sites == terms.min_cohort
    assert (program.privacy is not None) is privacy["differential_privacy"]


def test_rows_and_shares_may_be_stated_with_it(coordinator: Coordinator) -> None:
    made = created(coordinator, max_rows=500, held_out=0.3, least_rows=400)
    program = program_of(made)
    assert (program.max_rows, program.held_out, program.least_rows) == (500, 0.3, 400)


def test_the_most_sums_may_be_stated_with_it(coordinator: Coordinator) -> None:
    made = created(coordinator, max_sums=60)
    program = program_of(made)
    assert sum(stage.sums for stage in stages_disclosed(program)) <= 60


def test_the_most_features_may_be_stated_with_it(coordinator: Coordinator) -> None:
    program = program_of(created(coordinator, max_features=60))
    assert max(kernel.features for kernel in program.kernels) == 60


@pytest.mark.parametrize("limit", ["max_sums", "max_features"])
def test_limits_are_refused_beside_stages(coordinator: Coordinator, limit: str) -> None:
    stages = [{"algorithm": "moments"}, {"algorithm": "linear"}]
    answer = coordinator.admin("POST", "/sessions", {**SHORT, "stages": stages, limit: 60})
    assert answer.status_code == 422
    assert f"{limit} is for programs that the coordinator makes" in answer.json()["detail"]


def test_kernels_that_no_stage_chooses_from_are_refused(coordinator: Coordinator) -> None:
    stages = [{"algorithm": "moments"}, {"algorithm": "linear"}]
    choices = [{"architecture": "linear"}, {"architecture": "rbf"}]
    answer = coordinator.admin("POST", "/sessions", {**SHORT, "choices": choices, "stages": stages})
    assert answer.status_code == 422
    assert "no stage chooses one: add the stage 'search'" in answer.json()["detail"]


@pytest.mark.parametrize(
    "stated", [{"kernel": {}}, {"kernel": {"architecture": "rbf"}}, {"choices": [{}]}]
)
def test_a_kernel_without_stages_is_refused(coordinator: Coordinator, stated: Any) -> None:
    answer = coordinator.admin("POST", "/sessions", {**SHORT, **stated})
    assert (answer.status_code, answer.json()["code"]) == (422, "program.invalid")
    (name,) = stated
    assert f"{name} is stated, but no stages" in answer.json()["detail"]


def test_with_a_program_that_is_made_all_problems_are_told_at_once(
    coordinator: Coordinator,
) -> None:
    wrong = {"schema": {**SCHEMA, "targets": []}, "kernel": {}, "privacy": {}}
    wrong["privacy"] = {"differential_privacy": True}
    answer = coordinator.admin("POST", "/sessions", {**SHORT, **wrong})
    assert [each["code"] for each in answer.json()["problems"]] == [
        "privacy.incomplete",
        "schema.refused",
        "program.invalid",
    ]


def test_the_answer_says_in_words_what_the_program_does_and_costs(
    coordinator: Coordinator,
) -> None:
    made = created(coordinator)
    first, *stages, in_all, costs, read, rows = made["in_words"]
    assert first.startswith("Learned is to predict stay from age, with the best of these kernels, ")
    disclosed = stages_disclosed(program_of(made))
    assert [said.split(", ", 1)[1] for said in stages] == [own.sentence + "." for own in disclosed]
    assert f"at most {sum(own.sums for own in disclosed):,} sums" in in_all
    assert costs.startswith("A hospital sends at most ")
    assert read.startswith("The coordinator reads no sum. It has the finished model")
    assert "3 for each of 400 features: a table needs about 1,540 rows" in rows
    *_, rows = created(coordinator, name="Large", smallest_table=16384)["in_words"]
    assert "for each of 800 features, those of the two kernels that may be mixed" in rows
    assert "a table needs about 12,4" in rows
    assert "because 'completion' sums held-out rows alone (without it about 3,0" in rows


def test_who_reads_what_is_said_of_every_kind_of_session(coordinator: Coordinator) -> None:
    noisy = created(coordinator, name="Noisy", privacy=NOISY)["in_words"]
    assert "The coordinator reads every sum and has the model." in noisy
    assert any("one run costs any one row at most ε = 1 at δ = 1e-05" in said for said in noisy)
    kept = created(coordinator, name="Kept", model="members")["in_words"]
    assert any("does not have the model" in said for said in kept)


def test_a_private_session_says_what_to_expect_before_it_spends(coordinator: Coordinator) -> None:
    assert created(coordinator)["forecast"] == []
    (stated,) = created(coordinator, name="Stated", privacy=NOISY, least_rows=5_000)["forecast"]
    assert stated["rows"] == 5_000
    (stay,) = stated["targets"]
    assert 0 < stay["low"] < stay["expected"] < stay["high"] < 1
    assert not stay["no_better_than_the_mean"]
    several = created(coordinator, name="Unstated", privacy=NOISY)
    expected = [own["targets"][0]["expected"] for own in several["forecast"]]
    assert len(expected) > 1
    assert expected == sorted(expected)
    assert any("least_rows" in said for said in several["in_words"])


@pytest.mark.parametrize("rows", [{"least_rows": 30}, {"max_rows": 10}], ids=["stated", "most"])
def test_a_session_without_prospect_is_refused_unless_it_says_so(
    coordinator: Coordinator, rows: dict[str, int]
) -> None:
    asked = {**SHORT, **rows, "privacy": {**NOISY, "epsilon": 0.1}}
    answer = coordinator.admin("POST", "/sessions", asked)
    assert (answer.status_code, answer.json()["code"]) == (422, "program.no_prospect")
    assert "'stay' is expected to be no better than predicting the mean" in answer.json()["detail"]
    assert "privacy.without_prospect" in answer.json()["detail"]
    made = created(coordinator, **rows, privacy={**asked["privacy"], "without_prospect": True})
    assert any("NO BETTER THAN PREDICTING THE MEAN" in said for said in made["in_words"])


def test_prospects_are_of_private_sessions_alone(coordinator: Coordinator) -> None:
    wrong = {"differential_privacy": False, "without_prospect": True}
    answer = coordinator.admin("POST", "/sessions", {**SHORT, "privacy": wrong})
    assert answer.json()["code"] == "privacy.incomplete"


def test_the_program_fits_the_smallest_table_if_its_size_is_stated(
    coordinator: Coordinator,
) -> None:
    small = program_of(created(coordinator, smallest_table=128))
    assert max(own.features for own in small.kernels) <= 31
    names = [algorithm.NAME for algorithm, _ in small.algorithms()]
    assert "completion" not in names
    usual = program_of(created(coordinator, name="Usual", smallest_table=USUAL_TABLE))
    assert usual == program_of(created(coordinator, name="Not stated"))
    large = program_of(created(coordinator, name="Large", smallest_table=16384))
    assert "completion" in [algorithm.NAME for algorithm, _ in large.algorithms()]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"smallest_table": 100}, "smallest_table must be a power of two"),
        ({"smallest_table": 128, "privacy": NOISY}, "no least number of rows: leave it out"),
        (
            {"smallest_table": 16, "stages": [{"algorithm": "moments"}, {"algorithm": "linear"}]},
            "smallest_table says that one has at most 31",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused(
    coordinator: Coordinator, changes: dict[str, Any], said: str
) -> None:
    answer = coordinator.admin("POST", "/sessions", {**SHORT, **changes})
    assert (answer.status_code, answer.json()["code"]) == (422, "program.invalid")
    assert said in answer.json()["detail"]

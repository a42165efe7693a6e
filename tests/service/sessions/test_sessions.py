"""A session is created completely or not at all, and a refusal lists all its problems."""

from typing import Any

import pytest
from sqlalchemy import insert

from kernels.rounds.program import Program
from privacy.securesum.terms import Terms
from service.database import tables
from tests.service.coordinator import SCHEMA, SESSION, Coordinator


def create(coordinator: Coordinator, **changes: Any) -> Any:
    answer = coordinator.admin("POST", "/sessions", {**SESSION, **changes})
    return answer.status_code, answer.json()


def test_a_session_has_what_was_stated_and_the_defaults(coordinator: Coordinator) -> None:
    status, made = create(coordinator)
    assert status == 201
    shown = coordinator.admin("GET", f"/sessions/{made['id']}").json()
    assert shown == made
    hospital = coordinator.approved(made["id"], "Kiel")
    session = hospital.membership(made["id"]).json()["session"]
    program = Program.from_json(session["program"])
    assert program.to_json() == session["program"]
    assert program.kernel.inputs == 1
    assert [a.NAME for a, _ in program.algorithms()] == ["moments", "linear"]
    terms = Terms.decode(bytes.fromhex(session["terms"]))
    assert terms.session.hex() == made["id"].replace("-", "")
    assert (terms.max_colluders, terms.min_cohort) == (1, 5)
    assert session["differential_privacy"] is terms.differential_privacy is False


def test_terms_can_be_stated(coordinator: Coordinator) -> None:
    privacy = {"differential_privacy": False, "max_colluders": 2, "min_cohort": 4}
    assert create(coordinator, privacy=privacy)[1]["privacy"] == {
        **privacy,
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"privacy": {}}, "request.fields"),
        ({"privacy": {"differential_privacy": 0}}, "request.fields"),
        ({"privacy": {"differential_privacy": True}}, "privacy.incomplete"),
        ({"privacy": {"differential_privacy": True, "epsilon": 1.0}}, "privacy.incomplete"),
        ({"privacy": {"differential_privacy": False, "epsilon": 1.0}}, "privacy.incomplete"),
        ({"privacy": {"differential_privacy": False, "max_colluders": 4}}, "terms.invalid"),
        (
            {"privacy": {"differential_privacy": False, "max_colluders": 3, "min_cohort": 4}},
            "terms.invalid",
        ),
        ({"members": 2}, "request.fields"),
        ({"members": 201}, "request.fields"),
        ({"members": "5"}, "request.fields"),
        ({"seed": 1}, "request.fields"),
        ({"colour": "red"}, "request.fields"),
        ({"name": ""}, "request.fields"),
        ({"name": " a"}, "request.fields"),
        ({"name": "a\u202eb"}, "request.fields"),
        ({"name": "a\nb"}, "request.fields"),
        ({"name": "a/b"}, "request.fields"),
        ({"name": "é" * 101}, "request.fields"),
        ({"schema": {**SCHEMA, "colour": 1}}, "schema.refused"),
        ({"schema": {**SCHEMA, "targets": []}}, "schema.refused"),
        ({"schema": {**SCHEMA, "version": 2}}, "schema.newer_version"),
        ({"kernel": {"architecture": "magic"}}, "spec.unknown_architecture"),
        ({"kernel": {"inputs": 2}}, "program.invalid"),
        ({"kernel": {"colour": 2}}, "spec.invalid"),
        ({"kernel": {"architecture": "rbf", "degree": 2}}, "spec.invalid"),
        ({"stages": []}, "request.fields"),
        ({"stages": [{"algorithm": "magic"}]}, "program.unknown_algorithm"),
        (
            {"stages": [{"algorithm": "moments"}, {"algorithm": "linear", "version": 9}]},
            "program.unknown_algorithm",
        ),
        (
            {"stages": [{"algorithm": "moments", "parameters": {"x": 1}}, {"algorithm": "linear"}]},
            "program.invalid",
        ),
        ({"stages": [{"algorithm": "moments"}]}, "program.invalid"),
        ({"stages": [{"algorithm": "linear"}]}, "program.invalid"),
        (
            {"stages": [{"algorithm": name} for name in ("moments", "evaluation", "linear")]},
            "program.invalid",
        ),
        ({"max_rows": 0}, "program.invalid"),
        ({"held_out": 1.0}, "program.invalid"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_written(
    coordinator: Coordinator, changes: dict[str, Any], code: str
) -> None:
    status, problem = create(coordinator, **changes)
    assert (status, problem["code"]) == (422, code)
    assert coordinator.admin("GET", "/sessions").json() == []


def test_a_program_that_would_give_no_model_is_refused_before_anyone_gives_a_sum(
    coordinator: Coordinator,
) -> None:
    _, problem = create(coordinator, stages=[{"algorithm": "moments"}, {"algorithm": "exact"}])
    assert "without which a run produces no model" in problem["detail"]


def test_all_problems_are_told_at_once(coordinator: Coordinator) -> None:
    wrong = {
        "schema": {**SCHEMA, "targets": []},
        "kernel": {"architecture": "magic"},
        "stages": [{"algorithm": "magic"}, {"algorithm": "linear", "parameters": {"x": 1}}],
        "privacy": {"differential_privacy": True},
    }
    status, problem = create(coordinator, **wrong)
    assert (status, problem["code"]) == (422, "session.refused")
    assert [each["code"] for each in problem["problems"]] == [
        "privacy.incomplete",
        "schema.refused",
        "spec.unknown_architecture",
        "program.unknown_algorithm",
        "program.invalid",
        "program.invalid",
    ]


def test_a_number_that_json_does_not_know_is_refused(coordinator: Coordinator) -> None:
    headers = {"Authorization": f"Bearer {coordinator.token}"}
    for body in (b'{"held_out": NaN}', b"{", b'"\\ud800"', b"\xff", b"[" * 100_000):
        answer = coordinator.request("POST", "/sessions", headers=headers, content=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "request.fields")


def test_two_names_that_people_take_for_one_are_one(coordinator: Coordinator) -> None:
    assert create(coordinator, name="Charite\u0301")[1]["name"] == "Charité"
    status, problem = create(coordinator, name="CHARITÉ")
    assert (status, problem["code"]) == (409, "name.taken")


def test_a_session_that_has_run_stays(coordinator: Coordinator) -> None:
    kept, dropped = coordinator.session(), coordinator.session(name="Another")
    with coordinator.context.database.changing() as connection:
        connection.execute(
            insert(tables.runs).values(
                id="r",
                session_id=kept,
                kind="train",
                program="",
                status="failed",
                created_at=0,
                deadline_at=0,
                version=0,
                epoch=0,
                epoch_closed=False,
                since=0.0,
                stage=0,
                sums=0,
            )
        )
    refused = coordinator.admin("DELETE", f"/sessions/{kept}")
    assert (refused.status_code, refused.json()["code"]) == (409, "session.has_runs")
    coordinator.invite(dropped, "Kiel")
    assert coordinator.admin("DELETE", f"/sessions/{dropped}").status_code == 204
    assert [each["id"] for each in coordinator.admin("GET", "/sessions").json()] == [kept]
    assert coordinator.admin("DELETE", f"/sessions/{dropped}").status_code == 404


DISTILLED = [
    {"algorithm": "moments"},
    {"algorithm": "distillation", "parameters": {"public": "wards", "rounds": 2}},
    {"algorithm": "linear"},
]


def test_a_session_takes_its_public_set_along(coordinator: Coordinator) -> None:
    assert create(coordinator, stages=DISTILLED)[1]["code"] == "not_found"
    columns = {"age": [61, 47.5], "stay": [3, 1]}
    path = "/public-sets/wards"
    assert coordinator.admin("PUT", path, {"columns": columns}).status_code == 204
    listed = coordinator.admin("GET", "/public-sets").json()
    assert [(each["name"], each["columns"], each["rows"]) for each in listed] == [
        ("wards", ["age", "stay"], 2)
    ]
    session = coordinator.session(stages=DISTILLED)
    assert coordinator.admin("DELETE", path).status_code == 204
    assert coordinator.admin("DELETE", path).status_code == 404
    shown = coordinator.admin("GET", f"/sessions/{session}").json()
    public = shown["program"]["stages"][1]["parameters"]["public"]
    assert public == [["age", [61, 47.5]], ["stay", [3, 1]]]


@pytest.mark.parametrize(
    "columns", [{}, {"age": []}, {"age": [1], "stay": [1, 2]}, {"age": [[1]]}, {"age": [{}]}]
)
def test_a_public_set_is_a_table(coordinator: Coordinator, columns: object) -> None:
    answer = coordinator.admin("PUT", "/public-sets/wards", {"columns": columns})
    assert answer.status_code == 422
    assert coordinator.admin("GET", "/public-sets").json() == []


def test_a_public_set_that_does_not_fit_the_schema_is_refused(coordinator: Coordinator) -> None:
    columns = {"age": [61, 470], "stay": [3, 1]}
    coordinator.admin("PUT", "/public-sets/wards", {"columns": columns})
    assert create(coordinator, stages=DISTILLED)[1]["code"] == "table.refused"


ENSEMBLE = [
    {"algorithm": "moments"},
    {"algorithm": "predictive", "parameters": {"public": "ages"}},
    {"algorithm": "beta"},
    {"algorithm": "linear"},
    {"algorithm": "evaluation", "parameters": {"recalibrated": False}},
]
AGES = {"age": [61, 47.5, 130]}


def with_ages(coordinator: Coordinator, columns: Any = AGES) -> None:
    answer = coordinator.admin("PUT", "/public-sets/ages", {"columns": columns})
    assert answer.status_code == 204


def test_an_ensemble_takes_public_rows_by_name_and_they_need_no_labels(
    coordinator: Coordinator,
) -> None:
    assert create(coordinator, stages=ENSEMBLE)[1]["code"] == "not_found"
    with_ages(coordinator)
    session = coordinator.session(stages=ENSEMBLE)
    assert coordinator.admin("DELETE", "/public-sets/ages").status_code == 204
    shown = coordinator.admin("GET", f"/sessions/{session}").json()
    assert shown["program"]["stages"][1]["parameters"]["public"] == [["age", [61, 47.5, 130]]]


@pytest.mark.parametrize(
    ("columns", "code", "said"),
    [
        ({"ages": [61]}, "table.refused", "'age'"),
        ({"age": [61, None]}, "table.refused", "missing"),
        ({"age": ["old"]}, "table.refused", "numbers"),
        ({"age": [61] * 3500}, "program.invalid", "at most 4096"),
    ],
)
def test_public_rows_that_do_not_fit_are_refused_with_the_session(
    coordinator: Coordinator, columns: Any, code: str, said: str
) -> None:
    with_ages(coordinator, columns)
    status, problem = create(coordinator, stages=ENSEMBLE)
    assert (status, problem["code"]) == (422, code)
    assert said in problem["detail"]


def test_too_many_public_rows_are_refused_when_they_are_uploaded(coordinator: Coordinator) -> None:
    body = {"columns": {"age": [61] * 5000}}
    answer = coordinator.admin("PUT", "/public-sets/ages", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "program.invalid")
    assert "4096" in answer.json()["detail"]


def test_beta_needs_labels_or_a_stage_of_its_own(coordinator: Coordinator) -> None:
    with_ages(coordinator)
    stages = _changed(1, methods=["product", "mixture", "beta"])
    status, problem = create(coordinator, stages=stages)
    assert (status, problem["code"]) == (422, "table.refused")
    assert "it is not in the table" in problem["detail"]


def _changed(index: int, **parameters: Any) -> list[dict[str, Any]]:
    stages = [dict(stage) for stage in ENSEMBLE]
    stages[index]["parameters"] = {**stages[index].get("parameters", {}), **parameters}
    return stages


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stages": [ENSEMBLE[0], {"algorithm": "predictive"}, *ENSEMBLE[3:]]}, "PUT /public-sets"),
        ({"stages": [ENSEMBLE[0], *ENSEMBLE[2:]]}, "put the stage 'predictive' before it"),
        ({"stages": ENSEMBLE[:3]}, "without which a run produces no model"),
        ({"stages": _changed(1, methods=["product", "gpoe"])}, "has none of mixture"),
        (
            {"stages": _changed(1, expert="linear")},
            "put the stage 'linear' or 'linear_two",
        ),
        ({"held_out": 0}, "held_out must be above 0"),
        (
            {"stages": [ENSEMBLE[0], *ENSEMBLE[3:], *ENSEMBLE[1:3]]},
            "put the evaluation last",
        ),
    ],
)
def test_an_ensemble_that_could_not_be_made_is_refused_before_anyone_gives_a_sum(
    coordinator: Coordinator, changes: Any, said: str
) -> None:
    with_ages(coordinator)
    status, problem = create(coordinator, **{"stages": ENSEMBLE, **changes})
    assert (status, problem["code"]) == (422, "program.invalid")
    assert said in problem["detail"]


@pytest.mark.parametrize("last", [2, 3])
def test_ensembles_have_no_private_form_and_say_so(coordinator: Coordinator, last: int) -> None:
    with_ages(coordinator)
    privacy = {"differential_privacy": True, "epsilon": 1.0, "delta": 1e-5}
    stages = [*ENSEMBLE[:last], *ENSEMBLE[3:]]
    status, problem = create(coordinator, stages=stages, privacy=privacy)
    assert (status, problem["code"]) == (422, "program.not_private")
    assert "predictive" in problem["detail"]


OUTCOME = {"kind": "binary", "name": "readmitted", "levels": ["no", "yes"], "event": "yes"}
BOTH = {**SCHEMA, "targets": [*SCHEMA["targets"], OUTCOME]}
LAYERS = [{"algorithm": "linear"}, {"algorithm": "outcomes"}]


def test_each_kind_of_target_needs_a_stage_that_fits_it(coordinator: Coordinator) -> None:
    first = {"algorithm": "moments", "parameters": {"min_sites": 5}}
    for stages, missing in (
        ([first, LAYERS[0]], "outcomes"),
        ([first, LAYERS[1]], "linear"),
    ):
        status, problem = create(coordinator, schema=BOTH, stages=stages)
        assert (status, problem["code"]) == (422, "program.invalid")
        assert f"add the stage '{missing}'" in problem["detail"]
    status, made = create(coordinator, schema=BOTH, stages=[first, *LAYERS])
    assert status == 201, made
    status, problem = create(coordinator, name="other", stages=[first, *LAYERS])
    assert (status, problem["code"]) == (422, "program.invalid")
    assert "outcomes" in problem["detail"]


def test_a_level_that_few_sites_have_is_no_smaller_cohort(coordinator: Coordinator) -> None:
    few = {"algorithm": "moments", "parameters": {"min_sites": 4}}
    status, problem = create(coordinator, schema=BOTH, stages=[few, *LAYERS])
    assert (status, problem["code"]) == (422, "program.invalid")
    assert "set parameters.min_sites to at least 5" in problem["detail"]
    lower = {"differential_privacy": False, "min_cohort": 4}
    status, made = create(coordinator, schema=BOTH, stages=[few, *LAYERS], privacy=lower)
    assert status == 201, made

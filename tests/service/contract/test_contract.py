"""The contract matches the coordinator: published, complete, and valid for every answer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from service import sample
from service.contract.document import TAGS, document
from service.contract.examples import EXAMPLES
from service.contract.links import LINKS
from service.export_contract import exported
from tests.service.coordinator import Coordinator

PUBLISHED = Path(__file__).parents[3] / "openapi" / "openapi.json"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    document = json.loads(PUBLISHED.read_text())
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_published_contract_is_that_of_the_application() -> None:
    assert PUBLISHED.read_text() == exported(), "run: make contract"


@pytest.mark.parametrize(
    "operation", [pytest.param(each, id=each["operationId"]) for *_, each in operations()]
)
def test_an_operation_says_what_it_is_for_who_uses_it_and_what_can_go_wrong(
    operation: dict[str, Any],
) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert set(operation["tags"]) <= set(TAGS)
    body = operation.get("requestBody", {"content": {}})["content"].values()
    required = [each for each in operation.get("parameters", ()) if each["required"]]
    if required or body:
        assert all(each.keys() & {"example", "examples"} for each in [*required, *body])
    else:
        (answer,) = operation["responses"]["200"]["content"].values()
        assert answer["example"]
    assert all(response["description"] for response in operation["responses"].values())
    assert ("401" in operation["responses"]) == ("security" in operation)


def test_a_problem_is_described_once_and_each_operation_names_its_codes() -> None:
    components = json.loads(PUBLISHED.read_text())["components"]
    known = components["schemas"]["ProblemCode"]
    assert known["enum"] == [*known["x-enumDescriptions"]]
    assert all(known["x-enumDescriptions"].values())
    named = set()
    for *_, operation in operations():
        problems = {s: own for s, own in operation["responses"].items() if int(s) >= 400}
        assert problems.keys() == operation["x-problems"].keys()
        for status, response in problems.items():
            assert response["$ref"] == f"#/components/responses/Problem{status}"
            assert operation["x-problems"][status]
            named.update(operation["x-problems"][status])
    assert named == {*known["enum"]}


def test_a_page_of_the_console_says_what_each_code_means(coordinator: Coordinator) -> None:
    page = coordinator.request("GET", "/docs/problems")
    assert page.status_code == 200
    for code in json.loads(PUBLISHED.read_text())["components"]["schemas"]["ProblemCode"]["enum"]:
        assert f'id="{code}"' in page.text


def test_every_operation_id_is_camel_case_and_unique() -> None:
    identifiers = [each["operationId"] for *_, each in operations()]
    for identifier in identifiers:
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", identifier), identifier
    assert len(set(identifiers)) == len(identifiers)


def test_a_route_without_an_operation_id_is_refused() -> None:
    """No id is generated: a rename in the code must not rename methods of generated clients."""

    def show_text() -> str:
        return "text"

    with pytest.raises(ValueError, match="/texts must declare an operation_id"):
        document([APIRoute("/texts", show_text)])


def test_examples_and_links_are_of_operations_that_exist() -> None:
    identifiers = {each["operationId"] for *_, each in operations()}
    assert set(EXAMPLES) == identifiers
    assert set(LINKS) <= identifiers


def test_nothing_in_the_contract_is_an_object_of_unknown_fields() -> None:
    """But for what a person names: columns of a table, and Open Inference's parameters."""
    document = json.loads(PUBLISHED.read_text())
    assert {*_untyped(document["paths"], ""), *_untyped(document["components"], "")} == set()


def _untyped(plain: Any, where: str) -> Iterator[str]:
    """Yield the places of schemas that say nothing about a value or an object's fields."""
    if isinstance(plain, list):
        for index, each in enumerate(plain):
            yield from _untyped(each, f"{where}/{index}")
    if not isinstance(plain, dict):
        return
    bare = plain.get("type") == "object" and not plain.keys() & {"properties", "patternProperties"}
    if plain.get("additionalProperties") is True or (
        bare and not isinstance(plain.get("additionalProperties"), dict)
    ):
        yield where
    for key, each in plain.items():
        if key in ("items", "additionalProperties") and each == {}:
            yield f"{where}/{key}"
        if key not in ("example", "examples", "default", "links"):
            yield from _untyped(each, f"{where}/{key}")


def test_links_lead_to_operations_with_parameters_of_theirs() -> None:
    parameters = {
        each["operationId"]: {parameter["name"] for parameter in each.get("parameters", ())}
        for *_, each in operations()
    }
    links = [
        link
        for *_, each in operations()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(links) > 20
    for link in links:
        assert set(link.get("parameters", ())) <= parameters[link["operationId"]]


def test_what_needs_an_id_is_led_to_by_what_gives_it() -> None:
    led_to = {
        link["operationId"]
        for *_, each in operations()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    }
    alone = {each["operationId"] for path, _, each in operations() if "{" in path} - led_to
    assert alone == {
        "storePublicSet",  # the request chooses the name itself
        "readInvitation",  # the link is sent by mail or phone
    }


def test_no_two_paths_differ_by_the_name_of_a_parameter_alone() -> None:
    paths = [*json.loads(PUBLISHED.read_text())["paths"]]
    assert len({re.sub(r"{\w+}", "{}", path) for path in paths}) == len(paths)


def test_every_example_of_admins_and_callers_succeeds_with_the_sample(
    coordinator: Coordinator,
) -> None:
    with coordinator.context.database.changing() as connection:
        sample.seed(connection, now=coordinator.clock())
    document = coordinator.request("GET", "/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation.get("security") == [{"member": []}]:
                continue
            if operation["operationId"] == "readInvitation":
                continue  # an invitation's secret is shown once, also that of the sample
            parameters = operation.get("parameters", ())
            values = {each["name"]: each["example"] for each in parameters if each["in"] == "path"}
            content = operation.get("requestBody", {}).get("content", {})
            json_content = content.get("application/json", {})
            named = [each["value"] for each in json_content.get("examples", {}).values()]
            for body in named or [json_content.get("example")]:
                answer = coordinator.admin(method.upper(), path.format(**values), body)
                assert answer.is_success, (operation["operationId"], answer.text)


def test_the_sample_is_put_once(coordinator: Coordinator) -> None:
    for _ in range(2):
        with coordinator.context.database.changing() as connection:
            sample.seed(connection, now=coordinator.clock())
    names = [each["name"] for each in coordinator.admin("GET", "/sessions").json()]
    assert sorted(set(names)) == sorted(names)
    run = coordinator.admin("GET", f"/runs/{sample.RUN}").json()
    assert (run["status"], run["progress"]["algorithm"]) == ("done", "evaluation")
    open_run = coordinator.admin("GET", f"/runs/{sample.OPEN_RUN}").json()
    assert sorted(open_run["waiting_for"]) == sorted(sample.HOSPITALS)

"""Schemathesis over the whole contract: no crash, no undocumented answer, no ignored authorisation.

Every answer's status, media type and body match the contract, including the code of a problem.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks
from schemathesis.python import asgi
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.long_poll import MAX_WAIT_S
from service.routes import events
from tests.service.contract.contract_fuzzing import SIGN_HERE, TOKEN_HERE, Beginning
from tests.service.contract.test_contract import PUBLISHED


def stated_code(context: Any, response: Any, case: Any) -> None:
    """Check that the operation names the code of its problem."""
    codes = case.operation.definition.raw["x-problems"].get(str(response.status_code))
    if codes is not None and response.json()["code"] not in codes:
        raise AssertionError(f"the operation does not name the code {response.json()['code']}")


CHECKS = [
    stated_code,
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
    checks.unsupported_method,
]
# The same cases in every run: a change must not fail by chance.
SETTINGS = settings(
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Later:
    """Creates the application when the first case runs, not when cases are collected."""

    application: ASGIApp
    beginning: Beginning

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.application(scope, receive, send)


def with_few_kinds() -> dict[str, Any]:
    """Return the contract with few of the columns, kernels and stages that a session may state.

    To make up sessions with any of them takes longer than all other cases together, and
    `tests.service.contract.test_program_schemas` damages every one.
    """
    document: dict[str, Any] = json.loads(PUBLISHED.read_text())
    schemas = document["components"]["schemas"]
    few = {"Kernel": ("RbfKernel",), "Stage": ("MomentsStage", "LinearStage")}
    stated = json.dumps(schemas["NewSession"])
    for union, kept in few.items():
        where = "#/components/schemas/"
        schemas[f"Few{union}s"] = {"oneOf": [{"$ref": where + name} for name in kept]}
        stated = stated.replace(f'"{where}{union}"', f'"{where}Few{union}s"')
    schemas["NewSession"] = json.loads(stated)
    targets = schemas["TableSchema"]["properties"]["targets"]["items"]
    targets["oneOf"] = targets["oneOf"][:2]
    return document


contract = schemathesis.openapi.from_dict(with_few_kinds())
contract.app = Later()


@contract.auth(refresh_interval=None)
class Authorised:
    def get(self, case: Any, context: Any) -> str | None:
        security = context.operation.definition.raw.get("security", [])
        if not security:
            return None
        return SIGN_HERE if security == [{"member": []}] else TOKEN_HERE

    def set(self, case: Any, data: str | None, context: Any) -> None:
        if data is not None:
            case.headers["Authorization"] = data


def impatient(case: Any) -> Any:
    """Make all waits short; other tests cover their lengths."""
    wait = case.query.get("wait") if isinstance(case.query, dict) else None
    if isinstance(wait, int | float) and 0 < wait <= MAX_WAIT_S:
        case.query["wait"] = 0
    return case


@pytest.fixture(scope="module", autouse=True)
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    contract.app.beginning = beginning = Beginning(tmp_path_factory.mktemp("beginning"))
    contract.app.application = beginning.application(tmp_path_factory.mktemp("fuzzed"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events, "LONGEST_S", 0.01)  # otherwise following an open run takes an hour
        patched.setattr(events, "LOOK_AGAIN_S", 0.01)
        yield
    asgi.shutdown_lifespans()


@contract.parametrize()
@SETTINGS
def test_every_operation_answers_as_the_contract_says(case: Any) -> None:
    impatient(case).call_and_validate(checks=CHECKS)


class Workflows(contract.as_state_machine()):
    """Sequences of operations along the contract's links.

    Each sequence has its own coordinator: the next operation depends on the answers, and the same
    choices must get the same answers, or hypothesis reports the test as flaky.
    """

    def setup(self) -> None:
        asgi.shutdown_lifespans()
        self._shared = contract.app.application
        self._directory = TemporaryDirectory()
        contract.app.application = contract.app.beginning.application(Path(self._directory.name))

    def teardown(self) -> None:
        asgi.shutdown_lifespans()
        self._directory.cleanup()
        contract.app.application = self._shared

    def before_call(self, case: Any) -> None:
        impatient(case)

    def validate_response(self, response: Any, case: Any, **more: Any) -> None:
        case.validate_response(response, checks=CHECKS)


class TestWorkflows(Workflows.TestCase):
    settings = settings(SETTINGS, max_examples=15, stateful_step_count=8)

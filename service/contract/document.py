"""The contract as an OpenAPI document, built from FastAPI's routes and their declarations.

FastAPI provides paths, parameters and responses. The rest is collected from
`service.http.declarations` along the dependencies of each route: bodies, required credentials, and
every problem by status and code. Examples and links come from `service.contract.examples` and
`service.contract.links`, by operation id. Generated clients take their method names from these
ids, so each route declares its own
(`operation_id="createSession"`): renaming a file or a function changes nothing for clients.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from kernels.rounds.program import Program
from service.contract import problem_responses
from service.contract.dataclass_schemas import Json
from service.contract.docstrings import described
from service.contract.examples import EXAMPLES
from service.contract.links import LINKS
from service.contract.model_schemas import model_schemas
from service.contract.program_schemas import program_schemas
from service.errors import ProtocolMismatch, ServiceError
from service.http.declarations import ADMIN, CALLER, MEMBER, declarations_of
from service.http.problems import CODES, Error

_REFERENCE = "#/components/schemas/{model}"

DESCRIPTION = """\
Hospitals train one Gaussian process together; the coordinator only ever sees sums.

Admins and callers authenticate with a token (*Authorize*). Hospitals sign each request with the \
SDK; their operations are documented here but cannot be tried out. If the coordinator was started \
with `veilgp serve --sample`, the examples of all other operations work unchanged.

A refused request is answered with a problem that has a stable `code`; all codes are explained \
in one [list](/docs/problems).
"""

TAGS = {
    "admins: sessions": "Define what is computed, on which columns, under which terms.",
    "admins: members": "Invite hospitals, compare fingerprints by phone, approve members.",
    "admins: runs": "Start, watch and cancel runs.",
    "admins: models": "List models, set aliases, delete models.",
    "admins: callers": "Manage tokens for prediction requests.",
    "admins: public sets": "Store public tables for distillation and ensembles.",
    "callers": "Request predictions and download models.",
    "members: joining": "Enrol a hospital's key and read the session. Signed requests.",
    "members: rounds": "Receive the next item and answer it. Signed requests.",
    "anyone": "Read the supported protocol versions.",
    "operators": "Health, readiness and metrics, for probes and dashboards.",
}
"""The tags and their descriptions, in the order of use."""

SECURITY: Json = {
    ADMIN: {
        "type": "http",
        "scheme": "bearer",
        "description": "`vgp_admin_…`: printed once, when the coordinator is first started.",
    },
    CALLER: {
        "type": "http",
        "scheme": "bearer",
        "description": "`vgp_caller_…`: shown once, to the admin who creates it.",
    },
    MEMBER: {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": 'A signed request: `Veilgp key="…", time="…", nonce="…", digest="…", '
        'signature="…"`, in hexadecimal digits, with the time in milliseconds since 1970. The '
        "Ed25519 signature covers method, host, path with query, time, nonce and the SHA-256 of "
        "the body; it is valid for one request and for five minutes.",
    },
}


def document(routes: Sequence[APIRoute]) -> Json:
    """Return the contract of these routes; each needs a declared `operation_id`."""
    shown = [route for route in routes if route.include_in_schema]
    for route in shown:
        if route.operation_id is None:
            raise ValueError(f"the route {route.path_format} must declare an operation_id")
    plain: Json = get_openapi(
        title="veilgp",
        version=version("veilgp"),
        description=DESCRIPTION,
        routes=routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    schemas: Json = plain["components"]["schemas"]
    for frameworks_own in ("HTTPValidationError", "ValidationError"):
        schemas.pop(frameworks_own, None)
    schemas.update(_bodies(routes))
    schemas.update(program_schemas())
    schemas.update(model_schemas())
    stated = schemas["NewSession"]["properties"]
    for name in stated.keys() & {"max_rows", "held_out", "least_rows"}:
        stated[name]["description"] = described(Program).parts[name]
    plain["components"]["securitySchemes"] = SECURITY
    paths, plain["paths"] = plain["paths"], {}
    codes = list[problem_responses.Codes]()
    # In the order of the routes, which is the order of use; FastAPI's order within a path differs.
    for route in shown:
        for method in sorted(route.methods or ()):
            operation = paths[route.path_format][method.lower()]
            codes.append(_complete(operation, route))
            plain["paths"].setdefault(route.path_format, {})[method.lower()] = operation
    all_codes = problem_responses.united(codes)
    plain["components"]["responses"] = problem_responses.responses(all_codes)
    schemas.update(problem_responses.schemas(all_codes))
    plain["components"]["schemas"] = dict(sorted(schemas.items()))
    return plain


def _complete(operation: Json, route: APIRoute) -> problem_responses.Codes:
    """Add what the route declares, and return the codes of its problems."""
    identifier = operation["operationId"]
    everything = list(declarations_of(route.dependant))
    errors: set[type[Error]] = {ProtocolMismatch}
    for each in everything:
        errors.update(_with_subclasses(each.errors))
        if each.security:
            operation["security"] = [{scheme: []} for scheme in each.security]
        if each.body is not None:
            reference = {"$ref": _REFERENCE.format(model=each.body.__name__)}
            content = {"application/json": {"schema": reference}}
            operation["requestBody"] = {"required": True, "content": content}
    responses = operation["responses"]
    # FastAPI's own 422 is replaced: whether it can occur, and its form, is decided here.
    responses.pop("422", None)
    may_misfit = any(each.body for each in everything) or any(
        parameter["schema"].keys() - {"title", "type"} or parameter["schema"]["type"] != "string"
        for parameter in operation.get("parameters", ())
    )
    codes = problem_responses.codes_of(errors, may_misfit=may_misfit)
    responses.update(problem_responses.referred(codes))
    operation[CODES] = {str(status): [*own] for status, own in codes.items()}
    _exemplify(operation, identifier)
    for link in LINKS.get(identifier, ()):
        responses[link.status].setdefault("links", {})[link.operation] = {
            "operationId": link.operation,
            **({"parameters": link.parameters} if link.parameters else {}),
            **({"requestBody": link.body} if link.body is not None else {}),
        }
    return codes


def _exemplify(operation: Json, identifier: str) -> None:
    example = EXAMPLES.get(identifier)
    if example is None:
        return
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
    if example.body is not None:
        for content in operation["requestBody"]["content"].values():
            content["example"] = example.body
    if example.bodies:
        for content in operation["requestBody"]["content"].values():
            content["examples"] = {
                name: {"summary": about, "value": body}
                for name, (about, body) in example.bodies.items()
            }
    if example.answer is not None:
        for content in operation["responses"]["200"]["content"].values():
            content["example"] = example.answer


def _bodies(routes: Sequence[APIRoute]) -> Json:
    kinds = {
        each.body for route in routes for each in declarations_of(route.dependant) if each.body
    }
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in ordered], ref_template=_REFERENCE
    )
    definitions: Json = schemas["$defs"]
    return definitions


def _with_subclasses(errors: Sequence[type[Error]]) -> Iterator[type[Error]]:
    for error in errors:
        yield error
        # The coordinator's errors are declared one by one: a route that raises `NotAllowed` does
        # not raise `MemberPending`.
        if not issubclass(error, ServiceError):
            yield from _with_subclasses(error.__subclasses__())

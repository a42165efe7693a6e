"""Declarations of routes and their dependencies, next to the code that they describe.

Each declares the errors that it may raise; a dependency also declares the credentials it needs or
the body it reads. A dependency's declaration, such as that of an admin's token, applies to every
route that uses it. The contract is built from the declarations (`service.contract.document`), and
they determine which requests are timed (`service.http.metrics`).

    @declares(NotFound, NameTaken)
    def create(...)
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, WithJsonSchema

from service.http.problems import Error

P = ParamSpec("P")
R = TypeVar("R")

_NAME = "__declared__"

ADMIN, CALLER, MEMBER = "admin", "caller", "member"
"""The names of the contract's security schemes."""

BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}
"""The schema of binary data."""

BINARY_CONTENT: Mapping[str, Any] = {"application/octet-stream": {"schema": dict(BINARY)}}
"""The content of a binary body or answer."""


def described_as(name: str) -> WithJsonSchema:
    """Return the annotation of a value whose schema the contract adds by this name.

    Within `allOf`, because pydantic looks up any other reference among its own schemas.
    """
    return WithJsonSchema({"allOf": [{"$ref": f"#/components/schemas/{name}"}]})


@dataclass(frozen=True)
class Declaration:
    """Errors that may be raised, security schemes of which one is needed, the JSON that is read."""

    errors: tuple[type[Error], ...] = ()
    security: tuple[str, ...] = ()
    body: type[BaseModel] | None = None


def declares(
    *errors: type[Error], security: tuple[str, ...] = (), body: type[BaseModel] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Attach a declaration; an error of `kernels` or `privacy` includes its subclasses."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        vars(function)[_NAME] = Declaration(errors, security, body)
        return function

    return decorate


def declarations_of(dependant: Dependant) -> Iterator[Declaration]:
    """Yield the declarations of a route's dependant and of all its dependencies."""
    found: Declaration | None = getattr(dependant.call, _NAME, None)
    if found is not None:
        yield found
    for each in dependant.dependencies:
        yield from declarations_of(each)

"""What a route, or one of its dependencies, declares of itself where it is written.

Each declares which errors it may raise; a dependency also who may ask, or which body it reads. What
is declared once, of an admin's token for instance, holds for every route that needs one. The
contract is made from it (`service.contract.document`), and which requests are timed
(`service.http.metrics`).

    @declares(NotFound, NameTaken)
    def create(...)
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from fastapi.dependencies.models import Dependant
from pydantic import BaseModel

from service.http.problems import Error

P = ParamSpec("P")
R = TypeVar("R")

_NAME = "__declared__"

ADMIN, CALLER, MEMBER = "admin", "caller", "member"
"""The schemes of the contract by which a request shows who asks."""

BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}
"""The schema of what is no JSON."""

BINARY_CONTENT: Mapping[str, Any] = {"application/octet-stream": {"schema": dict(BINARY)}}
"""The content of a body, or an answer, that is no JSON."""


@dataclass(frozen=True)
class Declaration:
    """Errors that may be raised, schemes of which one lets in, the JSON that is read."""

    errors: tuple[type[Error], ...] = ()
    security: tuple[str, ...] = ()
    body: type[BaseModel] | None = None


def declares(
    *errors: type[Error], security: tuple[str, ...] = (), body: type[BaseModel] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare it; an error of `kernels` or `privacy` stands for its subclasses too."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        vars(function)[_NAME] = Declaration(errors, security, body)
        return function

    return decorate


def declarations_of(dependant: Dependant) -> Iterator[Declaration]:
    """Yield what a route, by its dependant, and everything that it depends on declare."""
    found: Declaration | None = getattr(dependant.call, _NAME, None)
    if found is not None:
        yield found
    for each in dependant.dependencies:
        yield from declarations_of(each)

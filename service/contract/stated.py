"""What a function states of itself for the contract, where it is written.

A route, and every dependency that it has, states which errors it may raise; a dependency also who
may ask, or which body it reads. `service.contract.document` collects it along the tree of
dependencies: what is stated once, of an admin's token for instance, holds for every operation that
needs one.

    @states(NotFound, NameTaken)
    def create(...)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

from service.http.problems import Error

P = ParamSpec("P")
R = TypeVar("R")

_NAME = "__stated__"

BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}
"""The schema of what is no JSON."""

OCTETS: Mapping[str, Any] = {"application/octet-stream": {"schema": dict(BINARY)}}
"""The content of a body, or an answer, that is no JSON."""


@dataclass(frozen=True)
class Stated:
    """Errors that may be raised, schemes of which one lets in, the JSON that is read."""

    errors: tuple[type[Error], ...] = ()
    security: tuple[str, ...] = ()
    body: type[BaseModel] | None = None


def states(
    *errors: type[Error], security: tuple[str, ...] = (), body: type[BaseModel] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """State it; an error of `kernels` or `privacy` stands for its subclasses too."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        vars(function)[_NAME] = Stated(errors, security, body)
        return function

    return decorate


def stated(function: Callable[..., Any] | None) -> Stated:
    """Give what a function states, which may be nothing."""
    found: Stated = getattr(function, _NAME, Stated())
    return found

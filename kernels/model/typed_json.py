"""Strict conversion of frozen dataclasses to JSON and back, by the annotated types of their fields.

A document that is read is not trusted: every object must have exactly the fields of its dataclass,
and every value the type of its field. A schema, kernel or standardiser is read by its own
`from_json`.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin

from kernels.errors import ArtifactError
from kernels.features.spec import KernelSpec
from kernels.strict_json import (
    MOST_INTEGER,
    as_declared,
    encode_json,
    is_flag,
    is_number,
    is_text,
    parse_json,
)
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_INTEGER


_DOCUMENTS = Schema, KernelSpec, Standardiser
_LEAVES: Mapping[Any, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        bool: (is_flag, "true or false"),
        int: (_is_count, "an integer of at least 0"),
        float: (is_number, "a finite number"),
        str: (is_text, "text"),
    }
)


def to_plain(value: Any) -> Any:
    """Return a dataclass, with its tuples and leaves, as JSON types."""
    if isinstance(value, _DOCUMENTS):
        # Not json.loads: it reads the float 1e17, written without a point, as an integer.
        return parse_json(value.to_json(), type(value).__name__, [])
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return [to_plain(each) for each in value] if isinstance(value, tuple) else value


def from_plain(kind: Any, plain: Any, where: str) -> Any:
    """Build a value of the annotated type `kind` from JSON; `where` locates errors."""
    if kind in _DOCUMENTS:
        return kind.from_json(_text(plain, where))
    if isinstance(kind, UnionType):
        return None if plain is None else from_plain(get_args(kind)[0], plain, where)
    if get_origin(kind) is tuple:
        if not isinstance(plain, list):
            raise ArtifactError(f"{where} must be a list")
        return tuple(
            from_plain(get_args(kind)[0], each, f"{where}[{i}]") for i, each in enumerate(plain)
        )
    if isinstance(kind, type) and is_dataclass(kind):
        types = {field.name: field.type for field in fields(kind)}
        if not isinstance(plain, dict) or plain.keys() != types.keys():
            raise ArtifactError(f"{where} must be an object with the fields {', '.join(types)}")
        return kind(**{n: from_plain(types[n], own, f"{where}.{n}") for n, own in plain.items()})
    fits, what = _LEAVES[kind]
    if not fits(plain):
        raise ArtifactError(f"{where} must be {what}")
    return as_declared(kind, plain)


def _text(plain: object, where: str) -> str:
    try:
        return encode_json(plain)
    except ValueError as problem:  # NaN, which Python's reader accepts as JSON
        raise ArtifactError(f"{where} contains NaN or infinite values") from problem

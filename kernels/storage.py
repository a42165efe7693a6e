"""State as plain bytes: what a coordinator stores after each update, and what it broadcasts.

A state is a frozen dataclass of numbers, text, tensors and further frozen dataclasses. Its bytes
are a safetensors file: the tensors, named "0", "1", …, and the canonical JSON tree (RFC 8785) that
refers to them.
`decode` builds only the dataclasses that it is given, each by its constructor, which checks its
fields; nothing else in the bytes has an effect. Fields marked PRIVATE stay with the coordinator:
they are None in a broadcast.

The bytes are canonical: equal states have equal bytes, on every machine and in every process, and
so do a state and what `decode` makes of its bytes. Zero is stored without a sign.

A dataclass is identified in the bytes by its `STORED_AS`, a short name, so that moving or renaming
a file or a class changes neither what is sent nor a model's id. Bytes of another FORMAT, or with
other fields, are refused with `OtherFormat`: nothing is guessed.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from kernels.errors import KernelsError, OtherFormat, StateError
from kernels.strict_json import as_declared, encode_json, parse_json

PRIVATE = MappingProxyType({"private": True})
"""Metadata of a field that stays with the coordinator and is None in a broadcast."""

FORMAT = 3
"""The version of the tree. Format 1 named classes by their modules, and format 2 was Python's JSON:
since format 3 the tree is canonical by RFC 8785, so that its digest is any implementation's."""

_TREE = "tree"


def encode(state: object, *, broadcast: bool = False) -> bytes:
    """Return the bytes of a state: all of it, or only what hospitals may see (`broadcast`)."""
    tensors: dict[str, Tensor] = {}
    content = _plain(state, tensors, broadcast=broadcast)
    try:
        tree = encode_json({"format": FORMAT, "content": content})
    except ValueError as problem:
        raise StateError(f"this state cannot be stored: {problem}") from problem
    raw = torch.from_numpy(np.frombuffer(tree.encode(), dtype=np.uint8).copy())
    return safetensors.torch.save({_TREE: raw, **tensors})


def decode(data: bytes, kinds: Mapping[str, type]) -> Any:
    """Build a state from untrusted bytes, using only the dataclasses in `kinds`, by stored name."""
    try:
        tensors = safetensors.torch.load(data)
        text = tensors.pop(_TREE).numpy().tobytes().decode()
    except (
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as problem:
        raise StateError(
            "these bytes are not a stored state: they are damaged, or something else; get them "
            "again from where they were stored"
        ) from problem
    wrong: list[str] = []
    tree: Any = parse_json(text, "the tree", wrong, refuse_nan=True)
    if wrong:
        raise StateError(
            f"these bytes are not a stored state: {wrong[0]}; get them again from where they were "
            "stored"
        )
    written = tree.get("format", 1) if isinstance(tree, dict) else None
    if written != FORMAT:
        raise OtherFormat(
            f"these bytes have storage format {written!r:.20}, and this version of veilgp reads "
            f"only format {FORMAT}: read them with the version that wrote them, or train the model "
            "again"
        )
    try:
        return _built(tree["content"], tensors, kinds)
    except (AttributeError, TypeError, KeyError, RecursionError) as problem:
        raise StateError(
            "these bytes do not contain a state that this version of veilgp knows: read them with "
            "the version that wrote them"
        ) from problem


def check_tensor(name: str, value: object, shape: tuple[int, ...]) -> None:
    """Refuse a value that is not a finite float64 tensor of shape `shape`."""
    if not isinstance(value, Tensor) or value.dtype != torch.float64 or value.shape != shape:
        raise StateError(f"{name} must be a float64 tensor of shape {shape}")
    if not torch.isfinite(value).all():
        raise StateError(f"{name} contains NaN or infinite values")


def check_rows(value: object) -> None:
    """Refuse a value that is not a number of rows of at least 1."""
    if type(value) is not int or value < 1:
        raise StateError(f"a number of rows must be an integer of at least 1, not {value!r:.40}")


def stored_as(kind: type) -> str:
    """Return the name under which a dataclass is stored; one without its own name is refused."""
    name = vars(kind).get("STORED_AS")
    if not isinstance(name, str):
        raise StateError(f"{kind.__name__} cannot be stored: define STORED_AS in this class")
    return name


def kinds_of(*kinds: type) -> Mapping[str, type]:
    """Return the `kinds` of `decode` for these dataclasses; their stored names must differ."""
    named = {stored_as(kind): kind for kind in kinds}
    if len(named) != len(set(kinds)):
        raise StateError("two of these classes have the same STORED_AS: give each its own name")
    return named


def _plain(value: object, tensors: dict[str, Tensor], *, broadcast: bool) -> object:
    if isinstance(value, float) and value == 0:
        return 0.0
    if value is None or (
        isinstance(value, bool | int | float | str) and not isinstance(value, Enum)
    ):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, tensors, broadcast=broadcast)
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = _canonical(value)
        return {"tensor": name}
    if isinstance(value, tuple | list):
        return [_plain(each, tensors, broadcast=broadcast) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        document = {
            each.name: None
            if broadcast and each.metadata.get("private")
            else _plain(getattr(value, each.name), tensors, broadcast=broadcast)
            for each in fields(value)
        }
        return {"kind": stored_as(type(value)), "fields": document}
    raise StateError(f"a state must consist of plain data, not of a {type(value).__name__}")


def _canonical(value: Tensor) -> Tensor:
    """Return a contiguous copy without negative zeros."""
    plain = value.detach().contiguous()
    return plain + 0.0 if plain.is_floating_point() else plain.clone()


def _built(tree: object, tensors: Mapping[str, Tensor], kinds: Mapping[str, type]) -> Any:
    if isinstance(tree, list):
        return tuple(_built(each, tensors, kinds) for each in tree)
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    kind = kinds[tree["kind"]]
    if set(tree["fields"]) != {each.name for each in fields(kind)}:
        raise OtherFormat(
            f"these bytes contain a {tree['kind']} whose fields this version of veilgp does not "
            "read: read them with the version that wrote them, or train the model again"
        )
    types = {each.name: each.type for each in fields(kind)}
    values = {
        name: as_declared(types[name], _built(each, tensors, kinds))
        for name, each in tree["fields"].items()
    }
    try:
        return kind(**values)
    except KernelsError:
        raise
    except (TypeError, ValueError, AttributeError) as problem:
        raise StateError(f"these bytes contain an invalid {tree['kind']}") from problem

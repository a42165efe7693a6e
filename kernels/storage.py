"""State as plain bytes: what a coordinator stores after each update, and what it broadcasts.

A state is a frozen dataclass of numbers, text, tensors and other such dataclasses. Its bytes are a
safetensors file: the tensors under numbers, and the tree that holds them as JSON. Only dataclasses
that are named to `decode` are ever built, each by its own constructor, which checks them; nothing
else in the bytes has an effect. Fields marked PRIVATE stay with the coordinator: they are None in a
broadcast.

A dataclass stands in the bytes under its `STORED_AS`, a short name of its own, so that moving or
renaming a file or a class changes neither what is on the wire nor a model's id. Bytes of another
FORMAT, or with other fields, are refused by name: nothing is guessed.
"""

import json
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

PRIVATE = MappingProxyType({"private": True})
"""Metadata of a field that stays with the coordinator: None in a broadcast."""

FORMAT = 2
"""Of the tree. Format 1, before `STORED_AS`, named classes by their modules."""

_TREE = "tree"


def encode(state: object, *, broadcast: bool = False) -> bytes:
    """Return the bytes of a state: all of it, or what hospitals may see of it."""
    tensors: dict[str, Tensor] = {}
    content = _plain(state, tensors, broadcast=broadcast)
    tree = json.dumps({"format": FORMAT, "content": content}, sort_keys=True, allow_nan=False)
    raw = torch.from_numpy(np.frombuffer(tree.encode(), dtype=np.uint8).copy())
    return safetensors.torch.save({_TREE: raw, **tensors})


def decode(data: bytes, kinds: Mapping[str, type]) -> Any:
    """Build a state from bytes that are not trusted, of the dataclasses in `kinds` by name."""
    try:
        tensors = safetensors.torch.load(data)
        tree = json.loads(bytes(tensors.pop(_TREE).numpy().tobytes()))
    except (
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as problem:
        raise StateError("these bytes are not a state: they are damaged or of another kind") from (
            problem
        )
    written = tree.get("format", 1) if isinstance(tree, dict) else None
    if written != FORMAT:
        raise OtherFormat(
            f"these bytes are of storage format {written!r:.20}, and this veilgp reads format "
            f"{FORMAT} only: read them with the veilgp that wrote them, or train the model again"
        )
    try:
        return _built(tree["content"], tensors, kinds)
    except (AttributeError, TypeError, KeyError, RecursionError) as problem:
        raise StateError("these bytes hold no state that this version knows") from problem


def check_tensor(name: str, value: object, shape: tuple[int, ...]) -> None:
    """Refuse what is not a finite float64 tensor of this shape."""
    if not isinstance(value, Tensor) or value.dtype != torch.float64 or value.shape != shape:
        raise StateError(f"{name} must be a float64 tensor of shape {shape}")
    if not torch.isfinite(value).all():
        raise StateError(f"{name} is not finite")


def check_rows(value: object) -> None:
    """Refuse what is not a count of at least one row."""
    if type(value) is not int or value < 1:
        raise StateError(f"a number of rows is a whole number of at least 1, not {value!r:.40}")


def stored_as(kind: type) -> str:
    """Return the name that a dataclass is stored under; one that has none of its own is refused."""
    name = vars(kind).get("STORED_AS")
    if not isinstance(name, str):
        raise StateError(f"{kind.__name__} is not a stored kind: it has no STORED_AS of its own")
    return name


def kinds_of(*kinds: type) -> Mapping[str, type]:
    """Return a mapping for `decode` that allows these dataclasses, each under a name of its own."""
    named = {stored_as(kind): kind for kind in kinds}
    if len(named) != len(set(kinds)):
        raise StateError("two stored kinds have the same STORED_AS")
    return named


def _plain(value: object, tensors: dict[str, Tensor], *, broadcast: bool) -> object:
    if value is None or (
        isinstance(value, bool | int | float | str) and not isinstance(value, Enum)
    ):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, tensors, broadcast=broadcast)
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
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
    raise StateError(f"a state holds plain data, not a {type(value).__name__}")


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
            f"these bytes hold a {tree['kind']} with other fields than this veilgp's: read them "
            "with the veilgp that wrote them, or train the model again"
        )
    values = {name: _built(each, tensors, kinds) for name, each in tree["fields"].items()}
    try:
        return kind(**values)
    except KernelsError:
        raise
    except (TypeError, ValueError, AttributeError) as problem:
        raise StateError(f"a {tree['kind']} in these bytes is not one") from problem

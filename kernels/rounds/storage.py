"""State as plain bytes: what a coordinator stores after each update, and what it broadcasts.

A state is a frozen dataclass of numbers, text, tensors and other such dataclasses. Its bytes are a
safetensors file: the tensors under numbers, and the tree that holds them as JSON. Only dataclasses
that are named to `decode` are ever built, each by its own constructor, which checks them; nothing
else in the bytes has an effect. A field that has a default may be absent, so that what was stored
before there was such a field is still read. Fields marked PRIVATE stay with the coordinator: they
are None in a broadcast.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from kernels.errors import KernelsError, StateError

PRIVATE = MappingProxyType({"private": True})
"""Metadata of a field that stays with the coordinator: None in a broadcast."""

_TREE = "tree"
_DAMAGED = (safetensors.SafetensorError, KeyError, TypeError, ValueError, RecursionError)


def encode(state: object, *, broadcast: bool = False) -> bytes:
    """Return the bytes of a state: all of it, or what hospitals may see of it."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_plain(state, tensors, broadcast), sort_keys=True, allow_nan=False)
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
    try:
        return _built(tree, tensors, kinds)
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


def _plain(value: object, tensors: dict[str, Tensor], broadcast: bool) -> object:  # noqa: FBT001
    if value is None or (
        isinstance(value, bool | int | float | str) and not isinstance(value, Enum)
    ):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, tensors, broadcast)
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, tuple | list):
        return [_plain(each, tensors, broadcast) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        document = {
            each.name: None
            if broadcast and each.metadata.get("private")
            else _plain(getattr(value, each.name), tensors, broadcast)
            for each in fields(value)
        }
        return {"kind": _kind(type(value)), "fields": document}
    raise StateError(f"a state holds plain data, not a {type(value).__name__}")


def _built(tree: object, tensors: Mapping[str, Tensor], kinds: Mapping[str, type]) -> Any:
    if isinstance(tree, list):
        return tuple(_built(each, tensors, kinds) for each in tree)
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    kind = kinds[tree["kind"]]
    named: Mapping[str, Field[Any]] = {each.name: each for each in fields(kind)}
    needed = {name for name, each in named.items() if each.default is MISSING}
    if not needed <= set(tree["fields"]) <= set(named):
        raise StateError(f"a {tree['kind']} of another version: its fields are not this one's")
    values = {name: _built(each, tensors, kinds) for name, each in tree["fields"].items()}
    try:
        return kind(**values)
    except KernelsError:
        raise
    except (TypeError, ValueError, AttributeError) as problem:
        raise StateError(f"a {tree['kind']} in these bytes is not one") from problem


def _kind(kind: type) -> str:
    return f"{kind.__module__.removeprefix('kernels.')}.{kind.__qualname__}"


def kinds_of(*kinds: type) -> Mapping[str, type]:
    """Return a mapping for `decode` that allows these dataclasses."""
    return {_kind(kind): kind for kind in kinds}

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

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
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
    writer = _Writer(broadcast=broadcast)
    tree = _object({"content": writer.text(state), "format": _leaf(FORMAT)})
    raw = torch.from_numpy(np.frombuffer(tree.encode(), dtype=np.uint8).copy())
    return safetensors.torch.save({_TREE: raw, **writer.tensors})


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


class _Writer:
    """Writes the canonical JSON of a tree part by part, and collects its tensors by their names.

    Between two sums most of a state stays the same objects: the schema, which every model in it
    refers to, and the steps so far. Their text is therefore kept as long as they live.
    """

    def __init__(self, *, broadcast: bool) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._broadcast = broadcast
        self._changing = 0
        """How many values were written that may have another text next time."""

    def text(self, value: object) -> str:
        """Return the canonical JSON of a value."""
        if is_dataclass(value) and not isinstance(value, type):
            return self._of_dataclass(value)
        if isinstance(value, Tensor):
            self._changing += 1  # its name is its place in this state
            name = str(len(self.tensors))
            self.tensors[name] = _canonical(value)
            return _object({"tensor": f'"{name}"'})
        if isinstance(value, Enum):
            return self.text(value.value)
        if isinstance(value, tuple | list):
            self._changing += isinstance(value, list)
            return f"[{','.join(map(self.text, value))}]"
        if value is None or isinstance(value, bool | int | float | str):
            return _leaf(value)
        raise StateError(f"a state must consist of plain data, not of a {type(value).__name__}")

    def _of_dataclass(self, value: Any) -> str:
        kind = _kind(value.__class__)
        lasting = kind.frozen and not self._broadcast
        known = _TEXTS.get(value) if lasting else None
        if known is not None:
            return known
        before = self._changing
        # Tensors are numbered in the order of the fields.
        texts = {
            name: _leaf(None)
            if self._broadcast and name in kind.private
            else self.text(getattr(value, name))
            for name in kind.types
        }
        text = _object({"fields": _object(texts), "kind": kind.name})
        if lasting and self._changing == before:
            _TEXTS.keep(value, text)
        self._changing += not kind.frozen
        return text


class _Texts:
    """Texts of objects that never change, by identity: equal ones may be of other types (1, 1.0).

    Nothing here keeps an object alive. A text goes with its object, before another can have its id.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[object], str]] = {}

    def get(self, value: object) -> str | None:
        """Return the text of this very object, if it is known."""
        own, text = self._known.get(id(value), (None, None))
        return text if own is not None and own() is value else None

    def keep(self, value: object, text: str) -> None:
        """Keep the text of an object for as long as it lives."""
        own = weakref.ref(value, partial(self._forget, id(value)))
        self._known[id(value)] = own, text

    def _forget(self, key: int, gone: "weakref.ref[object]") -> None:
        if self._known.get(key, (None,))[0] is gone:
            self._known.pop(key, None)


_TEXTS = _Texts()


def _object(texts: Mapping[str, str]) -> str:
    """Return the canonical object of canonical values; its names are Python's, so not escaped."""
    members = ",".join([f'"{name}":{texts[name]}' for name in sorted(texts)])
    return f"{{{members}}}"


def _leaf(value: object) -> str:
    try:
        return encode_json(value)
    except ValueError as problem:
        raise StateError(f"this state cannot be stored: {problem}") from problem


@dataclass(frozen=True)
class _Kind:
    """How a dataclass is stored.

    name: its stored name, as JSON. types: those of its fields, in order. private: the fields that
    are never broadcast. frozen: whether its instances never change.
    """

    name: str
    types: Mapping[str, Any]
    private: frozenset[str]
    frozen: bool


@cache
def _kind(kind: Any) -> _Kind:
    own = fields(kind)
    return _Kind(
        _leaf(stored_as(kind)),
        {each.name: each.type for each in own},
        frozenset(each.name for each in own if each.metadata.get("private")),
        kind.__dataclass_params__.frozen,
    )


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
    types = _kind(kind).types
    if tree["fields"].keys() != types.keys():
        raise OtherFormat(
            f"these bytes contain a {tree['kind']} whose fields this version of veilgp does not "
            "read: read them with the version that wrote them, or train the model again"
        )
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

"""A state's bytes depend on its values alone, whatever was stored before."""

import gc
import weakref
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import Tensor

from kernels import storage
from kernels.strict_json import encode_json


@dataclass(frozen=True)
class Leaf:
    """Without tensors, and equal to another one whose number is of another type."""

    STORED_AS: ClassVar[str] = "test.leaf"

    zeta: Any
    alpha: Any = ("é", None, -0.0)
    hidden: Any = field(default=None, metadata=storage.PRIVATE)


@dataclass(frozen=True, eq=False)
class Tree:
    """Leaves beside tensors, whose names are their places."""

    STORED_AS: ClassVar[str] = "test.tree"

    leaves: tuple[Any, ...]
    first: Tensor | None = None
    second: Tensor | None = None


@dataclass
class Open:
    """Not frozen: its fields may be set."""

    STORED_AS: ClassVar[str] = "test.open"

    value: Any


def written(state: object, *, broadcast: bool = False) -> str:
    """Return the tree in a state's bytes, which is that of RFC 8785 for the whole of it at once."""
    stored = safetensors.torch.load(storage.encode(state, broadcast=broadcast))
    text = stored.pop("tree").numpy().tobytes().decode()
    tensors: list[Tensor] = []
    whole = {"format": storage.FORMAT, "content": plain(state, tensors, broadcast=broadcast)}
    assert text == encode_json(whole)
    assert stored.keys() == {str(index) for index in range(len(tensors))}
    assert all(torch.equal(stored[str(index)], each) for index, each in enumerate(tensors))
    return text


def plain(value: Any, tensors: list[Tensor], *, broadcast: bool) -> object:
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(value, tuple | list):
        return [plain(each, tensors, broadcast=broadcast) for each in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    content = {
        each.name: None
        if broadcast and each.metadata.get("private")
        else plain(getattr(value, each.name), tensors, broadcast=broadcast)
        for each in fields(value)
    }
    return {"kind": storage.stored_as(type(value)), "fields": content}


def test_equal_objects_of_other_types_keep_their_own_text() -> None:
    assert Leaf(1) == Leaf(True)
    one, true = Leaf(1), Leaf(True)
    for _ in range(2):
        assert written(one) != written(true)
        assert written(Tree((one, true, one))).count("true") == 1


def test_a_part_is_written_alike_wherever_it_is_and_however_often() -> None:
    leaf, number = Leaf(0.5), torch.tensor([1.0])
    inner = Tree((leaf,), second=number)
    for outer in (inner, Tree((inner, leaf), number, number), Tree((leaf, inner, inner))):
        for _ in range(2):
            written(outer)
    assert written(replace(inner, first=number)) != written(inner)


def test_what_was_changed_since_it_was_stored_is_stored_anew() -> None:
    tensor, several, opened = torch.zeros(2), [1, 2], Open(1)
    state = Tree((Leaf(several), Leaf((opened,)), Tree((), tensor)))
    stored = storage.encode(state)
    tensor[0] = 3.0
    assert storage.encode(state) != stored
    before = written(state)
    several.append(3)
    assert written(state) != before
    before = written(state)
    opened.value = 2
    assert written(state) != before


def test_a_private_field_is_not_broadcast_after_it_was_stored() -> None:
    state = Tree((Leaf(1, hidden="for the coordinator"),))
    for _ in range(2):
        assert "for the coordinator" in written(state)
        assert "for the coordinator" not in written(state, broadcast=True)


def test_what_was_stored_is_not_kept_alive() -> None:
    leaf = Leaf(1)
    storage.encode(leaf)
    gone = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert gone() is None
    for number in range(100):  # an object may be at the place of one that is gone
        assert f'"zeta":{number}' in written(Leaf(number))

"""Damage to honest states and programs: every tensor, number, list and field, and the bytes.

A stored state is a tree of JSON and tensors (`kernels.storage`). It is damaged there, so a damaged
state may be anything that a colluding author could send, and not only what our classes accept.
"""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from kernels.errors import KernelsError
from kernels.rounds.registry import _KINDS
from kernels.strict_json import as_declared

NUMBERS: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    -float("inf"),
    1.7e308,
    1e150,
    1e30,
    1e6,
    1e-6,
    1e-30,
    5e-324,
    -5e-324,
    0.0,
    -1.0,
    -1e6,
    -1.7e308,
    0.5,
    2,
    0,
    -1,
    7,
)
OTHERS: tuple[Any, ...] = (None, True, "", "law", [], [[]], {}, [0.0], 2**63, -(2**70), 10**30)
FIXED = frozenset({"schema", "kernel", "spec", "privacy", "max_rows"})
"""Fields that a site compares with the program: damage there is refused, and tried rarely."""

Path = tuple[Any, ...]
Node = tuple[Path, Any]


@dataclass
class Stored:
    """A stored state in pieces."""

    tree: Any
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, data: bytes) -> "Stored":
        """Take an honest state's bytes apart."""
        tensors = safetensors.torch.load(data)
        return cls(json.loads(tensors.pop("tree").numpy().tobytes()), tensors)

    def encode(self) -> bytes:
        """Return the bytes, also of what `kernels.storage` would not write."""
        raw = np.frombuffer(json.dumps(self.tree).encode(), dtype=np.uint8).copy()
        own = {name: value.contiguous() for name, value in self.tensors.items()}
        return safetensors.torch.save({"tree": torch.from_numpy(raw), **own})

    def unchecked(self) -> Any:
        """Return the state as an object that no constructor has checked."""
        return self._built(self.tree["content"])

    def _built(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return tuple(self._built(each) for each in tree)
        if not isinstance(tree, dict):
            return tree
        if "tensor" in tree:
            return self.tensors.get(str(tree["tensor"]))
        kind = _KINDS.get(str(tree.get("kind")))
        if kind is None or not isinstance(tree.get("fields"), dict):
            return tree
        made = object.__new__(kind)
        for each in fields(kind):
            value = self._built(tree["fields"].get(each.name))
            with suppress(KernelsError, ValueError, TypeError, KeyError, AttributeError):
                value = as_declared(each.type, value)
            object.__setattr__(made, each.name, value)
        return made


def damaged_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    own = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(own)) if own else 0
        match chance.randrange(5):
            case 0:
                own[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                own[place : place + 1] = bytes([own[place] ^ (1 << chance.randrange(8))])
            case 2:
                del own[place : place + chance.choice((1, 8, len(own)))]
            case 3:
                own[place:place] = own[place : place + 16]
            case _:
                own[place:place] = chance.randbytes(chance.choice((1, 8)))
        if not own:
            break
    return bytes(own)


def damaged_state(
    honest: Stored, others: Sequence[Stored], chance: random.Random, *, fixed: float = 0.05
) -> tuple[Stored, str]:
    """Damage a state in one to three places; return it, and what was done.

    others: states from which foreign parts are taken. fixed: how often `FIXED` fields are damaged.
    """
    own = Stored(copy.deepcopy(honest.tree), dict(honest.tensors))
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        everywhere = chance.random() < fixed
        nodes = list(_nodes(own.tree["content"], everywhere=everywhere))
        if not nodes:
            break
        # Tensors and parts of the model are few among many numbers.
        wanted = chance.choice(("tensor", "tensor", "leaf", "container"))
        path, node = chance.choice([each for each in nodes if _sort(each[1]) == wanted] or nodes)
        new, how = _other_node(own, node, others, chance, nodes)
        _put(own.tree, ("content", *path), new)
        done.append(f"{'.'.join(str(step) for step in path if step != 'fields')}: {how}")
    return own, "; ".join(done)


def damaged_json(text: str, chance: random.Random) -> tuple[str, str]:
    """Damage a program's text; return it, and what was done."""
    if chance.random() < 0.1:
        return damaged_bytes(text.encode(), chance).decode("utf-8", "replace"), "bytes"
    tree, done = json.loads(text), []
    inside = [name for name in ("schema", "kernel") if isinstance(tree.get(name), str)]
    for name in inside:  # their texts are JSON, too
        with suppress(ValueError):
            tree[name] = json.loads(tree[name])
    for _ in range(chance.choice((1, 1, 2, 3))):
        nodes = list(_nodes(tree, everywhere=True))
        nodes = [each for each in nodes if "public" not in each[0]] or nodes
        if not nodes:
            break
        numbers = [each for each in nodes if type(each[1]) in (int, float)]
        path, node = chance.choice(numbers if chance.random() < 0.8 else nodes)
        if type(node) is int and chance.random() < 0.8:
            new: Any = chance.choice((0, 1, 2, 3, 5, 8, node + 1, -1))
            how = repr(new)
        else:
            new, how = _other_node(None, node, (), chance, nodes)
        if path:
            _put(tree, path, new)
            done.append(f"{'.'.join(map(str, path))}: {how}")
    for name in inside:
        if name in tree and not isinstance(tree[name], str):
            tree[name] = json.dumps(tree[name])
    return json.dumps(tree), "; ".join(done)


def _nodes(tree: Any, *, everywhere: bool, path: Path = ()) -> Iterator[Node]:
    if path:
        yield path, tree
    if isinstance(tree, dict) and "tensor" not in tree:
        for name, each in tree.items():
            if everywhere or name not in FIXED | {"kind"}:
                yield from _nodes(each, everywhere=everywhere, path=(*path, name))
    elif isinstance(tree, list):
        for index, each in enumerate(tree):
            yield from _nodes(each, everywhere=everywhere, path=(*path, index))


def _sort(node: Any) -> str:
    if isinstance(node, dict):
        return "tensor" if "tensor" in node else "container"
    return "container" if isinstance(node, list) else "leaf"


def _put(tree: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


def _other_node(
    own: Stored | None,
    node: Any,
    others: Sequence[Stored],
    chance: random.Random,
    nodes: Sequence[Node],
) -> tuple[Any, str]:
    """Return what to put in the place of a node, and a word for it."""
    sort = _sort(node)
    if own is not None and sort == "tensor" and chance.random() < 0.8:
        old = own.tensors.get(str(node["tensor"]))
        if old is not None:
            value, how = damaged_tensor(old, chance)
            return _add(own, value), how
    if own is not None and others and sort != "leaf" and chance.random() < 0.5:
        return _foreign(own, node, chance.choice(others), chance)
    if chance.random() < 0.15:
        path, other = chance.choice(nodes)
        return copy.deepcopy(other), f"as {'.'.join(map(str, path))}"
    if isinstance(node, list) and chance.random() < 0.7:
        kinds = {
            "nothing in it": [],
            "one less": node[:-1],
            "one more": [*node, *node[-1:]],
            "reversed": node[::-1],
            "the first": node[:1],
            "nested": [node],
            "repeated": node * 3,
        }
        how = chance.choice(sorted(kinds))
        return copy.deepcopy(kinds[how]), how
    if isinstance(node, dict) and isinstance(node.get("fields"), dict) and node["fields"]:
        new = copy.deepcopy(node)
        one, other = (chance.choice(sorted(new["fields"])) for _ in range(2))
        new["fields"][one], new["fields"][other] = new["fields"][other], new["fields"][one]
        return new, f"{one} and {other} swapped"
    if isinstance(node, int | float) and not isinstance(node, bool) and chance.random() < 0.5:
        factor = chance.choice((-1, 2, 0.5, 1e3, 1e-3, 1e12, 1e-12))
        number: Any = node * factor if isinstance(factor, int) else float(node) * factor
        return number, f"times {factor}"
    value = chance.choice(NUMBERS if chance.random() < 0.7 else OTHERS)
    return copy.deepcopy(value), f"{value!r}"


def _foreign(own: Stored, node: Any, other: Stored, chance: random.Random) -> tuple[Any, str]:
    """Return a part of another state, of the same kind if there is one."""
    nodes = [each for _, each in _nodes(other.tree["content"], everywhere=True)]
    kind = node.get("kind") if isinstance(node, dict) else None
    same = [each for each in nodes if isinstance(each, dict) and each.get("kind") == kind]
    like = [each for each in nodes if _sort(each) == _sort(node)]
    chosen = chance.choice(
        (same if kind is not None and chance.random() < 0.8 else []) or like or nodes
    )
    return _adopted(own, copy.deepcopy(chosen), other), "of another state"


def _adopted(own: Stored, node: Any, other: Stored) -> Any:
    if isinstance(node, dict) and "tensor" in node:
        value = other.tensors.get(str(node["tensor"]))
        return node if value is None else _add(own, value)
    if isinstance(node, dict):
        return {name: _adopted(own, each, other) for name, each in node.items()}
    if isinstance(node, list):
        return [_adopted(own, each, other) for each in node]
    return node


def _add(own: Stored, value: Tensor) -> dict[str, str]:
    name = f"new{len(own.tensors)}"
    own.tensors[name] = value.clone()
    return {"tensor": name}


def damaged_tensor(old: Tensor, chance: random.Random) -> tuple[Tensor, str]:
    """Return another tensor in the place of one, and a word for it."""
    new = old.detach().clone()
    flat = new.reshape(-1)
    number = chance.choice(NUMBERS)
    # What an earlier damage has left without elements, or as other types, only changes its shape.
    what = chance.randrange(16) if flat.numel() and flat.dtype == torch.float64 else 15
    if what <= 4:
        flat[chance.randrange(flat.numel())] = float(number)
        return new, f"one element {number}"
    if what == 5:
        return torch.full_like(new, float(number)), f"all {number}"
    if what in (6, 7, 8):
        factor = chance.choice((-1.0, 0.0, 1e3, 1e6, 1e12, 1e100, 1e300, 1e-6, 1e-100, 1e-300))
        return new * factor, f"times {factor}"
    if what == 9 and new.ndim >= 2:
        first = new[..., :1, :].expand_as(new).clone()
        return first, "every row the first"
    if what == 10 and new.ndim >= 2:
        new[..., 0, :] = new[..., 0, :] + 1.0
        return new, "not symmetric"
    if what == 11 and new.ndim >= 2 and new.shape[-1] == new.shape[-2]:
        eye = torch.eye(new.shape[-1], dtype=new.dtype)
        size = chance.choice((1e-300, 1e-12, 1.0, 1e12))
        return (
            new - eye * (float(new.abs().amax()) if size == 1.0 else 0.0) + eye * size
        ), "shifted"
    if what == 12:
        dtype = chance.choice((torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8))
        return new.nan_to_num(0.0).to(dtype), f"{dtype}"
    shapes = {
        "flat": lambda: flat,
        "one less": lambda: new[:-1] if new.ndim else new,
        "no elements": lambda: flat[:0],
        "a number": lambda: torch.tensor(1.0, dtype=torch.float64),
        "one more dimension": lambda: new[None],
        "transposed": lambda: new.transpose(0, -1) if new.ndim else new,
        "twice": lambda: torch.cat([new, new]) if new.ndim else new,
        "shuffled": lambda: flat[torch.arange(flat.numel() - 1, -1, -1)].reshape(new.shape),
    }
    how = chance.choice(sorted(shapes))
    return shapes[how]().contiguous(), how

"""What dataclasses and enumerations say of their fields and members, in their docstrings.

A field is described where it is defined, in one of two forms:

    steps: steps of Adam. clip, unit_clip: norms.       in the class's docstring
    unit: str
    '''For example "mmHg".'''                           below the field

The contract repeats these texts, so that there is no second description to keep.
"""

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise


@dataclass(frozen=True)
class Described:
    """The text about a class as a whole, and that about each field or member that has one."""

    whole: str
    parts: Mapping[str, str]


@cache
def described(kind: type) -> Described:
    """Return what a dataclass or an enumeration says; a field may be described in a parent."""
    if issubclass(kind, StrEnum):
        below = _below(kind.__module__).get(kind.__qualname__, {})
        meanings = {each.value: below[each.name] for each in kind if each.name in below}
        return Described(cleandoc(kind.__doc__ or ""), meanings)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    whole, parts = "", dict[str, str]()
    for own in reversed(kind.__mro__[:-1]):
        whole, told = _split(cleandoc(own.__doc__ or ""), names)
        below = _below(own.__module__).get(own.__qualname__, {})
        parts |= told | {name: below[name] for name in names if name in below}
    return Described(whole, parts)


def _split(text: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring without its doctests and fields, and the text of each field."""
    one = rf"`?(?:{'|'.join(map(re.escape, names)) or '(?!)'})`?"
    head = re.compile(rf"(?:^|(?<=[.;] ))({one}(?:, {one})*): ")
    whole, parts = [], dict[str, str]()
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            continue
        before, *rest = head.split(" ".join(paragraph.split()))
        whole += [before.strip()] if before.strip() else []
        for named, what in zip(rest[::2], rest[1::2], strict=True):
            for name in named.replace("`", "").split(", "):
                parts[name] = what.strip()
    return "\n\n".join(whole), parts


@cache
def _below(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts below fields and members by class: Python itself discards them."""
    tree = ast.parse(getsource(sys.modules[module]))
    return {node.name: _texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(definition: ast.ClassDef) -> Mapping[str, str]:
    found = {}
    for line, after in pairwise(definition.body):
        match line, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found

"""JSON Schemas of frozen dataclasses, as `kernels.strict_json` and `kernels.model.typed_json` read.

An object has the fields of its dataclass and no others, a list stands for a tuple, and an integer
is also a number. A schema is at most as strict as the parser: what it refuses the parser refuses,
too, while ranges and what fields must be together are checked by the dataclass only.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from service.contract.docstrings import described

Json = dict[str, Any]

_LEAVES: Mapping[Any, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    NoneType: "null",
}


def reference(name: str) -> Json:
    """Return a reference to a schema of the contract."""
    return {"$ref": f"#/components/schemas/{name}"}


@dataclass
class Components:
    """Schemas by name, collected as the dataclasses that refer to each other are met.

    names: of dataclasses whose class name is not the name of their schema. written: the schemas of
    what has a JSON form of its own. whole: whether every field is present, as in what was written
    by a program; else a field that has a default may be left out.
    """

    names: Mapping[type, str] = field(default_factory=dict)
    written: Mapping[type, Json] = field(default_factory=dict)
    whole: bool = False
    found: dict[str, Json] = field(default_factory=dict)
    _kinds: dict[str, type] = field(default_factory=dict)

    def of(self, kind: Any) -> Json:
        """Return the schema of an annotated type."""
        if kind in _LEAVES:
            return {"type": _LEAVES[kind]}
        if kind is Any or kind is object:
            return {}
        if get_origin(kind) in (Union, UnionType):
            return self._one_of(get_args(kind))
        if get_origin(kind) is tuple:
            return self._list(get_args(kind))
        if kind in self.written:
            return self.written[kind]
        if issubclass(kind, StrEnum):
            return {"type": "string", "enum": [each.value for each in kind]}
        return self._component(kind)

    def object(
        self,
        kind: type,
        *,
        constants: Mapping[str, object] | None = None,
        optional: frozenset[str] = frozenset(),
        without: frozenset[str] = frozenset(),
        changed: Mapping[str, Json] | None = None,
    ) -> Json:
        """Return the schema of a dataclass's objects.

        constants: fields with one value, before the dataclass's own, such as a kind or a version;
        those of `optional` may be left out. without: fields that are left out. changed: schemas
        of fields whose JSON has another form.
        """
        hints = get_type_hints(kind)
        own = [each for each in fields(_dataclass(kind)) if each.name not in without]
        texts = described(kind)
        properties: Json = {name: {"const": value} for name, value in (constants or {}).items()}
        required = [name for name in properties if name not in optional]
        for each in own:
            if each.name in properties:
                continue
            schema = {**((changed or {}).get(each.name) or self.of(hints[each.name]))}
            told = [texts.parts.get(each.name, ""), _meanings(hints[each.name])]
            if any(told):
                schema["description"] = _in_json(" ".join(filter(None, told)))
            if self.whole or not _has_default(each):
                required.append(each.name)
            default = _plain(each.default)
            if not self.whole and default is not None:
                schema["default"] = default
            properties[each.name] = schema
        return {
            "type": "object",
            **({"description": _in_json(texts.whole)} if texts.whole else {}),
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def _component(self, kind: type) -> Json:
        name = self.names.get(kind, kind.__name__)
        if self._kinds.setdefault(name, kind) is not kind:
            raise ValueError(f"two dataclasses would have the schema {name}: name one in `names`")
        if name not in self.found:
            self.found[name] = {}  # a dataclass may refer to itself
            self.found[name] = {"title": name, **self.object(kind)}
        return reference(name)

    def _one_of(self, kinds: tuple[Any, ...]) -> Json:
        if all(kind in _LEAVES for kind in kinds):
            types = [_LEAVES[kind] for kind in kinds]
            # Every integer is a number.
            return {"type": [each for each in types if each != "integer" or float not in kinds]}
        return {"anyOf": [self.of(kind) for kind in kinds]}

    def _list(self, items: tuple[Any, ...]) -> Json:
        if len(items) == 2 and items[1] is ...:
            return {"type": "array", "items": self.of(items[0])}
        pieces = [self.of(item) for item in items]
        size = len(items)
        return {"type": "array", "prefixItems": pieces, "minItems": size, "maxItems": size}


def _dataclass(kind: type) -> Any:
    if not is_dataclass(kind):
        raise TypeError(f"{kind} is neither a dataclass nor a type that JSON has")
    return kind


def _has_default(own: "Field[Any]") -> bool:
    return own.default is not MISSING


def _plain(value: object) -> object:
    """Return a default as JSON, or None if there is none."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, StrEnum):
        return value.value
    return None if value is MISSING else value


def _in_json(text: str) -> str:
    """Return a text with the names that JSON has for Python's values.

    >>> _in_json("None without differential privacy.")
    'null without differential privacy.'
    """
    return re.sub(r"\b(None|True|False)\b", lambda own: _JSON_NAMES[own[0]], text)


_JSON_NAMES = {"None": "null", "True": "true", "False": "false"}


def _meanings(kind: Any) -> str:
    """Return what each member of an enumeration means."""
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, StrEnum):
            texts = described(each).parts.items()
            return " ".join(f"`{member}`: {text}" for member, text in texts)
    return ""

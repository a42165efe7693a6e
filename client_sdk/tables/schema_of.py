"""A schema in any of the forms in which people have one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from client_sdk.errors import SchemaNotRead
from kernels.tables.schema import Schema


def schema_of(given: object) -> Schema:
    """Return a schema: itself, its JSON as text or as a mapping, or the path of its JSON file.

    >>> columns = {"features": [{"kind": "numeric", "name": "age", "unit": "a"}]}
    >>> schema_of({**columns, "targets": [{"name": "stay", "unit": "d"}]}).columns
    ('age', 'stay')
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, Mapping):
        try:
            return Schema.from_json(json.dumps({"version": Schema.VERSION, **given}))
        except TypeError as error:
            raise SchemaNotRead(f"the schema is not plain JSON: {error}") from error
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return Schema.from_json(given)
    if isinstance(given, str | os.PathLike):
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaNotRead(f"cannot read a schema from {given}: correct the path") from error
        return Schema.from_json(text)
    raise SchemaNotRead(
        f"{type(given).__name__} is not a schema: pass a Schema, its JSON as text or as a mapping, "
        "or the path of its JSON file"
    )

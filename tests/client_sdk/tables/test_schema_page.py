"""docs/schema.md: every example is read by the parser, and every kind and field is on the page."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kernels.tables.schema import FEATURE_KINDS, Schema
from kernels.tables.targets import TARGET_KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "schema.md").read_text()
EXAMPLES: list[Any] = [
    json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
]
WHOLE = EXAMPLES[0]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda own: str(own)[:40])
def test_every_example_is_a_schema_or_a_part_of_one(example: Any) -> None:
    if "features" in example:
        document = example
    elif isinstance(example, dict):
        document = {**WHOLE, "features": [example]}
    else:
        columns = {own["name"]: own for own in example}
        document = {**WHOLE, "targets": [*columns.values()]}
    schema = Schema.from_json(json.dumps(document))
    assert Schema.from_json(schema.to_json()) == schema


def test_every_kind_has_an_example_and_every_field_is_explained() -> None:
    shown = [own for each in EXAMPLES for own in (each if isinstance(each, list) else [each])]
    shown += [*WHOLE["features"], *WHOLE["targets"]]
    for name, kind in {**FEATURE_KINDS, **TARGET_KINDS}.items():
        examples = [own for own in shown if own.get("kind") == name]
        assert examples, f"{name} has no example"
        allowed = {field.name for field in fields(kind)}
        assert {field for own in examples for field in own} - {"kind"} == allowed
        assert all(f"`{field}`" in PAGE for field in allowed)

"""A public set: rows that are not confidential, labelled or not, as plain data in a program."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kernels.errors import ProgramError
from kernels.features.seeded_random import normals, uniforms
from kernels.model.model import Model, known
from kernels.strict_json import MOST_INTEGER, encode_json, is_leaf
from kernels.tables.cells import as_array
from kernels.tables.records import Records
from kernels.tables.schema import Schema

MOST_PUBLIC_ROWS = 4096
"""The Gram matrix of more rows would be longer than any sum here needs to be."""

EXTRA_SPREAD = 0.3
"""How far the cells of extra rows are moved, in standard deviations."""

Columns = tuple[tuple[str, tuple[float | str | None, ...]], ...]


def columns_of(table: Mapping[str, object]) -> Columns:
    """Return a public table as plain data: columns of numbers, labels, and None where missing.

    >>> columns_of({"age": [61.0, float("nan")], "ward": np.array(["A", "B"])})
    (('age', (61.0, None)), ('ward', ('A', 'B')))
    """
    return checked([(name, map(_cell, as_array(cells))) for name, cells in table.items()])


def digest_of(public: Columns) -> str:
    """Return the SHA-256 of a public set, by which a site's policy approves it."""
    return hashlib.sha256(encode_json(public).encode()).hexdigest()


def public_records(public: Columns, schema: Schema) -> Records:
    """Return the public rows after checking them against the schema."""
    # A public set does not need a patient column.
    return Records.for_training(replace(schema, patient=None), dict(public))


def public_table(public: Columns, model: Model) -> tuple[Tensor, Tensor]:
    """Return the public rows, checked against the schema and standardised like the sites' rows."""
    records = public_records(public, model.schema)
    rows = known(model.standardiser, "moments").apply(records)
    return rows.features, known(rows.targets, "moments")


def public_inputs(public: Columns, model: Model, *, extra_rows: int = 0, seed: int = 0) -> Tensor:
    """Return the standardised features of the public rows and of `extra_rows` more, (K, p).

    Each cell of an extra row comes from one of two public rows and is moved by EXTRA_SPREAD
    deviations. Extra rows need no labels and are the same at every site, because they are a
    function of the seed. Points on the line between two rows would all be near the middle: with few
    public rows and many columns, a student that agrees with its teacher there disagrees at new rows
    (1,000 extra rows for 116 public ones of 11 columns: KL .016 on lines, .008 with cells of two
    rows, .004 with 2,000 of the latter).
    """
    records = Records.for_prediction(model.schema, dict(public))
    x = known(model.standardiser, "moments").apply(records).features
    if not extra_rows:
        return x
    draw = uniforms(seed, "public/extra", extra_rows, 3)
    first, second = (draw[:, :2] * len(x)).long().unbind(1)
    from_first = uniforms(seed, "public/cells", extra_rows, x.shape[1]) < draw[:, 2:]
    moved = EXTRA_SPREAD * normals(seed, "public/moved", extra_rows, x.shape[1])
    return torch.cat([x, torch.where(from_first, x[first], x[second]) + moved])


def _cell(value: object) -> object:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int) and abs(plain) > MOST_INTEGER:
        return float(plain)  # as the program's canonical JSON has it
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def checked(public: object) -> Columns:
    """Return columns that may have come from JSON as tuples; the schema checks them later."""
    columns = _as_columns(public)
    lengths = {len(cells) for _, cells in columns}
    plain = all(is_leaf(value) for _, cells in columns for value in cells)
    if len(lengths) != 1 or not 1 <= min(lengths) <= MOST_PUBLIC_ROWS or not plain:
        raise ProgramError(
            f"public must be columns of one length, 1 to {MOST_PUBLIC_ROWS}, of finite numbers, "
            "texts and nulls: make it with columns_of"
        )
    return columns


def _as_columns(public: object) -> Columns:
    pairs = public if isinstance(public, Iterable) else ()
    try:
        columns = tuple((name, tuple(cells)) for name, cells in pairs)
    except (TypeError, ValueError):
        columns = ()
    if not columns or not all(isinstance(name, str) for name, _ in columns):
        raise ProgramError("public must be pairs of a column's name and its cells")
    return columns

"""A site of made-up rows: every part has the same few rows, and every unit is in every sample."""

from kernels.model.model import Model
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Part, Site
from kernels.tables.made_up import made_up_rows

FEW_ROWS = 4
"""Enough for two patients of two rows each."""


def made_up_site(model: Model, rows: int = FEW_ROWS) -> Site:
    """Return a site with `rows` made-up rows in every part, near the model's means if known."""
    records = made_up_rows(model.schema, rows, model.standardiser)
    parts, dealing = dict.fromkeys(Part, records), Dealing(bytes(32))
    return Site(parts, digest=bytes(32), dealing=dealing, randomness=bytes)

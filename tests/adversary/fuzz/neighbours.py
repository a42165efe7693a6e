"""Neighbouring sites: with noise, one unit more changes the numbers by no more than is declared.

This holds for every state that a site accepts, however hostile: the noise follows from the declared
sensitivity. Compared are the integers before noise, block by block.
"""

import random
from collections.abc import Mapping

import numpy as np
import torch

from kernels.rounds.algorithm import computing
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from privacy.scales import integer_sensitivity
from tests.adversary.fuzz.observing import Accepted
from tests.adversary.fuzz.sites import rows
from tests.dealing import DEALING

UNITS = 12


def moved_too_far(accepted: Accepted, chance: random.Random) -> str | None:
    """Return in words which block one unit changes by more than its sensitivity, if any."""
    schema = accepted.ready.state.model.schema
    whole = rows(schema, UNITS, chance, extreme=chance.choice((0.05, 0.5, 1.0)))
    gone = chance.randrange(UNITS)
    unit = str(gone) if whole.patients is None else whole.patients[gone]
    keep = [
        i != gone if whole.patients is None else whole.patients[i] != unit for i in range(UNITS)
    ]
    less = whole.take(torch.tensor(keep))
    with_it, without = (_integers(accepted, each) for each in (whole, less))
    encoding = accepted.encoding
    for number, block in enumerate(encoding.layout.blocks):
        most = integer_sensitivity(block, encoding.fractional_bits[number])
        pairs = zip(with_it[block.name], without[block.name], strict=True)
        moved = [float(a - b) for a, b in pairs]
        norm = float(np.linalg.norm(moved))
        if norm > float(most) * (1 + 1e-9) + 1e-6:
            return f"{block.name}: {norm:g} steps, declared are {float(most):g}"
    return None


def _integers(accepted: Accepted, records: Records) -> Mapping[str, list[int]]:
    """Return the integers of each block, without noise and with every unit in the sample."""
    site = Site(dict.fromkeys(Part, records), digest=bytes(32), dealing=DEALING, randomness=bytes)
    encoding = accepted.encoding
    with computing("encoding"):
        blocks = accepted.ready.contributed(site)
        silent = np.zeros(encoding.layout.length, dtype="<i8")
        vector = encoding.encode(blocks, noise=silent).view(np.int64)
    found = {}
    for block in encoding.layout.blocks:
        start = encoding.layout.offset(block.name)
        found[block.name] = vector[start : start + block.length].tolist()
    return found

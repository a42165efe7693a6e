"""How long this hospital takes to answer: one time per stage, whatever its rows are.

The time of an answer must not say how many rows a part has, or whether it has any (docs/threats.md
A26). So every stage has an *answer time*: earlier answers wait, later ones leave when they are
ready. It is measured before a run is entered, on made-up rows at the top of the site's row band,
which an operator has chosen (`row_band`), times MARGIN, and at least the policy's `least_answer_s`.
Measuring also shows that this machine has the memory for that many rows.

Times are measured once for a program and a band, and kept in the home.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from client_sdk.gate.trial import tried
from client_sdk.home.store import Store
from kernels.errors import ComputationFailed
from kernels.model.model import Model
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Part, Site
from kernels.rounds.task import program_digest
from kernels.tables.made_up import made_up_rows

MARGIN = 1.5
MOST_MEASURED = 1 << 14
"""The time of more rows is taken to grow with their number, instead of being measured."""


def answer_times(
    store: Store,
    program: Program,
    band: int,
    *,
    least_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[float, ...]:
    """Return the answer time of each stage, in seconds, and last that of a trial of all stages.

    They are measured unless the home has them. With `least_s` = 0 there are none: nothing waits.
    """
    if least_s <= 0:
        return ()
    digest = program_digest(program.to_json())
    known = store.answer_times(digest, band)
    if not known:
        known = _measured(program, band, clock)
        store.keep_answer_times(digest, band, known)
    return tuple(max(each, least_s) for each in known)


def _measured(program: Program, band: int, clock: Callable[[], float]) -> tuple[float, ...]:
    # Without differential privacy a table of more than `max_rows` rows enters no run.
    most = band if program.privacy is not None else min(band, program.max_rows)
    rows = min(most, MOST_MEASURED)
    longest = [0.0] * len(program.stages)
    began = clock()

    def site_of(model: Model) -> Site:
        records = made_up_rows(model.schema, rows, model.standardiser)
        sizes = _sizes(program.held_out, rows).items()
        parts = {part: records.between(slice(0, size)) for part, size in sizes}
        dealing = Dealing(bytes(32))
        return Site(parts, digest=bytes(32), dealing=dealing, randomness=os.urandom)

    with suppress(ComputationFailed):
        for each in tried(program, site_of, clock=clock):
            longest[each.stage] = max(longest[each.stage], each.seconds)
    # A trial that ends early leaves later stages without a time: they get the longest.
    beyond = max(longest)
    times = [each or beyond for each in longest]
    return tuple(MARGIN * each * most / rows for each in (*times, clock() - began))


def _sizes(held_out: float, rows: int) -> Mapping[Part, int]:
    """Return how many of a table's rows each part has, at the most."""
    half = math.ceil(rows * held_out / 2)
    of_part = {Part.TRAINING: rows - 2 * half, Part.STOPPING: half, Part.CALIBRATION: half}
    return {part: of_part.get(part, rows) for part in Part}

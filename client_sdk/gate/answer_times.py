"""How long this hospital takes to answer: one time per stage, whatever its rows are.

The time of an answer must not say how many rows a part has, or whether it has any (docs/threats.md
A26). So every stage has an *answer time*: earlier answers wait, later ones leave when they are
ready. It is measured before a run is entered, on made-up rows at the top of the site's **row
band**, times MARGIN, and at least the policy's `least_answer_s`. Measuring also shows that this
machine has the memory for that many rows.

A row band is a power of two, at least twice the rows of the table, and kept in the home for the
data source. It is set when the source is first used, or by the policy's line `row_band`, and never
changed because rows are added: a time that followed from the rows could be placed by a program at a
chosen row count. A table that outgrows its band is refused before a run is entered, at home.

Times are measured once for a program and a band, and kept in the home.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from client_sdk.errors import OutgrewRowBand
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
LEAST_BAND = 4096
"""The smallest row band: all small hospitals have the same."""
MOST_MEASURED = 1 << 14
"""The time of more rows is taken to grow with their number, instead of being measured."""


def row_band(store: Store, source: str, rows: int, chosen: int | None) -> int:
    """Return a data source's row band, and set it if it has none; refuse a table beyond it.

    chosen: the policy's `row_band`, which replaces the band in the home.
    """
    band = chosen or store.row_band(source) or _at_least(2 * rows)
    if rows > band:
        raise OutgrewRowBand(
            f"the table has {rows} rows, and the row band of {source!r} is {band}: how long this "
            "site takes to answer was fixed for so many rows. Set a larger band in the policy, for "
            f"example row_band = {_at_least(2 * rows)}"
        )
    store.keep_row_band(source, band)
    return band


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


def _at_least(rows: int) -> int:
    return max(LEAST_BAND, 1 << max(0, rows - 1).bit_length())

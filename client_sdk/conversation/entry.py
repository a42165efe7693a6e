"""What a hospital does before it enters a run: it fixes its answer times and tries every stage.

What fails in the trial over its own rows is explained here, and nowhere else: to the others this
hospital is then absent. With differential privacy even that would say something about the rows that
no noise covers, and a unit that cannot be computed contributes zero, so there is no such trial. A
trial takes as long as one over made-up rows at the top of the site's row band.
"""

from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.events import Measuring
from client_sdk.gate.answer_times import answer_times
from client_sdk.gate.refusal_report import about_own_rows
from client_sdk.gate.refusals import row_band_missing
from client_sdk.gate.row_band import row_band
from client_sdk.gate.trial import tried
from client_sdk.network.exchange import Effects, Pause
from client_sdk.tables.hospital_table import HospitalTable
from kernels.rounds.program import Program
from kernels.rounds.task import program_digest


def times_of(side: HospitalSide, program: Program, table: HospitalTable) -> tuple[float, ...]:
    """Return the answer time of each stage, and last that of a trial; empty if nothing waits."""
    policy, store = side.policy, side.home.store
    if policy.least_answer_s <= 0:
        return ()
    if policy.row_band is None:
        raise row_band_missing()
    with about_own_rows():
        rows = sum(table.counts.values())
        band = row_band(store, side.source, rows, policy.row_band)
    clock = side.exchange.clock.monotonic
    return answer_times(store, program, band, least_s=policy.least_answer_s, clock=clock)


def try_before_entry(side: HospitalSide, program: Program, table: HospitalTable) -> Effects[None]:
    """Fix the answer times of a program, and try all its stages over this hospital's own rows."""
    store, clock = side.home.store, side.exchange.clock.monotonic
    digest, rows = program_digest(program.to_json()), table.journalled.hex()
    if store.tried(digest, rows):
        return
    side.watch(Measuring())
    times = times_of(side, program, table)
    began = clock()
    if program.privacy is not None:
        return
    with about_own_rows():
        for _ in tried(program, lambda _: table.site, clock=clock):
            pass
    store.keep_tried(digest, rows)
    left_s = began + times[-1] - clock() if times else 0.0
    if left_s > 0:
        yield Pause(left_s)

"""`veilgp ledger`: what was spent on, and became known about, each data source."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.terminal.commands.failures import reported

if TYPE_CHECKING:
    from client_sdk.home.disclosures import DisclosureLedger
    from client_sdk.home.store import Store
    from privacy.ledger import Ledger

_NO_LIMIT = 100.0
_BESIDE = (
    ": if they were computed from one of the tables above, its ε describes only what the noisy "
    "sums reveal in addition, not everything that can be learned."
)
_COLUMNS = ("at", "epoch", "slot", "statistic", "part", "numbers", "noise z", "sampled")


def ledger_command(
    *,
    policy: Annotated[
        Path | None, typer.Option(help="The site's policy; shows the remaining budget too.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The δ to use if no policy states one.")] = 1e-5,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the growth of ε to this file (.png, .svg, .pdf).")
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Folder of identity and journal; by default VEILGP_HOME, then ~/.veilgp."
        ),
    ] = None,
) -> None:
    """Print what was charged to this hospital's privacy budget, and what became known.

    Every vector with noise is a charge, also one for a sum that was repeated; charges are written
    before anything leaves, and are never removed. The disclosure ledger has every run that this
    hospital entered, over all sessions, and how many exact numbers it made known. Sessions without
    noise are listed separately: no ε covers them.
    """
    with reported():
        from client_sdk.gate.stated_policy import StatedPolicy
        from client_sdk.home.home import Home
        from privacy.ledger import Budget

        stated = None if policy is None else StatedPolicy.read(policy)
        limited = stated is not None and stated.epsilon is not None
        budget = stated.budget if stated is not None and limited else Budget(_NO_LIMIT, delta)
        store = Home(home).read()
        try:
            ledgers = {source: store.ledger(source, budget) for source in store.charged_sources()}
            exact = store.uncharged()
            known = {source: store.disclosures(source) for source in store.disclosing_sources()}
            promises = dict(_promises(store))
        finally:
            store.close()
        if not ledgers:
            typer.echo("Nothing has been spent: no noisy vector has left this hospital.")
        if stated is not None and not limited:
            typer.echo(
                f"{policy} has no epsilon and delta: it allows no sums with differential privacy, "
                "and there is no budget of which anything could be left."
            )
        for source, ledger in ledgers.items():
            for line in _lines(source, ledger, limited=limited):
                typer.echo(line)
            for session in sorted(promises.keys() & {entry.session for entry in ledger.entries}):
                typer.echo(f"  session {session}: {promises[session]}")
        if plot is not None and ledgers:
            from client_sdk.plots import ledger as ledger_plot

            ledger_plot.write(plot, ledgers, limited=limited)
            typer.echo(f"The plot is in {plot}.")
        for source, disclosed in known.items():
            for line in _known_lines(source, disclosed):
                typer.echo(line)
        for session, vectors in exact:
            typer.echo(
                f"Session {session} has no noise: {vectors} vectors were sent for its exact sums. "
                f"No ε covers them{_BESIDE if ledgers else '.'}"
            )


def _known_lines(source: str, ledger: "DisclosureLedger") -> Iterator[str]:
    """Yield what exact sums of a data source have made known, over all sessions."""
    from kernels.rounds.stated.numbers_known import MEMBERSHIP, known_to

    yield (
        f"{source}: {ledger.runs} run(s) of {ledger.programs} program(s) entered, "
        f"{ledger.vectors} vector(s) computed for exact sums, abandoned ones included"
    )
    if ledger.exact:
        said = known_to(coordinator=ledger.coordinator, hospitals=ledger.hospitals)
        yield f"  {said} {MEMBERSHIP}"
    for entry in ledger.entries:
        numbers = f"{entry.coordinator:,} / {entry.hospitals:,}" if entry.exact else "with noise"
        yield (
            f"  {entry.at}  run {entry.run}  program {entry.program[:16]}  numbers known to the "
            f"coordinator / each hospital: {numbers}"
        )


def _promises(store: "Store") -> Iterator[tuple[str, str]]:
    """Yield each private session with a sentence on what its noise covers."""
    from kernels.rounds.stated.unit import stated_unit
    from privacy.accounting.events import MECHANISM

    for session, terms in store.terms().items():
        known = store.session(session)
        unit = None if known is None else stated_unit(known.program)
        if unit is None:
            continue
        said = "row" if unit.patient is None else f"patient, with at most {unit.max_rows} rows"
        promise = (
            f"the unit is the {said}; {MECHANISM}. A sum has at least {terms.min_cohort} members; "
            f"at most {terms.max_colluders} are assumed to collude with the coordinator, so the "
            f"noise of {terms.honest} is counted."
        )
        yield session, promise


def _lines(source: str, ledger: "Ledger", *, limited: bool) -> Iterator[str]:
    from privacy.ledger import Ledger

    spent, budget = ledger.spent, ledger.budget
    left = max(0.0, budget.epsilon - spent.epsilon)
    said = f"; {left:.4g} of {budget.epsilon:g} left" if limited else ""
    yield (
        f"{source}: {len(ledger.entries)} charges, ε = {spent.epsilon:.4g} at δ = "
        f"{budget.delta:g}, proven by the {spent.accountant} accountant{said}"
    )
    beforehand = ledger.fixed_beforehand
    yield (
        f"  a list of the same sums that is fixed beforehand costs ε = {beforehand.epsilon:.4g} "
        f"({beforehand.accountant}); the budget does not rely on it"
    )
    rows = [
        (
            datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds"),
            str(entry.epoch),
            str(entry.slot),
            entry.release.statistic,
            entry.release.part,
            str(entry.release.dimension),
            f"{entry.release.multiplier:.4g}",
            f"{entry.release.sampling_rate:g}",
        )
        for entry in ledger.entries
    ]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    yield _row(_COLUMNS, widths)
    charged = 0
    both = zip(ledger.entries, rows, strict=True)
    for run, own in groupby(both, key=lambda each: (each[0].session, each[0].run)):
        for _, row in own:
            charged += 1
            yield _row(row, widths)
        after = Ledger(budget, ledger.entries[:charged]).spent.epsilon
        yield f"  after run {run[1]} of session {run[0]}: ε = {after:.4g}"


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"  {'  '.join(padded)}".rstrip()

"""Everything that keeps a hospital's table from a session, by the site's policy, for its people.

`join` stops at the first of these, before anything leaves; here all of them are collected, so that
a person sees what to ask the session's admin for before the hospital enrols. It says how many rows
the table has, so it is shown at home and never reported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

from client_sdk.errors import ClientError, PolicyRefused
from client_sdk.gate import row_band
from client_sdk.gate.disclosure import known_under
from client_sdk.gate.policy import Policy
from client_sdk.home.disclosures import EnteredRun
from client_sdk.home.store import Store
from client_sdk.tables.hospital_table import HospitalTable
from kernels.errors import KernelsError
from kernels.rounds.plan import check_fits, declared, release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind
from kernels.rounds.task import run_digest
from privacy.accounting.promises import promised
from privacy.errors import PrivacyError
from privacy.securesum.terms import Terms

Problem = ClientError | KernelsError | PrivacyError


@dataclass(frozen=True)
class TableCheck:
    """A table that was read, the program and terms that it is for, and a policy.

    text: the program as it was received; None if no session exists yet. store, source: the home's
    journal and the name of the table in it, if there is a home.
    """

    policy: Policy
    program: Program
    terms: Terms
    table: HospitalTable
    today: date
    text: str | None = None
    store: Store | None = None
    source: str = "table"

    def problems(self) -> Iterator[Problem]:
        """Yield every refusal that `join` would raise one after the other."""
        policy, program = self.policy, self.program
        for check in (
            lambda: policy.check_session(program, self.terms, today=self.today, text=self.text),
            lambda: policy.check_dictionary(program),
            lambda: check_fits(program, self.table.counts),
            lambda: policy.check_table(program, self.table.summary),
            self._check_band,
            self._check_ledgers,
        ):
            yield from _raised(check)

    def _check_band(self) -> None:
        policy, store = self.policy, self.store
        if store is None or not policy.least_answer_s or policy.row_band is None:
            return
        row_band.check(store, self.source, self.table.summary.rows, policy.row_band)

    def _check_ledgers(self) -> None:
        program, store, table = self.program, self.store, self.table
        if store is None:
            return
        if program.privacy is not None:
            ledger = store.ledger(self.source, self.policy.budget, rows=table.rows)
            plan = release_plan(program, table.dealing)
            self.policy.check_spending(ledger, promised(plan, honest=self.terms.honest))
        made_known = known_under(self.terms, program)
        entering = EnteredRun(
            run="",
            session="",
            source=self.source,
            at="",
            program=run_digest(program.to_json(), run_kind=Kind.TRAIN, parent=None),
            dealt=table.journalled.hex(),
            rows=table.rows.hex(),
            exact=program.privacy is None,
            coordinator=made_known.coordinator,
            hospitals=made_known.hospitals,
            sums=sum(stage.sums for stage in declared(program)),
        )
        disclosed = store.disclosures(self.source, rows=table.rows)
        self.policy.check_ledger(disclosed, entering, made_known)


def _raised(check: Callable[[], None]) -> Iterator[Problem]:
    try:
        check()
    except PolicyRefused as refused:
        yield from refused.problems
    except (ClientError, KernelsError, PrivacyError) as error:
        yield error

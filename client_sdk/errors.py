"""Every error that a person or a peer can cause in `client_sdk`, each with a stable code.

    ClientError                       client
    ├── HomeError                     home.invalid
    │   ├── HomeInUse                 home.in_use
    │   ├── HomeExposed               home.exposed
    │   ├── HomeDamaged               home.damaged
    │   └── HomeNotWritten            home.not_written
    ├── LinkError                     link.invalid
    ├── RosterFileError               roster.file
    ├── PolicyError                   policy.invalid
    │   ├── PolicyFileError           policy.file
    │   ├── PolicyRefused             policy.refused, with all its `problems`:
    │   └── PolicyRefusal             policy.refusal
    │       ├── AlgorithmForbidden    policy.algorithm
    │       ├── ConsentMissing        policy.consent
    │       ├── ColumnForbidden       policy.column
    │       ├── PrivacyRequired       policy.without_differential_privacy
    │       ├── UnitForbidden         policy.patient
    │       ├── BudgetMissing         policy.epsilon
    │       ├── BudgetSpent           policy.budget
    │       ├── ShrinkingForbidden    policy.shrinking
    │       ├── TooFewColluders       policy.colluders
    │       ├── CohortTooSmall        policy.cohort
    │       ├── TooFewRows            policy.rows
    │       ├── TooFewRowsPerFeature  policy.rows_per_feature
    │       ├── TooFewRowsHeldOut     policy.rows_held_out
    │       ├── RareLevel             policy.level_rows
    │       ├── TooManySums           policy.sums
    │       ├── TooManyRuns           policy.runs
    │       └── PolicyExpired         policy.expired
    ├── TransportError                transport.invalid
    │   ├── Unreachable               transport.unreachable
    │   ├── CertificateRefused        transport.certificate
    │   ├── NotACoordinator           transport.not_a_coordinator
    │   ├── AnswerTooLarge            transport.too_large
    │   ├── MalformedAnswer           transport.malformed
    │   ├── ProtocolMismatch          protocol.mismatch
    │   └── Refused                   the coordinator's own code
    ├── SessionError                  session.invalid
    │   ├── SessionChanged            session.changed
    │   ├── WrongRun                  session.wrong_run
    │   ├── AnotherRun                session.another_run
    │   ├── WrongTask                 session.wrong_task
    │   ├── RowsNotRemoved            session.rows_not_removed
    │   ├── Suspended                 session.suspended
    │   ├── DeadlinePassed            session.deadline
    │   ├── RunFailed                 session.run_failed
    │   └── NoModel                   session.no_model
    ├── TableSourceError              source.invalid
    │   ├── NotATable                 source.not_a_table
    │   ├── FileNotThere              source.not_found
    │   ├── UnknownSuffix             source.unknown_suffix
    │   ├── EmptySource               source.empty
    │   ├── UnreadableFile            source.unreadable
    │   ├── DuplicateColumns          source.duplicate_columns
    │   ├── DifferentColumns          source.different_columns
    │   └── DraftError                source.draft
    └── ModelError                    global_model.invalid
        ├── ModelNotFound             global_model.not_found
        ├── ModelNotSaved             global_model.not_saved
        ├── UnknownTarget             global_model.unknown_target
        ├── TableNotWritten           global_model.table_not_written
        └── PlotUnavailable           global_model.plot

A message says what is wrong with which value and what to do; it never carries a patient's value,
nor key material, nor the secret of a link. Errors that a hospital reports to the coordinator have a
`public_detail`, a sentence without data: the message stays here (`gate.refusal_report`).
"""

from collections.abc import Sequence


class ClientError(Exception):
    """Root of the tree; `code` is stable across versions and travels over HTTP."""

    code: str = "client"


# -- the hospital's home


class HomeError(ClientError):
    """The hospital's home directory cannot be used."""

    code = "home.invalid"


class HomeInUse(HomeError):
    """Another process uses this home: two would answer one task twice."""

    code = "home.in_use"


class HomeExposed(HomeError):
    """The identity's file can be read by others."""

    code = "home.exposed"


class HomeDamaged(HomeError):
    """A file of the home is missing or is not what it should be."""

    code = "home.damaged"


class HomeNotWritten(HomeError):
    """A step could not be made durable, so nothing was sent."""

    code = "home.not_written"


class LinkError(ClientError):
    """A link is neither a join link nor the address of a session."""

    code = "link.invalid"


class RosterFileError(ClientError):
    """A roster file is not one."""

    code = "roster.file"


# -- the site's policy


class PolicyError(ClientError):
    """The site's policy says no, or is not a policy."""

    code = "policy.invalid"
    public_detail: str = "the site's policy says no, or is not a policy"


class PolicyFileError(PolicyError):
    """A policy has a missing, unknown or impossible line."""

    code = "policy.file"
    public_detail = "the site's policy has a missing, unknown or impossible line"


class PolicyRefusal(PolicyError):
    """The site's policy does not allow what is asked for.

    `line` is the line of the policy that would have to change; `public_detail` is what the
    coordinator may hear: nothing about the table.
    """

    code = "policy.refusal"
    public_detail = "the site's policy does not allow this"

    def __init__(self, sentence: str, *, line: str, because: str, public_detail: str) -> None:
        super().__init__(f"{sentence} To allow it, set in the site's policy: {line}. {because}")
        self.line = line
        self.public_detail = public_detail


class AlgorithmForbidden(PolicyRefusal):
    """The site's policy does not allow an algorithm."""

    code = "policy.algorithm"


class ConsentMissing(PolicyRefusal):
    """The site's policy does not consent to an algorithm that may show this site's own numbers."""

    code = "policy.consent"


class ColumnForbidden(PolicyRefusal):
    """The site's policy does not allow a column to be used."""

    code = "policy.column"


class PrivacyRequired(PolicyRefusal):
    """The site's policy does not allow sums without differential privacy."""

    code = "policy.without_differential_privacy"


class UnitForbidden(PolicyRefusal):
    """The site's policy asks for noise that covers a patient, and the session's covers less."""

    code = "policy.patient"


class BudgetMissing(PolicyRefusal):
    """The site's policy does not say how much privacy may be spent on any one patient."""

    code = "policy.epsilon"


class BudgetSpent(PolicyRefusal):
    """The site's own privacy budget does not cover what is asked for."""

    code = "policy.budget"


class ShrinkingForbidden(PolicyRefusal):
    """The site's policy does not allow a session to give the steady-cohort rule up."""

    code = "policy.shrinking"


class TooFewColluders(PolicyRefusal):
    """The site's policy asks for sums that are safe from more colluding members."""

    code = "policy.colluders"


class CohortTooSmall(PolicyRefusal):
    """The site's policy asks for a larger cohort of members with confirmed keys."""

    code = "policy.cohort"


class TooFewRows(PolicyRefusal):
    """The site's policy asks for more rows than the table has."""

    code = "policy.rows"


class TooFewRowsPerFeature(PolicyRefusal):
    """The site's policy asks for more rows for each feature of the kernel."""

    code = "policy.rows_per_feature"


class TooFewRowsHeldOut(PolicyRefusal):
    """The site's policy asks for more rows, or none, in a part that is held out of training."""

    code = "policy.rows_held_out"


class RareLevel(PolicyRefusal):
    """The site's policy asks for more rows of each level of a categorical column."""

    code = "policy.level_rows"


class TooManySums(PolicyRefusal):
    """The site's policy does not allow so many sums in a run."""

    code = "policy.sums"


class TooManyRuns(PolicyRefusal):
    """The site's policy does not allow so many runs over one table in a session."""

    code = "policy.runs"


class PolicyExpired(PolicyRefusal):
    """The site's policy has expired."""

    code = "policy.expired"


class PolicyRefused(PolicyError):
    """The site's policy refuses several things; `problems` are all of them."""

    code = "policy.refused"
    public_detail = "the site's policy does not allow several things"

    def __init__(self, problems: Sequence[PolicyRefusal]) -> None:
        listed = "".join(f"\n  - [{problem.code}] {problem}" for problem in problems)
        super().__init__(f"the site's policy does not allow this:{listed}")
        self.problems = tuple(problems)
        self.public_detail = "; ".join(f"{each.code}: {each.public_detail}" for each in problems)


# -- the transport


class TransportError(ClientError):
    """The coordinator did not give an answer that can be used."""

    code = "transport.invalid"


class Unreachable(TransportError):
    """The coordinator could not be reached for as long as this client was told to try."""

    code = "transport.unreachable"


class CertificateRefused(TransportError):
    """The coordinator's TLS certificate is not one that this machine trusts."""

    code = "transport.certificate"


class NotACoordinator(TransportError):
    """Something else answered: a proxy's page, or another server."""

    code = "transport.not_a_coordinator"


class AnswerTooLarge(TransportError):
    """An answer is larger than anything that belongs there."""

    code = "transport.too_large"


class MalformedAnswer(TransportError):
    """An answer lacks a field, or has one of the wrong kind."""

    code = "transport.malformed"


class ProtocolMismatch(TransportError):
    """Hospital and coordinator speak different versions of the protocol."""

    code = "protocol.mismatch"


class Refused(TransportError):
    """The coordinator refused a request, by a code that this version has no class for."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"the coordinator refused [{code}]: {detail}")
        self.code = code
        self.detail = detail


# -- the session


class SessionError(ClientError):
    """A session or a run cannot go on."""

    code = "session.invalid"


class SessionChanged(SessionError):
    """A session has another program, seed or terms than when it was joined."""

    code = "session.changed"
    public_detail = "A session has another program, seed or terms than when it was joined."


class WrongRun(SessionError):
    """A run does not compute what its kind says, or over another schema than its session's."""

    code = "session.wrong_run"
    public_detail = (
        "A run does not compute what its kind says, or over another schema than its session's."
    )


class AnotherRun(SessionError):
    """A run is opened before the one that this hospital came for has ended."""

    code = "session.another_run"
    public_detail = "A run is opened before the one that this hospital came for has ended."


class WrongTask(SessionError):
    """A task is not the one that the run's program has at that stage."""

    code = "session.wrong_task"
    public_detail = "A task is not the one that the run's program has at that stage."


class RowsNotRemoved(SessionError):
    """With differential privacy rows are added and not removed."""

    code = "session.rows_not_removed"


class Suspended(SessionError):
    """The coordinator's admin has suspended this member."""

    code = "session.suspended"


class DeadlinePassed(SessionError):
    """The time that the caller gave has passed; nothing is lost, join again."""

    code = "session.deadline"


class RunFailed(SessionError):
    """A run ended without a model: failed or cancelled, with `reason` and `detail`."""

    code = "session.run_failed"

    def __init__(self, status: str, reason: str, detail: str) -> None:
        super().__init__(f"the run was {status} [{reason}]: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail


class NoModel(SessionError):
    """A run is done and made no model."""

    code = "session.no_model"


# -- the table


class TableSourceError(ClientError):
    """What was given as the table cannot be read as one."""

    code = "source.invalid"


class NotATable(TableSourceError):
    """An object that is no table, or a table of a kind that is not read here."""

    code = "source.not_a_table"


class FileNotThere(TableSourceError):
    """A path that leads to no file or folder."""

    code = "source.not_found"


class UnknownSuffix(TableSourceError):
    """A file whose name does not say that it is CSV or Parquet."""

    code = "source.unknown_suffix"


class EmptySource(TableSourceError):
    """A folder without tables, or a file without columns."""

    code = "source.empty"


class UnreadableFile(TableSourceError):
    """A file that is damaged, not permitted, or not what its suffix says."""

    code = "source.unreadable"


class DuplicateColumns(TableSourceError):
    """Two columns of one name."""

    code = "source.duplicate_columns"


class DifferentColumns(TableSourceError):
    """Files of one folder with different columns."""

    code = "source.different_columns"


class DraftError(TableSourceError):
    """A schema cannot be drafted: a column that was named is not there, or of no use."""

    code = "source.draft"


# -- the global model


class ModelError(ClientError):
    """Something about a global model, its files, or what is asked of it is wrong."""

    code = "global_model.invalid"


class ModelNotFound(ModelError):
    """There is no model in a folder, or a part of it is missing."""

    code = "global_model.not_found"


class ModelNotSaved(ModelError):
    """A model could not be written; what was there before is still there."""

    code = "global_model.not_saved"


class UnknownTarget(ModelError):
    """A model does not predict a target of this name."""

    code = "global_model.unknown_target"


class TableNotWritten(ModelError):
    """Predictions could not be written; no half of them is left."""

    code = "global_model.table_not_written"


class PlotUnavailable(ModelError):
    """A plot cannot be made: matplotlib is not installed, or its file cannot be written."""

    code = "global_model.plot"

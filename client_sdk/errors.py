"""Errors that a person or a peer can cause in `client_sdk`, each with a stable code.

    ClientError                       client
    ├── HomeError                     home.invalid
    │   ├── HomeInUse                 home.in_use
    │   ├── HomeExposed               home.exposed
    │   ├── HomeDamaged               home.damaged
    │   ├── DealingLost               home.dealing
    │   └── HomeNotWritten            home.not_written
    ├── LinkError                     link.invalid
    ├── RosterFileError               roster.file
    ├── IdentityNotRead               roster.identity
    ├── FingerprintNotOfKey           roster.fingerprint
    ├── TwiceInRoster                 roster.twice
    ├── PolicyError                   policy.invalid
    │   ├── PolicyFileError           policy.file
    │   ├── PolicyNotApproved         policy.not_approved
    │   ├── PolicyRefused             policy.refused, with all its `problems`:
    │   └── PolicyRefusal             policy.refusal
    │       ├── AlgorithmForbidden    policy.algorithm
    │       ├── ConsentNotGiven       policy.consent
    │       ├── ColumnForbidden       policy.column
    │       ├── PrivacyRequired       policy.without_differential_privacy
    │       ├── UnitForbidden         policy.patient
    │       ├── BudgetMissing         policy.epsilon
    │       ├── BudgetSpent           policy.budget
    │       ├── TooFewColluders       policy.colluders
    │       ├── CohortTooSmall        policy.cohort
    │       ├── TooFewRows            policy.rows
    │       ├── TooFewRowsPerFeature  policy.rows_per_feature
    │       ├── TooFewRowsHeldOut     policy.rows_held_out
    │       ├── RareLevel             policy.level_rows
    │       ├── DictionaryMismatch    policy.dictionary
    │       ├── RecipeForbidden       policy.recipe
    │       ├── ProgramNotApproved    policy.program
    │       ├── ParentForbidden       policy.parent
    │       ├── RowBandMissing        policy.row_band
    │       ├── TooManyNumbers        policy.numbers
    │       ├── ExactAndPrivate       policy.exact_and_private
    │       ├── TooManySums           policy.sums
    │       ├── TooManyRuns           policy.runs
    │       ├── TooManyPrograms       policy.programs
    │       └── PolicyExpired         policy.expired
    ├── TransportError                transport.invalid
    │   ├── Unreachable               transport.unreachable
    │   ├── CertificateRefused        transport.certificate
    │   ├── NotACoordinator           transport.not_a_coordinator
    │   ├── AnswerTooLarge            transport.too_large
    │   ├── MalformedAnswer           transport.malformed
    │   ├── ProtocolMismatch          protocol.mismatch
    │   └── RefusedByCoordinator      the coordinator's own code
    ├── SessionError                  session.invalid
    │   ├── SessionChanged            session.changed
    │   ├── SessionElsewhere          session.elsewhere
    │   ├── WrongRun                  session.wrong_run
    │   ├── AnotherRun                session.another_run
    │   ├── WrongTask                 session.wrong_task
    │   ├── ReplayError               replay.invalid
    │   │   ├── OldState              replay.old_state
    │   │   ├── WrongSum              replay.wrong_sum
    │   │   └── ModelDiffers          replay.model_differs
    │   ├── RowsNotRemoved            session.rows_not_removed
    │   ├── OutgrewRowBand            session.row_band
    │   ├── RowBandChanged            session.row_band_changed
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
    │   ├── SchemaNotRead             source.schema
    │   ├── DraftError                source.draft
    │   └── SchemasDiffer             source.schemas_differ
    ├── PackageMissing                package.missing
    └── ModelError                    global_model.invalid
        ├── ModelNotFound             global_model.not_found
        ├── ModelNotCertified         model.not_certified
        │   ├── ModelNotVouched       model.not_vouched
        │   └── CardNotSigned         model.card_differs
        ├── ModelNotSaved             global_model.not_saved
        ├── UnknownTarget             global_model.unknown_target
        ├── TableNotWritten           global_model.table_not_written
        ├── PlotUnavailable           global_model.plot
        └── PersonalError             personal.invalid
            ├── StartUnavailable      personal.start
            ├── RowsNotAmong          personal.rows
            ├── PersonalExposed       personal.exposed
            └── PersonalDamaged       personal.damaged

A message says what is wrong with which value and what to do. It never contains a patient's value,
key material or the secret of a link. Errors that a hospital reports to the coordinator have a
`public_detail`, a sentence without data; the message itself stays at the hospital
(`gate.refusal_report`).
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
    """Another process uses this home: two processes would answer the same task twice."""

    code = "home.in_use"


class HomeExposed(HomeError):
    """The home, or a file in it, is open to other users of the machine."""

    code = "home.exposed"


class HomeDamaged(HomeError):
    """A file of the home is missing or has unexpected content."""

    code = "home.damaged"


class DealingLost(HomeError):
    """The secret by which this hospital deals its rows to parts is missing or not valid."""

    code = "home.dealing"


class HomeNotWritten(HomeError):
    """A step could not be written to disk, so nothing was sent."""

    code = "home.not_written"


class LinkError(ClientError):
    """A link is neither a join link nor the address of a session."""

    code = "link.invalid"


class RosterFileError(ClientError):
    """A file is not a valid roster."""

    code = "roster.file"


class IdentityNotRead(ClientError):
    """A text is not what `veilgp identity --name NAME` prints, or a name cannot be a hospital's."""

    code = "roster.identity"


class FingerprintNotOfKey(ClientError):
    """A hospital's fingerprint is not that of the key beside it: one of the two was changed."""

    code = "roster.fingerprint"


class TwiceInRoster(ClientError):
    """Two hospitals of a roster have one name or one key, or there are too many."""

    code = "roster.twice"


# -- the site's policy


class PolicyError(ClientError):
    """The site's policy does not allow something, or is not valid."""

    code = "policy.invalid"
    public_detail: str = "the site's policy does not allow something, or is not valid"


class PolicyFileError(PolicyError):
    """A policy has a missing, unknown or invalid line."""

    code = "policy.file"
    public_detail = "the site's policy has a missing, unknown or invalid line"


class PolicyNotApproved(PolicyError):
    """Nobody at the hospital has approved this session's policy as it is now."""

    code = "policy.not_approved"
    public_detail = "the site has not approved its policy for this session"


class PolicyRefusal(PolicyError):
    """The site's policy does not allow what is requested.

    `instead` says what to ask for, so that the policy need not change; empty if there is nothing.
    `line` is the line of the policy that would have to change, or empty if there is none.
    `public_detail` is the text for the coordinator, which says nothing about the table.
    """

    code = "policy.refusal"
    public_detail = "the site's policy does not allow this"

    def __init__(
        self, sentence: str, *, line: str, because: str, public_detail: str, instead: str = ""
    ) -> None:
        allow = "To allow it all the same" if instead else "To allow it"
        change = f"{allow}, set in the site's policy: {line}." if line else ""
        super().__init__(" ".join(filter(None, (sentence, instead, change, because))))
        self.line = line
        self.public_detail = public_detail


class AlgorithmForbidden(PolicyRefusal):
    """The site's policy does not allow an algorithm."""

    code = "policy.algorithm"


class ConsentNotGiven(PolicyRefusal):
    """The site's policy does not consent to an algorithm that may reveal this site's numbers."""

    code = "policy.consent"


class ColumnForbidden(PolicyRefusal):
    """The site's policy does not allow a column to be used."""

    code = "policy.column"


class PrivacyRequired(PolicyRefusal):
    """The site's policy does not allow sums without differential privacy."""

    code = "policy.without_differential_privacy"


class OpenSumsForbidden(PolicyRefusal):
    """The site's policy does not allow the coordinator to read exact sums."""

    code = "policy.open_sums"


class ServedModelForbidden(PolicyRefusal):
    """The site's policy does not allow the coordinator to have a model of exact sums."""

    code = "policy.served_model"


class UnitForbidden(PolicyRefusal):
    """The site's policy requires noise that covers a patient; the session's noise covers less."""

    code = "policy.patient"


class BudgetMissing(PolicyRefusal):
    """The site's policy does not set a privacy budget per patient."""

    code = "policy.epsilon"


class BudgetSpent(PolicyRefusal):
    """The site's own privacy budget does not cover what is requested."""

    code = "policy.budget"


class TooFewColluders(PolicyRefusal):
    """The site's policy requires sums that are safe against more colluding members."""

    code = "policy.colluders"


class CohortTooSmall(PolicyRefusal):
    """The site's policy requires a larger cohort of members with confirmed keys."""

    code = "policy.cohort"


class TooFewRows(PolicyRefusal):
    """The site's policy requires more rows than the table has."""

    code = "policy.rows"


class TooFewRowsPerFeature(PolicyRefusal):
    """The site's policy requires more rows per feature of the kernel."""

    code = "policy.rows_per_feature"


class TooFewRowsHeldOut(PolicyRefusal):
    """The site's policy requires more rows, or none, in a part that is held out of training."""

    code = "policy.rows_held_out"


class RareLevel(PolicyRefusal):
    """The site's policy requires more rows for each level of a categorical column."""

    code = "policy.level_rows"


class DictionaryMismatch(PolicyRefusal):
    """The session's schema or the table does not fit the site's data dictionary."""

    code = "policy.dictionary"


class RecipeForbidden(PolicyRefusal):
    """A parameter of the program is outside the range that the site's policy allows.

    `name` is the line of [recipes] that would have to change, or empty if there is none.
    """

    code = "policy.recipe"

    def __init__(
        self, sentence: str, *, line: str, because: str, public_detail: str, name: str = ""
    ) -> None:
        super().__init__(sentence, line=line, because=because, public_detail=public_detail)
        self.name = name


class ProgramNotApproved(PolicyRefusal):
    """The site's policy does not list the session's program."""

    code = "policy.program"


class ParentForbidden(PolicyRefusal):
    """A run starts from a model that this hospital has neither obtained nor approved."""

    code = "policy.parent"


class RowBandMissing(PolicyRefusal):
    """Nobody has chosen the number of rows that answer times are measured for."""

    code = "policy.row_band"


class TooManyNumbers(PolicyRefusal):
    """More numbers about this data source would become known than the site's policy allows."""

    code = "policy.numbers"


class ExactAndPrivate(PolicyRefusal):
    """Exact and private sums of one table are not both answered."""

    code = "policy.exact_and_private"


class TooManySums(PolicyRefusal):
    """The site's policy allows fewer sums over a data source."""

    code = "policy.sums"


class TooManyRuns(PolicyRefusal):
    """The site's policy allows fewer runs over a data source."""

    code = "policy.runs"


class TooManyPrograms(PolicyRefusal):
    """The site's policy allows fewer distinct programs over a data source."""

    code = "policy.programs"


class PolicyExpired(PolicyRefusal):
    """The site's policy has expired."""

    code = "policy.expired"


class PolicyRefused(PolicyError):
    """The site's policy refuses several things, all listed in `problems`."""

    code = "policy.refused"
    public_detail = "the site's policy does not allow several things"

    def __init__(self, problems: Sequence[PolicyRefusal]) -> None:
        listed = "".join(f"\n  - [{problem.code}] {problem}" for problem in problems)
        super().__init__(f"the site's policy does not allow this:{listed}")
        self.problems = tuple(problems)
        self.public_detail = "; ".join(f"{each.code}: {each.public_detail}" for each in problems)


# -- the transport


class TransportError(ClientError):
    """The coordinator did not return a usable response."""

    code = "transport.invalid"


class Unreachable(TransportError):
    """The coordinator could not be reached within the time that this client was given."""

    code = "transport.unreachable"


class CertificateRefused(TransportError):
    """The coordinator's TLS certificate is not trusted by this machine."""

    code = "transport.certificate"


class NotACoordinator(TransportError):
    """The response came from something else: a proxy's page or another server."""

    code = "transport.not_a_coordinator"


class AnswerTooLarge(TransportError):
    """A response is larger than the limit for its request."""

    code = "transport.too_large"


class MalformedAnswer(TransportError):
    """A response lacks a field, or has a field of the wrong type."""

    code = "transport.malformed"


class ProtocolMismatch(TransportError):
    """Hospital and coordinator speak different versions of the protocol."""

    code = "protocol.mismatch"


class RefusedByCoordinator(TransportError):
    """The coordinator refused a request with a code for which this version has no class."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"the coordinator refused [{code}]: {detail}")
        self.code = code
        self.detail = detail


# -- the session


class SessionError(ClientError):
    """A session or a run cannot continue."""

    code = "session.invalid"


class SessionChanged(SessionError):
    """The session's program or terms, or this member's name, have changed since it was joined."""

    code = "session.changed"
    public_detail = (
        "The session's program or terms, or the member's name, have changed since it was joined."
    )


class SessionElsewhere(SessionError):
    """A link gives another address for a session than the one that this hospital knows."""

    code = "session.elsewhere"


class WrongRun(SessionError):
    """A run's program does not match its kind, or its schema differs from the session's."""

    code = "session.wrong_run"
    public_detail = (
        "The run's program does not match its kind, or its schema differs from the session's."
    )


class AnotherRun(SessionError):
    """A run was opened before the run that this hospital takes part in has ended."""

    code = "session.another_run"
    public_detail = "A run was opened before the run that this hospital takes part in has ended."


class WrongTask(SessionError):
    """A task differs from the one that the run's program has at that stage."""

    code = "session.wrong_task"
    public_detail = "The task differs from the one that the run's program has at that stage."


class ReplayError(SessionError):
    """The coordinator's run is not the one that this hospital has computed itself."""

    code = "replay.invalid"
    public_detail = "The run is not the one that this site has computed from the verified totals."


class OldState(ReplayError):
    """A task goes back to a state that this hospital has left."""

    code = "replay.old_state"


class WrongSum(ReplayError):
    """The run does not continue with the total of its newest sum."""

    code = "replay.wrong_sum"


class ModelDiffers(ReplayError):
    """The coordinator serves another model than the one that this hospital has computed."""

    code = "replay.model_differs"


class RowsNotRemoved(SessionError):
    """With differential privacy rows can be added but not removed."""

    code = "session.rows_not_removed"


class OutgrewRowBand(SessionError):
    """The table has more rows than the band for which this site's answer times are fixed."""

    code = "session.row_band"


class RowBandChanged(SessionError):
    """The policy has another row band than the one that was chosen for the data source."""

    code = "session.row_band_changed"


class Suspended(SessionError):
    """The coordinator's admin has suspended this member."""

    code = "session.suspended"


class DeadlinePassed(SessionError):
    """The caller's deadline has passed; nothing is lost: join again to continue."""

    code = "session.deadline"


class RunFailed(SessionError):
    """A run failed or was cancelled, with `reason` and `detail`; there is no model."""

    code = "session.run_failed"

    def __init__(self, status: str, reason: str, detail: str) -> None:
        super().__init__(f"the run ended with status {status} [{reason}]: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail


class NoModel(SessionError):
    """A run is done but produced no model."""

    code = "session.no_model"


# -- the table


class TableSourceError(ClientError):
    """The given object or path cannot be read as a table."""

    code = "source.invalid"


class NotATable(TableSourceError):
    """An object is not a table, or is a table of an unsupported type."""

    code = "source.not_a_table"


class FileNotThere(TableSourceError):
    """A path does not lead to a file or folder."""

    code = "source.not_found"


class UnknownSuffix(TableSourceError):
    """A file's suffix is neither that of CSV nor that of Parquet."""

    code = "source.unknown_suffix"


class EmptySource(TableSourceError):
    """A folder has no tables, or a file has no columns."""

    code = "source.empty"


class UnreadableFile(TableSourceError):
    """A file is damaged, may not be read, or does not have the format of its suffix."""

    code = "source.unreadable"


class DuplicateColumns(TableSourceError):
    """Two columns have the same name."""

    code = "source.duplicate_columns"


class DifferentColumns(TableSourceError):
    """Files in one folder have different columns."""

    code = "source.different_columns"


class SchemaNotRead(TableSourceError):
    """An object or a file is not a schema, or cannot be read."""

    code = "source.schema"


class DraftError(TableSourceError):
    """A schema cannot be drafted: a named column is missing or cannot be used."""

    code = "source.draft"


class SchemasDiffer(TableSourceError):
    """Schemas of several sites cannot be merged into one; the text lists all their conflicts."""

    code = "source.schemas_differ"


# -- packages that are not always needed


class PackageMissing(ClientError):
    """A package that only this needs is not installed."""

    code = "package.missing"


# -- the global model


class ModelError(ClientError):
    """A global model, its files, or a request to it is not valid."""

    code = "global_model.invalid"


class ModelNotFound(ModelError):
    """A folder contains no model, or a part of the model is missing."""

    code = "global_model.not_found"


class ModelNotCertified(ModelError):
    """No certificate of its members covers a model."""

    code = "model.not_certified"


class ModelNotVouched(ModelNotCertified):
    """Too few members whose keys are known here vouch for a model."""

    code = "model.not_vouched"


class CardNotSigned(ModelNotCertified):
    """A model's card differs from what its members have signed."""

    code = "model.card_differs"


class ModelNotSaved(ModelError):
    """A model could not be written; files that were there before are unchanged."""

    code = "global_model.not_saved"


class UnknownTarget(ModelError):
    """A model does not predict a target of this name."""

    code = "global_model.unknown_target"


class TableNotWritten(ModelError):
    """Predictions could not be written; no partial file is left."""

    code = "global_model.table_not_written"


class PlotUnavailable(ModelError):
    """A plot cannot be made: matplotlib is not installed, or the file cannot be written."""

    code = "global_model.plot"


# -- a hospital's own model


class PersonalError(ModelError):
    """A personal model cannot be made, read or written as it was asked for."""

    code = "personal.invalid"


class StartUnavailable(PersonalError):
    """A personal model cannot start from the global posterior; it can from the kernel."""

    code = "personal.start"


class RowsNotAmong(PersonalError):
    """A hospital's rows cannot be among those that the global model was trained on."""

    code = "personal.rows"


class PersonalExposed(PersonalError):
    """Other users of the machine can read a personal model, which has single rows' influence."""

    code = "personal.exposed"


class PersonalDamaged(PersonalError):
    """A personal model's files are damaged, or of another version."""

    code = "personal.damaged"

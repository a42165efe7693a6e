"""Events of a session as plain data, emitted by the gate and the conversation.

`str(event)` is the sentence shown to people. `client_sdk.progress` displays events; a test or a
program can pass its own function (an `EventWatch`), such as a list's `append`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from client_sdk.readable import readable
from privacy.accounting.cost import Cost
from privacy.ledger import Budget


@dataclass(frozen=True)
class Event:
    """Something that happened; `str(event)` is the sentence shown to people."""


@dataclass(frozen=True)
class Enrolled(Event):
    """The hospital is enrolled and waits for approval."""

    name: str
    fingerprint: str

    def __str__(self) -> str:
        return (
            f"Enrolled as {self.name}. Read these digits to the session's admin, who compares them "
            f"with the digits shown beside your name and then approves you:\n    {self.fingerprint}"
        )


@dataclass(frozen=True)
class Approved(Event):
    """The hospital is a member."""

    name: str

    def __str__(self) -> str:
        return f"Approved as {self.name}."


@dataclass(frozen=True)
class Disclosed(Event):
    """The disclosure: what would leave the hospital."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ReadRowByRow(Event):
    """With differential privacy: counts of invalid cells, shown only at this hospital."""

    clipped: int
    left_out: int

    def __str__(self) -> str:
        return (
            f"In this table {self.clipped} cells are outside the session's bounds and were "
            f"clipped; {self.left_out} rows were left out because a cell is missing, unknown or "
            "not a number. This is shown only here. To list the cells, run: veilgp check TABLE "
            "--schema FILE"
        )


@dataclass(frozen=True)
class LeftOutWithoutTarget(Event):
    """The number of rows without a target, shown only at this hospital."""

    rows: int

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of this table have no target, or not all of them, and were left "
            "out. This is shown only here."
        )


@dataclass(frozen=True)
class Unpinned(Event):
    """Members whose keys are not confirmed at this hospital."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(map(readable, self.names))
        return (
            f"The keys of these members are not confirmed: {names}. Pass a roster file, or compare "
            "fingerprints by phone and run: veilgp confirm NAME DIGITS"
        )


@dataclass(frozen=True)
class Waiting(Event):
    """There is nothing to do yet."""

    reason: str

    def __str__(self) -> str:
        return f"Waiting for {self.reason}."


@dataclass(frozen=True)
class Trouble(Event):
    """The coordinator did not respond; the request is repeated."""

    reason: str
    again_in_s: float

    def __str__(self) -> str:
        return (
            f"The coordinator does not respond ({self.reason}); retrying in "
            f"{self.again_in_s:.1f} s."
        )


@dataclass(frozen=True)
class RunOpened(Event):
    """A run has begun."""

    run: str
    kind: str

    def __str__(self) -> str:
        return f"Run {self.run} ({self.kind}) has begun."


@dataclass(frozen=True)
class RunCost(Event):
    """The cost of a run, counted against this hospital's own budget."""

    spent: Cost
    after: Cost
    budget: Budget

    def __str__(self) -> str:
        return (
            f"This site's privacy budget for the table: ε = {self.spent.epsilon:.4g} of "
            f"{self.budget.epsilon:g} is spent, at δ = {self.budget.delta:g}; after this run at "
            f"most {self.after.epsilon:.4g}, or more if a sum is lost and requested again."
        )


@dataclass(frozen=True)
class VectorLeft(Event):
    """A masked vector was sent; `sum_number` as in `client_sdk.home.remembered.Departure`."""

    stage: int
    stages: int
    algorithm: str
    sum_number: int
    elements: int
    octets: int
    sha256: str

    def __str__(self) -> str:
        return (
            f"Stage {self.stage + 1} of {self.stages}, {self.algorithm}: sum {self.sum_number}, "
            f"sent {self.elements} masked numbers, {self.octets} bytes "
            f"(SHA-256 {self.sha256[:16]}…)."
        )


@dataclass(frozen=True)
class CouldNotCompute(Event):
    """The hospital could not compute its numbers for a sum; the reason is shown only here."""

    stage: int
    algorithm: str
    reason: str
    private: bool

    def __str__(self) -> str:
        others = (
            "It contributed zero, and nobody else can tell."
            if self.private
            else "The run ends. The others only learn that one site could not compute, not which."
        )
        return (
            f"THIS SITE COULD NOT COMPUTE stage {self.stage + 1}, {self.algorithm}: {self.reason}. "
            f"{others} The reason is shown only here, and in: veilgp log"
        )


@dataclass(frozen=True)
class Measuring(Event):
    """The hospital tries a program before it enters a run."""

    def __str__(self) -> str:
        return "Trying every stage of the program before the run is entered; nothing is sent."


@dataclass(frozen=True)
class AnswerLate(Event):
    """An answer took longer than the stage's answer time."""

    stage: int
    algorithm: str
    answer_s: float
    late_s: float

    def __str__(self) -> str:
        return (
            f"Stage {self.stage + 1}, {self.algorithm}: the answer was ready {self.late_s:.3f} s "
            f"after its answer time of {self.answer_s:.3f} s. The time of a late answer may say "
            "something about this table: if this happens often, this machine is too busy."
        )


@dataclass(frozen=True)
class ModelNotVerified(Event):
    """The hospital missed a part of the run, so it could not compute the model itself."""

    model: str

    def __str__(self) -> str:
        return (
            f"The model {self.model} was not verified here: this hospital missed the run's last "
            "sums. Ask a hospital that was there to the end for the model's id, and compare it."
        )


@dataclass(frozen=True)
class OwnModel(Event):
    """The archive of a model for members only is unusable: the hospital returns its own model."""

    model: str
    own: str
    reason: str

    def __str__(self) -> str:
        return (
            f"The model {self.model} that a member has sealed for this hospital cannot be used "
            f"({self.reason}). This hospital has computed the model itself and returns that, as "
            f"{self.own}. Later runs cannot start from either: train again."
        )


@dataclass(frozen=True)
class ParentNotCertified(Event):
    """A run starts from a model for which not enough known members vouch."""

    model: str
    reason: str

    def __str__(self) -> str:
        return (
            f"The run starts from the model {self.model}, which is not vouched for: {self.reason}"
        )


@dataclass(frozen=True)
class UnmaskedSamplesAsked(Event):
    """The session requests samples of this hospital's own model; `allowed`: by the policy."""

    allowed: bool

    def __str__(self) -> str:
        if self.allowed:
            return (
                "The policy has open_ensemble = true: when a run is done, samples of this "
                "hospital's own model are sent, NOT MASKED. To withdraw them, run: veilgp withdraw"
            )
        return (
            "The session also requests samples of this hospital's own model. The policy does not "
            "have open_ensemble = true, so none are sent; the sums are not affected."
        )


@dataclass(frozen=True)
class UnmaskedSamplesLeft(Event):
    """Samples of this hospital's own model were sent, not masked."""

    samples: int
    elements: int
    octets: int
    sha256: str

    def __str__(self) -> str:
        return (
            f"Sent {self.samples} samples of this hospital's own model, NOT MASKED: "
            f"{self.elements} numbers, {self.octets} bytes (SHA-256 {self.sha256[:16]}…)."
        )


@dataclass(frozen=True)
class UnmaskedSamplesNotTaken(Event):
    """The coordinator did not accept the samples; the run's model is not affected."""

    code: str

    def __str__(self) -> str:
        return f"The coordinator did not accept the samples of this hospital's model [{self.code}]."


@dataclass(frozen=True)
class StepLearnt(Event):
    """A step of training that this hospital has replayed, with its metrics over all hospitals.

    algorithm: of a search with the recipe whose step it was. sums: the number of sums of the run by
    then. metrics: such as the evidence and the error on held-out rows, whichever the algorithm has.
    noisy: whether they are from sums with noise. `client_sdk.plots.learning` draws them.
    """

    run: str
    algorithm: str
    sums: int
    metrics: Mapping[str, float]
    noisy: bool = False

    def __str__(self) -> str:
        about, digits = ("about ", 3) if self.noisy else ("", 5)
        told = ", ".join(
            f"{name.replace('_', ' ')} {about}{value:.{digits}g}"
            for name, value in self.metrics.items()
        )
        said = " (noise was added)" if self.noisy else ""
        return f"{self.algorithm}, after {self.sums} sums: {told}{said}"


@dataclass(frozen=True)
class RunOver(Event):
    """A run is over."""

    run: str
    status: str
    code: str = ""
    detail: str = ""

    def __str__(self) -> str:
        why = f" [{self.code}] {self.detail}" if self.code else ""
        return f"Run {self.run} is {self.status}.{why}"


@dataclass(frozen=True)
class OwnGain(Event):
    """What the federation gives this hospital; known only here.

    text: the comparison, or why there is none.
    """

    model: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RefusalReported(Event):
    """The hospital refused; `heard` says whether the coordinator received the code."""

    code: str
    heard: bool

    def __str__(self) -> str:
        heard = "" if self.heard else " (the coordinator could not be notified)"
        return f"Refused [{self.code}]{heard}."


EventWatch = Callable[[Event], None]
"""Called with every event, in order."""

"""What happens in a session, as plain data: the gate and the conversation say it, people read it.

`str(event)` is the sentence for people. `client_sdk.progress` shows events; a test, or a program,
passes a function of its own (an `EventWatch`), such as a list's `append`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from client_sdk.readable import readable
from privacy.accounting.cost import Cost
from privacy.ledger import Budget


@dataclass(frozen=True)
class Event:
    """Something happened; `str(event)` says it to people."""


@dataclass(frozen=True)
class Enrolled(Event):
    """The hospital is known to the coordinator, and waits to be approved."""

    name: str
    fingerprint: str

    def __str__(self) -> str:
        return (
            f"Enrolled as {self.name}. Read these digits to the session's admin, who sees the same "
            f"beside your name and then approves you:\n    {self.fingerprint}"
        )


@dataclass(frozen=True)
class Approved(Event):
    """The hospital is a member."""

    name: str

    def __str__(self) -> str:
        return f"Approved as {self.name}."


@dataclass(frozen=True)
class Disclosed(Event):
    """What would leave the building."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ReadRowByRow(Event):
    """With differential privacy: bad cells of the table, which nobody else is told of."""

    clipped: int
    left_out: int

    def __str__(self) -> str:
        return (
            f"Of this table {self.clipped} cells are out of the session's bounds and were clipped, "
            f"and {self.left_out} rows were left out for a cell that is missing, unknown or not a "
            "number. Only you are told. To see which they are: veilgp check TABLE --schema FILE"
        )


@dataclass(frozen=True)
class Unpinned(Event):
    """Members whose keys nobody here has confirmed."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(map(readable, self.names))
        return (
            f"Not confirmed: the keys of {names}. Give a roster file, or compare "
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
    """No answer; it is asked again."""

    reason: str
    again_in_s: float

    def __str__(self) -> str:
        return f"The coordinator does not answer ({self.reason}); again in {self.again_in_s:.1f} s."


@dataclass(frozen=True)
class RunOpened(Event):
    """A run has begun."""

    run: str
    kind: str

    def __str__(self) -> str:
        return f"Run {self.run} ({self.kind}) has begun."


@dataclass(frozen=True)
class Spending(Event):
    """What a run would cost this hospital's own budget."""

    spent: Cost
    after: Cost
    budget: Budget

    def __str__(self) -> str:
        return (
            f"This site's privacy budget for the table: ε = {self.spent.epsilon:.4g} is spent of "
            f"{self.budget.epsilon:g} at δ = {self.budget.delta:g}; after this run at most "
            f"{self.after.epsilon:.4g}, more if a sum is lost and asked for again."
        )


@dataclass(frozen=True)
class VectorLeft(Event):
    """A vector left, masked."""

    stage: int
    stages: int
    algorithm: str
    sums: int
    elements: int
    octets: int
    sha256: str

    def __str__(self) -> str:
        return (
            f"Stage {self.stage + 1} of {self.stages}, {self.algorithm}: sum {self.sums}, "
            f"{self.elements} numbers left, masked, in {self.octets} octets "
            f"(SHA-256 {self.sha256[:16]}…)."
        )


@dataclass(frozen=True)
class UnmaskedSamplesAsked(Event):
    """The session asks for samples of this hospital's own model; the policy allows that or not."""

    allowed: bool

    def __str__(self) -> str:
        if self.allowed:
            return (
                "The policy says open_ensemble = true: when a run is done, samples of this "
                "hospital's own model leave, NOT MASKED. To take them back: veilgp withdraw"
            )
        return (
            "The session also asks for samples of this hospital's own model. The policy does not "
            "say open_ensemble = true, so none leave; the sums are not touched by that."
        )


@dataclass(frozen=True)
class UnmaskedSamplesLeft(Event):
    """Samples of this hospital's own model left, as they are."""

    samples: int
    elements: int
    octets: int
    sha256: str

    def __str__(self) -> str:
        return (
            f"{self.samples} samples of this hospital's own model left, {self.elements} numbers, "
            f"NOT MASKED, in {self.octets} octets (SHA-256 {self.sha256[:16]}…)."
        )


@dataclass(frozen=True)
class UnmaskedSamplesNotTaken(Event):
    """The coordinator does not want them; the run's model is not touched by that."""

    code: str

    def __str__(self) -> str:
        return f"The coordinator did not take the samples of this hospital's model [{self.code}]."


@dataclass(frozen=True)
class RunEnded(Event):
    """A run is over."""

    run: str
    status: str
    code: str = ""
    detail: str = ""

    def __str__(self) -> str:
        why = f" [{self.code}] {self.detail}" if self.code else ""
        return f"Run {self.run} is {self.status}.{why}"


@dataclass(frozen=True)
class RefusalReported(Event):
    """The hospital said no, and the coordinator was told the code."""

    code: str
    heard: bool

    def __str__(self) -> str:
        heard = "" if self.heard else " (the coordinator could not be told)"
        return f"Refused [{self.code}]{heard}."


EventWatch = Callable[[Event], None]
"""Called with every event, in order."""

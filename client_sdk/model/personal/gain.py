"""What a personal model gives its hospital over the global one: computed and shown at home.

Both predict the hospital's held-out rows, which neither layer has seen and which chose nothing
(`client_sdk.model.gain`), and both are scored before recalibration. The difference is paired by row
and has its standard error over patients.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from client_sdk.model.gain import CLEAR, Gain, Line
from client_sdk.readable import readable


class Better(StrEnum):
    """Which of two models predicts a hospital's own patients better."""

    PERSONAL = "better with the personal model"
    GLOBAL = "better with the global model"
    UNCLEAR = "no clear difference"


@dataclass(frozen=True)
class PersonalLine:
    """One target's gain: the scores of both models, lower is better, and how sure it is.

    gain: what the personal model's score is lower by. error: its standard error; None if there
    is only one patient.
    """

    target: str
    score: str
    unit: str
    personal: float
    from_global: float
    error: float | None

    @classmethod
    def of(cls, line: Line) -> "PersonalLine":
        """Return the line of a comparison whose local model is the personal one."""
        error = line.error if math.isfinite(line.error) else None
        return cls(line.target, line.score, line.unit, line.local, line.federated, error)

    @property
    def gain(self) -> float:
        """The reduction of the score by the personal model."""
        return self.from_global - self.personal

    @property
    def better(self) -> Better:
        """Which model is better, if that is clear."""
        if self.error is None or not abs(self.gain) > CLEAR * self.error:
            return Better.UNCLEAR
        return Better.PERSONAL if self.gain > 0 else Better.GLOBAL

    def __str__(self) -> str:
        unit = f" {readable(self.unit)}" if self.unit != "1" else ""
        error = "unknown" if self.error is None else f"{self.error:.2g}"
        return (
            f"{readable(self.target)}: {self.score} {self.personal:.4g}{unit} with the personal "
            f"model, {self.from_global:.4g}{unit} with the global one: {self.better} "
            f"({self.gain:+.2g} ± {error})"
        )


@dataclass(frozen=True)
class PersonalGain:
    """The comparison on `rows` held-out rows, a line for each target."""

    lines: tuple[PersonalLine, ...]
    rows: int

    @classmethod
    def of(cls, compared: Gain) -> "PersonalGain":
        """Return it from a comparison whose local model is the personal one."""
        return cls(tuple(map(PersonalLine.of, compared.lines)), compared.rows)

    def __str__(self) -> str:
        return (
            f"What the personal model gives this hospital, on {self.rows:,} of its own rows that "
            "neither layer has seen (computed here, sent nowhere):\n"
            + "\n".join(f"  {own}" for own in self.lines)
            + "\n± is the standard error over its held-out rows."
        )

    def __repr__(self) -> str:
        return str(self)

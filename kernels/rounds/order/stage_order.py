"""What each stage of a program needs, and which stage has made it by then.

A stage starts from the model of the one before it, so what it needs must have been made earlier and
must still be there: a stage that replaces a part of the model drops every part that depends on it
(`kernels.model.model.FOLLOWING`). After `completion` there is no recalibration any more, and after
a new kernel no layer. All of this follows from what algorithms declare, so a program that would
stop in the middle, after data has left hospitals, is refused when it is made.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels.model.model import FOLLOWING
from kernels.rounds.declaration import Made
from kernels.rounds.registry import ALGORITHMS

_PARTS: Mapping[Made, tuple[str, ...]] = {
    Made.STANDARDISER: ("standardiser",),
    Made.KERNEL: ("weights",),
    Made.CHOICE: (),
    Made.CENTRE: ("centre",),
    Made.LAYER: ("hyperparameters", "statistics"),
    Made.OUTCOMES: ("outcomes",),
    Made.COMPLETION: ("withheld",),
    Made.STUDENTS: ("distilled",),
    Made.NETWORKS: ("networks",),
    Made.RECALIBRATION: ("recalibration", "calibrations"),
    Made.SCORES: ("scores", "outcome_scores"),
}
"""The parts of a model in which each of them is."""

WORDS: Mapping[Made, str] = {
    Made.STANDARDISER: "a common scale of the columns",
    Made.KERNEL: "trained weights of the kernel",
    Made.CHOICE: "one kernel of those that are listed",
    Made.CENTRE: "weights of a linear layer to start from",
    Made.LAYER: "the linear layer of targets that are real numbers",
    Made.OUTCOMES: "the layers of targets that are not real numbers",
    Made.COMPLETION: "layers that have the held-out rows too",
    Made.STUDENTS: "student networks",
    Made.NETWORKS: "networks that the sites train together",
    Made.RECALIBRATION: "a recalibration",
    Made.SCORES: "scores",
}

EVERYTHING = frozenset(Made)


@dataclass(frozen=True)
class Step:
    """One stage: its index, its algorithm, what it needs and what it makes."""

    index: int
    name: str
    needs: frozenset[Made]
    makes: frozenset[Made]

    def __str__(self) -> str:
        return f"stages[{self.index}] ({self.name})"

    @property
    def drops(self) -> frozenset[Made]:
        """What is gone after this stage, because it depends on a part that is replaced."""
        gone = {each for made in self.makes for part in _PARTS[made] for each in FOLLOWING[part]}
        return frozenset(made for made in Made if gone & {*_PARTS[made]}) - self.makes


@dataclass(frozen=True)
class Unmet:
    """A step that needs something which is not there; `dropped`: the stage after which it is gone.

    there: what earlier stages have made by then.
    """

    step: Step
    made: Made
    dropped: Step | None
    there: frozenset[Made]

    def __str__(self) -> str:
        why = f"{self.step} needs {WORDS[self.made]}"
        if self.dropped is None:
            return f"{why}, and no stage before it makes one: put {self._makers} before it"
        return f"{why}, which is gone after {self.dropped}: put {self._makers} between the two"

    @property
    def _makers(self) -> str:
        return f"the stage {makers(self.made, self.there)}"


def unmet(steps: Sequence[Step], start: frozenset[Made] = frozenset()) -> Iterator[Unmet]:
    """Yield what is needed and not there, if a model with `start` is there before the first."""
    there, dropped = start, dict[Made, Step]()
    for step in steps:
        for made in sorted(step.needs - there):
            yield Unmet(step, made, dropped.get(made), there)
        dropped |= dict.fromkeys(there & step.drops, step)
        # What is missing is told once, not again for each stage that needs it.
        there = after(step, there | step.needs)


def after(step: Step, there: frozenset[Made]) -> frozenset[Made]:
    """Return what there is after a stage."""
    return (there - step.drops) | step.makes


def left(steps: Sequence[Step]) -> frozenset[Made]:
    """Return what the model of a program has, from its first stage on."""
    there = frozenset[Made]()
    for step in steps:
        there = after(step, there)
    return there


def makers(made: Made, there: frozenset[Made] = frozenset()) -> str:
    """Return the names of the algorithms that make something, as alternatives.

    Those whose own needs are met are named, if there are any.

    >>> makers(Made.LAYER, frozenset({Made.STANDARDISER}))
    "'linear' or 'linear_two_sums'"
    """
    found = {name: own for name, own in ALGORITHMS.items() if made in own.MAKES - own.NEEDS}
    at_once = [name for name, own in found.items() if there >= own.NEEDS]
    names = at_once or [name for name, own in found.items() if not own.NEEDS & _LATE] or [*found]
    return " or ".join(map(repr, names))


_LATE = frozenset({Made.CENTRE, Made.STUDENTS})
"""What is needed only by algorithms that continue the work of another."""

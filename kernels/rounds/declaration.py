"""What an algorithm says of itself before any row is read: consent and planned noise come from it.

Every algorithm has, in its own file, `declare(spec, before)`. Nothing else in this repository knows
which algorithm needs what, sums how much or reads which rows, and no field here has a default: what
an algorithm forgets to say is a type error, not a smaller disclosure. A conformance test runs every
algorithm and holds it to what it declares.
"""

from dataclasses import dataclass
from enum import StrEnum

from kernels.ensembles.distilled import Method
from kernels.model.model import Model
from kernels.rounds.site.site import Part


class Made(StrEnum):
    """What a stage can leave in the model for the stages after it."""

    STANDARDISER = "standardiser"
    """One scale for the columns of all sites."""
    KERNEL = "kernel"
    """Trained weights of the kernel."""
    CENTRE = "centre"
    """Weights of a linear layer from which another can be refined."""
    LAYER = "layer"
    """The Bayesian linear layer: with it a model predicts."""
    STUDENTS = "students"
    """Networks distilled from the sites' own posteriors."""
    RECALIBRATION = "recalibration"
    """How wide intervals are by held-out rows."""
    SCORES = "scores"
    """How good the model is on held-out rows."""


class PublicRows(StrEnum):
    """What an algorithm needs of a public table."""

    NONE = "none"
    INPUTS = "inputs"
    """The schema's features."""
    LABELLED = "labelled"
    """Features and targets."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a program knows of a stage before it runs.

    model: the one at the program's start. students: those that the model can have by then.
    """

    model: Model
    students: frozenset[Method]


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What one stage needs, makes, reads and gives away, at most.

    needs: what earlier stages must have made, all of it. needs_students: of which methods.
    needs_held_out: whether it means nothing where the program holds no rows out.
    makes: what is in the model after it. students: of which methods the model then has students.
    words: what it sums, for the disclosure that a hospital reads.
    sums, numbers: at most how many sums, and numbers in any one of them.
    reads: the parts of a site's rows that it looks at.
    sampling_rate: the chance of a unit of privacy to be in one sum.
    noise_share: with differential privacy, how much of what its part may spend it asks for,
        relative to other stages over the same part, unless the session says otherwise.
    public_rows: what it needs of a public table.
    needs_consent: whether its sum can be one site's own numbers, so that an operator must have
        agreed to it by name.
    """

    needs: frozenset[Made]
    needs_students: frozenset[Method]
    needs_held_out: bool
    makes: frozenset[Made]
    students: frozenset[Method]
    words: str
    sums: int
    numbers: int
    reads: frozenset[Part]
    sampling_rate: float
    noise_share: float
    public_rows: PublicRows
    needs_consent: bool

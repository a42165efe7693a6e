"""What an algorithm declares before any row is read: the basis for consent and planned noise.

Every algorithm defines `declare(spec, before)` in its own file. No other part of this repository
knows what an algorithm needs, how much it sums or which rows it reads. No field here has a default:
an omission is a type error, not a smaller disclosure. A conformance test runs every algorithm and
checks it against its declaration.
"""

from dataclasses import dataclass
from enum import StrEnum

from kernels.ensembles.distilled import Method
from kernels.ensembles.served_networks import NetworkMethod
from kernels.model.model import Model
from kernels.rounds.replay import Replay
from kernels.rounds.site.site import Part
from kernels.tables.schema import Schema


class Made(StrEnum):
    """What a stage can leave in the model for the stages after it."""

    STANDARDISER = "standardiser"
    """A common scale for the columns of all sites."""
    KERNEL = "kernel"
    """Trained weights of the kernel."""
    CHOICE = "choice"
    """One kernel of those that the program lists."""
    CENTRE = "centre"
    """Weights of a linear layer, as the starting point of a refinement."""
    LAYER = "layer"
    """The Bayesian linear layer, with which a model can predict."""
    OUTCOMES = "outcomes"
    """The layers of all targets that are not real numbers."""
    COMPLETION = "completion"
    """Layers that have the held-out rows too, beside those without them."""
    STUDENTS = "students"
    """Networks distilled from the sites' own posteriors."""
    NETWORKS = "networks"
    """Networks that the sites have trained together."""
    RECALIBRATION = "recalibration"
    """The width of intervals, according to held-out rows."""
    SCORES = "scores"
    """The model's scores on held-out rows."""


class Answers(StrEnum):
    """Which targets an algorithm is for. A schema without any of them has no use for it."""

    REAL = "real"
    """Targets that are real numbers; it leaves others alone."""
    OUTCOMES = "outcomes"
    """Targets of all other kinds."""
    ALL = "all"
    """Targets of every kind."""


class PublicRows(StrEnum):
    """What an algorithm needs from a public table."""

    NONE = "none"
    INPUTS = "inputs"
    """The schema's features."""
    LABELLED = "labelled"
    """Features and targets."""


def layers_of(schema: Schema) -> frozenset[Made]:
    """Return what a model with this schema must have to predict all its targets."""
    layers = {Made.LAYER} if schema.real else set()
    return frozenset(layers | ({Made.OUTCOMES} if schema.outcomes else set()))


def judged_with(schema: Schema, methods: frozenset[str]) -> frozenset[Made]:
    """Return what a model must have to be judged, if it has these methods beside `fedbnr`."""
    alone = not schema.outcomes and methods & frozenset(NetworkMethod)
    return frozenset() if alone else layers_of(schema)


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a program knows about a stage before it runs.

    model: the model at the program's start. students: the methods that the model can have when the
        stage begins, other than `fedbnr`: those of its students and of its networks.
    """

    model: Model
    students: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The most that one stage needs, makes, reads and discloses.

    needs: everything that earlier stages must have made. needs_students: the methods of the
        students that it needs.
    needs_held_out: whether it is meaningless if the program holds out no rows.
    answers: the targets that it is for.
    makes: what the model contains afterwards. students: the methods that the model then has, of
        students and of networks.
    words: a description of what it sums, for the disclosure that a hospital reads.
    sums, numbers: the maximum number of sums, and of numbers in any one sum.
    numbers_in_all: the maximum number of numbers in all its sums together.
    leaves: the maximum number of numbers that it leaves in the model: those that are stored, or
        those of all its sums if they are fewer.
    row_count: the block with the number of training rows, in every sum that has it; None if the
        number of training rows is in none of them.
    local_passes: how often a site trains on each of its rows between two sums.
    rate_times_steps: the highest learning rate times all steps of the stage, where a pass over a
        site's rows counts as one step.
    reads: the parts of a site's rows that it reads.
    summed_together: the sets of parts whose rows are summed together: their products, or what was
        trained on them. With few rows such a sum is the rows, so a site's floors apply to each set.
        Rows that are only scored are in none.
    sampling_rate: the probability that a unit of privacy is in one sum.
    noise_share: with differential privacy, its share of the privacy budget of its part, relative to
        other stages that read the same part, unless the session sets another.
    public_rows: what it needs from a public table. public_set: the digest of that table
        (`public_set.digest_of`), or None.
    needs_consent: whether its sum can be one site's own numbers, so that the site's operator must
        have agreed to this algorithm by name.
    includes: the names of the other algorithms whose sums it asks for. A site's policy that does
        not list them refuses this one too.
    replay: what two machines that compute the same updates may differ in.
    """

    needs: frozenset[Made]
    needs_students: frozenset[Method]
    needs_held_out: bool
    makes: frozenset[Made]
    answers: Answers
    students: frozenset[str]
    words: str
    sums: int
    numbers: int
    numbers_in_all: int
    leaves: int
    row_count: str | None
    local_passes: int
    rate_times_steps: float
    reads: frozenset[Part]
    summed_together: frozenset[frozenset[Part]]
    sampling_rate: float
    noise_share: float
    public_rows: PublicRows
    public_set: str | None
    needs_consent: bool
    includes: frozenset[str]
    replay: Replay

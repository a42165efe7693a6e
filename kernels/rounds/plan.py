"""What each stage of a program sums, in plain words and in numbers: for whoever decides on it.

Computed from the program alone, before anything is sent. The numbers are upper bounds: a run that
stops early asks for fewer sums.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.features.urk import weight_count
from kernels.layer.posterior import Hyperparameters
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging.evaluation import NUMBERS_PER_TARGET
from kernels.rounds.judging.evaluation import Spec as EvaluationSpec
from kernels.rounds.judging.evaluation import State as EvaluationState
from kernels.rounds.judging.evaluation import layout as evaluation_layout
from kernels.rounds.judging.recalibration import Spec as RecalibrationSpec
from kernels.rounds.judging.recalibration import State as RecalibrationState
from kernels.rounds.judging.recalibration import layout as recalibration_layout
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact
from kernels.rounds.layer import linear_two_sums, update
from kernels.rounds.program import Program
from kernels.rounds.shared import local_network
from kernels.rounds.shared.sufficient import statistics_blocks
from kernels.rounds.site.site import Part
from kernels.strict_json import encode_json
from kernels.tables.schema import Schema

_WORDS = {
    "moments": "how many rows there are, sums and sums of squares of each column, counts of "
    "missing cells and of each level",
    "fedavg": "how training on the local rows changes the kernel's weights; if it validates, in "
    "turn with sums of products of features (S, b, yᵀy, n), and the error on held-out rows",
    "distillation": "the locally trained kernel's similarities of rows of a public table; if it "
    "validates, in turn with sums of products of features (S, b, yᵀy, n), and the error on "
    "held-out rows",
    "exact": "sums of products of features (S, b, yᵀy, n) and the gradient of the evidence, in "
    "turn, and the error on held-out rows",
    "private_exact": "sums of products of features (S, b, yᵀy, n) and the gradient of the "
    "evidence, each unit's part of it clipped, in turn",
    "elbo": "the gradient of a bound on the evidence over a random sample of rows, each unit's "
    "part of it clipped, and how many rows were in the sample",
    "linear": "sums of products of features (S, b, yᵀy, n), once",
    "linear_two_sums": "sums of products of features (S, yᵀy, n), then the linear layer's weights",
    "predictive": "what the site's own model predicts at rows of a public table, with variances",
    "beta": "how the likelihood of held-out rows changes with one number, β",
    "fedpa": "how training on the local rows changes a network, each direction by how sure it is",
    "ep_mcmc": "mean and precision of a network's parameters after training on the local rows",
    "fedyogi": "how training on the local rows changes a network's parameters",
    "fedbe": "how training on the local rows changes a network's parameters, and what the network "
    "predicts at rows of a public table",
    "one_shot": "what a network trained on the local rows predicts at rows of a public table",
    "refinement": "sums of products of features with clipped errors of the model so far; if no sum "
    "had them, products of features (S) too",
    "recalibration": "counts of held-out rows by the size of their error",
    "evaluation": "sums of scores of held-out rows, by every method that the model has",
    "update": "what added and removed rows change in the sums of products of features",
}


@dataclass(frozen=True)
class StageDisclosure:
    """One stage: which statistic, at most how many sums, at most how many numbers in each."""

    algorithm: str
    sums: int
    numbers: int
    words: str


def stages_disclosed(program: Program) -> tuple[StageDisclosure, ...]:
    """Work it out from the program."""
    model = program.start()
    return tuple(
        StageDisclosure(
            f"{algorithm.NAME}/{algorithm.VERSION}",
            most_sums(spec, program),
            _most_numbers(spec, model, students=_most_students(program, stage)),
            _words(algorithm.NAME, program, stage),
        )
        for stage, (algorithm, spec) in enumerate(program.algorithms())
    )


@dataclass(frozen=True)
class Planned:
    """What a stage would release with differential privacy: what it costs follows from this.

    part: whose rows. sums: at most how many. numbers: at most how many in each. multiplier: z, the
    noise of each over what one unit can change. sampling_rate: with which chance a unit is in one.
    """

    algorithm: str
    part: Part
    sums: int
    numbers: int
    multiplier: float
    sampling_rate: float

    @property
    def dealt(self) -> bool:
        """Whether the part is one of those that each unit is dealt to one of.

        Sums over different dealt parts are paid for by different units; others by every unit.
        """
        return self.part in _DEALT


_DEALT = (Part.TRAINING, Part.STOPPING, Part.CALIBRATION)


def planned(program: Program) -> tuple[Planned, ...]:
    """Say for each stage of a private program what it would release; a free one has no sums."""
    if program.privacy is None:
        raise ProgramError("this program is not private: there is no noise to account for")
    return tuple(
        Planned(
            f"{algorithm.NAME}/{algorithm.VERSION}",
            _part(spec),
            most_sums(spec, program),
            _most_numbers(spec, program.start()),
            multiplier,
            getattr(spec, "sampling_rate", 1.0),
        )
        for (algorithm, spec), multiplier in zip(
            program.algorithms(), program.privacy.multipliers, strict=True
        )
    )


def dealing(program: Program, seed: int, *, table: bytes = b"") -> bytes:
    """Name the way in which a program's tables are dealt into parts: 32 bytes.

    Who is in which part follows from the seed, the share held out, and what the schema reads. A row
    without a patient is dealt by what is in it: where a cell is corrected, the row may move to
    another part, and pays in both. So a site, which knows its table, gives its digest, and another
    table is another dealing.
    """
    own = table.hex() if program.schema.patient is None else ""
    text = encode_json([program.schema.to_json(), program.held_out, seed, own])
    return hashlib.sha256(text.encode()).digest()


def _part(spec: Any) -> Part:
    """Give the one part that a private stage reads."""
    match spec:
        case RecalibrationSpec():
            return Part.CALIBRATION
        case EvaluationSpec():
            return spec.part
        case update.Spec():
            return Part.ADDED
        case _:
            return Part.TRAINING


def _words(name: str, program: Program, stage: int) -> str:
    words = _WORDS.get(name, "sums of this statistic")
    if program.privacy is None or not most_sums(program.stages[stage], program):
        return words
    unit = "row" if program.schema.patient is None else "patient"
    noise = program.privacy.multipliers[stage]
    return f"{words}; with noise of {noise:g} times what any one {unit} can change in them"


def columns_read(schema: Schema) -> tuple[str, ...]:
    """Give the columns of a table that a program reads."""
    named = [column.name for column in (*schema.features, *schema.targets)]
    return (*named, *([] if schema.patient is None else [schema.patient]))


def most_sums(spec: Any, program: Program) -> int:
    """Give the most sums that a stage can ask for."""
    match spec:
        case moments.Spec():
            start = moments.initial(spec, program.start())
            return 0 if moments.finished(start) else 1 if start.bounded is not None else 2
        case fedavg.Spec():
            return 2 * (spec.rounds + 1) if spec.validate else spec.rounds
        case distillation.Spec():
            return 2 * (spec.rounds + 1) * len(spec.alphas) if spec.validate else spec.rounds
        case exact.Spec():
            return 2 * spec.steps * len(spec.penalties)
        case private_exact.Spec():
            return 2 * spec.steps
        case elbo.Spec():
            return spec.steps
        case linear_two_sums.Spec():
            return 2
        case beta.Spec():
            return spec.sums
        case fedpa.Spec() | fedyogi.Spec():
            return spec.rounds
        case _:
            return 1


def parts_read(spec: Any) -> tuple[Part, ...]:
    """Give the parts of a table that are held out of training and that a stage scores."""
    match spec:
        case exact.Spec():
            return (Part.STOPPING,)
        case fedavg.Spec() | distillation.Spec():
            return (Part.STOPPING,) if spec.validate else ()
        case predictive.Spec():
            return (Part.STOPPING,) if spec.expert is predictive.Expert.NETWORK else ()
        case beta.Spec() | local_network.OfNetworks():
            return (Part.STOPPING,)
        case RecalibrationSpec():
            return (Part.CALIBRATION,)
        case EvaluationSpec():
            return (spec.part,)
        case _:
            return ()


def _most_students(program: Program, stage: int) -> int:
    """Give the most students that a stage's model can have, an earlier program's model any."""
    if program.privacy is not None:
        return 0
    if isinstance(program.stages[0], EvaluationSpec):
        return len(Method)
    methods: set[Method] = set()
    for spec in program.stages[:stage]:
        if isinstance(spec, predictive.Spec):
            methods = set(spec.methods)
        elif isinstance(spec, beta.Spec):
            methods.add(Method.BETA)
    return len(methods)


def _most_numbers(spec: Any, model: Model, *, students: int = 0) -> int:
    """Give the most numbers in one sum of a stage whose model has so many students."""
    statistics = sum(block.length for block in statistics_blocks(model))
    weights = weight_count(model.kernel) + 2 * model.targets + 3
    match spec:
        case moments.Spec():
            first = moments.layout(moments.initial(spec, model))
            return max(first.length, moments.layout_of_moments(model).length)
        case fedavg.Spec() | exact.Spec() | private_exact.Spec():
            return max(statistics, weights)
        case distillation.Spec():
            gram = spec.public_rows * (spec.public_rows + 1) // 2 + 1
            return max(statistics, gram + 2) if spec.validate else gram
        case elbo.Spec():
            return elbo.layout(elbo.initial(spec, model)).length
        case predictive.Spec():
            return 7 * spec.public_rows * model.targets + 2
        case fedpa.Spec() | fedyogi.Spec() | ep_mcmc.Spec():
            layers = 2 if isinstance(spec, ep_mcmc.Spec) else 1
            return layers * spec.network(model).parameters + model.targets + 2
        case one_shot.Spec():
            return one_shot.layout(one_shot.State(model, spec)).length
        case fedbe.Spec():
            return fedbe.layout(fedbe.State(model, spec)).length
        case beta.Spec():
            return 2 * spec.points * model.targets + 1
        case RecalibrationSpec():
            return recalibration_layout(RecalibrationState(model, spec)).length
        case EvaluationSpec():
            judged = ((),) if spec.recalibrated else None
            scales = Hyperparameters.of(noise_variance=1, prior_variance=1, targets=model.targets)
            model = replace(model, hyperparameters=scales)
            own = evaluation_layout(EvaluationState(model, spec, judged)).length
            return own + students * model.targets * NUMBERS_PER_TARGET
        case _:
            return statistics

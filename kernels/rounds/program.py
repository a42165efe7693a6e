"""A program: what a session computes, as a list of stages. It is plain data that every site reads.

    Program(schema, kernel, stages=(moments.Spec(), exact.Spec(), linear.Spec()))

Each stage starts from the model of the previous one, so a program whose stages need what is not
there by then is refused when it is made. A program that computes the columns' scale starts from
nothing, any other from a model (`kernels.rounds.run_kinds`). A program is stored as versioned JSON,
which refers to algorithms by name and version.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from kernels.ensembles.served_networks import NetworkMethod
from kernels.errors import NewerProgram, ProgramError
from kernels.features.spec import KernelSpec
from kernels.model.model import Model, check_choices
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.declaration import Answers, Before, Made
from kernels.rounds.order.stage_order import EVERYTHING, Step, unmet
from kernels.rounds.registry import algorithm_of, installed
from kernels.strict_json import decode_object, encode_json, is_newer, is_number, parse_json
from kernels.tables.schema import Schema
from kernels.tables.targets import Target


@dataclass(frozen=True)
class Program:
    """Stages over one schema and one kernel.

    stages: the parameters (`Spec`) of one algorithm per stage, in order.
    max_rows: the maximum number of rows per site; it determines the fixed-point bounds.
    held_out: the share of a site's rows that is not used for training: half for stopping, half for
        calibration.
    privacy: the noise in every sum, and what it protects; None for exact sums.
    least_rows: the least number of training rows over all sites together. Without differential
        privacy, a run whose totals show fewer rows stops (`kernels.rounds.position`).
    choices: the kernels that a stage `search` chooses from, `kernel` first; none if there is no
        choice. A run that starts from a chosen kernel has the same choices.
    """

    schema: Schema
    kernel: KernelSpec
    stages: tuple[Any, ...]
    max_rows: int = 100_000
    held_out: float = 0.2
    privacy: NoisePlan | None = None
    least_rows: int = 1
    choices: tuple[KernelSpec, ...] = ()

    VERSION: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        object.__setattr__(self, "choices", tuple(self.choices))
        if not self.stages:
            raise ProgramError("a program needs at least one stage")
        check_choices(self.kernel, self.choices)
        for stage in self.stages:
            algorithm_of(stage)
        if not is_number(self.held_out) or not 0 <= self.held_out < 1:
            raise ProgramError(f"held_out must be at least 0 and below 1, not {self.held_out!r}")
        if type(self.least_rows) is not int or not 1 <= self.least_rows <= 10**12:
            raise ProgramError(
                f"least_rows must be an integer from 1 to 10¹², not {self.least_rows!r:.40}"
            )
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        self._check_answers()
        self._check_order()

    def _check_answers(self) -> None:
        """Refuse a stage for targets that the schema does not have."""
        model = self.start()
        if not self.schema.real:
            # An algorithm for real targets can declare nothing without one. What it answers does
            # not depend on the schema.
            instead = Target(self.schema.targets[0].name, "1", 0.0, 1.0)
            model = replace(model, schema=replace(self.schema, targets=(instead,)))
        before = Before(model=model, students=frozenset())
        targets = {Answers.REAL: self.schema.real, Answers.OUTCOMES: self.schema.outcomes}
        for algorithm, spec in self.algorithms():
            answers = algorithm.declare(spec, before).answers
            if not targets.get(answers, self.schema.targets):
                raise ProgramError(f"the stage {algorithm.NAME!r} is for {_NO_TARGETS[answers]}")

    def _check_order(self) -> None:
        """Refuse stages that need what no stage before them has made, or what is gone by then."""
        steps = self.steps()
        from_model = not any(Made.STANDARDISER in step.makes for step in steps)
        problems = [*unmet(steps, EVERYTHING if from_model else frozenset())]
        if problems:
            raise ProgramError("; ".join(map(str, problems)))

    def steps(self, *, networks: bool = False) -> tuple[Step, ...]:
        """Return what each stage needs and makes, by its algorithm's declaration.

        networks: whether it starts from a model that has some.
        """
        model, steps = self.start(), list[Step]()
        methods = frozenset[str](NetworkMethod if networks else ())
        for index, (algorithm, spec) in enumerate(self.algorithms()):
            own = algorithm.declare(spec, Before(model=model, students=methods))
            steps.append(Step(index, algorithm.NAME, own.needs, own.makes))
            methods = own.students
        return tuple(steps)

    @cached_property
    def row_counts(self) -> tuple[str | None, ...]:
        """The block with the number of training rows in each stage's sums, None if there is none.

        It is needed after every sum, and a declaration of many recipes takes milliseconds.
        """
        before = Before(model=self.start(), students=frozenset())
        return tuple(a.declare(spec, before).row_count for a, spec in self.algorithms())

    def check_start(self, there: frozenset[Made] = frozenset()) -> None:
        """Refuse a program that cannot start from a model with this, or else from nothing."""
        problems = [*unmet(self.steps(networks=Made.NETWORKS in there), there)]
        if problems:
            raise ProgramError("; ".join(map(str, problems)))

    def _check_privacy(self, privacy: NoisePlan) -> None:
        if len(privacy.multipliers) != len(self.stages):
            raise ProgramError(
                f"{len(self.stages)} stages need {len(self.stages)} noise multipliers, not "
                f"{len(privacy.multipliers)}"
            )
        if self.schema.patient is None and privacy.max_rows_per_patient != 1:
            raise ProgramError(
                "the schema names no patient, so the unit of privacy is the row: leave "
                "max_rows_per_patient at 1, or name the patient column"
            )
        for algorithm, spec in self.algorithms():
            algorithm.check_private(spec, self.start())

    def start(self, model: Model | None = None) -> Model:
        """Return the model before the first stage: a new one, or one from an earlier program.

        Each program has its own noise. Students and networks contain information about the rows
        that sites had when these were trained. If the program starts by refitting the linear layer,
        some of those rows may have been removed in order to be forgotten, so they are dropped. To
        get new ones, train again. A program with noise drops them too: they have none.
        """
        if model is None:
            return Model(
                self.schema, self.kernel, self.max_rows, self.privacy, choices=self.choices
            )
        before = Before(model=model, students=frozenset())
        refits = Made.LAYER in algorithm_of(self.stages[0]).declare(self.stages[0], before).makes
        if refits or self.privacy is not None:
            model = replace(model, distilled=None, networks=None)
        return replace(model, privacy=self.privacy)

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """The kernels that a model of this program can have."""
        return self.choices or (self.kernel,)

    def algorithms(self) -> Iterator[tuple[Algorithm, Any]]:
        """Yield each stage's algorithm with its parameters."""
        for stage in self.stages:
            yield algorithm_of(stage), stage

    def to_json(self) -> str:
        """Return the canonical JSON form (RFC 8785), whose SHA-256 is the program's digest."""
        privacy = {} if self.privacy is None else {"privacy": asdict(self.privacy)}
        return encode_json(
            {
                "version": self.VERSION,
                "schema": self.schema.to_json(),
                "kernel": self.kernel.to_json(),
                "choices": [own.to_json() for own in self.choices],
                "stages": [
                    {"algorithm": a.NAME, "version": a.VERSION, "parameters": asdict(stage)}
                    for a, stage in self.algorithms()
                ],
                "max_rows": self.max_rows,
                "held_out": self.held_out,
                "least_rows": self.least_rows,
                **privacy,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a program; `text` is not trusted."""
        wrong: list[str] = []
        plain = parse_json(text, "the program", wrong)
        if is_newer(plain, cls.VERSION):
            raise NewerProgram(
                f"this program has a later version than {cls.VERSION}, the latest that this veilgp "
                "reads: upgrade veilgp on this machine"
            )
        if isinstance(plain, dict) and plain.get("version") in (1, 2):
            raise ProgramError(
                f"this program has version {plain['version']}, and this veilgp reads only version "
                f"{cls.VERSION}: make the session again"
            )
        document = None if wrong else decode_object(_Document, plain, "the program", wrong)
        if document is None or document.version != cls.VERSION:
            raise ProgramError("; ".join(wrong) or f"version must be {cls.VERSION}")
        if not isinstance(document.stages, tuple):
            raise ProgramError("stages must be a list")
        stages = tuple(_stage(each, f"stages[{i}]") for i, each in enumerate(document.stages))
        return cls(
            Schema.from_json(_text(document.schema, "schema")),
            KernelSpec.from_json(_text(document.kernel, "kernel")),
            stages,
            document.max_rows,
            document.held_out,
            _privacy(document.privacy),
            document.least_rows,
            _choices(document.choices),
        )


_NO_TARGETS = {
    Answers.REAL: "targets that are real numbers, and the schema has none: leave it out",
    Answers.OUTCOMES: "targets that are not real numbers (binary, classes, count, time_to_event), "
    "and the schema has none: leave it out",
}


@dataclass(frozen=True)
class _Document:
    version: object
    schema: object
    kernel: object
    choices: object
    stages: object
    max_rows: Any
    held_out: float
    least_rows: Any
    privacy: object = None


@dataclass(frozen=True)
class _Stage:
    algorithm: Any
    version: Any
    parameters: object


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"{where} must be a string with its JSON text")
    return value


def _choices(plain: object) -> tuple[KernelSpec, ...]:
    if not isinstance(plain, tuple):
        raise ProgramError("choices must be a list")
    texts = (_text(own, f"choices[{index}]") for index, own in enumerate(plain))
    return tuple(KernelSpec.from_json(text) for text in texts)


def _privacy(plain: object) -> NoisePlan | None:
    if plain is None:
        return None
    wrong: list[str] = []
    privacy = decode_object(NoisePlan, plain, "privacy", wrong)
    if privacy is None:
        raise ProgramError("; ".join(wrong))
    return privacy


def _stage(plain: object, where: str) -> object:
    wrong: list[str] = []
    stage = decode_object(_Stage, plain, where, wrong)
    if stage is None:
        raise ProgramError("; ".join(wrong))
    kind = installed(stage.algorithm, stage.version).Spec
    spec: object = decode_object(kind, stage.parameters, f"{where}.parameters", wrong)
    if spec is None:
        raise ProgramError("; ".join(wrong))
    return spec

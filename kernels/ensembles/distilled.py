"""The student networks of a model: one for each method of combining the sites' predictions.

The coordinator keeps the sums of the sites' predictions at the public rows, and does not publish
them: a further student, such as the one for a β that is found later, needs no further secure sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from kernels.ensembles.committee import (
    Committee,
    Guard,
    generalised,
    interpolated,
    mixture,
    product,
    robust,
)
from kernels.ensembles.student_network import StudentSpec, distil, mean_divergence, predict
from kernels.errors import NotFitted, StateError
from kernels.parameter_checks import check_learning_rate, check_whole
from kernels.reproducible import near
from kernels.scores.gaussians import Gaussian
from kernels.storage import PRIVATE, check_tensor

T = TypeVar("T")

DIVERGENCE_STEP = 2.0**-20
"""The grid of a student's divergence, which is only reported."""


class Method(StrEnum):
    """How many predictions are combined into one; formulas: `kernels.ensembles.committee`."""

    PRODUCT = "product"
    """The Bayesian committee machine."""
    MIXTURE = "mixture"
    """The mixture, weighted by rows."""
    BETA = "beta"
    """The interpolation between mixture and product."""
    GPOE = "gpoe"
    """The generalised product of experts."""
    RBCM = "rbcm"
    """The robust Bayesian committee machine."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The settings with which students are distilled, by Adam on batches of 100 public rows."""

    STORED_AS: ClassVar[str] = "lesson"

    epochs: int = 60
    learning_rate: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(1, epochs=self.epochs)
        check_whole(0, seed=self.seed)
        check_learning_rate(learning_rate=self.learning_rate)

    def taught(self, spec: StudentSpec, teacher: Gaussian, inputs: Tensor) -> Tensor:
        """Return the students' parameters, (…, P), for teachers' moments, (…, K, T), at inputs."""
        return distil(
            spec,
            teacher,
            inputs,
            seed=self.seed,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            generator=torch.Generator().manual_seed(self.seed),
        )


@dataclass(frozen=True, eq=False)
class Student:
    """One student: its method, its flat parameters, and the final KL(teacher ‖ student)."""

    STORED_AS: ClassVar[str] = "distilled.student"

    method: Method
    parameters: Tensor
    divergence: float | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "method", Method(self.method))
        except ValueError:
            raise StateError(
                f"a student's method must be one of {', '.join(Method)}, not {self.method!r:.40}"
            ) from None


@dataclass(frozen=True, eq=False)
class Opinion:
    """The summed predictions of all sites at inputs (K, p), and the prior's predictions there."""

    STORED_AS: ClassVar[str] = "opinion"

    inputs: Tensor
    committee: Committee
    prior: Gaussian
    guard: Guard

    def __post_init__(self) -> None:
        object.__setattr__(self, "guard", Guard(self.guard))

    def teacher(self, method: Method, beta: Tensor | None = None) -> Gaussian:
        """Return the moments that a method predicts at the inputs, (K, T)."""
        match method:
            case Method.PRODUCT:
                return product(self.committee, self.prior, guard=self.guard)
            case Method.MIXTURE:
                return mixture(self.committee)
            case Method.GPOE:
                return generalised(self.committee, self.prior)
            case Method.RBCM:
                return robust(self.committee, self.prior)
            case Method.BETA:
                ends = self.teacher(Method.PRODUCT), self.teacher(Method.MIXTURE)
                return interpolated(*ends, _known(beta, "beta"))


@dataclass(frozen=True, eq=False)
class Distilled:
    """The students so far; beta: the β of each target, (T,), once it is known."""

    STORED_AS: ClassVar[str] = "distilled"

    spec: StudentSpec
    lesson: Lesson
    students: tuple[Student, ...]
    beta: Tensor | None = None
    opinion: Opinion | None = field(default=None, metadata=PRIVATE)

    def check(self, inputs: int, targets: int) -> None:
        """Refuse students that do not match these numbers; they may come from untrusted bytes."""
        spec = self.spec
        if not isinstance(spec, StudentSpec) or not isinstance(self.lesson, Lesson):
            raise StateError(
                "distilled.spec must be a StudentSpec and distilled.lesson a Lesson, not "
                f"{type(spec).__name__} and {type(self.lesson).__name__}"
            )
        if (spec.inputs, spec.targets) != (inputs, targets):
            raise StateError(
                f"students must have {inputs} inputs and {targets} targets, as the model has, not "
                f"{spec.inputs} and {spec.targets}"
            )
        for student in self.students:
            if not isinstance(student, Student):
                raise StateError(
                    f"distilled.students must be Students, not {type(student).__name__}"
                )
            check_tensor("student.parameters", student.parameters, (spec.network.parameters,))
        if len({student.method for student in self.students}) < len(self.students):
            raise StateError("distilled.students must have at most one student for each method")
        if self.beta is not None:
            check_tensor("distilled.beta", self.beta, (targets,))

    def published(self) -> "Distilled":
        """Return the students without the sites' summed predictions: all that predicting needs."""
        return replace(self, opinion=None)

    def student(self, method: Method) -> Student:
        """Return the student of a method; the error lists the methods that have one."""
        for student in self.students:
            if student.method is method:
                return student
        there = ", ".join(student.method for student in self.students) or "none"
        raise NotFitted(
            f"this model has no student of the method {method}; methods with a student: {there}"
        )

    def predict(self, method: Method, x: Tensor) -> Gaussian:
        """Return predictions of standardised targets, (n, T), from standardised features (n, p)."""
        return predict(self.spec, self.student(method).parameters, x)

    def taught(self, methods: Sequence[Method], *, beta: Tensor | None = None) -> "Distilled":
        """Return this with the students of further methods."""
        opinion, new = _known(self.opinion, "predictive"), []
        teachers = [opinion.teacher(method, beta) for method in methods]
        for method, teacher, parameters in zip(
            methods, teachers, self._distilled(teachers, opinion.inputs), strict=True
        ):
            missed = near(
                mean_divergence(self.spec, parameters, teacher, opinion.inputs), DIVERGENCE_STEP
            )
            new.append(Student(method, parameters, missed))
        kept = [student for student in self.students if student.method not in methods]
        return replace(self, students=(*kept, *new), beta=self.beta if beta is None else beta)

    def _distilled(self, teachers: list[Gaussian], inputs: Tensor) -> Sequence[Tensor]:
        if not teachers:
            return ()
        moments = ([each.mean for each in teachers], [each.variance for each in teachers])
        together = Gaussian(*map(torch.stack, moments))
        return tuple(self.lesson.taught(self.spec, together, inputs))


def _known(part: T | None, stage: str) -> T:
    if part is None:
        raise NotFitted(f"the students need the result of the stage {stage!r}: run it first")
    return part

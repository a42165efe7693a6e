"""The methods that a model predicts by, under the names that users have for them.

    fedbnr                              the global Bayesian linear layer, recalibrated where the
                                        program says so
    product, mixture, beta, gpoe, rbcm  a student of the sites' committee (`distilled.Method`)

Which of them a model has follows from its parts: nobody has to say it a second time.
"""

from kernels.ensembles.distilled import Method
from kernels.errors import UnknownMethod
from kernels.model.model import Model, known

FEDBNR = "fedbnr"
METHODS: tuple[str, ...] = (FEDBNR, *(method.value for method in Method))
"""All that there are, in the order in which they are listed everywhere."""


def methods_of(model: Model) -> tuple[str, ...]:
    """Give the methods that a model has, its default first."""
    students = model.distilled.students if model.distilled is not None else ()
    found = {student.method.value for student in students}
    if model.statistics is not None:
        found.add(FEDBNR)
    return tuple(method for method in METHODS if method in found)


def method_for(model: Model, name: str | None) -> str:
    """Give the method of a name, by default the model's first, or say which there are."""
    there = methods_of(model)
    if not there:
        known(model.statistics, "linear")
    if name is None:
        return there[0]
    if name not in there:
        raise UnknownMethod(
            f"this model does not predict by the method {name!r:.40}; it has {', '.join(there)}"
        )
    return name


def committee_method(name: str | None) -> str:
    """Give the method of a name by which many sites' predictions become one, by default product."""
    if name is None:
        return Method.PRODUCT.value
    if name not in tuple(Method):
        raise UnknownMethod(
            f"an ensemble does not predict by the method {name!r:.40}; it has {', '.join(Method)}"
        )
    return name

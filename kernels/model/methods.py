"""The prediction methods of a model, by the names that users know.

    fedbnr                              the global Bayesian linear layer, recalibrated if the
                                        program has that stage
    product, mixture, beta, gpoe, rbcm  a student of the sites' committee (`distilled.Method`)
    fedpa, ep_mcmc, fedyogi, fedbe,     networks that the sites have trained together
    one_shot                            (`served_networks.NetworkMethod`)

The methods of a model follow from its parts, and are not stored separately.
"""

from kernels.ensembles.distilled import Method
from kernels.ensembles.served_networks import NetworkMethod
from kernels.errors import UnknownMethod
from kernels.model.model import Model, check_fitted, is_fitted

FEDBNR = "fedbnr"
METHODS: tuple[str, ...] = (
    FEDBNR,
    *(method.value for method in Method),
    *(method.value for method in NetworkMethod),
)
"""All methods, in the order in which they are always listed."""


def methods_of(model: Model) -> tuple[str, ...]:
    """Return the methods of a model, its default first."""
    students = model.distilled.students if model.distilled is not None else ()
    found: set[str] = {student.method.value for student in students}
    found |= {own.method.value for own in model.networks or ()}
    if is_fitted(model):
        found.add(FEDBNR)
    return tuple(method for method in METHODS if method in found)


def method_for(model: Model, name: str | None) -> str:
    """Return the named method, by default the model's first; refuse one that it does not have."""
    there = methods_of(model)
    if not there:
        check_fitted(model)
    if name is None:
        return there[0]
    if name not in there:
        raise UnknownMethod(
            f"this model does not have the method {name!r:.40}; its methods are: {', '.join(there)}"
        )
    return name


def committee_method(name: str | None) -> str:
    """Return the named method of combining the sites' predictions, by default `product`."""
    if name is None:
        return Method.PRODUCT.value
    if name not in tuple(Method):
        raise UnknownMethod(
            f"an ensemble does not have the method {name!r:.40}; its methods are: "
            f"{', '.join(Method)}"
        )
    return name

"""The interface of every federated algorithm: functions between a broadcast state and a sum.

    layout(state)            -> Layout        names, shapes and bounds of the next vector's blocks
    initial(spec, model)     -> State         frozen data: the model so far, and all restart data
    contribute(state, site)  -> Contribution  at the hospital: named blocks, within their bounds
    update(state, total)     -> State         at the coordinator: takes a SecureTotal, nothing else
    finished(state)          -> bool          if true, the next stage starts from state.model
    check_private(spec, model)                refuses what has no differentially private form
    declare(spec, before)    -> Declaration   the most that it needs, makes, reads and discloses

An algorithm is a module in this folder that contains these functions, its parameters as the frozen
dataclass `Spec`, its `State`, its `NAME` and `VERSION`, and `STORED`: the dataclasses that its
states are stored as, in addition to those of a model. A hospital runs the algorithm of that name
and version that is installed there, never code that it receives.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.errors import NotPrivate, StatisticsError
from kernels.model.model import Model
from kernels.rounds.declaration import Before, Declaration, Made
from kernels.rounds.site.site import Site
from privacy.layout import Layout, SecureTotal

Contribution = Mapping[str, NDArray[np.float64]]


def contributed(algorithm: "Algorithm", state: Any, site: Site) -> Contribution:
    """Return the blocks that a site contributes, clipped if differential privacy is used.

    Encoding refuses a block that exceeds its bound, and everyone can see a refusal. With
    differential privacy, anything visible may depend on the rows only through the noise, so every
    element is clipped to its bound instead. This is a projection onto a convex set, which never
    moves two points further apart, so the sensitivity declared in the layout still holds. Clipping
    takes effect only if a site has more rows than the program's `max_rows`.
    """
    blocks = algorithm.contribute(state, site)
    if state.model.privacy is None:
        return blocks
    bounds = {block.name: block.bound for block in algorithm.layout(state).blocks}
    return {name: np.clip(own, -bounds[name], bounds[name]) for name, own in blocks.items()}


def accepted(total: SecureTotal, layout: Layout) -> SecureTotal:
    """Return a total that an update may use: a `SecureTotal` of the requested sum.

    The type annotation already requires this; the check also stops an individual site's vector
    from being passed by accident at run time.
    """
    if not isinstance(total, SecureTotal):
        raise StatisticsError("update() takes a SecureTotal, never one site's contribution")
    if total.layout != layout:
        raise StatisticsError("this total belongs to another sum than the one requested")
    return total


def without_private_form(why: str) -> Callable[[object, Model], None]:
    """Return the `check_private` of an algorithm that has no differentially private form."""

    def check_private(_spec: object, _model: Model) -> None:
        raise NotPrivate(why)

    return check_private


class State(Protocol):
    """Frozen data: the model so far and the stage's parameters."""

    @property
    def model(self) -> Model:
        """The model so far."""

    @property
    def spec(self) -> Any:
        """The stage's parameters."""


class Algorithm(Protocol):
    """A module in this folder."""

    NAME: str
    VERSION: int

    @property
    def NEEDS(self) -> frozenset[Made]:
        """What earlier stages must have made, whatever the parameters."""

    @property
    def MAKES(self) -> frozenset[Made]:
        """What the model contains afterwards."""

    @property
    def STORED(self) -> tuple[type, ...]:
        """The dataclasses it stores: Spec, State and the types of their fields."""

    @property
    def Spec(self) -> type:
        """Its parameters, a frozen dataclass."""

    @property
    def State(self) -> type:
        """The state that is broadcast and stored, a frozen dataclass."""

    def layout(self, state: Any) -> Layout:
        """Return the blocks of the next sum."""

    def initial(self, spec: Any, model: Model) -> Any:
        """Return the state before the first sum."""

    def contribute(self, state: Any, site: Site) -> Contribution:
        """Return one hospital's blocks."""

    def update(self, state: Any, total: SecureTotal) -> Any:
        """Return the state after a sum."""

    def finished(self, state: Any) -> bool:
        """Return whether there are no further sums."""

    def check_private(self, spec: Any, model: Model) -> None:
        """Raise a specific error if the parameters, schema or kernel have no private form."""

    def declare(self, spec: Any, before: Before) -> Declaration:
        """Return the most that a stage with these parameters needs, makes, reads and discloses."""

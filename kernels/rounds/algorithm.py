"""What every federated algorithm is: five functions between a broadcast state and a sum.

    layout(state)            -> Layout        names, shapes and bounds of the next vector's blocks
    initial(spec, model)     -> State         frozen data: the model so far, and all a restart needs
    contribute(state, site)  -> Contribution  at the hospital: named blocks, within their bounds
    update(state, total)     -> State         at the coordinator: takes a SecureTotal, nothing else
    finished(state)          -> bool          then state.model is what the next stage starts from
    check_private(spec, model)                refuses what has no form with differential privacy
    declare(spec, before)    -> Declaration   what it needs, makes, reads and gives away, at most

An algorithm is a module of this folder with these functions, its parameters as the frozen
dataclass `Spec`, its `State`, its `NAME` and `VERSION`, and the dataclasses that its states are
stored as, `STORED`, beside those of a model: a hospital runs the algorithm of that name and version
that it has installed, never code that it was sent.
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
    """Return what a site contributes: its blocks, and with differential privacy clipped ones.

    A block beyond its bound is refused where it is encoded, and a refusal is seen by everyone. With
    differential privacy nothing that is seen may depend on the rows but through the noise, so every
    element is moved to its bound instead. That is a projection onto a convex set, which brings no
    two points further apart: the sensitivity stays what the layout declares. It happens only where
    a site has more rows than the program's `max_rows`.
    """
    blocks = algorithm.contribute(state, site)
    if state.model.privacy is None:
        return blocks
    bounds = {block.name: block.bound for block in algorithm.layout(state).blocks}
    return {name: np.clip(own, -bounds[name], bounds[name]) for name, own in blocks.items()}


def accepted(total: SecureTotal, layout: Layout) -> SecureTotal:
    """Return a total that an update may use: a `SecureTotal`, and of the sum that was asked for.

    The type says so already; at run time an individual's vector must not pass by accident either.
    """
    if not isinstance(total, SecureTotal):
        raise StatisticsError("update() takes a SecureTotal, never one site's contribution")
    if total.layout != layout:
        raise StatisticsError("this total belongs to another sum than the one requested")
    return total


def without_private_form(why: str) -> Callable[[object, Model], None]:
    """Return the `check_private` of an algorithm that has no form with differential privacy."""

    def check_private(_spec: object, _model: Model) -> None:
        raise NotPrivate(why)

    return check_private


class State(Protocol):
    """Frozen data with the model so far, and the stage's parameters."""

    @property
    def model(self) -> Model:
        """The model as far as it is known."""

    @property
    def spec(self) -> Any:
        """The stage's parameters."""


class Algorithm(Protocol):
    """A module of this folder."""

    NAME: str
    VERSION: int

    @property
    def NEEDS(self) -> frozenset[Made]:
        """What earlier stages must have made, whatever the parameters."""

    @property
    def MAKES(self) -> frozenset[Made]:
        """What is in the model after it."""

    @property
    def STORED(self) -> tuple[type, ...]:
        """Its own stored kinds: Spec, State and what they are made of."""

    @property
    def Spec(self) -> type:
        """Its parameters, a frozen dataclass."""

    @property
    def State(self) -> type:
        """What is broadcast and stored, a frozen dataclass."""

    def layout(self, state: Any) -> Layout:
        """Return the blocks of the next sum."""

    def initial(self, spec: Any, model: Model) -> Any:
        """Return the state before the first sum."""

    def contribute(self, state: Any, site: Site) -> Contribution:
        """Return one hospital's blocks."""

    def update(self, state: Any, total: SecureTotal) -> Any:
        """Return the state after a sum."""

    def finished(self, state: Any) -> bool:
        """Say whether there is no further sum."""

    def check_private(self, spec: Any, model: Model) -> None:
        """Refuse parameters, schema or kernel that it has no private form for, by name."""

    def declare(self, spec: Any, before: Before) -> Declaration:
        """Say what a stage with these parameters needs, makes, reads and gives away, at most."""

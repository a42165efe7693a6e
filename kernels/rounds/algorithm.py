"""What every federated algorithm is: five functions between a broadcast state and a sum.

    layout(state)            -> Layout        names, shapes and bounds of the next vector's blocks
    initial(spec, model)     -> State         frozen data: the model so far, and all a restart needs
    contribute(state, site)  -> Contribution  at the hospital: named blocks, within their bounds
    update(state, total)     -> State         at the coordinator: takes a SecureTotal, nothing else
    finished(state)          -> bool          then state.model is what the next stage starts from

An algorithm is a module of this folder with these functions, its parameters as the frozen
dataclass `Spec`, its `State`, and its `NAME` and `VERSION`: a hospital runs the algorithm of that
name and version that it has installed, never code that it was sent.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.rounds.model import Model
from kernels.rounds.site import Site
from privacy.layout import Layout, SecureTotal

Contribution = Mapping[str, NDArray[np.float64]]


class State(Protocol):
    """Frozen data with the model so far."""

    @property
    def model(self) -> Model:
        """The model as far as it is known."""


class Algorithm(Protocol):
    """A module of this folder."""

    NAME: str
    VERSION: int
    Spec: type
    State: type

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

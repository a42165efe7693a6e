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

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.errors import (
    ChangedTable,
    ComputationFailed,
    DealingMissing,
    NotPrivate,
    StatisticsError,
)
from kernels.model.model import Model
from kernels.rounds.declaration import Before, Declaration, Made
from kernels.rounds.site.made_up import made_up_site
from kernels.rounds.site.site import Site
from privacy.layout import Layout, SecureTotal

Contribution = Mapping[str, NDArray[np.float64]]


@contextmanager
def computing(what: str) -> Iterator[None]:
    """Turn every failure of a computation in the block into one `ComputationFailed`.

    Which error it was may depend on the rows, so nothing outside the site may depend on that; the
    cause is for the site's own log. Failures of the machine are not failures of the computation:
    an `OSError`, a signal and a table that was replaced on disk pass through, and the site is
    absent until they are repaired; so does a site that was built without a dealing, which no
    hospital's is.
    """
    try:
        yield
    except (ComputationFailed, ChangedTable, DealingMissing, OSError):
        raise
    except Exception as error:
        raise ComputationFailed(f"{what}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A state that was tried on made-up rows, so that a site may now read its own for it.

    Everything that the state implies (kernel, posterior, laws, edges) is built and checked: it does
    not depend on the site's rows whether, where or how soon the state is found to be unusable.
    """

    algorithm: "Algorithm"
    state: Any
    layout: Layout

    def contributed(
        self, site: Site, noted: Callable[[ComputationFailed], None] = lambda _: None
    ) -> Contribution:
        """Return the blocks that a site contributes.

        Without differential privacy a computation that fails raises `ComputationFailed`. With it,
        a site always has blocks: every element is clipped to its bound, and a computation that
        fails as a whole contributes zero (`noted` is called with the failure, for the site's own
        log). Clipping is a projection onto a convex set, which never moves two points further
        apart, so the sensitivity declared in the layout still holds.
        """
        private = self.state.model.privacy is not None
        try:
            with computing(f"{self.algorithm.NAME} cannot be computed for this site's rows"):
                blocks = self.algorithm.contribute(self.state, site)
                if private:
                    _check_blocks(blocks, self.layout)
        except ComputationFailed as failed:
            if not private:
                raise
            noted(failed)
            return {block.name: np.zeros(block.shape) for block in self.layout.blocks}
        if not private:
            return blocks
        return {
            block.name: np.clip(blocks[block.name], -block.bound, block.bound)
            for block in self.layout.blocks
        }


def rehearsed(algorithm: "Algorithm", state: Any) -> Rehearsed:
    """Try a state on a few made-up rows in every part; raise `ComputationFailed` if it fails."""
    with computing(f"this state of {algorithm.NAME} cannot be computed, whatever the rows"):
        layout = algorithm.layout(state)
        _check_blocks(algorithm.contribute(state, made_up_site(state.model)), layout)
    return Rehearsed(algorithm, state, layout)


def contributed(algorithm: "Algorithm", state: Any, site: Site) -> Contribution:
    """Return the blocks that a site contributes at a state, which is tried on made-up rows first.

    This is the only door between a site's rows and numbers that leave it.
    """
    return rehearsed(algorithm, state).contributed(site)


def _check_blocks(blocks: Contribution, layout: Layout) -> None:
    """Refuse blocks that are not those of the layout, or that contain NaN or infinite values."""
    shapes = {block.name: block.shape for block in layout.blocks}
    if {name: np.shape(own) for name, own in blocks.items()} != shapes:
        raise StatisticsError("the blocks computed are not those of the layout")
    for name, own in blocks.items():
        # A finite sum has finite terms.
        if not math.isfinite(float(np.sum(own))) and not np.isfinite(own).all():
            raise StatisticsError(f"block {name} contains NaN or infinite values")


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
        """What the model contains afterwards, whatever the parameters and the schema."""

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

"""One sum over sites, and all the sums of one stage, for tests that look at states in between."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernels import storage
from kernels.model.model import Model
from kernels.rounds.algorithm import Contribution
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Site
from privacy.encoding import Encoding
from privacy.layout import SecureTotal


def add_plainly(encoding: Encoding, contributions: Iterable[Contribution]) -> SecureTotal:
    """Return the sum of the contributions without masks, rounded as the encoding rounds."""
    encoded = [encoding.encode(contribution) for contribution in contributions]
    return encoding.decode(np.add.reduce(encoded), contributors=len(encoded))


def total(algorithm: Any, state: Any, sites: Sequence[Site]) -> SecureTotal:
    """Sum what the sites make of the broadcast; they know its layout from it too."""
    seen = restore(storage.encode(state, broadcast=True))
    assert algorithm.layout(seen) == algorithm.layout(state)
    encoding = Encoding.finest(algorithm.layout(seen), max_clients=len(sites))
    return add_plainly(encoding, [algorithm.contribute(seen, site) for site in sites])


def after_one(algorithm: Any, state: Any, sites: Sequence[Site]) -> Any:
    """Return the state after one sum."""
    return algorithm.update(state, total(algorithm, state, sites))


def after_all(algorithm: Any, spec: Any, model: Model, sites: Sequence[Site]) -> Any:
    """Return the last state of a stage."""
    state = algorithm.initial(spec, model)
    while not algorithm.finished(state):
        state = after_one(algorithm, state, sites)
    return state

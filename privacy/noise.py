"""Drawing a member's share of the noise: exact discrete Gaussians, before any data is touched.

Noise is integers from the start. Continuous noise as floats leaks through the values that floats
cannot take (Mironov 2012); here there is nothing to take: P(k) ∝ exp(−k²/2s²) for every integer k,
by OpenDP's exact sampler from its cryptographic generator. How long a draw takes depends on what is
drawn, so it is drawn in bulk before the table is read: its duration says nothing about the rows
(threats.md A11).

A draw covers one upload: two uploads with the same noise differ by what differs in the data. It
has a name, which the site's journal remembers for ever, and gives its integers once.
"""

import secrets
from collections.abc import Callable
from typing import NoReturn, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import NoiseError

Source = Callable[[int, int], NDArray[np.int64]]
"""(deviation, count) → so many independent integers."""


@final
class Draw:
    """One member's noise for one upload: a name for the journal, and the integers, once."""

    __slots__ = ("_integers", "name")
    name: bytes
    _integers: NDArray[np.int64] | None

    def __init__(self, name: bytes, integers: NDArray[np.int64]) -> None:
        self.name = name
        self._integers = integers

    def once(self) -> NDArray[np.int64]:
        """Hand the integers over, for `Encoding.encode`; there is no second time."""
        integers, self._integers = self._integers, None
        if integers is None:
            raise NoiseError("this draw of noise has been used; draw again, and charge again")
        return integers

    def __repr__(self) -> str:
        return f"<Draw {self.name.hex()}>"

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise NoiseError("a draw of noise is neither copied nor pickled: it is used once")


def exact(deviation: int, count: int) -> NDArray[np.int64]:
    """Draw from the discrete Gaussian N_ℤ(0, deviation²), exactly; about 15 µs each.

    OpenDP adds noise to a vector of zeros: the sensitivity that its own bookkeeping speaks of is
    not used, only the sampler.
    """
    # Imported here: an eighth of a second, for sites without differential privacy too.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    if count == 0:
        return np.empty(0, dtype=np.int64)
    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    return np.asarray(make_gaussian(*space, scale=float(deviation))([0] * count), dtype=np.int64)


def approximate(generator: np.random.Generator) -> Source:
    """Return a source that rounds numpy's normal floats: for simulations, never for real data.

    A hundred times as fast as `exact`, and for ideal normal floats the same up to 32/deviation² of
    every probability (privacy.accounting.distributed); but who has seen the generator's state knows
    all that it draws.
    """

    def rounded(deviation: int, count: int) -> NDArray[np.int64]:
        return np.rint(generator.normal(0.0, deviation, count)).astype(np.int64)

    return rounded


def draw(encoding: Encoding, *, source: Source = exact) -> Draw:
    """Draw what one member adds to one contribution under this encoding."""
    if not encoding.share_deviations:
        raise NoiseError("this encoding has no noise: nothing is to be drawn")
    parts = [
        source(share, block.length)
        for block, share in zip(encoding.layout.blocks, encoding.share_deviations, strict=True)
    ]
    return Draw(secrets.token_bytes(16), np.concatenate(parts, dtype="<i8"))

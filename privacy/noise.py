"""Drawing a member's share of the noise: exact discrete Gaussians, before any data is read.

Noise consists of integers from the start. Continuous noise in floats leaks information through the
values that floats cannot take [Mironov12]. Here every integer k has P(k) ∝ exp(−k²/2s²), drawn by
OpenDP's exact sampler from its cryptographic generator. The time that a draw takes depends on the
values drawn, so all noise is drawn before the table is read, and its duration reveals nothing about
the rows (docs/threats.md A11).

A draw is used for one upload: the difference of two uploads with the same noise is the difference
of their data. A draw has a name, which the site's journal keeps forever, and returns its integers
once.
"""

import secrets
from collections.abc import Callable
from typing import NoReturn, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import NoiseError

Source = Callable[[int, int], NDArray[np.int64]]
"""Maps (deviation, count) to `count` independent integers."""


@final
class Draw:
    """One member's noise for one upload: a name for the journal, and integers for one use."""

    __slots__ = ("_integers", "name")
    name: bytes
    _integers: NDArray[np.int64] | None

    def __init__(self, name: bytes, integers: NDArray[np.int64]) -> None:
        self.name = name
        self._integers = integers

    def once(self) -> NDArray[np.int64]:
        """Return the integers for `Encoding.encode`; a second call is an error."""
        integers, self._integers = self._integers, None
        if integers is None:
            raise NoiseError(
                "this draw of noise was used before: draw new noise and charge for it again"
            )
        return integers

    def __repr__(self) -> str:
        return f"<Draw {self.name.hex()}>"

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise NoiseError("a draw of noise cannot be copied or pickled: it is used once")


def exact(deviation: int, count: int) -> NDArray[np.int64]:
    """Draw exactly from the discrete Gaussian N_ℤ(0, deviation²); about 15 µs per integer.

    OpenDP adds noise to a vector of zeros: only its sampler is used, not its own accounting of
    sensitivity.
    """
    # Imported here: the import takes 0.13 s, which sites without differential privacy avoid.
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

    A hundred times as fast as `exact`. For ideal normal floats every probability would be the same
    up to a relative error of 32/deviation² (privacy.accounting.distributed), but anyone who has
    seen the generator's state knows everything that it draws.
    """

    def rounded(deviation: int, count: int) -> NDArray[np.int64]:
        return np.rint(generator.normal(0.0, deviation, count)).astype(np.int64)

    return rounded


def draw(encoding: Encoding, *, source: Source = exact) -> Draw:
    """Return the noise that one member adds to one contribution under this encoding."""
    if not encoding.share_deviations:
        raise NoiseError("this encoding has no noise, so there is nothing to draw")
    parts = [
        source(share, block.length)
        for block, share in zip(encoding.layout.blocks, encoding.share_deviations, strict=True)
    ]
    return Draw(secrets.token_bytes(16), np.concatenate(parts, dtype="<i8"))

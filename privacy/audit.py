"""Is it as private as it claims? A game of telling two neighbouring tables apart.

Whoever is (ε, δ)-private keeps any guesser from telling "with the unit" from "without it" well:
whatever it is that says "with", wrongly with probability α and rightly with 1 − β,

    1 − β ≤ e^ε·α + δ    and    1 − α ≤ e^ε·β + δ.

So a guesser's errors, counted over many games, prove a lower bound on ε: put Clopper and Pearson's
upper confidence limits in the place of α and β. Where the bound is above the claim, the claim is
false; where it is below, nothing is proved, but a guesser that knows everything except the noise
comes close to the truth, so a mechanism that is broken by more than a little is found out.

The guesser knows both tables and the scales of the noise, and scores an output by its likelihood
ratio; the score from which on it says "with" is chosen on the first half of the games, and its
errors are counted on the second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.noise import Source, exact

Play = Callable[[int], NDArray[np.float64]]
"""So many games, to the guesser's scores of their outputs: higher where "with" is likelier."""

_AT_A_TIME = 4096
"""Games, so that memory is bounded."""


@final
@dataclass(frozen=True)
class Verdict:
    """ε is at least this, with this confidence, or chance has played a trick on us."""

    epsilon: float
    confidence: float
    false_alarms: int
    misses: int
    games: int


def audit(
    without: Play, with_unit: Play, *, games: int, delta: float, confidence: float = 0.999
) -> Verdict:
    """Play `games` without the unit and as many with it, and return what they prove of ε."""
    half = games // 2
    if half < 1:
        raise PrivacyError(f"an audit takes two games or more, not {games}")
    low, high = without(2 * half), with_unit(2 * half)
    threshold = _threshold(low[:half], high[:half], delta=delta, confidence=confidence)
    false_alarms = int(np.count_nonzero(low[half:] > threshold))
    misses = int(np.count_nonzero(high[half:] <= threshold))
    bound = lower_bound(false_alarms, misses, half, delta=delta, confidence=confidence)
    return Verdict(float(bound), confidence, false_alarms, misses, half)


def lower_bound(
    false_alarms: ArrayLike,
    misses: ArrayLike,
    games: int,
    *,
    delta: float,
    confidence: float,
) -> NDArray[np.float64]:
    """Return the least ε that explains so many errors, of each kind out of `games`, or less."""
    alpha = _upper_limit(false_alarms, games, (1 + confidence) / 2)
    beta = _upper_limit(misses, games, (1 + confidence) / 2)
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - delta - beta, 0) / alpha)
        backwards = np.log(np.maximum(1 - delta - alpha, 0) / beta)
    return np.maximum(np.maximum(forwards, backwards), 0.0)


def sum_game(
    encoding: Encoding,
    *,
    without: Mapping[str, ArrayLike],
    with_unit: Mapping[str, ArrayLike],
    honest: int,
    source: Source = exact,
) -> tuple[Play, Play]:
    """Return the game on one sum, without the unit and with it, one of `honest` members having it.

    `without` and `with_unit` are what that one contributes. What other members hold is known to the
    guesser, so it is nothing; so is the noise of all members beyond `honest`.
    """
    blocks = encoding.layout.blocks
    shares = encoding.share_deviations
    silence = np.zeros(encoding.layout.length, dtype="<i8")
    before, after = (
        encoding.encode(values, noise=silence).view("<i8") for values in (without, with_unit)
    )
    deviations = np.repeat(np.array(shares, np.float64), [block.length for block in blocks])
    direction = (after - before) / deviations
    direction /= np.linalg.norm(direction)

    def some(own: NDArray[np.int64], games: int) -> NDArray[np.float64]:
        totals = np.tile(own, (games, 1))
        for _ in range(honest):
            totals += np.hstack(
                [
                    source(share, games * block.length).reshape(games, -1)
                    for share, block in zip(shares, blocks, strict=True)
                ]
            )
        scores: NDArray[np.float64] = (totals / deviations) @ direction
        return scores

    def play(own: NDArray[np.int64], games: int) -> NDArray[np.float64]:
        firsts = range(0, games, _AT_A_TIME)
        return np.concatenate([some(own, min(_AT_A_TIME, games - first)) for first in firsts])

    return partial(play, before), partial(play, after)


def _threshold(
    without: NDArray[np.float64],
    with_unit: NDArray[np.float64],
    *,
    delta: float,
    confidence: float,
) -> float:
    """Return the score that separates these games best."""
    candidates = np.unique(np.concatenate([without, with_unit]))
    false_alarms = len(without) - np.searchsorted(np.sort(without), candidates, side="right")
    misses = np.searchsorted(np.sort(with_unit), candidates, side="right")
    bounds = lower_bound(false_alarms, misses, len(without), delta=delta, confidence=confidence)
    return float(candidates[np.argmax(bounds)])


def _upper_limit(errors: ArrayLike, games: int, confidence: float) -> NDArray[np.float64]:
    """Return Clopper and Pearson's upper limit of a probability."""
    count = np.asarray(errors, np.float64)
    limit: NDArray[np.float64] = np.where(
        count >= games, 1.0, betaincinv(count + 1, np.maximum(games - count, 1), confidence)
    )
    return limit

"""An audit of a privacy claim: a game of telling two neighbouring tables apart.

If a mechanism is (ε, δ)-private, no guesser can tell "with the unit" from "without it" well. For
every guesser that says "with" wrongly with probability α and rightly with probability 1 − β,

    1 − β ≤ e^ε·α + δ    and    1 − α ≤ e^ε·β + δ.

So the errors of a guesser, counted over many games, prove a lower bound on ε: replace α and β by
the upper confidence limits of [ClopperPearson34]. If the bound is above the claimed ε, the claim is
false. If it is below, nothing is proved; but a guesser that knows everything except the noise comes
close to the true ε, so a mechanism that is off by more than a little is detected.

The guesser knows both tables and the scales of the noise, and scores an output by its likelihood
ratio. The threshold above which it says "with" is chosen on the first half of the games; its errors
are counted on the second half.
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
"""Maps a number of games to the guesser's scores of their outputs, higher if "with" is likelier."""

_AT_A_TIME = 4096
"""Number of games that are played at once, so that memory is bounded."""


@final
@dataclass(frozen=True)
class Verdict:
    """A lower bound on ε and its confidence, and the errors out of `games` of each kind."""

    epsilon: float
    confidence: float
    false_alarms: int
    misses: int
    games: int


def audit(
    without: Play, with_unit: Play, *, games: int, delta: float, confidence: float = 0.999
) -> Verdict:
    """Play `games` games without the unit and as many with it; return what they prove about ε."""
    half = games // 2
    if half < 1:
        raise PrivacyError(f"`games` must be at least 2 for an audit, not {games}")
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
    """Return a lower bound on ε from the errors of each kind, out of `games` games each."""
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
    """Return the game on one sum, without the unit and with it; one of `honest` members has it.

    `without` and `with_unit` are that member's contributions. The guesser knows what the other
    members contribute, so it is taken as zero; the same holds for the noise of members beyond
    `honest`.
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
    """Return the upper confidence limit of a probability by [ClopperPearson34]."""
    count = np.asarray(errors, np.float64)
    limit: NDArray[np.float64] = np.where(
        count >= games, 1.0, betaincinv(count + 1, np.maximum(games - count, 1), confidence)
    )
    return limit

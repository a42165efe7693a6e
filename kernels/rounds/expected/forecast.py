"""What a private program can be expected to achieve, before anything is spent.

From public numbers alone: the program with its noise, and the number of training rows that all
sites together are stated to have. No row is looked at, so nobody knows how much of a target the
columns could explain at all: the forecast is for tables of which a model without noise and with
endless rows would explain V = 20 %, 50 % and 90 % of the variation.

The kernel's features of made-up rows, standard normal, have second moments E φφᵀ with eigenvalues
Λ_i. A target is taken to be φᵀw + ε of variance 1, with w ~ N(0, λ²I) and λ²ΣΛ_i = V. In a sum over
n rows, the i-th direction has a signal of variance n²Λ_i²λ², the rows' own noise nΛ_i(1 − V) and
the privacy noise v, and a posterior keeps the share that it can tell apart:

    explained = g^DOUBT·Σ λ²Λ_i·g_i,    g_i = n²Λ_i²λ² / (n²Λ_i²λ² + nΛ_i(1 − V) + v)

with g the largest g_i. Its power is what it costs that the columns' scales, σ and λ have to be
found from noisy sums too: where not even the clearest direction stands out, they are wrong as well.

For sums of S and b with noise of deviations s and s_b, v = s_b² + REPAIRED²·s²λ²M/2, where
REPAIRED is what repairing S leaves of its noise. T steps of DP-SGD over samples of the share q,
with noise of z times the clip, are taken for one sum with the multiplier z/(q√T), and STEPS times
its noise. P sums of an outcome's slopes are taken for one with the multiplier z/√P, and SLOPES
times its noise.

An outcome that is not a number is taken for the sign, or the order, of such a number: with r =
√explained between score and number, the area under the ROC curve is ½ + 2/π·asin(r/√2), and the
concordance of a time to an event ½ + asin(r)/π.

The constants are such that forecasts are those of real runs on average: of the benchmark's four
sets at their own V (`python -m benchmarks.dp.expected` prints one beside the other), and DOUBT of
30 to 3,000 made-up rows. SLOPES is by argument: the slope of a yes/no outcome is about .4 of the
number behind it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import torch
from torch import Tensor

from kernels.errors import NoProspect, ProgramError
from kernels.features.seeded_random import normals
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.model.model import Model
from kernels.noisy.moments import from_bounds
from kernels.outcomes.fitted import latent_functions
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.rounds.shared.sufficient import statistics_blocks
from kernels.rounds.shared.weighted_sums import SLOPE_CLIP
from kernels.tables.targets import AnyTarget, Binary, Classes, Target, TimeToEvent

EXPLAINABLE = 0.2, 0.5, 0.9
"""V of the three tables that are forecast for."""
LEAST_EXPLAINED = 0.05
"""A model that explains less, where half could be explained, is no better than the mean."""

REPAIRED = 0.2
STEPS = 5.6
SLOPES = 2.5
DOUBT = 8.0

_MADE_UP_ROWS = 600
_MOST_FEATURES = 10_000
"""Of a larger kernel nothing is expected: its sums alone would have 5·10⁷ numbers."""


class Measure(StrEnum):
    """What a forecast is of."""

    EXPLAINED = "share of the variation explained"
    AUC = "area under the ROC curve"
    CONCORDANCE = "concordance"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is expected of one target. `explained`: the share explained at each EXPLAINABLE."""

    target: str
    measure: Measure
    explained: tuple[float, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """The same in the measure."""
        return tuple(_score(self.measure, own) for own in self.explained)

    @property
    def has_prospect(self) -> bool:
        """Whether the model is expected to be better than the mean."""
        return self.explained[1] >= LEAST_EXPLAINED


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is expected with so many training rows over all sites, of every target with a layer."""

    rows: int
    targets: tuple[Expected, ...]

    @property
    def without_prospect(self) -> tuple[str, ...]:
        """The targets of which the model is expected to be no better than the mean."""
        return tuple(own.target for own in self.targets if not own.has_prospect)


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """The deviations of the noise of b and of S, where a row's target has the variance 1."""

    cross: float
    scatter: float = 0.0


def forecast(program: Program, *, rows: int) -> Forecast:
    """Return what a private program can be expected to achieve with so many training rows.

    >>> from kernels.model.noise_plan import NoisePlan
    >>> from kernels.rounds.columns import moments
    >>> from kernels.tables.schema import Numeric, Schema
    >>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d", 0, 60),))
    >>> kernel = KernelSpec(architecture="linear", inputs=1)
    >>> noise = NoisePlan(multipliers=(10.0, 10.0))
    >>> whole = Program(schema, kernel, (moments.Spec(), linear.Spec()), privacy=noise)
    >>> [forecast(whole, rows=rows).without_prospect for rows in (10, 10_000)]
    [('stay',), ()]
    """
    if type(rows) is not int or rows < 1:
        raise ProgramError(f"rows must be an integer of at least 1, not {rows!r:.40}")
    return Forecast(
        rows=rows,
        targets=tuple(
            Expected(
                target=target.name,
                measure=_measure(target),
                explained=tuple(_best(program, noise, rows, share) for share in EXPLAINABLE),
            )
            for target in program.schema.targets
            if (noise := _noise(program, real=isinstance(target, Target)))
        ),
    )


def explained(program: Program, *, rows: int, explainable: float) -> float:
    """Return the share that is expected to be explained of a number, at another V."""
    return _best(program, _noise(program, real=True), rows, explainable)


def least_rows_with_prospect(program: Program, *, most: int) -> int | None:
    """Return the least number of training rows with a prospect for every target, up to `most`."""
    if forecast(program, rows=most).without_prospect:
        return None
    low, high = 0, most
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        if forecast(program, rows=middle).without_prospect:
            low = middle
        else:
            high = middle
    return high


def check_prospect(program: Program, *, rows: int) -> None:
    """Refuse a private program of which nothing is expected with so many training rows."""
    hopeless = forecast(program, rows=rows).without_prospect
    if hopeless:
        raise NoProspect(
            f"with {rows:,} training rows over all hospitals and this noise, the model of "
            f"{' and '.join(map(repr, hopeless))} is expected to be no better than predicting the "
            "mean: find more rows, increase ε, or state fewer columns or targets"
        )


def _best(program: Program, noise: list[_Noise], rows: int, explainable: float) -> float:
    """Return what the least noisy of the stages that fit a layer explains."""
    if max(program.kernel.features, program.kernel.inputs) > _MOST_FEATURES:
        return 0.0
    spectrum = _spectrum(program.kernel)
    features = program.kernel.features
    return max(
        _explained(spectrum, own, rows=rows, explainable=explainable, features=features)
        for own in noise
    )


def _explained(
    spectrum: Tensor, noise: _Noise, *, rows: int, explainable: float, features: int
) -> float:
    prior = explainable / float(spectrum.sum())
    added = noise.cross**2 + (REPAIRED * noise.scatter) ** 2 * prior * features / 2
    signal = prior * (rows * spectrum) ** 2
    share = signal / (signal + rows * spectrum * (1 - explainable) + added)
    return float((prior * spectrum * share).sum() * share.max() ** DOUBT)


def _noise(program: Program, *, real: bool) -> list[_Noise]:
    """Return the noise of every stage that fits a layer of a number, or of an outcome."""
    privacy = program.privacy
    if privacy is None:
        raise ProgramError("only a program with differential privacy has a forecast")
    patient = privacy.max_rows_per_patient
    found = []
    for spec, multiplier in zip(program.stages, privacy.multipliers, strict=True):
        match spec:
            case elbo.Spec() if real:
                among = math.sqrt(len(program.schema.real))
                one_sum = multiplier / (spec.sampling_rate * math.sqrt(spec.steps))
                found.append(_Noise(cross=STEPS * one_sum * among * patient))
            case linear.Spec() if real:
                model = program.start().advanced(standardiser=from_bounds(program.schema))
                found.append(_of_sums(model, multiplier))
            case outcomes.Spec() if not real:
                functions = sum(latent_functions(own) for own in program.schema.outcomes)
                one_sum = multiplier * math.sqrt(functions / spec.private_sums)
                found.append(_Noise(cross=SLOPES * SLOPE_CLIP * one_sum * patient))
            case _:
                pass
    return found


def _of_sums(model: Model, multiplier: float) -> _Noise:
    blocks = {own.name: own for own in statistics_blocks(model)}
    weights = sum(own.weight for own in blocks.values())
    deviations = {
        name: multiplier * (own.sensitivity or 0.0) * math.sqrt(weights / own.weight)
        for name, own in blocks.items()
    }
    return _Noise(cross=deviations["cross"], scatter=deviations["scatter"])


@lru_cache(maxsize=64)
def _spectrum(kernel: KernelSpec) -> Tensor:
    """Return the eigenvalues of E φφᵀ over standard normal rows that are not 0."""
    x = normals(0, "rows of a forecast", _MADE_UP_ROWS, kernel.inputs)
    phi = torch.cat([own for _, own in URK(kernel).features_in_chunks(x, chunk_rows=100)])
    gram = phi @ phi.mT if len(phi) < phi.shape[1] else phi.mT @ phi
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram / len(phi))
    return eigenvalues.clamp_min(0.0)


def _measure(target: AnyTarget) -> Measure:
    match target:
        case Binary() | Classes():
            return Measure.AUC
        case TimeToEvent():
            return Measure.CONCORDANCE
        case _:
            return Measure.EXPLAINED


def _score(measure: Measure, explained: float) -> float:
    correlation = math.sqrt(min(explained, 1.0))
    match measure:
        case Measure.AUC:
            return 0.5 + 2 / math.pi * math.asin(correlation / math.sqrt(2))
        case Measure.CONCORDANCE:
            return 0.5 + math.asin(correlation) / math.pi
        case Measure.EXPLAINED:
            return explained

"""The kernel's spec: a small, versioned, JSON-able description of a URK without its weights.

Two parties with the same spec and the same weights have the same features, bit for bit on one
machine. Fields that an architecture does not use must not be set, so that a kernel has one spec.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self

from kernels.errors import NewerSpec, SpecError, UnknownArchitecture
from kernels.strict_json import MOST_INTEGER, encode_json, is_newer, is_number, parse_json

VERSION = 1


class Architecture(StrEnum):
    """The function g(ω, x) ([FedBNR] §3.1)."""

    RBF = "rbf"
    """[cos ωᵀx, sin ωᵀx], ω normal: the Gaussian kernel (theorem 3)."""
    MATERN12 = "matern12"
    """As rbf, with ω from Student-t with 1 degree of freedom: Matérn-1/2."""
    MATERN32 = "matern32"
    """As rbf, with ω from Student-t with 3 degrees of freedom: Matérn-3/2."""
    MATERN52 = "matern52"
    """As rbf, with ω from Student-t with 5 degrees of freedom: Matérn-5/2."""
    EXPONENTIAL = "exponential"
    """exp ωᵀx, ω normal: exp(‖x + x'‖²/2) (theorem 4)."""
    POLYNOMIAL = "polynomial"
    """A product of `degree` random coordinates: (xᵀx' + offset)^degree (theorem 5)."""
    DEEP = "deep"
    """A network f before random Fourier features (fig. 3.1, middle)."""
    SHIFTED = "shifted"
    """A network f and a distribution shifter h(ω) (fig. 3.1, right)."""
    REPLICATED = "replicated"
    """A network f applied to randomised copies of x (fig. 3.2, left)."""
    INDUCING = "inducing"
    """k(Z, x) of m learnt places Z: a sparse Gaussian process (`kernels.features.inducing`)."""
    LINEAR = "linear"
    """The linear part alone, without random samples (`kernels.features.linear_part`)."""


class Normaliser(StrEnum):
    """The divisor of the m concatenated samples."""

    UNBIASED = "unbiased"
    """√m: the Gram matrix's expectation is the kernel."""
    THESIS = "thesis"
    """√(m − 1), as in [FedBNR] eq. 3.2."""


class Replication(StrEnum):
    """How a replicated kernel randomises its input; r is the replication scale."""

    ADD = "add"
    """x + rω."""
    MULTIPLY = "multiply"
    """x ⊙ (1 + rω)."""


class Ending(StrEnum):
    """What a replicated kernel does with f's output."""

    FOURIER = "fourier"
    """The cos and sin of its projection on a random direction: bounded features."""
    LINEAR = "linear"
    """Nothing: unbounded features, refused under differential privacy."""


_STATIONARY = {
    Architecture.RBF,
    Architecture.MATERN12,
    Architecture.MATERN32,
    Architecture.MATERN52,
}
_CLASSICAL = _STATIONARY | {Architecture.EXPONENTIAL, Architecture.POLYNOMIAL}
_NETWORKS = {Architecture.DEEP, Architecture.SHIFTED, Architecture.REPLICATED}

_OF_ONE_NUMBER = {Architecture.EXPONENTIAL, Architecture.POLYNOMIAL, Architecture.INDUCING}

_SAMPLED = set(Architecture) - {Architecture.LINEAR}

_MOST_RADIUS = 16.0
MOST_LOG_RATIO = 4.125
"""The largest |log ρ| of the linear part; the evidence chooses among smaller ones."""
_MOST_RATIO = 64.0
"""A little more than exp(MOST_LOG_RATIO), and the same with every libm."""

# Far above any honest kernel; a hostile spec must not make a hospital run out of memory.
_MOST = 1_000_000
_MOST_NUMBERS = 100_000_000
_MOST_LAYERS = 32

_CHOICES: Mapping[str, type[StrEnum]] = {
    "architecture": Architecture,
    "normaliser": Normaliser,
    "replication": Replication,
    "ending": Ending,
}

# The smallest and largest value of each integer; with one sample [FedBNR] eq. 3.2 divides by 0.
_WHOLE: Mapping[str, tuple[int, int]] = {
    "inputs": (1, _MOST),
    "samples": (2, _MOST),
    "seed": (0, MOST_INTEGER),
    "degree": (1, 100),
    "latent": (1, _MOST),
    "shifter_inputs": (1, _MOST),
    "shifter_hidden": (1, _MOST),
}

# Which architectures an optional field belongs to.
_BELONGS_TO: Mapping[str, set[Architecture]] = {
    "samples": _SAMPLED,
    "seed": _SAMPLED,
    "normaliser": _SAMPLED - {Architecture.INDUCING},
    "linear_part": _SAMPLED,
    "radius": {Architecture.LINEAR},
    "lengthscale": _CLASSICAL | {Architecture.INDUCING},
    "degree": {Architecture.POLYNOMIAL},
    "offset": {Architecture.POLYNOMIAL},
    "hidden": _NETWORKS,
    "latent": _NETWORKS,
    "frequency_scale": _NETWORKS,
    "shifter_inputs": {Architecture.SHIFTED},
    "shifter_hidden": {Architecture.SHIFTED},
    "replication": {Architecture.REPLICATED},
    "replication_scale": {Architecture.REPLICATED},
    "ending": {Architecture.REPLICATED},
}


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """Everything that defines a unifying random kernel except its weights.

    inputs: p, the number of columns of x after the schema's encoding.
    samples: m ≥ 2, the number of random samples of g; of an inducing kernel, of its points.
    linear_part: the linear part's p + 1 features stand beside those of the architecture, so the
        kernel is the sum of both (`kernels.features.linear_part`).
    radius: the largest norm of x/√(p + 1) in the linear part; by default about twice that of an
        average row. With differential privacy noise is proportional to it, or to its square.
    seed: 0 ≤ seed < 2⁵³; ω and the starting weights are hashes of it.
    lengthscale: the starting value of the lengthscales (one weight per input) of the classical
        kernels and of the inducing one.
    degree, offset: the polynomial kernel's n and c.
    hidden, latent: the widths of f's tanh layers, and of its output.
    frequency_scale: the frequencies of a network's cos and sin are divided by √latent and
        multiplied by this, so that the kernel starts smooth.
    shifter_inputs, shifter_hidden: the dimension of ω and the width of h's tanh layer.

    >>> spec = KernelSpec(architecture=Architecture.RBF, inputs=3, samples=50, seed=1)
    >>> KernelSpec.from_json(spec.to_json()) == spec
    True
    """

    STORED_AS: ClassVar[str] = "kernel"

    inputs: int
    architecture: Architecture = Architecture.SHIFTED
    samples: int = 100
    seed: int = 0
    normaliser: Normaliser = Normaliser.UNBIASED
    linear_part: bool = False
    radius: float = 2.0
    lengthscale: float = 1.0
    degree: int = 2
    offset: float = 1.0
    hidden: tuple[int, ...] = (128, 128, 128)
    latent: int = 5
    frequency_scale: float = 0.3
    shifter_inputs: int = 5
    shifter_hidden: int = 32
    replication: Replication = Replication.ADD
    replication_scale: float = 0.1
    ending: Ending = Ending.FOURIER

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            object.__setattr__(self, name, _member(name, getattr(self, name), kind))
        for name, (least, most) in _WHOLE.items():
            _whole(name, getattr(self, name), least, most)
        if type(self.linear_part) is not bool:
            raise SpecError(f"linear_part must be true or false, not {self.linear_part!r:.40}")
        if not isinstance(self.hidden, tuple | list):
            raise SpecError(f"hidden must be a list of integers, not {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for width in self.hidden:
            _whole("hidden", width, 1, _MOST)
        for name in ("radius", "lengthscale", "offset", "frequency_scale", "replication_scale"):
            object.__setattr__(self, name, _positive(name, getattr(self, name)))
        if self.radius > _MOST_RADIUS:
            raise SpecError(f"radius must be at most {_MOST_RADIUS:g}, not {self.radius:g}")
        widths = (self.inputs, *self.hidden, self.latent, self.shifter_inputs, self.shifter_hidden)
        largest = max(a * b for a in widths for b in (*widths, self.samples))
        if self.architecture is Architecture.INDUCING:
            largest = max(largest, self.samples**2)
        if len(self.hidden) > _MOST_LAYERS or largest > _MOST_NUMBERS:
            raise SpecError(
                f"this kernel needs an array of {largest:.0e} numbers and {len(self.hidden)} "
                f"hidden layers; at most {_MOST_NUMBERS:.0e} and {_MOST_LAYERS} are allowed: "
                "choose smaller sizes"
            )
        for field in fields(self):
            if field.name == "radius" and self.linear_features:
                continue
            used_by = _BELONGS_TO.get(field.name, set(Architecture))
            if self.architecture not in used_by and getattr(self, field.name) != field.default:
                raise SpecError(
                    f"a {self.architecture} kernel does not use {field.name}: leave it out "
                    f"(only these architectures use it: {', '.join(sorted(used_by))}"
                    f"{', and any with a linear part' if field.name == 'radius' else ''})"
                )

    @property
    def features_per_sample(self) -> int:
        """Return d, how many numbers one sample of g has; 0 for the linear kernel."""
        if self.architecture is Architecture.LINEAR:
            return 0
        if self.architecture in _OF_ONE_NUMBER:
            return 1
        if self.architecture is Architecture.REPLICATED and self.ending is Ending.LINEAR:
            return self.latent
        return 2

    @property
    def main_features(self) -> int:
        """Return m·d, how many features are of samples or points; they come first in φ(x)."""
        return self.samples * self.features_per_sample

    @property
    def inducing_features(self) -> int:
        """Return m of an inducing kernel, whose features leave out k(x, x) − ‖φ_main(x)‖²; else 0.

        They are the main features, and k(x, x) = 1.
        """
        return self.main_features if self.architecture is Architecture.INDUCING else 0

    @property
    def linear_features(self) -> int:
        """Return p + 1, how many features are of the linear part, or 0 if there is none."""
        linear = self.linear_part or self.architecture is Architecture.LINEAR
        return self.inputs + 1 if linear else 0

    @property
    def features(self) -> int:
        """Return M, the length of φ(x)."""
        return self.main_features + self.linear_features

    @property
    def normalising_square(self) -> int:
        """Return m, or m − 1 as in [FedBNR]: features are divided by its square root."""
        return self.samples - (self.normaliser is Normaliser.THESIS)

    @property
    def main_squared_norm(self) -> float | None:
        """Return ‖φ_main(x)‖², the same for all x and all weights, if there is such a number.

        cos² + sin² = 1 per sample, so it is m divided by the normalising square. It is None for
        features that grow with x or are inducing, and 0 for the linear kernel, which has no main
        part.
        """
        if self.architecture is Architecture.LINEAR:
            return 0.0
        unbounded = self.features_per_sample == 1 or (
            self.architecture is Architecture.REPLICATED and self.ending is Ending.LINEAR
        )
        return None if unbounded else self.samples / self.normalising_square

    @property
    def main_squared_norm_bound(self) -> float | None:
        """Return a bound on ‖φ_main(x)‖² that holds for all x and all weights, if there is one."""
        return 1.0 if self.inducing_features else self.main_squared_norm

    @property
    def linear_squared_norm(self) -> float:
        """Return a bound on ‖u(x)‖², the linear part's squared norm divided by ρ²; 0 without it."""
        return self.radius**2 + 1 / (self.inputs + 1) if self.linear_features else 0.0

    @property
    def squared_norm_bound(self) -> float | None:
        """Return a bound on ‖φ(x)‖² that holds for all x and all weights, if there is one.

        None for features that grow with x, which have no bound on their sensitivity for all
        weights. `kernels.features.linear_part.squared_norm_at` is the bound at given weights.
        """
        main = self.main_squared_norm_bound
        return None if main is None else main + self.linear_squared_norm * _MOST_RATIO**2

    def rows_at_a_time(self, chunk_rows: int) -> int:
        """Return how many rows to compute at once: fewer if each row becomes m copies."""
        copies = self.samples if self.architecture is Architecture.REPLICATED else 1
        return max(1, chunk_rows // copies) if chunk_rows > 0 else chunk_rows

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, only the fields that the architecture uses."""
        used = {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if self.architecture in _BELONGS_TO.get(name, set(Architecture))
            or (name == "radius" and self.linear_features)
        }
        return encode_json({"version": VERSION, **used})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a spec, refusing unknown fields, unknown architectures and newer versions."""
        wrong: list[str] = []
        document = parse_json(text, "the spec", wrong)
        if is_newer(document, VERSION):
            raise NewerSpec(
                f"this spec was written by a newer version of veilgp; this one reads spec version "
                f"{VERSION}: upgrade veilgp on this machine"
            )
        if wrong or not isinstance(document, dict):
            raise SpecError("; ".join(wrong) or "a spec must be a JSON object")
        version = document.pop("version", None)
        if type(version) is not int or version != VERSION:
            raise SpecError(f"version must be {VERSION}, not {version!r}")
        unknown = document.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise SpecError(f"unknown fields {sorted(unknown)}: remove them")
        if "inputs" not in document:
            raise SpecError("inputs is missing: set it to the number of columns of x")
        return cls(**document)


def _member(name: str, value: str, kind: type[StrEnum]) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        error = UnknownArchitecture if kind is Architecture else SpecError
        raise error(f"{name} {value!r} is unknown: choose one of {', '.join(kind)}") from None


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SpecError(f"{name} must be an integer from {least} to {most}, not {value!r}")


def _positive(name: str, value: object) -> float:
    if not (is_number(value) and value > 0):
        raise SpecError(f"{name} must be a positive finite number, not {value!r:.40}")
    return float(value)

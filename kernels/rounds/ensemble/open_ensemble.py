"""The open ensemble: sites that disclose their samples predict together at any row [PredBayes].

A secure sum describes a committee only at the public rows, and a student generalises from there.
Here the coordinator has the samples of the sites that agreed to disclose them, and computes their
committee at exactly the requested rows:

    μ_c = mean of f_θ(x) over c's samples,   v_c = their variance + σ_c²,

then `kernels.ensembles.committee`, with the same bounds as in the sum. The samples are those that
the site used for its contribution to the sum. A site's samples and n_c are a function of its rows
alone: anyone who has them can attack them, and nothing here hides them. Disclosing them is the
site's own choice (`client_sdk.gate.policy`), and the site may withdraw them: the ensemble of the
others is then the same as if it had never disclosed any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels import storage
from kernels.ensembles.committee import Committee
from kernels.ensembles.distilled import Method, Opinion
from kernels.ensembles.network_stack import NetworkStack
from kernels.ensembles.networks import NetworkSpec
from kernels.errors import NotFitted, ProgramError, StateError
from kernels.layer.posterior import Prediction
from kernels.model.model import Model
from kernels.rounds.ensemble.predictive import VARIANCES, Spec, State, bounded, prior_at
from kernels.rounds.program import Program
from kernels.rounds.shared.local_network import sample_at
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from kernels.storage import check_rows, check_tensor, kinds_of
from kernels.tables.chunks import chunks

MOST_PARAMETER = 1e3
"""Bound on |θ|: with the standardiser's bounds on inputs, no network's output is then infinite."""
_MOST_OUTPUT = 1e100
"""Bound on |output|: its square is finite too, so that no site's samples can make the others'
predictions NaN, as those of very deep networks could."""
MOST_NUMBERS = 1 << 23
"""The maximum count of numbers in one site's samples: 64 MiB."""
_FRAME = 4096
"""The maximum number of bytes in a file of samples in addition to its numbers."""
_OUTPUTS = 1 << 20
"""The number of outputs of all networks together for one chunk of rows."""


@dataclass(frozen=True, eq=False, repr=False)
class OpenSamples:
    """The samples that one site discloses.

    rows: n_c, the number of training rows. samples: (S, P) vectors θ, at least two.
    noise_variance: σ² of each target, (T,).
    """

    STORED_AS: ClassVar[str] = "open-samples"

    rows: int
    samples: Tensor
    noise_variance: Tensor

    def __post_init__(self) -> None:
        check_rows(self.rows)
        for name in ("samples", "noise_variance"):
            value = getattr(self, name)
            check_tensor(name, value, tuple(getattr(value, "shape", ())))
        if self.samples.ndim != 2 or len(self.samples) < 2 or self.noise_variance.ndim != 1:
            raise StateError(
                "samples must have shape (S, P), S at least 2, and noise_variance shape (T,)"
            )
        if float(self.samples.abs().max()) > MOST_PARAMETER:
            raise StateError(f"every parameter of a sample must be within ±{MOST_PARAMETER:g}")
        if not bool(((self.noise_variance > 0) & (self.noise_variance <= VARIANCES[1])).all()):
            raise StateError(f"noise_variance must be above 0 and at most {VARIANCES[1]:g}")

    def to_bytes(self) -> bytes:
        """Return the safetensors file."""
        return storage.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, program: Program) -> Self:
        """Read a site's untrusted samples, and refuse them if they do not match this program."""
        spec, network = asked(program)
        found = storage.decode(data, kinds_of(cls))
        if not isinstance(found, cls):
            raise StateError("these bytes are not samples")
        if found.rows > program.max_rows:
            raise StateError(
                f"rows must be at most {program.max_rows} in this program, not {found.rows}"
            )
        if len(found.samples) > spec.most_samples or found.samples.shape[1] != network.parameters:
            raise StateError(
                f"samples must be at most {spec.most_samples} vectors of {network.parameters} "
                f"parameters in this program, not {tuple(found.samples.shape)}"
            )
        if len(found.noise_variance) != network.outputs:
            raise StateError(
                f"noise_variance must have one value for each of {network.outputs} targets"
            )
        return found

    def __repr__(self) -> str:
        return f"OpenSamples({len(self.samples)})"


def open_stage(program: Program) -> int | None:
    """Return the stage whose samples a program requests, if any: the last one that distils.

    The model discards the students of earlier stages.
    """
    stages = [i for i, spec in enumerate(program.stages) if isinstance(spec, Spec)]
    return stages[-1] if stages and program.stages[stages[-1]].open else None


def asked(program: Program) -> tuple[Spec, NetworkSpec]:
    """Return the stage whose samples a program requests, and the network that they belong to."""
    stage = open_stage(program)
    if stage is None or program.privacy is not None:
        raise ProgramError("this program does not request samples")
    spec: Spec = program.stages[stage]
    network = spec.network(program.start())
    if spec.most_samples * network.parameters > MOST_NUMBERS:
        raise ProgramError(
            f"open: {spec.most_samples} samples of {network.parameters} parameters are more than "
            f"{MOST_NUMBERS} numbers: use fewer samples or narrower layers"
        )
    return spec, network


def most_octets(program: Program) -> int:
    """Return the maximum size of a file of samples, in bytes."""
    spec, network = asked(program)
    return 8 * (spec.most_samples * network.parameters + network.outputs) + _FRAME


def samples_of(state: State, site: Site) -> OpenSamples | None:
    """Return the samples that a site's contribution at this state is computed from.

    None if the site has no rows, or if its samples have diverged and are useless.
    """
    rows = site.count(Part.TRAINING)
    if not rows:
        return None
    model, spec = state.model, state.spec
    posterior = sample_at(site, model, spec, spec.start(model))
    noise = posterior.noise_variance.clamp_max(VARIANCES[1])
    try:
        return OpenSamples(rows, posterior.samples, noise)
    except StateError:
        return None


@dataclass(frozen=True, eq=False)
class OpenEnsemble:
    """A finished model with the members of its ensemble."""

    model: Model
    spec: Spec
    members: tuple[OpenSamples, ...]

    @classmethod
    def of(cls, model: Model, program: Program, members: Sequence[OpenSamples]) -> Self:
        """Return the ensemble of these members for the model that a program produced."""
        return cls(model, asked(program)[0], tuple(members))

    @property
    def least_rows(self) -> int:
        """The number of training rows of the member that has the fewest.

        The predictions of several methods at the same row, or of one method before and after a
        withdrawal, can be solved for the prediction of each single member; and the row counts that
        the other members claim hide no one.
        """
        return min(member.rows for member in self.members)

    def predict(self, method: Method, x: Tensor) -> Gaussian:
        """Predict standardised targets, (n, T), from standardised features (n, p).

        β is the one that the program found over all its sites.
        """
        if not self.members:
            raise NotFitted(
                "no site has sent its samples: predict with a distilled student instead"
            )
        distilled = self.model.distilled
        beta = None if distilled is None else distilled.beta
        pieces = chunks(max(1, len(x)), max(1, _OUTPUTS // len(self._stack)))
        said = [self.opinion(x[rows]).teacher(method, beta) for rows in pieces]
        if len(said) == 1:
            return said[0]
        return Gaussian(
            torch.cat([each.mean for each in said]), torch.cat([each.variance for each in said])
        )

    def opinion(self, x: Tensor) -> Opinion:
        """Return the combined predictions of all members at rows (n, p)."""
        prior = prior_at(self.model, self.spec, x)
        committee = Committee.of(self.each(x), rows=self._rows, prior=prior)
        return Opinion(x, committee, prior, self.spec.guard)

    def each(self, x: Tensor) -> Gaussian:
        """Return the predictions of each member at rows (n, p): (C, n, T)."""
        counts = self._counts.unsqueeze(1)
        said = self._stack.outputs(x).clamp(-_MOST_OUTPUT, _MOST_OUTPUT)
        flat = said.flatten(1)
        mean = self._owned @ flat / counts
        squares = (flat - self._owned.mT @ mean).square()
        spread = self._owned @ squares / (counts - 1)
        noise = torch.stack([member.noise_variance for member in self.members]).unsqueeze(1)
        shape = (len(self.members), *said.shape[1:])
        return bounded(Prediction(mean.reshape(shape), spread.reshape(shape), noise))

    @cached_property
    def _stack(self) -> NetworkStack:
        every = torch.cat([member.samples for member in self.members])
        return NetworkStack(self.spec.network(self.model), every)

    @cached_property
    def _rows(self) -> Tensor:
        return torch.tensor([member.rows for member in self.members])

    @cached_property
    def _counts(self) -> Tensor:
        """The number of samples of each member, (C,)."""
        return torch.tensor([float(len(each.samples)) for each in self.members]).double()

    @cached_property
    def _owned(self) -> Tensor:
        """1 where a sample belongs to a member, (C, K)."""
        owners = torch.arange(len(self.members)).repeat_interleave(self._counts.long())
        return torch.nn.functional.one_hot(owners, len(self.members)).mT.double()

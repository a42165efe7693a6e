"""Releases: the noisy sums of a statistic, past or planned. Their cost is computed elsewhere."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, final

from privacy.encoding import Encoding
from privacy.errors import AccountingError
from privacy.scales import SHARE_DEVIATION

MECHANISM = "exact discrete Gaussian noise, a share from every member"
"""The kind of noise, as shown to people next to a release."""

_MOST_SUMS = 10**9
_MULTIPLIERS = (1e-9, 1e9)
_TEXT = 100


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """`sums` secure sums of one statistic, each with its own noise.

    statistic: its name, for people to read.
    part: the rows that are summed, a part of `dealing`; only for people to read if `dealing` is
        empty.
    multiplier: z, the standard deviation of the honest members' noise divided by the sum's ℓ2
        sensitivity to one unit, measured on integers.
    sampling_rate: each sum is over a fresh, secret Poisson sample that contains a unit with this
        probability. 1 if the sum is over all units of its part.
    dimension: the number of elements of one sum.
    share_deviation: the least deviation of one member's noise in any block, in integer steps.
    honest: h, the number of members whose noise is relied on.
    dealing: identifies the division of the tables into parts that `part` belongs to. Each unit is
        in exactly one part of a dealing, independently of the other units, so releases on
        different parts of one dealing are paid for by different units. Empty: every unit pays.
    """

    statistic: str
    part: str
    multiplier: float
    dimension: int
    share_deviation: int
    honest: int
    sums: int = 1
    sampling_rate: float = 1.0
    dealing: bytes = b""

    def __post_init__(self) -> None:
        for name in ("statistic", "part"):
            text = getattr(self, name)
            if type(text) is not str or not 0 < len(text) <= _TEXT:
                raise AccountingError(
                    f"a release's `{name}` must be a string of 1 to {_TEXT} characters"
                )
        least, most = _MULTIPLIERS
        self._check_number("multiplier", least, most)
        self._check_number("sampling_rate", 1e-12, 1.0)
        self._check_whole("dimension", 1 << 40)
        self._check_whole("share_deviation", 1 << 62)
        self._check_whole("honest", 1 << 20)
        self._check_whole("sums", _MOST_SUMS)
        if type(self.dealing) is not bytes or len(self.dealing) > 64:
            raise AccountingError("a release's `dealing` must be bytes, at most 64 of them")

    @classmethod
    def of(
        cls,
        encoding: Encoding,
        *,
        honest: int,
        statistic: str,
        part: str,
        sums: int = 1,
        sampling_rate: float = 1.0,
        dealing: bytes = b"",
    ) -> Self:
        """Return the release of sums whose noise is the noise that `encoding` will draw."""
        return cls(
            statistic=statistic,
            part=part,
            multiplier=encoding.multiplier(honest=honest),
            dimension=encoding.layout.length,
            share_deviation=min(encoding.share_deviations),
            honest=honest,
            sums=sums,
            sampling_rate=sampling_rate,
            dealing=dealing,
        )

    @classmethod
    def planned(
        cls,
        *,
        multiplier: float,
        honest: int,
        statistic: str,
        part: str,
        sums: int = 1,
        sampling_rate: float = 1.0,
        dealing: bytes = b"",
        dimension: int = 1 << 16,
    ) -> Self:
        """Return the release of sums whose layout is not known yet.

        This predicts the cost of a run; what is charged later is computed from the encodings
        (`of`). `dimension` may be too large, but not too small.
        """
        return cls(
            statistic=statistic,
            part=part,
            multiplier=multiplier,
            dimension=dimension,
            share_deviation=SHARE_DEVIATION,
            honest=honest,
            sums=sums,
            sampling_rate=sampling_rate,
            dealing=dealing,
        )

    def to_json(self) -> dict[str, str | int | float]:
        """Return plain data for a ledger's store."""
        return {**asdict(self), "dealing": self.dealing.hex()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read the plain data of `to_json`; refuse anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, Mapping) or set(data) != names:
            raise AccountingError(
                f"a release must have exactly the fields {', '.join(sorted(names))}"
            )
        values: dict[str, Any] = dict(data)
        try:
            values["dealing"] = bytes.fromhex(values["dealing"])
        except (TypeError, ValueError) as error:
            raise AccountingError("a release's `dealing` must be a hexadecimal string") from error
        return cls(**values)

    def _check_number(self, name: str, least: float, most: float) -> None:
        number = getattr(self, name)
        if type(number) not in (int, float) or not least <= number <= most:
            raise AccountingError(
                f"a release's `{name}` must be a number from {least:g} to {most:g}, "
                f"not {number!r:.40}"
            )
        object.__setattr__(self, name, float(number))

    def _check_whole(self, name: str, most: int) -> None:
        number = getattr(self, name)
        if type(number) is not int or not 1 <= number <= most:
            raise AccountingError(
                f"a release's `{name}` must be an integer from 1 to {most}, not {number!r:.40}"
            )

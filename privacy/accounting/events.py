"""What happened, or is to happen: a statistic's sums with noise. No word here of what it costs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, final

from privacy.encoding import Encoding
from privacy.errors import AccountingError
from privacy.scales import SHARE_DEVIATION

MECHANISM = "exact discrete Gaussian noise, a share from every member"
"""What noise it is, where people read what was released."""

_MOST_SUMS = 10**9
_MULTIPLIERS = (1e-9, 1e9)
_TEXT = 100


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """`sums` secure sums of one statistic, each with noise of its own.

    statistic: its name, for people to read.
    part: the rows it is over, a part of `dealing`; for people to read where there is no dealing.
    multiplier: z, the deviation of the honest members' noise over the sum's ℓ2 sensitivity to one
        unit, the latter measured on integers.
    sampling_rate: each sum is over a fresh Poisson sample that holds a unit with this probability;
        the sample stays secret. 1 where it is over all units of its part.
    dimension: elements of one sum.
    share_deviation: the least deviation of one member's noise in any block, in integer steps.
    honest: h, the members whose noise is counted on.
    dealing: which division of tables into parts `part` is one of. Each of a dealing's units is in
        one of its parts, whatever other units there are, so releases on different parts of one
        dealing are paid for by different units. Empty: every unit pays.
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
                raise AccountingError(f"a release's {name} is a text of 1 to {_TEXT} characters")
        least, most = _MULTIPLIERS
        self._check_number("multiplier", least, most)
        self._check_number("sampling_rate", 1e-12, 1.0)
        self._check_whole("dimension", 1 << 40)
        self._check_whole("share_deviation", 1 << 62)
        self._check_whole("honest", 1 << 20)
        self._check_whole("sums", _MOST_SUMS)
        if type(self.dealing) is not bytes or len(self.dealing) > 64:
            raise AccountingError("a release's dealing is at most 64 bytes")

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
        """Describe sums from what their encoding says will be drawn, not from what was promised."""
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
        """Describe sums whose layout is not known yet; `dimension` may be too large, not too small.

        For saying beforehand what a run will cost. What is charged is `of` its encodings.
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
        """Read `to_json`'s plain data, and nothing but it."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, Mapping) or set(data) != names:
            raise AccountingError(f"a release has exactly the fields {', '.join(sorted(names))}")
        values: dict[str, Any] = dict(data)
        try:
            values["dealing"] = bytes.fromhex(values["dealing"])
        except (TypeError, ValueError) as error:
            raise AccountingError("a release's dealing is written in hexadecimal") from error
        return cls(**values)

    def _check_number(self, name: str, least: float, most: float) -> None:
        number = getattr(self, name)
        if type(number) not in (int, float) or not least <= number <= most:
            raise AccountingError(
                f"a release's {name} is a number from {least:g} to {most:g}, not {number!r:.40}"
            )
        object.__setattr__(self, name, float(number))

    def _check_whole(self, name: str, most: int) -> None:
        number = getattr(self, name)
        if type(number) is not int or not 1 <= number <= most:
            raise AccountingError(
                f"a release's {name} is an integer from 1 to {most}, not {number!r:.40}"
            )

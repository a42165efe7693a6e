"""Numbers with their units, as people read them."""

import math


def figure(value: float, unit: str = "1") -> str:
    """Return a number in three digits with its unit; the unit "1" says that there is none.

    >>> figure(0.5697, "1"), figure(4.1532, "d"), figure(12345.6, "EUR")
    ('0.57', '4.15 d', '12,346 EUR')
    """
    if not math.isfinite(value):
        said = "not a number"
    elif abs(value) >= 1000:
        said = f"{value:,.0f}"
    else:
        said = f"{value:.3g}"
    return said if unit == "1" else f"{said} {unit}"


def share(value: float) -> str:
    """Return a share in per cent.

    >>> share(0.9234), share(0.9)
    ('92 %', '90 %')
    """
    return f"{100 * value:.0f} %"

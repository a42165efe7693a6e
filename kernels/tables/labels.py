"""The label that a text means, whichever software wrote it (`kernels.tables.cells`).

Without NumPy: a schema reads its levels by this, and must be there at once.
"""

import math
import re
from decimal import Decimal

_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.0+|-?[1-9](?:\.[0-9]+)?e(?:-[0-9]+|\+?[0-9]{2,})|-0")
"""How software writes floats that are integers, or very large or small."""
_WORDS = {
    **dict.fromkeys(("True", "TRUE"), "true"),
    **dict.fromkeys(("False", "FALSE"), "false"),
    **dict.fromkeys(("NaN", "nan"), ""),
}
"""How software writes booleans and NaN."""


def canonical_label(text: str) -> str:
    """Return the label that a text means; levels of a schema are the same if these are equal.

    >>> [canonical_label(text) for text in ("3.0", "1e+16", "True", "NaN", "007", "1.10", "NA")]
    ['3', '10000000000000000', 'true', '', '007', '1.10', 'NA']
    """
    if _FLOAT.fullmatch(text):
        whole, point, zeros = text.partition(".")
        if point and not zeros.strip("0"):  # without float64: a code may have more digits
            return "0" if whole == "-0" else whole
        return label_of_float(float(text))
    return _WORDS.get(text, text)


def label_of_float(number: float) -> str:
    """Return the shortest digits that give this number, without an exponent; "" for NaN.

    >>> [label_of_float(number) for number in (3.0, -0.0, 0.1, 1e16, 2.5e-7, math.inf)]
    ['3', '0', '0.1', '10000000000000000', '0.00000025', 'inf']
    """
    if math.isnan(number):
        return ""
    if not math.isfinite(number):
        return str(number)
    digits = f"{Decimal(repr(number + 0.0)):f}"  # −0 is 0
    return digits.rstrip("0").rstrip(".") if "." in digits else digits

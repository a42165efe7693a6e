"""How many rows the smallest table has, as a session states it: a power of two."""

from kernels.errors import ProgramError

SMALLEST_BAND, LARGEST_BAND = 16, 1 << 20
USUAL_TABLE = 2048
"""The band that a session is made for which states none: enough for the largest kernels."""


def band_of(rows: int) -> int:
    """Return the band of a table: the largest power of two that is at most its rows.

    >>> [band_of(rows) for rows in (123, 128, 303)]
    [64, 128, 256]
    """
    if rows < SMALLEST_BAND:
        raise ProgramError(
            f"{rows} rows are fewer than {SMALLEST_BAND}, the smallest band: such a table can only "
            "take part with differential privacy, which needs no band"
        )
    return min(1 << (rows.bit_length() - 1), LARGEST_BAND)


def check_band(rows: object) -> int:
    """Return a stated band, or refuse it."""
    if type(rows) is not int or rows & (rows - 1) or not SMALLEST_BAND <= rows <= LARGEST_BAND:
        raise ProgramError(
            f"smallest_table must be a power of two from {SMALLEST_BAND} to {LARGEST_BAND:,}, not "
            f"{rows!r:.40}: the largest that is at most the rows of the smallest table, such as "
            "128 for 128 to 255 rows. It is public, so an exact number would say too much"
        )
    return rows

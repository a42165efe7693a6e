"""Numbers of a model's card as text, with the standard error of their noise if there is one."""


def figure(value: float | None, error: float | None = None) -> str:
    """Return a score; a dash for one that is not defined.

    >>> figure(0.23128), figure(0.23128, 0.0117), figure(None)
    ('0.2313', '0.2313 ± 0.012', '–')
    """
    if value is None:
        return "–"
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def share(value: float | None, error: float | None = None) -> str:
    """Return a share as a percentage.

    >>> share(0.9012), share(0.9012, 0.0141), share(None)
    ('90.1%', '90.1% ± 1.4', '–')
    """
    if value is None:
        return "–"
    return f"{value:.1%}" if error is None else f"{value:.1%} ± {100 * error:.1f}"


def count(value: int, error: float | None = None) -> str:
    """Return a number of rows.

    >>> count(12_345), count(12_345, 27.3)
    ('12,345', '12,345 ± 28')
    """
    return f"{value:,}" if error is None else f"{value:,} ± {-int(-error // 1):,}"

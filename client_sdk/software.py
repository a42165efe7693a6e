"""The versions of the libraries that a hospital computes with, as its adverts name them."""

from importlib.metadata import PackageNotFoundError, version

_NAMED = ("veilgp", "numpy", "torch", "scipy")


def software() -> str:
    """Return the versions on which the last bits of a result can depend, in at most 200 bytes."""
    return ", ".join(f"{name} {_version(name)}" for name in _NAMED)[:200]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"

"""Dealings that are the same in every test run."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from client_sdk.home.home import Home
from kernels.rounds.site.dealing import Dealing


def dealing_of(number: int) -> Dealing:
    """Return a dealing whose secret is a hash of the number."""
    return Dealing(hashlib.sha256(number.to_bytes(8, "big", signed=True)).digest())


DEALING = dealing_of(1)


def put_dealing(home: Path, dealing: Dealing = DEALING) -> None:
    """Put a dealing into a home, instead of the one that is there or that it would create."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "dealing.key").touch(mode=0o600)
    (home / "dealing.key").write_bytes(dealing.secret)


def home_keys(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Create a home with the same dealing for each name, and return their identities' keys."""
    for name in names:
        put_dealing(folder / name)
    return {name: Home(folder / name).identity().key for name in names}

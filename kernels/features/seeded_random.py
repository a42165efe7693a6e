"""Random numbers that are a function of a seed and a label, the same on every machine.

SHAKE-256 of (domain, label, seed) gives the bits. Uniforms are odd multiples of 2⁻⁵³, so never 0
or 1. Normals are Φ⁻¹(uniform) rounded to multiples of 2⁻³⁰: the quantile function differs in its
last bits between mathematical libraries, and rounding hides the difference except with a
probability of about 2⁻²⁰ per number. The generators of libraries promise less: their numbers may
change with the next release.

Numbers are generated in rows, so a longer table begins with the rows of a shorter one.
"""

import hashlib

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

_DOMAIN = b"veilgp/hashed/1"


def _words(seed: int, label: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    name = label.encode()
    prefix = _DOMAIN + len(name).to_bytes(4, "big") + name + seed.to_bytes(8, "big")
    return np.frombuffer(hashlib.shake_256(prefix).digest(8 * count), dtype="<u8")


def uniforms(seed: int, label: str, *shape: int) -> Tensor:
    """Return float64 uniforms in (0, 1) of the given shape.

    >>> uniforms(7, "example", 2).tolist() == uniforms(7, "example", 3)[:2].tolist()
    True
    """
    count = int(np.prod(shape, dtype=np.int64))
    bits = _words(seed, label, count) >> np.uint64(12)
    return torch.from_numpy((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


def normals(seed: int, label: str, *shape: int) -> Tensor:
    """Return float64 standard normals of the given shape, multiples of 2⁻³⁰."""
    quantiles = ndtri(uniforms(seed, label, *shape).numpy())
    return torch.from_numpy(np.round(quantiles * 2.0**30) * 2.0**-30)

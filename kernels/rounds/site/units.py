"""The unit of privacy: whose presence the noise of a sum hides, and which of its rows count.

The unit is the patient if the schema names a patient column, otherwise the row. If a patient has
more rows than a program allows, the rows with the greatest hash of their content and the site's
seed are left out. Which of a patient's rows stay is then a function of that patient's rows and of
the seed alone. It depends neither on their order nor on any other patient, so adding or removing a
patient changes only that patient's own part of a sum. Equal rows of a patient are interchangeable.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.features.seeded_random import seeded_word
from kernels.tables.row_hashes import mixed, words


def kept_rows(keys: list[bytes], hashes: list[bytes], *, most: int, seed: int) -> NDArray[np.bool_]:
    """Return which rows stay, (n,): at most `most` per key, chosen by their hashes and the seed.

    >>> patients, rows = [b"a" * 32, b"b" * 32, b"a" * 32], [bytes([i]) * 32 for i in range(3)]
    >>> int(kept_rows(patients, rows, most=1, seed=7).sum())
    2
    """
    if not keys:
        return np.zeros(0, dtype=np.bool_)
    patients, contents = words(keys), words(hashes)
    drawn = mixed(contents[:, 0], seeded_word(seed, "rows of a patient"))
    order = np.lexsort((*contents.T, drawn, *patients.T))
    ordered = patients[order]
    begins = np.ones(len(keys), dtype=np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    positions = np.arange(len(keys))
    place = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    kept = np.empty(len(keys), dtype=np.bool_)
    kept[order] = place < most
    return kept

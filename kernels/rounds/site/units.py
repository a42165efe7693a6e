"""The unit of privacy: whose presence the noise of a sum hides, and which of its rows count.

The unit is the patient where the schema names a patient column, else the row. A patient's rows
beyond the most that a program allows are left out: those with the greatest hash of their content
and the site's seed. Which of a patient's rows stay is then a function of that patient's rows and of
the seed alone. It depends neither on their order nor on any other patient, so one patient more or
less changes nothing but its own part of a sum. Equal rows of a patient are one as good as another.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.features.seeded_random import seeded_word
from kernels.tables.row_hashes import mixed, words


def kept_rows(keys: list[bytes], hashes: list[bytes], *, most: int, seed: int) -> NDArray[np.bool_]:
    """Say which rows stay, (n,): at most `most` of each key, by their hashes and the seed.

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

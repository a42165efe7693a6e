"""MNIST: 5,000 digits for training, and the whole official test set of 10,000.

Seeds deal the training rows; the test rows are the same for all of them.
"""

from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import Classes, Dataset
from benchmarks.outcomes.sets.files import present
from kernels.tables.schema import Numeric

COMPONENTS = 50


def load(folder: Path) -> Dataset:
    with np.load(present(folder / "mnist15k.npz")) as file:
        images = np.concatenate([file["train_images"], file["test_images"]])
        digits = np.concatenate([file["train_labels"], file["test_labels"]])
        training = len(file["train_labels"])
    pixels = tuple(Numeric(f"pixel{place}", "1", 0, 255) for place in range(images.shape[1]))
    values = images.astype(np.float64).T
    return Dataset(
        name="mnist",
        inputs=pixels,
        outcome=Classes("digit", tuple(str(digit) for digit in range(10))),
        table={
            **{pixel.name: column for pixel, column in zip(pixels, values, strict=True)},
            "digit": digits.astype(np.float64),
        },
        test=np.arange(len(digits)) >= training,
        components=COMPONENTS,
    )

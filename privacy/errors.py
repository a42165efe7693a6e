"""Every error that a person or a peer can cause in `privacy`, each with a stable code.

    PrivacyError
    ├── LayoutError               layout.invalid
    ├── TotalError                total.invalid
    │   └── TotalOutOfBound       total.out_of_bound
    ├── EncodingError             encoding.invalid
    │   ├── ResolutionTooFine     encoding.resolution
    │   ├── BlockMismatch         encoding.blocks
    │   ├── WrongShape            encoding.wrong_shape
    │   ├── NotSymmetric          encoding.not_symmetric
    │   ├── NotFinite             encoding.not_finite
    │   └── OutOfBound            encoding.out_of_bound
    └── MaskError                 mask.invalid

A message says what is wrong with which value and what to do; it never carries a patient's value,
nor key material.
"""

from typing import ClassVar


class PrivacyError(ValueError):
    """Root of the tree; `code` is stable across versions and travels over HTTP."""

    code: ClassVar[str] = "privacy"


class LayoutError(PrivacyError):
    """A layout, or its canonical form, has a missing, unknown or impossible part."""

    code = "layout.invalid"


class TotalError(PrivacyError):
    """A total was made by hand, or does not fit the layout and encoding it claims."""

    code = "total.invalid"


class TotalOutOfBound(TotalError):
    """A total is beyond what contributions within their bounds can sum to."""

    code = "total.out_of_bound"


class EncodingError(PrivacyError):
    """An encoding, or a contribution to be encoded, is not what its layout says."""

    code = "encoding.invalid"


class ResolutionTooFine(EncodingError):
    """A block's bound, resolution and the number of clients do not fit into 64 bits together."""

    code = "encoding.resolution"


class BlockMismatch(EncodingError):
    """A contribution lacks a block of its layout, or has one that the layout does not know."""

    code = "encoding.blocks"


class WrongShape(EncodingError):
    """A block's array has another shape, or another kind of numbers, than the layout says."""

    code = "encoding.wrong_shape"


class NotSymmetric(EncodingError):
    """A block that the layout declares symmetric is not."""

    code = "encoding.not_symmetric"


class NotFinite(EncodingError):
    """A block holds NaN or infinite values."""

    code = "encoding.not_finite"


class OutOfBound(EncodingError):
    """A block holds a value beyond the bound that its layout declares."""

    code = "encoding.out_of_bound"


class MaskError(PrivacyError):
    """A mask key or the vector to be masked has the wrong form."""

    code = "mask.invalid"

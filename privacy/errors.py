"""Every error that a person or a peer can cause in `privacy`, each with a stable code.

    PrivacyError
    ├── LayoutError               layout.invalid
    ├── TotalError                total.invalid
    │   └── TotalOutOfBound       total.out_of_bound
    ├── EncodingError             encoding.invalid
    │   ├── ResolutionTooFine     encoding.resolution
    │   ├── NoSensitivity         encoding.sensitivity
    │   ├── NoHeadRoom            encoding.head_room
    │   ├── BlockMismatch         encoding.blocks
    │   ├── WrongShape            encoding.wrong_shape
    │   ├── NotSymmetric          encoding.not_symmetric
    │   ├── NotFinite             encoding.not_finite
    │   └── OutOfBound            encoding.out_of_bound
    ├── NoiseError                noise.invalid
    ├── AccountingError           accounting.invalid
    │   ├── UnknownRelease        accounting.unknown_release
    │   └── NoSuchPlan            accounting.no_such_plan
    ├── LedgerError               ledger.invalid
    │   ├── AlreadyCharged        ledger.already_charged
    │   └── BudgetExceeded        ledger.budget_exceeded
    ├── FrameError                frame.invalid
    ├── MaskError                 mask.invalid
    ├── IdentityError             identity.invalid
    │   ├── InvalidKey            identity.key
    │   ├── BadSignature          identity.signature
    │   ├── RosterError           identity.roster
    │   ├── PinConflict           identity.pin_conflict
    │   └── FingerprintMismatch   identity.fingerprint
    ├── RequestError              request.invalid
    │   ├── BadRequestHeader      request.header
    │   ├── ClockSkew             request.clock
    │   ├── WrongBody             request.body
    │   └── Replayed              request.replayed
    ├── SharingError              sharing.invalid
    └── SecureSumError            securesum (its own tree: privacy/securesum/errors.py)

A message says what is wrong with which value and what to do; it never carries a patient's value,
nor key material. `public_detail` is what a hospital tells the coordinator about an error: a
constant, the same for a whole branch of the tree unless a class sets its own.
"""

from typing import ClassVar


class PrivacyError(ValueError):
    """Root of the tree; `code` is stable across versions and is sent over HTTP."""

    code: ClassVar[str] = "privacy"
    public_detail: ClassVar[str] = "the site refuses; the code says why"


class LayoutError(PrivacyError):
    """A layout, or its canonical form, has a missing, unknown or invalid part."""

    code = "layout.invalid"
    public_detail = "the layout of the sum is invalid"


class TotalError(PrivacyError):
    """A total was not made by the secure sum, or does not fit its layout and encoding."""

    code = "total.invalid"
    public_detail = "the total does not belong to this sum"


class TotalOutOfBound(TotalError):
    """A total is larger than contributions within their bounds can sum to."""

    code = "total.out_of_bound"


class EncodingError(PrivacyError):
    """An encoding, or a contribution to be encoded, does not match its layout."""

    code = "encoding.invalid"
    public_detail = "the encoding of the sum does not fit its layout"


class ResolutionTooFine(EncodingError):
    """A block's bound and resolution do not fit into 64 bits for this number of clients."""

    code = "encoding.resolution"


class NoSensitivity(EncodingError):
    """A block without a declared sensitivity cannot be protected by noise."""

    code = "encoding.sensitivity"


class NoHeadRoom(EncodingError):
    """A block's bound and noise do not fit into 64 bits for this number of clients."""

    code = "encoding.head_room"


class BlockMismatch(EncodingError):
    """A contribution lacks a block of its layout, or has one that is not in the layout."""

    code = "encoding.blocks"


class WrongShape(EncodingError):
    """A block's array has a different shape, or a different kind of numbers, than declared."""

    code = "encoding.wrong_shape"


class NotSymmetric(EncodingError):
    """A block that the layout declares symmetric is not symmetric."""

    code = "encoding.not_symmetric"


class NotFinite(EncodingError):
    """A block contains NaN or infinite values."""

    code = "encoding.not_finite"


class OutOfBound(EncodingError):
    """A block contains a value beyond the bound that its layout declares."""

    code = "encoding.out_of_bound"


class NoiseError(PrivacyError):
    """Noise is missing, not expected, used twice, or from a broken source."""

    code = "noise.invalid"
    public_detail = "the site cannot draw the noise that the sum requires"


class AccountingError(PrivacyError):
    """A release, a budget or a plan has a missing, unknown or invalid part."""

    code = "accounting.invalid"
    public_detail = "the site cannot compute the privacy cost of the sum"


class UnknownRelease(AccountingError):
    """A release of a kind whose cost no accountant can compute."""

    code = "accounting.unknown_release"


class NoSuchPlan(AccountingError):
    """No amount of noise keeps these stages within this budget."""

    code = "accounting.no_such_plan"


class LedgerError(PrivacyError):
    """A ledger, or one of its entries, has a missing, unknown or invalid part."""

    code = "ledger.invalid"
    public_detail = "the site's own ledger does not allow the sum"


class AlreadyCharged(LedgerError):
    """A sum that is in the ledger already: a second charge means a second draw or upload."""

    code = "ledger.already_charged"


class BudgetExceeded(LedgerError):
    """The release would exceed the budget; nothing was charged."""

    code = "ledger.budget_exceeded"


class FrameError(PrivacyError):
    """A frame of bytes with a JSON head is truncated, too long, or has parts that do not fit."""

    code = "frame.invalid"
    public_detail = "a frame from the coordinator is malformed"


class MaskError(PrivacyError):
    """A mask key, or the vector to be masked, has the wrong form."""

    code = "mask.invalid"
    public_detail = "the site cannot mask its vector"


class IdentityError(PrivacyError):
    """An error in identities, rosters, pins or signatures."""

    code = "identity.invalid"
    public_detail = "the site does not accept a member's identity"


class InvalidKey(IdentityError):
    """Bytes that are not a key, or a key in whose name anyone could sign."""

    code = "identity.key"


class BadSignature(IdentityError):
    """A signature that is not by the named member, or not on this statement."""

    code = "identity.signature"


class RosterError(IdentityError):
    """A roster has too few or too many members, or lists one of them twice."""

    code = "identity.roster"


class PinConflict(IdentityError):
    """A roster contradicts what this site has pinned."""

    code = "identity.pin_conflict"
    public_detail = "the run's roster contradicts the keys that this site has pinned"


class FingerprintMismatch(IdentityError):
    """The digits that were read out do not match the key to be confirmed."""

    code = "identity.fingerprint"


class RequestError(PrivacyError):
    """A request that cannot be accepted as the member's own."""

    code = "request.invalid"
    public_detail = "the site's request and the coordinator's view of it do not agree"


class BadRequestHeader(RequestError):
    """The signature header is missing, or not in its only valid form."""

    code = "request.header"


class ClockSkew(RequestError):
    """The clocks of the two machines are too far apart, or the request is old."""

    code = "request.clock"


class WrongBody(RequestError):
    """The body is not the one that was signed."""

    code = "request.body"


class Replayed(RequestError):
    """A request with this nonce was received before."""

    code = "request.replayed"


class SharingError(PrivacyError):
    """A secret cannot be split into shares, or recovered from them, in this way."""

    code = "sharing.invalid"
    public_detail = "the site cannot share or recover a key as requested"

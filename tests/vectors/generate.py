"""All test vectors as one JSON object."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from privacy.encoding import Encoding
from privacy.frames import pieces
from privacy.identity import Identity
from privacy.layout import Block, Layout
from privacy.requests import sign_request
from privacy.securesum.messages import Consent, SumName
from tests.vectors.epochs import Plain, Story, Sum
from tests.vectors.refused import refused

PATH = Path(__file__).parents[2] / "openapi" / "vectors.json"
VOLATILE = frozenset({"boxes", "delivery", "archive"})
"""Fields with something in them that HPKE has sealed."""


def generate() -> Plain:
    """Return the test vectors."""
    stories = {story.name: story for story in (three(), five(), dropout(), failure())}
    return {
        "about": "Test vectors of docs/protocol.md; `python -m tests.vectors` writes this file.",
        "protocol": 2,
        "request": request(),
        "frame": frame(),
        "consent": consent(stories["five"]),
        "encodings": encodings(),
        "epochs": [story.told for story in stories.values()],
        "refused": refused(stories),
    }


def deterministic(plain: Any) -> Any:
    """Return what is the same whenever the vectors are made."""
    if isinstance(plain, dict):
        return {k: deterministic(v) for k, v in plain.items() if k not in VOLATILE}
    if isinstance(plain, list):
        return [deterministic(each) for each in plain]
    return plain


def three() -> Story:
    """Three members, no colluders, blind sums, a model that is served; one member falls silent."""
    story = Story("three", size=3, max_colluders=0, min_cohort=3, blind=True)
    layout = Layout((Block("x", (4,), 100.0, 2.0**-20),))
    encoding = Encoding.finest(layout, max_clients=3)
    big = 10**17
    first = [(1, -1, big, 0), (20, -20, big, 2), (300, -300, -big, -3)]
    second = [(5, 6, 7, 8), (-50, -60, -70, -80), (500, 600, 700, 800)]
    story.sum(Sum(first, encoding))
    story.sum(
        Sum(
            second,
            encoding,
            sum_index=1,
            applied=SumName(number=7, slot=0),
            silent=frozenset({2}),
        )
    )
    story.finish(range(3))
    return story


def five() -> Story:
    """Five members, one colluder, blind sums, a model for members; the first author lies."""
    story = Story("five", size=5, max_colluders=1, min_cohort=5, blind=True, members_only=True)
    layout = Layout(
        (
            Block("rows", (), 1e6, 1.0),
            Block("scatter", (2, 2), 1e3, 2.0**-20, symmetric=True),
        )
    )
    encoding = Encoding.finest(layout, max_clients=5)
    vectors = [
        encoding.encode({"rows": 10.0 * rank, "scatter": np.array([[rank, 0.5], [0.5, -1.0]])})
        .view("<i8")
        .tolist()
        for rank in range(5)
    ]
    story.sum(Sum(vectors, encoding, lie=True))
    story.sum(Sum(vectors, encoding, author=1))
    story.finish(range(1, 5))
    return story


def dropout() -> Story:
    """Four members with open sums and differential privacy; one of them drops out."""
    story = Story("dropout", size=4, max_colluders=1, min_cohort=3, differential_privacy=True)
    vectors = [(1, 2, 3), (10, 20, 30), (100, 200, 300), (1000, 2000, 3000)]
    story.sum(Sum(vectors, missing=frozenset({1})))
    return story


def failure() -> Story:
    """Three members with open sums; one of them cannot compute its vector."""
    story = Story("failure", size=3, max_colluders=0, min_cohort=3)
    story.sum(Sum([(1, 2), None, (3, 4)]))
    return story


def request() -> Plain:
    """A signed HTTP request."""
    identity = Identity.from_bytes(bytes(range(32)))
    said: Plain = {
        "method": "POST",
        "host": "gp.example:8443",
        "target": "/sessions/00000000-0000-0000-0000-000000000000/next?wait=25",
        "time_ms": 1_750_000_000_000,
        "nonce": bytes(range(16)),
    }
    body = b"body"
    header = sign_request(
        identity,
        method=said["method"],
        host=said["host"],
        target=said["target"],
        digest=hashlib.sha256(body).digest(),
        now_ms=said["time_ms"],
        nonce=said["nonce"],
    )
    return {
        "identity_secret": identity.to_bytes().hex(),
        **said,
        "nonce": said["nonce"].hex(),
        "body": body.hex(),
        "authorization": header,
    }


def frame() -> Plain:
    """An item as it is sent."""
    content = {"run": "é", "kind": "task", "number": 1}
    parts = {"message": b"abc", "delivery": b""}
    return {
        "content": content,
        "parts": [{"name": name, "bytes": part.hex()} for name, part in parts.items()],
        "encoded": b"".join(bytes(piece) for piece in pieces(content, parts)).hex(),
    }


def consent(story: Story) -> Plain:
    """A member's consent that its cohort changes."""
    keys = story.epoch.members
    identity = story.sites[4].identity
    made = Consent.signed(
        identity,
        session=story.terms.session,
        old=keys,
        new=keys[:4],
        identity=identity.key,
    )
    return {
        "identity_secret": identity.to_bytes().hex(),
        "session": story.terms.session.hex(),
        "old": [key.hex() for key in keys],
        "new": [key.hex() for key in keys[:4]],
        "encoded": made.encode().hex(),
    }


def encodings() -> list[Plain]:
    """Fixed point: scales, canonical bytes, and the integers of a contribution."""
    matrix = np.array([[1.5, -0.1, 7.0], [-0.1, -2.0, 0.3], [7.0, 0.3, 0.0]])
    silent = Layout(
        (
            Block("rows", (), 1e6, 1.0),
            Block("mean", (2, 2), 3.0, 2.0**-30),
            Block("scatter", (3, 3), 1e4, 2.0**-20, symmetric=True),
        )
    )
    values: Plain = {"rows": 321.0, "mean": np.array([[0.1, -0.2], [2.5, 3.0]]), "scatter": matrix}
    noisy = Layout(
        (
            Block("rows", (), 1e5, 1.0, sensitivity=1.0),
            Block("scatter", (3, 3), 1e5, 1.0, sensitivity=2.0, symmetric=True, weight=3.0),
        )
    )
    finest = Encoding.finest(silent, max_clients=7)
    covered = Encoding.noisy(noisy, multiplier=1.5, honest=4, max_clients=7)
    return [
        {
            **_told(finest),
            "multiplier": None,
            "honest": None,
            "contribution": {name: np.asarray(v).tolist() for name, v in values.items()},
            "integers": [str(n) for n in finest.encode(values).view("<i8").tolist()],
        },
        {
            **_told(covered),
            "multiplier": 1.5,
            "honest": 4,
            "contribution": None,
            "integers": None,
        },
    ]


def _told(encoding: Encoding) -> Plain:
    return {
        "max_clients": encoding.max_clients,
        "blocks": [
            {
                "name": block.name,
                "shape": list(block.shape),
                "bound": block.bound,
                "resolution": block.resolution,
                "sensitivity": block.sensitivity,
                "weight": block.weight,
                "symmetric": block.symmetric,
            }
            for block in encoding.layout.blocks
        ],
        "fractional_bits": list(encoding.fractional_bits),
        "share_deviations": [str(share) for share in encoding.share_deviations],
        "encoded": encoding.to_bytes().hex(),
        "digest": encoding.digest().hex(),
    }

"""A small coordinator that implements the session's contract, for tests of the SDK.

One session and one run, in memory and in one thread: `answer` takes a `Call` as it would be sent
and returns the `Reply`. The sums are real (`privacy.securesum.coordinator`). With `meddle` a test
changes what the coordinator sends, which makes it hostile.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import numpy as np

from client_sdk.network.exchange import Call, Lost, Reply
from kernels import storage
from kernels.rounds.program import Program
from kernels.strict_json import encode_json
from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.identity import Member, Roster, fingerprint
from privacy.requests import SignedRequest
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Repair,
    Reveal,
    Upload,
)
from privacy.securesum.terms import Terms, default_terms

PROTOCOL = {"veilgp-protocol": "1", "content-type": "application/json"}
HOST = "veil.example"
ORIGIN = f"https://{HOST}"


def problem(status: int, code: str, detail: str = "no", **more: object) -> Reply:
    body = {"type": f"urn:veilgp:{code}", "status": status, "code": code, "detail": detail, **more}
    headers = {**PROTOCOL, "content-type": "application/problem+json"}
    return Reply(status, headers, json.dumps(body).encode())


def said(body: object = None, status: int = 200) -> Reply:
    return Reply(status, PROTOCOL, b"" if body is None else json.dumps(body).encode())


@dataclass
class SmallCoordinator:
    """One session with its members and its one run."""

    program: Program
    names: tuple[str, ...]
    seed: int = 7
    terms: Terms | None = None
    approve: bool = True
    meddle: Callable[[str, Reply], Reply] | None = None
    session: UUID = field(default_factory=uuid4)
    run: UUID | None = None
    kind: str = "train"
    outcome: dict[str, Any] | None = None
    artifact: bytes = b"artifact"
    card: Mapping[str, Any] = field(default_factory=lambda: {"card": 1})
    model_id: str = "model-1"
    repeats: int = 0
    """How often it asks for the first stage once more than it should."""
    gives_broadcasts: bool = False
    """Whether a task has its broadcast with it."""

    def __post_init__(self) -> None:
        self.terms = self.terms or default_terms(self.session.bytes, len(self.names))
        self.secrets = {f"secret-of-{i}": name for i, name in enumerate(self.names)}
        self.members: dict[str, bytes] = {}
        self.refusals: list[dict[str, Any]] = []
        self.log: list[tuple[str, str]] = []
        self.nonces: set[bytes] = set()
        self.uploads: list[bytes] = []
        self.samples: dict[bytes, bytes] = {}
        self.withdrawn: set[bytes] = set()

    def link(self, i: int) -> str:
        return f"{ORIGIN}/join/{self.session}#secret-of-{i}"

    def start(self, kind: str = "train") -> None:
        self.run, self.kind, self.outcome = uuid4(), kind, None
        assert self.terms is not None
        self.stage, self.model, self.done_sums = 0, self.program.start(), 0
        self.sums = Coordinator(self.terms, run=self.run.bytes, number=0, roster=self.roster)
        self.certified: set[int] = set()
        self.revealed: set[int] = set()
        self.in_sum = False
        self._enter_stage()

    @property
    def roster(self) -> Roster:
        return Roster(tuple(Member(name, key) for name, key in self.members.items()))

    def _enter_stage(self) -> None:
        self.algorithm, spec = list(self.program.algorithms())[self.stage]
        self.state = self.algorithm.initial(spec, self.model)

    # -- the wire

    def answer(self, call: Call) -> Reply | Lost:
        body = b"".join(bytes(part) for part in call.parts)
        signed = SignedRequest.parse(call.headers["Authorization"])
        signed.check(method=call.method, host=HOST, target=call.target, now_ms=signed.time_ms)
        assert signed.digest == hashlib.sha256(body).digest()
        assert signed.nonce not in self.nonces
        self.nonces.add(signed.nonce)
        assert call.headers["Veilgp-Protocol"] == "1"
        parts = urlsplit(call.target)
        self.log.append((call.method, parts.path))
        try:
            reply = self._answer(call.method, parts.path, parse_qs(parts.query), body, signed.key)
        except PrivacyError as error:
            reply = problem(409, error.code, str(error))
        what = parts.path.rsplit("/", 1)[-1]
        return reply if self.meddle is None else self.meddle(what, reply)

    def _answer(
        self, method: str, path: str, query: dict[str, list[str]], body: bytes, key: bytes
    ) -> Reply:
        if path.startswith("/models/"):
            if path.endswith("/artifact"):
                return Reply(200, PROTOCOL, self.artifact)
            return said(dict(self.card))
        match path.removeprefix(f"/sessions/{self.session}").strip("/").split("/"):
            case ["members"]:
                return self._enrol(json.loads(body), key)
            case ["membership"]:
                return self._membership(key)
            case ["next"]:
                item = self._next(key, query.get("run", [""])[0])
                return said(status=204) if item is None else said(item)
            case ["runs", _, "broadcasts", address]:
                assert hashlib.sha256(self.broadcast).hexdigest() == address
                return Reply(200, PROTOCOL, self.broadcast)
            case ["runs", run, "messages"]:
                if run != str(self.run):
                    return problem(409, "run_over")
                self._take(body)
                self._advance()
                return said(status=204)
            case ["runs", _, "vectors"]:
                size = int.from_bytes(body[:4], "big")
                self.uploads.append(body)
                self.sums.slot.add_upload(Upload.decode(body[4 : 4 + size]), body[4 + size :])
                self._advance()
                return said(status=204)
            case ["runs", _, "samples"]:
                if key in self.withdrawn:
                    return problem(409, "samples.withdrawn")
                self.samples[key] = body
                return said(status=204)
            case ["samples"]:
                assert method == "DELETE"
                self.samples.pop(key, None)
                self.withdrawn.add(key)
                return said(status=204)
            case ["refusals"]:
                self.refusals.append(json.loads(body))
                if self.run is not None:
                    self.outcome = {
                        "status": "failed",
                        "code": "member_refused",
                        "detail": "",
                        "model": None,
                    }
                return said(status=204)
        return problem(404, "not_found")

    def _enrol(self, plain: dict[str, str], key: bytes) -> Reply:
        name = self.secrets.get(plain["invitation"])
        if name is None:
            return problem(403, "invitation_invalid")
        if self.members.setdefault(name, key) != key:
            return problem(409, "invitation_used")
        return said({"name": name, "key": key.hex(), "status": "pending"}, 201)

    def _membership(self, key: bytes) -> Reply:
        names = {own: name for name, own in self.members.items()}
        if key not in names:
            return problem(403, "not_a_member")
        status = "approved" if self.approve else "pending"
        member = {
            "name": names[key],
            "key": key.hex(),
            "fingerprint": fingerprint(key),
            "status": status,
        }
        assert self.terms is not None
        return said(
            {
                "protocol": 1,
                "session": {
                    "id": str(self.session),
                    "name": "stay",
                    "program": self.program.to_json(),
                    "seed": self.seed,
                    "terms": self.terms.encode().hex(),
                    "differential_privacy": self.terms.differential_privacy,
                },
                "member": member,
                "roster": [{"name": n, "key": k.hex()} for n, k in self.members.items()],
            }
        )

    # -- what is next

    def _next(self, key: bytes, asked: str) -> dict[str, Any] | None:
        if self.run is None:
            return None
        if self.outcome is not None:
            ended = {"kind": "ended", "run": str(self.run), "message": None}
            return {**ended, "outcome": self.outcome} if asked == str(self.run) else None
        sums = self.sums
        if sums.epoch is None:
            if key in sums.advertised:
                return None
            more = {"program": self.program.to_json(), "run_kind": self.kind, "seed": self.seed}
            return self._item("opening", sums.opening().encode(), **more)
        rank = sums.epoch.rank(key)
        if sums.missing_boxes:
            if rank not in sums.missing_boxes:
                return None
            roster = [{"name": m.name, "key": m.key.hex()} for m in self.roster.members]
            return self._item("adverts", sums.close_adverts().encode(), roster=roster)
        slot = sums.slot
        if rank not in slot.uploaded:
            try:
                delivery = base64.b64encode(sums.delivery(rank).encode()).decode()
            except PrivacyError:
                delivery = None
            return self._item(
                "task",
                slot.task.encode(),
                broadcast=hashlib.sha256(self.broadcast).hexdigest(),
                broadcast_octets=(
                    base64.b64encode(self.broadcast).decode() if self.gives_broadcasts else None
                ),
                delivery=delivery,
                stage=self.stage,
            )
        if len(slot.uploaded) < sums.epoch.size:
            return None
        if slot.certificate is None or rank not in self.certified:
            if rank in self.certified:
                return None
            return self._item("proposal", slot.propose().encode())
        if rank not in self.revealed:
            return self._item("certificate", slot.certificate.encode())
        return None

    def _item(self, kind: str, message: bytes, **more: object) -> dict[str, Any]:
        return {
            "kind": kind,
            "run": str(self.run),
            "number": self.sums.number,
            "message": base64.b64encode(message).decode(),
            "deadline": "2030-01-01T00:00:00Z",
            "progress": {"stage": self.stage, "stages": len(self.program.stages)},
            **more,
        }

    def _take(self, body: bytes) -> None:
        sums = self.sums
        match body[1]:
            case Advert.kind:
                sums.add_advert(Advert.decode(body))
            case Boxes.kind:
                sums.add_boxes(Boxes.decode(body))
            case Certification.kind:
                certification = Certification.decode(body)
                sums.slot.add_certification(certification)
                self.certified.add(certification.rank)
            case Reveal.kind:
                reveal = Reveal.decode(body)
                sums.slot.add_reveal(reveal)
                self.revealed.add(reveal.rank)
            case Repair.kind:
                sums.slot.add_repair(Repair.decode(body))
            case Abandonment.kind:
                sums.slot.add_abandonment(Abandonment.decode(body))
            case other:
                raise AssertionError(f"a message of kind {other}")

    def _advance(self) -> None:
        """Take every step that has become possible."""
        sums = self.sums
        if sums.epoch is None:
            if len(sums.advertised) == len(self.members):
                sums.close_adverts()
            return
        if sums.missing_boxes:
            return
        if not self.in_sum:
            self._begin()
        elif len(self.revealed) == sums.epoch.size:
            self.state = self.algorithm.update(self.state, sums.slot.total())
            self.done_sums += 1
            while self.algorithm.finished(self.state):
                if self.repeats:
                    self.repeats -= 1
                else:
                    self.model = self.state.model
                    self.stage += 1
                if self.stage == len(self.program.stages):
                    done = {"status": "done", "code": None, "detail": None}
                    self.outcome = {**done, "model": self.model_id}
                    return
                self._enter_stage()
            self._begin()

    def _begin(self) -> None:
        assert self.sums.epoch is not None
        self.broadcast = storage.encode(self.state, broadcast=True)
        layout, members = self.algorithm.layout(self.state), self.sums.epoch.size
        if self.program.privacy is None:
            encoding = Encoding.finest(layout, max_clients=members)
        else:
            encoding = Encoding.noisy(
                layout,
                multiplier=self.program.privacy.multipliers[self.stage],
                honest=self.sums.terms.honest,
                max_clients=members,
            )
        parameters = {
            "program": hashlib.sha256(self.program.to_json().encode()).hexdigest(),
            "run_kind": self.kind,
            "seed": self.seed,
            "stage": self.stage,
        }
        self.sums.begin(
            statistic=f"{self.algorithm.NAME}/{self.algorithm.VERSION}",
            length=encoding.layout.length,
            broadcast=self.broadcast,
            parameters=encode_json(parameters).encode(),
            encoding=encoding.to_bytes(),
        )
        self.certified, self.revealed, self.in_sum = set(), set(), True


def octets_as_numbers(body: bytes) -> np.ndarray[Any, Any]:
    """Return the vector of an upload as it was sent."""
    size = int.from_bytes(body[:4], "big")
    return np.frombuffer(body[4 + size :], dtype="<u8")

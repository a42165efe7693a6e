"""A small coordinator that implements the session's contract, for tests of the SDK.

One session and one run, in memory and in one thread: `answer` takes a `Call` as it would be sent
and returns the `Reply`. The sums are real (`privacy.securesum.coordinator`). With `meddle` a test
changes what the coordinator sends, which makes it hostile.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import numpy as np

from client_sdk.network.exchange import ITEM_LIMITS, Call, Lost, Reply
from kernels.model.artifact import published
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.program import Program
from kernels.storage import encode
from kernels.strict_json import encode_json
from privacy import frames
from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.identity import Member, Roster, fingerprint
from privacy.requests import SignedRequest
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.errors import SumFailed
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Repair,
    Reveal,
    Upload,
    Witnesses,
)
from privacy.securesum.terms import Terms, default_terms

PROTOCOL = {"veilgp-protocol": "2", "content-type": "application/json"}
HOST = "veil.example"
ORIGIN = f"https://{HOST}"


def problem(status: int, code: str, detail: str = "no", **more: object) -> Reply:
    body = {"type": f"urn:veilgp:{code}", "status": status, "code": code, "detail": detail, **more}
    headers = {**PROTOCOL, "content-type": "application/problem+json"}
    return Reply(status, headers, json.dumps(body).encode())


def said(body: object = None, status: int = 200) -> Reply:
    return Reply(status, PROTOCOL, b"" if body is None else json.dumps(body).encode())


def said_item(plain: Mapping[str, Any]) -> Reply:
    """Return an item as a frame: values that are bytes are its parts."""
    parts = {name: value for name, value in plain.items() if isinstance(value, bytes)}
    content = {name: value for name, value in plain.items() if not isinstance(value, bytes)}
    headers = {**PROTOCOL, "content-type": frames.MEDIA_TYPE}
    return Reply(200, headers, b"".join(frames.pieces(content, parts)))


def item_of(body: bytes) -> dict[str, Any]:
    """Return the fields and parts of an item in one dictionary, as `said_item` takes them."""
    frame = frames.Frame.read(body, ITEM_LIMITS)
    return {**frame.content, **{name: bytes(part) for name, part in frame.parts.items()}}


@dataclass
class SmallCoordinator:
    """One session with its members and its one run."""

    program: Program
    names: tuple[str, ...]
    terms: Terms | None = None
    approve: bool = True
    meddle: Callable[[str, Reply], Reply] | None = None
    session: UUID = field(default_factory=uuid4)
    run: UUID | None = None
    kind: str = "train"
    parent: str | None = None
    opened: Program | None = None
    """The program in the opening of a run, if it is not the session's."""
    outcome: dict[str, Any] | None = None
    artifact: bytes | None = None
    """The model that it serves; by default the one that the totals lead to."""
    card: Mapping[str, Any] = field(default_factory=lambda: {"card": 1})
    model_id: str = "model-1"
    with_item: int = 1 << 20
    """The most bytes of a total that come with an item."""
    absent: set[str] = field(default_factory=set)
    """Names of members that are told nothing."""
    witnesses: int | None = None
    """How many headers it sends as witnesses; by default, as many as are needed."""
    abandons: int = 0
    """How many slots it abandons once the first member has uploaded; only that one gets tasks."""
    repeats: int = 0
    """How often it asks for the first stage once more than it should."""
    base: Model | None = None
    """The model that the run starts from."""
    host: str = HOST

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
        return f"https://{self.host}/join/{self.session}#secret-of-{i}"

    def start(self, kind: str = "train") -> None:
        self.run, self.kind, self.outcome = uuid4(), kind, None
        assert self.terms is not None
        self.position = self.entered = positions.begin(self.computed, self.base)
        self.sums = Coordinator(self.terms, run=self.run.bytes, number=0, roster=self.roster)
        self.certified: set[int] = set()
        self.revealed: set[int] = set()
        self.in_sum = False
        self.last: dict[str, Any] = {}

    @property
    def computed(self) -> Program:
        """The program of the run."""
        return self.opened or self.program

    @property
    def roster(self) -> Roster:
        return Roster(tuple(Member(name, key) for name, key in self.members.items()))

    @property
    def stage(self) -> int:
        return self.position.stage

    @property
    def model(self) -> Model:
        model: Model = self.position.state.model
        return model

    @property
    def served(self) -> bytes:
        return encode(published(self.model)) if self.artifact is None else self.artifact

    @property
    def done_sums(self) -> int:
        return self.position.sum_index

    @property
    def state(self) -> Any:
        return self.position.state

    # -- the wire

    def answer(self, call: Call) -> Reply | Lost:
        body = b"".join(bytes(part) for part in call.parts)
        if call.target.endswith("/offer"):
            assert "Authorization" not in call.headers
            self.log.append((call.method, call.target))
            return self._offer(json.loads(body))
        signed = SignedRequest.parse(call.headers["Authorization"])
        signed.check(method=call.method, host=self.host, target=call.target, now_ms=signed.time_ms)
        assert signed.digest == hashlib.sha256(body).digest()
        assert signed.nonce not in self.nonces
        self.nonces.add(signed.nonce)
        assert call.headers["Veilgp-Protocol"] == "2"
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
                return Reply(200, PROTOCOL, self.served)
            if path.endswith("/certificate"):  # it ends runs without asking for signatures
                return problem(409, "model.not_certified")
            return said(dict(self.card))
        match path.removeprefix(f"/sessions/{self.session}").strip("/").split("/"):
            case ["members"]:
                return self._enrol(json.loads(body), key)
            case ["membership"]:
                return self._membership(key)
            case ["next"]:
                item = self._next(key, query.get("run", [""])[0], witnesses="witnesses" in query)
                return said(status=204) if item is None else said_item(item)
            case ["runs", _, "states", digest]:
                assert self.position.digest.hex() == digest
                return Reply(200, PROTOCOL, self.position.encoded)
            case ["runs", _, "totals", epoch, number]:
                assert (int(epoch), int(number)) == self.closed
                return Reply(200, PROTOCOL, self.body)
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

    def _offer(self, body: Mapping[str, str]) -> Reply:
        name = self.secrets.get(body["invitation"])
        if name is None:
            return problem(403, "invitation.invalid")
        if name in self.members:
            return problem(409, "invitation.used")
        return said({"session": self._shown(), "name": name, "in_words": []})

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
        roster = [{"name": n, "key": k.hex()} for n, k in self.members.items()]
        return said({"protocol": 1, "session": self._shown(), "member": member, "roster": roster})

    def _shown(self) -> dict[str, Any]:
        """Return the session as members see it, and who reads an invitation."""
        assert self.terms is not None
        return {
            "id": str(self.session),
            "name": "stay",
            "program": self.program.to_json(),
            "terms": self.terms.encode().hex(),
            "differential_privacy": self.terms.differential_privacy,
        }

    # -- what is next

    def restart(self) -> None:
        """Open a new epoch; the current sum, if any, is lost."""
        self.sums, self.in_sum = self.sums.restart(), False
        self.certified, self.revealed = set(), set()

    @property
    def present(self) -> int:
        """The number of members that are not absent."""
        return len(self.members) - len(self.absent)

    def _next(self, key: bytes, asked: str, *, witnesses: bool) -> dict[str, Any] | None:
        if self.run is None or key in {self.members[name] for name in self.absent}:
            return None
        if self.outcome is not None:
            ended = {"kind": "ended", "run": str(self.run)}
            more = {"outcome": self.outcome, **self.last}
            return {**ended, **more} if asked == str(self.run) else None
        sums = self.sums
        if sums.epoch is None:
            if key in sums.advertised:
                return None
            more = {
                "program": self.computed.to_json(),
                "run_kind": self.kind,
                "parent": self.parent,
            }
            return self._item("opening", sums.opening().encode(), **more)
        rank = sums.epoch.rank(key)
        if sums.missing_boxes:
            if rank not in sums.missing_boxes:
                return None
            roster = [{"name": m.name, "key": m.key.hex()} for m in self.roster.members]
            return self._item("adverts", sums.close_adverts().encode(), roster=roster)
        slot = sums.slot
        if self.abandons:
            victim = sums.epoch.rank(self.members[self.names[0]])
            if not slot.uploaded and rank != victim:
                return None
            if slot.uploaded:
                if rank in slot.abandoned_by:
                    return None
                return self._item("abandon", slot.abandon_request().encode())
        if rank not in slot.uploaded:
            if len(slot.uploaded) == self.present:  # it has come back too late
                return None
            enough = sums.terms.max_colluders + 1 if self.witnesses is None else self.witnesses
            if witnesses and len(slot.uploaded) < enough:
                return None
            parts: dict[str, bytes] = dict(self.last)
            with suppress(PrivacyError):
                parts["delivery"] = sums.delivery(rank).encode()
            if witnesses:
                parts["witnesses"] = Witnesses(slot.headers[:enough]).encode()
            return self._item("task", slot.task.encode(), **parts)
        if len(slot.uploaded) < self.present and slot.proposal is None:
            return None
        if rank not in slot.propose().survivors:
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
            "message": message,
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
        elif sums.slot.abandon_proof is not None:
            self.abandons -= 1
            self._begin()
        elif len(self.revealed) == len(sums.slot.uploaded) and sums.slot.has_all_keys:
            try:
                total = sums.slot.total(self.encoding)
            except SumFailed as failed:
                ended = {"status": "failed", "code": failed.code, "model": None}
                self.outcome = {**ended, "detail": failed.public_detail}
                return
            self.position = positions.updated(self.position, total)
            self.last = self._closed()
            while self.position.stage_finished:
                if self.repeats:
                    self.repeats -= 1
                    self.position = replace(self.entered, sum_index=self.done_sums)
                    continue
                if self.position.finished:
                    done = {"status": "done", "code": None, "detail": None}
                    self.outcome = {**done, "model": self.model_id}
                    return
                self.position = self.entered = positions.next_stage(self.position)
            self._begin()

    def _closed(self) -> dict[str, Any]:
        """Return what an item says about the sum that has just been closed."""
        slot = self.sums.slot
        total, body = slot.total_message()
        self.body = bytes(body)
        self.closed = self.sums.number, slot.task.slot
        assert slot.certificate is not None
        parts = {
            "last_task": slot.task.encode(),
            "last_certificate": slot.certificate.encode(),
            "total": total.encode(),
        }
        return {**parts, "total_body": self.body} if len(self.body) <= self.with_item else parts

    def _begin(self) -> None:
        assert self.sums.epoch is not None
        position, members = self.position, self.sums.epoch.size
        algorithm = position.algorithm
        layout = algorithm.layout(position.state)
        privacy = self.computed.privacy
        if privacy is None:
            self.encoding = Encoding.finest(layout, max_clients=members)
        else:
            self.encoding = Encoding.noisy(
                layout,
                multiplier=privacy.multipliers[position.stage],
                honest=self.sums.terms.honest,
                max_clients=members,
            )
        parameters = {
            "program": hashlib.sha256(self.computed.to_json().encode()).hexdigest(),
            "run_kind": self.kind,
            "parent": self.parent,
            "stage": position.stage,
            "sum_index": position.sum_index,
        }
        self.sums.begin(
            statistic=f"{algorithm.NAME}/{algorithm.VERSION}",
            length=self.encoding.layout.length,
            parameters=encode_json(parameters).encode(),
            state=position.digest,
            encoding=self.encoding.digest(),
        )
        self.certified, self.revealed, self.in_sum = set(), set(), True


def octets_as_numbers(body: bytes) -> np.ndarray[Any, Any]:
    """Return the vector of an upload as it was sent."""
    size = int.from_bytes(body[:4], "big")
    return np.frombuffer(body[4 + size :], dtype="<u8")

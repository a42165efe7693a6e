"""A coordinator and hospitals as real processes on this machine, controlled as users would do it.

The coordinator is `veilgp serve`. Each hospital is `veilgp join`, with its own home, policy and
roster file. The admin uses the REST API. Each process can be killed with a real signal and started
again. Used by the demo, the benchmarks and the end-to-end tests.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import httpx

from client_sdk import site_of_home
from client_sdk.gate import dictionary_draft, policy_draft
from client_sdk.gate.row_band import ProposedBand
from client_sdk.home.home import Home
from client_sdk.joining import offered
from client_sdk.tables.dictionary_draft import draft_dictionary
from client_sdk.tables.schema_stream import count_rows
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site

VEILGP = (sys.executable, "-m", "client_sdk")
_PATIENCE_S = 120.0
_MANY_START_S = 600.0
"""How long many processes that start at once may take to import modules on a busy machine."""


class FederationFailed(Exception):
    """A process ended unexpectedly, or something took too long; includes its last output."""


class Running(Protocol):
    """The part of the interface of `subprocess.Popen` that is needed here."""

    @property
    def pid(self) -> int:
        """Return the id of the process."""

    def poll(self) -> int | None:
        """Return the exit code, the negative signal number if killed, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; raise `subprocess.TimeoutExpired` after `timeout` seconds."""

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal, unless it has ended."""


Launch = Callable[[Sequence[str], Path, Mapping[str, str]], Running]
"""Starts a command whose output goes to a log, with variables added to the environment."""


def launched(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Running:
    """Start a command with its output appended to the log."""
    with log.open("ab") as words:
        return subprocess.Popen(
            command, stdout=words, stderr=words, env={**os.environ, **environment}
        )


@dataclass
class Process:
    """One process, its log, and how it was started."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    launch: Launch = launched
    running: Running | None = None

    def start(self) -> None:
        """Start or restart the process; its output is appended to the log."""
        self.running = self.launch(self.command, self.log, self.environment)

    def kill(self) -> None:
        """Kill the process with SIGKILL: it cannot clean up or flush anything."""
        if self.running is not None:
            self.running.send_signal(signal.SIGKILL)
            self.running.wait()
            self.running = None

    def stop(self) -> None:
        """Ask the process to end (SIGTERM), and wait."""
        if self.running is not None:
            self.running.send_signal(signal.SIGTERM)
            try:
                self.running.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
            self.running = None

    def code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return None if self.running is None else self.running.poll()

    def words(self) -> str:
        """Return its output so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass
class Hospital:
    """A hospital: its home, its table and its process."""

    name: str
    table: Path
    home: Path
    key: str
    process: Process | None = None


@dataclass
class Federation:
    """A folder that contains one coordinator, its hospitals and their logs."""

    folder: Path
    port: int
    threads: int = 1
    token: str = ""
    coordinator: Process | None = None
    hospitals: list[Hospital] = field(default_factory=list)
    launch: Launch = launched
    # One client for all requests: creating one costs more than a request.
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60), repr=False)

    @classmethod
    @contextmanager
    def started(
        cls,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        launch: Launch = launched,
    ) -> Iterator[Self]:
        """Start a coordinator in a folder with these arguments; stop every process on exit."""
        folder.mkdir(parents=True, exist_ok=True)
        federation = cls(folder, free_port(), launch=launch)
        try:
            federation.start_coordinator(environment or {}, arguments)
            yield federation
        finally:
            for hospital in federation.hospitals:
                if hospital.process is not None:
                    hospital.process.kill()
            if federation.coordinator is not None:
                federation.coordinator.stop()
            federation.http.close()

    @contextmanager
    def replica(self) -> Iterator[Self]:
        """Start another coordinator on the same PostgreSQL; yield an object that controls it."""
        if self.coordinator is None:
            raise FederationFailed("there is no coordinator yet")
        other = type(self)(self.folder, free_port(), self.threads, self.token, launch=self.launch)
        other.coordinator = Process(
            "replica",
            other._serving("replica"),
            self.folder / "replica.log",
            self.coordinator.environment,
            self.launch,
        )
        try:
            other.restart_coordinator()
            yield other
        finally:
            other.coordinator.stop()
            other.http.close()

    @property
    def url(self) -> str:
        """The URL that the coordinator listens on."""
        return f"http://127.0.0.1:{self.port}"

    # -- coordinator

    @property
    def coordinator_pid(self) -> int:
        """The id of the coordinator's process."""
        if self.coordinator is None or self.coordinator.running is None:
            raise FederationFailed("the coordinator is not running")
        return self.coordinator.running.pid

    def start_coordinator(
        self, environment: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        """Start the coordinator for the first time, and read the admin's token from its output."""
        self.coordinator = Process(
            "coordinator",
            [*self._serving("coordinator"), *arguments],
            self.folder / "coordinator.log",
            {**self._threads(), **environment},
            self.launch,
        )
        self.restart_coordinator()
        words = self.coordinator.words().split()
        self.token = next(word for word in words if word.startswith("vgp_admin_"))

    def _serving(self, name: str) -> Sequence[str]:
        directory = str(self.folder / name)
        return [*VEILGP, "serve", "--data-dir", directory, "--port", str(self.port)]

    def restart_coordinator(self) -> None:
        """Start or restart the coordinator, and wait until it answers."""
        coordinator = self.coordinator
        if coordinator is None:
            raise FederationFailed("there is no coordinator yet")
        coordinator.start()

        def answers() -> bool:
            _check_alive(coordinator)
            try:
                return self.http.get(f"{self.url}/healthz", timeout=2).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, "the coordinator answers")

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Call the REST API as the admin; the coordinator may be restarting."""
        responses: list[httpx.Response] = []

        def answered() -> bool:
            try:
                response = self.http.request(
                    method,
                    f"{self.url}{path}",
                    json=body,
                    headers={"Authorization": f"Bearer {self.token}"},
                )
            except httpx.TransportError:
                return False
            responses.append(response)
            return True

        wait_until(answered, f"{method} {path} is answered")
        (response,) = responses
        if response.status_code >= 400:
            raise FederationFailed(f"{method} {path}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def artifact(self, model: str) -> bytes:
        """Return a model's bytes."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.http.get(f"{self.url}/models/{model}/artifact", headers=headers).content

    # -- hospitals

    def departures(self, hospital: Hospital) -> str:
        """Return what has left a hospital, according to its own log."""
        shown = subprocess.run(
            [*VEILGP, "log", "--summary", "--home", str(hospital.home)],
            check=True,
            capture_output=True,
            text=True,
        )
        return shown.stdout.strip()

    def enrol(
        self, session: str, tables: Mapping[str, Path], policy: str | None, *, start: bool = True
    ) -> list[Hospital]:
        """Create homes, identities and a common roster file, and start `veilgp join`.

        policy: of all hospitals; None drafts each hospital's own, and its data dictionary.
        """
        for name, table in tables.items():
            home = self.folder / name / "home"
            key = Home(home).identity().key.hex()
            self.hospitals.append(Hospital(name, table, home, key))
        roster = self.folder / "roster.json"
        members = [{"name": hospital.name, "key": hospital.key} for hospital in self.hospitals]
        roster.write_text(json.dumps({"members": members}, indent=2))
        for hospital in self.hospitals:
            rules = self.folder / hospital.name / "policy.toml"
            invitation = self.admin(
                "POST", f"/sessions/{session}/invitations", {"name": hospital.name}
            )
            if policy is None:
                self._draft(hospital, invitation["link"], rules)
            else:
                rules.write_text(policy)
            hospital.process = Process(
                hospital.name,
                [
                    *VEILGP,
                    "join",
                    invitation["link"],
                    str(hospital.table),
                    "--policy",
                    str(rules),
                    "--roster",
                    str(roster),
                    "--home",
                    str(hospital.home),
                    "--once",
                ],
                self.folder / f"{hospital.name}.log",
                self._threads(),
                self.launch,
            )
            if start:
                hospital.process.start()
        return self.hospitals

    def sites(self, program: Program) -> list[Site]:
        """Return the hospitals' tables, dealt as the secrets in their homes deal them."""
        return [site_of_home(program, each.table, each.home) for each in self.hospitals]

    def _draft(self, hospital: Hospital, link: str, rules: Path) -> None:
        """Write the policy and dictionary that a hospital's own drafts give, without edits."""
        offer = offered(link, home=hospital.home, progress="silent", allow_http=True)
        schema = offer.program.schema
        units = {column.name: column.unit for column in schema.numeric}
        units |= {column.name: column.unit for column in schema.targets}
        drafted = draft_dictionary(hospital.table, patient=schema.patient, units=units)
        (rules.parent / policy_draft.DICTIONARY).write_text(dictionary_draft.text_of(drafted))
        band = ProposedBand.for_table(count_rows(hospital.table))
        text = policy_draft.draft(
            offer.program, offer.terms, delta=offer.membership.delta, band=band
        )
        rules.write_text(text)

    def approve(self, session: str) -> None:
        """Wait until all hospitals have enrolled; approve those whose keys are known here."""
        keys = {hospital.name: hospital.key for hospital in self.hospitals}

        def enrolled() -> bool:
            self.check_hospitals()
            return len(self.admin("GET", f"/sessions/{session}/members")) == len(keys)

        wait_until(enrolled, "all hospitals have enrolled", wait_s=_MANY_START_S, every_s=0.25)
        for member in self.admin("GET", f"/sessions/{session}/members"):
            if member["key"] != keys[member["name"]]:
                raise FederationFailed(f"{member['name']} has enrolled with another key")
            self.admin(
                "PATCH", f"/sessions/{session}/members/{member['name']}", {"status": "approved"}
            )

    def check_hospitals(self) -> None:
        """Raise if a hospital's process has failed."""
        for hospital in self.hospitals:
            if hospital.process is not None and hospital.process.running is not None:
                _check_alive(hospital.process)

    def follow(
        self,
        run: str,
        *,
        seen: Callable[[Mapping[str, Any]], None] | None = None,
        wait_s: float,
        every_s: float = 0.1,
    ) -> Mapping[str, Any]:
        """Wait until a run has ended; `seen` is called with the run at each poll."""

        def ended(latest: Mapping[str, Any]) -> bool:
            if seen is not None:
                seen(latest)
            return latest["status"] not in ("waiting", "running")

        return self.follow_until(run, ended, wait_s=wait_s, every_s=every_s)

    def follow_until(
        self,
        run: str,
        true: Callable[[Mapping[str, Any]], bool],
        *,
        wait_s: float = _PATIENCE_S,
        every_s: float = 0.2,
    ) -> Mapping[str, Any]:
        """Poll a run until the given condition is true for it."""
        latest: Mapping[str, Any] = {}

        def found() -> bool:
            nonlocal latest
            latest = self.admin("GET", f"/runs/{run}")
            return true(latest)

        wait_until(found, f"run {run} is as far", wait_s=wait_s, every_s=every_s)
        return latest

    def _threads(self) -> Mapping[str, str]:
        count = str(self.threads)
        return {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}


def wait_until(
    true: Callable[[], bool], what: str, *, wait_s: float = _PATIENCE_S, every_s: float = 0.1
) -> None:
    """Poll until the condition is true; on timeout, raise an error that names what was awaited."""
    give_up = time.monotonic() + wait_s
    while not true():
        if time.monotonic() > give_up:
            raise FederationFailed(f"waited {wait_s:.0f} s until {what}, in vain")
        time.sleep(every_s)


def _check_alive(process: Process) -> None:
    code = process.code()
    if code not in (None, 0):
        raise FederationFailed(f"{process.name} ended with {code}:\n{process.words()[-3000:]}")


def free_port() -> int:
    """Return a port that is currently unused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port

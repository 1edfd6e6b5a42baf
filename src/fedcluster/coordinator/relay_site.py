"""A relay as a site of a federation: it answers with totals over another federation's sites."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedcluster.coordinator.run_job import (
    BOX,
    ENDED,
    POLL,
    QUESTION,
    REPLIED,
    Relaying,
    disclosed_columns,
    outcome_of,
)
from fedcluster.coordinator.runs import GOING, Run
from fedcluster.coordinator.service_client import Coordinator
from fedcluster.core import SiteInfo, Summary, Task
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.responder import Responder, Turns
from fedcluster.engines.wire import WireError
from fedcluster.errors import EndedError, InputError, SiteError
from fedcluster.io.outputs import atomic_folder, atomic_write, json_text
from fedcluster.io.rows import FederationSource
from fedcluster.model.assigned_rows import row_transform
from fedcluster.options.refusals import refused
from fedcluster.privacy.budget import Ledger
from fedcluster.privacy.policy import Policy
from fedcluster.privacy.site_state import SiteState, get, put
from fedcluster.site.file import SiteFile
from fedcluster.site.membership import (
    Membership,
    membership_steps,
    site_auditor,
    site_responder,
    site_state,
)
from fedcluster.site.owned_files import ORPHAN, private_files, running
from fedcluster.site.process import MEGABYTE
from fedcluster.site.worker import keep_earlier

KNOWN = 100
"""Number of most recent upper runs that are remembered."""

SETTLED = 5.0
"""Seconds within which the coordinator notices that a run has ended."""

START = 180.0
"""Seconds within which the lower sites must be connected."""


def answering(site: SiteFile, membership: Membership, say: Callable[[str], None]) -> Turns:
    """Return a responder for a site, based on its own rows or on the sites behind it.

    Parameters and errors are those of `site_responder`.
    """
    if isinstance(site.source, FederationSource):
        return relay_responder(site, site.source, membership, say)
    return site_responder(site, membership, say)


def relay_responder(
    site: SiteFile,
    source: FederationSource,
    membership: Membership,
    say: Callable[[str], None],
) -> Turns:
    """Return a responder for a relay.

    Parameters
    ----------
    site : SiteFile
        The relay's site file.
    source : FederationSource
        The federation of its sites, whose coordinator runs on this machine.
    membership : Membership
        Its place in the federation above.
    say : callable taking a str
        Called with one line for each event.

    Raises
    ------
    InputError
        If the lower federation is not started, its sites do not answer, or the site file requires
        something that a relay cannot do.
    """
    _check(site, membership)
    folder, steps = site.path.absolute().parent, membership_steps(site, membership)
    below = Coordinator.at(source.path)
    state = site_state(site, membership)
    limits = asdict(site.limits)
    job = Relaying(site.name, source.fewest, source.lines, steps=membership.steps, **limits)
    runs = RelayedRuns(below, job, source.quorum, state)
    relay = RelaySite(site.name, runs, site.cost.message_mb * MEGABYTE)
    columns = relay.columns()

    def keep(content: dict[str, Any]) -> None:
        results = folder / membership.results
        with atomic_folder(results, obsolete=["labels.csv"]) as partial:
            (partial / "model.json").write_text(json_text(content), encoding="utf-8")
            keep_earlier(results, partial)
        relay.give(content)
        say(f"site {site.name}: the model came; it is in {results}, and the sites below have it")

    responder = Responder(
        relay.client(columns),
        columns=columns,
        choose=relay.client,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        policy=Policy(site.policy, Ledger(state)),
        auditor=site_auditor(site, membership, columns, say),
        keep=keep,
    )
    return Turns(responder.respond, relay.end, relay.begin, site.cost.message_mb * MEGABYTE)


def _check(site: SiteFile, membership: Membership) -> None:
    """Raise an error for settings that a relay does not support."""
    is_private = site.privacy is not None or any(
        each != "none" for each in site.groups.rules.values()
    )
    if is_private or membership.secure:
        option = "[privacy]" if is_private else "secure"
        raise refused("relay-rows", where=f"{site.path}: ", option=option)


class RelayedRuns:
    """Lower runs, one for each upper run, so that sites use one version of their rows.

    Parameters
    ----------
    coordinator : Coordinator
        The coordinator of the lower federation.
    job : Relaying
        The job for its sites.
    quorum : int or None
        The smallest number of sites that must answer; None for all.
    state : SiteState
        The state of the relay, which maps upper runs to lower runs.
    """

    def __init__(
        self, coordinator: Coordinator, job: Relaying, quorum: int | None, state: SiteState
    ) -> None:
        if coordinator.federation is None:
            raise InputError(f"{coordinator.folder} is not the folder of a federation")
        self._coordinator, self._federation = coordinator, coordinator.federation
        if (n := len(self._federation.sites)) < job.fewest:
            raise InputError(
                f"{coordinator.folder} has {n} sites, and a relay with fewest = {job.fewest} never "
                "answers for so few: add sites there"
            )
        self._job, self._quorum, self._state = job, quorum, state

    def begin(self, job: str) -> Path:
        """Return the folder of the lower run for an upper run, which is continued or started."""
        with self._state.transaction() as file:
            name = get(file, "relayed", job) or ""
        folder = self._federation.file("runs", name)
        if name and (folder / "job.json").exists() and not (folder / BOX / ENDED).exists():
            self._go_on(folder)
            return folder
        options = {"quorum": self._quorum}
        body = {"job": Relaying.kind, "parameters": asdict(self._job), "options": options}
        name = str(self._coordinator.post("/runs", body)["run"])
        with self._state.transaction() as file:
            put(file, "relayed", job, name, KNOWN)
        return self._federation.file("runs", name)

    def _go_on(self, folder: Path) -> None:
        """Resume an interrupted run, once the coordinator has noticed that it ended."""
        end = time.monotonic() + SETTLED
        while Run.load(folder).state in GOING and outcome_of(folder) and time.monotonic() < end:
            time.sleep(POLL)
        if Run.load(folder).state not in GOING:
            self._coordinator.resume(folder.name)


@dataclass(frozen=True, slots=True, eq=False)
class RelayClient:
    """Client that answers like `Client`, but with totals over the lower sites."""

    name: str
    engine: Callable[[], RemoteEngine]
    columns: tuple[str, ...]
    raw: bool

    def introduce(self, **requested: Any) -> SiteInfo:
        """Return the metadata of the relay's sites."""
        with _reason(engine := self._chosen()):
            return engine.introduce(**requested)[0]

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the totals of all tasks of a round."""
        with _reason(engine := self._chosen()):
            return [answers.by_site[self.name] for answers in engine.ask(tasks)]

    def _chosen(self) -> RemoteEngine:
        engine = self.engine()
        engine.choose(self.columns, raw=self.raw)
        return engine


@contextmanager
def _reason(engine: RemoteEngine) -> Iterator[None]:
    """Explain why the lower sites gave no answer, without their names."""
    try:
        yield
    except SiteError as error:
        raise WireError(engine.refusals[-1].reason) from error


class RelaySite:
    """A relay in the role of a site's worker.

    Parameters
    ----------
    name : str
        Its name.
    runs : RelayedRuns
        The lower runs.
    largest : int
        Size in bytes of the largest message that is read.
    """

    def __init__(self, name: str, runs: RelayedRuns, largest: int) -> None:
        self._name, self._runs, self._largest = name, runs, largest
        self._job: str | None = None
        self._folder, self._held = Path(), ExitStack()
        self._engine: RemoteEngine | None = None
        self._failed: Exception | None = None
        self._stop, self._why = threading.Event(), ""

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of all lower sites, which are asked now.

        Raises
        ------
        InputError
            If the sites do not answer in time.
        """
        self.begin("")
        if self._failed is not None:
            raise InputError(str(self._failed)) from self._failed
        columns = disclosed_columns(self._folder / BOX)
        assert columns is not None  # or it had failed
        self._leave()
        return columns

    def begin(self, job: str) -> None:
        """Ask on behalf of this upper run from now on; errors are raised by the first call."""
        self._stop.clear()
        self._failed = None
        going = not outcome_of(self._folder)
        if job == self._job and going:
            return
        self._job = self._job if going else None
        try:
            self._leave()
            self._folder, self._job = self._runs.begin(job), job
            self._hold(self._folder / BOX)
            self._await()
            box = Mailbox(self._folder, self._stop, lambda: self._why)
            self._engine = RemoteEngine(box, [self._name], largest=self._largest)
        except (InputError, SiteError) as error:
            self._failed, self._job = WireError(f"the sites behind the relay: {error}"), None
            self._leave()

    def _hold(self, box: Path) -> None:
        """Show the lower run that this program is there, until that ends or `_leave`."""
        with private_files():
            box.mkdir(exist_ok=True)
        self._held.enter_context(running(box, "relay", ORPHAN))

    def _leave(self) -> None:
        """End the lower run, if there is one."""
        self._held.close()
        if self._job is not None:
            self._job = None
            with suppress(OSError), atomic_write(self._folder / BOX / ENDED) as temporary:
                temporary.write_bytes(b"")

    def _await(self) -> None:
        """Wait until the lower sites are connected."""
        end = time.monotonic() + START
        while disclosed_columns(self._folder / BOX) is None:
            if outcome := outcome_of(self._folder):
                raise SiteError(str(outcome.get("error", "their run has ended")))
            if time.monotonic() > end:
                raise SiteError(f"they were not there within {START:g} s")
            time.sleep(POLL)

    def end(self, why: str) -> None:
        """Stop waiting for a reply; may be called from any thread."""
        self._why = why
        self._stop.set()

    def client(self, columns: Sequence[str], *, raw: bool = False) -> RelayClient:
        """Return the client for the lower sites with these columns."""
        return RelayClient(self._name, self._asking, tuple(columns), raw)

    def give(self, model: Mapping[str, Any]) -> None:
        """Send every lower site the final model."""
        self._asking().give(model)

    def _asking(self) -> RemoteEngine:
        if self._failed is not None:
            raise self._failed
        assert self._engine is not None  # a run has begun
        return self._engine


class Mailbox:
    """Transport that talks to the process of a lower run through files in the run's folder.

    Parameters
    ----------
    folder : Path
        The folder of the run.
    stop : Event
        Set when nobody waits for the reply any more.
    why : callable
        Returns the reason.
    """

    def __init__(self, folder: Path, stop: threading.Event, why: Callable[[], str]) -> None:
        self._folder, self._stop, self._why = folder, stop, why

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send the question, and wait for the reply or the end of the run."""
        [(name, message)] = messages.items()
        number = f"{time.time_ns():020d}"
        box = self._folder / BOX
        replied = box / f"{REPLIED}{number}"
        with atomic_write(box / f"{QUESTION}{number}") as temporary:
            temporary.write_bytes(message)
        while not replied.exists():
            if outcome := outcome_of(self._folder):
                return {}, {name: f"the run below has ended: {outcome.get('error', '')}"[:200]}
            if self._stop.wait(POLL):
                raise EndedError(self._why())
        reply = replied.read_bytes()
        replied.unlink()
        return {name: reply}, {}

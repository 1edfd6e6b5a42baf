"""Membership of a site in a federation: its table in the site file, its answers and its results.

What carries the questions is no matter of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from fedcluster.engines.responder import Responder, Turns
from fedcluster.engines.wire import Steps, WireError, steps_by_name
from fedcluster.errors import InputError
from fedcluster.io.records import record
from fedcluster.model.assigned_rows import row_transform
from fedcluster.options.refusals import refused
from fedcluster.preprocessing.fitting import STEPS as PREPARATION
from fedcluster.privacy.budget import BudgetLedger, Ledger
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.privacy.policy import Policy
from fedcluster.privacy.site_state import STATE_FILE, SiteState
from fedcluster.secure.cohort import MIN_SITES, Terms, earlier_cohorts
from fedcluster.secure.site import SecureSite
from fedcluster.site._auditor import QuestionFolder, SiteAuditor
from fedcluster.site._results import ReceivedModels
from fedcluster.site.addresses import Address
from fedcluster.site.audit_log import AuditLog, has_left, read_log
from fedcluster.site.file import SiteFile
from fedcluster.site.identity import (
    IDENTITY,
    PEERS,
    SYSTEM,
    check_own,
    identity,
    load_peers,
    system_store,
)
from fedcluster.site.permits import SitePermits, coordinator_identity, public_text
from fedcluster.site.process import MEGABYTE
from fedcluster.site.worker import SiteWorker, Versions
from fedcluster.texts.untrusted import first_not_plain, printable

LEAST = 5
"""Smallest cluster that a site with limits sends over a network."""

ROWS_CHANGED = "the rows have changed"
"""Event of the log: from here on, runs that begin are about other rows."""


Coordinator = Annotated[str, Meta(description='its address, as in coordinator = "HOST:PORT"')]
Cohort = Annotated[
    int,
    Meta(
        ge=MIN_SITES,
        description=f"at least {MIN_SITES}: of two sites, each knows the other's sums",
    ),
]


@dataclass(frozen=True, slots=True)
class Membership:
    """The table ``[federation]`` of a site file.

    Parameters
    ----------
    coordinator : str
        HOST:PORT of the coordinator.
    certificate : str, optional
        The file of the authority that vouches for the coordinator, or "system" for those that the
        machine trusts.
    key : str, optional
        The file of the site's own key.
    insecure : bool
        Without both, on one machine.
    results : str
        The folder that receives the model and the labels.
    log : str
        The file that says what was asked and what left.
    log_megabytes : int
        From where on a file of the log is full, and another is begun.
    questions : str
        The folder that keeps the questions.
    questions_megabytes : int
        How much room they have.
    steps : tuple of str
        Steps that may be asked besides those of the package.
    secure : bool
        Whether only sums of all sites are told, under masks.
    min_sites : int
        The fewest sites whose sum may be found with the site's help, at least 3.
    allow_dropouts : bool
        Whether a run with secure sums may go on without some of its sites.
    allow_alone : tuple of str
        Sites whose own sums may be found, as they alone join or leave the secure sums.
    """

    coordinator: Coordinator
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    results: str = "results"
    log: str = "audit.jsonl"
    log_megabytes: int = 64
    questions: str = "questions"
    questions_megabytes: int = 256
    steps: tuple[str, ...] = ()
    secure: bool = False
    min_sites: Cohort = MIN_SITES
    allow_dropouts: bool = False
    allow_alone: tuple[str, ...] = ()

    @classmethod
    def from_site_file(cls, site: SiteFile) -> Membership:
        """Read the table of a site file.

        Raises
        ------
        InputError
            If a key is missing, unknown or of a wrong type, or a file is not there.
        """
        where = f"{site.path}: [federation],"
        try:
            membership = record(site.federation, cls)
        except InputError as error:
            raise InputError(f"{where} {error}") from error
        credentials = {"certificate": membership.certificate, "key": membership.key}
        for key, name in {} if membership.insecure else credentials.items():
            if name is None:
                raise InputError(f"{where} {key!r} is missing")
            if name != SYSTEM and not (site.path.parent / name).is_file():
                raise InputError(
                    f"{site.path.parent / name} does not exist; it is in the folder that the "
                    "coordinator handed over"
                )
        return membership

    def authority(self, folder: Path) -> Path | None:
        """Return the file of who vouches for the coordinator, None where nobody does.

        Parameters
        ----------
        folder : Path
            The folder of the site file.
        """
        if self.insecure or self.certificate is None:
            return None
        return system_store() if self.certificate == SYSTEM else folder / self.certificate

    def identity(self, folder: Path) -> str:
        """Return by what permits and logs know the coordinator: see `coordinator_identity`."""
        own = None if self.certificate in {None, SYSTEM} else folder / str(self.certificate)
        return coordinator_identity(own, Address.read(self.coordinator).host)


def site_responder(site: SiteFile, membership: Membership, say: Callable[[str], None]) -> Turns:
    """Return what answers the questions to a site; reads the names of its columns.

    The rows are in a process of their own, see `SiteWorker`.

    Parameters
    ----------
    site : SiteFile
        The site.
    membership : Membership
        Where it logs what left, what it may be asked, and where it keeps results.
    say : callable taking a str
        Receives what happens, in one line each.

    Raises
    ------
    InputError
        If the rows cannot be read, ``steps`` of the site file names something else, its limits are
        too small for a network, or its groups were lost.
    """
    columns = _columns(site)
    steps = membership_steps(site, membership)

    def keep(content: dict[str, Any]) -> None:
        worker.keep(content)
        say(f"site {site.name}: a model came")

    def changed(digest: str) -> None:
        auditor.log.append(lambda _head: {"event": ROWS_CHANGED, "rows": digest})
        say(f"site {site.name}: its rows have changed, and are read anew")

    auditor = site_auditor(site, membership, columns, say)
    _check_protection(site, auditor)
    state, models = site_state(site, membership), site_models(site, membership)
    worker = SiteWorker(site, Versions(state, changed), models, say)
    secure = site_secure(site, membership)
    worker.start()
    responder = Responder(
        worker.client(columns),
        columns=columns,
        choose=worker.client,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        policy=_policy(site, state, auditor.budget),
        auditor=auditor,
        keep=keep,
        secure=secure,
    )
    largest = site.cost.message_mb * MEGABYTE
    return Turns(responder.respond, worker.end, worker.begin, largest)


def _policy(site: SiteFile, state: SiteState, budget: BudgetLedger | None) -> Policy:
    """Return what a site may be asked, and what that may cost."""
    disclosure = Disclosure.of(site.disclosure, site.groups if site.is_grouped else None)
    return Policy(site.policy, Ledger(state), budget, disclosure)


def site_state(site: SiteFile, membership: Membership) -> SiteState:
    """Return the state of a site, which is made before its first answer.

    Raises
    ------
    InputError
        If it is missing and was there: the site has a key for secure sums, or its log tells of
        answers; or if an earlier version has left one.
    """
    folder = site.path.absolute().parent
    state, log = SiteState(folder / STATE_FILE), folder / membership.log
    if not state.is_there:
        if (folder / IDENTITY).exists():
            raise InputError(
                f"{state.missing}, or remove {IDENTITY} too, and give the other sites a new key"
            )
        if any(map(has_left, read_log(log))):
            raise InputError(
                f"{state.missing}, since answers have left, as {log.name} shows; or move that log "
                "and its files to an archive, and begin anew"
            )
        state.create()
    return state


def site_budget(site: SiteFile, log: AuditLog | None = None) -> BudgetLedger | None:
    """Return the ledger of the privacy budget of a site, None where it has no budget.

    Parameters
    ----------
    site : SiteFile
        The site.
    log : AuditLog, optional
        The log of what left it, against which the ledger is held.
    """
    if site.privacy is None:
        return None

    def known() -> float:
        if log is None:
            return 0.0
        with log.locked() as head:
            return head.spent

    return BudgetLedger(SiteState(site.path.absolute().parent / STATE_FILE), site.privacy, known)


def site_secure(site: SiteFile, membership: Membership) -> SecureSite | None:
    """Return the site's part in secure sums; None where its sums leave as they are.

    Raises
    ------
    InputError
        If its key, those of the others, or the state with the earlier sums are missing.
    """
    if not membership.secure:
        if site.colluders is not None:
            raise refused("colluders-alone", where=f"{site.path}: [privacy], colluders: ")
        return None
    folder = site.path.absolute().parent
    own, path = identity(folder), folder / PEERS
    peers = load_peers(path)
    check_own(path, site.name, peers, public_text(own.public_key()))
    permitted = site_permits(site, membership).sites if site.permits else None
    dropouts, alone = membership.allow_dropouts, membership.allow_alone
    terms = Terms(membership.min_sites, site.colluders, dropouts, alone)
    state = site_state(site, membership)
    earlier_cohorts(state)  # can it be read?
    return SecureSite(site.name, own, peers, terms, state, permitted)


def membership_steps(site: SiteFile, membership: Membership) -> Steps:
    """Return the steps that a site knows, by name."""
    try:
        steps = steps_by_name([*PREPARATION, *membership.steps])
    except WireError as error:
        raise InputError(f"{site.path}: [federation], steps: {error}") from error
    if unknown := {*site.policy.steps, *site.policy.denied} - steps.keys():
        known = ", ".join(sorted(steps))
        raise InputError(f"{site.path}: [policy], no step is called {min(unknown)!r}; {known}")
    return steps


def _columns(site: SiteFile) -> tuple[str, ...]:
    """Return the names of the columns that a site has."""
    site.own_table()
    columns = tuple(site.opened(raw=True).columns)
    if (name := first_not_plain(columns)) is not None:
        raise InputError(
            f"{site.path}: the name of column {printable(name)!r} is too long or holds control "
            "characters, as ends of lines are: rename it, or name the others as columns"
        )
    return columns


def _check_protection(site: SiteFile, auditor: SiteAuditor) -> None:
    """Refuse limits that would let sums of very few rows leave, and what was lost of a protection.

    That is the groups, or what is spent of a privacy budget.
    """
    log = auditor.log
    if auditor.budget is not None:
        auditor.budget.check()
        return
    smallest = site.limits.min_cluster_size
    if site.protection == "limits" and smallest < LEAST:
        raise InputError(
            f"{site.path}: [limits], min_cluster_size must be at least {LEAST} over a network, not "
            f"{smallest}; or leave out protection, for groups of rows"
        )
    grouped = site.protection != "limits" and site.groups.generation == 1
    if grouped and not site.groups_file.exists() and any(map(has_left, read_log(log.path))):
        raise InputError(
            f"{site.groups_file} is missing, and answers have left, as {log.path.name} shows: "
            "put back a copy, since grouping rows anew would tell of single ones; if it never was "
            "there, or the rows are those of others, write generation = 2 under [groups]"
        )


def site_models(site: SiteFile, membership: Membership) -> ReceivedModels:
    """Return the models that came to a site, and what became of them."""
    folder = site.path.absolute().parent
    return ReceivedModels(SiteState(folder / STATE_FILE), folder / membership.results)


def site_log(site: SiteFile, membership: Membership) -> AuditLog:
    """Return the log of a site."""
    path = site.path.absolute().parent / membership.log
    return AuditLog(path, site.name, membership.log_megabytes << 20)


def site_questions(site: SiteFile, membership: Membership) -> QuestionFolder:
    """Return the folder of the questions in the log of a site."""
    path = site.path.absolute().parent / membership.questions
    return QuestionFolder(path, membership.questions_megabytes << 20)


def site_permits(site: SiteFile, membership: Membership) -> SitePermits:
    """Return the permits of a site.

    Raises
    ------
    InputError
        If the federation is without certificates, by which a permit is known.
    """
    if membership.insecure or membership.certificate is None:
        raise refused("permits-insecure", where=f"{site.path}: ")
    folder = site.path.absolute().parent
    granter, key = folder / "coordinator.pub", folder / "permit.key"
    who = membership.identity(folder)
    return SitePermits(folder / "permits", site.name, who, granter, key)


def site_auditor(
    site: SiteFile, membership: Membership, columns: Sequence[str], say: Callable[[str], object]
) -> SiteAuditor:
    """Return the keeper of a site's permits and log; checks that the log is in order.

    Raises
    ------
    InputError
        If the log was changed or cannot be written, or permits are required and cannot be checked.
    """
    log, coordinator = site_log(site, membership), f"{membership.coordinator}, insecure"
    permits = site_permits(site, membership) if site.permits else None
    if membership.certificate is not None and not membership.insecure:
        authority = membership.identity(site.path.absolute().parent)
        coordinator = f"{membership.coordinator}, certificate {authority}"
    with log.locked():
        pass
    questions = site_questions(site, membership)
    return SiteAuditor(log, questions, coordinator, permits, columns, say, site_budget(site, log))

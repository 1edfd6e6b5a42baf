"""Membership of a site in a federation, whatever transport carries the requests.

`Membership` is the table ``[federation]`` of the site file; the auditor keeps the permits and the
log, which records every request and its reply before the reply leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from fedcluster.core import Floats, Summary, Task, first_alike
from fedcluster.core.files import atomic_write, write_durably
from fedcluster.engines.wire import (
    ASKED,
    Steps,
    WireError,
    about_of,
    known_line,
    steps_by_name,
)
from fedcluster.errors import InputError
from fedcluster.model.assigned_rows import row_transform
from fedcluster.options.refusals import refused
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.texts import counted, first_not_plain, printable
from fedcluster_app.records import record
from fedcluster_app.secure.cohort import MIN_SITES, Terms, earlier_cohorts, two_sites_line
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.process import MEGABYTE
from fedcluster_app.site.worker import ReceivedModels, SiteWorker, Versions
from fedcluster_app.trust.audit_log import (
    LOG,
    MEGABYTES,
    AuditLog,
    Head,
    Line,
    has_left,
    has_line,
    read_log,
    verify,
)
from fedcluster_app.trust.identity import (
    IDENTITY,
    PEERS,
    SYSTEM,
    Address,
    check_own,
    identity,
    load_peers,
    system_store,
)
from fedcluster_app.trust.permits import (
    Asked,
    SitePermits,
    coordinator_identity,
    next_round,
    public_text,
)
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.policy import BudgetLedger, Ledger, Policy
from fedcluster_app.wire.responder import AuditEntry, Auditor, Request, RequestQueue, Responder

OTHER_LOG = (
    "the coordinator's log ended with line {}, and now with {}: it was begun anew or an older "
    "copy was put back; ask why"
)
OLDER = (
    "the log of the site lacks a line that the coordinator knows: its folder is an older copy, and "
    "rows would be grouped twice: put back the newest; if the log was begun anew on purpose, the "
    "coordinator takes this site out of its runs/*/log-heads.json"
)
"""Refusal, at both ends, where the whole folder of a site was put back."""
MOST_SIGNS = 2_000
"""Number of characters of a question's text in a line of the log; the question itself is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteAuditor(Auditor):
    """Auditor of one site, which checks its permits and writes its log.

    Parameters
    ----------
    log : AuditLog
        The log.
    questions : QuestionFolder
        The store of questions.
    asked_by : str
        The coordinator, as identified by the transport.
    permits : SitePermits, optional
        If given, only questions that a permit covers are answered.
    columns : sequence of str
        The columns of the site.
    say : callable taking a str
        Called with one line for each log entry.
    budget : BudgetLedger, optional
        The ledger of the site's privacy budget: each line has the cost so far, so that a reset
        ledger is noticed.
    """

    log: AuditLog
    questions: QuestionFolder
    asked_by: str
    permits: SitePermits | None = None
    columns: Sequence[str] = ()
    say: Callable[[str], object] = str
    budget: BudgetLedger | None = None

    def admit(self, request: Request) -> str:
        """Check that a permit covers a question, if the site requires one.

        Returns the hash of the last line of the log for the reply, with which the coordinator can
        later show that the log was unchanged up to there.
        """
        with self.log.locked() as head:
            known = known_line(request.header, head.site)
            if known and not has_line(self.log.path, known):
                raise WireError(OLDER)
            self._used(request, head)
            return head.hash

    def record(self, entry: AuditEntry) -> None:
        """Write a line, keep the question, and check the permit once more."""

        def line(head: Head) -> Line:
            used = {} if entry.refused else self._used(entry.request, head)
            kept = self.questions.keep(entry.request, refused=bool(entry.refused))
            spent: Line = {} if self.budget is None else {"spent": self.budget.rho}
            fields = {"asked_by": self.asked_by, **used, **kept, **spent, **_line(entry)}
            log = about_of(entry.request.header, "log")
            if not log or entry.refused or str(fields["run"]) <= head.newest:
                return fields
            if _goes_back(head.coordinator, log):
                fields["warning"] = OTHER_LOG.format(head.coordinator, log)
                self.say(f"site {head.site}: warning: {fields['warning']}")
            return {**fields, "coordinator": log}

        site = self.log.append(line).site
        tasks, size = len(entry.tasks), len(entry.reply)
        if not entry.refused:  # else its responder has logged a warning
            self.say(f"site {site}: answered {counted(tasks, 'task')} with {size:,} bytes")

    def _used(self, request: Request, head: Head) -> Line:
        """Return the fields of a log line about the permit of a request; none without permits."""
        if self.permits is None:
            return {}
        asked = Asked.from_header(request.header, request.digest, self.columns)
        return next_round(self.permits.admit(asked, head), asked, head)


@dataclass(frozen=True, slots=True)
class QuestionFolder:
    """Folder with one copy of each question in the log, named by its hash.

    If the questions exceed their room, the oldest are removed, until a sixteenth of it is free: the
    folder is read for that, which must be rare. Refused questions have a separate folder with a
    tenth of the room, so that they never displace answered ones.

    Parameters
    ----------
    path : Path
        The folder.
    room : int
        Number of bytes for all questions together.

    Attributes
    ----------
    sizes : dict of Path to int
        Number of bytes in each folder, as far as this program knows.
    """

    path: Path
    room: int
    sizes: dict[Path, int] = field(default_factory=dict, init=False, compare=False)

    def keep(self, request: Request, *, refused: bool = False) -> Line:
        """Keep a question; return the log line's fields about it and about removed ones."""
        folder, room = self.path, self.room
        if refused:
            folder, room = self.path / "refused", self.room // 10
        question, digest = request.content, request.digest
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / digest
        if file.exists():
            file.touch()
        elif len(question) <= room:
            with atomic_write(file) as temporary:
                write_durably(temporary, question)
            if folder in self.sizes:
                self.sizes[folder] += len(question)
        about = {"question": digest, "question_bytes": len(question), "kept": len(question) <= room}
        dropped: list[str] = []
        if self.sizes.get(folder, room + 1) > room:
            self.sizes[folder], dropped = _drop(folder, room)
        return {**about, "dropped": dropped} if dropped else about

    def check(self, log: Path) -> int:
        """Check that all questions that the log lists as kept exist unchanged; count them.

        Raises
        ------
        InputError
            With the line of the log and the file.
        """
        kept: dict[Path, int] = {}
        for line in read_log(log):
            folder = self.path / "refused" if line.get("refused") else self.path
            if line.get("kept"):
                kept[folder / line["question"]] = line["line"]
            for digest in line.get("dropped", ()):
                kept.pop(folder / digest, None)
        for file, number in kept.items():
            if not file.exists():
                raise InputError(f"{file}: the question of line {number} of the log is gone")
            if sha256(file.read_bytes()).hexdigest() != file.name:
                raise InputError(f"{file}: the question of line {number} of the log was changed")
        return len(kept)


def _drop(folder: Path, room: int) -> tuple[int, list[str]]:
    """Remove oldest files of a folder that is too full; return the others' size, and those removed.

    Then a sixteenth of the room is free.
    """
    files = sorted(
        (about.st_mtime_ns, file.name, about.st_size)
        for file in folder.iterdir()
        if file.is_file() and (about := file.stat())
    )
    size, dropped = sum(each for _, _, each in files), []
    most = room if size <= room else room - room // 16
    for _, name, each in files:
        if size <= most:
            break
        (folder / name).unlink(missing_ok=True)
        size -= each
        dropped.append(name)
    return size, dropped


def _goes_back(before: str, now: str) -> bool:
    """Return whether the end of a log, ``number:hash``, cannot come after another end of it.

    Examples
    --------
    >>> _goes_back("8:ab", "8:ab"), _goes_back("8:ab", "9:cd")
    (False, False)
    >>> _goes_back("8:ab", "8:ef"), _goes_back("8:ab", "3:ef"), _goes_back("8:ab", "none")
    (True, True, True)
    """
    numbers = (end.partition(":")[0] for end in (before, now))
    first, second = (int(number) if number.isdecimal() else 0 for number in numbers)
    return bool(before) and before != now and second <= first


def _line(entry: AuditEntry) -> Line:
    """Return the log's fields for a question and its reply: sizes and hashes, never a value.

    The run has the name that the coordinator's own log has, if the question includes it.
    """
    header = entry.request.header
    run = about_of(header, "job") or header.get("run")
    number = header.get("exchange")
    line: Line = {
        "run": run[:100] if isinstance(run, str) else None,
        "round": number + 1 if isinstance(number, int) and 0 <= number < 1 << 53 else None,
        "reply": sha256(entry.reply).hexdigest(),
        "bytes": len(entry.reply),
    }
    operator = about_of(header, "operator")
    line |= {"operator": operator} if operator else {}
    if entry.refused:  # log nothing else of a refused header, which may hold anything
        return {**line, "refused": entry.refused[:MOST_SIGNS]}
    columns = header.get("columns")
    line |= {"columns": columns if len(str(columns)) <= MOST_SIGNS else _digest(columns)}
    line |= {"model": _digest(header["model"])} if "model" in header else {}
    tasks = _task_lines(entry.tasks, entry.answers)
    return {**line, **_metadata(entry.metadata), "tasks": tasks}


def _task_lines(tasks: Sequence[Task], answers: Sequence[Summary]) -> list[Line]:
    """Return the log's fields for each task and its answer; each preparation is hashed once."""
    firsts = first_alike(tasks)
    digests = {
        i: None if (how := tasks[i].preprocessor) is None else _digest(how.plain())
        for i in set(firsts)
    }
    return [
        {**_task_line(task, answer), "preparation": digests[first]}
        for task, answer, first in zip(tasks, answers, firsts, strict=True)
    ]


def _task_line(task: Task, answer: Summary) -> Line:
    state = task.state
    arrays = {"centers": state.centers, "weights": state.weights, **state.memory}
    weights = answer.weights[answer.weights != 0]
    return {
        "task": repr(task.step)[:MOST_SIGNS],
        "seed": task.seed,
        "state_round": state.round,
        "state": {name[:100]: _array(array) for name, array in arrays.items() if array.size},
        "shape": list(answer.sums.shape),
        "numbers": answer.n_values,
        "smallest_weight": float(weights.min()) if weights.size else None,
        "bytes": answer.sums.nbytes + answer.weights.nbytes,
        **({} if task.noise is None else {"noise": task.noise}),
    }


def _metadata(metadata: Mapping[str, Any]) -> Line:
    """Return the log's fields for the site's metadata; for texts, only their number."""
    line: Line = {"told": {key: metadata[key] for key in metadata if key not in ASKED}}
    if (columns := metadata.get("described")) is not None:
        texts = sum(len(levels) for _, _, levels in columns)
        size = len(json.dumps(columns))
        line["described"] = {"number": len(columns), "texts": texts, "bytes": size}
    if (labels := metadata.get("labels")) is not None:
        line["labels"] = {"texts": len(labels), "bytes": len(json.dumps(labels))}
    return line


def _digest(plain: Any) -> str:
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _array(array: Floats) -> list[Any]:
    """Return the shape and the hash of an array in its transmitted form."""
    return [*array.shape, sha256(np.ascontiguousarray(array, "<f8").tobytes()).hexdigest()]


ROWS_CHANGED = "the rows have changed"
"""Event of the log: runs that begin later use other rows."""


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
    certificate : str
        The file of the authority that vouches for the coordinator, or "system" for the authorities
        that the machine trusts.
    key : str
        The file of the site's own key.
    results : str
        The folder that receives the model and the labels.
    log : str
        The log of questions and of what left.
    log_megabytes : int
        The size from which on a new file of the log is started.
    questions : str
        The folder of the questions.
    questions_megabytes : int
        The room for the questions.
    steps : tuple of str
        Allowed steps in addition to those of the package.
    secure : bool
        Whether the site only takes part in masked sums over all sites.
    min_sites : int
        The smallest number of sites in a sum that the site helps to compute, at least 3.
    allow_dropouts : bool
        Whether a run with secure sums may continue without some of its sites.
    allow_alone : tuple of str
        Sites whose own sums may be inferred because they join or leave the secure sums alone.
    """

    coordinator: Coordinator
    certificate: str = ""
    key: str = ""
    results: str = "results"
    log: str = LOG
    log_megabytes: int = MEGABYTES
    questions: str = "questions"
    questions_megabytes: int = 256
    steps: tuple[str, ...] = ()
    secure: bool = False
    min_sites: Cohort = MIN_SITES
    allow_dropouts: bool = False
    allow_alone: tuple[str, ...] = ()

    @classmethod
    def from_site_file(cls, site: SiteFile) -> Membership:
        """Read the membership from a site file.

        Raises
        ------
        InputError
            If a key is missing, unknown or of a wrong type, or a file is missing.
        """
        where = f"{site.path}: [federation],"
        try:
            membership = record(site.federation, cls)
        except InputError as error:
            raise InputError(f"{where} {error}") from error
        credentials = {"certificate": membership.certificate, "key": membership.key}
        for key, name in credentials.items():
            if not name:
                raise InputError(f"{where} {key!r} is missing")
            if name != SYSTEM and not (site.path.parent / name).is_file():
                raise InputError(
                    f"{site.path.parent / name} does not exist; it is in the folder that the "
                    "coordinator handed over"
                )
        return membership

    def authority(self, folder: Path) -> Path:
        """Return the file of the authority that vouches for the coordinator.

        Parameters
        ----------
        folder : Path
            The folder of the site file.
        """
        return system_store() if self.certificate == SYSTEM else folder / self.certificate

    def identity(self, folder: Path) -> str:
        """Return the coordinator's identity in permits and logs; see `coordinator_identity`."""
        own = None if self.certificate == SYSTEM else folder / self.certificate
        return coordinator_identity(own, Address.read(self.coordinator).host)


def site_responder(
    site: SiteFile, membership: Membership, say: Callable[[str], None]
) -> RequestQueue:
    """Return a responder for a site, after reading the names of its columns.

    The rows are held by a separate process; see `SiteWorker`.

    Parameters
    ----------
    site : SiteFile
        The site.
    membership : Membership
        Its membership, with the log, the allowed steps and the folder of results.
    say : callable taking a str
        Called with one line for each event.

    Raises
    ------
    InputError
        If the rows cannot be read, ``steps`` in the site file is invalid, its limits are too small
        for a network, or its groups were lost.
    """
    columns = _columns(site)
    steps = membership_steps(site, membership)

    def keep(content: dict[str, Any]) -> None:
        worker.keep(content)
        say(f"site {site.name}: a model came")
        for line in two_sites_line(len(content.get("sites") or ())):
            say(f"site {site.name}: warning: {line}")

    def changed(digest: str) -> None:
        auditor.log.append(lambda _head: {"event": ROWS_CHANGED, "rows": digest})
        say(f"site {site.name}: its rows have changed, and are read anew")

    auditor = site_auditor(site, membership, columns, say)
    _check_protection(site, auditor)
    state, models = site_state(site, membership), site_models(site, membership)
    worker = SiteWorker(site, Versions(state, changed), models, say)
    secure = site_secure(site, membership)
    worker.finish_labels()
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
    return RequestQueue(responder.respond, worker.end, worker.begin, largest)


def _policy(site: SiteFile, state: SiteState, budget: BudgetLedger | None) -> Policy:
    """Return what a site may be asked, and the budget for it."""
    disclosure = Disclosure.of(site.disclosure, site.groups if site.is_grouped else None)
    return Policy(site.policy, Ledger(state), budget, disclosure)


def site_state(site: SiteFile, membership: Membership) -> SiteState:
    """Return the state of a site, creating it before the first answer.

    Raises
    ------
    InputError
        If it is missing although it must have existed (the site has a key for secure sums, or its
        log has answers).
    """
    state = _kept_state(site, membership)
    state.create()
    state.check()
    return state


def _kept_state(site: SiteFile, membership: Membership) -> SiteState:
    """Return the state of a site, which may be missing before the first answer only."""
    folder, log = site.state_folder, site_log(site, membership).path
    state = SiteState(folder / STATE_FILE)
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
    return state


def check_kept(site: SiteFile, membership: Membership) -> None:
    """Raise an error if a start would refuse a site's rows, steps, or what it has kept of runs.

    Nothing is written.

    Raises
    ------
    InputError
        If the rows cannot be read, the log was changed, or the state, the groups or a key is
        damaged or was lost.
    """
    columns, log = _columns(site), site_log(site, membership).path
    membership_steps(site, membership)
    if log.exists():
        verify(log)  # before it is opened, which would set half a line aside
    if log.exists() or log.with_suffix(".head").exists():
        _check_protection(site, site_auditor(site, membership, columns, str))
    if (state := _kept_state(site, membership)).is_there:
        state.check()
    site_secure(site, membership)


def site_budget(site: SiteFile, log: AuditLog | None = None) -> BudgetLedger | None:
    """Return the ledger of a site's privacy budget, None if it has no budget.

    Parameters
    ----------
    site : SiteFile
        The site.
    log : AuditLog, optional
        The log of what left it, with which the ledger is compared.
    """
    if site.privacy is None:
        return None

    def known() -> float:
        if log is None:
            return 0.0
        with log.locked() as head:
            return head.spent

    return BudgetLedger(SiteState(site.state_folder / STATE_FILE), site.privacy, known)


def site_secure(site: SiteFile, membership: Membership) -> SecureSite | None:
    """Return the site's part in secure sums; None if it does not use them.

    Raises
    ------
    InputError
        If its key, those of the others, or the record of earlier sums is missing.
    """
    if not membership.secure:
        if site.colluders is not None:
            raise refused("colluders-alone", where=f"{site.path}: [privacy], colluders: ")
        return None
    own, path = identity(site.state_folder), site.path.absolute().parent / PEERS
    peers = load_peers(path)
    check_own(path, site.name, peers, public_text(own.public_key()))
    permitted = site_permits(site, membership).sites if site.permits else None
    dropouts, alone = membership.allow_dropouts, membership.allow_alone
    terms = Terms(membership.min_sites, site.colluders, dropouts, alone)
    state = site_state(site, membership)
    earlier_cohorts(state)  # raises if the file cannot be read
    return SecureSite(site.name, own, peers, terms, state, permitted)


def membership_steps(site: SiteFile, membership: Membership) -> Steps:
    """Return the steps that a site knows, by name."""
    try:
        steps = steps_by_name(membership.steps)
    except WireError as error:
        raise InputError(f"{site.path}: [federation], steps: {error}") from error
    if unknown := {*site.policy.steps, *site.policy.denied} - steps.keys():
        known = ", ".join(sorted(steps))
        raise InputError(f"{site.path}: [policy], no step is called {min(unknown)!r}; {known}")
    return steps


def _columns(site: SiteFile) -> tuple[str, ...]:
    """Return the names of the site's columns."""
    site.own_table()
    columns = tuple(site.opened(raw=True).columns)
    if (name := first_not_plain(columns)) is not None:
        raise InputError(
            f"{site.path}: the name of column {printable(name)!r} is too long or holds control "
            "characters, as ends of lines are: rename it, or name the others as columns"
        )
    return columns


def _check_protection(site: SiteFile, auditor: SiteAuditor, *, least: int = 5) -> None:
    """Raise an error for too small limits, or if a part of the protection was lost.

    The parts are the groups, and the record of the privacy budget.

    ``least``: smallest cluster that a site with limits sends over a network.
    """
    if auditor.budget is not None:
        auditor.budget.check()
        return
    smallest = site.limits.min_cluster_size
    if site.protection == "limits" and smallest < least:
        raise InputError(
            f"{site.path}: [limits], min_cluster_size must be at least {least} over a network, not "
            f"{smallest}; or leave out protection, for groups of rows"
        )
    site.check_groups(auditor.columns)


def site_models(site: SiteFile, membership: Membership) -> ReceivedModels:
    """Return the models that a site received, with their outcomes."""
    results = site.path.absolute().parent / membership.results
    return ReceivedModels(SiteState(site.state_folder / STATE_FILE), results)


def site_log(site: SiteFile, membership: Membership) -> AuditLog:
    """Return the log of a site."""
    path = site.path.absolute().parent / membership.log
    return AuditLog(path, site.name, membership.log_megabytes << 20)


def site_questions(site: SiteFile, membership: Membership) -> QuestionFolder:
    """Return the store of the requests that the log of a site refers to."""
    path = site.path.absolute().parent / membership.questions
    return QuestionFolder(path, membership.questions_megabytes << 20)


def site_permits(site: SiteFile, membership: Membership) -> SitePermits:
    """Return the permits of a site."""
    folder, state = site.path.absolute().parent, site.state_folder
    granter, key = state / "coordinator.pub", state / "permit.key"
    who = membership.identity(folder)
    return SitePermits(folder / "permits", site.name, who, granter, key)


def site_auditor(
    site: SiteFile, membership: Membership, columns: Sequence[str], say: Callable[[str], object]
) -> SiteAuditor:
    """Return the auditor of a site after checking that its log is in order.

    Raises
    ------
    InputError
        If the log was changed or cannot be written, or permits are required and cannot be checked.
    """
    log, authority = site_log(site, membership), membership.identity(site.path.absolute().parent)
    permits = site_permits(site, membership) if site.permits else None
    coordinator = f"{membership.coordinator}, certificate {authority}"
    with log.locked():
        pass
    questions = site_questions(site, membership)
    return SiteAuditor(log, questions, coordinator, permits, columns, say, site_budget(site, log))


def folder_auditor(
    folder: Path, name: str, asked_by: str, columns: Sequence[str], say: Callable[[str], object]
) -> SiteAuditor:
    """Return the auditor of a site's log in a folder, without a site file and permits.

    Raises
    ------
    InputError
        If the log was changed or cannot be written.
    """
    usual = Membership(coordinator="")
    log = AuditLog(folder / usual.log, name, usual.log_megabytes << 20)
    with log.locked():
        pass
    questions = QuestionFolder(folder / usual.questions, usual.questions_megabytes << 20)
    return SiteAuditor(log, questions, asked_by, None, columns, say)

"""Engine that learns only sums over all sites: answers are masked, and the masks cancel.

See `_masks` for the protocol. If all sites must answer, a sum takes one exchange,
as without masks; if some may drop out (a quorum), a second exchange recovers the masks of those
that did, and removes the own masks of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NoReturn, TypeVar, Unpack

import numpy as np

from fedcluster.core import ALL_SITES, Answers, Floats, Introduction, SiteInfo, Summary, Task
from fedcluster.engines.reply_validation import NOTHING_STATED, ReplyBounds, check_answer, sized
from fedcluster.engines.wire import SIZES, WireError, read_site
from fedcluster.errors import SiteError
from fedcluster.options.refusals import refusal_in, refused
from fedcluster_app.secure._masks import SIZE, FixedPoint, Words, format_for, remaining
from fedcluster_app.secure.cohort import Cohort
from fedcluster_app.wire.remote import (
    SITE_SIZE,
    Question,
    RemoteEngine,
    Transport,
    by_reason,
    open_reply,
)

T = TypeVar("T")
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Masked:
    """Reply of a site for a sum: the shapes of its answers, and their masked words."""

    shapes: tuple[tuple[int, int], ...]
    words: Words


@dataclass(frozen=True, slots=True)
class _Offer:
    """Public key of a site for a sum, and the shares that it has sealed for other sites."""

    key: bytes
    parts: Mapping[str, str]


class SecureEngine(RemoteEngine):
    """Engine that asks sites over a network for masked answers and learns only their sums.

    Parameters
    ----------
    transport : Transport
        The carrier of the messages.
    sites : iterable of str
        The names of the sites.
    quorum : int, optional
        The threshold t of the secure sums: the number of sites that must remain. By default all.
    largest : int
        Size in bytes of the largest reply that is read.
    permit : str, optional
        The permit under which the sites are asked.
    bounds : ReplyBounds, optional
        The public ranges of columns; the number of rows of a site is unknown.

    Raises
    ------
    ValueError
        As in `RemoteEngine`.
    """

    def __init__(
        self,
        transport: Transport,
        sites: Iterable[str],
        *,
        quorum: int | None = None,
        largest: int = SIZES.largest,
        permit: str | None = None,
        bounds: ReplyBounds = NOTHING_STATED,
    ) -> None:
        terms: dict[str, Any] = {"largest": largest, "permit": permit}
        ranges = ReplyBounds(ranges=bounds.ranges)
        super().__init__(transport, sites, quorum=quorum, bounds=ranges, **terms)
        names = tuple(self._sites)
        self._cohort = Cohort(self._run, names, len(names) if quorum is None else quorum)
        self._left: tuple[str, ...] = ()
        self._total, self._public = SiteInfo(ALL_SITES), False
        self._sealers: Fields = {}
        self._offers: dict[str, _Offer] = {}
        self._before: dict[str, _Offer] = {}
        self._sums, self._content = 0, ""

    def introduce(self, **request: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites, with the total number of rows; see `Engine`.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave a valid answer.
        """
        more = self._introduction(request)
        if not self._left:
            self._begin(more)
        elif more or not self._plan_sent:
            self._tell(more)
        self._plan_sent = True
        if self._unknown:
            self.ask([])
        sites = self._sites.items()
        return tuple(replace(site, answered=name in self._left) for name, site in sites)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to all remaining sites; return their sums.

        Raises
        ------
        InputError
            If a sample of the sites is asked: differences between samples reveal single sites.
        SiteError
            If fewer sites than the quorum gave a valid answer.
        """
        if sites is not None and not set(self._left) <= set(sites):
            raise refused("sums-more", what="participation")
        if not self._left:
            self._begin({})
        unknown = self._unknown
        every = [SITE_SIZE, *tasks] if unknown else list(tasks)
        masked = self._masked(every)
        names = tuple(masked)
        missing = tuple(name for name in self._sites if name not in masked)
        totals = self._totals(every, masked)
        if unknown:
            self._learn(totals[0])
        for task, total in zip(every, totals, strict=True):
            self._check(task, total)
        totals = totals[len(every) - len(tasks) :]
        return [Answers({ALL_SITES: total}, missing, summed=names) for total in totals]

    def choose(self, columns: Sequence[str] | None, *, raw: bool = False) -> None:
        """Ask about these columns, in this order, from now on; see `RemoteEngine`."""
        super().choose(columns, raw=raw)
        self._public = False
        for name, site in self._sites.items():
            total = site.total_rows if site.n_columns is not None else None
            self._sites[name] = replace(site, total_rows=total)

    def choose_publicly(self, columns: Sequence[str]) -> None:
        """Ask about these columns, and not for the number of rows, from now on."""
        super().choose_publicly(columns)
        self._public = True
        self._total = SiteInfo(ALL_SITES, n_columns=len(columns))

    @property
    def _unknown(self) -> bool:
        """Whether the number of rows is still to be asked for."""
        untold = any(site.total_rows is None for site in self._sites.values())
        return untold and not self._public

    def _begin(self, request: Fields) -> None:
        """Let the sites introduce themselves and send keys; check that they can read each other."""
        self._left = tuple(self._sites)
        replies = self._tell(request, {"stage": "keys", **self._cohort.plain()})
        sites = self._left
        self._sealers = {name: part["sealer"] for name, part in replies.items()}
        shares = {"stage": "shares", "sites": sites, "sealers": self._sealers}
        replies = self._tell({}, shares)
        self._left = tuple(replies)
        if not self._cohort.is_whole:
            self._offers = {name: _offer(part, sites) for name, part in replies.items()}

    def _tell(self, request: Fields, secure: Fields | None = None) -> dict[str, Fields]:
        """Ask the remaining sites for metadata, keys or shares."""
        header = {**self._header(), **request, **({} if secure is None else {"sums": secure})}
        question = Question(header)

        def read(name: str, came: bytes) -> Fields:
            reply, _ = open_reply(came, question, name, self._largest)
            known = replace(self._sites[name], answered=True)
            described, labels = (key in header for key in ("described", "labels"))
            if secure is None or secure["stage"] == "keys":
                self._sites[name] = read_site(known, reply, described=described, labels=labels)
            return {} if secure is None else self._checked_part(secure, _secure(reply))

        return self._replies(dict.fromkeys(self._left, question), read)

    def _checked_part(self, request: Fields, part: Fields) -> Fields:
        """Return a site's message about keys or shares, after checking that it is complete."""
        with _whole():
            if request["stage"] == "keys":
                key, signature, earlier, sends = part["sealer"]
                named = [[str(name) for name in cohort] for cohort in earlier]
                return {"sealer": [str(key), str(signature), named, bool(sends)]}
            if not self._cohort.is_whole:
                _offer(part, request["sites"])
            return part

    def _replies(
        self, questions: Mapping[str, Question], read: Callable[[str, bytes], T]
    ) -> dict[str, T]:
        """Return the replies that could be read, of which there must be enough."""
        messages = {name: question.message for name, question in questions.items()}
        replies, reasons = self._exchange(messages, read)
        # when keys are exchanged, every site must answer
        least = self._cohort.threshold if self._sealers else len(questions)
        if len(replies) < least:
            self._too_few(len(replies), len(questions), least, reasons)
        return {name: replies[name] for name in self._sites if name in replies}

    def _too_few(self, n: int, n_asked: int, least: int, reasons: Mapping[str, str]) -> NoReturn:
        if refusals := list(filter(None, map(refusal_in, reasons.values()))):
            raise refusals[0]
        raise SiteError(
            f"round {self._exchanges}: {n} of {n_asked} sites answered, where {least} are needed "
            f"({by_reason(reasons)})"
        )

    def _masked(self, tasks: Sequence[Task]) -> dict[str, _Masked]:
        """Return the masked answers of the sites to tasks; sites without one have left the run."""
        sites, self._sums = self._left, self._sums + 1
        request: Fields = {"stage": "masked", "sum": self._sums, "sites": list(sites)}
        several, questions, offers = not self._cohort.is_whole, {}, {}
        for name in sites:
            theirs = {other: offer.parts[name] for other, offer in self._offers.items()}
            more = {"sealed": theirs} if several else {}
            questions[name] = Question({**self._header(), "sums": {**request, **more}}, tasks)
        if several:
            self._content = questions[sites[0]].content

        def read(name: str, came: bytes) -> _Masked:
            reply, arrays = open_reply(came, questions[name], name, self._largest)
            part = _secure(reply)
            known = self._sites[name]
            site = read_site(known, reply, described=False, labels=False)
            if [each.name for each in site.columns] == [each.name for each in known.columns]:
                # use the columns that the site has just described
                site = replace(site, columns=known.columns, labels=known.labels)
            self._sites[name] = site
            masked = _read_masked(tasks, part, arrays)
            if several:
                offers[name] = _offer(part, sites)
            return masked

        masked = self._replies(questions, read)
        self._left, self._before = tuple(masked), self._offers
        self._offers = offers
        _check_alike(masked)
        return masked

    def _totals(self, tasks: Sequence[Task], masked: Mapping[str, _Masked]) -> list[Summary]:
        """Return the sums of answers, with the masks removed."""
        shapes = next(iter(masked.values())).shapes
        words: Words = reduce(add, (each.words for each in masked.values()))
        if not self._cohort.is_whole:
            words = words - self._remaining(tuple(masked), len(words))
        totals = []
        for task, (lines, width) in zip(tasks, shapes, strict=True):
            how = format_for(task.state)
            n = lines * (width + 1) * how.n_words
            [size] = SIZE.decode(words[n : n + SIZE.n_words][None])
            if not 0 <= size < how.limit:
                raise SiteError(
                    f"round {self._exchanges}: sums of {type(task.step).__name__} have no room in "
                    f"fixed point, {size:.1g} where {how.limit:.1g} is the limit: scale the columns"
                )
            totals.append(_summary(how, words[:n], lines, width))
            words = words[n + SIZE.n_words :]
        return totals

    def _remaining(self, survivors: tuple[str, ...], n_words: int) -> Words:
        """Return the masks that do not cancel, from shares that the sites send."""
        request = {"stage": "unmask", "sum": self._sums, "survivors": list(survivors)}
        question = Question({**self._header(), "sums": request})

        def read(name: str, came: bytes) -> dict[str, bytes]:
            part = _secure(open_reply(came, question, name, self._largest)[0])
            with _whole():
                return {of: bytes.fromhex(part["shares"][of]) for of in self._before}

        shares = self._replies(dict.fromkeys(survivors, question), read)
        keys = {name: offer.key for name, offer in self._before.items()}
        try:
            context = f"{self._run} {self._sums} {self._content}"
            return remaining(self._cohort, context, keys, survivors, shares, n_words)
        except ValueError as error:
            raise SiteError(
                f"round {self._exchanges}: the masks cannot be taken off, since a site told a "
                f"wrong share: {error}"
            ) from error

    def _learn(self, total: Summary) -> None:
        """Store the total numbers of rows and columns of all sites."""
        try:
            whole = sized(SiteInfo(ALL_SITES), [total], self._bounds)
        except WireError as error:
            raise self._disbelieved(SITE_SIZE, error) from error
        for name, site in self._sites.items():
            if name in self._left and len(site.columns) not in (0, whole.n_columns):
                raise SiteError(
                    f"{name} names {len(site.columns)} columns, the rows have {whole.n_columns}"
                )
            n_columns = whole.n_columns
            self._sites[name] = replace(site, total_rows=whole.n_rows, n_columns=n_columns)
        self._total = replace(whole, columns=self._sites[self._left[0]].columns)

    def _check(self, task: Task, total: Summary) -> None:
        """Check a total in the same way as one site's answer."""
        try:
            check_answer(task, total, self._total, self._bounds, self._chosen.get("columns"))
        except WireError as error:
            raise self._disbelieved(task, error) from error

    def _disbelieved(self, task: Task, error: WireError) -> SiteError:
        """Return the error about an impossible total, which cannot be attributed to a site."""
        return SiteError(
            f"round {self._exchanges}, {type(task.step).__name__}: the sum of all sites is not "
            f"believed: {error}; which site's answer is wrong cannot be told under masks"
        )


@contextmanager
def _whole() -> Iterator[None]:
    """Raise an error for a reply in which something is missing or wrong."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise WireError("its reply about secure sums is not whole") from error


def _secure(reply: Fields) -> Fields:
    """Return the part of a reply about secure sums."""
    part = reply.get("sums")
    if not isinstance(part, Mapping):
        raise WireError("it answers without secure sums: write secure = true in its site.toml")
    return part


def _offer(part: Fields, sites: Sequence[str]) -> _Offer:
    """Read the public keys and sealed shares that a site offers to others for the next sum."""
    with _whole():
        offer = part["next"]
        parts = {name: str(offer["sealed"][name]) for name in sites}
        return _Offer(bytes.fromhex(offer["key"]), parts)


def _read_masked(tasks: Sequence[Task], part: Fields, arrays: Mapping[str, Floats]) -> _Masked:
    """Return the masked answers in a reply."""
    with _whole():
        shapes = tuple((lines, width) for lines, width in part["shapes"])
        formats = [format_for(task.state).n_words for task in tasks]
        sizes = [n * (p + 1) * w + SIZE.n_words for (n, p), w in zip(shapes, formats, strict=True)]
        words = arrays["masked"].view(np.uint64)
        if words.shape != (sum(sizes),) or not all(n >= 0 <= p for n, p in shapes):
            raise ValueError
    return _Masked(shapes, words)


def _check_alike(masked: Mapping[str, _Masked]) -> None:
    """Check that all sites' answers have the same shapes, without which a sum is meaningless."""
    (first, one), *others = masked.items()
    for name, each in others:
        if each.shapes != one.shapes:
            raise SiteError(
                f"{first} and {name} answered with {_plain(one.shapes)} and {_plain(each.shapes)} "
                "sums, which cannot be added: their rows have other columns"
            )


def _plain(shapes: Sequence[tuple[int, int]]) -> str:
    return " and ".join(f"{lines} x {width}" for lines, width in shapes)


def _summary(how: FixedPoint, words: Words, lines: int, width: int) -> Summary:
    """Return the total from its words; a line of weight 0 carries no information."""
    values = how.decode(words.reshape(-1, how.n_words))
    sums, weights = values[: lines * width].reshape(lines, width), values[lines * width :]
    return Summary(np.where(weights[:, None] == 0, 0.0, sums), weights)

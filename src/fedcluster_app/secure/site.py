"""A site's part in secure sums: keys, masked answers, and shares for dropped-out sites.

The coordinator carries everything and is not trusted. So a site accepts keys only if they are
signed by a site that it knows; it masks one answer with the secrets of one sum, by masks that
cancel only if all sites were asked the same; it treats each other site either as dropped out or as
present, once; and sites that have left a run stay out.

Totals over different cohorts could be subtracted. So a site takes part only in sums over all sites
that it knows, or that a permit names, and remembers these cohorts (`add_cohort`). Each site signs
its earlier cohorts with its key, and two rules hold, whichever other sites take part:

1. *Nobody is left out.* A site answers in no cohort without a site that it has answered with.
2. *Nobody stands alone.* A site answers only if enough sites, with itself, have been in exactly the
   same cohorts before: all totals together then hold these sites together or not at all.

A site with too few rows adds nothing to a total, and hides nobody. Each site signs whether its
rules let any sum over its rows leave: only those count in a cohort, and only they are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcluster.core import Floats, PlannedStep, Summary, Task
from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError
from fedcluster.options.refusals import refused
from fedcluster_app.secure._masks import (
    SECRET,
    SIZE,
    Encryptor,
    SumSecrets,
    Words,
    agreements,
    format_for,
    own_mask,
    pair_mask,
    shares,
    size_of,
)
from fedcluster_app.secure.cohort import (
    MIN_SITES,
    Cohort,
    Names,
    Terms,
    add_cohort,
    are_names,
    earlier_cohorts,
    fewest,
)
from fedcluster_app.trust.site_state import SiteState

Fields = dict[str, Any]
Keys = dict[str, bytes]


@dataclass(slots=True)
class _Run:
    """State of a site for one run.

    Parameters
    ----------
    cohort : Cohort
        The participating sites.
    permit : str
        The permit under which the run began, empty if none.
    earlier : tuple of tuple of str
        The other cohorts in which the site had answered when the run began.
    sealer : Encryptor
        Its encryption of messages to other sites.
    sites : tuple of str
        The remaining sites.
    sealers : dict of str to bytes
        The others' public keys for encryption.
    pairs : dict of str to bytes
        The secrets that it shares with each of them, if all must answer.
    secrets : dict of int to SumSecrets
        Its secrets for future sums.
    offers : dict of int to dict
        The shares of these that it offered to others.
    number : int
        The number of the last sum that it answered, from 1.
    sends : bool
        Whether the site has rows to tell of, as it signed.
    without : tuple of str
        The sites of the cohort that signed that they have none.
    received : dict of str to bytes
        The shares of that sum's secrets, by the owner of the secrets.
    survivors : tuple of str
        The sites reported to have answered.
    """

    cohort: Cohort
    sites: tuple[str, ...]
    permit: str = ""
    earlier: tuple[Names, ...] = ()
    sends: bool = True
    without: tuple[str, ...] = ()
    sealer: Encryptor = field(default_factory=Encryptor)
    sealers: Keys = field(default_factory=dict)
    pairs: Keys = field(default_factory=dict)
    secrets: dict[int, SumSecrets] = field(default_factory=dict)
    offers: dict[int, Fields] = field(default_factory=dict)
    number: int = 0
    received: Keys = field(default_factory=dict)
    survivors: tuple[str, ...] = ()

    @property
    def senders(self) -> Names:
        """The sites of the cohort that have rows to tell of."""
        return tuple(name for name in self.cohort.sites if name not in self.without)


class SecureSite:
    """A site that only sends masked answers.

    Parameters
    ----------
    name : str
        Its name.
    identity : Ed25519PrivateKey
        The key that identifies it to the others.
    peers : mapping of str to Ed25519PublicKey
        The keys that identify the others, and itself.
    terms : Terms
        The terms of its owner.
    state : SiteState, optional
        The record of its cohorts; without one, they are remembered as long as the program runs.
    permitted : callable taking a str, optional
        Returns the sites of a permit. With a permit, a sum is over its sites; otherwise over all
        that the site knows.
    """

    runs_kept = 8  # number of most recent runs whose secrets are kept

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        peers: Mapping[str, Ed25519PublicKey],
        terms: Terms | None = None,
        state: SiteState | None = None,
        permitted: Callable[[str], Collection[str]] | None = None,
    ) -> None:
        self.name, self._identity, self._peers = name, identity, dict(peers)
        self._terms, self._permitted = terms or Terms(), permitted
        self._min_sites = max(self._terms.min_sites, MIN_SITES)
        self._state = state or SiteState()
        self._runs: dict[str, _Run] = {}

    @classmethod
    def strangers(cls, names: Collection[str]) -> dict[str, Self]:
        """Return sites with new keys that know each other, and remember while the program runs.

        Examples
        --------
        >>> sorted(SecureSite.strangers(["east", "north", "west"]))
        ['east', 'north', 'west']
        """
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        peers = {name: key.public_key() for name, key in keys.items()}
        return {name: cls(name, key, peers) for name, key in keys.items()}

    def check(
        self, request: Any, tasks: Sequence[Task], planned: Sequence[PlannedStep] = ()
    ) -> Fields | None:
        """Return a request's terms for secure sums, None if it concerns only this site.

        Raises
        ------
        WireError
            If tasks are not asked under secure sums, or a present or planned step is not additive.
        """
        if request is None and not tasks:
            return None
        if not isinstance(request, dict) or (bool(tasks) != (request.get("stage") == "masked")):
            raise WireError("this site answers with secure sums only: begin the run with --secure")
        for step in (*planned, *(task.step for task in tasks)):
            if not (isinstance(step, type) or step.server_additive):
                raise WireError(str(refused("sums-more", what=type(step).__name__)))
        every = (task.preprocessor for task in tasks)
        if any(how is not None and how.offset_rows < inf for how in every):
            # an offset that a single row of this site decides could move all its rows to a cluster
            # of their own
            raise WireError(str(refused("adjust-site", what="secure sums")))
        return request

    def noise_shares(self, header: Mapping[str, Any], request: Fields | None) -> int:
        """Return the number of sites that share the noise on a sum, 1 if this site adds all of it.

        At least this many sites are in the total and do not collude with the coordinator: together
        they add the full noise, whoever else takes part or drops out.

        Raises
        ------
        WireError
            If the sum is not allowed, or is over too few sites.
        """
        colluders = self._terms.colluders
        if colluders is None or request is None or request.get("stage") != "masked":
            return 1
        with _refusing():
            known, n = self._begun(header, request), len(request["sites"])
        t, n_all = known.cohort.threshold, len(known.cohort.sites)
        left = fewest(n, t, n_all, colluders) if 2 * t > n_all + colluders else 0
        if left < 1:
            raise WireError(
                f"secure sums: {colluders} sites may work with the coordinator, and a sum "
                "could be over no others: ask more sites"
            )
        return left

    def reply(self, header: Mapping[str, Any], request: Fields, *, sends: bool = True) -> Fields:
        """Return the answer to a request without tasks.

        With ``sends``, the rules of the site let sums over its rows leave.

        Raises
        ------
        WireError
            If the request breaks a rule.
        """
        stages = {"shares": self._shares, "unmask": self._unmask}
        with _refusing():
            if request["stage"] == "keys":
                return self._keys(header, request, sends=sends)
            return stages[request["stage"]](header, request)

    def masked(
        self,
        header: Mapping[str, Any],
        request: Fields,
        content: str,
        tasks: Sequence[Task],
        answers: Sequence[Summary],
        *,
        sends: bool = True,
    ) -> tuple[Words, Fields]:
        """Return the answers to tasks as masked words, and the fields that accompany them.

        The masks are those of the question's ``content``, see `content_digest`: they cancel only
        if all sites were asked the same. With ``sends``, the rules of the site let sums over its
        rows leave, which must be what it signed.

        Raises
        ------
        WireError
            If the question breaks a rule.
        """
        with _refusing():
            known, sites = self._begun(header, request), tuple(request["sites"])
            if not known.sealers:
                raise ValueError("the keys of the others have not been given here")
            if sends is not known.sends:
                raise ValueError("this site has other rows than when the run began: begin anew")
            words = encoded(tasks, answers)
            received = self._opened(known, request, sites)
            pairs = self._pairs(known, request, received)
            self._remember(known)
            masks = self._masks(known, f"{request['sum']} {content}", pairs, len(words))
        known.number, known.sites = request["sum"], sites
        known.received, known.survivors = received, ()
        shapes = [answer.sums.shape for answer in answers]
        return words + masks, {"shapes": shapes, **self._offer(known, known.number + 1)}

    def _pairs(self, known: _Run, request: Fields, received: Keys) -> Keys:
        """Return the secrets that the site shares with each of the others for this sum."""
        if known.cohort.is_whole:
            return known.pairs
        publics = {name: part[2 * SECRET :] for name, part in received.items()}
        secrets = known.secrets[request["sum"]]
        return agreements(self.name, secrets.private, publics)

    def _keys(self, header: Mapping[str, Any], request: Fields, *, sends: bool) -> Fields:
        """Begin a run: return the site's public key for encryption, and its earlier cohorts."""
        cohort, permit = Cohort.from_plain(header.get("run"), request), _permit(header)
        if unknown := sorted(set(cohort.sites) - self._peers.keys()):
            raise ValueError(f"{unknown[0]} is not among the sites that are known here by a key")
        if self.name not in cohort.sites:
            raise ValueError(f"{self.name} is not among the sites that take part")
        cohort.check(cohort.sites, self._min_sites)
        if cohort.run not in self._runs:
            self._check_cohort(cohort, permit)
            earlier = earlier_cohorts(self._state)
            self._check_left_out(cohort.sites, earlier)
            others = tuple(sorted(earlier - {cohort.sites}))
            self._runs[cohort.run] = _Run(cohort, cohort.sites, permit, others, sends)
        known = self._runs[cohort.run]
        if (known.cohort, known.permit) != (cohort, permit):
            raise ValueError("the run began with other sites, or another threshold or permit")
        while len(self._runs) > self.runs_kept:
            del self._runs[next(iter(self._runs))]
        key = known.sealer.public.hex()
        signed = cohort.signed(self.name, key, known.earlier, sends=known.sends)
        before = [list(each) for each in known.earlier]
        return {"sealer": [key, self._identity.sign(signed).hex(), before, known.sends]}

    def _check_cohort(self, cohort: Cohort, permit: str) -> None:
        """Raise an error for a cohort that is not that of the permit, or of all known sites."""
        known, where = set(self._peers), "peers.toml"
        if self._permitted is not None:
            known, where = set(self._permitted(permit)), f"permit {permit!r}"
        if other := sorted(known ^ set(cohort.sites)):
            what = "is missing" if other[0] in known else "is not one of them"
            raise ValueError(f"they are over all sites of {where} here, and {other[0]} {what}")
        if not (cohort.is_whole or self._terms.allow_dropouts):
            raise ValueError(
                "no site may drop out: run without --quorum, or let the owner of each site write "
                "allow_dropouts = true under [federation] of site.toml"
            )

    def _check_left_out(
        self, sites: Names, earlier: Collection[Names], without: Collection[str] = ()
    ) -> None:
        """Raise an error, by the first rule, for a cohort without a site from an earlier cohort."""
        if sites in earlier:
            return
        before = {name for cohort in earlier for name in cohort}
        if missing := sorted(before - set(sites) - set(self._terms.allow_alone)):
            name = missing[0]
            how = f"wait until {name} has enough rows" if name in without else f"ask {name} too"
            raise ValueError(
                f"{name} took part before, and a sum without that site would reveal its own "
                f"sums: {how}, or, if "
                f"its owner agrees, each other site writes allow_alone = [{name!r}]"
            )

    def _shares(self, header: Mapping[str, Any], request: Fields) -> Fields:
        """Accept the others' keys if no site stands alone; return shares for the first sum."""
        known, sites = self._runs[header["run"]], tuple(request["sites"])
        if not known.sealers:
            known.cohort.check(sites, self._min_sites)
            sealers, pasts = self._sealers(known, request["sealers"])
            known.without = _empty(request["sealers"])
            known.cohort.check(sites, self._min_sites, known.without)
            self._check_left_out(known.senders, earlier_cohorts(self._state), known.without)
            self._check_alone(known, pasts)
            known.pairs = known.sealer.agreements(self.name, sealers)
            known.sealers, known.sites = sealers, sites
        return self._offer(known, 1)

    def _check_alone(self, known: _Run, pasts: Collection[Names]) -> None:
        """Raise an error, by the second rule, if too few sites have this site's earlier cohorts."""
        if self.name in self._terms.allow_alone or not known.sends:
            return
        own = {past for past in pasts if self.name in past}
        n = sum({past for past in pasts if name in past} == own for name in known.senders)
        if n < self._min_sites:
            raise ValueError(
                f"of these sites, {n} (with itself) took part in the same sums as {self.name} so "
                f"far, where {self._min_sites} must: let so many join at once, or its owner write "
                f"allow_alone = [{self.name!r}]"
            )

    def _remember(self, known: _Run) -> None:
        """Record the cohort before the first sum of a run leaves; check that none was added.

        The other sites have checked the earlier cohorts that this site signed.
        """
        sites = known.senders

        def check(earlier: Collection[Names]) -> None:
            if set(earlier) - {sites, known.cohort.sites} != set(known.earlier) - {sites}:
                raise ValueError("this site has since answered over other sites: begin anew")
            self._check_left_out(sites, earlier, known.without)

        if not known.number:
            add_cohort(self._state, sites, check)

    def _unmask(self, header: Mapping[str, Any], request: Fields) -> Fields:
        """Return shares of the own masks of sites that answered, and of the keys of the others.

        This is done only once for each sum.
        """
        known, survivors = self._runs[header["run"]], tuple(request["survivors"])
        if request["sum"] != known.number or known.cohort.is_whole:
            raise ValueError("this sum has nothing to recover")
        if known.survivors not in ((), survivors):
            raise ValueError("other sites were said to have answered: a site is in or out")
        if not set(survivors) <= set(known.sites) or self.name not in survivors:
            raise ValueError(
                "the sites that are said to have answered are not the sites that were asked"
            )
        known.cohort.check(survivors, 1)
        known.survivors = survivors
        disclosed = {
            name: share[SECRET : 2 * SECRET] if name in survivors else share[:SECRET]
            for name, share in known.received.items()
        }
        return {"shares": {name: share.hex() for name, share in disclosed.items()}}

    def _begun(self, header: Mapping[str, Any], request: Fields) -> _Run:
        """Return the run of a requested sum, after checking its sites and its number."""
        run = header.get("run")
        if run not in self._runs:
            raise ValueError("this site has no keys of the run, as it was started anew: begin anew")
        known, sites = self._runs[run], tuple(request["sites"])
        if known.permit != _permit(header):
            raise ValueError("the run began under another permit")
        if type(request["sum"]) is not int or request["sum"] != known.number + 1:
            raise ValueError(f"sum {request['sum']!r} is asked for after sum {known.number}")
        if not set(sites) <= set(known.sites) or self.name not in sites:
            raise ValueError("a site that has left the run, or was never in it, is to take part")
        known.cohort.check(sites, self._min_sites, known.without)
        return known

    def _sealers(self, known: _Run, keys: Fields) -> tuple[Keys, set[Names]]:
        """Return all sites' public keys and all their earlier cohorts, checking signatures."""
        checked: Keys = {}
        pasts: set[Names] = set()
        for name in known.cohort.sites:
            if name not in keys:
                raise ValueError(f"{name} has given no key: a run begins with all of its sites")
            key, signature, earlier, sends = keys[name]
            checked[name] = bytes.fromhex(key)
            signed = known.cohort.signed(name, checked[name].hex(), earlier, sends=sends)
            try:
                self._peers[name].verify(bytes.fromhex(signature), signed)
            except InvalidSignature as error:
                raise ValueError(
                    f"the key of {name} is not signed by the {name} that is known here"
                ) from error
            if not all(map(are_names, earlier)):
                raise ValueError(f"what {name} says of earlier sums are not names of sites")
            pasts |= set(map(tuple, earlier))
        if checked[self.name] != known.sealer.public:
            raise ValueError("the key named for this site is not the key that it sent")
        return checked, pasts

    def _offer(self, known: _Run, number: int) -> Fields:
        """Return the sealed shares of the secrets for a sum, if sites may drop out."""
        cohort = known.cohort
        if cohort.is_whole:
            return {}
        if number not in known.offers:
            secrets = SumSecrets()
            known.secrets, public = {number: secrets}, secrets.public
            parts = shares(secrets, cohort.threshold, len(cohort.sites))
            sealed = {
                name: known.sealer.seal(
                    part + public, known.sealers[name], (cohort.run, number, self.name, name)
                ).hex()
                for name, part in zip(cohort.sites, parts, strict=True)
                if name in known.sites
            }
            known.offers = {number: {"key": public.hex(), "sealed": sealed}}
        return {"next": known.offers[number]}

    def _opened(self, known: _Run, request: Fields, sites: Sequence[str]) -> Keys:
        """Return what other sites have sealed for this one: shares, and their keys for the sum."""
        if known.cohort.is_whole:
            return {}
        opened = {}
        for name in sites:
            context = known.cohort.run, request["sum"], name, self.name
            sealed = bytes.fromhex(request["sealed"][name])
            opened[name] = known.sealer.open(sealed, known.sealers[name], context)
        return opened

    def _masks(self, known: _Run, what: str, pairs: Keys, n_words: int) -> Words:
        """Return the masks of a sum, whose secrets are deleted."""
        masks = pair_mask(self.name, pairs, f"{known.cohort.run} {what}", n_words)
        if not known.cohort.is_whole:
            masks += own_mask(known.secrets.pop(known.number + 1).own_seed, n_words)
        return masks


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a question that is incomplete, or breaks a rule."""
    try:
        yield
    except InputError:  # do not reveal details of a site's file
        raise
    except (LookupError, TypeError, AttributeError) as error:
        raise WireError("the question about secure sums is not whole") from error
    except ValueError as error:
        raise WireError(f"secure sums: {error}") from error


def _empty(sealers: Fields) -> tuple[str, ...]:
    """Return the sites that signed that they have no rows to tell of."""
    return tuple(sorted(name for name, (*_, sends) in sealers.items() if sends is not True))


def _permit(header: Mapping[str, Any]) -> str:
    """Return the permit that a question names, empty if none."""
    return str(header.get("permit", ""))


def encoded(tasks: Sequence[Task], answers: Sequence[Summary]) -> Words:
    """Return answers to tasks as concatenated words, each answer followed by its size."""
    words = []
    for task, answer in zip(tasks, answers, strict=True):
        numbers = np.concatenate([answer.sums.ravel(), answer.weights])
        words += [format_for(task.state).encode(numbers).ravel()]
        words += [SIZE.encode(_size(task, numbers)).ravel()]
    return np.concatenate(words)


def _size(task: Task, numbers: Floats) -> Floats:
    """Return the size of an answer, 0 for one with noise; see `size_of`.

    An answer with noise always fits, by the bounds of rows and of the noise. If noise is shared, a
    site adds only a part of it, and the exact sum of the sizes would reveal too much.
    """
    return np.zeros(1) if task.noise is not None else size_of(numbers)

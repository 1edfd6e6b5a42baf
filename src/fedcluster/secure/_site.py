"""Site's part in secure sums: it gives keys, masks its answers, and tells shares of dropped ones.

The coordinator carries everything and is not trusted. So a site takes keys only with the signature
of a site that it knows; it masks one answer with the secrets of one sum; it says of each other site
either that it has dropped out or that it has not, once; and sites that have left a run stay out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcluster.core import Floats, Summary, Task
from fedcluster.engines._wire import WireError
from fedcluster.secure._cohort import MIN_SITES, Cohort, fewest
from fedcluster.secure._fixed_point import SIZE, Words, format_for, size_of
from fedcluster.secure._masks import (
    SECRET,
    Sealer,
    SumSecrets,
    agreements,
    own_mask,
    pair_mask,
    shares,
)

RUNS = 8
"""Runs whose secrets are held, the last ones."""

Said = dict[str, Any]
Keys = dict[str, bytes]


@dataclass(slots=True)
class _Run:
    """What a site holds of one run.

    Parameters
    ----------
    cohort : Cohort
        Who takes part.
    sealer : Sealer
        Its key for what others are to read.
    sites : tuple of str
        Those that are left.
    sealers : dict of str to bytes
        The others' public keys for that.
    pairs : dict of str to bytes
        What it shares with each of them where all must answer.
    secrets : dict of int to SumSecrets
        Its secrets for a sum to come.
    offers : dict of int to dict
        What it told the others of them.
    number : int
        The last sum that it answered, from 1.
    received : dict of str to bytes
        The shares of that sum's secrets, by the site whose secrets they are.
    survivors : tuple of str
        Those that were said to have answered.
    """

    cohort: Cohort
    sites: tuple[str, ...]
    sealer: Sealer = field(default_factory=Sealer)
    sealers: Keys = field(default_factory=dict)
    pairs: Keys = field(default_factory=dict)
    secrets: dict[int, SumSecrets] = field(default_factory=dict)
    offers: dict[int, Said] = field(default_factory=dict)
    number: int = 0
    received: Keys = field(default_factory=dict)
    survivors: tuple[str, ...] = ()


class SecureSite:
    """Site that answers with masked sums only.

    Parameters
    ----------
    name : str
        Its name.
    identity : Ed25519PrivateKey
        The key by which the others know it.
    peers : mapping of str to Ed25519PublicKey
        The keys by which it knows the others, and itself.
    min_sites : int, default=3
        The fewest sites whose total may be found with its help.
    colluders : int, optional
        How many other sites may work with the coordinator. With it, the noise of answers is shared
        by the others; without it, the site adds all of it itself.
    """

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        peers: Mapping[str, Ed25519PublicKey],
        min_sites: int = MIN_SITES,
        colluders: int | None = None,
    ) -> None:
        self.name, self._identity, self._peers = name, identity, dict(peers)
        self._min_sites, self._colluders = max(min_sites, MIN_SITES), colluders
        self._runs: dict[str, _Run] = {}

    def check(self, asked: Any, tasks: Sequence[Task]) -> Said | None:
        """Return what is asked of secure sums, None where only the site itself is asked about.

        Raises
        ------
        WireError
            If tasks are asked otherwise, or about what does not add up.
        """
        if asked is None and not tasks:
            return None
        if not isinstance(asked, dict) or (bool(tasks) != (asked.get("stage") == "masked")):
            raise WireError("this site answers with secure sums only: begin the run with --secure")
        for task in tasks:
            if not task.step.server_additive:
                raise WireError(
                    f"{type(task.step).__name__}: the answers of sites do not add up, and this "
                    "site tells sums of all sites only"
                )
        return asked

    def noise_shares(self, run: Any, asked: Said | None) -> int:
        """Return by how many sites the noise on a sum is shared, 1 where this one adds all of it.

        So many sites are surely in the total, and do not work with the coordinator: the noise that
        these add together is all of it, whoever else takes part or drops out.

        Raises
        ------
        WireError
            If the sum is not allowed, or of too few sites.
        """
        if self._colluders is None or asked is None or asked.get("stage") != "masked":
            return 1
        with _refusing():
            known, n = self._begun(run, asked), len(asked["sites"])
        t, n_all = known.cohort.threshold, len(known.cohort.sites)
        left = fewest(n, t, n_all, self._colluders) if 2 * t > n_all + self._colluders else 0
        if left < 1:
            raise WireError(
                f"secure sums: {self._colluders} sites may work with the coordinator, and a sum "
                "could be over no others: ask more sites"
            )
        return left

    def said(self, run: Any, asked: Said) -> Said:
        """Return the answer to a question that has no tasks.

        Raises
        ------
        WireError
            If it breaks a rule.
        """
        stages = {"keys": self._keys, "shares": self._shares, "unmask": self._unmask}
        with _refusing():
            return stages[asked["stage"]](run, asked)

    def masked(
        self, run: Any, asked: Said, tasks: Sequence[Task], answers: Sequence[Summary]
    ) -> tuple[Words, Said]:
        """Return the answers to tasks as masked words, and what goes with them.

        Raises
        ------
        WireError
            If the question breaks a rule.
        """
        with _refusing():
            known, sites = self._begun(run, asked), tuple(asked["sites"])
            words = encoded(tasks, answers)
            received = self._opened(known, asked, sites)
            pairs = self._pairs(known, asked, received)
            masks = self._masks(known, asked["sum"], pairs, len(words))
        known.number, known.sites = asked["sum"], sites
        known.received, known.survivors = received, ()
        shapes = [answer.sums.shape for answer in answers]
        return words + masks, {"shapes": shapes, **self._offer(known, known.number + 1)}

    def _pairs(self, known: _Run, asked: Said, received: Keys) -> Keys:
        """Return the secrets that the site shares with each other one for this sum."""
        if known.cohort.is_whole:
            known.pairs = known.pairs or known.sealer.agreements(
                self.name, self._sealers(known, asked["sealers"], known.cohort.sites)
            )
            return known.pairs
        publics = {name: part[2 * SECRET :] for name, part in received.items()}
        secrets = known.secrets[asked["sum"]]
        return agreements(self.name, secrets.private, publics)

    def _keys(self, run: Any, asked: Said) -> Said:
        """Begin a run: give the key by which others write to this site."""
        cohort = Cohort.from_plain(run, asked)
        if unknown := sorted(set(cohort.sites) - self._peers.keys()):
            raise ValueError(f"{unknown[0]} is not among the sites that are known here by a key")
        if self.name not in cohort.sites:
            raise ValueError(f"{self.name} is not among the sites that take part")
        cohort.check(cohort.sites, self._min_sites)
        known = self._runs.setdefault(cohort.run, _Run(cohort, cohort.sites))
        if known.cohort != cohort:
            raise ValueError("the run began with other sites, or another threshold")
        while len(self._runs) > RUNS:
            del self._runs[next(iter(self._runs))]
        key = known.sealer.public.hex()
        signature = self._identity.sign(cohort.signed(self.name, key))
        return {"sealer": [key, signature.hex()]}

    def _shares(self, run: Any, asked: Said) -> Said:
        """Give shares of the secrets for the first sum."""
        known, sites = self._runs[run], tuple(asked["sites"])
        if not known.sealers:
            known.cohort.check(sites, self._min_sites)
            known.sealers = self._sealers(known, asked["sealers"], sites)
            known.sites = sites
        return self._offer(known, 1)

    def _unmask(self, run: Any, asked: Said) -> Said:
        """Tell shares: of the own masks of sites that answered, of the keys of those that did not.

        Once told, nothing else is told of this sum.
        """
        known, survivors = self._runs[run], tuple(asked["survivors"])
        if asked["sum"] != known.number or known.cohort.is_whole:
            raise ValueError("this sum has nothing to recover")
        if known.survivors not in ((), survivors):
            raise ValueError("other sites were said to have answered: a site is in or out")
        if not set(survivors) <= set(known.sites) or self.name not in survivors:
            raise ValueError("those that are said to have answered are not those that were asked")
        known.cohort.check(survivors, 1)
        known.survivors = survivors
        told = {
            name: share[SECRET : 2 * SECRET] if name in survivors else share[:SECRET]
            for name, share in known.received.items()
        }
        return {"shares": {name: share.hex() for name, share in told.items()}}

    def _begun(self, run: Any, asked: Said) -> _Run:
        """Return the run of a sum that is asked for, if its sites and its number are allowed."""
        if run not in self._runs:
            raise ValueError("this site has no keys of the run, as it was started anew: begin anew")
        known, sites = self._runs[run], tuple(asked["sites"])
        if type(asked["sum"]) is not int or asked["sum"] != known.number + 1:
            raise ValueError(f"sum {asked['sum']!r} is asked for after sum {known.number}")
        if not set(sites) <= set(known.sites) or self.name not in sites:
            raise ValueError("a site that has left the run, or was never in it, is to take part")
        known.cohort.check(sites, self._min_sites)
        return known

    def _sealers(self, known: _Run, keys: Said, sites: Sequence[str]) -> Keys:
        """Return the public keys of all sites, each signed by the site for this run."""
        checked = {}
        for name in sites:
            key, signature = map(bytes.fromhex, keys[name])
            try:
                self._peers[name].verify(signature, known.cohort.signed(name, key.hex()))
            except InvalidSignature as error:
                raise ValueError(
                    f"the key of {name} is not signed by the {name} that is known here"
                ) from error
            checked[name] = key
        if checked[self.name] != known.sealer.public:
            raise ValueError("the key of this site is not the one that it gave")
        return checked

    def _offer(self, known: _Run, number: int) -> Said:
        """Return the sealed shares of the secrets for a sum, where sites may drop out."""
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

    def _opened(self, known: _Run, asked: Said, sites: Sequence[str]) -> Keys:
        """Return what other sites have sealed for this one: shares, and their keys for the sum."""
        if known.cohort.is_whole:
            return {}
        opened = {}
        for name in sites:
            context = known.cohort.run, asked["sum"], name, self.name
            sealed = bytes.fromhex(asked["sealed"][name])
            opened[name] = known.sealer.open(sealed, known.sealers[name], context)
        return opened

    def _masks(self, known: _Run, number: int, pairs: Keys, n_words: int) -> Words:
        """Return the masks of a sum, whose secrets then are used up."""
        masks = pair_mask(self.name, pairs, f"{known.cohort.run} {number}", n_words)
        if not known.cohort.is_whole:
            masks += own_mask(known.secrets.pop(number).own_seed, n_words)
        return masks


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a question that lacks something, or breaks a rule."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise WireError("the question about secure sums is not whole") from error
    except ValueError as error:
        raise WireError(f"secure sums: {error}") from error


def encoded(tasks: Sequence[Task], answers: Sequence[Summary]) -> Words:
    """Return answers to tasks as words, one after the other, each followed by its size."""
    words = []
    for task, answer in zip(tasks, answers, strict=True):
        numbers = np.concatenate([answer.sums.ravel(), answer.weights])
        words += [format_for(task.state).encode(numbers).ravel()]
        words += [SIZE.encode(_size(task, numbers)).ravel()]
    return np.concatenate(words)


def _size(task: Task, numbers: Floats) -> Floats:
    """Return the size of an answer, 0 of one with noise: see `size_of`.

    An answer with noise always has room, by the bounds of rows and of the noise. The noise that a
    site shares with others is not all of it, and the sum of the sites' sizes would see that.
    """
    return np.zeros(1) if task.noise is not None else size_of(numbers)

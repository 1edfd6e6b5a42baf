"""Masks of secure sums, which hide a site's numbers and cancel in the sum over all sites.

K. Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017:

    y_u = x_u + p_u + sum_{v > u} p_uv - sum_{v < u} p_uv        modulo 2^64, word by word

p_uv is a stream that only u and v can compute, from a key that they agree on (section 4.0.1). p_u,
the site's own mask, protects x_u if the coordinator has received y_u, claims that u has dropped
out, and learns the p_uv from the others (section 4.0.2). The secrets behind both are shared among
the sites by A. Shamir, How to share a secret, CACM 22 (1979), so that t of them can recover one of
the two.

Deviations: (1) if sites may drop out, all secrets are for one sum. They are drawn anew for each
sum, and their sealed shares travel with the previous answer. The paper's secrets are for a single
sum as well: revealing one that served a whole run would reveal the masks of all its rounds. (2) If
all sites must answer, nothing is ever revealed: there is no p_u, and the p_uv of all sums come from
one agreement.

Primitives are those of `cryptography` (X25519, HKDF, ChaCha20, ChaCha20-Poly1305, Ed25519) and of
`pycryptodome` (Shamir's sharing).

Before masking, each value becomes a few integers modulo 2^64, which can be added. A value x is
written in base 2^48, ``x = sum_w word_w 2^(48 w - fraction)``, in words that have its sign and,
except for the last, are below 2^48 in magnitude. So the words of up to 2^15 sites are added
independently of each other modulo 2^64, and no carry is lost.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedcluster.core import Floats, State
from fedcluster_app.secure.cohort import Cohort

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A format of fixed-point numbers.

    Parameters
    ----------
    n_words : int
        The number of words of a value.
    fraction : int
        The number of fractional bits: values are multiples of 2^-fraction.

    Examples
    --------
    >>> two = FixedPoint(2, 48)
    >>> words = two.encode(np.array([1.5, -0.25]))
    >>> words.shape, two.decode(words + words)
    ((2, 2), array([ 3. , -0.5]))
    """

    n_words: int
    fraction: int
    digit_bits = 48
    """Bits of a word that a value fills; the other 16 leave room for the sum over the sites."""

    @property
    def limit(self) -> float:
        """The bound below which sums are correct."""
        power = 63 + self.digit_bits * (self.n_words - 1) - self.fraction
        return math.ldexp(1.0, power) if power < 1024 else math.inf

    def encode(self, values: Floats) -> Words:
        """Return values as words, rounded to the nearest multiple of 2^-fraction.

        A value that does not fit is taken modulo 2^64 in its last word, like the sum. It is not
        refused, as this would reveal its size: see `size_of`.

        Parameters
        ----------
        values : ndarray of shape (q,)
            The values.

        Returns
        -------
        ndarray of shape (q, n_words), uint64
            The words, the lowest first.

        Raises
        ------
        ValueError
            If a value is not finite.
        """
        if not np.isfinite(values).all():
            raise ValueError("a sum is not finite")
        rest = _rounded(values, self.fraction)
        words = np.empty((len(values), self.n_words), dtype=np.uint64)
        for w in range(self.n_words - 1, 0, -1):
            unit = self.digit_bits * w - self.fraction
            digit = np.trunc(np.ldexp(rest, -unit))
            rest = rest - np.ldexp(digit, unit)
            words[:, w] = _modulo(digit)
        words[:, 0] = _modulo(np.ldexp(rest, self.fraction))
        return words

    def decode(self, words: Words) -> Floats:
        """Return the values whose words were added, each rounded once to the nearest float64."""
        signed = words.view(np.int64)
        totals = [0] * len(signed)
        for w in range(self.n_words):
            shift, column = self.digit_bits * w, signed[:, w].tolist()
            totals = [a + (b << shift) for a, b in zip(totals, column, strict=True)]
        one = 1 << self.fraction
        return np.array([_ratio(total, one) for total in totals], dtype=np.float64)


def _ratio(total: int, one: int) -> float:
    """Return a ratio, rounded once; infinite if it exceeds all float64 numbers."""
    try:
        return total / one
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _modulo(digits: Floats) -> Words:
    """Return whole numbers modulo 2^64."""
    within = np.fmod(digits, 2.0**64)
    high = np.abs(within) >= 2.0**63
    return (
        np.where(high, within - np.copysign(2.0**64, within), within)
        .astype(np.int64)
        .view(np.uint64)
    )


def _rounded(values: Floats, fraction: int) -> Floats:
    """Return values rounded to multiples of 2^-fraction; large ones are such multiples already."""
    small = np.abs(values) < np.ldexp(1.0, 53 - fraction)
    scaled = np.ldexp(np.where(small, values, 0.0), fraction)
    return np.where(small, np.ldexp(np.rint(scaled), -fraction), values)


NARROW = FixedPoint(3, 72)
"""Format for rows of ordinary size: multiples of 2.1e-22, up to 1.5e26."""

WIDE = FixedPoint(6, 144)
"""Format for rows of any size: multiples of 4.5e-44, up to 7e47."""

SIZE = FixedPoint(25, 144)
"""Format for the size of all values of an answer: up to the largest float64."""


def format_for(state: State) -> FixedPoint:
    """Return the format for the answers about a state, which all sites can derive.

    Examples
    --------
    >>> format_for(State.at([[0.5, 40.0], [2.0, 0.0]])) == NARROW
    True
    >>> format_for(State.at([[1e-12, 40.0]])) == format_for(State()) == WIDE
    True
    """
    largest = np.abs(state.centers).max(axis=0, initial=0.0)
    # Range of each column's largest centre coordinate if rows are of ordinary size.
    low, high = 2.0**-10, 2.0**20
    return NARROW if largest.size and (low <= largest).all() and (largest <= high).all() else WIDE


def size_of(values: Floats) -> Floats:
    """Return the sum of absolute values, (1,), which shows whether sums of such values fit.

    Sites cannot refuse values that do not fit: a coordinator could scale the rows until one site
    refuses, and so measure its sums. If the sum of this size over all sites is below the limit, so
    is the sum of each value, which is then correct.
    """
    with np.errstate(over="ignore"):
        size: Floats = np.minimum(np.abs(values).sum(keepdims=True), np.finfo(np.float64).max)
    return size


SECRET = 16
"""Number of bytes of a shared secret, and of each share."""


def derived(secret: bytes, *context: object, size: int = 32) -> bytes:
    """Return a key for one purpose only, named by ``context``."""
    info = "\0".join(["fedcluster secure sum", *map(str, context)]).encode()
    return HKDF(SHA256(), size, salt=None, info=info).derive(secret)


def stream(key: bytes, n_words: int) -> Words:
    """Return the words of the ChaCha20 stream of a key that is used for nothing else."""
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * n_words)), dtype="<u8").astype(np.uint64)


def agreed(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret that the holders of two keys agree on.

    Raises
    ------
    ValueError
        If the other key is invalid, or one for which everybody knows the secret.
    """
    return private.exchange(X25519PublicKey.from_public_bytes(public))


@dataclass(frozen=True, slots=True)
class SumSecrets:
    """Secrets of one site for one sum, from which its key and its own mask are derived."""

    key_seed: bytes = field(default_factory=lambda: os.urandom(SECRET), repr=False)
    own_seed: bytes = field(default_factory=lambda: os.urandom(SECRET), repr=False)

    @property
    def private(self) -> X25519PrivateKey:
        """The key by which the site agrees with each of the others, for one sum."""
        return X25519PrivateKey.from_private_bytes(derived(self.key_seed, "key"))

    @property
    def public(self) -> bytes:
        """The public half of that key."""
        return self.private.public_key().public_bytes_raw()


def own_mask(own_seed: bytes, n_words: int) -> Words:
    """Return the mask p_u of a site, (n_words,)."""
    return stream(derived(own_seed, "own mask"), n_words)


def agreements(
    site: str, private: X25519PrivateKey, publics: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the secrets that a site shares with each of the others, from their public keys."""
    return {name: agreed(private, key) for name, key in publics.items() if name != site}


def pair_mask(site: str, secrets: Mapping[str, bytes], context: str, n_words: int) -> Words:
    """Return the sum of the masks that a site shares with others, signed for this site.

    Parameters
    ----------
    site : str
        Its name, u.
    secrets : mapping of str to bytes
        The secret that it shares with each of the others.
    context : str
        The run and the sum: no two sums have the same masks.
    n_words : int
        The number of words.
    """
    total = np.zeros(n_words, dtype=np.uint64)
    for name, secret in secrets.items():
        low, high = sorted((site, name))
        mask = stream(derived(secret, "pair", context, low, high), n_words)
        total = total + mask if site == low else total - mask
    return total


def shares(secrets: SumSecrets, threshold: int, n_sites: int) -> list[bytes]:
    """Return one share of both secrets for each of the sites, in order.

    ``threshold`` shares are needed to recover a secret.
    """
    keys, own = (
        Shamir.split(threshold, n_sites, secret, ssss=False)
        for secret in (secrets.key_seed, secrets.own_seed)
    )
    return [key + mask for (_, key), (_, mask) in zip(keys, own, strict=True)]


def combined(parts: Mapping[int, bytes]) -> bytes:
    """Return the secret from its shares, given by the positions of the sites, from 0."""
    return Shamir.combine([(place + 1, part) for place, part in parts.items()], ssss=False)


def remaining(
    cohort: Cohort,
    context: str,
    keys: Mapping[str, bytes],
    survivors: Sequence[str],
    disclosed: Mapping[str, Mapping[str, bytes]],
    n_words: int,
) -> Words:
    """Return the masks that remain in the sum of the survivors' words.

    Parameters
    ----------
    cohort : Cohort
        The terms.
    context : str
        The run, the sum and the question.
    keys : mapping of str to bytes
        The public keys of all sites that were asked for the sum.
    survivors : sequence of str
        The sites that answered.
    disclosed : mapping of str to mapping of str to bytes
        By sending site and by concerned site: the share of the own mask of a survivor, or of the
        key of a site that dropped out.
    n_words : int
        The number of words.

    Raises
    ------
    ValueError
        If the keys show that shares are wrong, or there are too few.
    """
    if len(disclosed) < cohort.threshold:
        raise ValueError(f"{len(disclosed)} sites told shares, where {cohort.threshold} are needed")
    some = list(disclosed)[: cohort.threshold]
    left, others = np.zeros(n_words, dtype=np.uint64), {name: keys[name] for name in survivors}
    for name, key in keys.items():
        secret = combined({cohort.sites.index(of): disclosed[of][name] for of in some})
        if name in others:
            left += own_mask(secret, n_words)
        elif SumSecrets(secret).public != key:
            raise ValueError(f"the shares of the key of {name} do not make its key")
        else:
            pairs = agreements(name, SumSecrets(secret).private, others)
            left -= pair_mask(name, pairs, context, n_words)
    return left


class Encryptor:
    """Encryption from one site to another, carried by the coordinator, who cannot read it.

    Parameters
    ----------
    private : X25519PrivateKey
        The site's key for this run.
    """

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        self._private = private or X25519PrivateKey.generate()

    @property
    def public(self) -> bytes:
        """The public half of the key."""
        return self._private.public_key().public_bytes_raw()

    def agreements(self, site: str, publics: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the secrets that the site shares with each of the others for the whole run."""
        return agreements(site, self._private, publics)

    def seal(self, content: bytes, public: bytes, context: Sequence[object]) -> bytes:
        """Encrypt content for the holder of a public key; each context is for one content only."""
        return self._cipher(public, context).encrypt(bytes(12), content, None)

    def open(self, sealed: bytes, public: bytes, context: Sequence[object]) -> bytes:
        """Return the content that the holder of a public key has sealed.

        Raises
        ------
        ValueError
            If it was changed, or sealed by another site, for another site or for another purpose.
        """
        try:
            return self._cipher(public, context).decrypt(bytes(12), sealed, None)
        except InvalidTag as error:
            raise ValueError("a share was changed, or belongs to another site") from error

    def _cipher(self, public: bytes, context: Sequence[object]) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(derived(agreed(self._private, public), "seal", *context))

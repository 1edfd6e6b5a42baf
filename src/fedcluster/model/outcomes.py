"""Comparisons of clusters by outcomes that were not clustered by, from sums.

Every test is also stratified by site: whoever pools sites takes for a difference between clusters
what is one between sites. Rows of a group, which is in one cluster as a whole, may be alike: the
weights of each cluster are divided by its design effect if they all are, the mean over rows of the
size of their group, before they are tested (J. N. K. Rao & A. J. Scott, Biometrics 48, 1992).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy  # scipy loads its modules lazily, as a site's program starts without them

from fedcluster.core import Floats
from fedcluster.texts import short_number


@dataclass(frozen=True, slots=True)
class OutcomeTest:
    """A test of whether clusters have the same outcome.

    Parameters
    ----------
    name : str
        The name of the test.
    p : float
        The p-value; NaN if the test cannot be done.
    statistic : float
        Its statistic; NaN for an exact test.
    df : tuple of float
        The degrees of freedom.
    between : (float, float), optional
        If rows were counted in cells of a grid: the interval that contains the statistic of the
        rows themselves.
    """

    name: str
    p: float = math.nan
    statistic: float = math.nan
    df: tuple[float, ...] = ()
    between: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate, and its interval of 95 %."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeComparison:
    """Comparison of k clusters by one outcome.

    Parameters
    ----------
    name, kind : str
        The outcome; and "counts", "number" or "survival".
    test : OutcomeTest
        The test over all rows.
    by_site : OutcomeTest
        The test stratified by site; not done, and without a name, if there is one site.
    ranks : OutcomeTest, optional
        The rank test of a number.
    effect : mapping of str to Estimate
        The size of the difference, by the name of its measure.
    clusters : sequence of mapping of str to object
        What is known of each cluster.
    held_back : float
        The weight of the rows that are not counted, because limits of sites hold them back; if it
        is more than a tenth, no p-value counts.
    lacking : float
        The weight of the rows left out, as they lack the outcome, or in survival its time.
    corrected : (float, float)
        The p-values of both tests after Holm's correction.
    """

    name: str
    kind: str
    test: OutcomeTest
    by_site: OutcomeTest
    ranks: OutcomeTest | None = None
    effect: Mapping[str, Estimate] = field(default_factory=dict)
    clusters: Sequence[Mapping[str, Any]] = ()
    held_back: float = 0.0
    lacking: float = 0.0
    corrected: tuple[float, float] = (math.nan, math.nan)

    def sentence(self, n_outcomes: int = 1, level: float = 0.05) -> str:
        """Return the result in one sentence."""
        p, within = self.corrected
        shown = ", ".join(str(each["shown"]) for each in self.clusters)
        after = f" after correction for {n_outcomes} outcomes" if n_outcomes > 1 else ""
        held = f"; {self.held_back:,.0f} rows are held back or incomplete" if self.held_back else ""
        what = "the event or its time" if self.kind == "survival" else "a value"
        held += f"; {self.lacking:,.0f} rows lack {what}" if self.lacking else ""
        if math.isnan(p):
            is_hidden = not math.isnan(self.test.p)
            why = "limits of sites hide too much" if is_hidden else "too few rows, or no spread"
            return f"Nothing can be said of {self.name} ({shown}{held}): {why}"
        differ = "The clusters differ" if p < level else "The clusters are not shown to differ"
        line = f"{differ} in {self.name} ({shown}; {said_p(p)}{after}{held})"
        if math.isnan(within):
            return f"{line}; nothing is known by site" if self.by_site.name else line
        of_site = f"({said_p(within)})"
        if (p < level) == (within < level):
            return f"{line}, {'also' if p < level else 'nor'} within sites {of_site}"
        return f"{line}, but {'not' if p < level else 'they do'} within sites {of_site}"


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Comparison of clusters by several outcomes, corrected for their number by Holm's method.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 6, 1979.

    Parameters
    ----------
    outcomes : tuple of OutcomeComparison
        The outcomes.
    names : tuple of str
        The names of the clusters.
    """

    outcomes: tuple[OutcomeComparison, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[OutcomeComparison], names: Sequence[str]) -> Comparison:
        """Return the comparison, with the p-values of all outcomes corrected."""
        rows = [sum(each["rows"] for each in o.clusters) for o in outcomes]
        known = [o.held_back <= n / 9 for o, n in zip(outcomes, rows, strict=True)]
        both = zip(outcomes, known, strict=True)
        pairs = [(o.test.p, o.by_site.p) if told else (math.nan, math.nan) for o, told in both]
        p, within = (holm([pair[i] for pair in pairs]) for i in range(2))
        every = zip(outcomes, p, within, strict=True)
        return cls(tuple(replace(o, corrected=(a, b)) for o, a, b in every), tuple(names))

    @property
    def sentences(self) -> list[str]:
        """One sentence for each outcome."""
        tested = sum(math.isfinite(each.corrected[0]) for each in self.outcomes)
        return [f"{each.sentence(tested)}." for each in self.outcomes]


def said_p(p: float | None) -> str:
    """Return a p-value in words; an en dash if unknown.

    Examples
    --------
    >>> said_p(0.0004), said_p(0.0123), said_p(0.3), said_p(None)
    ('p < .001', 'p = .012', 'p = .300', '–')
    """
    if p is None or math.isnan(p):
        return "–"
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction; NaN counts as no test.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, order = [math.nan] * len(p), np.argsort(p)[: int(np.isfinite(p).sum())]
    largest = 0.0
    for i, j in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (len(order) - i) * p[j]))
        corrected[j] = largest
    return corrected


def _chi(name: str, statistic: float, df: int) -> OutcomeTest:
    p = float(scipy.stats.chi2.sf(statistic, df)) if df > 0 else math.nan
    return OutcomeTest(name, p, float(statistic), (float(df),))


# Counts


def counts_compared(
    name: str,
    levels: Sequence[str],
    tables: Floats,
    held_back: float = 0.0,
    together: Floats | float = 1.0,
) -> OutcomeComparison:
    """Return the comparison of clusters by counts of the levels of an outcome.

    Parameters
    ----------
    name : str
        The outcome.
    levels : sequence of str
        Its l levels.
    tables : ndarray of shape (s, k, l)
        The counts, by site.
    held_back : float
        The weight of rows that are not counted.
    together : float or ndarray of shape (k,)
        The rows of each cluster that count as one.

    Examples
    --------
    >>> tables = np.array([[[30.0, 10.0], [20.0, 20.0]], [[36.0, 4.0], [28.0, 12.0]]])
    >>> print(counts_compared("died", ("0", "1"), tables).test)
    OutcomeTest(name='chi-square test', p=0.0016..., statistic=9.88..., df=(1.0,), between=None)
    """
    table = tables.sum(axis=0)
    tables = tables / np.broadcast_to(together, len(table))[:, None]
    whole, last = tables.sum(axis=0), len(levels) - 1
    clusters: list[dict[str, Any]] = []
    for j, (own, rest) in enumerate(zip(table, table.sum(axis=0) - table, strict=True)):
        n, share = float(own.sum()), own / max(float(own.sum()), 1e-300)
        i = last if last < 2 else int(np.argmax(share - rest / max(float(rest.sum()), 1e-300)))
        called = "" if tuple(levels) == ("0", "1") else f"{levels[i]} "
        shown = f"{called}{100 * share[i]:.0f} %" if n else "no rows"
        each = {"rows": n, "counts": dict(zip(levels, own.tolist(), strict=True)), "shown": shown}
        if last == 1:
            each["share"] = wilson(float(whole[j, 1]), float(whole[j].sum()))
            each["odds_ratio"] = odds_ratio(whole[None], j)
            if len(tables) > 1:  # of secure sums, one table is told
                each["odds_ratio_by_site"] = odds_ratio(tables, j)
        clusters.append(each)
    test, effect = _of_table(whole)
    by_site = association_within(tables)
    return OutcomeComparison(name, "counts", test, by_site, None, effect, clusters, held_back)


def _of_table(
    table: Floats, *, tables_drawn: int = 9999
) -> tuple[OutcomeTest, dict[str, Estimate]]:
    """Return the test of a table, and Cramer's V.

    Where an expected count is below 1, or more than a fifth below 5 (W. G. Cochran, Biometrics 10,
    1954), the test is exact: Fisher's for two by two, else the chi-square's place among tables
    drawn with the same margins.
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return OutcomeTest("chi-square test"), {}
    chi, p, df, expected = scipy.stats.chi2_contingency(table, correction=False)
    test = OutcomeTest("chi-square test", float(p), float(chi), (float(df),))
    small = (expected < 1).any() or (expected < 5).mean() > 0.2
    if small and (table == np.rint(table)).all():
        whole = table.astype(np.int64)
        if table.shape == (2, 2):
            test = OutcomeTest("Fisher's exact test", float(scipy.stats.fisher_exact(whole).pvalue))
        else:
            margins = scipy.stats.random_table(whole.sum(axis=1), whole.sum(axis=0), seed=0)
            drawn = ((margins.rvs(tables_drawn) - expected) ** 2 / expected).sum(axis=(1, 2))
            p = (1 + (drawn >= chi * (1 - 1e-9)).sum()) / (1 + tables_drawn)
            test = OutcomeTest("chi-square test by drawn tables", float(p), float(chi))
    ends = np.nan_to_num(scipy.special.chndtrinc(chi, df, [0.975, 0.025]))  # not a number of chi 0
    v = np.sqrt(np.array([chi, *ends]) / (float(table.sum()) * (min(table.shape) - 1)))
    return test, {"cramers_v": Estimate(*np.minimum(v, 1.0).tolist())}


def wilson(count: float, n: float) -> Estimate:
    """Return a share with its interval after E. B. Wilson, J. Am. Stat. Assoc. 22, 1927.

    Examples
    --------
    >>> print(wilson(10.0, 40.0))
    Estimate(value=0.25, low=0.14..., high=0.40...)
    """
    if not n > 0:
        return Estimate(math.nan)
    z = float(scipy.stats.norm.isf(0.025)) ** 2
    middle, half = count + z / 2, math.sqrt(z * (count * (n - count) / n + z / 4))
    return Estimate(count / n, (middle - half) / (n + z), (middle + half) / (n + z))


def odds_ratio(tables: Floats, j: int) -> Estimate:
    """Return the odds ratio of cluster j beside all others of N. Mantel & W. Haenszel, 1959.

    The interval is that of J. Robins, N. Breslow & S. Greenland, Biometrics 42, 1986, which for one
    table is that of B. Woolf, Ann. Hum. Genet. 19, 1955; NaN where a sum is 0.

    Parameters
    ----------
    tables : ndarray of shape (s, k, 2)
        The counts of rows without and with the outcome.
    j : int
        The cluster.
    """
    rest = tables.sum(axis=1) - tables[:, j]
    (b, a), (d, c) = tables[:, j].T, rest.T
    n = np.maximum(a + b + c + d, 1e-300)
    R, S, P, Q = a * d / n, b * c / n, (a + d) / n, (b + c) / n
    r, s = float(R.sum()), float(S.sum())
    if not (r > 0 and s > 0):
        return Estimate(math.nan)
    spread = P @ R / (2 * r * r) + (P @ S + Q @ R) / (2 * r * s) + Q @ S / (2 * s * s)
    return _ratio(math.log(r / s), float(spread))


def _ratio(log: float, variance: float) -> Estimate:
    """Return a ratio and its interval, given its logarithm and the variance of this."""
    half = float(scipy.stats.norm.isf(0.025)) * math.sqrt(variance)
    return Estimate(*(math.exp(log + sign * half) for sign in (0, -1, 1)))


def association_within(tables: Floats) -> OutcomeTest:
    """Return the generalised test of Cochran, Mantel and Haenszel of tables (s, k, l).

    J. R. Landis, E. R. Heyman & G. G. Koch, Int. Stat. Rev. 46, 1978, equation for Q_G.

    Examples
    --------
    >>> tables = np.array([[[30.0, 10.0], [20.0, 20.0]], [[36.0, 4.0], [28.0, 12.0]]])
    >>> round(association_within(tables).statistic, 4)
    10.1...
    """
    _, k, levels = tables.shape
    apart, spread = np.zeros(k * levels), np.zeros((k * levels, k * levels))
    for table in tables:
        n, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
        if n > 1:
            apart += (table - np.outer(rows, columns) / n).ravel()
            of_rows, of_columns = (np.diag(m) - np.outer(m, m) / n for m in (rows, columns))
            spread += np.kron(of_rows, of_columns) / (n - 1)
    statistic, _, df = _quadratic(apart, spread)
    return _chi("Cochran-Mantel-Haenszel test", statistic, df)


def _quadratic(z: Floats, spread: Floats, missed: Floats | float = 0.0) -> tuple[float, float, int]:
    """Return z' V^- z, how much that may be if each z_j is what it misses, and the rank of V.

    The covariance V of the sum z may be singular.
    """
    inverse = np.linalg.pinv(spread, rcond=1e-10, hermitian=True)
    rank = int(np.linalg.matrix_rank(spread, hermitian=True, tol=1e-10 * max(spread.max(), 1e-300)))
    missed = np.broadcast_to(missed, len(z))
    return float(z @ inverse @ z), float(missed @ abs(inverse) @ missed), rank


# Numbers


def numbers_compared(
    name: str,
    n: Floats,
    means: Floats,
    squares: Floats,
    cells: Floats,
    origin: float = 0.0,
    hidden: float = 0.0,
    together: Floats | float = 1.0,
) -> OutcomeComparison:
    """Return the comparison of clusters by a numeric outcome.

    Parameters
    ----------
    name : str
        The outcome.
    n, means, squares : ndarray of shape (s, k)
        The weight, the mean less an origin, and the sum of squares about the mean, by site.
    cells : ndarray of shape (k, c)
        The weight in each cell of a grid, for the rank test; without cells, there is none.
    origin : float
        The origin.
    hidden : float
        The weight of rows that are in no cell; ranks are then not tested.
    together : float or ndarray of shape (k,)
        The rows of each cluster that count as one.

    Examples
    --------
    >>> n, means = np.full((1, 3), 10.0), np.array([[1.0, 2.0, 2.0]])
    >>> found = numbers_compared("cost", n, means, np.full((1, 3), 9.0), np.zeros((3, 0)))
    >>> round(found.test.statistic, 4), found.clusters[0]["shown"]
    (3.2143, '1')
    """
    means, rows = np.where(n > 0, means, 0.0), n.sum(axis=0)
    each_as = np.broadcast_to(together, len(rows))
    n, squares, cells = n / each_as, squares / each_as, cells / each_as[:, None]
    every = n.sum(axis=0)
    middle = (n * means).sum(axis=0) / np.where(every > 0, every, np.nan)
    inner = (squares + n * (means - np.nan_to_num(middle)) ** 2).sum(axis=0)
    deviation = np.sqrt(inner / np.where(every > 1, every - 1, np.nan))
    half = (
        scipy.stats.t.isf(0.025, np.maximum(every - 1, 1))
        * deviation
        / np.sqrt(np.maximum(every, 1))
    )
    clusters = [
        {
            "rows": float(rows[j]),
            "mean": Estimate(*(float(origin + middle[j] + x * half[j]) for x in (0, -1, 1))),
            "deviation": float(deviation[j]),
            "shown": short_number(origin + middle[j]) if every[j] else "no rows",
        }
        for j in range(len(every))
    ]
    test, by_site = welch(every, middle, inner), means_within(n, means, squares)
    effect = _omega(means_within(every[None], np.nan_to_num(middle)[None], inner[None]))
    ranks = None if hidden or not cells.size else kruskal(cells)
    return OutcomeComparison(name, "number", test, by_site, ranks, effect, clusters)


def welch(n: Floats, means: Floats, squares: Floats) -> OutcomeTest:
    """Return the test of B. L. Welch, Biometrika 38, 1951, of k means."""
    there = n > 1
    n, means, squares = n[there], means[there], squares[there]
    name, k = "Welch's analysis of variance", len(n)
    if k < 2 or not (squares > 0).all():
        return OutcomeTest(name)
    w = n * (n - 1) / squares
    middle = (w * means).sum() / w.sum()
    spare = ((1 - w / w.sum()) ** 2 / (n - 1)).sum()
    f = (w * (means - middle) ** 2).sum() / (k - 1)
    f /= 1 + 2 * (k - 2) / (k * k - 1) * spare
    df = (k - 1.0, float((k * k - 1) / (3 * spare)))
    return OutcomeTest(name, float(scipy.stats.f.sf(f, *df)), float(f), df)


def _omega(test: OutcomeTest) -> dict[str, Estimate]:
    """Return omega squared, the share of the variance that is between clusters, from an F test.

    The ends are those at whose noncentrality F is the upper or lower 2.5 % point (M. J. Smithson,
    Confidence Intervals, 2003, section 4).
    """
    if not test.df:
        return {}
    f, (a, b) = test.statistic, test.df

    def miss(x: float, share: float) -> float:
        below = scipy.stats.ncf.cdf(f, a, b, x)  # not a number far away
        return float(np.nan_to_num(below)) - share

    most, shares = 4 * f * (a + 1) + 100, (0.975, 0.025)
    far = [scipy.optimize.brentq(miss, 0, most, (p,)) if miss(0, p) > 0 else 0.0 for p in shares]
    value = max(a * (f - 1) / (a * f + b + 1), 0.0)
    return {"omega_squared": Estimate(value, *(x / (x + a + b + 1) for x in far))}


def means_within(n: Floats, means: Floats, squares: Floats) -> OutcomeTest:
    """Return the F test of clusters beside a fixed effect of each site.

    It is that of the model y = cluster + site + error without interaction, from sums.

    Parameters
    ----------
    n, means, squares : ndarray of shape (s, k)
        The weight, the mean and the sum of squares about it.
    """
    name = "analysis of variance with sites"
    place = np.argwhere(n > 0)
    if not len(place):
        return OutcomeTest(name)
    w, y = np.sqrt(n[n > 0]), means[n > 0] - means[n > 0].mean()
    of_site, of_cluster = (np.eye(m)[place[:, i]] for i, m in enumerate(n.shape))
    fits = []
    for design in (of_site, np.hstack([of_site, of_cluster])):
        X = design * w[:, None]
        found = np.linalg.lstsq(X, y * w, rcond=1e-10)
        fits.append((float(((y * w - X @ found[0]) ** 2).sum()), int(found[2])))
    (without, few), (error, many) = fits
    error, df = error + float(squares.sum()), (float(many - few), float(n.sum() - many))
    if min(df) < 1 or not error > 0:
        return OutcomeTest(name)
    f = (without + float(squares.sum()) - error) / df[0] / (error / df[1])
    return OutcomeTest(name, float(scipy.stats.f.sf(f, *df)), f, df)


def kruskal(cells: Floats) -> OutcomeTest:
    """Return the test of W. H. Kruskal & W. A. Wallis of rows in cells of a grid, (k, c).

    Rows of one cell count as tied. The rank sum of a cluster with n of the N rows of a cell can
    miss that of the rows themselves by n (N - n) / 2, whatever their order in the cell, which
    bounds the statistic.

    Examples
    --------
    >>> print(kruskal(np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 2.0]])))
    OutcomeTest(name='Kruskal-Wallis test', p=0.0..., statistic=3.3..., df=(1.0,), between=(...))
    """
    cells = cells[cells.sum(axis=1) > 0]
    name, n, each = "Kruskal-Wallis test", cells.sum(axis=1), cells.sum(axis=0)
    every = float(n.sum())
    ties = 1 - float((each**3 - each).sum()) / (every**3 - every) if every > 1 else 0.0
    if len(n) < 2 or not ties > 0:
        return OutcomeTest(name)
    apart = cells @ (np.cumsum(each) - (each - 1) / 2) - n * (every + 1) / 2
    missed = (cells * (each - cells)).sum(axis=1) / 2
    unit = 12 / (every * (every + 1))
    h, error = (unit * float((x**2 / n).sum()) for x in (apart, missed))
    root, e = math.sqrt(h), math.sqrt(error)
    between = (max(root - e, 0.0) ** 2, (root + e) ** 2 / ties)
    return replace(_chi(name, h / ties, len(n) - 1), between=between)


# Survival


def survival_compared(
    name: str, time: str, edges: Floats, ways: Sequence[Floats], hidden: float = 0.0
) -> OutcomeComparison:
    """Return the comparison of clusters by the time to an event.

    The hazard ratio of a cluster beside all others is that of R. Peto et al., Br. J. Cancer 35,
    1977: exp(z / v), of z observed less expected events, whose logarithm has the variance 1 / v.

    Parameters
    ----------
    name, time : str
        The event, and the column of its time, or of the time until which it had not happened.
    edges : ndarray of shape (c + 1,)
        The edges of the cells (a, b] of time.
    ways : sequence of ndarray of shape (2, s, k, c)
        The weights of the rows with an event in each cell, and of others, by site; then others that
        may be these where limits hide rows, of which the least significant one is the test.
    hidden : float
        The weight of rows that limits hide.
    """
    events, censored = ways[0]
    died, left = events.sum(axis=0), censored.sum(axis=0)
    n = at_risk(died + left)
    with np.errstate(divide="ignore", invalid="ignore"):
        high = np.cumprod(np.where(n > 0, 1 - died / n, 1.0), axis=1)
        low = np.cumprod(np.where(n > left, 1 - died / (n - left), 1.0), axis=1)
    pooled = [log_rank(*each.sum(axis=1, keepdims=True)) for each in ways]
    (_, z, spread), within = pooled[0], [log_rank(*each) for each in ways]
    test, by_site = (
        max((each for each, _, _ in tests), key=lambda t: np.nan_to_num(t.p))
        for tests in (pooled, within)
    )
    clusters = []
    for j, own in enumerate(died.sum(axis=1).tolist()):
        past = np.flatnonzero(high[j] <= 0.5)
        expected, v = own - float(z[j]), float(spread[j, j])
        each = {
            "rows": float(n[j, 0]),
            "events": own,
            "expected": expected,
            "hazard_ratio": _ratio(float(z[j]) / v, 1 / v) if v > 0 else Estimate(math.nan),
            "median": float(edges[1 + past[0]]) if len(past) else math.inf,
            "time": edges[1:].tolist(),
            "at_risk": n[j].tolist(),
            "surviving": high[j].tolist(),
            "surviving_at_least": low[j].tolist(),
        }
        shown = f"{own:,.0f} of {expected:,.1f} expected" if n[j, 0] else "no rows"
        clusters.append(each | {"shown": shown})
    called = f"{name} by {time}"
    return OutcomeComparison(called, "survival", test, by_site, None, {}, clusters, hidden)


def at_risk(out: Floats) -> Floats:
    """Return the weight of the rows at risk when each cell begins, from those that leave in it."""
    n: Floats = np.cumsum(out[..., ::-1], axis=-1)[..., ::-1]
    return n


def log_rank(events: Floats, censored: Floats) -> tuple[OutcomeTest, Floats, Floats]:
    """Return the log-rank test of clusters, stratified by site, from numbers in cells of time.

    The events of a cell count as happening when it begins. The interval of the statistic holds that
    of the times themselves: before an event, as many rows of its cell may have left as there are
    without later events, all of one cluster or all of others. This bounds the shares of the rows at
    risk, and thus the expected events and their covariance.

    Parameters
    ----------
    events, censored : ndarray of shape (s, k, c)
        The weight of the rows in each cell.

    Returns
    -------
    test : OutcomeTest
        The test, of k - 1 degrees of freedom if all clusters are at risk.
    z : ndarray of shape (k,)
        Observed less expected events.
    spread : ndarray of shape (k, k)
        Their covariance.

    Examples
    --------
    >>> events = np.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]])
    >>> test, z, spread = log_rank(events, np.zeros((1, 2, 3)))
    >>> z.round(3), round(test.statistic, 3)
    (array([ 1.167, -1.167]), 2.882)
    """
    out = events + censored
    n = at_risk(out)
    every, died, gone = (each.sum(axis=1) for each in (n, events, out))
    there = every > 0
    share = n / np.where(there, every, 1.0)[:, None]
    z = (events - died[:, None] * share).sum(axis=(0, 2))
    once = np.maximum(every - 1, 1.0)
    tied, alone = died * (every - died) / once, np.where(died > 1, (every - gone) / once, 1.0)
    missed, few, many = np.zeros(len(z)), np.zeros_like(died), np.zeros_like(died)
    for i in range(math.ceil(died.max(initial=0.0))):
        weight, before = np.clip(died - i, 0, 1), np.maximum(gone - np.maximum(died - i, 1.0), 0.0)
        own, others = (np.minimum(x, before[:, None]) for x in (out, gone[:, None] - out))
        most = n / np.maximum(every[:, None] - others, 1e-300)
        least = (n - own) / np.maximum(every[:, None] - own, 1e-300)
        apart = np.maximum(np.minimum(most, 1.0) - share, share - least)
        missed += (weight[:, None] * apart).sum(axis=(0, 2))
        # p (1 - p) is at least rho q (1 - q) if each share p is at least rho times q
        stay = 1 - (own / np.where(n > 0, n, 1.0)).max(axis=1)
        few += weight * alone * stay
        many += weight * every / np.maximum(every - before, 1.0)
    spread, ends = _covariance(share, tied), []
    statistic, _, df = _quadratic(z, spread)
    if not df:
        return OutcomeTest("log-rank test"), z, spread
    for weight, sign, unknown in ((many, -1, 0.0), (few, 1, math.inf)):
        value, error, rank = _quadratic(z, _covariance(share, weight), missed)
        root = max(math.sqrt(max(value, 0.0)) + sign * math.sqrt(error), 0.0)
        ends.append(root**2 if rank >= len(z) - 1 else unknown)
    return replace(_chi("log-rank test", statistic, df), between=(ends[0], ends[1])), z, spread


def _covariance(share: Floats, weight: Floats) -> Floats:
    """Return the sum of w (diag(p) - p p') over sites and cells, (k, k)."""
    p, w = np.moveaxis(share, 1, -1).reshape(-1, share.shape[1]), weight.ravel()
    found: Floats = np.diag(w @ p) - (p * w[:, None]).T @ p
    return found

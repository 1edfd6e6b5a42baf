"""Combinations of options that are refused: each with the line that users see, and its reason.

What users may combine and what they may not stands in one table, `REFUSALS`. `docs/refusals.md` is
made from it. A line says what does not go together and what to do; the reason is for the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True)
class RefusedCombination:
    """Combination of options, sources, protections and engines that is refused.

    Parameters
    ----------
    key : str
        Its stable name, such as "trim-fuzzy".
    options : tuple of str
        What is combined, by the names that users know; "fuzzy, --fuzzy" where the command line has
        another name.
    what : str
        What does not go together, in the names of Python; a template.
    instead : str
        What to do.
    reason : str
        Why it is refused.
    command : str
        The whole line in the names of the command line, where it differs; a template.
    """

    key: str
    options: tuple[str, ...]
    what: str
    instead: str
    reason: str
    command: str = ""

    @property
    def line(self) -> str:
        """Template of the one line that users see."""
        return f"{self.what}{'' if self.what.endswith((';', ',')) else ':'} {self.instead}"

    def matches(self, message: str) -> bool:
        """Return whether a message is this line, with some values in its places.

        Examples
        --------
        >>> row = BY_KEY["trim-fuzzy"]
        >>> row.matches("trim=0.1 does not go with fuzzy clusters: leave out the fuzzifier or trim")
        True
        >>> row.matches("trim=0.1 does not go with fuzzy clusters")
        False
        """
        templates = filter(None, (self.line, self.command))
        return any(re.fullmatch(_pattern(each, ".+"), message) for each in templates)


def _pattern(template: str, value: str) -> str:
    """Return the regular expression of a template, with that of a value in its places."""
    return _PLACE.sub(lambda _: value, re.escape(template))


_PLACE = re.compile(r"\\\{.*?\\\}")
"""A place for a value in an escaped template."""


class RefusedError(InputError):
    """A combination of options is refused; ``refusal`` is its row in `REFUSALS`."""

    refusal: RefusedCombination


def refused(key: str, *, command: bool = False, **values: Any) -> RefusedError:
    """Return the error that refuses a combination.

    Parameters
    ----------
    key : str
        Of the row in `REFUSALS`.
    command : bool
        Whether to say it in the names of the command line, where these differ.
    **values : object
        What stands in the places of the line.

    Examples
    --------
    >>> refused("trim-algorithm", trim=0.1, algorithm="fkm")
    RefusedError("trim=0.1 does not go with algorithm 'fkm': leave it out")
    >>> refused("choice-trim").refusal.options
    ('trim', 'n_clusters, -k')
    """
    row = BY_KEY[key]
    template = row.command if command and row.command else row.line
    return _error(row, template.format(**values))


def _error(row: RefusedCombination, line: str) -> RefusedError:
    error = RefusedError(line)
    error.refusal = row
    return error


def refusal_in(reason: str) -> RefusedError | None:
    """Return the error that a site's reason not to answer stands for, if it is one of the table.

    Examples
    --------
    >>> refusal_in("refused: groups of rows and noise do not go together: use one of the two")
    RefusedError('groups of rows and noise do not go together: use one of the two')
    >>> refusal_in("not connected")
    """
    for row in REFUSALS:
        if found := re.search(_pattern(row.line, r"\S+") + "$", reason):
            return _error(row, found[0])
    return None


K = "n_clusters, -k"
FUZZY = "m, --fuzzy"
MIXTURE = "FederatedGaussianMixture, --model mixture"
COSINE = 'metric="cosine", --metric cosine'
IGNORED = 'missing="ignore", --missing ignore'
PREPARED = "prepare, --scale, --missing, --categories, --log, --weight, --pca"
CHUNKS = "rows in chunks"
SECURE = "secure sums, --secure"
GROUPED = 'protection="groups"'
BUDGET = "[privacy] of a site"
RULES = "rules for groups under [privacy] of a site file"
STRICT = "the strict preset of a site file"
RELAY = "a relay"
OWN = "an algorithm of one's own"

Row = RefusedCombination

_TRIM = "trim={trim:g} does not go with "
TRIMMING = (
    Row(
        "choice-trim",
        ("trim", K),
        "trim is for one number of clusters",
        "choose it first, without trim",
        "The indices that choose k count every row. Leaving rows out and more clusters would stand "
        "in for each other.",
    ),
    Row(
        "trim-algorithm",
        ("trim", "algorithm"),
        _TRIM + "algorithm {algorithm!r}",
        "leave it out",
        "All sites decide together, in each round, which rows are the farthest. Only exact k-means "
        "has such rounds.",
    ),
    Row(
        "trim-fuzzy",
        ("trim", FUZZY),
        _TRIM + "fuzzy clusters",
        "leave out the fuzzifier or trim",
        "Trimmed k-means has hard clusters. With memberships, every row belongs to all of them.",
    ),
    Row(
        "trim-quality",
        ("trim", "quality"),
        _TRIM + "quality {quality!r}",
        "leave it out",
        "The longer searches compare inertias over all rows, and trimmed k-means has that of the "
        "rows it keeps.",
    ),
    Row(
        "trim-participation",
        ("trim", "participation"),
        _TRIM + "participation below 1",
        "ask all sites",
        "Beyond which radius rows are left out comes from counts of all sites in one round.",
    ),
    Row(
        "trim-mixture",
        ("trim", MIXTURE),
        _TRIM + "model='mixture'",
        "give the mixture noise=True instead",
        "A mixture leaves rows out by a component of noise, which gives each row a probability.",
    ),
    Row(
        "trim-cosine",
        ("trim", COSINE),
        _TRIM + "metric='cosine'",
        "directions have no far rows, leave out trim",
        "All directions are at most twice the radius of the unit sphere apart: none is an outlier.",
    ),
    Row(
        "trim-missing",
        ("trim", IGNORED),
        _TRIM + "missing='ignore'",
        "fill missing values in",
        "Distances over different columns cannot be ranked, so no row is the farthest.",
    ),
)

_ROBUST = "robust={robust} does not go with "
LYING = (
    Row(
        "robust-secure",
        ("robust", SECURE),
        _ROBUST + "secure sums, which hide what must be compared",
        "leave one of them out",
        "A site that lies is found by comparing the answers of single sites, which secure sums let "
        "nobody see.",
    ),
    Row(
        "robust-algorithm",
        ("robust", "algorithm"),
        _ROBUST + "algorithm {algorithm!r}",
        "leave it out",
        "It is known how far honest sites differ in exact sums. Of local centres, it is not.",
    ),
    Row(
        "robust-fuzzy",
        ("robust", FUZZY),
        _ROBUST + "fuzzy clusters",
        "leave out the fuzzifier or robust",
        "Sites are compared by the means of their rows in a cluster, each row in one cluster.",
    ),
    Row(
        "robust-mixture",
        ("robust", MIXTURE),
        _ROBUST + "model='mixture'",
        "cluster by k-means, or leave out robust",
        "The sums of a mixture hold covariances, by which a site that lies can steer components "
        "without moving their means.",
    ),
    Row(
        "robust-cosine",
        ("robust", COSINE),
        _ROBUST + "metric='cosine'",
        "leave one of them out",
        "The spread of rows, by which sites are compared, is a variance. Directions have none.",
    ),
    Row(
        "robust-missing",
        ("robust", IGNORED),
        _ROBUST + "missing='ignore'",
        "fill missing values in",
        "A cluster then has a weight for each column, and sites are compared by one for all.",
    ),
    Row(
        "robust-trim",
        ("robust", "trim"),
        _ROBUST + "trim",
        "leave one of them out",
        "A site that lies could choose which rows of the others are left out.",
    ),
    Row(
        "robust-quality",
        ("robust", "quality"),
        _ROBUST + "quality {quality!r}",
        "leave it out",
        "The longer searches ask steps whose answers cannot be compared.",
    ),
    Row(
        "robust-sums",
        ("robust", "sums_only, --sums-only, init='sums'"),
        _ROBUST + "sums_only",
        "sums do not show who sent them, so leave one of the two out",
        "The start is found among means that several sites describe. A tree of sums does not tell "
        "which site a leaf comes from.",
    ),
    Row(
        "robust-start",
        ("robust", "init, rows in chunks, many tiny sites"),
        _ROBUST + "a start by {step}",
        "leave out init, and let sites hold their rows at once",
        "The start is found among means that several sites describe. Sums over all sites, and "
        "seeds that a site draws, cannot be compared.",
    ),
    Row(
        "robust-pca",
        ("robust", "pca"),
        _ROBUST + "principal components",
        "leave out pca",
        "One liar turns the components of all rows by its covariances.",
    ),
    Row(
        "robust-participation",
        ("robust", "participation"),
        _ROBUST + "participation below 1",
        "ask all sites",
        "Of a sample, most sites may be the ones that lie.",
    ),
    Row(
        "robust-profile",
        ("robust", "profile"),
        _ROBUST + "profile",
        "describe the clusters of its model afterwards",
        "Counts by column cannot be compared between honest sites, so one liar changes a profile.",
    ),
    Row(
        "robust-stability",
        ("robust", "stability"),
        _ROBUST + "stability",
        "leave one of them out",
        "Rows that a site draws anew are the site's word alone.",
    ),
    Row(
        "choice-robust",
        ("robust", K),
        _ROBUST + "a choice of n_clusters",
        "choose it first",
        "The indices that choose k are sums, which one liar changes as it likes.",
    ),
    Row(
        "robust-sites",
        ("robust", "few sites"),
        "robust={robust} needs at least {least} sites, of which most are honest; "
        "there are {n_sites}",
        "add sites, or allow for fewer that lie",
        "Where half of the sites may lie, nothing tells them from the others.",
    ),
)

_BUDGET = "under a privacy budget there is no "
_LEAVE = "leave it out"
_NOISY = "Only the steps of the private clustering have a proven bound on what one row changes."
BUDGETS = (
    Row(
        "choice-epsilon",
        ("epsilon", K),
        _BUDGET + "choice of the number of clusters",
        _LEAVE,
        "Each k that is tried would take its share of the budget.",
    ),
    Row(
        "epsilon-algorithm",
        ("epsilon", "algorithm"),
        _BUDGET + "algorithm {algorithm!r}",
        _LEAVE,
        _NOISY,
    ),
    Row(
        "epsilon-init",
        ("epsilon", "init"),
        _BUDGET + "init",
        _LEAVE,
        "The start is found from noisy counts, which is a part of the plan of the budget.",
    ),
    Row(
        "epsilon-starts",
        ("epsilon", "n_init"),
        _BUDGET + "n_init",
        _LEAVE,
        "Each start would take its share of the budget.",
    ),
    Row("epsilon-fuzzy", ("epsilon", FUZZY), _BUDGET + "fuzzy clusters", _LEAVE, _NOISY),
    Row("epsilon-mixture", ("epsilon", MIXTURE), _BUDGET + "mixture", _LEAVE, _NOISY),
    Row(
        "epsilon-quality",
        ("epsilon", "quality"),
        _BUDGET + "quality {quality!r}",
        _LEAVE,
        "A longer search asks more, and every question costs.",
    ),
    Row("epsilon-metric", ("epsilon", COSINE), _BUDGET + "metric {metric!r}", _LEAVE, _NOISY),
    Row(
        "epsilon-prepare",
        ("epsilon", PREPARED),
        _BUDGET + "preparation of columns",
        _LEAVE,
        "Means and deviations of the rows would have to be told without noise. Public bounds take "
        "their place.",
        "--epsilon scales columns by --bounds and fits nothing to rows: leave out --{option}",
    ),
    Row(
        "epsilon-participation",
        ("epsilon", "participation"),
        _BUDGET + "participation",
        _LEAVE,
        "A row of a site that is not asked spends nothing, but the noise is that of all sites.",
    ),
    Row("epsilon-trim", ("epsilon", "trim"), _BUDGET + "trim", _LEAVE, _NOISY),
    Row(
        "epsilon-robust",
        ("epsilon", "robust"),
        _BUDGET + "robust fit",
        _LEAVE,
        "Honest sites differ by their noise, in which a liar hides.",
    ),
    Row(
        "epsilon-profile",
        ("epsilon", "profile"),
        _BUDGET + "profile",
        _LEAVE,
        "A profile asks counts of each column, without noise.",
    ),
    Row(
        "epsilon-stability",
        ("epsilon", "stability"),
        _BUDGET + "stability",
        _LEAVE,
        "Each replicate would take its share of the budget.",
    ),
    Row(
        "epsilon-bounds",
        ("epsilon", "no bounds"),
        "a privacy budget needs bounds of every column that are known without the rows",
        "give bounds",
        "The noise must cover the largest change by one row. Without bounds there is none.",
    ),
    Row(
        "epsilon-rounds",
        ("epsilon", "tol", "max_iter"),
        _BUDGET + "{option}",
        _LEAVE,
        "The budget decides how many rounds there are, before the first of them.",
    ),
    Row(
        "epsilon-alone",
        ("delta, group_size, bounds", "no epsilon"),
        "{option} is an option of a privacy budget alone",
        "give epsilon, or leave it out",
        "Without epsilon there is no noise at all, and nobody should take the answers for private.",
    ),
    Row(
        "epsilon-limits",
        ("epsilon", "min_cluster_size"),
        "limits hold nothing back under a privacy budget",
        "leave them out",
        "Which sums are held back would itself tell of single rows, without noise.",
    ),
)

NOISES = (
    Row(
        "budget-exact",
        (BUDGET, "no epsilon"),
        "under a privacy budget, every answer needs noise",
        "give epsilon, and bounds of every column",
        "One exact answer would tell more of a single row than all of the budget.",
    ),
    Row(
        "noise-groups",
        ("epsilon", GROUPED),
        "groups of rows and noise do not go together",
        "use one of the two",
        "The noise covers what one row changes. One row can change the groups of many others.",
    ),
    Row(
        "noise-weights",
        ("epsilon", "sample_weight, weight_column"),
        "rows with weights cannot be asked with noise",
        "leave the weights out",
        "The noise covers one row of weight 1. A row of weight 100 would need 100 times as much.",
    ),
    Row(
        "noise-persons",
        ("epsilon", "groups, group_column", "no group_size, or rows in chunks"),
        "rows that say whose they are need a group_size to be asked with noise, and to be held in "
        "memory",
        "give group_size, or leave out whose they are",
        "A budget for persons takes no more rows of each than group_size, the first ones of all.",
    ),
    Row(
        "noise-relay",
        ("epsilon", RELAY),
        "a relay's sites would each add noise, and the coordinator counts on that of one site",
        "ask the sites themselves, or leave out epsilon",
        "The plan of a budget asks no more than its noise allows. More noise hides the clusters.",
    ),
)

SECURES = (
    Row(
        "secure-participation",
        (SECURE, "participation"),
        "secure sums are over all sites, not over a sample",
        "leave out participation",
        "The sums of two samples differ by the sum of the few sites that only one of them holds.",
    ),
    Row(
        "secure-steps",
        (SECURE, "algorithm"),
        "{step}: the answers of sites do not add up, and secure sums are totals",
        "leave it out, or the secure sums",
        "The answers of single sites are what secure sums hide.",
    ),
    Row(
        "secure-init",
        (SECURE, "init"),
        "secure sums find the start from sums alone, not by init={init!r}",
        "leave it out",
        "Means of rows and seeds that a site draws are its own answers, which secure sums hide.",
    ),
)

RELAYS = (
    Row(
        "relay-steps",
        (RELAY, "algorithm, init"),
        "{step} needs each site's own answer, and a relay sends totals",
        "use sums only",
        "A relay hides its sites behind their total, in which no local centres are left.",
    ),
    Row(
        "relay-lines",
        ("lines=True of a relay", SECURE),
        "relay {relay!r} has secure sums, of which nobody knows who is in a line",
        "leave lines = true out",
        "A line of too few sites is held back by the sums of each, and nobody sees these.",
    ),
)

MIXTURES = (
    Row(
        "mixture-participation",
        (MIXTURE, "participation"),
        "a mixture asks all sites in every round",
        "leave out participation",
        "Its sums are about the means of the round. Those of sites asked in another round do not "
        "add up with them.",
    ),
    Row(
        "mixture-algorithm",
        (MIXTURE, "algorithm"),
        "model='mixture' is for the algorithms 'auto' and 'lloyd', not for algorithm {algorithm!r}",
        "leave out the algorithm",
        "Other algorithms find centres, and no probabilities.",
    ),
    Row(
        "mixture-alone",
        (
            "covariance_type, reg_covar, noise, --covariance-type, --reg-covar, --noise",
            "clusters of k-means",
        ),
        "{option} is an option of mixtures alone",
        "ask for a mixture, or leave it out",
        "Clusters of k-means have no shape, and every row belongs to one of them.",
    ),
    Row(
        "mixture-quality",
        (MIXTURE, "quality"),
        "a mixture is searched for in one way, whatever the quality",
        "leave out quality",
        "The search for mixtures crosses components of many starts. It has no longer form.",
    ),
    Row(
        "mixture-weight",
        (MIXTURE, "weights of text, --weight"),
        "column {column!r} has a weight, but a mixture takes a text for its levels",
        "leave out its weight",
        "A share of rows has no scale, so that no factor can make it count more.",
    ),
    Row(
        "mixture-own",
        (MIXTURE, OWN),
        "{algorithm} fits no mixture",
        "leave out the algorithm",
        "Mixtures are found by expectation and maximisation alone.",
    ),
    Row(
        "mixture-fuzzy",
        (MIXTURE, FUZZY),
        "model='mixture' is for the algorithms 'auto' and 'lloyd', not for fuzzy clusters",
        "leave out one of them",
        "Degrees of fuzzy c-means and probabilities of a mixture are two models of the same rows.",
    ),
    Row(
        "mixture-cosine",
        (MIXTURE, COSINE),
        "there is no algorithm for model='mixture' and metric='cosine'",
        "leave out one of them",
        "Normal distributions are not distributions of directions.",
    ),
    Row(
        "mixture-missing",
        (MIXTURE, IGNORED),
        "there is no algorithm for model='mixture' and missing='ignore'",
        "leave out one of them",
        "Expectation and maximisation here need whole rows. Fill missing values in.",
    ),
)

_HARD = " is for the algorithms 'auto' and 'lloyd', not for "
DISTANCES = (
    Row(
        "cosine-algorithm",
        (COSINE, "algorithm"),
        "metric='cosine'" + _HARD + "algorithm {algorithm!r}",
        "leave out one of them",
        "The others move centres by means of rows, and directions need means of unit length.",
    ),
    Row(
        "cosine-fuzzy",
        (COSINE, FUZZY),
        "metric='cosine'" + _HARD + "fuzzy clusters",
        "leave out one of them",
        "Fuzzy c-means here has Euclidean distances only.",
    ),
    Row(
        "cosine-missing",
        (COSINE, IGNORED),
        "metric='cosine' needs whole rows",
        "missing must not be 'ignore'",
        "The length of a row that lacks values is not known, so it has no direction.",
    ),
    Row(
        "missing-algorithm",
        (IGNORED, "algorithm"),
        "missing='ignore'" + _HARD + "algorithm {algorithm!r}",
        "leave out one of them",
        "The others compare whole rows.",
    ),
    Row(
        "missing-fuzzy",
        (IGNORED, FUZZY),
        "missing='ignore'" + _HARD + "fuzzy clusters",
        "leave out one of them",
        "Fuzzy c-means compares whole rows.",
    ),
    Row(
        "missing-pca",
        (IGNORED, "pca"),
        "principal components need whole rows",
        "missing must not be 'ignore'",
        "A row that lacks a value has no place along a component.",
    ),
    Row(
        "missing-unit",
        (IGNORED, "unit"),
        "rows of length 1 need whole rows",
        "missing must not be 'ignore'",
        "The length of a row that lacks values is not known.",
    ),
    Row(
        "missing-own",
        (IGNORED, OWN),
        "missing='ignore' needs an algorithm that takes missing values; {algorithm} does not "
        "declare that, by allowed = Allowed(gaps=True)",
        "fill missing values in",
        "Missing values would pass as numbers through an algorithm that does not expect them.",
    ),
)

STARTS = (
    Row(
        "algorithm-fuzzy",
        ("algorithm", FUZZY),
        "algorithm {algorithm!r} is not fuzzy",
        "leave out the fuzzifier, or the algorithm",
        "Each algorithm finds either one cluster for each row or memberships in all.",
        "--algorithm {algorithm} is not fuzzy; leave out {given}",
    ),
    Row(
        "algorithm-hard",
        ("algorithm", "no m, no --fuzzy"),
        "algorithm {algorithm!r} is fuzzy",
        "give a fuzzifier m",
        "Each algorithm finds either one cluster for each row or memberships in all.",
        "--algorithm {algorithm} is fuzzy; add --fuzzy",
    ),
    Row(
        "algorithm-clusters",
        (OWN, "n_clusters"),
        "n_clusters={n_clusters}, but algorithm is {algorithm!r}",
        "give both the same number of clusters",
        "An algorithm object that holds its own k would find another number of clusters.",
    ),
    Row(
        "algorithm-fuzzifier",
        (OWN, "m"),
        "m={m}, but algorithm is {algorithm!r}",
        "give both the same fuzzifier",
        "Memberships of new rows would be those of another fuzzifier than the centres.",
    ),
    Row(
        "algorithm-start",
        ("algorithm", "init, n_init"),
        "{step} takes no start by {option}",
        "leave it out",
        "Its sites find their own start.",
    ),
    Row(
        "algorithm-tol",
        ("algorithm", "tol"),
        "algorithm {algorithm!r} does not stop by tol",
        "leave it out",
        "It takes one round, or as many as max_iter says.",
    ),
    Row(
        "algorithm-quality",
        ("algorithm", "quality"),
        "{step} has no start to search for",
        "leave out quality",
        "Quality is how long starts are searched for, and its sites find their own.",
    ),
    Row(
        "quality-best",
        ('quality="best", --quality best', FUZZY, COSINE, IGNORED, "algorithm"),
        "quality='best' searches by exact k-means of whole rows, and not by {step}",
        "ask for quality 'better', or leave it out",
        "Crossover and breathing compare results by the inertia of k-means.",
    ),
    Row(
        "quality-start",
        ('quality="better", --quality better', "init, sums_only, secure sums"),
        "quality='better' adds starts to those of init='auto', and here the start is another",
        "leave out quality, or ask for 'best'",
        "The further starts are FKM's centres, which are no sums and no other init.",
    ),
    Row(
        "quality-participation",
        ('quality="best", --quality best', "participation"),
        "quality='best' asks all sites in every round",
        "leave out participation",
        "Inertias of different samples of the sites cannot be compared.",
    ),
    Row(
        "sums-algorithm",
        ("sums_only, --sums-only", "algorithm"),
        "{step} sends more than sums",
        "leave out sums_only, or the algorithm",
        "Who asks for sums only means that no site's own centres are seen.",
    ),
    Row(
        "sums-init",
        ("sums_only, --sums-only", "init"),
        "sums_only finds the start from sums alone, not by init={init!r}",
        "leave out one of them",
        "The named starts are means of rows or seeds that a site draws, and no sums.",
    ),
    Row(
        "start-starts",
        ("init as an array, means_init", "n_init"),
        "one start is given, and n_init={n_init} starts are asked for",
        "leave out one of them",
        "From one start there is one result.",
    ),
    Row(
        "start-shape",
        ("init as an array, means_init", "n_clusters and the columns"),
        "{option} has shape {shape}, but n_clusters={n_clusters} and the rows have {n_columns} "
        "columns",
        "give a centre for each cluster, with a value for each column",
        "Prepared rows have a column for each text that is common enough, or for each principal "
        "component.",
    ),
    Row(
        "start-means",
        ("weights_init, precisions_init", "no means_init"),
        "weights_init and precisions_init need means_init",
        "give it",
        "Weights and precisions are those of components, which the means tell apart.",
    ),
)

CHOICES = (
    Row(
        "choice-start",
        (K, "init as an array, means_init"),
        "{option} is a start for one number of clusters, but n_clusters={n_clusters!r};",
        "leave it out",
        "Each k that is tried needs a start with k centres.",
    ),
    Row(
        "choice-quality",
        (K, 'quality="better", --quality better'),
        "quality='better' adds starts for one number of clusters",
        "choose it first, or ask for 'best'",
        "All k share one description of the rows, to which the centres of one k add nothing.",
    ),
    Row(
        "choice-rule",
        ("rule", "one n_clusters"),
        "rule is for a choice of the number of clusters",
        "give n_clusters='auto' or several numbers, or leave it out",
        "With one number there is nothing to choose, and the rule would never be asked.",
    ),
    Row(
        "choice-elbow",
        ('pick="elbow", --elbow', "rule"),
        "pick='elbow' is for a single index;",
        "name it as the rule",
        "The likelihood and the vote have no single curve that could bend.",
        "--elbow is for a single index; name it by --rule",
    ),
    Row(
        "choice-fuzzy",
        ("rule", "hard clusters"),
        "rule {option!r} judges fuzzy clusters",
        "cluster by fuzzy c-means, or choose by another rule",
        "Of hard clusters, these indices say nothing, and the smallest number would be taken.",
    ),
    Row(
        "choice-averaging",
        ("averaging", "rule"),
        "averaging is for rule='fuzzy-db' alone",
        "leave it out",
        "Other rules cluster by exact steps, in which nothing is averaged.",
    ),
    Row(
        "choice-bounds",
        ("bounds of select_k, --bounds", PREPARED),
        "bounds are those of rows that are taken as they are",
        "leave out prepare, or the bounds",
        "The references of the gap statistic are drawn in the units of the rows as they are "
        "clustered.",
        "--bounds are those of rows that are taken as they are: add --scale none",
    ),
)

SITES = (
    Row(
        "engine-rows",
        ("engine", "X, sites, sample_weight, groups"),
        "engine has the sites with their rows",
        "give X, sites, sample_weight and groups without an engine, or the engine alone",
        "The rows beside an engine would not be clustered.",
    ),
    Row(
        "clients-limits",
        ("min_cluster_size, protection", "fit_clients, fit_engine"),
        "{option} is what each site says itself",
        "give it to the clients, and leave it out here",
        "Sites that answer for themselves have their own limits. Those of the estimator would "
        "protect nobody.",
    ),
    Row(
        "labels-none",
        ("labels, --labels", "a site without label_column"),
        "no labels to compare with at {sites}",
        'write label_column = "NAME" in the site.toml there and start the site anew, or leave out '
        "--labels",
        "A comparison over some of the sites would stand for all.",
    ),
)

FILES = (
    Row(
        "site-file-limits",
        ("--min-cluster-size", "a site file"),
        "--min-cluster-size is what each site file says itself, in [limits]",
        "leave it out",
        "The limits are the site's. A command must not loosen them.",
    ),
    Row(
        "site-file-labels",
        ("--min-cluster-size, --label-column", "a site file"),
        "--min-cluster-size and --label-column are what a site file says itself",
        "leave them out",
        "Its limits and the part of each column are the site's own.",
    ),
    Row(
        "site-file-options",
        (
            "--site-column, --weight-column, --group-column, --missing-values, --codes, --factor, "
            "--encoding, --decimal",
            "a site file",
        ),
        "--site-column, --weight-column, --group-column, --missing-values, --codes, --factor, "
        "--encoding and --decimal are what a site file says itself",
        "leave them out",
        "How its rows are read is the site's own, and the same for every command.",
    ),
    Row(
        "site-file-joined",
        ("--id-column, --append", "a site file"),
        "--id-column and --append are for files of rows, and a site file is none;",
        "write id_column into it, or give the file that it names",
        "A site file may name a database or a folder, which no table of results stands beside.",
    ),
    Row(
        "files-site",
        ("--site-column", "several files"),
        "--site-column is for one file of all sites, not for {n_files} files",
        "leave it out",
        "Each of several files is one site.",
    ),
    Row(
        "database-keys",
        ("id_column of a site file", "a database"),
        "{where}id_column is for files",
        "a database gives its rows in any order; save what the query finds as Parquet",
        "Keys are joined with clusters by the order of the rows.",
    ),
    Row(
        "codes-unprepared",
        ("[codes] of a site file", "--scale none"),
        "{owner}: [codes] makes text of column {column!r}, which only a preparation makes numbers "
        "of",
        "leave out --scale none, or the column",
        "Rows that are taken as they are must be numbers.",
    ),
    Row(
        "privacy-protection",
        (BUDGET, "protection of a site file"),
        "{where}noise takes the place of groups and limits",
        "leave out protection, or [privacy]",
        "What limits hold back, and whom groups join, depends on exact rows.",
    ),
    Row(
        "privacy-weights",
        (BUDGET, "weight_column of a site file"),
        "{where}rows with weights cannot have noise",
        "leave out weight_column",
        "The noise covers one row of weight 1. A row of weight 100 would need 100 times as much.",
    ),
    Row(
        "rules-budget",
        (RULES, BUDGET),
        "{where}[privacy], {rule} is for groups of rows, whose place noise takes",
        "leave it out, or the budget",
        "A sum with noise is over all rows. No group of it could be dominated, or agree.",
    ),
    Row(
        "rules-limits",
        (RULES, 'protection="limits"'),
        "{where}[privacy], {rule} is for groups of rows, and protection is 'limits'",
        "leave out one of the two",
        "Exact sums over any rows that a question names have no groups that could keep rules.",
    ),
    Row(
        "strict-plain",
        (STRICT, "no secure sums"),
        "{where}preset 'strict' tells sums of at least three sites only",
        "write secure = true under [federation], or leave the preset out",
        "Without masks the coordinator sees the sums of each site, as it would of a single one.",
    ),
    Row(
        "strict-alone",
        (STRICT, "allow_alone of a site file"),
        "{where}preset 'strict' tells sums of at least three sites only",
        "leave out allow_alone, or the preset",
        "allow_alone lets the coordinator find the sums of single sites.",
    ),
    Row(
        "colluders-alone",
        ("colluders under [privacy] of a site file", "no secure sums"),
        "{where}sites share noise under secure sums only;",
        "write secure = true under [federation], or leave it out",
        "Without masks each answer is seen alone, with a share of the noise only.",
    ),
    Row(
        "permits-insecure",
        ("[permits] of a site file", "insecure = true"),
        "{where}permits need a federation with certificates, not one that is insecure",
        "leave one of the two out",
        "A permit is known by the authority that vouches for the coordinator.",
    ),
    Row(
        "relay-rows",
        (RELAY, "[privacy], secure = true of its site file"),
        "{where}{option} is for sites with rows",
        "a relay sends sums as they are, so leave it out",
        "A relay has no rows to add noise for. Its sites have their own protection.",
    ),
)

STABILITIES = (
    Row(
        "stability-mixture",
        ("stability", MIXTURE),
        "stability is for clusters of k-means and fuzzy c-means",
        "leave it out",
        "Components may overlap, and clusters of replicates are compared row by row.",
    ),
    Row(
        "stability-chunks",
        ("stability", CHUNKS),
        "stability draws rows anew, which must be held at once, and those of {site} come in chunks",
        "leave it out",
        "A bootstrap sample draws each row from all rows of the site.",
    ),
)

SECTIONS = MappingProxyType(
    {
        "Leaving outliers out": TRIMMING,
        "Sites that lie": LYING,
        "A privacy budget": BUDGETS,
        "Noise at the sites": NOISES,
        "Secure sums": SECURES,
        "Relays": RELAYS,
        "Mixtures": MIXTURES,
        "Distances and missing values": DISTANCES,
        "Algorithms, starts and searches": STARTS,
        "Choosing the number of clusters": CHOICES,
        "Sites and their rows": SITES,
        "Files": FILES,
        "Stability": STABILITIES,
    }
)
"""The rows by what they are about, in the order of the page."""

REFUSALS: tuple[RefusedCombination, ...] = tuple(row for rows in SECTIONS.values() for row in rows)
"""All combinations that are refused."""

BY_KEY: Mapping[str, RefusedCombination] = MappingProxyType({row.key: row for row in REFUSALS})
"""The same by their names."""

"""The site file: all that a site decides for itself, in one file that stays there.

name = "north"
columns = ["age", "bmi"]

[source]
path = "patients.parquet"

[limits]
min_rows = 20
min_cluster_size = 5
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from fedcluster.core import Data, Limit, RowStream
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.io.cells import COMMA, POINT, kind_of, missing_in
from fedcluster.io.columns import Meanings, SourceSummary, first_twice, has_columns
from fedcluster.io.matrices import Matrix
from fedcluster.io.plugins import load_plugins
from fedcluster.io.reader import ColumnRoles, Reader, Table
from fedcluster.io.recoding import Recoding, checked_how
from fedcluster.io.records import check_keys
from fedcluster.io.rows import (
    FILE_OPTIONS,
    FederationSource,
    FileFingerprint,
    FileSource,
    Source,
    SqlSource,
    StreamedRows,
    error_prefix,
    readable,
)
from fedcluster.io.sources import OwnTable, open_rows, open_source, version_of
from fedcluster.io.table_rows import parquet_files
from fedcluster.options.choices import PROTECTIONS
from fedcluster.options.refusals import refused
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy.budget import Budget, PolicyLimits
from fedcluster.privacy.limits import PRESETS, Dominance, GroupCounter, Limits
from fedcluster.site.process import Cost

ROWS = 1 << 14
"""Rows that are read at a time for a summary."""
RULES = ("preset", "dominance", "sensitive", "diversity")
"""Keys of ``[privacy]`` that are about groups, and not about a budget."""
IN_MEMORY = 1 << 23
"""Values up to which a site keeps its rows in memory by default: 64 MB of them."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    r"""The content of a ``site.toml``.

    Parameters
    ----------
    name : str
        The site's name.
    source : FileSource, SqlSource or FederationSource
        Where its rows come from.
    columns : tuple of str, optional
        The columns that may be clustered by, in this order; without it all, but for the next.
    weight_column : str, optional
        The column with the rows' weights.
    group_column : str, optional
        The column that says whose row it is: then the limits count persons.
    label_column : str, optional
        The column with reference labels, for metrics that compare with them.
    id_column : str, optional
        The column with the rows' keys: it stays at the site, beside the clusters of its rows.
    codes : mapping of str to mapping of str to str
        By column, what all sites call each of the site's own codes.
    missing_values : tuple of str
        Values, of numbers or texts, that mean that there is none.
    factors : mapping of str to float
        What columns are multiplied with, which have another unit elsewhere.
    dates : mapping of str to str
        By column, what becomes of its dates, such as "age:2024-12-31"; others are left out.
    protection : {"groups", "limits"}, optional
        Whether steps see the means of groups of rows alone, or the rows themselves: "limits" is
        for a site that trusts the coordinator with its rows. By default groups over a network, and
        limits on the site's own machine.
    groups : Groups
        How rows are grouped, by ``[groups]`` and the rules under ``[privacy]``.
    limits : Limits
        What the site holds back; where rows are grouped, the rows behind the groups count.
    cost : Cost
        What one question may cost.
    policy : PolicyLimits
        Bounds on what is answered at all.
    privacy : Budget, optional
        What all answers to all runs together may cost; then every answer has noise, and rows are
        neither grouped nor limited.
    colluders : int, optional
        With it, under secure sums, the sites share the noise: so many of the others may work with
        the coordinator. Without it, this site adds all of it.
    values_in_memory : int, default=8388608
        Rows of at most so many values are held in memory, 8 bytes each; others come in chunks.
    plugins : tuple of str
        Modules that are installed here, whose formats, steps and preparations this site knows
        besides; they are imported when the file is read.
    federation, permits : mapping
        What a federation over a network adds, and whether it needs permits; read there.
    path : Path
        The file itself.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(folder.name, "rows.csv").write_text("age,bmi\n31,22.5\n47,30\n52,28\n")
    >>> path = Path(folder.name, "site.toml")
    >>> _ = path.write_text('name = "north"\n[source]\npath = "rows.csv"\n')
    >>> site = SiteFile.load(path)
    >>> site.client()
    Client('north', filters=[MinRows(n=2), MinClusterSize(p=2)])
    >>> site.client().data.X.shape
    (3, 2)
    >>> folder.cleanup()
    """

    name: str
    source: Source
    columns: tuple[str, ...] | None = None
    weight_column: str | None = None
    group_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    codes: Meanings = field(default_factory=dict)
    missing_values: tuple[str, ...] = ()
    factors: Mapping[str, float] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    protection: str | None = None
    groups: Groups = field(default_factory=Groups)
    limits: Limits = field(default_factory=Limits)
    cost: Cost = field(default_factory=Cost)
    policy: PolicyLimits = field(default_factory=PolicyLimits)
    privacy: Budget | None = None
    colluders: int | None = None
    values_in_memory: int = IN_MEMORY
    plugins: tuple[str, ...] = ()
    federation: Mapping[str, Any] = field(default_factory=dict)
    permits: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path("site.toml")

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read a site file.

        Raises
        ------
        InputError
            If it is not TOML, lacks a key, or has one that is unknown or of another type.
        """
        path = Path(path)
        try:
            with readable(path):
                content = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not TOML: {error}") from error
        file = _Toml(path, content)
        if plugins := file.texts("plugins"):
            load_plugins(plugins)
        return file.site()

    def roles(
        self, names: Sequence[str], columns: Sequence[str] | None = None, *, raw: bool = False
    ) -> ColumnRoles:
        """Return which of a table's columns plays which part.

        Parameters
        ----------
        names : sequence of str
            The table's columns.
        columns : sequence of str, optional
            Those that a federation clusters by; must be among the site's own.
        raw : bool
            Whether rows are still to be prepared: text and missing values are allowed.
        """
        for key in ("codes", "factors", "dates"):
            has_columns(f"site {self.name!r}, [{key}]: the source", names, getattr(self, key))
        weight, group, label = self.weight_column, self.group_column, self.label_column
        others = {weight, group, label, self.id_column}
        own = self.columns or [name for name in names if name not in others]
        for name in columns or ():
            if name not in own:
                raise InputError(
                    f"site {self.name!r} has no column {name!r} to cluster by; "
                    f"{self.path.name} allows {', '.join(own)}"
                )
        values = tuple(columns or own)
        coded = tuple(self.codes)
        roles = ColumnRoles(values, weight, group, label, raw=raw, coded=coded, meanings=self.codes)
        return replace(roles, dates=self.dates)

    def rows(self, columns: Sequence[str] | None = None, *, raw: bool = False) -> Data | RowStream:
        """Open the source; rows that are few are read at once, others come in chunks.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order, of those that the site allows; by default all.
        raw : bool
            Whether they are still to be prepared: text and missing values are allowed.
        """
        return self.held(self.opened(columns, raw=raw))

    def held(self, rows: StreamedRows) -> Data | RowStream:
        """Return rows in memory if they are few, else in chunks as before."""
        few = len(rows) * len(rows.columns) <= self.values_in_memory
        return rows.load() if few else rows

    def opened(self, columns: Sequence[str] | None = None, *, raw: bool = False) -> StreamedRows:
        """Open the source; its rows come in chunks, in the order in which they lie there."""
        owner = f"site {self.name!r}"
        rows = open_rows(
            self.source,
            lambda names: self.roles(names, columns, raw=raw),
            owner=owner,
            advise=self._advise,
        )
        if not raw and (coded := [name for name in self.codes if name in rows.columns]):
            raise refused("codes-unprepared", owner=owner, column=coded[0])
        return self._mended(rows, raw=raw)

    def _mended(self, rows: StreamedRows, *, raw: bool) -> StreamedRows:
        """Return rows whose values are meant as the file says."""
        factors = {name: x for name, x in self.factors.items() if name in rows.columns}
        recoding = Recoding(self.missing_values if raw else (), factors={self.name: factors})
        if not (recoding.missing or factors):
            return rows
        read = rows.read
        return replace(rows, read=lambda: (recoding.apply(each, self.name) for each in read()))

    def fingerprint(self) -> str:
        """Return what tells whether the rows have changed.

        That is the sizes and times of files, and of a database the answer to its query for the
        version or, where that answer was read already, a hash of the rows; "" where neither is.

        Raises
        ------
        InputError
            If a file is not there, or the database cannot be reached.
        """
        if isinstance(self.source, FederationSource):
            return ""
        if isinstance(self.source, SqlSource):
            held = self.source.held
            if self.source.version is None and held is not None:
                return str(held.digest)
            return version_of(self.source)
        return repr([FileFingerprint.now(path) for path in parquet_files(self.source.path)])

    def own_table(self) -> OwnTable | None:
        """Open the source as the table of the rows' keys; None where no column of them is named.

        Raises
        ------
        InputError
            If it cannot be read, or lacks that column.
        """
        if self.id_column is None:
            return None
        assert isinstance(self.source, FileSource)  # as the site file was read
        return OwnTable.open(self.source, f"site {self.name!r}", self.id_column)

    @property
    def groups_file(self) -> Path:
        """Where the site keeps who is grouped with whom: its own secret."""
        return self.path.with_suffix(".groups")

    @property
    def grouping(self) -> Grouping:
        """Groups of the site's rows, as they are kept from run to run."""
        roles = {
            "group_column": self.group_column,
            "weight_column": self.weight_column,
            "label_column": self.label_column,
        }
        named = {role: name for role, name in roles.items() if name is not None}
        return Grouping(self.groups, self.groups_file, named)

    def grouped_client(self) -> Client:
        """Return the client that answers with the means of groups, of all columns it may tell."""
        rows, limits = (lambda: self.rows(raw=True)), self.limits.filters
        return Client(self.name, rows, limits, self.grouping)

    def client(self, columns: Sequence[str] | None = None, *, raw: bool = False) -> Client:
        """Return the client that answers for the site; its rows are opened at the first task."""
        client = Client(self.name, lambda: self.rows(columns, raw=raw), self.limits.filters)
        if self.privacy is not None:
            client.filters, client.rows_per_person = (), self.privacy.group_size
            client.told = (self.told_privacy,)
        return client

    @property
    def told_privacy(self) -> Limit:
        """What the site tells of its privacy budget, which depends on no row."""
        budget = self.privacy
        told: dict[str, Any] = {} if budget is None else asdict(budget)
        told |= {} if self.colluders is None else {"colluders": self.colluders}
        return Limit("PrivacyBudget", tuple(told.items()))

    def summary(self) -> SourceSummary:
        """Read the source once and return what its columns hold.

        Raises
        ------
        InputError
            If it cannot be read.
        """
        owner = f"site {self.name!r}"
        self.own_table()
        with error_prefix(owner):
            opened = open_source(self.source, owner)
            if isinstance(opened, Matrix):
                return SourceSummary.from_chunks(opened.chunks())
            summary = _summary_of_tables(opened, owner, self.group_column)
            if not summary.n_rows:
                raise InputError(f"{self.source} has no rows")
            return summary

    def _advise(self, numeric: Sequence[str]) -> str:
        """Return what to do where a column is no number."""
        if not numeric:
            return "there is no other column"
        listed = ", ".join(f'"{name}"' for name in numeric)
        return f"write columns = [{listed}] in {self.path.name}"


def _summary_of_tables(tables: Sequence[Table], owner: str, group: str | None) -> SourceSummary:
    summary, counter = SourceSummary(), GroupCounter()
    texts = [] if group is None else [group]
    for table in tables:
        has_columns(owner, table.names, texts)
    named = ((table, [name for name in table.names if name]) for table in tables)
    for part in (part for table, names in named for part in table.parts(names, ROWS, texts)):
        summary.n_rows += part.rows.num_rows
        for name in part.rows.column_names:
            column = part.rows[name]
            summary.add(name, kind_of(column, part.table.decimal), missing_in(column))
        if group is not None:
            counter.add(Reader(owner, part).groups(group))
    summary.persons = counter.persons() if group else None
    return summary


@dataclass(frozen=True, slots=True)
class _Toml:
    """A table of a site file; every complaint names the file and the key."""

    path: Path
    content: Mapping[str, Any]
    within: str = ""

    def site(self) -> SiteFile:
        """Return the content of the whole file."""
        self.only([f.name for f in fields(SiteFile) if f.name != "path"])
        others = {key: self.maybe(key) for key in ("weight_column", "group_column", "label_column")}
        site = SiteFile(
            columns=self.texts("columns"),
            name=self.text("name").strip(),
            source=self.table("source").source(),
            **others,
            id_column=self.maybe("id_column"),
            codes=self.table("codes").codes(),
            missing_values=self.values("missing_values"),
            factors=self.table("factors").factors(),
            dates=self.table("dates").dates(),
            protection=self.one_of("protection", PROTECTIONS),
            groups=self.table("groups").groups(self.table("privacy").rules()),
            limits=self.table("limits").limits(),
            cost=self.table("cost").cost(),
            policy=self.table("policy").policy(),
            privacy=self.table("privacy").privacy() if "privacy" in self.content else None,
            colluders=self.table("privacy").colluders(),
            values_in_memory=self.whole("values_in_memory", 0, IN_MEMORY),
            plugins=self.texts("plugins") or (),
            federation=self.table("federation").content,
            permits=self.table("permits").content,
            path=self.path,
        )
        if site.privacy is not None:
            self.check_private(site)
        usual = Groups()
        if rules := [key for key in RULES if getattr(site.groups, key) != getattr(usual, key)]:
            site = self.with_rules(site, rules[0])
        used = [*(site.columns or ()), *filter(None, others.values())]
        if (twice := first_twice(used)) is not None:
            self.complain(f"column {twice!r} is named twice")
        if site.id_column in used and site.id_column != site.group_column:
            self.complain(f"id_column {site.id_column!r} is another column's part; name one")
        if site.id_column is not None and isinstance(site.source, SqlSource):
            self.refuse("database-keys")
        for name in site.codes:
            if name in (*others.values(), site.id_column):
                self.complain(f"[codes], {name!r} is no column to cluster by; leave it out there")
        return site

    def source(self) -> Source:
        """Return where the rows come from."""
        folder = self.path.parent
        if "federation" in self.content:
            return self.federation()
        if "url" in self.content:
            self.only(["url", "query", "password_file", "version"])
            secret = self.maybe("password_file")
            file = None if secret is None else folder / Path(secret).expanduser()
            version = self.maybe("version")
            return SqlSource(self.text("url"), self.text("query"), file, folder, version)
        if not self.content:
            self.complain('write path = "FILE" there, or url and query')
        self.only(["path", *FILE_OPTIONS])
        path = folder / Path(self.text("path")).expanduser()
        decimal = self.maybe("decimal")
        if decimal not in (None, POINT, COMMA):
            self.complain(f'decimal must be "." or ",", not {decimal!r}')
        texts = {key: self.maybe(key) for key in FILE_OPTIONS if key != "names"}
        return FileSource(path, self.texts("names"), **texts)

    def federation(self) -> FederationSource:
        """Return the federation that a relay speaks for."""
        self.only(["federation", "fewest", "lines", "quorum"])
        lines = self.content.get("lines", False)
        if not isinstance(lines, bool):
            self.complain(f"lines must be true or false, not {lines!r}")
        path = self.path.parent / Path(self.text("federation")).expanduser()
        fewest = self.whole("fewest", 3, 3)
        quorum = self.whole("quorum", fewest) if "quorum" in self.content else None
        return FederationSource(path, fewest, lines, quorum)

    def codes(self) -> Meanings:
        """Return what all sites call this site's codes."""
        codes = {}
        for name, given in self.content.items():
            texts = list(given.values()) if isinstance(given, Mapping) else []
            if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
                self.complain(
                    f'{name} must say what each code means, as in sex = {{ "1" = "M", "2" = "F" }}'
                )
            codes[name] = {code.strip(): text.strip() for code, text in given.items()}
        return codes

    def values(self, key: str) -> tuple[str, ...]:
        """Return a list of numbers and texts, all as texts."""
        given = self.content.get(key, [])
        if not isinstance(given, list) or not all(type(v) in (int, float, str) for v in given):
            self.complain(f'{key} must be a list of numbers and texts, as in [-999, "unknown"]')
        return tuple(str(value) for value in given)

    def factors(self) -> dict[str, float]:
        """Return what columns are multiplied with."""
        for name, factor in self.content.items():
            if type(factor) not in (int, float) or not 0 < abs(factor) < float("inf"):
                self.complain(f"{name} must be a number other than 0, as in sbp = 7.50062")
        return {name: float(factor) for name, factor in self.content.items()}

    def dates(self) -> dict[str, str]:
        """Return what becomes of dates, by column."""
        for name, how in self.content.items():
            try:
                known = isinstance(how, str) and checked_how(how) == how
            except InputError:
                known = False
            if not known:
                self.complain(
                    f'{name} must be "age:YYYY-MM-DD", "since:YYYY-MM-DD", "month" or "weekday"'
                )
        return dict(self.content)

    def rules(self) -> dict[str, Any]:
        """Return what groups keep besides their size, and the preset that says so."""
        given: dict[str, Any] = {}
        if self.one_of("preset", PRESETS) == "strict":
            strict = Groups.strict()
            given = {name: getattr(strict, name) for name in ("p", "dominance", "preset")}
        if "dominance" in self.content:
            given["dominance"] = self.dominance(self.content["dominance"])
        if (sensitive := self.texts("sensitive")) is not None:
            given["sensitive"] = sensitive
        return given | (
            {"diversity": self.whole("diversity", 1)} if "diversity" in self.content else {}
        )

    def dominance(self, given: Any) -> Dominance | None:
        """Return the rule that few rows do not dominate a sum."""
        if isinstance(given, bool):
            return Dominance() if given else None
        numbers = [*given.values()] if isinstance(given, Mapping) else [None]
        if any(type(each) not in (int, float) for each in numbers):
            self.complain(
                "dominance must be true, false or its numbers, as in "
                "dominance = { largest = 2, share = 0.9, rest = 0.1 }"
            )
        _Toml(self.path, given, f"{self.within}dominance: ").only(
            [f.name for f in fields(Dominance)]
        )
        try:
            return Dominance(**given)
        except ValueError as error:
            self.complain(str(error))

    def groups(self, rules: Mapping[str, Any]) -> Groups:
        """Return how the site groups its rows."""
        least = {"p": 2, "min_rows": 2, "generation": 1}
        self.only([*least, "scale"])
        given: dict[str, Any] = {
            key: self.whole(key, least[key]) for key in self.content if key in least
        }
        if (scale := self.one_of("scale", ("standard", "none"))) is not None:
            given["scale"] = scale
        try:
            return Groups(**{**rules, **given})
        except ValueError as error:
            self.complain(str(error))

    def limits(self) -> Limits:
        """Return the site's limits."""
        self.only([f.name for f in fields(Limits)])
        return Limits(**{name: self.whole(name, 1) for name in self.content})

    def policy(self) -> PolicyLimits:
        """Return the bounds on what is answered at all."""
        names = ("steps", "denied")
        self.only([f.name for f in fields(PolicyLimits)])
        given: dict[str, Any] = {key: self.texts(key) or () for key in names}
        given |= {key: self.whole(key, 1) for key in self.content if key not in names}
        return PolicyLimits(**given)

    def privacy(self) -> Budget | None:
        """Return the privacy budget of the site; None where the table has rules of groups only."""
        self.only([*(f.name for f in fields(Budget)), "colluders", *RULES])
        if self.content and not self.content.keys() - set(RULES):
            return None
        given: dict[str, Any] = {"group_size": self.whole("group_size", 1, 1)}
        for key in ("epsilon", "delta"):
            given[key] = self.content.get(key)
            if type(given[key]) not in (int, float):
                self.complain(f"write {key} there, a number, as in epsilon = 4.0 and delta = 1e-6")
        try:
            return Budget(**given)
        except InputError as error:
            self.complain(str(error))

    def colluders(self) -> int | None:
        """Return how many other sites may work with the coordinator, where noise is shared."""
        return self.whole("colluders", 0) if "colluders" in self.content else None

    def check_private(self, site: SiteFile) -> None:
        """Refuse what does not go together with noise."""
        if site.protection is not None or "limits" in self.content:
            self.refuse("privacy-protection")
        if site.weight_column is not None:
            self.refuse("privacy-weights")

    def with_rules(self, site: SiteFile, rule: str) -> SiteFile:
        """Return a site whose groups have rules: then its rows are grouped wherever it is asked."""
        if site.privacy is not None:
            self.refuse("rules-budget", rule=rule)
        if site.protection == "limits":
            self.refuse("rules-limits", rule=rule)
        told = {*(site.columns or ()), *filter(None, [site.label_column])}
        for name in site.groups.sensitive:
            if site.columns is not None and name not in told:
                self.complain(
                    f"[privacy], sensitive: {name!r} is not among columns, nor the label_column: "
                    "nothing is told of it, so leave it out"
                )
        if site.groups.preset == "strict" and site.federation:
            if site.federation.get("secure") is not True:
                self.refuse("strict-plain")
            elif site.federation.get("allow_alone"):
                self.refuse("strict-alone")
        return replace(site, protection="groups")

    def cost(self) -> Cost:
        """Return what one question may cost the site."""
        self.only([f.name for f in fields(Cost)])
        return Cost(**{name: self.whole(name, 1) for name in self.content})

    def only(self, known: Sequence[str]) -> None:
        """Refuse keys that nobody reads."""
        try:
            check_keys(self.content, known)
        except InputError as error:
            self.complain(str(error))

    def text(self, key: str) -> str:
        """Return a text that must be there."""
        value = self.maybe(key)
        if value is None:
            self.complain(f"{key!r} is missing")
        return value

    def maybe(self, key: str) -> str | None:
        """Return a text, if it is there."""
        value = self.content.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.complain(f"{key} must be a text, not {value!r}")
        return value

    def one_of(self, key: str, names: Sequence[str]) -> str | None:
        """Return one of some texts, if it is there."""
        value = self.maybe(key)
        if value is not None and value not in names:
            self.complain(f"{key} must be one of {', '.join(names)}, not {value!r}")
        return value

    def whole(self, key: str, least: int, default: int = 0) -> int:
        """Return a whole number that is not too small."""
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.complain(f"{key} must be a whole number of at least {least}, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, if it is there."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            self.complain(f'{key} must be a list of names, as in {key} = ["age", "bmi"]')
        return tuple(value)

    def table(self, key: str) -> _Toml:
        """Return a table of the file, empty if it is not there."""
        value = self.content.get(key, {})
        if not isinstance(value, Mapping):
            self.complain(f"{key} must be a table, [{key}]")
        return _Toml(self.path, value, f"[{key}], ")

    def refuse(self, key: str, **values: Any) -> NoReturn:
        """Refuse keys that do not go together."""
        raise refused(key, where=f"{self.path}: {self.within}", **values)

    def complain(self, what: str) -> NoReturn:
        """Say what is wrong."""
        raise InputError(f"{self.path}: {self.within}{what}")

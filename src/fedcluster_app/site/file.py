"""The site file: all decisions of a site in one file, which stays at the site.

name = "north"
columns = ["age", "bmi"]

[source]
path = "patients.parquet"

[limits]
min_rows = 20
min_cluster_size = 5
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, structs

from fedcluster.core import Data, Filter, RowStream
from fedcluster.core.files import atomic_write, check_system, lock, opened_folder, write_durably
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.frames.cells import affine, checked_how, kind_of, missing_in
from fedcluster.frames.columns import (
    Meanings,
    SourceSummary,
    chosen_columns,
    columns_of,
    first_twice,
    has_columns,
    note_names,
    own_names,
)
from fedcluster.frames.reader import ColumnRoles, Reader, Recoding
from fedcluster.frames.reader import Table as RowTable
from fedcluster.frames.rows import (
    FileFingerprint,
    FileSource,
    Source,
    StreamedRows,
    WarehouseSource,
    error_prefix,
)
from fedcluster.options.refusals import refused
from fedcluster.privacy import Grouping, Groups
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure, PersonCounter
from fedcluster.privacy.groups import SUFFIX, others_of
from fedcluster.privacy.limits import Dominance, MinClusterSize, MinRows
from fedcluster.privacy.partition import OtherSettingsError, Partition
from fedcluster.texts import command_line
from fedcluster_app.records import (
    FACTOR,
    Codes,
    Factor,
    FileKeys,
    MissingValues,
    Names,
    Positive,
    Table,
    Text,
    load_record,
    record,
)
from fedcluster_app.site.process import Cost
from fedcluster_app.tables.matrices import Matrix
from fedcluster_app.tables.means_file import read_means
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.tables.sources import (
    OwnTable,
    hold,
    names_of,
    open_rows,
    open_source,
    version_of,
)
from fedcluster_app.tables.table_rows import parquet_files
from fedcluster_app.trust.audit_log import GroupsLog
from fedcluster_app.trust.site_state import state_folder
from fedcluster_app.wire.policy import PolicyLimits

T = TypeVar("T")

RULES = ("preset", "dominance", "sensitive", "diversity")
"""Keys of ``[privacy]`` that concern groups, not a budget."""
GROUPED_BY = ("p", "generation", "scale", "min_rows")
MADE_BY = (
    *("columns", "group_column", "weight_column", "label_column", "codes", "rename"),
    *("missing_values", "factors", "dates"),
)
"""Settings on which the means in a file depend."""
IN_MEMORY = 1 << 23
"""Number of values up to which a site keeps its rows in memory by default: 64 MB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the sums of a site.

    If a site names a group column, they count persons instead of rows.

    Parameters
    ----------
    min_rows : int, default=2
        With fewer rows in total, the site sends nothing.
    min_cluster_size : int, default=2
        A sum over fewer rows is not sent.
    """

    min_rows: Positive = 2
    min_cluster_size: Positive = 2

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The limits as filters."""
        return MinRows(self.min_rows), MinClusterSize(self.min_cluster_size)


@dataclass(frozen=True, slots=True)
class SiteFile:
    r"""The content of a ``site.toml``.

    Parameters
    ----------
    name : str
        The site's name.
    source : FileSource or WarehouseSource
        The source of its rows.
    columns : tuple of str, optional
        The columns that may be clustered by, in this order; by default all except the following.
    weight_column : str, optional
        The column with the rows' weights.
    group_column : str, optional
        The column with the person of each row; limits then count persons.
    label_column : str, optional
        The column with reference labels, for metrics that compare with them.
    id_column : str, optional
        The column with the rows' keys, which stays at the site, beside the clusters of its rows.
    codes : mapping of str to mapping of str to str
        By column, the common names of the site's own codes.
    missing_values : tuple of str
        Numbers or texts that mark a missing value.
    rename : mapping of str to str
        The federation's names of columns that have another name here.
    factors : mapping of str to float or str
        The factors of columns that have another unit elsewhere, or conversions such as "1.8x+32".
    dates : mapping of str to str
        By column, how dates become numbers, such as "age:2024-12-31"; other dates are left out.
    protection : {"groups", "limits"}, optional
        Whether steps see only the means of groups of rows, or the rows themselves: "limits" is for
        a site that trusts the coordinator with sums of its rows. By default groups over a network,
        and limits on the site's own machine.
    groups : Groups
        The grouping of rows, from ``[groups]`` and the rules under ``[privacy]``.
    limits : Limits
        The limits of the site; if rows are grouped, they count the rows in the groups.
    cost : Cost
        The largest cost of one question.
    policy : PolicyLimits
        Bounds on the questions that are answered.
    privacy : Budget, optional
        The privacy budget for all answers in all runs; with one, every answer has noise, and rows
        are neither grouped nor limited.
    colluders : int, optional
        With secure sums: the number of other sites that may collude with the coordinator, while the
        sites share the noise. By default, this site adds all of the noise.
    values_in_memory : int, default=8388608
        The largest number of values, 8 bytes each, that are held in memory; more rows come in
        chunks.
    plugins : tuple of str
        Installed modules with further formats, steps and preparations for this site; they are
        imported when the file is read.
    federation : mapping
        The table for a federation over a network, which is read elsewhere.
    permits : bool
        Whether to answer only questions that an accepted permit covers.
    path : Path
        The file itself.
    confirmed : tuple of str, optional
        Without ``columns``: those whose names may leave, as the site's owner has seen them.

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
    rename: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float | str] = field(default_factory=dict)
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
    permits: bool = False
    path: Path = Path("site.toml")
    confirmed: tuple[str, ...] | None = None

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read a site file.

        Raises
        ------
        InputError
            If it is not TOML, if a key is missing, unknown or of a wrong type, or if this is
            Windows.
        """
        check_system()
        path = Path(path)
        written = load_record(path, _Written)
        with error_prefix(str(path)):
            load_plugins(written.plugins)
            return written.site(path)

    def roles(
        self, names: Sequence[str], columns: Sequence[str] | None = None, *, raw: bool = False
    ) -> ColumnRoles:
        """Return the roles of a table's columns.

        Parameters
        ----------
        names : sequence of str
            The table's columns.
        columns : sequence of str, optional
            The columns that a federation clusters by, which must be among the site's own.
        raw : bool
            Whether rows are not prepared yet, so that text and missing values are allowed.
        """
        for key in ("rename", "codes", "factors", "dates"):
            has_columns(f"site {self.name!r}, [{key}]: the source", names, getattr(self, key))
        weight, group, label = self.weight_column, self.group_column, self.label_column
        others = {weight, group, label, self.id_column}
        confirmed = names if self.confirmed is None else self.confirmed
        seen = (
            f": run {command_line('check', self.path.name)}, which shows the names that may leave"
        )
        has_columns(f"site {self.name!r}", names, confirmed, seen)
        own = self.columns or [name for name in confirmed if name not in others]
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
        """Open the source; few rows are read at once, and many come in chunks.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order, of those that the site allows; by default all.
        raw : bool
            Whether rows are not prepared yet, so that text and missing values are allowed.
        """
        return self.held(self.opened(columns, raw=raw))

    def held(self, rows: StreamedRows) -> Data | RowStream:
        """Return rows in memory if they are few, otherwise in chunks as before."""
        few = len(rows) * len(rows.columns) <= self.values_in_memory
        return rows.load() if few else rows

    def opened(self, columns: Sequence[str] | None = None, *, raw: bool = False) -> StreamedRows:
        """Open the source; its rows come in chunks, in the order of the source."""
        owner, own = f"site {self.name!r}", dict[str, str]()

        def roles(names: Sequence[str]) -> ColumnRoles:
            own.update(self._own_names(names, columns or ()))
            here = None if columns is None else [own.get(name, name) for name in columns]
            return self.roles(names, here, raw=raw)

        rows = open_rows(
            self.source, roles, owner=owner, advise=self._advise, said=self._said_names
        )
        if not raw and (coded := [name for name in self.codes if name in rows.columns]):
            raise refused("codes-unprepared", owner=owner, column=coded[0])
        return self._mended(rows, raw=raw).called(own)

    @property
    def columns_file(self) -> Path:
        """File with the names of columns that the site's owner has seen, and that may leave."""
        return self.state_folder / f"{self.path.stem}.columns"

    def told_names(self) -> tuple[str, ...]:
        """Return the source's names of the columns that a federation would be told."""
        opened = open_source(self.source, f"site {self.name!r}", self._said_names)
        return self.roles(names_of(opened), raw=True).chosen

    def confirm(self) -> tuple[str, ...]:
        """Let the names of the present columns leave, and no others; return them."""
        names = replace(self, confirmed=None).told_names()
        with atomic_write(self.columns_file) as temporary:
            write_durably(temporary, json.dumps({"columns": names}, indent=1).encode())
        return names

    def for_network(self) -> SiteFile:
        """Return the site with the names of columns that may leave.

        Raises
        ------
        InputError
            If nobody at the site has said which.
        """
        if self.columns is not None:
            return self
        if not self.columns_file.exists():
            how = command_line("check", self.path.name)
            check = f"run {how}, which shows them and lets them leave, "
            raise InputError(
                f"{self.path}: nobody at this site has confirmed which names of columns may "
                f"leave: {f'{check}or ' if self.federation else ''}write columns = [...] there"
            )
        return replace(self, confirmed=load_record(self.columns_file, _Confirmed).columns)

    @property
    def _said_names(self) -> list[str]:
        """Names of the source's columns that the file mentions, or that were confirmed."""
        roles = (self.weight_column, self.group_column, self.label_column, self.id_column)
        named = (self.columns or self.confirmed or (), self.codes, self.rename, self.factors)
        return [*filter(None, roles), *chain(*named, self.dates)]

    def _own_names(self, names: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
        """Return the source's names of columns that are renamed, or wanted in another spelling."""
        has_columns(f"site {self.name!r}, [rename]: the source", names, self.rename)
        shown = [self.rename.get(name, name) for name in names]
        if self.rename and (twice := first_twice(filter(None, shown))) is not None:
            raise InputError(f"site {self.name!r}, [rename]: two columns are called {twice!r}")
        back = dict(zip(shown, names, strict=True))
        spelled = own_names(shown, wanted)
        note_names(f"site {self.name!r}", spelled)
        new = {shown: name for shown, name in back.items() if shown != name}
        rest = {shown: name for shown, name in new.items() if shown not in spelled.values()}
        return rest | {name: back[each] for name, each in spelled.items()}

    def _mended(self, rows: StreamedRows, *, raw: bool) -> StreamedRows:
        """Return rows with the codes, factors and missing values of the file applied."""
        factors = {n: affine(str(x)) for n, x in self.factors.items() if n in rows.columns}
        recoding = Recoding(self.missing_values, factors={self.name: factors})
        return recoding.in_chunks(rows, self.name, gaps=raw)

    def fingerprint(self) -> str:
        """Return a fingerprint of the rows, which changes when they do.

        It consists of the sizes and times of files or, for a database, of the result of its version
        query or, if the rows were read already, of their hash; "" if there is neither.

        Raises
        ------
        InputError
            If a file is missing, or the database cannot be reached.
        """
        if isinstance(self.source, WarehouseSource):
            held = self.source.held
            if self.source.version is None and held is not None:
                return str(held.digest)
            return version_of(self.source)
        return repr([FileFingerprint.now(path) for path in parquet_files(self.source.path)])

    def kept(self, how: Callable[..., WarehouseSource] = hold) -> SiteFile:
        """Return the site with the present rows of its database or store, if it has one."""
        if not isinstance(self.source, WarehouseSource):
            return self
        parts = (self.weight_column, self.group_column, self.label_column, self.id_column)
        # settings that name columns, which must exist even if not chosen
        named = (self.codes, self.rename, self.dates)
        own = [*(self.columns or ()), *filter(None, parts), *chain(*named)]
        wanted = None if self.columns is None else list(dict.fromkeys(own))
        with error_prefix(f"site {self.name!r}"):
            return replace(self, source=how(self.source, wanted))

    def own_table(self) -> OwnTable | None:
        """Open the source as the table of the rows' keys; None if no column of keys is named.

        Raises
        ------
        InputError
            If the source cannot be read or lacks that column.
        """
        if self.id_column is None:
            return None
        assert isinstance(self.source, FileSource)  # checked when the site file was read
        return OwnTable.open(self.source, f"site {self.name!r}", self.id_column)

    @property
    def groups_file(self) -> Path:
        """File with the secret partition into groups.

        Site files of one folder with the same source share it, so that its rows are grouped once.
        """
        own = self.state_folder / f"{self.path.stem}{SUFFIX}"
        shared = [] if own.exists() else others_of(own)
        return next((each for each in shared if Partition.read(each).source == self._where), own)

    @property
    def _where(self) -> str:
        """The source with all that chooses its rows, also if the folder moves or a link leads."""
        source, folder = self.source, self.path.absolute().parent.resolve()
        if isinstance(source, FileSource):
            path = source.path.resolve()
            path = path.relative_to(folder) if path.is_relative_to(folder) else path
            return repr(replace(source, path=path))
        return repr([source.url, source.query, source.table, source.where])

    @property
    def state_folder(self) -> Path:
        """Folder of what the site keeps for itself; see `fedcluster_app.trust.site_state`."""
        return state_folder(self.path.absolute().parent)

    @property
    def grouping(self) -> Grouping:
        """Groups of the site's rows, kept from run to run."""
        roles = {
            "group_column": self.group_column,
            "weight_column": self.weight_column,
            "label_column": self.label_column,
        }
        named = {role: name for role, name in roles.items() if name is not None}
        self._check_means()
        sensitive = tuple(self.rename.get(name, name) for name in self.groups.sensitive)
        groups = replace(self.groups, sensitive=sensitive)
        return Grouping(groups, self.groups_file, named, self._groups_log, self._where)

    def _check_means(self) -> None:
        """Raise an error if another site file of the folder has means, perhaps of these rows.

        A file of means does not tell which rows are in its groups.
        """
        others = sorted(self.path.absolute().parent.glob("*.means.parquet"))
        if others and not self.has_means:
            raise InputError(
                f"{self.path}: the rows may be in the groups of {others[0].name}, and a second "
                "grouping would reveal single rows: answer from that file; other rows need a "
                "folder "
                "of their own"
            )

    @property
    def _groups_log(self) -> GroupsLog | None:
        """What the log tells of the groups, None without a federation."""
        if not self.federation:
            return None
        with error_prefix(f"{self.path}: [federation]"):
            return GroupsLog(self.name, self.path.absolute().parent, self.federation)

    def check_groups(self, columns: Sequence[str] | None = None) -> None:
        """Check that the groups are those of which the log tells, if there are any of either.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns of a site that starts. Then they and other settings must be those of the
            groups, and a file of which a kill kept the log from telling is noted in the log.

        Raises
        ------
        InputError
            If the file of groups is missing, an older copy, another site's or of other settings.
        """
        log, file = self._groups_log, self.groups_file
        if log is None or not self.is_grouped or self.has_means:
            return
        with opened_folder(file.parent) as folder:
            lock(folder)
            kept = Partition.read(file) if file.exists() else None
            log.check(file, kept)
            if columns is None or kept is None:
                return
            log.note(file, kept.digest)
            roles = ("group_column", "weight_column", "label_column")
            layout = {role: getattr(self, role) or "none" for role in roles}
            layout |= {"unit": "persons" if self.group_column else "rows", **self.groups.rules}
            try:
                Partition.load(file, self.groups.p, columns, self.groups.generation, layout)
            except OtherSettingsError as error:
                why = f"{error}; fedcluster check tells what to do if the rows are those of others"
                raise InputError(why) from error

    def grouped_client(self) -> Client:
        """Return the client that answers with the means of groups, for all disclosed columns."""
        load = self.means if self.has_means else partial(self.rows, raw=True)
        return Client(self.name, load, self.disclosure, self.grouping)

    @property
    def means_file(self) -> Path:
        """File with the means of all groups, for a table that is grouped once."""
        return self.path.with_suffix(".means.parquet")

    @property
    def has_means(self) -> bool:
        """Whether questions are answered from the means in a file."""
        return self.is_grouped and self.means_file.exists()

    def means(self) -> Data:
        """Return the means of all groups from their file.

        Raises
        ------
        InputError
            If the source or the settings of the groups have changed since.
        """
        data, about = read_means(self.means_file)
        kept, now = about["made"], self.means_made_of()
        known = Partition.empty(kept["p"], (), kept["generation"])
        for what in ("generation", *sorted(now.keys() - {"source"})):
            known.check(self.means_file, what, kept.get(what), now[what])
        if kept["source"] != now["source"]:
            raise InputError(
                f"{self.means_file}: the source has changed since its rows were grouped; other "
                "groups would tell of single rows: put it back as it was; other rows need a "
                "folder of "
                "their own"
            )
        if self.confirmed is None:
            return data
        confirmed = {self.rename.get(name, name) for name in self.confirmed}
        names = [column.name for column in columns_of(data) if column.name in confirmed]
        return chosen_columns(data, names, f"site {self.name!r}", raw=True)

    def means_made_of(self) -> dict[str, Any]:
        """Return the source and the settings of the groups as JSON-compatible values."""
        groups = self.groups
        made: dict[str, Any] = {each: getattr(groups, each) for each in GROUPED_BY}
        made |= {**groups.rules, "[limits]": asdict(self.limits)}
        made |= {option: getattr(self, option) for option in MADE_BY}
        made["source"] = [self._where, self.fingerprint()]
        return json.loads(json.dumps(made))  # type: ignore[no-any-return]

    def client(self, columns: Sequence[str] | None = None, *, raw: bool = False) -> Client:
        """Return the client that answers for the site; its rows are opened at the first task."""
        return Client(self.name, lambda: self.rows(columns, raw=raw), self.disclosure)

    @property
    def is_grouped(self) -> bool:
        """Whether rows are grouped over a network."""
        return self.protection != "limits" and self.privacy is None

    @property
    def disclosure(self) -> Disclosure:
        """Rules on what leaves the site, other than those of groups."""
        if self.privacy is None:
            return Disclosure.of(self.limits.filters)
        return Disclosure(
            budget=self.privacy, colluders=self.colluders, rows_per_person=self.privacy.group_size
        )

    def summary(self) -> SourceSummary:
        """Read the source once and return a summary of its columns.

        Raises
        ------
        InputError
            If it cannot be read.
        """
        owner = f"site {self.name!r}"
        self.own_table()
        with error_prefix(owner):
            opened = open_source(self.source, owner, self._said_names)
            if isinstance(opened, Matrix):
                return SourceSummary.from_chunks(opened.chunks())
            summary = _summary_of_tables(opened, owner, self.group_column)
            if not summary.n_rows:
                raise InputError(f"{self.source} has no rows")
            return summary

    def _advise(self, numeric: Sequence[str]) -> str:
        """Return advice on a column that is not numeric."""
        if not numeric:
            return "there is no other column"
        names = ", ".join(f'"{name}"' for name in numeric)
        return f"write columns = [{names}] in {self.path.name}"


def _summary_of_tables(tables: Sequence[RowTable], owner: str, group: str | None) -> SourceSummary:
    summary, counter = SourceSummary(), PersonCounter()
    texts = [] if group is None else [group]
    for table in tables:
        has_columns(owner, table.names, texts)
    named = ((table, [name for name in table.names if name]) for table in tables)
    # Number of rows that are read at a time for a summary.
    for part in (part for table, names in named for part in table.parts(names, 1 << 14, texts)):
        summary.n_rows += part.rows.num_rows
        for name in part.rows.column_names:
            column = part.rows[name]
            summary.add(name, kind_of(column, part.table.decimal), missing_in(column))
        if group is not None:
            counter.add(Reader(owner, part).groups(group))
    summary.persons = counter.persons() if group else None
    return summary


DateRule = Annotated[
    str,
    Meta(
        pattern=r"^((age|since):\d{4}-\d\d-\d\d|month|weekday|hour)(:dmy|:mdy)?$",
        description='"age:YYYY-MM-DD", "since:YYYY-MM-DD", "month", "weekday" or "hour" (of '
        'times), with ":mdy" where months come first',
    ),
]
Share = Annotated[float | None, Meta(description="a number, as in epsilon = 4.0 and delta = 1e-6")]
DominanceRule = Annotated[
    bool | Table | None,
    Meta(
        description="true, false or its numbers, as in "
        "dominance = { largest = 2, share = 0.9, rest = 0.1 }"
    ),
]


def _table(name: str, content: Any, kind: type[T], key: str = "") -> T:
    """Return a table of the file as a record, or the content under a key in it."""
    try:
        return record(content, kind)
    except InputError as error:
        raise InputError(f"[{name}], {key}{error}") from error


@dataclass(frozen=True, kw_only=True)
class _File(FileKeys):
    path: Text

    def source(self, folder: Path) -> Source:
        """Return the source of the rows."""
        return FileSource(**{**asdict(self), "path": folder / Path(self.path).expanduser()})


class _Database(Struct, forbid_unknown_fields=True):
    url: Text
    query: Text | None = None
    password_file: Text | None = None
    version: Text | None = None
    table: Text | None = None
    where: Text | None = None
    order: Text | None = None

    def source(self, folder: Path) -> Source:
        """Return the source of the rows."""
        secret = self.password_file and folder / Path(self.password_file).expanduser()
        given = {**structs.asdict(self), "password_file": secret or None, "folder": folder}
        source = WarehouseSource(**given)
        with error_prefix("[source]"):
            source.check()
        return source


class _Groups(Struct, forbid_unknown_fields=True):
    p: Annotated[int, Meta(ge=2)] = 5
    min_rows: Annotated[int, Meta(ge=2)] = 20
    scale: Literal["standard", "none"] = "standard"
    generation: Positive = 1


class _Privacy(Struct, forbid_unknown_fields=True):
    epsilon: Share = None
    delta: Share = None
    group_size: Positive = 1
    colluders: Annotated[int, Meta(ge=0)] | None = None
    preset: Literal["standard", "strict"] = "standard"
    dominance: DominanceRule = None
    sensitive: Names = ()
    diversity: Positive = 1

    def groups(self, content: Table) -> Groups:
        """Return the site's groups, with their rules other than size."""
        usual = Groups.strict() if self.preset == "strict" else Groups()
        dominance = usual.dominance if self.dominance is None else None
        if self.dominance:
            numbers = {} if self.dominance is True else self.dominance
            dominance = _table("privacy", numbers, Dominance, "dominance: ")
        _table("groups", content, _Groups)
        rules = {"dominance": dominance, "sensitive": self.sensitive, "diversity": self.diversity}
        more: dict[str, Any] = {**rules, **content}
        try:
            return replace(usual, **more)
        except ValueError as error:
            raise InputError(f"[groups], {error}") from error

    def budget(self) -> Budget:
        """Return the privacy budget of the site."""
        for key in ("epsilon", "delta"):
            if getattr(self, key) is None:
                raise InputError(
                    f"[privacy], write {key} there, a number, as in epsilon = 4.0 and delta = 1e-6"
                )
        values = {key: getattr(self, key) for key in ("epsilon", "delta", "group_size")}
        return _table("privacy", values, Budget)


class _Confirmed(Struct, forbid_unknown_fields=True):
    columns: Names


class _Permits(Struct, forbid_unknown_fields=True):
    required: bool = False


class _Written(Struct, forbid_unknown_fields=True):
    """A site file as written, with each table read separately so that errors name it."""

    name: Text
    source: Table = {}
    columns: Names | None = None
    weight_column: Text | None = None
    group_column: Text | None = None
    label_column: Text | None = None
    id_column: Text | None = None
    codes: Table = {}
    missing_values: MissingValues = []
    rename: Table = {}
    factors: Table = {}
    dates: Table = {}
    protection: Literal["groups", "limits"] | None = None
    groups: Table = {}
    limits: Table | None = None
    cost: Table = {}
    policy: Table = {}
    privacy: Table | None = None
    values_in_memory: Annotated[int, Meta(ge=0)] = IN_MEMORY
    plugins: Names = ()
    federation: Table = {}
    permits: Table = {}

    def site(self, path: Path) -> SiteFile:
        """Return the site described by the file.

        Raises
        ------
        InputError
            If a table has a key that is unknown or of a wrong type, or if keys are incompatible.
        """
        as_it_is = (
            *("columns", "weight_column", "group_column", "label_column", "id_column"),
            *("protection", "values_in_memory", "plugins", "federation"),
        )
        codes = _table("codes", self.codes, dict[str, Codes])
        privacy = _table("privacy", self.privacy or {}, _Privacy)
        only_rules = bool(self.privacy) and not set(self.privacy or ()) - set(RULES)
        has_budget = self.privacy is not None and not only_rules
        site = SiteFile(
            name=self.name.strip(),
            source=self._source(path.parent),
            **{key: getattr(self, key) for key in as_it_is},
            codes={name: {a.strip(): b.strip() for a, b in codes[name].items()} for name in codes},
            missing_values=tuple(map(str, self.missing_values)),
            rename=_table("rename", self.rename, dict[str, Text]),
            factors=_table("factors", self.factors, dict[str, Factor]),
            dates=_table("dates", self.dates, dict[str, DateRule]),
            groups=privacy.groups(self.groups),
            limits=_table("limits", self.limits or {}, Limits),
            cost=_table("cost", self.cost, Cost),
            policy=_table("policy", self.policy, PolicyLimits),
            privacy=privacy.budget() if has_budget else None,
            colluders=privacy.colluders,
            permits=_table("permits", self.permits, _Permits).required,
            path=path,
        )
        self._check_values(site)
        self._check_columns(site)
        if site.privacy is not None and (site.protection is not None or self.limits is not None):
            raise refused("privacy-protection", where="")
        if site.privacy is not None and site.weight_column is not None:
            raise refused("privacy-weights", where="")
        usual = Groups()
        rules = [key for key in RULES if getattr(site.groups, key) != getattr(usual, key)]
        return _with_rules(site, rules[0]) if rules else site

    def _source(self, folder: Path) -> Source:
        """Return the source of the rows."""
        if not self.source:
            raise InputError('[source], write path = "FILE" there, or url and query')
        kind: type[_File | _Database] = _Database if "url" in self.source else _File
        return _table("source", self.source, kind).source(folder)

    def _check_values(self, site: SiteFile) -> None:
        """Raise an error for invalid factors and dates."""
        for name, factor in site.factors.items():
            try:
                affine(str(factor))
            except ValueError as error:
                raise InputError(f"[factors], {name} must be {FACTOR}, not {factor}") from error
        for how in site.dates.values():
            checked_how(how)

    def _check_columns(self, site: SiteFile) -> None:
        """Raise an error for columns with two roles."""
        parts = list(filter(None, [self.weight_column, self.group_column, self.label_column]))
        used = [*(self.columns or ()), *parts]
        if (twice := first_twice(used)) is not None:
            raise InputError(f"column {twice!r} is named twice")
        if self.id_column in used and self.id_column != self.group_column:
            raise InputError(f"id_column {self.id_column!r} is another column's part; name one")
        if self.id_column is not None and isinstance(site.source, WarehouseSource):
            raise refused("database-keys", where="")
        for name in site.codes:
            if name in (*parts, self.id_column):
                raise InputError(
                    f"[codes], {name!r} is no column to cluster by; leave it out there"
                )


def _with_rules(site: SiteFile, rule: str) -> SiteFile:
    """Return a site whose groups have rules, so that its rows are always grouped."""
    if site.privacy is not None:
        raise refused("rules-exact", where="", rule=rule, instead="a privacy budget")
    if site.protection == "limits":
        raise refused("rules-exact", where="", rule=rule, instead="protection 'limits'")
    disclosed = {*(site.columns or ()), *filter(None, [site.label_column])}
    for name in site.groups.sensitive:
        if site.columns is not None and name not in disclosed:
            raise InputError(
                f"[privacy], sensitive: {name!r} is not among columns, nor the label_column: "
                "nothing is told of it, so leave it out"
            )
    if site.groups.preset == "strict" and site.federation:
        if site.federation.get("secure") is not True:
            raise refused("strict-secure", where="", do="write secure = true under [federation]")
        if site.federation.get("allow_alone"):
            raise refused("strict-secure", where="", do="leave out allow_alone")
    return replace(site, protection="groups")

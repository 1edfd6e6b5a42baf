"""Combinations that are refused: each row of the table is reached, before a site is asked."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from secure_sites import STEPS, federation
from test_budget import ByHand, responder
from typer.testing import CliRunner

import fedcluster
from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans, select_k
from fedcluster.algorithms import FFCM, FKM, KFed, Lloyd
from fedcluster.core import Column, Data, Engine, State
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, SelectK, execute, fit_of, job_from_json
from fedcluster.model import Model
from fedcluster.options.refusals import RefusedCombination, table
from fedcluster.preprocessing import NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.privacy import Groups
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.recipes.combinations import CONDITIONS
from fedcluster.recipes.specifications import KINDS, Fit, RunOptions
from fedcluster.selection import Rule
from fedcluster_app.audit.evidence import evidence
from fedcluster_app.cli import app
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.runs import content_of
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.site.membership import Membership, site_permits, site_secure
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

ROOT = Path(__file__).parents[1]

ROWS = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (40, 2)) for c in (0.0, 9.0, 18.0)])
PARTS = {f"s{i}": ROWS[i::4] for i in range(4)}
COLUMNS = ("x0", "x1")
KNOWN = Model(ROWS[[0, 50, 100]], np.ones(3), COLUMNS, {"name": "Lloyd"})
BOUNDS = ([-9.0, -9.0], [30.0, 30.0])
IGNORE = PreprocessingSpec(missing="ignore")
PRIVATE: Mapping[str, Any] = {"epsilon": 50.0, "bounds": BOUNDS}


class Chunks:
    """Rows in two chunks."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def chunks(self) -> Iterator[Data]:
        yield Data(self.rows[:15])
        yield Data(self.rows[15:])

    def load(self) -> Data:
        return Data(self.rows)


# The sites


def plain() -> LocalEngine:
    return LocalEngine(Client(name, Data(rows)) for name, rows in PARTS.items())


def grouped() -> Engine:
    how = Groups(p=5, min_rows=10)
    return LocalEngine(Client(name, Data(rows), protection=how) for name, rows in PARTS.items())


def chunked() -> Engine:
    return LocalEngine(Client(name, Chunks(rows)) for name, rows in PARTS.items())


def tiny() -> Engine:
    """Sites with fewer rows than could describe the clusters."""
    return LocalEngine(Client(f"s{i}", Data(rows)) for i, rows in enumerate(np.split(ROWS, 30)))


def weighed() -> LocalEngine:
    return LocalEngine(
        Client(name, Data(rows, np.full(len(rows), 2.0))) for name, rows in PARTS.items()
    )


def owned() -> LocalEngine:
    """Sites that say whose each row is, and not how many of a person count."""
    return LocalEngine(
        Client(name, Data(rows, groups=np.arange(len(rows)) // 2)) for name, rows in PARTS.items()
    )


def budgeted() -> Engine:
    rules = Disclosure(budget=Budget(2.0, 1e-6))
    return LocalEngine(Client(name, Data(rows), rules) for name, rows in PARTS.items())


def texts() -> Engine:
    """Sites with a column of text."""
    column = Column("ward", "text", ("a", "b"))
    rows = {name: np.column_stack([x[:, 0], np.arange(len(x)) % 2]) for name, x in PARTS.items()}
    return LocalEngine(
        Client(name, Data(x, columns=(Column("age"), column))) for name, x in rows.items()
    )


def wired() -> RemoteEngine:
    """Sites behind the wire, in this process."""
    engine = RemoteEngine(
        federation({name: Data(rows) for name, rows in PARTS.items()}, secure=False), PARTS
    )
    engine.choose(COLUMNS)
    return engine


def wired_of(
    kind: Callable[[], LocalEngine], *, is_secure: bool = False
) -> Callable[[], RemoteEngine]:
    """The same sites behind the wire, asked with noise."""

    def wired() -> RemoteEngine:
        parts = {name: client.data for name, client in kind().clients.items()}
        how = SecureEngine if is_secure else RemoteEngine
        engine = how(federation(parts, secure=is_secure), parts)
        engine.choose_publicly(COLUMNS)
        return engine

    return wired


def secure(**terms: Any) -> SecureEngine:
    engine = SecureEngine(
        federation({name: Data(rows) for name, rows in PARTS.items()}), PARTS, **terms
    )
    engine.choose(COLUMNS)
    return engine


# Ways to ask


def fit(kind: Callable[[], Engine] = plain, **options: Any) -> Callable[..., Any]:
    """A fit by the function that all ways of asking lead to."""

    def ask(**_: Any) -> Any:
        return execute(fit_of(**{"n_clusters": 3, **options}), kind(), columns=COLUMNS)

    return ask


def model(kind: type[Any] = FederatedKMeans, **options: Any) -> Callable[..., Any]:
    """A fit by an estimator."""
    name = "n_components" if kind is FederatedGaussianMixture else "n_clusters"
    return lambda **_: kind(**{name: 3, "random_state": 0, **options}).fit(PARTS)


def command(*arguments: object) -> Callable[..., Any]:
    """A command in a folder with files of sites."""

    def ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.chdir(folder)
        for name, rows in PARTS.items():
            table = pd.DataFrame(rows, columns=COLUMNS).assign(where=name)
            table.to_csv(f"{name}.csv", index=False)
        content = 'name = "s0"\ncolumns = ["x0", "x1"]\n[source]\npath = "s0.csv"\n'
        Path("site.toml").write_text(content)
        Path("codes.toml").write_text(content + '[codes]\nx0 = { "1" = "M" }\n')
        KNOWN.save("model.json")
        ran = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert (ran.exit_code, ran.stdout) == (2, "")
        [line] = ran.stderr.splitlines()
        raise SaidError(line.removeprefix("error: "))

    return ask


class SaidError(Exception):
    """The line that a command has left."""


def site_file(
    content: str, then: Callable[[SiteFile, Membership], Any] | None = None
) -> Callable[..., Any]:
    """A site file, and what is made of it."""

    def ask(folder: Path, **_: Any) -> Any:
        (folder / "rows.csv").write_text("x0,x1\n0,1\n2,3\n")
        path = folder / "site.toml"
        path.write_text(content)
        site = SiteFile.load(path)
        return None if then is None else then(site, Membership.from_site_file(site))

    return ask


def grouped_once(
    before: str = "",
    after: str = "",
    source: str = 'path = "rows.csv"\n',
    beside: str = "",
    then: Callable[[SiteFile], Any] = group_once,
) -> Callable[..., Any]:
    """A site file, perhaps with a file beside it, whose rows are grouped once."""

    def ask(folder: Path, **_: Any) -> Any:
        if beside:
            (folder / beside).touch()
        content = f'name = "north"\n{before}[source]\n{source}{after}'
        return site_file(content + JOINED, lambda site, _: then(site))(folder)

    return ask


FILE = 'name = "north"\n{}[source]\npath = "rows.csv"\n{}'
STRICT = '[privacy]\npreset = "strict"\n'
JOINED = '[federation]\ncoordinator = "127.0.0.1:1"\ninsecure = true\n'
FILES = [f"{name}.csv" for name in PARTS]
BOUNDED = "prepare.bounds={x0=[0,9],x1=[0,9]}"
FITTED = ["fit", *FILES, "--columns", "x0,x1", "-k"]
SELECTED = ["select-k", *FILES, "--columns", "x0,x1"]
NOISY = [*FITTED, 3, "--set", "fit.epsilon=9", "--set", BOUNDED]


def evaluated(kind: Callable[[], Engine], **options: Any) -> Callable[..., Any]:
    def ask(**_: Any) -> Any:
        return execute(Evaluate(KNOWN, **options), kind(), columns=COLUMNS)

    return ask


def dated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two models that a date is another number in."""
    for name in ("age:2024-12-31", "month"):
        how = Preprocessor((NumericColumn("x0", date=name),))
        model = Model(np.array([[0.0], [9.0]]), np.ones(2), ("x0",), preprocessor=how)
        model.save(folder / f"{name[:3]}.json")
    asked = command("evaluate", "age.json", *FILES, "--beside", "mon.json")
    return asked(folder=folder, monkeypatch=monkeypatch)


def remote_budget(folder: Path, **_: Any) -> Any:
    """A plain fit of a site with a budget behind the wire, which says so itself."""
    site = responder(folder, Client("north", Data(ROWS)), Budget(2.0, 1e-6), steps=STEPS)
    execute(fit_of(3), RemoteEngine(ByHand(north=site), ["north"]), columns=COLUMNS)


def remote_overspent(folder: Path, **_: Any) -> Any:
    """A fit that takes more than there is of a site's budget."""
    site = responder(folder, Client("north", Data(ROWS)), Budget(2.0, 1e-6), steps=STEPS)
    engine = RemoteEngine(ByHand(north=site), ["north"])
    engine.choose_publicly(COLUMNS)
    execute(fit_of(3, epsilon=2.5, bounds=BOUNDS), engine, columns=COLUMNS)


def run_of(
    words: Mapping[str, Any], sites: Iterable[str] = PARTS, **options: Any
) -> Callable[..., Any]:
    """A run that is handed to the coordinator of a federation."""

    def ask(folder: Path, **_: Any) -> Any:
        made = create(folder / "trial", list(sites), "127.0.0.1:1", insecure=True)
        return content_of(
            made, folder / "run", fit_of(**words), RunOptions(folder / "out", **options)
        )

    return ask


def engine_and_rows(**_: Any) -> Any:
    FederatedKMeans(3).fit(PARTS, engine=plain())


def spanning_persons(**_: Any) -> Any:
    import dask.dataframe as dd
    from distributed import Client as Cluster

    from fedcluster.engines import DaskEngine

    rows = pd.DataFrame({"x0": np.arange(8.0), "person": [0, 1] * 4})
    with Cluster(processes=False, dashboard_address=":0"):
        DaskEngine(dd.from_pandas(rows, npartitions=2), group_column="person").introduce()


def clients(**options: Any) -> Callable[..., Any]:
    return lambda **_: FederatedKMeans(3, **options).fit_clients(
        Client(name, Data(rows)) for name, rows in PARTS.items()
    )


def chosen(**options: Any) -> Callable[..., Any]:
    return lambda **_: select_k(PARTS, range(1, 4), **options)


MIXTURE: Mapping[str, Any] = {"model": "mixture"}
TRIM: Mapping[str, Any] = {"trim": 0.1}
ROBUST: Mapping[str, Any] = {"robust": 1}
START = ROWS[[0, 50, 100]]

REACHED: dict[str, list[Callable[..., Any]]] = {
    "kind-parameter": [
        fit(**TRIM, n_clusters="auto"),
        fit(wired, **TRIM, n_clusters=[2, 3]),
        command(*FITTED, "auto", "--trim", 0.1),
        run_of({"n_clusters": "auto", "trim": 0.1}),
        chosen(**TRIM),
        model(**TRIM, algorithm=FKM(3)),
        command(*FITTED, 3, "--trim", 0.1, "--missing", "ignore"),
        model(**ROBUST, sums_only=True),
        command(*FITTED, 3, "--set", "fit.robust=1", "--set", "prepare.pca=1"),
        model(**PRIVATE, n_clusters="auto"),
        chosen(epsilon=50.0),
        model(**PRIVATE, init=START),
        model(**PRIVATE, prepare="standard"),
        *(command(*NOISY, *each) for each in (["--scale", "none"], ["--profile"], ["--fuzzy"])),
        model(bounds=BOUNDS),
        command(*FITTED, 3, "--set", "fit.group_size=3"),
        command(*FITTED, 3, "--set", "fit.noise=true"),
        fit(start=State.at(START)),
        model(FederatedGaussianMixture, n_components=3, merge=True),
        model(FederatedGaussianMixture, n_components="auto", merge=True, reg_covar=1.0),
        model(FederatedGaussianMixture, n_components="auto", rule="fuzzy-db"),
        model(FederatedFuzzyCMeans, prepare=IGNORE),
        model(prepare=IGNORE, algorithm="fkm"),
        command(*FITTED, 3, "--algorithm", "ffcm"),
        command(*SELECTED, "--metric", "cosine", "--set", "select_k.m=2"),
        model(rule="gap"),
        model(rule=Rule("likelihood", bounds=(np.zeros(2), np.ones(2)))),
        model(n_clusters=[2, 3], rule="xie-beni"),
        fit(**MIXTURE, stability=True),
    ],
    "robust-start": [
        fit(chunked, **ROBUST),
        fit(tiny, **ROBUST),
        model(**ROBUST, init="random"),
        fit(wired, **ROBUST, init="k-means++"),
    ],
    "robust-sites": [
        model(robust=2),
        fit(wired, robust=2),
        command(*FITTED, 3, "--set", "fit.robust=2"),
    ],
    "epsilon-bounds": [
        model(epsilon=50.0),
        command(*FITTED, 3, "--set", "fit.epsilon=9"),
        run_of({"n_clusters": 3, "epsilon": 9.0}),
    ],
    "epsilon-limits": [
        model(**PRIVATE, min_cluster_size=5),
        command(*FITTED, 3, "--set", "fit.epsilon=9", "--set", BOUNDED, "--min-cluster-size", 5),
    ],
    "budget-exact": [
        fit(budgeted),
        fit(budgeted, **MIXTURE),
        evaluated(budgeted),
        evaluated(budgeted, beside=KNOWN),
        remote_budget,
    ],
    "noise-unbudgeted": [
        fit(wired_of(plain), **PRIVATE),
        fit(wired_of(plain, is_secure=True), **PRIVATE),
    ],
    "noise-overspent": [remote_overspent],
    "noise-groups": [fit(grouped, **PRIVATE), model(**PRIVATE, protection=Groups())],
    "noise-weights": [
        lambda **_: FederatedKMeans(3, **PRIVATE).fit(
            PARTS, sample_weight={name: np.ones(len(rows)) for name, rows in PARTS.items()}
        ),
        fit(weighed, **PRIVATE),
        fit(wired_of(weighed), **PRIVATE),
        fit(wired_of(weighed, is_secure=True), **PRIVATE),
    ],
    "noise-persons": [fit(owned, **PRIVATE), fit(wired_of(owned), **PRIVATE)],
    "sums-more": [
        fit(secure, **ROBUST),
        fit(secure, participation=0.5),
        fit(secure, algorithm="fkm"),
        fit(secure, algorithm=KFed(3)),
        fit(secure, algorithm="ffcm", m=2.0),
        fit(secure, init="summaries"),
        fit(secure, init="random"),
        model(sums_only=True, algorithm="fkm"),
        model(sums_only=True, algorithm="kfed"),
        model(FederatedFuzzyCMeans, sums_only=True, algorithm="ffcm"),
        command(*FITTED, 3, "--set", "fit.sums_only=true", "--algorithm", "fkm"),
        model(sums_only=True, init="summaries"),
        command(*FITTED, 3, "--set", "fit.sums_only=true", "--set", "fit.init=random"),
    ],
    "mixture-weight": [
        fit(texts, **MIXTURE, prepare=PreprocessingSpec(weights={"ward": 2.0})),
        command(
            *("fit", *FILES, "-k", 3, "--model", "mixture"),
            *("--categories", "where", "--set", "prepare.weights.where=2"),
        ),
    ],
    "mixture-own": [
        fit(**MIXTURE, algorithm=Lloyd()),
        fit(wired, **MIXTURE, algorithm="fedcluster.algorithms.Lloyd"),
    ],
    "missing-whole": [
        lambda **_: PreprocessingSpec(missing="ignore", pca=1),
        command(*FITTED, 3, "--missing", "ignore", "--set", "prepare.pca=1"),
        lambda **_: PreprocessingSpec(missing="ignore", unit=True),
    ],
    "missing-own": [model(prepare=IGNORE, algorithm=Lloyd())],
    "algorithm-other": [
        model(algorithm=KFed(4)),
        model(FederatedFuzzyCMeans, algorithm=FFCM(1.5)),
    ],
    "algorithm-option": [
        model(algorithm="kfed", init="random"),
        model(algorithm="kfed", init=START),
        model(algorithm="kfed", n_init=3),
        model(algorithm="fkm", init="summaries"),
        command(*FITTED, 3, "--algorithm", "kfed", "--set", "fit.n_init=3"),
        model(algorithm="kfed", tol=0.1),
        command(*FITTED, 3, "--algorithm", "fedavg", "--set", "fit.tol=0.1"),
    ],
    "start-starts": [
        model(init=START, n_init=2),
        model(FederatedGaussianMixture, means_init=START, n_init=2),
    ],
    "start-shape": [
        fit(init=START[:2]),
        fit(texts, init=START[:, :1]),
        fit(init=START, prepare=PreprocessingSpec(pca=1)),
        fit(wired, init=START[:, :1], prepare=PreprocessingSpec()),
        fit(start=State.at(START[:2]), **MIXTURE),
    ],
    "start-means": [model(FederatedGaussianMixture, weights_init=np.ones(3) / 3)],
    "choice-start": [
        model(init=START, n_clusters="auto"),
        fit(init=START, n_clusters=[2, 3]),
        fit(start=State.at(START), n_clusters="auto", **MIXTURE),
        model(FederatedGaussianMixture, means_init=START, n_components="auto"),
        chosen(init=START),
    ],
    "choice-elbow": [
        chosen(pick="elbow"),
        model(n_clusters="auto", rule=Rule("vote", "elbow")),
        command("select-k", *FILES, "--columns", "x0,x1", "--set", "select_k.pick=elbow"),
    ],
    "choice-averaging": [
        chosen(averaging="avg_1"),
        lambda **_: execute(SelectK(k_max=3, averaging="avg_1"), plain(), columns=COLUMNS),
        command("select-k", *FILES, "--columns", "x0,x1", "--set", "select_k.averaging=avg_1"),
    ],
    "choice-bounds": [
        chosen(bounds=(0.0, 30.0), prepare="standard"),
        command("select-k", *FILES, "--columns", "x0,x1", "--set", "select_k.bounds=[[0,30]]"),
    ],
    "engine-rows": [engine_and_rows],
    "dask-persons": [spanning_persons],
    "dask-options": [
        command("fit", "rows.parquet", "-k", 3, "--set", "engine=dask", *option)
        for option in (["--append"], ["--site-column", "site"], ["--set", "report=false"])
    ],
    "clients-limits": [
        clients(min_cluster_size=5),
        clients(protection="groups"),
        lambda **_: FederatedKMeans(3, protection="groups").fit_engine(plain()),
    ],
    "labels-none": [
        evaluated(plain, labels=True),
        evaluated(wired, labels=True),
        evaluated(plain, classes=["sick", "well"]),
    ],
    "site-file-limits": [command("fit", "site.toml", "-k", 3, "--min-cluster-size", 5)],
    "site-file-labels": [
        command("evaluate", "model.json", "site.toml", "--label-column", "where"),
        command("evaluate", "model.json", "site.toml", "--min-cluster-size", 5),
    ],
    "site-file-options": [command("fit", "site.toml", "-k", 3, "--set", "weight_column=x1")],
    "site-file-joined": [command("fit", "site.toml", "-k", 3, "--append")],
    "beside-dates": [dated],
    "files-site": [command(*FITTED, 3, "--site-column", "where")],
    "database-keys": [
        site_file(
            'name = "north"\nid_column = "id"\n[source]\nurl = "sqlite:///x"\nquery = "select 1"\n'
        )
    ],
    "codes-unprepared": [command("fit", "codes.toml", "-k", 3, "--scale", "none")],
    "means-ungrouped": [
        grouped_once('protection = "limits"\n'),
        grouped_once("", "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"),
    ],
    "means-version": [grouped_once(source='url = "sqlite:///x"\nquery = "select 1"\n')],
    "means-partition": [grouped_once(beside="site.groups")],
    "means-evidence": [
        grouped_once(beside="site.means.parquet", then=lambda site: evidence(site, []))
    ],
    "privacy-protection": [
        site_file(FILE.format(before, f"{after}[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"))
        for before, after in (
            ('protection = "groups"\n', ""),
            ("", "[limits]\nmin_cluster_size = 5\n"),
        )
    ],
    "privacy-weights": [
        site_file(FILE.format('weight_column = "x1"\n', "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"))
    ],
    "rules-exact": [
        site_file(FILE.format(before, f"[privacy]\n{budget}{rule}\n"))
        for before, budget in (
            ("", "epsilon = 1.0\ndelta = 1e-6\n"),
            ('protection = "limits"\n', ""),
        )
        for rule in ('preset = "strict"', "dominance = true", 'sensitive = ["x0"]')
    ],
    "strict-secure": [
        site_file(FILE.format("", JOINED + STRICT)),
        site_file(FILE.format("", JOINED + 'secure = true\nallow_alone = ["south"]\n' + STRICT)),
    ],
    "colluders-alone": [
        site_file(
            FILE.format("", JOINED + "[privacy]\nepsilon = 1.0\ndelta = 1e-6\ncolluders = 1\n"),
            site_secure,
        )
    ],
    "permits-insecure": [
        site_file(FILE.format("", JOINED + "[permits]\nrequired = true\n"), site_permits)
    ],
    "stability-chunks": [fit(chunked, stability=True)],
}
"""Ways in which users meet each row of the table."""


CASES = [
    pytest.param(key, ask, id=f"{key}-{i}")
    for key, ways in REACHED.items()
    for i, ask in enumerate(ways)
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that sites were asked to take."""
    steps: list[str] = []

    def counting(kind: type[Any]) -> None:
        real = kind.ask

        def ask(self: Any, tasks: Any, sites: Any = None) -> Any:
            steps.extend(type(task.step).__name__ for task in tasks)
            return real(self, tasks, sites)

        monkeypatch.setattr(kind, "ask", ask)

    for kind in (LocalEngine, RemoteEngine, SecureEngine):
        counting(kind)
    return steps


def is_line_of(row: RefusedCombination, message: str) -> bool:
    """Return whether a message is a row's line, with some values in its places."""
    lines = (re.escape(each) for each in (row.line, row.command) if each)
    return any(re.fullmatch(re.sub(r"\\\{.*?\\\}", ".+", each), message) for each in lines)


def test_only_the_whole_line_of_a_row_is_its_line() -> None:
    line = "m is for fuzzy clusters, not for trimmed k-means (trim): leave one of the two out"
    assert is_line_of(table()["kind-parameter"], line)
    assert not is_line_of(table()["kind-parameter"], line.partition(":")[0])


@pytest.mark.parametrize(("key", "ask"), CASES)
def test_a_combination_is_refused_by_its_line_before_a_site_is_asked(
    key: str,
    ask: Callable[..., Any],
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises((InputError, SaidError)) as caught:
        ask(folder=tmp_path, monkeypatch=monkeypatch)
    row, line = table()[key], str(caught.value)
    assert is_line_of(row, line), line
    assert "\n" not in line
    assert asked == []
    if isinstance(caught.value, InputError):
        assert caught.value.refusal is row


def test_every_row_is_reached() -> None:
    assert REACHED.keys() == table().keys()
    assert [key for key, ways in REACHED.items() if not ways] == []


def test_a_fit_that_goes_together_is_asked_and_nothing_is_refused(asked: list[str]) -> None:
    """Or the counter would never count."""
    fit()()
    assert "Lloyd" in asked


# The table


@cache
def trees() -> dict[Path, ast.Module]:
    """The code, by module."""
    src = Path(fedcluster.__file__).parents[1]
    return {path: ast.parse(path.read_text("utf-8")) for path in src.rglob("*.py")}


def texts_in_code() -> dict[Path, set[str]]:
    """The texts in the code, by module."""
    return {
        path: {
            node.value
            for outer in ast.walk(tree)
            if not isinstance(outer, ast.Expr)  # a docstring
            for node in ast.iter_child_nodes(outer)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for path, tree in trees().items()
    }


def test_every_row_is_raised_and_what_is_raised_is_a_row() -> None:
    named = set().union(*texts_in_code().values())
    named |= {row.key for row in table().values() if row.when}
    assert sorted(table().keys() - named) == []
    given = {
        str(node.args[0].value)
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "refused"
        and isinstance(node.args[0], ast.Constant)
    }
    assert sorted(given - table().keys()) == []


def test_every_condition_of_the_table_is_known_and_every_known_one_is_of_the_table() -> None:
    assert {name for row in table().values() for name in row.when} == CONDITIONS.keys()


def test_no_other_module_says_what_does_not_go_together() -> None:
    """All such lines stand in the table."""
    said = re.compile("(do|does) not go (together|with)|leave (out one|one) of")
    found = {
        (path.name, text)
        for path, texts in texts_in_code().items()
        for text in texts
        if said.search(text) and "\n" not in text
    }
    assert found == set()


def test_keys_are_different_and_lines_say_what_to_do() -> None:
    for row in table().values():
        assert re.fullmatch("[a-z]+(-[a-z]+)+", row.key)
        assert len(row.options) > 1, row.key
        assert re.search("[:;,] .*[a-z]", row.line), row.key
        assert row.reason.endswith("."), row.key
        assert "\n" not in row.line + row.command + row.reason


def test_the_page_is_that_of_the_table() -> None:
    """Otherwise: python docs/hooks/refusals.py."""
    made = runpy.run_path(str(ROOT / "docs" / "hooks" / "refusals.py"))["page"]()
    assert (ROOT / "docs" / "refusals.md").read_text("utf-8") == made


def test_other_errors_of_input_name_no_row() -> None:
    with pytest.raises(InputError, match="trim must be from 0") as caught:
        FederatedKMeans(3, trim=0.7).fit(PARTS)
    assert caught.value.refusal is None


# Options at their defaults are never refused


@pytest.mark.parametrize("kind", [FederatedKMeans, FederatedFuzzyCMeans, FederatedGaussianMixture])
def test_defaults_that_are_given_are_not_refused(kind: type[Any]) -> None:
    name = "n_components" if kind is FederatedGaussianMixture else "n_clusters"
    defaults = kind().get_params() | {name: 3, "random_state": 0}
    kind(**defaults).fit(PARTS)


def test_no_estimator_checks_what_it_is_given_before_it_is_fitted() -> None:
    """As scikit-learn demands of every estimator."""
    FederatedKMeans(3, trim=0.1, robust=1, epsilon=1.0, algorithm="fkm")


# Kinds of fits


VALUES: Mapping[str, Any] = {
    **{"init": "random", "n_init": 2, "m": 2.0, "sums_only": True},
    **{"max_iter": 3, "tol": 0.1, "metric": "cosine", "participation": 0.5, "trim": 0.1},
    **{"robust": 1, "profile": True, "stability": 2, "epsilon": 1.0, "noise": True},
    **{"rule": Rule("bic"), "prepare": PreprocessingSpec()},
}
"""A value of each parameter that more than one place reads, other than its default."""


@pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_a_kind_of_fit_has_a_parameter_or_nobody_can_write_it(kind: type[Fit], name: str) -> None:
    asked: Any = {
        **{"PrivateFit": {"epsilon": 1.0}, "RobustFit": {"robust": 1}, "TrimmedFit": TRIM},
        **{"MixtureFit": MIXTURE, "MergedFit": {"model": "merged"}, "FuzzyFit": {"m": 2.0}},
        **{"SphericalFit": {"metric": "cosine"}, "IncompleteFit": {"prepare": IGNORE}},
    }.get(kind.__name__, {})
    n_clusters = "auto" if name == "rule" or kind.__name__ == "MergedFit" else 3
    words = {name: VALUES[name], **asked}
    if name not in {each.name for each in fields(kind) if each.init}:
        with pytest.raises(InputError) as caught:
            fit_of(n_clusters, **words)
        assert caught.value.refusal is table()["kind-parameter"]
        with pytest.raises(TypeError, match=name):
            kind(n_clusters, **{name: VALUES[name]})
        return
    made = fit_of(n_clusters, **words)
    assert isinstance(made, kind)
    assert getattr(made, name) == words[name]
    again = job_from_json("fit", asdict(made))
    assert type(again) is type(made)
    assert asdict(again) == asdict(made)

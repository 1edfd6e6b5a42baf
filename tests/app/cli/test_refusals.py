"""Combinations that are refused: each row of the table is reached, before a site is asked.

What users meet by an estimator or a command beside each other option is in `test_pairs.py`.
"""

import contextlib
import re
import runpy
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from pairs.ways import is_line_of
from pairs.worlds import Here
from partitions import InChunks
from secure_sites import STEPS, federation
from test_budget import ByHand, responder
from typed import fails

import fedcluster
from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans, select_k
from fedcluster.algorithms import FFCM, KFed, Lloyd
from fedcluster.core import Column, Data, State
from fedcluster.engines import DaskEngine, LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.jobs import Compare, Evaluate, execute, fit_of
from fedcluster.model import Model
from fedcluster.options.refusals import table
from fedcluster.preprocessing import NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.privacy import Groups
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.recipes.combinations import CONDITIONS
from fedcluster.recipes.specifications import RunOptions
from fedcluster.selection import Rule
from fedcluster_app.audit.evidence import evidence
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.runs import content_of
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.site.membership import Membership, site_secure
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

ROOT = Path(__file__).parents[3]
ROWS = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (40, 2)) for c in (0.0, 9.0, 18.0)])
PARTS = {f"s{i}": ROWS[i::4] for i in range(4)}
COLUMNS = ("x0", "x1")
KNOWN = Model(ROWS[[0, 50, 100]], np.ones(3), COLUMNS, {"name": "Lloyd"})
START = ROWS[[0, 50, 100]]
IGNORE = PreprocessingSpec(missing="ignore")
PRIVATE: Mapping[str, Any] = {"epsilon": 50.0, "bounds": ([-9.0, -9.0], [30.0, 30.0])}
MIXTURE: Mapping[str, Any] = {"model": "mixture"}
TRIM: Mapping[str, Any] = {"trim": 0.1}
Ask = Callable[..., Any]
"""A way to ask, which is given a folder and may change it."""


def chunked(rows: np.ndarray) -> InChunks:
    return InChunks(Data(rows), 15)


def texts(rows: np.ndarray) -> Data:
    ward = Column("ward", "text", ("a", "b"))
    both = np.column_stack([rows[:, 0], np.arange(len(rows)) % 2])
    return Data(both, columns=(Column("age"), ward))


def weighed(rows: np.ndarray) -> Data:
    return Data(rows, np.full(len(rows), 2.0))


def owned(rows: np.ndarray) -> Data:
    """Rows that say whose they are, and not how many of a person count."""
    return Data(rows, groups=np.arange(len(rows)) // 2)


def here(data: Callable[..., Any] = Data, parts: Any = PARTS, **more: Any) -> LocalEngine:
    return LocalEngine(Client(name, data(rows), **more) for name, rows in parts.items())


def wired(data: Callable[..., Any] = Data, *, noisy: bool = False, secure: bool = False) -> Any:
    """The same sites behind the wire, in this process."""
    kind: Any = SecureEngine if secure else RemoteEngine
    carrier = federation({name: data(rows) for name, rows in PARTS.items()}, secure=secure)
    engine = kind(carrier, PARTS)
    (engine.choose_publicly if noisy else engine.choose)(COLUMNS)
    return engine


# Ways to ask


def fit(engine: Callable[[], Any] = here, **options: Any) -> Ask:
    """A fit by the function that all ways of asking lead to."""
    job = {"n_clusters": 3, **options}
    return lambda _: execute(fit_of(**job), engine(), columns=COLUMNS)


def evaluated(engine: Callable[[], Any], **options: Any) -> Ask:
    return lambda _: execute(Evaluate(KNOWN, **options), engine(), columns=COLUMNS)


def model(kind: type[Any] = FederatedKMeans, **options: Any) -> Ask:
    name = "n_components" if kind is FederatedGaussianMixture else "n_clusters"
    return lambda _: kind(**{name: 3, "random_state": 0, **options}).fit(PARTS)


def clients(**options: Any) -> Ask:
    every = [Client(name, Data(rows)) for name, rows in PARTS.items()]
    return lambda _: FederatedKMeans(3, **options).fit_clients(every)


def chosen(**options: Any) -> Ask:
    return lambda _: select_k(PARTS, range(1, 4), **options)


class SaidError(Exception):
    """The line that a command has left."""


def command(line: str) -> Ask:
    """A command in a folder with files of sites, SITES."""

    def ask(folder: Path) -> Any:
        for name, rows in PARTS.items():
            table = pd.DataFrame(rows, columns=COLUMNS).assign(where=name)
            table.to_csv(folder / f"{name}.csv", index=False)
        content = 'name = "s0"\ncolumns = ["x0", "x1"]\n[source]\npath = "s0.csv"\n'
        (folder / "site.toml").write_text(content)
        (folder / "codes.toml").write_text(content + '[codes]\nx0 = { "1" = "M" }\n')
        KNOWN.save(folder / "model.json")
        for how in ("age:2024-12-31", "month"):  # models that a date is another number in
            dated = Preprocessor((NumericColumn("x0", date=how),))
            other = Model(np.array([[0.0], [9.0]]), np.ones(2), ("x0",), preprocessor=dated)
            other.save(folder / f"{how[:3]}.json")
        sites = " ".join(f"{name}.csv" for name in PARTS)
        with contextlib.chdir(folder):
            said = fails(line.replace("SITES", f"{sites} --columns x0,x1").replace("ALL", sites))
        raise SaidError(said)

    return ask


JOINED = '[federation]\ncoordinator = "127.0.0.1:1"\ncertificate = "system"\nkey = "site.toml"\n'
FILE = 'path = "rows.csv"\n'
QUERY = 'url = "sqlite:///x"\nquery = "select 1"\n'
BUDGET = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"
STRICT = '[privacy]\npreset = "strict"\n'


def site_file(
    before: str = "",
    after: str = "",
    source: str = FILE,
    then: Callable[[SiteFile], Any] = lambda site: None,
    beside: str = "",
) -> Ask:
    """A site file, perhaps with a file beside it, and what is made of it."""

    def ask(folder: Path) -> Any:
        (folder / "rows.csv").write_text("x0,x1\n0,1\n2,3\n")
        if beside:
            (folder / beside).touch()
        path = folder / "site.toml"
        path.write_text(f'name = "north"\n{before}[source]\n{source}{after}')
        return then(SiteFile.load(path))

    return ask


def joined(kind: Callable[[SiteFile, Membership], Any]) -> Callable[[SiteFile], Any]:
    return lambda site: kind(site, Membership.from_site_file(site))


def budget_of_site(**options: Any) -> Ask:
    """A fit of a site behind the wire with a budget, which says itself what it refuses."""

    def ask(folder: Path) -> Any:
        site = responder(folder, Client("north", Data(ROWS)), Budget(2.0, 1e-6), steps=STEPS)
        engine = RemoteEngine(ByHand(north=site), ["north"])
        if options:
            engine.choose_publicly(COLUMNS)
        execute(fit_of(3, **options), engine, columns=COLUMNS)

    return ask


def run_of(**words: Any) -> Ask:
    """A run that is handed to the coordinator of a federation."""

    def ask(folder: Path) -> Any:
        made = create(folder / "trial", list(PARTS), "127.0.0.1:1")
        return content_of(made, folder / "run", fit_of(**words), RunOptions(folder / "out"))

    return ask


def spanning_persons(_: Path) -> Any:
    rows = pd.DataFrame({"x0": np.arange(8.0), "person": [0, 1] * 4})
    engine = DaskEngine(dd.from_pandas(rows, npartitions=2), group_column="person", client=Here())
    engine.introduce()


UNASKED = {"died": None, "days": None}
STRICTLY = Groups.strict(min_rows=10)
grouped = partial(here, protection=Groups(p=5, min_rows=10))
budgeted = partial(here, filters=Disclosure(budget=Budget(2.0, 1e-6)))
noisy, secure = partial(wired, noisy=True), partial(wired, secure=True)
noisy_secure = partial(wired, noisy=True, secure=True)
MIXED = FederatedGaussianMixture
TINY = {f"s{i}": rows for i, rows in enumerate(np.split(ROWS, 30))}
"""Sites with fewer rows than could describe the clusters."""
WEIGHTS = {name: np.ones(len(rows)) for name, rows in PARTS.items()}
NOISE = "--set fit.epsilon=9 --set prepare.bounds={x0=[0,9],x1=[0,9]}"

REACHED: dict[str, list[Ask | str]] = {
    "kind-parameter": [
        fit(wired, **TRIM, n_clusters=[2, 3]),
        run_of(n_clusters="auto", trim=0.1),
        chosen(**TRIM),
        chosen(epsilon=50.0),
        f"fit SITES -k 3 {NOISE} --scale none",
        model(MIXED, n_components="auto", rule="fuzzy-db"),
        model(rule=Rule("likelihood", bounds=(np.zeros(2), np.ones(2)))),
        model(n_clusters=[2, 3], rule="xie-beni"),
    ],
    "robust-start": [
        fit(partial(here, chunked), robust=1),
        fit(partial(here, parts=TINY), robust=1),
        fit(wired, robust=1, init="k-means++"),
    ],
    "robust-sites": [model(robust=2), fit(wired, robust=2), "fit SITES -k 3 --set fit.robust=2"],
    "epsilon-bounds": [run_of(n_clusters=3, epsilon=9.0)],
    "epsilon-limits": [
        model(**PRIVATE, min_cluster_size=5),
        f"fit SITES -k 3 {NOISE} --min-cluster-size 5",
    ],
    "budget-exact": [fit(budgeted), evaluated(budgeted), budget_of_site()],
    "noise-unbudgeted": [fit(noisy, **PRIVATE), fit(noisy_secure, **PRIVATE)],
    "noise-overspent": [budget_of_site(epsilon=2.5, bounds=PRIVATE["bounds"])],
    "compare-groups": [
        lambda _: execute(Compare(KNOWN, ["died"], "days", UNASKED), grouped()),
        lambda _: execute(Compare(KNOWN, ["died"], levels=UNASKED), here(protection=STRICTLY)),
    ],
    "noise-groups": [fit(grouped, **PRIVATE), model(**PRIVATE, protection=Groups())],
    "noise-weights": [
        lambda _: FederatedKMeans(3, **PRIVATE).fit(PARTS, sample_weight=WEIGHTS),
        fit(partial(here, weighed), **PRIVATE),
        fit(partial(noisy, weighed), **PRIVATE),
        fit(partial(noisy_secure, weighed), **PRIVATE),
    ],
    "noise-persons": [fit(partial(here, owned), **PRIVATE), fit(partial(noisy, owned), **PRIVATE)],
    "sums-more": [
        fit(secure, algorithm=KFed(3)),
        fit(secure, init="random"),
        model(FederatedFuzzyCMeans, sums_only=True, algorithm="ffcm"),
    ],
    "mixture-weight": [
        fit(partial(here, texts), **MIXTURE, prepare=PreprocessingSpec(weights={"ward": 2.0})),
        "fit ALL -k 3 --model mixture --categories where --set prepare.weights.where=2",
    ],
    "mixture-own": [fit(wired, **MIXTURE, algorithm="fedcluster.algorithms.Lloyd")],
    "missing-whole": [
        lambda _: PreprocessingSpec(missing="ignore", pca=1),
        lambda _: PreprocessingSpec(missing="ignore", unit=True),
        "fit SITES -k 3 --missing ignore --set prepare.pca=1",
    ],
    "missing-own": [model(prepare=IGNORE, algorithm=Lloyd())],
    "algorithm-other": [model(algorithm=KFed(4)), model(FederatedFuzzyCMeans, algorithm=FFCM(1.5))],
    "algorithm-option": [
        model(algorithm="kfed", init=START),
        "fit SITES -k 3 --algorithm fedavg --set fit.tol=0.1",
    ],
    "start-starts": [model(MIXED, means_init=START, n_init=2)],
    "start-shape": [
        fit(init=START[:2]),
        fit(partial(here, texts), init=START[:, :1]),
        fit(init=START, prepare=PreprocessingSpec(pca=1)),
        fit(wired, init=START[:, :1], prepare=PreprocessingSpec()),
        fit(start=State.at(START[:2]), **MIXTURE),
    ],
    "start-means": [model(MIXED, weights_init=np.ones(3) / 3)],
    "choice-start": [chosen(init=START), model(MIXED, means_init=START, n_components="auto")],
    "choice-elbow": [chosen(pick="elbow"), model(n_clusters="auto", rule=Rule("vote", "elbow"))],
    "choice-averaging": [chosen(averaging="avg_1")],
    "choice-bounds": [
        chosen(bounds=(0.0, 30.0), prepare="standard"),
        "select-k SITES --set select_k.bounds=[[0,30]]",
    ],
    "engine-rows": [lambda _: FederatedKMeans(3).fit(PARTS, engine=here())],
    "dask-persons": [spanning_persons],
    "dask-options": [
        "fit rows.parquet -k 3 --set engine=dask --append",
        "fit rows.parquet -k 3 --set engine=dask --site-column site",
        "fit rows.parquet -k 3 --set engine=dask --set report=false",
    ],
    "clients-limits": [
        clients(min_cluster_size=5),
        clients(protection="groups"),
        lambda _: FederatedKMeans(3, protection="groups").fit_engine(here()),
    ],
    "labels-none": [
        evaluated(here, labels=True),
        evaluated(wired, labels=True),
        evaluated(here, classes=["sick", "well"]),
    ],
    "site-file-own": [
        "fit site.toml -k 3 --min-cluster-size 5",
        "fit site.toml -k 3 --set weight_column=x1",
        "fit site.toml -k 3 --set sites.s0.decimal=,",
        "evaluate model.json site.toml --label-column where",
        "evaluate model.json site.toml --min-cluster-size 5",
    ],
    "site-file-joined": ["fit site.toml -k 3 --append"],
    "beside-dates": ["evaluate age.json ALL --beside mon.json"],
    "files-site": ["fit SITES -k 3 --site-column where"],
    "database-keys": [site_file('id_column = "id"\n', source=QUERY)],
    "codes-unprepared": ["fit codes.toml -k 3 --scale none"],
    "means-ungrouped": [
        site_file('protection = "limits"\n', JOINED, then=group_once),
        site_file("", BUDGET + JOINED, then=group_once),
    ],
    "means-version": [site_file("", JOINED, QUERY, group_once)],
    "means-partition": [site_file("", JOINED, then=group_once, beside="site.groups")],
    "means-evidence": [
        site_file("", JOINED, FILE, lambda site: evidence(site, []), "site.means.parquet")
    ],
    "privacy-protection": [
        site_file('protection = "groups"\n', BUDGET),
        site_file("", "[limits]\nmin_cluster_size = 5\n" + BUDGET),
    ],
    "privacy-weights": [site_file('weight_column = "x1"\n', BUDGET)],
    "rules-exact": [
        site_file(before, f"{privacy}{rule}\n")
        for before, privacy in (("", BUDGET), ('protection = "limits"\n', "[privacy]\n"))
        for rule in ('preset = "strict"', "dominance = true", 'sensitive = ["x0"]')
    ],
    "strict-secure": [
        site_file("", JOINED + STRICT),
        site_file("", JOINED + 'secure = true\nallow_alone = ["south"]\n' + STRICT),
    ],
    "colluders-alone": [
        site_file("", JOINED + BUDGET + "colluders = 1\n", then=joined(site_secure))
    ],
    "adjust-site": [
        fit(partial(here, chunked), prepare=PreprocessingSpec(adjust="site")),
        "fit SITES -k 3 --adjust site --set fit.sums_only=true",
        "fit SITES -k 3 --adjust site --set prepare.pca=1",
    ],
    "stability-chunks": [fit(partial(here, chunked), stability=True)],
}
"""Ways in which users meet each row of the table: jobs, estimators, site files and commands."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that sites were asked to take."""
    steps: list[str] = []
    for kind in (LocalEngine, RemoteEngine, SecureEngine):

        def ask(self: Any, tasks: Any, sites: Any = None, real: Any = kind.ask) -> Any:
            steps.extend(type(task.step).__name__ for task in tasks)
            return real(self, tasks, sites)

        monkeypatch.setattr(kind, "ask", ask)
    return steps


def test_only_the_whole_line_of_a_row_is_its_line() -> None:
    line = "m is for fuzzy clusters, not for trimmed k-means (trim): leave one of the two out"
    assert is_line_of(table()["kind-parameter"], line)
    assert not is_line_of(table()["kind-parameter"], line.partition(":")[0])


WAYS = [
    pytest.param(key, ask, id=f"{key}-{i}")
    for key, ways in REACHED.items()
    for i, ask in enumerate(ways)
]


@pytest.mark.parametrize(("key", "ask"), WAYS)
def test_a_combination_is_refused_by_its_line_before_a_site_is_asked(key, ask, asked, tmp_path):
    ask = command(ask) if isinstance(ask, str) else ask
    with pytest.raises((InputError, SaidError)) as caught:
        ask(tmp_path)
    row, line = table()[key], str(caught.value)
    assert is_line_of(row, line), line
    assert "\n" not in line
    assert asked == []
    if isinstance(caught.value, InputError):
        assert caught.value.refusal is row


def test_every_row_is_reached_and_every_condition_is_known_and_of_the_table() -> None:
    assert REACHED.keys() == table().keys()
    assert all(REACHED.values())
    assert {name for row in table().values() for name in row.when} == CONDITIONS.keys()


def test_a_fit_that_goes_together_is_asked_and_nothing_is_refused(asked, tmp_path):
    """Or the counter would never count."""
    fit()(tmp_path)
    assert "Lloyd" in asked


# The table


@cache
def code() -> dict[str, str]:
    """The modules by name, without docstrings and comments, the parts of a text in one."""
    src = Path(fedcluster.__file__).parents[1]
    docs = re.compile(r'""".*?"""|^ *#.*?$', re.DOTALL | re.MULTILINE)
    texts = {str(path): docs.sub("", path.read_text("utf-8")) for path in src.rglob("*.py")}
    return {path: re.sub(r'"\s+f?"', "", text) for path, text in texts.items()}


def test_every_row_is_raised_and_what_is_raised_is_a_row() -> None:
    """Each row is also reached; and what no test raises has a key of the table."""
    given = {key for text in code().values() for key in re.findall(r'refused\(\s*"(.+?)"', text)}
    assert given <= table().keys()
    named = {key for key, row in table().items() if not row.when}
    assert [key for key in named if not any(f'"{key}"' in text for text in code().values())] == []


def test_no_other_module_says_what_does_not_go_together() -> None:
    """All such lines stand in the table."""
    said = re.compile('"[^"\n]*((do|does) not go (together|with)|leave (out one|one) of)')
    assert [path for path, text in code().items() if said.search(text)] == []


def test_lines_say_what_to_do_and_stand_on_the_page() -> None:
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "refusals.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="commands.md"))
    made = hook((ROOT / "docs" / "commands.md").read_text("utf-8"), page)
    for row in table().values():
        assert re.fullmatch("[a-z]+(-[a-z]+)+", row.key)
        assert len(row.options) > 1, row.key
        assert re.search("[:;,] .*[a-z]", row.line), row.key
        assert row.reason.endswith("."), row.key
        assert "\n" not in row.line + row.command + row.reason
        assert f" | {row.reason} |\n" in made, row.key


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

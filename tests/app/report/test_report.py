"""The report of a run: what it says, that nothing breaks out of it, and how a browser shows it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from browser import page as browser_page
from browser import program
from typed import fails, invoke, run

from fedcluster.core.files import plain
from fedcluster.metrics.external import adjusted_rand_index
from fedcluster.model.outcomes import (
    Comparison,
    counts_compared,
    numbers_compared,
    survival_compared,
)
from fedcluster.model.run import Run
from fedcluster.model.stability import Stability
from fedcluster.texts import Table
from fedcluster_app.report.charts import Axis, curve, plane
from fedcluster_app.report.page import NAMES, report_page
from fedcluster_app.report.tables import profiles_shown

ABSENT = ("now", "since", "silhouettes", "outcomes", "offsets")
SECTIONS = [name for name in NAMES if name not in ABSENT]
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b\u202e&amp;"


class Parsed(HTMLParser):
    """Elements, attributes and texts of a page, or of a section of it."""

    def __init__(self, text, section=""):
        super().__init__()
        self.elements, self.texts = [], []
        if section:
            text = text.partition(f'<section id="{section}"')[2].partition("</section>")[0]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def ids(self):
        return [attributes["id"] for tag, attributes in self.elements if tag == "section"]

    def of_class(self, start):
        return [each for _, each in self.elements if each.get("class", "").startswith(start)]

    def tagged(self, tag):
        return [attributes for each, attributes in self.elements if each == tag]


def told(text, section="found"):
    """The words of a section of a page, without its marks."""
    return " ".join(" ".join(Parsed(text, section).texts).split())


def stability(k):
    """What is told of the stability of k clusters: the first is not known."""
    found = np.repeat([[0.95], [0.8], [1], [1]], k, axis=1)
    found[:, 0] = np.nan
    return plain(Stability(found, np.roll(np.arange(k), 1), np.full(k, 5.0), 1).plain())


def made(k=3, columns=2, sites=2, names=("age", "ward"), site="site", **more) -> Run:
    """A run with all parts; its numbers are made up, but fit together."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, columns))
    names = [names[j] if j < len(names) else f"column {j}" for j in range(columns)]
    clusters = rng.integers(1, 50, size=(sites, k))
    told = [
        {
            "name": f"{site}{i}", "weight": None, "limits": [{"name": "MinClusterSize", "p": 5}],
            "values_sent": 120, "rows": int(n.sum()), "clusters": n.tolist(),
            "rows_held_back": 1, "lone_rows": 0,
        }
        for i, n in enumerate(clusters)
    ]  # fmt: skip
    model = {
        "fedcluster_version": "0", "columns": names, "centers": centers.tolist(),
        "weights": clusters.sum(axis=0).tolist(), "seed": 0,
        "algorithm": {"name": "auto", "n_clusters": k, "steps": ["Lloyd()"]},
    }  # fmt: skip
    answered = [each["name"] for each in told]
    rounds = [
        {"round": r, "tasks": {"Lloyd": 2}, "missing": answered[1:] if r == 2 else [],
         "values_sent": dict.fromkeys(answered[:1] if r == 2 else answered, 12)}
        for r in range(1, 6)
    ]  # fmt: skip
    scores = {"k": k, "inertia": 5.0, "within": 5.0, "squared-silhouette": 0.6}
    history = {
        "n_clusters": k, "columns": names, "seed": 0, "stop_reason": "converged after 2 rounds",
        "rounds": 5, "sites": told, "prepared": ["Prepared: as they are."],
        "influence": [
            {"site": each["name"], "largest_shift": 0.25, "mean_shift": None,
             "inertia_change": 0.031, "alone": 0, "share": 0.5} for each in told
        ],
        "missing": [{"site": each, "exchange": 2, "reason": "silent"} for each in answered[1:]],
        "history": [
            {"round": r, "step": "Lloyd", "inertia": 9.0 / r, "shift": 0.1**r} for r in (1, 2, 3)
        ],
        "communication_rounds": rounds, "stability": stability(k),
        "selection": {
            "n_clusters": k, "rule": "likelihood", "reason": "The likelihood says so.",
            "warnings": ["few rows"], "says": {"gap": k, "inertia": k},
            "table": [{**scores, "k": each, "gap": 1 / each} for each in range(1, k + 1)],
        },
    }  # fmt: skip
    return Run(**{"name": "run", "model": model, "history": history, **more})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The folder of a fit of rows with digits that no mean has."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(1)
    for name in ("north", "south"):
        x = np.repeat([10.0, 60.0], 30) + rng.normal(size=60)
        lines = [f"{a:.6f},{b:.6f}" for a, b in zip(x, rng.normal(size=60), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["age,bmi", *lines, ""]))
    how = ("-k", 2, "--stability", "--profile", "--out", folder / "out", "-q")
    assert invoke("fit", folder / "north.csv", folder / "south.csv", *how) == (0, "")
    return folder


def test_all_sections_come_in_their_order_and_are_in_the_contents():
    parsed = Parsed(report_page(made()))
    assert parsed.ids == SECTIONS
    assert [each["href"] for each in parsed.tagged("a")][1:] == [f"#{key}" for key in SECTIONS]


def test_a_section_of_which_nothing_is_known_is_absent():
    run = made()
    only_model = Parsed(report_page(Run("run", model=run.model))).ids
    assert only_model == ["found", "profiles", "plane", "prediction", "origin"]
    over_a_network = json.loads(json.dumps(run.history))
    for site in over_a_network["sites"]:
        for fact in ("clusters", "rows", "rows_held_back", "lone_rows"):
            del site[fact]
    text = report_page(Run("run", model=run.model, history=over_a_network))
    assert "sites" not in Parsed(text).ids
    assert "Only the sites know how many rows the limits hid" in text
    verdict = {**run.history["selection"], "sites": [], "communication_rounds": []}
    of_choice = Parsed(report_page(Run("run", selection=verdict))).ids
    assert of_choice == ["found", "choice", "data", "quality", "indices", "origin"]


def test_the_report_says_what_the_files_say():
    run = made()
    text = " ".join(Parsed(report_page(run)).texts)
    rows = int(run.weights.sum())
    assert f"3 clusters of {rows} rows at 2 sites" in text
    for said in ("The search converged after 2 rounds", "few rows", "silent (1 round)"):
        assert said in text
    assert "a site does not send a cluster of fewer than 5 of its rows" in text
    assert text.count("960 B") == 2  # 120 numbers of 8 bytes


def test_the_report_says_how_stable_clusters_are():
    text = report_page(made())
    texts = " ".join(Parsed(text).texts)
    assert "Stability not known." in texts
    assert texts.count("found again 4 of 4 times") == 2
    assert "1 of 5 replicates is left out" in texts
    drawn = Parsed(text, "stability").of_class("reach cluster c1")
    assert {(float(a["x1"]), float(a["x2"])) for a in drawn} == {(22 + 0.8 * 436, 458.0)}
    others = {**made().history, "stability": stability(2)}  # of another number of clusters
    assert "stability" not in Parsed(report_page(made(history=others))).ids


@pytest.mark.parametrize(
    ("made_of", "chart"),
    [
        ({"k": 12, "sites": 300}, ["Map of the clusters"]),
        ({"k": 2, "sites": 300}, []),
        ({}, ["Map of the clusters"]),
        ({"k": 2}, ["Clusters by site"]),
        ({"k": 13}, []),
        ({"k": 1}, []),
    ],
)
def test_the_first_page_has_one_chart_that_fits_on_it(made_of, chart):
    drawn = Parsed(report_page(made(**made_of)), "found").tagged("svg")
    assert [attributes["aria-label"] for attributes in drawn] == chart


def binary(k=2, **more):
    """Two clusters by a number of spread 2 and a text of two levels, as the model alone tells."""
    columns = [
        {"kind": "number", "name": "x", "log": False, "shift": 10.0, "scale": 2.0},
        {"kind": "category", "name": "sex", "levels": ["f", "m"], "other": False},
    ]
    model = {
        "columns": ["x", "sex"], "centers": [[-0.5, 0.9, 0.1], [0.5, 0.1, 0.9]],
        "weights": [100.0, 100.0], "inertia": 9.0,
        "centers_in_units": {"x": [9.0, 11.0], "sex=f": [0.9, 0.1], "sex=m": [0.1, 0.9]},
        "preprocessing": {"columns": columns}, "algorithm": {"prepare": {"scale": "standard"}},
    }  # fmt: skip
    return Run("run", model={**model, **more})


def test_names_and_facts_follow_from_the_centres_by_hand():
    run = binary()
    assert run.names == ["low x, sex f", "high x, sex m"]
    sex, x = run.facts(0, 3)
    # V of the table 90, 10; 10, 90 is .8, and so is r; d = .8 / sqrt(.25 * .36)
    assert (sex.name, sex.values[0], sex.overall) == ("sex = f", 0.9, 0.5)
    assert sex.effects[0] == pytest.approx(0.8 / 0.3)
    # of 200 rows of spread 2, 4 - 1 is left within, and 198 degrees: d = -2 / sqrt(600 / 198)
    assert x.effects[0] == pytest.approx(2 / (600 / 198) ** 0.5)
    assert [each.name for each in run.facts(1, 3)] == ["sex = m", "x"]
    said = told(report_page(run))
    assert "sex = f 90 % (all rows 50 %)" in said
    assert "x 9.0 (all rows 10.0)" in said
    assert "sex = m 90 % (all rows 50 %)" in said
    assert binary(names=["A", "B"]).names == ["A", "B"]


def test_a_number_that_is_0_or_1_is_told_as_a_share():
    columns = [dict(each) for each in binary().model["preprocessing"]["columns"]]
    columns[0] |= {"shift": 0.5, "scale": 0.5}
    units = {"x": [0.0, 1.0], "sex=f": [0.5, 0.5], "sex=m": [0.5, 0.5]}
    centers = [[-1.0, 0.5, 0.5], [1.0, 0.5, 0.5]]
    run = binary(centers=centers, centers_in_units=units, preprocessing={"columns": columns})
    assert run.names == ["x=0", "x=1"]
    said = told(report_page(run))
    assert "x = 0 100 % (all rows 50 %)" in said
    assert "x = 1 100 % (all rows 50 %)" in said


def test_a_column_that_tells_nothing_is_no_fact():
    units = {"x": [10.01, 9.99], "sex=f": [0.9, 0.1], "sex=m": [0.1, 0.9]}
    run = binary(centers=[[0.005, 0.9, 0.1], [-0.005, 0.1, 0.9]], centers_in_units=units)
    assert [each.column for each in run.facts(0, 3)] == ["sex"]
    assert run.names == ["sex f", "sex m"]


def test_doubts_come_by_weight_and_many_are_all_in_the_details():
    run = made()
    found = Stability(np.array([[0.1, 0.9, 0.9]] * 4), np.array([1, 2, 1]), np.zeros(3))
    warned = {"stability": plain(found.plain()), "warnings": [f"warning {i}" for i in range(7)]}
    for site in run.history["sites"]:  # a fifth is in no cluster of the last round
        site["weight"] = 1.25 * site["rows"]
    text = report_page(made(history={**run.history, **warned}))
    first, all_of_them = told(text), told(text, "data")
    assert "do not rely on the others" in first
    seen = ["cluster 0: not found again", "warning 0", "warning 3", "and 4 more, which stand under"]
    assert sorted(seen, key=first.index) == seen
    order = ["cluster 0:", "limits hid 20 % of all rows in the last round", "warning 6", "few rows"]
    assert sorted(order, key=all_of_them.index) == order
    assert "warning 6" not in first


def test_rows_that_are_hidden_on_the_way_alone_are_no_doubt():
    """Limits hide all rows of a question about many small sets, as replicates and cells are."""
    run = made()
    for site in run.history["sites"]:
        site.update(weight=site["rows"], rows_held_back=site["rows"])
    assert "limits hid" not in told(report_page(run), "data").lower()
    for site in run.history["sites"]:
        site["weight"] = 1.25 * site["rows"]
    assert "limits hid" in told(report_page(run), "data").lower()
    trimmed = {**run.model, "algorithm": {**run.model["algorithm"], "trim": 0.2}}
    assert "limits hid" not in told(report_page(replace(run, model=trimmed)), "data").lower()


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (
            {"lone_rows": 2},
            "At 2 sites some of these were about a single row, and reveal it to whoever",
        ),
        ({"limits": [{"name": "Groups", "p": 8, "min_rows": 16}]}, "groups of at least 8 rows."),
        ({}, "no sum is about fewer than 5 rows of a cluster."),
        ({"secure": True}, "Masked numbers"),
        ({"limits": []}, "(240 numbers in 5 rounds), no row."),
    ],
)
def test_one_sentence_says_what_left(sites, said):
    run = made()
    for site in run.history["sites"]:
        site.update(sites)
    assert said in told(report_page(run)).partition("What left the sites?")[2]


def test_where_a_cluster_is_found_is_said_by_the_share_of_its_sites():
    run = made(k=2, sites=4)
    for site, counts in zip(run.history["sites"], [[9, 1], [5, 5], [0, 4], [2, 6]], strict=True):
        site["clusters"] = counts
    said = told(report_page(run))
    assert "90 % of the rows of site0 , 50 % of site1 , 25 % of site3 ; none elsewhere." in said
    others = "75 % of site3 , 50 % of site1 ; less at 1 other site."
    assert f"100 % of the rows of site2 , {others}" in said


def test_one_cluster_less_and_one_more_are_named_by_what_joins_and_parts():
    run = binary()
    beside = {
        "1": {"centers": [[0, 0.5, 0.5]], "weights": [200], "centers_in_units":
              {"x": [10.0], "sex=f": [0.5], "sex=m": [0.5]}},
        "3": {"centers": [[-0.5, 0.9, 0.1], [0.5, 0.0, 1.0], [1, 0.4, 0.6]],
              "weights": [100, 60, 40],
              "centers_in_units": {"x": [9.0, 11.0, 12.0], "sex=f": [0.9, 0.0, 0.4],
                                   "sex=m": [0.1, 1.0, 0.6]}},
    }  # fmt: skip
    table = [{"k": k, "likelihood": x} for k, x in ((1, -90.0), (2, -50.5), (3, None))]
    verdict = {"n_clusters": 2, "reason": "So.", "warnings": [], "says": {"likelihood": 2}}
    selection = {**verdict, "table": table, "beside": beside}
    said = told(report_page(Run("run", model=run.model, selection=selection)), "choice")
    assert "0 low x, sex f (100 rows) and 1 high x, sex m (100 rows) would be one" in said
    assert "1 high x, sex m would part in" in said
    assert "(60 rows) and" in said
    assert "39.5 below the best" in said
    assert "no mixture with so many clusters was likely enough to be tried" in said


def test_missing_values_are_counted_by_column_and_site():
    missing = {"missing": {"north": {"bmi": 1234, "age": 0}, HOSTILE: {}}}
    text = report_page(Run("run", history={**made().history, "preprocessing": missing}))
    assert told(text, "data").endswith("Missing values column site values bmi north 1,234")


def test_numbers_for_each_value_held_are_written_out():
    run = made(sites=1)
    run.history["sites"][0] |= {"rows": 10, "values_sent": 2_680}  # 134 for each of 20 values
    page = report_page(run)
    assert ">130<" in page
    assert "1.3e+02" not in page


def test_sizes_are_rows_where_these_are_known():
    run = made()
    sites = [{**site, "rows": site["rows"] + 10} for site in run.history["sites"]]
    model = {**run.model, "weights": [0.5, 0.25, 0.25]}  # sums of memberships
    own = Run("run", model=model, history={**run.history, "sites": sites})
    counts = np.sum([site["clusters"] for site in sites], axis=0)
    np.testing.assert_array_equal(own.sizes, counts)
    text = report_page(own)
    assert f"3 clusters of {counts.sum() + 20} rows at 2 sites" in text
    assert "In no cluster: 20 rows." in text
    assert "1 rows at 2 sites" in report_page(
        Run("run", model=model | {"sites": [{"name": "a"}, {"name": "b"}]})
    )


def test_a_mixture_is_measured_by_its_likelihood():
    run = made()
    text = report_page(Run("run", model=run.model, history={**run.history, "model": "mixture"}))
    assert "the log-likelihood begins at -9 and ends at -3" in text


def test_distances_of_centres_are_in_spreads_of_the_rows_by_hand():
    centers = [[-1.0], [3.0]]  # a column of mean 10 and spread 2, as (x - 10) / 2, counted twice
    column = {"kind": "number", "name": "x", "log": False, "shift": 10.0, "scale": 2 / 2**0.5}
    ward = {"kind": "category", "name": "ward", "levels": ["a", "b"], "other": True}
    units = {"x": [8.0, 12.0], "ward=a": [0.0, 0.4], "ward=b": [1.0, 0.6], "ward=(other)": [0, 0]}
    model = {
        "columns": ["x", "ward"], "centers": centers, "weights": [3.0, 1.0],
        "centers_in_units": units, "preprocessing": {"columns": [column, ward]},
        "algorithm": {"prepare": {"scale": "standard", "weights": {"x": 2.0}}},
    }  # fmt: skip
    x, a, _, other = Run(model=model).features
    np.testing.assert_allclose(x.apart, [-0.5, 1.5])  # 8 and 12 from their mean 9, in spreads of 2
    assert a.name == "ward = a"
    np.testing.assert_allclose(a.apart, (np.array([0, 0.4]) - 0.1) / 0.3)  # p .1, sd sqrt(.09)
    np.testing.assert_array_equal(other.apart, [0.0, 0.0])


def profiles():
    """Profiles of two clusters: ages of mean 10 and spread 2 over all rows, and wards."""
    number, text = ({"column": c, "kind": k} for c, k in (("age", "number"), ("ward", "text")))
    clusters = [
        {"cluster": 0, "name": "young", "sites": {"north": 3.0}, "silhouette": 0.9,
         "silhouette_spread": 0.2, "columns": [
            {**number, "mean": 9.0, "spread": 1.0}, {**text, "shares": {"a": 0.0, "b": 1.0}}]},
        {"cluster": 1, "name": "old", "sites": {"north": 1.0, "south": 2.0},
         "silhouette": 0.5, "silhouette_spread": 0.1, "columns": [
            {**text, "shares": {"a": 0.4, "b": 0.6}}, {**number, "mean": 12.0, "spread": None}]},
    ]  # fmt: skip
    every = [{**number, "mean": 10.0, "spread": 2.0}, {**text, "shares": {"a": 0.2, "b": 0.8}}]
    return {"profiles": {"clusters": clusters, "all": {"columns": every}}}


def test_outcomes_are_tested_and_survival_is_drawn_by_hand():
    times, events = np.array([0.0, 10.0, 20.0, 30.0, np.inf]), np.zeros((1, 2, 4))
    events[0, :, :3] = [[2, 0, 4], [6, 2, 1]]
    censored = np.zeros((1, 2, 4))
    censored[0, :, 1] = [4, 1]
    n, means = np.array([[40.0, 50.0]]), np.array([[1.0, 3.0]])
    found = Comparison.of(
        [
            survival_compared(HOSTILE, "days", times, [np.stack([events, censored])]),
            numbers_compared("cost", n, means, n, np.array([[40.0, 0.0], [0.0, 50.0]]), 1000.0),
            counts_compared("died", ["0", "1"], np.array([[[30.0, 10.0], [20.0, 30.0]]])),
            counts_compared("ward", ["a", HOSTILE], np.array([[[20.0, 20.0], [21.0, 29.0]]])),
        ],
        ("young", "old"),
    )
    model = {"columns": ["age"], "weights": [40.0, 50.0], "algorithm": {}, "centers": [[9], [12]]}
    compared = {"comparison": {**plain(found), "sentences": found.sentences}}
    text = report_page(Run("run", model=model, comparison=json.loads(json.dumps(compared))))
    assert "<img" not in text
    section = unescape(text.partition('<section id="outcomes"')[2].partition("</section>")[0])
    assert 'd="M48.0 10.0H184.0V46.0H320.0V46.0H456.0V190.0" class="stair cluster c0"' in section
    first = section.partition('class="stair cluster c0"')[2].partition("stair")[0]
    assert re.findall(r"<text[^>]*>([\d]+)</text>", first)[2:] == ["10", "8", "4", "0"]
    assert found.sentences[1] in section
    assert found.sentences[2] in section
    assert "<td>1001 (1001 to 1001)</td>" in section
    assert "odds ratio within sites" in section
    assert not Run("run", model=model | {"weights": [1.0]}, comparison=compared).outcomes


def test_offsets_of_sites_are_told_by_size():
    age = {"kind": "number", "log": False, "name": "age"}
    how = {"columns": [age, {**age, "name": HOSTILE, "log": True}]}
    effects = {"noise": [[4.0, 0.0], [0.0, 1.0]], "spread": [0.04, 9.0]}
    model = {"columns": ["age", HOSTILE], "weights": [3.0], "algorithm": {}}
    model["preprocessing"] = how | {"effects": effects}
    section = report_page(Run("run", model=model)).partition('<section id="offsets"')[2]
    section = section.partition("</section>")[0]
    told = re.findall(r"<td[^>]*>([\d.]+) ?(?:<small>|</td>)", section)
    assert told == ["3", "3", "0.2", "0.1"]
    assert "not by patients, in" in section
    effects["spread"] = [0.04, 0.09]
    assert "Sites hardly differ" in report_page(Run("run", model=model))


def test_profiles_give_names_spreads_and_sites_by_hand():
    model = {"columns": ["age", "ward"], "weights": [3.0, 3.0], "algorithm": {}}
    model |= {"centers": [[9.0, 0.0], [12.0, 0.4]]}
    history = {"sites": [{"name": "north"}, {"name": "south"}], "rounds": 2, "history": []}
    run = Run("run", model=model, history=history | {"communication_rounds": []} | profiles())
    age, b = run.features  # one level of two tells of both
    np.testing.assert_allclose(age.apart, [-0.5, 1.0])
    np.testing.assert_allclose(b.apart, [0.5, -0.5])  # sd of a share of .8 is .4
    assert [b.seen_from(j).name for j in (0, 1)] == ["ward = b", "ward = a"]
    np.testing.assert_array_equal(run.counts, [[3, 1], [0, 2]])
    text = report_page(run)
    assert "<bdi>young</bdi>" in text
    assert 'age</bdi> <strong>9.0</strong><span class="pale"> (all rows 10.0)' in text
    assert "75 % of the rows of <bdi>north</bdi>; none elsewhere." in text
    assert Parsed(text).ids[:4] == ["found", "profiles", "sites", "silhouettes"]
    assert "The least separated is cluster 1, with a mean of 0.50." in text
    drawn = Parsed(text, "silhouettes").of_class("reach")
    ends = [(float(each["x1"]), float(each["x2"])) for each in drawn]
    np.testing.assert_allclose(ends, 22 + 436 * np.array([[0.7, 1.0], [0.4, 0.6]]), atol=0.06)
    renamed = report_page(Run("run", model=model | {"names": ["A", "B"]}, profiles=profiles()))
    assert "<bdi>A</bdi>" in renamed
    assert "young" not in renamed
    others = Run("run", model=model | {"weights": [1.0]}, profiles=profiles())
    assert not others.own_profiles  # those of another model


def test_the_share_that_limits_hid_is_of_all_rows_of_a_site():
    told = {"a": (20, 5), "b": (8, 0), "c": (0, 0)}
    sites = [{"name": n, "rows": rows, "rows_held_back": few} for n, (rows, few) in told.items()]
    hidden = Run("run", history={"sites": [*sites, {"name": "d"}]}).hidden
    np.testing.assert_array_equal(hidden, [0.25, 0.0, np.nan, np.nan])


def test_rows_hidden_over_a_network_are_those_that_no_profile_stands_for():
    sites: list[Any] = [  # the profiles of north stand for 3 and 1 rows
        {"name": name, "weight": weight, "limits": []}
        for name, weight in {"north": 5.0, "south": None}.items()
    ]
    history = {**made().history, "sites": sites, **profiles()}
    run = Run("run", model=made(k=2).model, history=history)
    np.testing.assert_allclose(run.hidden, [0.2, np.nan])
    text = report_page(run)
    assert "Hidden rows are those that the sums of the profiles do not include" in text
    assert "<td>20 %</td>" in text


def test_the_plane_is_that_of_the_principal_components_by_hand():
    centers = [[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    model = {"columns": ["a", "b", "c"], "algorithm": {}, "centers": centers, "weights": [1.0] * 4}
    text = report_page(Run("run", model=model))
    cells = "".join(["<td>(.*?)</td>"] * 3)
    told = re.findall(rf'row"><span class="badge c\d">\d</span> <bdi>[^<]*</bdi></th>{cells}', text)
    first, second, far = np.array(told, dtype=float).T
    # in spreads a, b and c are 0 or root 2; the first axis is that of a and b, (1, 1, 0) / root 2
    np.testing.assert_allclose(first, [-2, 2, 0, 0], atol=1e-12)
    np.testing.assert_allclose(second, [0, 0, 1.41, -1.41], atol=1e-12)
    np.testing.assert_allclose(far[:2], 2.45)  # root 2 along each of three columns
    assert "It holds 100 % of the scatter between them. " in text


def test_an_ellipse_is_turned_as_its_rows_spread():
    spreads = [np.array([[1.0, 0.99], [0.99, 1.0]]), np.diag([4.0, 1.0]), None]
    places = np.array([[0.0, 0.0], [5.0, 0.0], [5.0, 5.0]])
    first, second = Parsed(plane("name", "", places, np.ones(3), spreads)).tagged("ellipse")
    assert first["transform"].startswith("rotate(-45.0 ")  # y runs down: towards the upper right
    assert float(second["rx"]) == pytest.approx(2 * float(second["ry"]), abs=0.1)
    assert re.match(r"rotate\(-?(0|180)\.0 ", second["transform"])


def test_discs_that_are_apart_stand_at_their_places_in_the_middle_of_the_map():
    places = np.array([[0.0, 0.0], [8.0, 0.0], [8.0, 6.0]])
    drawn = Parsed(plane("name", "about", places, np.ones(3), [None] * 3))
    at = np.array([[float(a["cx"]), float(a["cy"])] for a in drawn.tagged("circle")])
    assert not drawn.of_class("lead")
    assert at[0, 0] + at[1, 0] == pytest.approx(480.0, abs=0.2)  # of its width
    steps = (at[1, 0] - at[0, 0]) * np.array([[1, 0], [0, -0.75]])
    np.testing.assert_allclose(np.diff(at, axis=0), steps, atol=0.2)


def test_hostile_names_cannot_break_out():
    run = made(names=(HOSTILE, f"{HOSTILE}2"), site=HOSTILE)
    run.history["selection"]["reason"] = HOSTILE
    run.history["missing"][0]["reason"] = HOSTILE
    harmless, hostile = (Parsed(report_page(each)) for each in (made(), run))
    tags = [[tag for tag, _ in each.elements] for each in (harmless, hostile)]
    assert tags[0] == tags[1]
    assert tags[1].count("script") == 1
    assert not {"img", "iframe", "link", "object"} & set(tags[1])
    for _, attributes in hostile.elements:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "src")
        ]
        assert attributes.get("href", "#").startswith("#")
    assert not {"\x1b", "\u202e"} & set("".join(hostile.texts))


def test_a_long_name_is_cut():
    long = report_page(made(names=("a" * 10_000, "b" * 10_000), site="s" * 10_000))
    assert "a" * 119 + "…" in long
    assert len(long) < len(report_page(made())) + 40_000
    assert not re.search("(a{121}|b{121}|s{121})", long)


def test_a_model_without_clusters_has_a_page():
    run = made()
    nothing = {**run.model, "weights": [], "centers": []}
    history = {**run.history, "stability": {}, "selection": {}, "n_clusters": 0}
    text = report_page(Run("run", model=nothing, history=history))
    assert "<h1>No clusters at 2 sites</h1>" in text
    assert not {"profiles", "plane"} & set(Parsed(text).ids)


def test_a_number_that_is_not_known_is_not_shown_as_one():
    told = profiles()
    for cluster in told["profiles"]["clusters"]:
        cluster["silhouette"] = cluster["silhouette_spread"] = None
        for column in cluster["columns"]:
            column |= dict.fromkeys({"mean", "spread"} & column.keys())
    sites = [{"name": "north", "weight": 0.0, "limits": [], "rows": 0, "rows_held_back": 0}]
    model = {**made(k=2).model, "weights": [0.0, 0.0]}
    history = {**made().history, "sites": sites, "stability": {}, **told}
    for each in (Run("run", model=model, history=history), made(k=1), made(columns=1, sites=1)):
        texts = " ".join(Parsed(report_page(each)).texts)
        assert not re.search(r"\b(nan|inf|None)\b", texts.partition("use strict")[0])


def test_the_page_may_load_its_own_script_and_style_and_nothing_else():
    text = report_page(made())
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    policy = unescape(policy)
    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        [inner] = re.findall(f"<{kind}>(.*?)</{kind}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.long
def test_a_report_of_many_clusters_columns_and_sites_is_small():
    text = report_page(made(k=50, columns=200, sites=100))
    assert len(text.encode()) < 3e6
    assert Parsed(text).ids == SECTIONS


def test_a_report_is_written_beside_a_fit_wherever_that_is(fitted, tmp_path, monkeypatch):
    page = fitted / "out" / "report.html"
    assert page.name in json.loads((fitted / "out" / "history.json").read_text())["files"]
    text = page.read_text()
    assert "2 clusters of 120 rows at 2 sites" in text
    (tmp_path / "job.json").write_text("{}")
    outcome = {"done": True, "out": str(fitted / "out")}
    (tmp_path / "outcome.json").write_text(json.dumps(outcome))
    assert json.loads(run("report", tmp_path, "--json").stdout)["report"] == str(page)
    assert page.read_text() == text
    monkeypatch.chdir(fitted)
    said = run("report out").stdout
    assert said == "Wrote out/report.html: open it in a browser.\n"


@pytest.fixture(scope="module")
def two(fitted):
    """The folders of two runs on the same rows, of other columns and numbers of clusters."""
    files = [fitted / "north.csv", fitted / "south.csv"]
    how = ("-k", 3, "--columns", "bmi", "--set", "report=false", "--out", fitted / "other", "-q")
    assert invoke("fit", *files, *how) == (0, "")
    return fitted / "out", fitted / "other", files


def crossed(one, other, sites=("north", "south")):
    """The rows in each pair of clusters of two runs, by the files of labels."""
    table = np.zeros((2, 3), int)
    for site in sites:
        labels = (out / "labels" / f"{site}.csv" for out in (one, other))
        first, second = (np.loadtxt(each, int, delimiter=",", skiprows=1)[:, 1] for each in labels)
        np.add.at(table, (first, second), 1)
    return table


def between(output):
    """The rows in each pair of clusters, as a screen shows them."""
    table = output[output.index("Rows in each cluster (lines)") :]
    lines = [re.findall(r"^ *(\d+|none)((?: +[\d,]+)+) *$", line) for line in table.splitlines()]
    told = [line[0] for line in lines if line]
    return np.array([[int(n.replace(",", "")) for n in counts.split()] for _, counts in told])


def test_two_models_are_compared_by_the_rows_in_each_pair_of_clusters(two, tmp_path):
    one, other, files = two
    table = crossed(one, other)
    said = run("evaluate", one, *files, "--beside", other).stdout
    assert np.array_equal(between(said), table)
    assert f"(adjusted Rand index {adjusted_rand_index(table):.2f})" in " ".join(said.split())
    turned = run("evaluate", other, *files, "--beside", one, "--out", tmp_path / "out").stdout
    assert np.array_equal(between(turned), table.T)
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert np.array_equal(scores["beside"]["rows"], np.pad(table.T, ((0, 1), (0, 1))))


@pytest.mark.parametrize("protection", ["limits", "groups"])
def test_counts_of_two_models_keep_the_limits_of_a_site(two, tmp_path, protection):
    one, other, files = two
    counts = crossed(one, other, ["north"])
    least = int(np.sort(counts.ravel())[3])
    rule = {"limits": "[limits]\nmin_cluster_size", "groups": "[groups]\np"}[protection]
    source = f'name = "north"\nprotection = "{protection}"\n[source]\npath = "{files[0]}"\n'
    (tmp_path / "site.toml").write_text(f"{source}{rule} = {least}\n")
    said = run("evaluate", one, tmp_path / "site.toml", "--beside", other).stdout
    told = between(said)
    if protection == "groups":  # whole groups are counted, by the clusters of their means
        assert told.sum() == 60
        assert told[told > 0].min() >= least
        return
    assert np.array_equal(told, np.where(counts >= least, counts, 0))
    assert 0 < told.sum() < 60
    assert f"Not shown: {60 - told.sum()} row" in " ".join(said.split())


@pytest.mark.parametrize(
    ("rows", "header", "lines"),
    [
        ([[20.0, 3.0, 1.0], [0.0, 0.0, 0.0]], ("cluster", "0", "1", "none"), ["0 20 3 1"]),
        ([[20.0, 0.0], [3.0, 0.0]], ("cluster", "0"), ["0 20", "none 3"]),
    ],
)
def test_rows_in_no_cluster_have_a_line(rows, header, lines):
    table, said = profiles_shown({"beside": {"rows": rows, "meaning": ["so"]}}, 80, None)
    assert isinstance(table, Table)
    assert table.header == header
    assert [" ".join(row) for row in table.rows] == lines
    assert said == "so"


def test_pairs_of_many_clusters_are_in_a_file():
    many = {"rows": np.ones((3, 14)).tolist(), "meaning": []}
    assert profiles_shown({"beside": many}, 80, None) == ["Rows in each pair of clusters: --json."]


def test_no_value_of_a_row_is_in_what_is_told_of_all_rows(fitted):
    lines = [(fitted / f"{name}.csv").read_text().split()[1:] for name in ("north", "south")]
    cells = ",".join([*lines[0], *lines[1]]).split(",")
    assert len(cells) == 240
    for file in ("report.html", "history.json", "model.json"):
        text = (fitted / "out" / file).read_text()
        assert [cell for cell in cells if cell.lstrip("-")[:7] in text] == []


def test_a_fit_without_a_report_removes_that_of_an_earlier_one(tmp_path):
    (tmp_path / "rows.csv").write_text("x\n1\n2\n9\n10\n")
    out = tmp_path / "out"
    fit = ("fit -k 2 --algorithm lloyd -q", tmp_path / "rows.csv", "--out", out)
    assert invoke(*fit)[0] == 0
    assert (out / "report.html").exists()
    assert invoke(*fit, "--overwrite", "--set", "report=false")[0] == 0
    assert not (out / "report.html").exists()
    assert "report.html" not in json.loads((out / "history.json").read_text())["files"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"model.json": '{"format": "fedcluster-model"}'}, "is damaged"),
        ({"job.json": "{}", "outcome.json": '{"done": false, "error": "silent"}'}, "silent"),
        ({}, "holds no result"),
        ({"model.json": "{"}, "model.json is damaged"),
        ({"history.json": '{"format": "other"}'}, "not fedcluster-history"),
        ({"job.json": "{}"}, "has not ended"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_read_is_said_in_one_line(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert said in fails("report", tmp_path)


def test_a_chart_shows_its_points_where_its_axes_say():
    drawn = Parsed(curve("name", "about", [1, 2, 3], [10.0, float("nan"), 1.0], label="round"))
    centres = drawn.tagged("circle")
    assert [float(each["cy"]) for each in centres] == [14.0, 150.0]  # the highest is at the top
    assert float(centres[0]["cx"]) < float(centres[1]["cx"])
    assert curve("name", "about", [1], [1.0], label="round") == ""
    axis = Axis(0.01, 100.0, 0.0, 4.0, log=True)
    assert [axis.at(x) for x in (0.01, 1.0, 100.0)] == [0.0, 2.0, 4.0]


@pytest.mark.skipif(program() is None, reason="there is no Chromium")
def test_a_browser_draws_sorts_hides_and_asks_for_nothing(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report_page(made(k=4, columns=6, sites=3)))
    every = "[...document.querySelectorAll('{}')].{}".format
    with browser_page(tmp_path / "profile") as shown:
        for width, scheme in ((390, "dark"), (1280, "light")):
            shown.open(path.as_uri(), width, scheme)
            assert shown.value("document.documentElement.scrollWidth") == width
            assert shown.value(every("svg", "every(s => s.getBBox().width > 50)"))
        column = "map(r => r.cells[2].querySelector('small').textContent)"
        shown.value(every("#profiles th button", "at(2).click()"))
        falling = [float(each) for each in shown.value(every("#profiles tbody tr", column))]
        assert falling == sorted(falling, reverse=True)
        assert len(set(falling)) > 1
        for kind in ("site", "cluster"):
            shown.value(f"document.querySelector('[data-hide={kind}] input').click()")
            hidden, gone = f'[data-{kind}="0"]', "every(e => getComputedStyle(e).display == 'none')"
            assert shown.value(every(hidden, "length")) > 1
            assert shown.value(every(hidden, gone))
        assert shown.errors == []
        assert {each.split(":")[0] for each in shown.requests} <= {"file"}


def test_a_difference_that_rounds_to_0_has_no_minus(tmp_path):
    y = [float(i // 2 % 2) for i in range(200)]
    y[2] = 0.0
    cells = "".join(f"{10 * (i % 2) + 0.001 * i},{y[i]}\n" for i in range(200))
    (tmp_path / "rows.csv").write_text(f"x,y\n{cells}")
    assert invoke("fit -k 2", tmp_path / "rows.csv", "--out", tmp_path / "out")[0] == 0
    said = (tmp_path / "out" / "report.html").read_text()
    assert (said.count("+0.0<"), said.count("-0.0<")) == (2, 0)

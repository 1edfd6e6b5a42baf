"""The files of a job: one published format each, wherever the job ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from test_federation import site_tomls
from test_federation_jobs import over, read, trial  # noqa: F401
from typed import invoke

pytestmark = pytest.mark.usefixtures("short_searches")

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
ONLY_WHERE_ROWS_ARE = {"rows", "clusters", "rows_held_back", "lone_rows", "labels", "scores"}
FIT = ("fit", "-k", 3)
JOBS = {
    "a fit": FIT,
    "a choice in a fit": ("fit", "-k", "auto"),
    "selection": ("select-k", "--k-max", 3),
    "with profiles": (*FIT, "--profile"),
    "fuzzy": ("fit", "-k", 2, "--fuzzy", "--scale", "none", "--set", "fit.max_iter=3"),
}


def validated(path: Path) -> dict[str, Any]:
    content = read(path)
    schema = json.loads((SCHEMAS / f"{path.stem}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(content)
    return content


def keys(content: Any, name: str = "") -> Any:
    """Return the keys of a file at every depth, without what only the rows' owner knows."""
    if isinstance(content, dict):
        return {k: keys(v, k) for k, v in content.items() if k not in ONLY_WHERE_ROWS_ARE}
    if isinstance(content, list) and name in ("sites", "table", "history", "communication_rounds"):
        return [keys(each) for each in content]
    return None


@pytest.mark.parametrize("command", JOBS.values(), ids=JOBS)
def test_both_ways_write_the_same_format(trial, over, tmp_path, command) -> None:  # noqa: F811
    name, *options = command
    status, said = over(name, *options, "--out", tmp_path / "there")
    is_chosen = name == "select-k" or "auto" in options
    assert (status, "What each index says of each k" in said) == (0, is_chosen), said
    assert invoke(name, *site_tomls(trial), *options, "--out", tmp_path / "here")[0] == 0
    written = sorted((tmp_path / "there").glob("*.json"))
    assert [p.name for p in written] == [p.name for p in sorted((tmp_path / "here").glob("*.json"))]
    for path in written:
        here, there = validated(tmp_path / "here" / path.name), validated(path)
        if path.stem == "model":
            del here["algorithm"]["min_cluster_size"]  # the sites' own, over a network
            assert here.pop("sites") == there.pop("sites")
            assert here == there
        else:
            assert keys(here) == keys(there)
            for key in ("communication_rounds", "selection", "n_clusters"):
                assert here.get(key) == there.get(key), key
            assert path.stem != "history" or here["n_clusters"] > 1


def test_both_ways_write_the_same_scores(trial, over, tmp_path) -> None:  # noqa: F811
    assert invoke("fit", *site_tomls(trial), "-k", 3, "--out", tmp_path / "fit")[0] == 0
    model, here, there = (tmp_path / name for name in ("fit/model.json", "here", "there"))
    beside = ("--beside", model)
    assert over("evaluate", model, *beside, "--labels", "--out", there)[0] == 0
    status, said = invoke("evaluate", model, *site_tomls(trial), *beside, "--out", here)
    assert (status, f"Wrote {here / 'scores.json'}." in said) == (0, True), said
    ours, theirs = validated(here / "scores.json"), validated(there / "scores.json")
    assert keys(ours) == keys(theirs)
    assert (ours["scores"], ours["classes"]) == (theirs["scores"], theirs["classes"])
    assert ours["beside"] == theirs["beside"]


def test_both_ways_write_the_same_profiles(trial, over, tmp_path) -> None:  # noqa: F811
    assert invoke("fit", *site_tomls(trial), "-k", 3, "--out", tmp_path / "fit")[0] == 0
    model, here, there = (tmp_path / name for name in ("fit/model.json", "here", "there"))
    assert over("profile", model, "--out", there)[0] == 0
    assert invoke("profile", model, *site_tomls(trial), "--out", here)[0] == 0
    ours, theirs = validated(here / "profiles.json"), validated(there / "profiles.json")
    assert keys(ours) == keys(theirs)
    assert ours["profiles"] == theirs["profiles"]


def test_both_ways_compare_the_same_outcomes(trial, over, tmp_path) -> None:  # noqa: F811
    options = ("--columns", "x", "-k", 2, "--out", tmp_path / "fit")
    assert invoke("fit", *site_tomls(trial), *options)[0] == 0
    model, here, there = (tmp_path / name for name in ("fit/model.json", "here", "there"))
    status, told = over("profile", model, "--outcome", "y", "--out", there)
    assert status == 0, told
    status, said = invoke("compare", model, *site_tomls(trial), "--outcome", "y", "--out", here)
    assert status == 0, said
    ours, theirs = validated(here / "comparison.json"), validated(there / "comparison.json")
    assert keys(ours) == keys(theirs)
    assert ours["comparison"] == theirs["comparison"]
    assert all(sentence in told for sentence in ours["comparison"]["sentences"])
    assert over("profile", model, "--outcome", "x", "--out", tmp_path / "none")[0] == 2


def test_an_algorithm_of_one_s_own_is_named_by_its_module(trial, over, tmp_path) -> None:  # noqa: F811
    """Over a network each site knows it, since here it is one of ours."""
    options = ["-k", 3, "--algorithm", "fedcluster.algorithms.KFed"]
    assert over("fit", *options, "--out", tmp_path / "own")[0] == 0
    assert over("fit", *options[:2], "--algorithm", "kfed", "--out", tmp_path / "named")[0] == 0
    own, named = (read(tmp_path / side / "model.json") for side in ("own", "named"))
    assert own["centers"] == named["centers"]
    status, said = over("fit", "-k", 3, "--algorithm", "no.such.Thing", "--out", tmp_path / "none")
    assert status == 2
    assert "algorithm 'no.such.Thing' cannot be made: No module named 'no'" in said
    status, said = over("fit", "-k", 3, "--algorithm", "loyd", "--out", tmp_path / "none")
    assert (status, "--algorithm must be one of 'auto', 'lloyd'" in said) == (2, True)

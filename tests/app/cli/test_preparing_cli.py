"""Files as they really are: text, missing values, other units, other orders, columns too many."""

import json
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from typed import cases, fails, run

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans, select_k
from fedcluster.errors import InputError
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.model import Model
from fedcluster.options.choices import MISSING, SCALES
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.cli._options import Scaling
from fedcluster_app.site.worker import keep_results

pytestmark = pytest.mark.usefixtures("here", "short_searches")


@pytest.fixture(scope="module")
def tables():
    """Three clinics: one with a column more, one with missing values, each in its own order."""
    rng = np.random.default_rng(0)
    kinds = {"young": (30.0, 1.60), "middle": (45.0, 1.75), "old": (65.0, 1.68)}
    seen = {"north": ["young", "middle"], "south": ["middle", "old"], "west": ["old", "young"]}
    tables = {}
    for clinic, those in seen.items():
        typical = np.array([kinds[kind] for kind in rng.choice(those, 60)])
        X = typical + rng.normal(scale=[2, 0.01], size=(60, 2))
        frame = pd.DataFrame(X, columns=["age", "height"])
        tables[clinic] = frame.assign(sex=rng.choice(["F", "M"], 60))
    notes = [f"n{i}" for i in range(60)]
    tables["south"] = tables["south"][["sex", "height", "age"]].assign(note=notes)
    tables["west"].loc[3, "height"] = np.nan
    tables["west"].loc[5, "sex"] = None
    return tables


@pytest.fixture
def files(tables):
    for clinic, frame in tables.items():
        frame.to_csv(f"{clinic}.csv", index=False)
    return [f"{clinic}.csv" for clinic in tables]


def test_three_files_as_they_are_take_one_command(files):
    ran = run("fit", *files, "-k", 3, "--out", "out")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith(
        "Prepared: age and height with mean 0 and variance 1; sex as 2 columns of 0 and 1.\n"
        "Missing values: 1 of height at west and 1 of sex at west; filled in with the mean, or the "
        "commonest text, of all sites.\n"
        "Left out: note (only south has it).\n"
    )
    assert "Centres, in the units of the columns\n" in ran.stdout
    grouped = run("fit", *files, "-k", 3, "--out", "groups", "--set", "protection=groups")
    counted = "Missing values, by whole groups of rows: 5 of height at west and 5 of sex at west; "
    assert counted in grouped.stdout
    model = json.loads(Path("out/model.json").read_text())
    assert model["columns"] == ["age", "height", "sex"]
    heights = sorted(model["centers_in_units"]["height"])
    np.testing.assert_allclose(heights, [1.60, 1.68, 1.75], atol=0.01)
    prepared = json.loads(Path("out/history.json").read_text())["preprocessing"]
    assert prepared["missing"] == {"west": {"height": 1, "sex": 1}}
    assert prepared["left_out"] == {"note": "only south has it"}


def test_predict_in_another_process_gives_the_labels_of_the_fit(files):
    how = "fit -k 3 --set prepare.pca=2 --scale robust --out out"
    run(how, "--set", "prepare.log=['age']", *files)
    script = Path(sys.executable).with_name("fedcluster")
    arguments = [script, "predict", "out/model.json", *files, "--out", "again", "--quiet"]
    subprocess.run(arguments, check=True)
    for file in files:
        assert Path("again", file).read_text() == Path("out/labels", file).read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("adjust", ["site", "site-scale"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_site_keeps_a_model_with_its_offset_for_single_rows(files, adjust):
    run("fit -k 3 --out out --adjust", adjust, *files)
    for file in files:
        labels, here = Path("out/labels", file).read_text(), Path("out/labels", file[:-3] + "json")
        assert "effects" not in json.loads(here.read_text())["preprocessing"]
        one = pd.read_csv(file).iloc[[7]]
        one.to_csv("one.csv", index=False)
        run("predict", here, file, "one.csv", "--out", "again", "--overwrite")
        assert Path("again", file).read_text() == labels
        assert Path("again/one.csv").read_text().split(",")[-1] == labels.split()[8][2:] + "\n"
        table = read_table(pd.read_csv(file), ColumnRoles(raw=True), file)
        content = json.loads(Path("out/model.json").read_text())
        assert not keep_results(lambda *_, rows=table: [rows], content, Path("results"))
        assert json.loads(Path("results/labels.json").read_text()) == json.loads(here.read_text())
    run("fit -k 3 --out out --overwrite", *files)
    assert not [*Path("out/labels").glob("*.json")]


@pytest.mark.parametrize("estimator", [FederatedKMeans(3), FederatedFuzzyCMeans(3)])
@pytest.mark.parametrize("missing", ["drop", "mean", "median"])
def test_python_does_the_same_and_labels_raw_rows_alike(tables, estimator, missing):
    estimator.set_params(prepare=PreprocessingSpec(missing=missing), random_state=0).fit(tables)
    for clinic, frame in tables.items():
        np.testing.assert_array_equal(estimator.predict(frame), estimator.site_labels_[clinic])
    assert (estimator.site_labels_["west"][[3, 5]] == -1).all() == (missing == "drop")
    assert estimator.fit_report_.missing == {"west": {"height": 1, "sex": 1}}
    assert estimator.feature_names_in_.tolist() == ["age", "height", "sex"]
    assert np.isfinite(estimator.score(tables["west"]))
    distances = estimator.transform(tables["west"])
    assert np.isnan(distances[3]).all() == (missing == "drop")
    Model.from_estimator(estimator).save("model.json")
    data = Model.load("model.json")
    assert data.preprocessor == estimator.preprocessor_


def test_dropped_rows_have_no_cluster_and_it_is_said(files):
    ran = run("fit", *files, "-k", 3, "--missing", "drop", "--out", "out")
    assert "their rows are dropped and have the label -1." in ran.stdout
    assert "Rows without a cluster (-1): 2 of west.\n" in ran.stdout
    assert Path("out/labels/west.csv").read_text().splitlines()[4] == "4,-1"
    again = run("predict", "out/model.json", "west.csv", "--out", "again")
    assert "Rows without a cluster (-1): 2 of west.\n" in again.stdout
    fuzzy = run("fit", *files, "-k", 3, "--missing", "drop", "--fuzzy", "--out", "fuzzy")
    assert fuzzy.exit_code == 0
    assert Path("fuzzy/labels/west.csv").read_text().splitlines()[4].startswith("4,-1,")


def test_a_weight_makes_text_count_less(files, tables):
    ran = run("fit", *files, "-k", 2, "--set", "prepare.weights={sex=0.01,age=2}", "--out", "out")
    assert ran.stdout.startswith(
        "Prepared: age and height with mean 0 and variance 1; sex as 2 columns of 0 and 1; "
        "squares of sex 0.01 times and age 2 times.\n"
    )
    prepare = PreprocessingSpec(missing="mean", weights={"sex": 0.01, "age": 2.0})
    with pytest.warns(UserWarning, match="lies? in one cluster, to 98 % and more"):
        model = FederatedKMeans(2, prepare=prepare, random_state=0).fit(tables)
    saved = Model.load("out/model.json")
    np.testing.assert_array_equal(saved.centers, model.cluster_centers_)
    assert saved.preprocessor == model.preprocessor_
    every = pd.concat(tables.values())[["age", "height", "sex"]]
    assert model.preprocessor_ is not None
    pooled = model.preprocessor_.apply(read_table(every, ColumnRoles(raw=True)))
    twin = KMeans(2, n_init=10, random_state=0).fit(pooled.X)
    assert model.inertia_ == pytest.approx(twin.inertia_, rel=1e-9)


@pytest.mark.parametrize(
    ("new", "said"),
    cases("""
        30,1.6,X/31,1.7,F => Texts that the model does not know, taken for none: 1 of sex at new.
        30,,F/31,,
            => Missing values: 2 of height at new and 1 of sex at new; filled in as in the fit.
    """),
)
def test_what_is_not_known_of_new_rows_is_told(files, new, said):
    run("fit -k 3 --out out --missing mean", *files)
    Path("new.csv").write_text("\n".join(["age,height,sex", *new.split("/"), ""]))
    assert f"{said}\n" in run("predict out/model.json new.csv --out more").stdout


def test_evaluate_and_select_k_prepare_alike(files, tables):
    run("fit", *files, "-k", 3, "--out", "out", "--json")
    scores = json.loads(run("evaluate", "out/model.json", *files, "--json").stdout)["scores"]
    assert scores["inertia"] == pytest.approx(Model.load("out/model.json").inertia, rel=1e-9)
    chosen = json.loads(run("select-k", *files, "--k-max", 5, "--json").stdout)
    prepare = PreprocessingSpec(missing="mean")
    found = select_k(tables, range(1, 6), prepare=prepare, random_state=0)
    assert chosen["n_clusters"] == found.n_clusters
    assert chosen["says"] == dict(found.says)


def test_rows_as_they_are_make_a_model_that_older_programs_read(files):
    run("fit", *files, "-k", 3, "--columns", "age", "--scale", "none", "--out", "out")
    content = json.loads(Path("out/model.json").read_text())
    assert content["format_version"] == 1
    assert "preprocessing" not in content


def test_the_names_to_choose_from_are_those_of_prepare():
    offered = {field.name: field.metadata.get("choices") for field in fields(Scaling)}
    assert offered["scale"] == SCALES
    assert offered["missing"] == MISSING


@pytest.mark.parametrize(
    ("options", "line"),
    cases("""
        --missing error
            => values are missing: 1 of 'height' at west; 1 of 'sex' at west; drop their rows or \
fill them in: missing is one of drop, mean, median and ignore
        --set prepare.weights.sex=-1
            => the weight of 'sex' must be above 0 and at most 1e+12, not -1.0
        --scale minmax
            => scaling by minmax needs bounds of 'age', 'height': give them, since a site's \
smallest and largest values are single rows and never leave it
        --set prepare.bounds=[1] => --set prepare.bounds=[1]: [prepare], bounds must be two
        --set prepare.weights.sex=a => --set prepare.weights.sex=a: [prepare], weights.sex
        --set prepare.bounds.age=1 => --set prepare.bounds.age=1: [prepare], bounds.age
        --set prepare.bounds.age=[9,1] => the bounds of 'age', 9.0 and 1.0, are no interval
        --set prepare.log=["size"]
            => the logarithm of 'size': that is no column of numbers; there are
        --categories size => there is no column 'size' to make categories of
        --set prepare.pca=0 => prepare.pca must be at least 1, not 0
        --set prepare.pca=9
            => 9 principal components are asked for, of 4 columns; ask for at most 4
        --columns age,note => site 'north' has no column 'note'; it has age, height, sex
    """),
)
def test_what_cannot_be_done_is_one_line(files, options, line):
    assert fails("fit -k 3 --out out", *files, *options.split()).startswith(line)


def left_out(files):
    """The columns that are left out where one is lenient, but for the note."""
    ran = run("fit -k 2 --out out --json --set lenient=true", *files)
    told = json.loads(ran.stdout)["preprocessing"]["left_out"]
    assert told.pop("note") == "only south has it"
    return told


@pytest.mark.parametrize(
    ("content", "line", "more"),
    cases("""
        age,sex,height/1,F,1.5/3,M,tall/4,F,1.6
            => row 2 (line 3 of west.csv): 'tall' is not a number, as most of this column are; \
mend it or leave the column out
            => , or say --set 'missing_values=["tall"]' where no value is meant, --categories \
auto,height where all are names
        height,sex,age/tall,F,1/1.5,M,2/big,F,3/1.6,M,4/huge,F,5/1,M,6/2,F,7/low,M,8/3,F,9
            => row 1 (line 2 of west.csv): 'tall' is not a number, as most of this column are \
(nor are 3 more of its 9 values); mend it or leave the column out
            => .
        age,height,sex/1,"1,5",F/3,"1.6",M
            => row 1 (line 2 of west.csv): '1,5' has a decimal comma
            => , and '1.6' a point; save the file with decimal points
        age,height,sex/1,inf,F/3,2,M => row 1 (line 2 of west.csv): => the value is infinite
    """),
)
def test_a_column_with_an_odd_value_is_refused_unless_one_is_lenient(files, content, line, more):
    Path("west.csv").write_text(content.replace("/", "\n") + "\n")
    said = f"site 'west', column 'height', {line}"
    assert fails("fit -k 2 --out out --columns age,height,sex", *files).startswith(said)
    failed = fails("fit -k 2 --out out", *files)
    assert failed.startswith(said)
    assert failed.rstrip().endswith("; --exclude height or --set lenient=true goes on without")
    told = f"at west, {line}{' ' * line.endswith(':')}{more.removeprefix('.')}"
    assert left_out(files) == {"height": told}


@pytest.mark.parametrize(
    ("content", "line", "column", "told"),
    cases("""
        age,height/1,2/3,4 => site 'west' has no column 'sex'; it has age, height
            => sex => lacking at west
        age,height,sex/1,,F/3,,M => column 'height' holds numbers at north and south, no
            => height => numbers at north and south, no value at west
    """),
)
def test_a_column_that_a_site_lacks_is_left_out(files, content, line, column, told):
    Path("west.csv").write_text(content.replace("/", "\n") + "\n")
    assert fails("fit -k 2 --out out --columns age,height,sex", *files).startswith(line)
    assert left_out(files) == {column: told}


@pytest.mark.parametrize(
    ("content", "line", "named", "unnamed"),
    cases("""
        age,height,sex/1,2,1/3,4,2/5,6,2/7,8,3
            => column 'sex' holds text at north and south, numbers at west
            => ; mend that or choose => : correct it
        age,height,sex/1,2020-01-02,F/3,2020-01-03,M
            => column 'height' holds numbers at north and south, dates at west
            => ; mend that => : correct it at west
    """),
)
def test_columns_of_two_kinds_are_refused(files, content, line, named, unnamed):
    Path("west.csv").write_text(content.replace("/", "\n") + "\n")
    chosen = "--columns age,height,sex"
    assert fails(f"fit -k 2 --out out {chosen}", *files).startswith(line + named)
    assert fails("fit -k 2 --out out", *files).startswith(line + unnamed)


@pytest.mark.parametrize("words", [("unknown",), ("(?)", "n.b."), ("a b", "c", "d")])
def test_the_proposed_words_for_missing_values_work_when_typed(files, words):
    rows = [f"{i},{words[i % len(words)] if i < 4 else i},F" for i in range(12)]
    Path("west.csv").write_text("\n".join(["age,height,sex", *rows]))
    line = fails("fit", *files, "-k", 2, "--out", "out")
    assert "(nor are 3 more of its 12 values)" in line
    said = shlex.split(line[line.index("--set") :])[:2]
    done = json.loads(run("fit", *files, "-k", 2, "--out", "out", "--json", *said).stdout)
    assert done["preprocessing"]["left_out"] == {"note": "only south has it"}
    assert done["preprocessing"]["missing"]["west"]["height"] == 4


@pytest.mark.parametrize("change", [{"columns": 3}, {"missing": "?"}, {"principal": []}])
def test_a_damaged_preparation_is_refused_in_one_line(files, change):
    run("fit", *files, "-k", 2, "--out", "out")
    content = json.loads(Path("out/model.json").read_text())
    content["preprocessing"] |= change
    Path("damaged.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="is damaged: 'preprocessing' is not valid"):
        Model.load("damaged.json")


def test_one_file_of_all_sites_is_prepared_too(tables, files):
    both = pd.concat([tables[name].assign(clinic=name) for name in ("north", "west")])
    both.to_parquet("all.parquet", index=False)
    ran = run("fit all.parquet --site-column clinic -k 3 --out out --json")
    assert json.loads(ran.stdout)["columns"] == ["age", "height", "sex"]
    assert run("fit north.csv west.csv -k 3 --out two").exit_code == 0
    for name in ("north", "west"):
        one, other = (pd.read_csv(f"{out}/labels/{name}.csv") for out in ("out", "two"))
        assert one["cluster"].tolist() == other["cluster"].tolist()


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ({"s": ["F", "M"] * 20, "s=F": [100.0 + i % 3 for i in range(40)]}, "s=F"),
        ({"a": ["b=c", "d"] * 20, "a=b": ["c", "e"] * 20}, "a=b=c"),
    ],
)
def test_a_column_called_as_a_text_of_another_is_refused(rows, name):
    line = f"would both give a column '{name}': rename one of them, or leave it out"
    with pytest.raises(InputError, match=line):
        FederatedKMeans(2, prepare="auto", random_state=0).fit(pd.DataFrame(rows))

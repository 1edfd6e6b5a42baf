"""The model file: readable without us, exact, and refused when something is wrong with it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedcluster.core import Limit, SiteInfo
from fedcluster.errors import InputError
from fedcluster.estimators import FederatedKMeans
from fedcluster.model import Model
from fedcluster.model.file import checked

NORTH = np.array([[0.0, 1.0], [0.0, 3.0], [8.0, 1.0], [8.0, 3.0]])
WHOLE = Model(NORTH, np.ones(4), ("a", "b"), sites=(SiteInfo("north"),))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


@pytest.fixture(scope="module")
def fitted():
    return FederatedKMeans(2, random_state=3).fit({"north": NORTH, "south": NORTH + 0.1})


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=NUMBERS))
def test_floats_come_back_to_the_last_bit(tmp_path_factory, centers):
    path = tmp_path_factory.mktemp("model") / "model.json"
    k, d = centers.shape
    Model(centers, centers[:, 0], tuple(f"x{j}" for j in range(d))).save(path)
    model = Model.load(path)
    np.testing.assert_array_equal(model.centers, centers)
    np.testing.assert_array_equal(model.weights, centers[:, 0])
    assert model.centers.shape == (k, d)


def test_a_fit_comes_back_whole(path, fitted):
    Model.from_estimator(fitted, columns=["age", "größe"], dtype="float32").save(path)
    model = Model.load(path)
    np.testing.assert_array_equal(model.centers, fitted.cluster_centers_)
    assert model.weights.tolist() == [4.0, 4.0]
    assert model.columns == ("age", "größe")
    limits = (Limit("MinRows", (("n", 2),)),)
    assert model.sites == (SiteInfo("north", limits), SiteInfo("south", limits))
    assert (model.rounds, model.inertia) == (fitted.n_iter_, fitted.inertia_)
    assert (model.seed, model.dtype) == (3, "float32")
    assert (model.algorithm["name"], model.algorithm["n_clusters"]) == ("auto", 2)
    assert any(step.startswith("Lloyd(") for step in model.algorithm["steps"])
    np.testing.assert_array_equal(model.predict(NORTH), fitted.site_labels_["north"])


def test_the_file_is_plain_json_with_one_centre_a_line(path):
    centers = np.array([[0.1, 2.0], [3.0, 4.0]])
    Model(centers, np.array([5.0, 6.0]), ("a", "b")).save(path)
    content = json.loads(path.read_text("utf-8"))
    first = "format", "format_version", "fedcluster_version", "columns", "centers", "weights"
    assert tuple(content)[:6] == first
    assert content["format"] == "fedcluster-model"
    assert content["inertia"] is None
    assert "    [0.1, 2.0],\n    [3.0, 4.0]\n" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("parameters", "parameter", "value"),
    [
        ({"init": np.min, "algorithm": "lloyd"}, "init", "min"),
        ({"random_state": np.random.RandomState(0)}, "max_iter", 300),
    ],
)
def test_what_no_estimator_could_read_back_is_written_in_words(
    path, fitted, parameters, parameter, value
):
    estimator = FederatedKMeans(2, **parameters)
    estimator.__dict__ |= {k: v for k, v in vars(fitted).items() if k.endswith("_")}
    Model.from_estimator(estimator).save(path)
    assert json.loads(path.read_text())["algorithm"][parameter] == value
    assert Model.load(path).columns == ("x0", "x1")


def test_loading_needs_neither_numba_nor_scikit_learn(path):
    WHOLE.save(path)
    code = (
        "import sys; from fedcluster.model.file import Model; Model.load(sys.argv[1]);"
        "print(*sys.modules.keys() & {'numba', 'sklearn', 'pandas'})"
    )
    command = [sys.executable, "-c", code, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"X has 1 features, but Model is expecting 2 .*: a, b$"):
        WHOLE.predict(np.zeros((3, 1)))


def test_a_failed_save_leaves_the_old_file(path):
    WHOLE.save(path)
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        Model(np.full((4, 2), np.inf), np.ones(4), ("a", "b")).save(path)
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged or no model: Expecting value: line 1 column 1 (char 0); give the model"),
        ('{"format": NaN}', "is damaged or no model: it holds NaN; give the model.json"),
        ("[" * 99999, "is damaged or no model: "),
        ("[]", "is not a model of fedcluster; give the model.json of a fit"),
        ('{"format": "other"}', "is not a model of fedcluster; give the model.json of a fit"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(path, text, message):
    path.write_text(text)
    with pytest.raises(InputError) as said:
        Model.load(path)
    assert str(said.value).startswith(f"{path} {message}")
    assert "\n" not in str(said.value)


def at_first(value):
    """Centres of which the second number is another."""
    return {"centers": [[0.0, value], [2.0, 1.0]]}


ARRAY = "memory.r must be an array of numbers"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at_first(1e999), "centers[0][1] must be a finite number, not inf"),
        ({"weigths": [1.0]}, "unknown key 'weigths'; did you mean 'weights'?"),
        ({"format_version": "1"}, "format_version must be a whole number, not '1'"),
        ({"centers": None}, "centers must be a list, not None"),
        ({"centers": []}, "centers must be centres with 2 numbers each"),
        ({"centers": [[0.0, 1.0], [2.0]]}, "centers must be centres with 2 numbers each"),
        (at_first(None), "centers[0][1] must be a number, not None"),
        (at_first(True), "centers[0][1] must be a number, not True"),
        (at_first(10**400), f"centers[0][1] must be a finite number, not 1{'0' * 59}..."),
        ({"weights": [1.0]}, "weights must be a list of 2 numbers"),
        ({"columns": []}, "columns must be a list of at least 1, not []"),
        ({"columns": ["a", 7]}, "columns[1] must be a text, not 7"),
        ({"rounds": -1}, "rounds must be a whole number of at least 0, not -1"),
        ({"sites": [{"name": "a"}]}, "sites[0]: 'limits' is missing"),
        (
            {"sites": [{"name": "a", "limits": [], "rows": 9}]},
            "unknown key 'rows'; known are name, limits",
        ),
        (
            {"sites": [{"name": "a", "limits": [{"name": "p", "n": [1]}]}]},
            "the parameters of the limit 'p' are not scalars",
        ),
        ({"dtype": "int8"}, "dtype must be one of float32, float64, not 'int8'"),
        ({"inertia": "low"}, "inertia must be a number, not 'low'"),
        ({"memory": {"r": [10**400]}}, ARRAY),
        ({"memory": {"r": [[1.0], 2.0]}}, ARRAY),
        ({"memory": {"r": {"a": 1}}}, ARRAY),
        ({"privacy": {"epsilon": 1.0}}, "privacy: 'delta' is missing"),
        ({"preprocessing": []}, "preprocessing must be a table, not []"),
        ({"preprocessing": {}}, "'preprocessing' is not valid ('principal')"),
        (
            {"names": ["a", "a"]},
            "two clusters cannot both be called 'a'; name the clusters anew",
        ),
        (
            {"format_version": 5, "fedcluster_version": "9.0"},
            "was made by a newer fedcluster (9.0, format 5, this one reads 4); upgrade fedcluster",
        ),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(path, change, message):
    Model(NORTH[:2], np.ones(2), ("a", "b"), sites=(SiteInfo("north"),)).save(path)
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps(content).replace("Infinity", "1e999"))
    with pytest.raises(InputError) as said:
        Model.load(path)
    assert str(said.value).startswith(str(path))
    mend = "" if {"names", "fedcluster_version"} & change.keys() else "; fit again"
    assert str(said.value).endswith(message + mend)


def test_a_truncated_model_is_refused_in_one_line(path):
    WHOLE.save(path)
    whole = path.read_bytes()
    for n in range(0, len(whole) - 2, 7):  # the last byte but one closes the file
        path.write_bytes(whole[:n])
        with pytest.raises(InputError, match="is damaged or no model: ") as said:
            Model.load(path)
        assert "\n" not in str(said.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3)
    ),
    max_leaves=6,
)


PLAIN = WHOLE.plain()
OPTIONAL = {"assigned_by", "centers_in_units", "memory", "names", "preprocessing", "privacy", "new"}


@given(st.sampled_from(sorted(PLAIN.keys() | OPTIONAL)), JSON)
def test_whatever_a_model_file_holds_it_is_read_or_refused_in_one_line(key, value):
    complaint = ""
    try:
        read = checked(PLAIN | {key: value}, Path("model.json"), ())
        assert Model(**read).predict(NORTH).shape == (4,)
    except InputError as error:
        complaint = str(error)
    assert "\n" not in complaint


def test_a_missing_key_is_named(path):
    WHOLE.save(path)
    whole = json.loads(path.read_text())
    for key in whole.keys() - {"format"}:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(InputError, match=f"'{key}' is missing"):
            Model.load(path)


def test_a_folder_stands_for_the_model_in_it_and_one_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"x\.json does not exist; fedcluster fit writes"):
        Model.load(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"model\.json does not exist; fedcluster fit writes"):
        Model.load(str(tmp_path))
    WHOLE.save(tmp_path / "model.json")
    assert np.array_equal(Model.load(tmp_path).centers, NORTH)

"""A run that was broken off goes on from its checkpoints, and ends with the same bits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcluster import Client, Data, LocalEngine, State, Summary, Task, run
from fedcluster.algorithms import Lloyd
from fedcluster.core import ALL_SITES
from fedcluster.errors import InputError
from fedcluster.recipes import clustering
from fedcluster.recipes.specifications import fit_of
from fedcluster.rounds import run_plan
from fedcluster_app.tables import open_rows
from fedcluster_app.wire.recorder import RecordedEngine, kept_answers

RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(40, 2)) + 3 * RNG.integers(0, 4, (40, 1)) for name in "abc"}


class KilledError(Exception):
    """The coordinator ends here."""


class Mortal:
    def __init__(self, engine, at):
        self.engine, self.left, self.introduce = engine, at, engine.introduce

    def ask(self, tasks, sites=None):
        if not self.left:
            raise KilledError
        self.left -= 1
        return self.engine.ask(tasks, sites)


def local(rows=ROWS, **how):
    return LocalEngine((Client(name, Data(X)) for name, X in rows.items()), **how)


def plan(seed=1):
    return clustering(fit_of(4, seed=seed))


def test_a_resumed_run_starts_as_it_did_though_other_sites_hold_their_rows_now(tmp_path):
    """Or the site whose rows came in chunks does not answer, and so does not tell."""

    def chunked() -> LocalEngine:
        some = (Client(name, Data(X)) for name, X in ROWS.items() if name != "b")
        return LocalEngine([*some, Client("b", open_rows(ROWS["b"], chunk_rows=9))])

    def told(engine):
        return run_plan(clustering(fit_of(4, seed=1).at(engine.introduce())), engine)

    whole = told(chunked())
    assert whole.communication_rounds[0].steps == ("VarianceTree",)
    with pytest.raises(KilledError):
        told(RecordedEngine(Mortal(chunked(), 3), tmp_path / "run"))
    again = RecordedEngine(local(), tmp_path / "run")
    assert [site.name for site in again.introduce() if site.streams] == ["b"]
    resumed = told(again)
    assert again.replayed == 3
    assert [done.steps for done in resumed.communication_rounds] == [
        done.steps for done in whole.communication_rounds
    ]
    (tmp_path / "run" / "sites").write_bytes(b"{}\n")
    with pytest.raises(InputError, match="sites is damaged"):
        told(RecordedEngine(local(), tmp_path / "run"))


def test_sites_that_were_missing_stay_missing(tmp_path):
    silent, start = local(silent=lambda site, r: site == "b"), State.at(ROWS["a"][:3])
    before = run(Lloyd(), RecordedEngine(silent, tmp_path), start)
    after = run(Lloyd(), RecordedEngine(local(), tmp_path), start)
    assert repr(after.history) == repr(before.history)


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: run_plan(plan(seed=2), RecordedEngine(local(), folder)),
        lambda folder: run_plan(plan(), RecordedEngine(local({**ROWS, "d": ROWS["a"]}), folder)),
        lambda folder: run_plan(plan(), RecordedEngine(local(), folder), participation=0.5),
    ],
    ids=["seed", "sites", "participation"],
)
def test_the_record_of_another_run_is_refused(other, tmp_path):
    run_plan(plan(), RecordedEngine(local(), tmp_path))
    with pytest.raises(InputError, match="exchange-0000 records another run"):
        other(tmp_path)


def test_a_damaged_record_is_refused(tmp_path):
    run_plan(plan(), RecordedEngine(local(), tmp_path))
    path = tmp_path / "exchange-0002"
    whole = path.read_bytes()
    for content in (whole[:-8], b"", b"{}\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="exchange-0002 is damaged"):
            run_plan(plan(), RecordedEngine(local(), tmp_path))


def test_a_record_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def half(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise KilledError

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(KilledError):
        run_plan(plan(), RecordedEngine(local(), tmp_path))
    assert list(tmp_path.iterdir()) == []


def recorded(folder: Path, task: Task, **more: object) -> None:
    """An exchange whose answers also say something else, such as what a quorum goes on with."""
    answers = [replace(each, **more) for each in local().ask([task])]
    engine = local()
    engine.ask = lambda tasks, sites=None: answers
    RecordedEngine(engine, folder).ask([task])


@pytest.mark.parametrize(("enough", "spare"), [(None, 0), (1, 2), (2, 1), (3, 0)])
def test_how_many_answers_a_run_goes_on_without_is_recorded(enough, spare, tmp_path):
    task = Task(Lloyd(), State.at(ROWS["a"][:3]))
    recorded(tmp_path, task, enough=enough)
    [again] = RecordedEngine(Mortal(local(), 0), tmp_path).ask([task])
    assert (again.enough, again.n_spare) == (enough, spare)


def test_only_answers_of_single_sites_to_the_same_question_are_taken_up(tmp_path):
    """Of a secure sum, nobody can leave a site out afterwards."""
    task, other = (Task(Lloyd(), State.at(ROWS["a"][i : i + 3])) for i in (0, 1))
    names, total = list(ROWS), {ALL_SITES: Summary(np.zeros((3, 3)), np.zeros(3))}
    recorded(tmp_path / "single", task)
    recorded(tmp_path / "secure", task, by_site=total, summed=tuple(names))
    single, secure = (tmp_path / folder / "exchange-0000" for folder in ("single", "secure"))
    kept = kept_answers(single, [task], names, names)
    assert kept is not None
    assert list(kept[0].by_site) == names
    assert kept_answers(single, [other], names, names) is None
    assert kept_answers(single, [task], names, names[:2]) is None
    assert kept_answers(secure, [task], names, names) is None

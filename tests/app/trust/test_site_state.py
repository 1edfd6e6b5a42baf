"""What a site must not forget: one file, whole after a kill, and never begun anew on the way."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_site_worker import question, site
from test_worker import started
from typer.testing import CliRunner

from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.privacy.budget import Budget
from fedcluster_app.cli import app
from fedcluster_app.trust.site_state import STATE_FILE, SiteState, get, last, put
from fedcluster_app.wire.policy import BudgetLedger

pytestmark = pytest.mark.usefixtures("short_searches")

__all__ = ["site"]  # a fixture


@pytest.fixture
def state(tmp_path: Path) -> SiteState:
    (state := SiteState(tmp_path / STATE_FILE)).create()
    return state


def held(state: SiteState) -> list[Any]:
    """What the state holds of a and b."""
    with state.transaction() as file:
        return [get(file, "rows", name) for name in "ab"]


def test_a_transaction_is_all_there_or_not_at_all(state):
    for each in (state, SiteState()):
        with each.transaction() as file:
            put(file, "rows", "a", "old")
        with pytest.raises(ZeroDivisionError), each.transaction() as file:
            put(file, "rows", "a", "new")
            put(file, "rows", "b", "new")
            _ = 1 / 0
        assert held(each) == ["old", None]
        with each.transaction() as file:
            assert last(file, "rows") == ("a", "old")


@pytest.mark.parametrize(
    ("begin", "remedy"),
    [
        ("PRAGMA max_page_count = 1", "full; make room on its disk; nothing is lost$"),
        ("PRAGMA query_only = 1", "let the site's program write it, and its folder$"),
    ],
)
def test_an_error_of_the_disk_is_not_called_a_damaged_file(state, begin, remedy):
    """To put back an old copy, as for a damaged one, would forget what the site has told."""
    with pytest.raises(InputError, match=remedy), state.transaction() as file:
        file.execute(begin)
        put(file, "rows", "a", "x" * 1_000_000)
    assert held(state) == [None, None]


def test_a_kill_amid_a_transaction_leaves_the_state_before_it(state):
    """What was charged before it to a privacy budget is paid."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from fedcluster.privacy.budget import Budget\n"
        "from fedcluster_app.trust.site_state import SiteState, put\n"
        "from fedcluster_app.wire.policy import BudgetLedger\n"
        "state = SiteState(Path(sys.argv[1]))\n"
        "with state.transaction() as file: put(file, 'rows', 'a', 'old')\n"
        "ledger = BudgetLedger(state, Budget(2.0, 1e-6))\n"
        "ledger.charge({'run': 'r', 'exchange': 0}, answers=1, rho=0.05)\n"
        "with state.transaction() as file:\n"
        "    file.execute('PRAGMA cache_size = 1')\n"
        "    put(file, 'rows', 'b', 'x' * 1_000_000)  # pages of it are in the file already\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(state.path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert held(state) == ["old", None]
    assert [charge.rho for charge in BudgetLedger(state, Budget(2.0, 1e-6)).charges] == [0.05]


def test_of_many_names_the_last_are_kept(state):
    with state.transaction() as file:
        for name in ("a", "b", "c", "a", "d"):
            put(file, "rows", name, name, 3)
        known = [name for name in "abcd" if get(file, "rows", name)]
    assert known == ["a", "c", "d"]


def test_what_json_cannot_hold_is_not_kept(state):
    with pytest.raises(ValueError, match="not JSON compliant"), state.transaction() as file:
        put(file, "models", "received", {"centers": [[float("nan")]]})


def test_a_state_is_for_the_sites_user_alone_and_made_once(tmp_path):
    before = os.umask(0)
    try:
        state = SiteState(tmp_path / STATE_FILE)
        state.create()
    finally:
        os.umask(before)
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600
    with state.transaction() as file:
        put(file, "rows", "a", "old")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: SiteState(tmp_path / STATE_FILE).create(), range(8)))
    assert held(state) == ["old", None]
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


DAMAGES: dict[str, Any] = {
    r"site.db is missing.*, as audit.jsonl shows": Path.unlink,
    r"site.db cannot be used: it is empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.thorough
@pytest.mark.parametrize("why", DAMAGES)
def test_a_site_that_has_lost_its_state_answers_nothing(site, why):
    """Neither while it runs nor when it is started: it would forget what was asked."""
    path = site.path.parent / STATE_FILE
    with started(site) as turns:
        assert "limits" in unpack(turns.reply(question()))[0]
        DAMAGES[why](path)
        header, arrays = unpack(turns.reply(question(exchange=1)))
        assert (header["failed"], arrays) == ("InputError", {})
    with pytest.raises(InputError, match=why), started(site):
        pass
    assert not path.exists() or not path.read_bytes()


def test_a_site_that_has_answered_nothing_may_begin_anew(site):
    for _ in range(2):
        with started(site) as turns:
            assert "refused" in unpack(turns.reply(question(columns=["z"])))[0]
        (site.path.parent / STATE_FILE).unlink()


def test_the_state_of_a_newer_version_is_neither_read_nor_changed(site):
    with started(site):
        pass
    path = site.path.parent / STATE_FILE
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 1")
    before = path.read_bytes()
    told = f"{path} was written by a newer fedcluster: use that version"
    with pytest.raises(InputError, match=re.escape(told)), started(site):
        pass
    assert path.read_bytes() == before


def test_reading_makes_no_state(site):
    shown = CliRunner().invoke(app, ["site", "log", str(site.path)])
    assert shown.exit_code == 0
    assert not (site.path.parent / STATE_FILE).exists()


def test_a_state_that_another_program_holds_is_waited_for(state, monkeypatch):
    monkeypatch.setattr("fedcluster_app.trust.site_state.SiteState.wait", 0.1)
    with closing(sqlite3.connect(state.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="database is locked"):
            held(state)
    assert held(state) == [None, None]

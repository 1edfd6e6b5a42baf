"""Measured numbers of the pages belong to a script, and are those that it made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import claims

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
BOOK = claims.book()
MEASURED = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])|\d ?%|\d (?:s|ms|µs|kB|MB|GB)\b")
"""What looks measured in a cell of a table: decimals, shares, seconds and bytes."""

by_name = pytest.mark.parametrize("claim", BOOK.claims, ids=lambda claim: claim.name)


@by_name
def test_the_numbers_of_a_claim_are_on_its_pages(claim):
    assert claim.places
    for place in claim.places:
        assert bool(place.section) != bool(place.says), f"{claim.name}: a section, or words"
        if place.says:
            page = (ROOT / place.page).read_text("utf-8")
            assert " ".join(place.says.split()) in " ".join(page.split()), place.page
        else:
            assert place.section in claims.sections(place.page), f"{place.page}: {place.section}"
            found = claims.digest(place.text)
            assert place.numbers == found, (
                f"numbers of {place.page} under {place.section!r} have changed: if "
                f'{claim.script or "somebody"} made them, write numbers = "{found}"'
            )


@by_name
def test_a_claim_says_what_makes_it_and_what_it_rests_on(claim):
    assert bool(claim.script) != bool(claim.once)
    for run in (claim.script, *(check.run for check in claim.checks)):
        file = claims.script_of(run)
        assert not run or (ROOT / file).exists(), f"{claim.name}: no {file}"
    assert re.fullmatch("[0-9a-f]{7,}", claim.measured)
    for pattern in claim.rests_on:
        assert [*(ROOT / claims.PACKAGE).glob(pattern)], f"{claim.name}: nothing is {pattern}"


@by_name
def test_a_check_compares_with_a_number_of_the_page(claim):
    told = [number for place in claim.places for number in claims.numbers(place.text)]
    for check in claim.checks:
        assert check.stands in told, f"{claim.name}: {check.stands} is not on its pages"
        assert re.compile(check.find).groups == 1, check.find


def test_a_check_has_bounds_on_both_sides_or_none():
    """What is far better than the page says has changed in silence as well."""
    checks = [(claim.name, check) for claim in BOOK.claims for check in claim.checks]
    for name, check in checks:
        assert (check.at_least is None) == (check.at_most is None), f"{name}: {check.find}"
    both = [(c.at_least, c.at_most) for _, c in checks if c.at_least is not None and c.at_most]
    assert both
    assert all(least <= most for least, most in both)


def test_a_commit_that_changes_no_number_says_why():
    names = {claim.name for claim in BOOK.claims}
    for each in BOOK.harmless:
        assert re.fullmatch("[0-9a-f]{7,40}", each.commit)
        assert each.why
        assert set(each.claims) <= names
        assert all(BOOK.excuses(f"{each.commit:0<40}", name) for name in each.claims or names)
        assert not each.claims or not BOOK.excuses(each.commit, "another")
    assert not BOOK.excuses("0" * 40, "papers")


def test_names_of_claims_differ():
    names = [claim.name for claim in BOOK.claims]
    assert len(set(names)) == len(names)


def test_each_section_with_measured_numbers_belongs_to_a_claim():
    """On pages of measurements every number; elsewhere what stands in tables."""
    claimed = {(place.page, place.section) for claim in BOOK.claims for place in claim.places}
    shown = {
        (page, heading)
        for folder in ("docs", "benchmarks/results")
        for page in (f"{folder}/{path.name}" for path in (ROOT / folder).glob("*.md"))
        for heading, text in claims.sections(page).items()
        if (claims.numbers(text) if page in BOOK.pages else looks_measured(text))
    }
    alone = [f"{page}: {heading}" for page, heading in shown - claimed - BOOK.unmeasured.keys()]
    assert not alone, "in benchmarks/claims.toml, give a claim to\n" + "\n".join(sorted(alone))
    assert sorted(BOOK.unmeasured.keys() - (shown - claimed)) == []
    assert len(shown & claimed) > 30


def looks_measured(text: str) -> bool:
    """Whether a table of a section has a number that only a measurement gives."""
    cells = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", text)
    return any(MEASURED.search(line) for line in cells.splitlines() if line.strip()[:1] == "|")


# What tells numbers


SECTION = """Ours takes .5 of 1,000 rows, see [2](page-3.md).

| rows | J |
|---|---|
| 10 | 1.0013 |
"""


@pytest.mark.parametrize(
    "changed",
    [
        SECTION.replace("1.0013", "1.0012"),
        SECTION.replace("1,000", "1,001"),
        SECTION.replace("| 10 | 1.0013 |", "| 1.0013 | 10 |"),
        SECTION.replace("| 10 ", "| 10 | 11 "),
    ],
)
def test_a_number_that_is_changed_on_the_page_alone_is_noticed(changed):
    assert claims.digest(changed) != claims.digest(SECTION)


@pytest.mark.parametrize(
    "reworded",
    [
        SECTION.replace("Ours takes .5 of 1,000 rows", "Of 1,000 rows ours takes .5"),
        SECTION.replace("page-3", "page-4").replace("rows |", "sites |"),
    ],
)
def test_words_may_change(reworded):
    assert claims.digest(reworded) == claims.digest(SECTION)


def test_numbers_of_a_text():
    text = "1.5 %, -3, .25 to 2,000; x5, k16, v1.2.3 10^17, 5·10⁶: 7ms"
    assert claims.numbers(text) == ["1.5", "3", ".25", "2,000", "10", "17", "5", "10", "6", "7"]


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ('"""Other words."""\ndef f(x):\n    """And here."""\n    return x + 1  # more\n', True),
        ("def f(x):\n    return (x\n            + 1)\n", True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(y):\n    return y + 1\n", False),
        ('def f(x):\n    return x + 1\n\ns = "text"\n', False),
    ],
)
def test_words_about_code_are_no_code(source, same):
    before = '"""Words."""\ndef f(x):\n    """Return."""\n    return x + 1\n'
    assert (claims.code(source) == claims.code(before)) is same


@pytest.mark.parametrize(
    ("bounds", "found", "holds"),
    [
        ({}, 1.5, True),
        ({}, 1.6, False),
        ({"within": 0.1}, 1.6, True),
        ({"within": 0.1}, 1.3, False),
        ({"at_most": 2.0}, 1.9, True),
        ({"at_most": 2.0}, 2.1, False),
        ({"at_least": 1.0, "at_most": 2.0}, 0.9, False),
    ],
)
def test_a_number_that_was_found_agrees_or_not(bounds, found, holds):
    assert claims.Check("x.py", "(.)", "1.5", **bounds).holds(found) is holds


# What has changed, and what is measured again


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """Commit a module, then other words about it, other code, another module, and a move."""
    module = tmp_path / "src/fedcluster/kernels/_sums.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    for cached in (claims.changes, claims._code):  # noqa: SLF001
        cached.cache_clear()

    def git(*arguments):
        names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        ran = subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(path, text):
        path.write_text(text)
        git("add", "--all")
        git("commit", "--quiet", "--message", "change")
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    body = '"""Sums."""\n\n\ndef f(x):\n    return x + 1\n' + "\n# words\n" * 20
    yield [
        commit(module, body),
        commit(module, body.replace("Sums.", "Exact sums.") + "# more\n"),
        commit(module, body.replace("x + 1", "x + 2")),
        commit(module.with_name("_other.py"), "n = 1\n"),
    ]
    claims.changes.cache_clear()


def test_code_that_changed_makes_a_claim_old_and_words_do_not(commits):
    first, words, code, other = commits
    assert claims.changes(first, ("fedcluster/kernels/_sums.py",)) == (code,)
    assert claims.changes(words, ("fedcluster/kernels/_sums.py",)) == (code,)
    assert claims.changes(code, ("fedcluster/kernels/_sums.py",)) == ()
    assert claims.changes(first, ("fedcluster/kernels/*.py",)) == (other, code)
    assert claims.changes(first, ("**/*.py",)) == (other, code)
    assert claims.changes(first, ("metrics/*.py",)) == ()
    assert claims.changes(first, ()) == ()


@pytest.mark.parametrize(("printed", "status"), [("J 1.001", 0), ("J 1.1", 1), ("nothing", 1)])
def test_the_status_says_whether_all_checks_hold(printed, status, monkeypatch, capsys):
    check = claims.Check("a.py", r"J (\S+)", "1.0", within=0.01)
    claim = claims.Claim("a claim", "b35a137", (), (), (check,), script="a.py")
    monkeypatch.setattr(claims, "book", lambda: claims.Book((claim,), (), (), {}))
    monkeypatch.setattr(claims, "output", lambda run: (printed, 0.0))
    monkeypatch.setattr("sys.argv", ["claims.py"])
    assert claims.main() == status
    assert f"1 claims: 0 old, {status} wrong" in capsys.readouterr().out

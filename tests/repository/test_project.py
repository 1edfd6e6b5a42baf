"""The project's own files: what they name is there, and what two of them say is the same."""

import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

from fedcluster_app.cli import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HOME = PROJECT["project"]["urls"]["Homepage"]
FILES = f"{HOME}/blob/main/"
FOLDERS = (ROOT, ROOT / "docs", ROOT / "benchmarks" / "results")
PAGES = [page for folder in FOLDERS for page in sorted(folder.glob("*.md"))]
README = ROOT / "README.md"


def links(text: str) -> list[str]:
    """Every target of a Markdown page's links: inline, and those defined on a line of their own."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        *re.findall(r"\]\(([^)\s]+)\)", prose),
        *re.findall(r"^\[[^]]+\]: (\S+)$", prose, re.MULTILINE),
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a Markdown page's headings: lower case, words joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in links(page.read_text("utf-8")):
        if "://" in link and not link.startswith(FILES):
            continue
        path, _, anchor = link.removeprefix(FILES).partition("#")
        target = (ROOT if link.startswith(FILES) else page.parent) / path if path else page
        assert target.exists(), f"{page.name} links to {link}, and there is no {path}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}: no such heading"


def test_a_test_that_a_page_names_stands_there():
    """A claim whose test was renamed or removed is a claim without a test."""
    tests = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in tests for name in re.findall(r"^def (test_\w+)", text, re.M)}
    named = 0
    for page in (ROOT / "docs").glob("*.md"):
        for name in re.findall(r"`(test_\w+)`", text := page.read_text("utf-8")):
            assert name in there, f"{page.name} names {name}"
            named += 1
        for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
            named += 1
    assert named > 10


def test_no_page_sends_its_readers_to_a_private_module():
    """The reference calls a name private if a part of its path begins with an underscore."""
    shown = [
        *PAGES,
        *sorted((ROOT / "docs").glob("*/*.md")),
        *sorted((ROOT / "docs").rglob("*.ipynb")),
    ]
    dotted = re.compile(r"\bfedcluster(?:_app)?(?:\.\w+)*(?:\._|(?:\.\w+)* import _)(?!_)\w+")
    assert len(shown) > 25
    assert dotted.search("from fedcluster_app.tables import _csv")
    assert dotted.search("`fedcluster.metrics._fuzzy`")
    for page in shown:
        assert dotted.findall(page.read_text("utf-8")) == [], page.name


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_quick_start_installs_what_it_shows(page):
    """Pictures need matplotlib, which is an extra; and so is what reads Excel."""
    text = (ROOT / page).read_text("utf-8")
    [extras] = re.findall(r'^python -m pip install "\.\[([^]]+)\]" +# with', text, re.M)
    assert set(extras.split(",")) == {"plot", "pandas", "excel"}
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_commands_of_the_readme_can_be_pasted_one_after_the_other():
    """A fit writes into a folder of its own, and what follows reads one that was written."""
    commands = re.findall(r"^fedcluster (.*)$", README.read_text("utf-8"), re.M)
    here = [command for command in commands if not command.startswith(("federation", "site"))]
    folders = [found for command in here for found in re.findall(r"--out (\w+)", command)]
    assert len(folders) == len(set(folders)) == 3
    read = [found for command in here for found in re.findall(r"(\w+)/model\.json", command)]
    assert len(read) == 2
    assert set(read) <= set(folders)


def test_the_first_command_takes_as_long_wherever_that_is_said():
    pages = (README, ROOT / "docs/tutorial.md", ROOT / "src/fedcluster/kernels/runtime.py")
    for page in pages:
        assert page.read_text("utf-8").count("5 to 30 seconds") == 1, page.name
    all_of_them = (ROOT / "docs/site.md", ROOT / "src/fedcluster/engines/warming.py")
    assert all("about two minutes" in page.read_text("utf-8") for page in all_of_them)


def test_links_of_the_readme_work_on_the_package_index_too():
    found = links(README.read_text("utf-8"))
    assert len(found) > 10
    assert [link for link in found if not link.startswith("https://")] == []


def test_each_name_in_brackets_of_the_readme_is_defined_and_used():
    prose = re.sub(r"^```.*?^```$", "", README.read_text("utf-8"), flags=re.M | re.S)
    defined = re.findall(r"^\[([^]]+)\]: ", prose, re.MULTILINE)
    used = re.findall(r"\[([^]]+)\](?![:(])", prose.replace("\n", " "))
    assert sorted(set(used)) == sorted(defined)


def test_the_classifiers_name_the_versions_of_python_that_are_allowed():
    listed = [
        line.rpartition(" ")[2]
        for line in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    assert listed == [f"3.{minor}" for minor in range(15) if f"3.{minor}" in allowed]


def test_workflows_run_targets_that_there_are_on_the_systems_and_versions_that_are_promised():
    workflows = ROOT / ".github" / "workflows"
    tests = (workflows / "tests.yml").read_text("utf-8")
    lists = {
        key: re.findall(r"[\w.]+", held)
        for key, held in re.findall(r"^ +(\w+): \[(.+)\]$", tests, re.M)
    }
    versions = [
        line.rpartition(" ")[2]
        for line in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert lists["python"] == versions
    assert lists["system"] == ["ubuntu", "macos", "windows"]
    run = re.findall(r"run: make (\S+) ", tests + (workflows / "release.yml").read_text("utf-8"))
    targets = {"unit", "dist", *lists["target"]}
    assert set(run) == {"unit", "dist", "${{"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets <= set(re.findall(r"^([a-z-]+):.* ## ", makefile, re.M))


def test_numba_and_llvmlite_have_upper_bounds_as_the_kernels_use_their_llvm():
    needed = {(r := Requirement(line)).name: r for line in PROJECT["project"]["dependencies"]}
    for name in ("numba", "llvmlite"):
        assert any(bound.operator == "<" for bound in needed[name].specifier), name


def test_no_file_holds_both_sides_of_a_conflict():
    folders = ("benchmarks", "docs", "examples", "reproduction", "src", "tests")
    inner = [path for name in folders for path in (ROOT / name).rglob("*.*") if path.is_file()]
    texts = [path for path in (*ROOT.glob("*.*"), *inner) if path.suffix in (".md", ".py", ".toml")]
    assert len(texts) > 500
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path for path in texts if marks.search(path.read_text("utf-8"))] == []


def test_the_changelog_has_the_kinds_of_entries_that_contributing_lists():
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| kind |")[2]
    kinds = re.findall(r"^\| ([A-Z]\w+) \|", table, re.MULTILINE)
    versions = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]
    assert kinds
    assert versions
    for version in versions:
        used = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert used == [kind for kind in kinds if kind in used], version.splitlines()[0]
    first = versions[-1]
    assert re.findall(r"^### (.+)$", first, re.MULTILINE) == ["Added"]  # before it there was none


def test_the_oldest_versions_of_all_extras_but_transports_are_tested():
    named = re.findall(r"^EXTRAS := '\.\[(.+)\]'$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    extras = PROJECT["project"]["optional-dependencies"].keys() - {"flare", "flower", "vantage6"}
    assert named == [",".join(sorted(extras))]


def test_the_drawings_of_the_design_are_those_of_the_code():
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "rooms.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="design.md"))
    made = hook((ROOT / "docs" / "design.md").read_text("utf-8"), page)
    rooms = [path.parent.relative_to(path.parents[2]) for path in ROOT.glob("src/*/*/__init__.py")]
    assert len(rooms) > 10
    assert [room for room in rooms if f"  {Path(*room.parts[1:])}/ " not in made] == []
    assert "\nfedcluster_app\n  <- " in made


def test_files_that_the_design_names_are_there():
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    folders = [*(ROOT / "src").glob("fedcluster*"), ROOT / "tests", ROOT / "benchmarks", ROOT]
    there = {
        name
        for folder in folders
        for path in folder.rglob("*.py")
        if ".venv" not in path.parts
        for name in (path.name, path.relative_to(folder).as_posix())
    }
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 10
    assert named <= there


def test_the_reference_of_the_command_line_has_every_option_that_help_shows():
    """Each under the heading of its command, with its default; help is what a terminal shows."""
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "commands.py"))
    made = "\n\n".join(hook["shown"]())
    sections = dict(part.split("\n", 1) for part in made.split("## ")[1:])
    assert len(sections) > 40
    for name, section in sections.items():
        arguments = [*name.split()[1:], "--help"]
        shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output
        lines = re.findall(r"^│ +\*? *(-.*)", shown.partition("─ Options ")[2], re.MULTILINE)
        told = [re.match(r"(-[-\w]+ +)+", line) for line in lines]
        options = {each for line in told if line for each in line[0].split()}
        assert {"-h", "--help"} <= options, name
        missing = [each for each in options - {"-h", "--help"} if f"`{each}`" not in section]
        assert missing == [], name
        for default in re.findall(r"\[default: \(?([^]);]+)", " ".join(shown.split())):
            written = hook["plain"](default) if " " in default else f"`{default}`"
            assert f"Default: {written}." in section, (name, default)
        assert "Default: ." not in section, name

"""Files of settings and of state: read into declared types, and every fault named in one line."""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fedcluster.errors import InputError
from fedcluster_app.records import load_record, record, record_or


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[int, msgspec.Meta(ge=1)] = 1
    scale: Literal["standard", "none"] = "standard"


@dataclass(frozen=True)
class Settings:
    name: str
    sites: tuple[str, ...] = ()
    rows: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    part: Part | None = None
    end: date | None = None

    def __post_init__(self) -> None:
        if self.name == "nobody":
            raise ValueError("nobody may be called so")


def test_a_file_becomes_what_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('name = "a"\nsites = ["n"]\nrows = {n = 3}\nend = 2030-12-31\n[parts.x]\n')
    read = load_record(path, Settings)
    assert read == Settings("a", ("n",), {"n": 3.0}, parts={"x": Part()}, end=date(2030, 12, 31))
    assert load_record(path, Settings, sites=["s"]).sites == ("s",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": 1}, "name must be a text, not 1"),
        ({"name": "nobody"}, "nobody may be called so"),
        ({"row": {}}, "unknown key 'row'; did you mean 'rows'?"),
        ({"sites": ["n", 3]}, "sites[1] must be a text, not 3"),
        ({"rows": 3}, "rows must be a table, not 3"),
        ({"rows": {"n": 1, "s": -1}}, "rows.s must be a number above 0, not -1"),
        ({"rows": {"n": True}}, "rows.n must be a number, not True"),
        ({"rows": "x" * 99}, f"rows must be a table, not '{'x' * 59}..."),
        ({"ranges": {"age": [0]}}, "ranges.age must be a list of 2, not [0]"),
        ({"ranges": {"b.c": [0, "x"]}}, "ranges.b.c[1] must be a number, not 'x'"),
        ({"part": {"least": 0}}, "part.least must be a whole number of at least 1, not 0"),
        ({"part": {"scale": "x"}}, "part.scale must be one of standard, none, not 'x'"),
        ({"parts": {"x": {"lest": 2}}}, "unknown key 'lest'; did you mean 'least'?"),
        ({"end": "soon"}, "end must be a day, as in 2030-12-31, not 'soon'"),
    ],
)
def test_what_is_wrong_is_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        record({"name": "a"} | content, Settings)
    assert str(caught.value) == message


def test_content_that_is_no_table_or_lacks_a_key_is_named() -> None:
    with pytest.raises(InputError, match=r"^'name' is missing$"):
        record({}, Settings)
    with pytest.raises(InputError, match=r"^its content must be a table, not \[\]$"):
        record([], Settings)


@pytest.mark.parametrize("text", ["{", '{"name": NaN}', "[" * 99999, "\xff"])
def test_a_file_that_is_damaged_or_not_there_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        load_record(path, Settings, remedy="; delete it")
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert str(caught.value).endswith("; delete it")
    assert "\n" not in str(caught.value)
    assert record_or(path, dict[str, int], {}) == {}
    path.unlink()
    with pytest.raises(InputError, match=r"state.json does not exist; check the path"):
        load_record(path, Settings)

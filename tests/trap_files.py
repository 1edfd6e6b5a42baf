"""Files with planted traps, and clean sets, made from seeds: `traps` and `clean`.

A trap is a small set of files, one a site, in which one thing is written otherwise than it is
meant, and what must happen: a column is read as these values, left out with a reason, warned of or
asked about with a word, or the files are refused in one line. A clean set holds nothing to warn of.
"""

from __future__ import annotations

import gzip
import io
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from reproduction.datasets import (
    FFCM_CASES,
    SplitRows,
    ffcm_case,
    g2,
    pentagon,
    plane16,
    triebe,
    variable_k,
)
from reproduction.results import REFERENCE

Cells = dict[str, dict[str, list[str]]]
"""What is written, by site and column."""
SITES = ("north", "south", "west")
N = 60
BANK = REFERENCE / "bank_marketing.parquet"


@dataclass(frozen=True)
class Trap:
    """Files with one trap.

    Parameters
    ----------
    name : str
        What is planted.
    files : mapping of str to bytes
        The files by name.
    expected : str
        "read", "left out", "warned", "asked" or "refused".
    column : str
        Of what.
    words : str
        What the line about it holds.
    values : sequence of float or str, optional
        Of "read": what the column holds at the first site; None where nothing.
    options : mapping of str to object
        What is said to the command.
    """

    name: str
    files: Mapping[str, bytes]
    expected: str
    column: str = ""
    words: str = ""
    values: Sequence[Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def base(seed: int = 0, n: int = N) -> Cells:
    """Three hospitals with nothing to warn of."""
    rng = np.random.default_rng(seed)
    cells: Cells = {}
    for site in SITES:
        cells[site] = {
            "age": [f"{x:.1f}" for x in rng.normal(55, 12, n).clip(20, 95)],
            "bmi": [f"{x:.1f}" for x in rng.normal(26, 3.5, n)],
            "sbp": [f"{x:.1f}" for x in rng.normal(138, 16, n)],
            "sex": rng.choice(["F", "M"], n).tolist(),
        }
    return cells


def csv(columns: Mapping[str, Sequence[str]], sep: str = ",") -> str:
    """One table as text; cells with the separator are quoted."""
    lines = [sep.join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(sep.join(f'"{cell}"' if sep in cell else cell for cell in row))
    return "\n".join(lines) + "\n"


def files_of(cells: Cells) -> dict[str, bytes]:
    return {f"{site}.csv": csv(columns).encode() for site, columns in cells.items()}


def trap(name: str, cells: Cells, expected: str, column: str, words: str = "", **more: Any) -> Trap:
    return Trap(name, files_of(cells), expected, column, words, **more)


def with_column(cells: Cells, name: str, make: Callable[[str, int], str]) -> Cells:
    """The same with one more column, made of site and row."""
    return {
        site: {name: [make(site, i) for i in range(len(columns["age"]))], **columns}
        for site, columns in cells.items()
    }


def changed(cells: Cells, column: str, site: str, make: Callable[[str, int], str]) -> Cells:
    """The same with the cells of a column at a site ("*" are all) made anew of what is there."""
    return {
        each: {
            name: [make(cell, i) for i, cell in enumerate(values)]
            if name == column and site in ("*", each)
            else values
            for name, values in columns.items()
        }
        for each, columns in cells.items()
    }


def picks(cells: Sequence[str]) -> Callable[[str, int], str]:
    """What writes these cells."""
    return lambda _site, i: cells[i]


def at_rows(rows: set[int], value: str) -> Callable[[str, int], str]:
    """What writes a value into these rows."""
    return lambda cell, i: value if i in rows else cell


def typed(wrong: Mapping[int, str]) -> Callable[[str, int], str]:
    """What writes these cells into their rows."""
    return lambda cell, i: wrong.get(i, cell)


def alike(write: Callable[[int], str]) -> Callable[[str, int], str]:
    """What writes the same at every site."""
    return lambda _site, i: write(i)


# Sentinels, and signs of missing values


def sentinels() -> Iterator[Trap]:
    cases = [
        ("age", "-999", 12), ("age", "999", 12), ("sbp", "9999", 20), ("sbp", "-9999", 5),
        ("bmi", "-99", 15), ("bmi", "99.0", 12), ("bmi", "888", 10), ("sbp", "-999.0", 3),
        ("age", "777", 20), ("bmi", "99999", 30), ("sbp", "1500", 10), ("age", "-500", 12),
    ]  # fmt: skip
    for k, (column, value, every) in enumerate(cases):
        rows = set(range(0, N, every)) if N // every > 2 else {0, 1, 2}
        cells = changed(base(k), column, "west", at_rows(rows, value))
        words = f"at west: {float(value):.0f} ("
        yield trap(f"sentinel {value} in {column}", cells, "warned", column, words)
    yield from more_sentinels()
    yield from zeros()


def more_sentinels() -> Iterator[Trap]:
    both = changed(base(20), "age", "south", lambda c, i: {0: "-999", 1: "-888"}.get(i % 10, c))
    yield trap("two sentinels", both, "warned", "age", "-999 (10.0%) and -888 (10.0%)")
    every = changed(base(21), "sbp", "*", lambda c, i: "-999" if i % 9 == 0 else c)
    yield trap("a sentinel at all sites", every, "warned", "sbp", "-999")
    year = with_column(base(22), "birth_year", lambda s, i: str(1935 + 7 * i % 60))
    year = changed(year, "birth_year", "north", lambda c, i: "9999" if i % 12 == 0 else c)
    yield trap("a year 9999", year, "warned", "birth_year", "9999")
    mended = changed(base(23), "age", "north", lambda c, i: "-999" if i % 9 == 0 else c)
    gone = [None if c == "-999" else float(c) for c in mended["north"]["age"]]
    said = {"missing_values": [-999]}
    yield trap("a sentinel that is named", mended, "read", "age", values=gone, options=said)
    for sign in ("-", "?", "n/a", "NULL", "None", "#N/A"):
        cells = changed(base(24), "sbp", "north", at_rows(set(range(0, N, 8)), sign))
        values = [None if c == sign else float(c) for c in cells["north"]["sbp"]]
        yield trap(f"{sign} in numbers", cells, "read", "sbp", values=values)
    for sign in ("-", " ? "):
        cells = changed(base(25), "sex", "north", at_rows(set(range(0, N, 8)), sign))
        texts = [None if c == sign else c for c in cells["north"]["sex"]]
        yield trap(f"{sign!r} in texts", cells, "read", "sex", values=texts)


def zeros() -> Iterator[Trap]:
    empty = changed(base(28), "bmi", "south", lambda c, i: "0" if i % 9 == 0 else c)
    yield trap(
        "zeros for nothing", empty, "warned", "bmi", "say --set 'missing_values=[\"bmi:0\"]'"
    )
    gone = [None if i % 9 == 0 else float(c) for i, c in enumerate(empty["north"]["bmi"])]
    counts = with_column(changed(base(28), "bmi", "*", lambda c, i: "0" if i % 9 == 0 else c),
                         "visits", lambda s, i: str(i * 7 % 4))  # fmt: skip
    said = {"missing_values": ["bmi:0"]}
    yield trap("zeros of one column that are named", counts, "read", "bmi", values=gone,
               options=said)  # fmt: skip
    visits = [float(i * 7 % 4) for i in range(N)]
    yield trap("zeros of another column", counts, "read", "visits", values=visits, options=said)
    minus = with_column(base(29), "shift", lambda s, i: f"\u2212{i}.5" if i % 2 else f"{i}.5")
    values = [-(i + 0.5) if i % 2 else i + 0.5 for i in range(N)]
    yield trap("a minus sign of print", minus, "read", "shift", values=values)


# Units


def units() -> Iterator[Trap]:
    cases = [
        ("sbp", 1 / 7.50062, "kPa and mmHg", 138, 16), ("height", 0.01, "hundredfold", 172, 9),
        ("height", 10.0, "tenfold", 172, 9), ("height", 1 / 2.54, "inches", 172, 9),
        ("weight", 2.20462, "pounds", 78, 12), ("weight", 1000.0, "thousandfold", 78, 12),
        ("glucose", 18.0182, "glucose", 5.6, 0.8), ("creatinine", 88.42, "mg/dl", 0.95, 0.2),
        ("cholesterol", 1 / 38.67, "cholesterol", 205, 35), ("months", 12.0, "months", 40, 9),
        ("share", 100.0, "percent", 0.4, 0.1), ("distance", 1.609344, "miles", 42, 4),
        ("minutes", 1 / 60.0, "minutes", 300, 60), ("uric", 59.48, "uric", 5.5, 1.2),
        ("days", 1 / 365.25, "years", 9000, 2500), ("dose", 1 / 1000.0, "thousandfold", 250, 60),
    ]  # fmt: skip
    for k, (name, factor, words, mean, deviation) in enumerate(cases):
        rng = np.random.default_rng(k)
        cells = base(k)
        for site in SITES:
            values = rng.normal(mean, deviation, N) * (factor if site == "west" else 1)
            cells[site][name] = [f"{x:.5g}" for x in values]
        yield trap(f"{name} times {factor:.4g}", cells, "warned", name, words)
    rng, cells = np.random.default_rng(50), base(50)
    for site in SITES:
        celsius = rng.normal(37, 0.7, N)
        values = celsius * 1.8 + 32 if site == "south" else celsius
        cells[site]["temperature"] = [f"{x:.1f}" for x in values]
    yield trap("Fahrenheit", cells, "warned", "temperature", "Fahrenheit")
    yield from mixed_units()


def mixed_units() -> Iterator[Trap]:
    """Columns of sites with other shares of three clusters, one site in another unit."""
    shares = {"north": (0.6, 0.3, 0.1), "south": (0.1, 0.6, 0.3), "west": (0.3, 0.1, 0.6)}
    measured: list[tuple[str, tuple[float, float, float], float, Callable[[float], float], str]] = [
        ("body_mass_g", (3700, 3750, 5000), 350, lambda x: x / 453.592, "grams and pounds"),
        ("bill_length_mm", (39, 49, 47.5), 3, lambda x: x / 25.4, "millimetres and inches"),
        ("flipper_length_mm", (190, 196, 217), 6.5, lambda x: x / 10, "tenfold"),
        ("temp", (2, 12, 24), 5, lambda x: 1.8 * x + 32, "Fahrenheit"),
        ("temperature", (2, 12, 24), 5, lambda x: x + 273.15, "kelvins"),
        ("wind_speed", (9, 11, 13), 1, lambda x: x / 3.6, "m/s and km/h"),
        ("volume", (60, 75, 90), 9, lambda x: x / 3.78541, "litres and gallons"),
        ("score", (50, 52, 54), 4, lambda x: x + 300, "factors.score=1x-30"),
        ("index", (50, 52, 54), 4, lambda x: 470 - 3 * x, "no usual unit"),
    ]
    for k, (name, means, deviation, written, words) in enumerate(measured):
        rng, cells = np.random.default_rng(300 + k), base(300 + k)
        for site, share in shares.items():
            values = rng.normal(np.array(means)[rng.choice(3, N, p=share)], deviation)
            cells[site][name] = [
                f"{written(x) if site == 'south' else x:.5g}" for x in values.tolist()
            ]
        yield trap(f"{name} in another unit of mixtures", cells, "warned", name, words)


def compared() -> Iterator[Trap]:
    """Columns of which rows elsewhere that are alike in the other columns tell what was done."""
    rng, cells = np.random.default_rng(400), base(400, 150)
    for columns in cells.values():
        kind = rng.integers(3, size=150)
        for name, mean in (("score", (20, 50, 80)), ("dose", (5, 1, 3)), ("rate", (7, 4, 1))):
            columns[name] = [f"{x:.1f}" for x in rng.normal(np.array(mean)[kind], np.max(mean) / 9)]
        answer = rng.normal(np.array([1.5, 3.0, 4.5])[kind], 0.7).round().clip(1, 5)
        columns["answer"] = [f"{x:.0f}" for x in answer]
        columns["stage"] = [("early", "middle", "late")[x] for x in kind]
    later = changed(cells, "answer", "west", lambda c, i: str(int(c) - 1))
    yield trap("answers from 0", later, "warned", "answer", "it holds 0, 1, 2, 3 and 4")
    turned = changed(cells, "answer", "west", lambda c, i: str(6 - int(c)))
    yield trap("answers reversed", turned, "warned", "answer", "as if reversed")
    names = {"early": "alku", "middle": "keski", "late": "late"}
    other = changed(cells, "stage", "west", lambda c, i: names[c])
    yield trap("some texts in another language", other, "warned", "stage", "others call 'middle'")


def no_features() -> Iterator[Trap]:
    """Columns that are no features, and rows that are there twice."""
    number = {"north": "1", "south": "2", "west": "3"}
    named = with_column(base(320), "hospital", lambda s, i: s)
    yield trap("the site's name", named, "warned", "hospital", "where rows are from")
    numbered = with_column(base(321), "island", lambda s, i: number[s])
    yield trap("the site's number", numbered, "warned", "island", "where rows are from")
    constant = with_column(base(322), "unit", lambda s, i: "7")
    yield trap("one number", constant, "warned", "unit", "in all rows and says nothing")
    species = with_column(base(323), "species", lambda s, i: "abc"[i % 3])
    yield trap("a target by its name", species, "warned", "species", "as its name says")
    yield from others_again()


def others_again() -> Iterator[Trap]:
    """Columns that other columns tell, and rows that are there twice."""
    number = {site: i for i, site in enumerate(SITES)}
    keys = np.random.default_rng(324).permutation(9000)[: 3 * N] + 1000
    drawn = with_column(base(324), "ref", lambda s, i: str(keys[i + N * number[s]]))
    yield trap("keys at random", drawn, "warned", "ref", "as if drawn at random")
    inches = base(325)
    for columns in inches.values():
        columns["bmi2"] = list(columns["bmi"])
        columns["all"] = [
            f"{float(a) + float(b) + float(c):.1f}"
            for a, b, c in zip(columns["age"], columns["bmi"], columns["sbp"], strict=True)
        ]
    yield trap("a copy", inches, "warned", "bmi2", "say the same")
    yield trap("a sum", inches, "warned", "all", "is the sum of 'age', 'bmi' and 'sbp'")
    told, rng = base(326), np.random.default_rng(326)
    for columns in told.values():
        kind = rng.integers(2, size=N)
        columns["ward"] = [("A", "B")[x] for x in kind]
        for name in ("age", "bmi", "sbp"):
            columns[name] = [f"{float(x) + 90 * y:.1f}" for x, y in zip(columns[name], kind)]  # noqa: B905
    yield trap("a target that the clusters tell", told, "warned", "ward", "clusters of the other")
    twice = base(327)
    twice["west"] = {name: [*cells, *cells[:9]] for name, cells in twice["west"].items()}
    yield trap("rows twice", twice, "warned", "", "9 of 69 rows repeat an earlier one")
    met = base(327)
    for name, cells in met["west"].items():
        cells[:9] = met["south"][name][-9:]
    yield trap("persons at two sites", met, "warned", "", "have 9 rows in common")
    same = base(328)
    same["west"] = same["south"]
    yield trap("a file twice", same, "warned", "", "have the same rows")


# Spellings


def spellings() -> Iterator[Trap]:
    cases = [
        (("Cardio", "Neuro"), ("cardio", "neuro"), "case"), (("Yes", "No"), ("YES", "NO"), "case"),
        (("F", "M"), ("female", "male"), "words"), (("F", "M"), ("f", "m"), "case"),
        (("female", "male"), ("weiblich", "männlich"), "German"),
        (("yes", "no"), ("ja", "nein"), "German"),
        (("New York", "Boston"), ("New_York", "Boston"), "underscore"),
        (("St Paul", "Lyon"), ("St  Paul", "Lyon"), "two blanks"),
        (("ex-smoker", "never"), ("ex smoker", "never"), "hyphen"),
        (("positive", "negative"), ("pos", "neg"), "short"),
        (("married", "single"), ("verheiratet", "ledig"), "German"),
        (("Zürich", "Bern"), (unicodedata.normalize("NFD", "Zürich"), "Bern"), "accent"),
        (("Y", "N"), ("Yes", "No"), "long"), (("left", "right"), ("links", "rechts"), "German"),
    ]  # fmt: skip
    for k, (there, west, what) in enumerate(cases):
        name, cells = f"{west[0]} for {there[0]} ({what})", planted(there, west, k)
        if what in ("case", "underscore", "two blanks", "hyphen", "accent"):
            values = cells["north"]["kind"]
            yield trap(name, cells, "read", "kind", "is taken for", values=values)
        else:
            yield trap(name, cells, "warned", "kind", "seem to be one")
    genes = planted(("AA", "Aa", "aa"), ("AA", "Aa", "aa"), 34)
    genes["west"]["kind"] = ["AA" if i % 2 else "aA" for i in range(N)]
    said = """seem to be one each; say --set 'codes.kind={Aa = "AA", aa = "AA", aA = "AA"}'"""
    yield trap("two texts of one spelling", genes, "warned", "kind", said)
    foreign = planted(("surgery", "ward", "clinic"), ("kirurgia", "osasto", "klinikka"), 30)
    yield trap("another language", foreign, "warned", "kind", "which the others have")
    blanks = planted(("Yes", "No"), ("Yes ", " No"), 31)
    texts = [cell.strip() for cell in blanks["north"]["kind"]]
    yield trap("blanks around", blanks, "read", "kind", values=texts)
    yield from numbers_for_words()


def planted(there: Sequence[str], west: Sequence[str], seed: int) -> Cells:
    rng, cells = np.random.default_rng(seed), base(seed)
    for site in SITES:
        texts = west if site == "west" else there
        cells[site]["kind"] = rng.choice(list(texts), N).tolist()
    return cells


def numbers_for_words() -> Iterator[Trap]:
    numbers = planted(("F", "M"), ("1", "2"), 32)
    yield trap(
        "codes for words",
        numbers,
        "refused",
        "kind",
        "say which is which by codes.kind of a study file",
    )
    booleans = planted(("yes", "no"), ("true", "false"), 33)
    words = (
        '--set \'codes.kind={0 = "no", 1 = "yes"}\'; --categories auto,kind takes all of it as text'
    )
    yield trap("booleans beside words", booleans, "refused", "kind", words)
    drives = planted(("4", "front", "rear"), ("4", "4"), 35)
    words = "--categories auto,kind takes all of it as text"
    yield trap("a number for a word", drives, "refused", "kind", words)
    texts = drives["north"]["kind"]
    yield trap("a number for a word, named", drives, "read", "kind", values=texts,
               options={"categories": "auto,kind"})  # fmt: skip
    cylinders = planted(("4", "6", "rotary"), ("4", "6"), 36)
    words = "--categories auto,kind where all are names"
    yield trap("a word for a number", cylinders, "refused", "kind", words)
    texts = cylinders["north"]["kind"]
    yield trap("a word for a number, named", cylinders, "read", "kind", values=texts,
               options={"categories": "auto,kind"})  # fmt: skip


# Keys and codes


def keys() -> Iterator[Trap]:
    rng = np.random.default_rng(7)
    order = {site: rng.permutation(N) for site in SITES}
    long = {site: rng.integers(10**8, 10**9, N) for site in SITES}
    bar = {site: rng.integers(10**12, 10**13, N) for site in SITES}
    start = {"north": 1000, "south": 3000, "west": 5000}
    left_out: list[tuple[str, Callable[[str, int], str], str]] = [
        ("row", lambda s, i: str(i + 1), "counts the rows"),
        ("count", lambda s, i: str(i), "counts the rows"),
        ("patient", lambda s, i: str(start[s] + i), "counts the rows"),
        ("case", lambda s, i: str(700 + order[s][i]), "no two are equal"),
        ("person", lambda s, i: str(long[s][i]), "no two are equal"),
        ("label", lambda s, i: str(bar[s][i]), "no two are equal"),
        ("PatientID", lambda s, i: str(start[s] + i // 3), "name is that of a key"),
        ("case_no", lambda s, i: str(start[s] + i * 7 % 53), "name is that of a key"),
        ("Kunden-Nr.", lambda s, i: str(start[s] + i * 5 % 41), "name is that of a key"),
        ("gap", lambda s, i: "" if i == 5 else f"{start[s] + order[s][i]}.0", "no two are equal"),
        ("uuid", lambda s, i: f"{long[s][i]:x}-{i:04x}", "no two rows"),
        ("mrn", lambda s, i: f"P{start[s] + i}", "no two rows"),
        ("phone", lambda s, i: f"0{long[s][i]}", "zeros in front"),
        ("zip_code", lambda s, i: str(20000 + 37 * i % 900), "name is that of a code"),
        ("PLZ", lambda s, i: str(50000 + 11 * i % 700), "name is that of a code"),
        ("area", lambda s, i: f"0{1000 + 13 * i % 300}", "zeros in front"),
        ("diag_code", lambda s, i: ["250", "401", "585", "780"][i % 4], "name is that of a code"),
        ("icd", lambda s, i: ["250", "401", "585", "780"][i % 4], "name is that of a code"),
        ("version", lambda s, i: f"{i % 7:03d}", "zeros in front"),
    ]
    for name, make, words in left_out:
        yield trap(f"key {name}", with_column(base(8), name, make), "left out", name, words)
    asked: list[tuple[str, Callable[[str, int], str]]] = [
        ("ward", lambda s, i: str(1 + i * 7 % 5)),
        ("grade", lambda s, i: str(i * 5 % 4)),
        ("region", lambda s, i: str(11 + i % 3)),
        ("diagnosis", lambda s, i: ["250", "401", "585", "780"][i * 3 % 4]),
        ("answer", lambda s, i: str([1, 2, 3, 9][i % 4])),
    ]
    for name, make in asked:
        yield trap(f"code {name}", with_column(base(9), name, make), "asked", name, "--categories")
    wide = {site: rng.permutation(np.arange(3, 90_000, 37))[:N] for site in SITES}
    amounts = with_column(base(10), "amount", lambda s, i: str(wide[s][i]))
    yield trap("all different", amounts, "asked", "amount", "--exclude amount")
    code = with_column(base(11), "diag_code", lambda s, i: ["250", "401", "585"][i % 3])
    texts = [["250", "401", "585"][i % 3] for i in range(N)]
    yield trap("a code that is named", code, "read", "diag_code", values=texts,
               options={"categories": "diag_code"})  # fmt: skip


# Dates


def dates() -> Iterator[Trap]:
    day = np.datetime64("2019-03-04")
    days = [str(day + 11 * i) for i in range(N)]
    parts = [text.split("-") for text in days]
    english = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905
    german = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
    written: dict[str, list[str]] = {
        "ISO": days,
        "ISO with time": [f"{text}T08:30:00" for text in days],
        "ISO with blank and time": [f"{text} 08:30" for text in days],
        "ISO with zone": [f"{text}T08:30:00+02:00" for text in days],
        "German": [f"{d}.{m}.{y}" for y, m, d in parts],
        "German, short": [f"{int(d)}.{int(m)}.{y[2:]}" for y, m, d in parts],
        "British": [f"{d}/{m}/{y}" for y, m, d in parts],
        "American": [f"{m}/{d}/{y}" for y, m, d in parts],
        "Japanese": [f"{y}/{m}/{d}" for y, m, d in parts],
        "with names": [f"{int(d)} {english[int(m) - 1]} {y}" for y, m, d in parts],
        "with names first": [f"{english[int(m) - 1]} {int(d)} {y}" for y, m, d in parts],
        "with German names": [f"{int(d)}. {german.split()[int(m) - 1]} {y}" for y, m, d in parts],
        "with hyphens": [f"{d}-{english[int(m) - 1].upper()}-{y}" for y, m, d in parts],
        "YYYYMMDD": ["".join(each) for each in parts],
        "with gaps": ["" if i % 7 == 0 else text for i, text in enumerate(days)],
        "German with signs of gaps": [
            "NULL" if i % 7 == 0 else f"{d}.{m}.{y}" for i, (y, m, d) in enumerate(parts)
        ],
    }
    for how, texts in written.items():
        cells = with_column(base(12), "admitted", picks(texts))
        yield trap(f"dates: {how}", cells, "left out", "admitted", "dates")
    cells = with_column(base(12), "admitted", lambda s, i: f"0{1 + i % 9}/0{1 + i % 7}/2020")
    words, said = "may begin with the day or with the month", {"dates": {"admitted": "month"}}
    yield trap("dates: day or month", cells, "refused", "admitted", words, options=said)
    for how in ("ISO", "German", "YYYYMMDD", "with names"):
        cells = with_column(base(13), "admitted", picks(written[how]))
        since = [float(11 * i + 3) for i in range(N)]
        yield trap(f"dates that are read: {how}", cells, "read", "admitted", values=since,
                   options={"dates": {"admitted": "since:2019-03-01"}})  # fmt: skip
    form = {True: "ISO", False: "German"}
    mixed = with_column(base(14), "admitted", lambda s, i: written[form[s > "o"]][i])
    yield trap("dates in two forms", mixed, "left out", "admitted", "dates")
    sign = with_column(base(15), "born", lambda s, i: "1900-01-01" if i % 9 == 0 else days[i])
    yield trap(
        "1900-01-01", sign, "warned", "born", "the others are", options={"dates": {"born": "since"}}
    )


# How files are written


def writings() -> Iterator[Trap]:
    towns = ["Köln", "Málaga"]
    named = with_column(base(16), "Größe", lambda s, i: f"{170 + i % 20}.5")
    named = with_column(named, "Ort", lambda s, i: towns[i % 2])
    texts = [towns[i % 2] for i in range(N)]
    for encoding in ("utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"):
        files = {f"{s}.csv": csv(columns).encode(encoding) for s, columns in named.items()}
        yield Trap(f"encoding {encoding}", files, "read", "Ort", values=texts)
    packed = {f"{s}.csv.gz": gzip.compress(csv(c).encode("cp1252")) for s, c in named.items()}
    yield Trap("encoding in gzip", packed, "read", "Ort", values=texts)
    cells = base(17)
    values = [float(cell) for cell in cells["north"]["sbp"]]
    commas = changed(
        changed(changed(cells, "sbp", "*", _comma), "age", "*", _comma), "bmi", "*", _comma
    )
    for what, sep in (("semicolons", ";"), ("tabs", "\t"), ("bars", "|"), ("quotes", ",")):
        files = {f"{s}.csv": csv(columns, sep).encode() for s, columns in commas.items()}
        yield Trap(f"decimal commas with {what}", files, "read", "sbp", values=values)
    one = {
        f"{s}.csv": (csv(commas[s], ";") if s == "north" else csv(cells[s])).encode() for s in SITES
    }
    yield Trap("decimal commas at one site", one, "read", "sbp", values=values)
    yield from numbers_as_written()


ALONE = "is more than a number; write the numbers alone"


def numbers_as_written() -> Iterator[Trap]:
    grouped: list[tuple[str, Callable[[int], str], str]] = [
        ("<5", lambda i: "<5" if i % 9 == 0 else f"{i}.5", "not a number"),
        ("n.d.", lambda i: "n.d." if i % 9 == 0 else f"{i}.5", "not a number"),
        ("12 kg and 3 lb", lambda i: f"{i}.5 {'lb' if i == 9 else 'kg'}", ALONE),
        ("1.234,5", lambda i: f"{i + 1}.{100 + i},{i % 9}", "more than one point or comma"),
        ("1,234.5", lambda i: f"{i + 1},{100 + i}.{i % 9}", "more than one point or comma"),
        ("1,234", lambda i: f"{i + 1},{100 + i}", "may mean 1.100 or 1100"),
        ("1 234", lambda i: f"{i + 1} {100 + i}", ALONE),
        ("12%", lambda i: f"{i}.5 %", ALONE),
        ("€ 12", lambda i: f"€ {i}.50", ALONE),
        ("$12", lambda i: f"${i}.50", ALONE),
        ("12 €", lambda i: f"{i},50 €", ALONE),
        ("12 kg", lambda i: f"{i}.5 kg", ALONE),
        ("12kg/m²", lambda i: f"{i}.5kg/m²", ALONE),
    ]
    for what, write, words in grouped:
        files = files_of(with_column(base(18), "dose", alike(write)))
        yield Trap(f"numbers as {what}", files, "refused", "dose", words)
    powers = with_column(base(19), "dose", lambda s, i: f"{i + 1}.5e3")
    yield trap("numbers as 1e3", powers, "read", "dose", values=[(i + 1.5) * 1e3 for i in range(N)])


def _comma(cell: str, _i: int) -> str:
    return cell.replace(".", ",")


# Typing errors


def typings() -> Iterator[Trap]:
    cases = [
        ("sbp", {7: "13800"}), ("age", {3: "5500"}), ("bmi", {9: "2650"}), ("sbp", {4: "1.38"}),
        ("age", {5: "0.55"}), ("sbp", {11: "14000"}), ("bmi", {2: "0.26"}), ("sbp", {8: "-138000"}),
        ("bmi", {1: "26500"}),
    ]  # fmt: skip
    for k, (column, wrong) in enumerate(cases):
        planted = changed(base(40 + k), column, "south", typed(wrong))
        value = f"{float(next(iter(wrong.values()))):.6g}"
        yield trap(f"typing {value} in {column}", planted, "warned", column, value)


# Shapes of tables


def shapes() -> Iterator[Trap]:
    files = files_of(base(60))
    yield Trap("an empty file", files | {"west.csv": b""}, "refused", words="west.csv is empty")
    header = files | {"west.csv": b"age,bmi,sbp,sex\n"}
    yield Trap("a header alone", header, "refused", words="has a header but no rows")
    twice = files | {"west.csv": b"age,age,bmi,sbp,sex\n1,2,3,4,F\n"}
    yield Trap("a name twice", twice, "refused", words="two columns of this name")
    repeated = files["west.csv"] + files["west.csv"]
    yield Trap("the header again", files | {"west.csv": repeated}, "refused", "", "in any column")
    yield from other_contents(files)
    one = files | {"west.csv": b"age,bmi,sbp,sex\n50,25,140,F\n"}
    values = [float(cell) for cell in base(60)["north"]["age"]]
    yield Trap("one row", one, "read", "age", values=values)
    lines = files | {"north.csv": files["north.csv"] + b"\n\n"}
    yield Trap("blank lines at the end", lines, "read", "age", values=values)
    windows = files | {"north.csv": files["north.csv"].replace(b"\n", b"\r\n")}
    yield Trap("lines of Windows", windows, "read", "age", values=values)
    spaced = files | {"north.csv": files["north.csv"].replace(b"age,", b" age ,", 1)}
    yield Trap("blanks around a name", spaced, "read", "age", values=values)
    cased = files | {"north.csv": files["north.csv"].replace(b"age,", b"Age,", 1)}
    yield Trap("a name in capitals", cased, "read", "age", "taken for 'age'", values=values)
    both = files["north.csv"].replace(b"age,bmi", b"Age,AGE", 1)
    yield Trap(
        "a name in two spellings", files | {"north.csv": both}, "warned", "AGE", "are not joined"
    )
    yield from columns()
    yield from sheets()


def other_contents(files: Mapping[str, bytes]) -> Iterator[Trap]:
    rows = files["west.csv"].partition(b"\n")[2]
    yield Trap("no header", {**files, "west.csv": rows}, "refused", "", "seems to hold values")
    units = b"age,bmi,sbp,sex\nyears,kg/m2,mmHg,\n" + files["west.csv"].partition(b"\n")[2]
    yield Trap("a line of units", {**files, "west.csv": units}, "refused", "", "in any column")
    blanks = files["west.csv"].replace(b",", b"   ")
    yield Trap(
        "blanks between columns",
        {**files, "west.csv": blanks},
        "refused",
        "",
        "separated by blanks",
    )
    contents = {
        "a workbook": b"PK\x03\x04", "an old workbook": b"\xd0\xcf\x11\xe0\xa1",
        "packed": gzip.compress(files["west.csv"]), "Parquet": b"PAR1\x15", "a page": b"\n<html>",
        "SQLite": b"SQLite format 3\x00", "JSON": b'{"age": 5}', "JSON rows": b'[{"age": 5}]',
    }  # fmt: skip
    for name, content in contents.items():
        other = {**files, "west.csv": content}
        yield Trap(f"{name} called CSV", other, "refused", "", "is called CSV and seems to be")


def hardly_used() -> Iterator[Trap]:
    rare = with_column(base(62), "crp", lambda s, i: f"{i % 7 + i / 10}" if i % 20 == 3 else "")
    yield trap("hardly a value", rare, "warned", "crp", "has a value in 9 of 180 rows only")
    half = base(62)
    for name in ("age", "bmi", "sbp"):
        half["west"][name][:7] = [""] * 7
    yield trap("rows half empty", half, "warned", "", "7 of 60 rows lack more than half")
    pairs = np.random.default_rng(62).integers([100, 60], [180, 100], (N, 2)) // 5 * 5
    both = with_column(base(62), "bp", lambda s, i: f"{pairs[i, 0]}/{pairs[i, 1]}")
    yield trap("two numbers in a cell", both, "left out", "bp", "make two columns of them")


def columns() -> Iterator[Trap]:
    constant = with_column(base(61), "unit", lambda s, i: "mmHg")
    yield trap("one text", constant, "left out", "unit", "the same text")
    empty = with_column(base(62), "note", lambda s, i: "")
    yield trap("no value", empty, "left out", "note", "no value")
    gone = with_column(base(63), "dose", lambda s, i: "" if s == "west" else f"{i * 1.5}")
    yield trap("no value at a site", gone, "left out", "dose", "no value at west")
    free = with_column(base(64), "note", lambda s, i: f"seen by {s} {i // 2}")
    yield trap("free text", free, "left out", "note", "more than 20")
    titled = {site: dict(cells) for site, cells in base(67).items()}
    titled["west"]["sbp (mmHg)"] = titled["west"].pop("sbp")
    yield trap(
        "a unit in a name",
        titled,
        "left out",
        "sbp",
        "--set 'sites.west.rename.\"sbp (mmHg)\"=sbp'",
    )
    filled = changed(base(68), "bmi", "west", lambda c, i: "25.0")
    yield trap("one number at a site", filled, "warned", "bmi", "60 of 60 values are 25")
    pains = ["none", "mild", "severe"]
    pain = with_column(base(69), "pain", lambda s, i: pains[i % 3])
    yield trap("none among texts", pain, "read", "pain", values=[pains[i % 3] for i in range(N)])
    measured = changed(base(35), "bmi", "west", lambda c, i: "high" if i % 2 else "low")
    yield trap(
        "words for numbers", measured, "refused", "bmi", "--exclude bmi or --set lenient=true"
    )
    booleans = with_column(base(65), "smoker", lambda s, i: str(i % 3 == 0))
    yield trap(
        "True and False", booleans, "read", "smoker", values=[float(i % 3 == 0) for i in range(N)]
    )
    alone = base(66)
    alone["west"]["extra"] = [f"{i * 0.5}" for i in range(N)]
    yield trap("a column of one site", alone, "left out", "extra", "only west has it")


def digits() -> Iterator[Trap]:
    long = base(67)
    long["south"]["bmi"][7] = "18446744073709551616"
    yield trap("a number of 20 digits", long, "refused", "bmi", "has more digits than a number")


def moved() -> Iterator[Trap]:
    rows, rng = base(88, n=200), np.random.default_rng(88)
    for columns in rows.values():
        lower = 0.6 * np.array(columns["sbp"], float) + rng.normal(0, 4, 200)
        columns["dbp"] = [f"{x:.1f}" for x in lower]
    rows["west"]["dbp"].sort(key=float)
    yield trap("a column sorted alone", rows, "warned", "dbp", "sorted or moved alone")


def sheets() -> Iterator[Trap]:
    def excel(change: Callable[[pd.DataFrame], pd.DataFrame]) -> dict[str, bytes]:
        files = {}
        for site, columns in base(70).items():
            frame = pd.DataFrame(
                {k: v if k == "sex" else list(map(float, v)) for k, v in columns.items()}
            )
            written = io.BytesIO()
            change(frame).to_excel(written, index=False)
            files[f"{site}.xlsx"] = written.getvalue()
        return files

    values = [float(cell) for cell in base(70)["north"]["age"]]
    yield Trap("a sheet", excel(lambda frame: frame), "read", "age", values=values)
    days = pd.date_range("2020-01-01", periods=N)
    dated = excel(lambda frame: frame.assign(admitted=days))
    yield Trap("dates of a sheet", dated, "left out", "admitted", "dates")
    padded = excel(lambda frame: frame.assign(area=[f"0{1000 + 13 * i}" for i in range(N)]))
    yield Trap("numbers of a sheet as text", padded, "left out", "area", "zeros in front")
    uncomputed = excel(lambda frame: frame.assign(twice=[f"=A{i + 2}*2" for i in range(N)]))
    yield Trap("formulas without values", uncomputed, "refused", "", "cell E2 of sheet 'Sheet1'")
    two = io.BytesIO()
    with pd.ExcelWriter(two) as book:
        for title in ("May", "June"):
            pd.DataFrame({"age": [31.0, 47.5], "bmi": [22.5, 30.1]}).to_excel(
                book, sheet_name=title
            )
    both = {"north.xlsx": two.getvalue()}
    yield Trap("a table on each of two sheets", both, "refused", "", "on each of the sheets 'May'")
    sign = excel(
        lambda frame: frame.assign(sbp=[-999.0 if i % 9 == 0 else 130 + i for i in range(N)])
    )
    yield Trap("a sentinel of a sheet", sign, "warned", "sbp", "-999")


def traps() -> list[Trap]:
    """All traps."""
    makers = (
        sentinels, units, compared, no_features, spellings, keys, dates, writings, typings,
        hardly_used, shapes, digits, moved,
    )  # fmt: skip
    return [each for make in makers for each in make()]


# Clean sets


def clean() -> dict[str, dict[str, pd.DataFrame]]:
    """Sets without a trap, by name and site: real ones, and what is drawn from distributions."""
    sets: dict[str, dict[str, pd.DataFrame]] = {}
    loaders = {
        "iris": datasets.load_iris, "wine": datasets.load_wine, "digits": datasets.load_digits,
        "cancer": datasets.load_breast_cancer, "diabetes": datasets.load_diabetes,
        "linnerud": datasets.load_linnerud,
    }  # fmt: skip
    for name, load in loaders.items():
        loaded: Any = load(as_frame=True)
        frame = loaded.data
        sets[f"{name} at random"] = at_random(frame, 3 if len(frame) > 30 else 1)
        if name not in ("diabetes", "linnerud"):
            sets[f"{name} by class"] = by_class(frame, np.asarray(loaded.target))
    return sets | published() | drawn()


def published() -> dict[str, dict[str, pd.DataFrame]]:
    """The papers' sets, and the bank's customers by job where they are at hand."""
    split: dict[str, SplitRows] = {
        "sixteen clusters": plane16(),
        "another k everywhere": variable_k(),
        "two clouds in 2": g2(2, 30, per_cluster=200),
        "two clouds in 32": g2(32, 50, per_cluster=200),
        "Triebe": triebe()[0],
        "pentagon": pentagon(),
        **{f"FFCM {case}": ffcm_case(case) for case in FFCM_CASES},
    }
    sets = {
        name: {
            site: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
            for site, (X, _) in rows.sites.items()
        }
        for name, rows in split.items()
    }
    if BANK.exists():
        bank = pd.read_parquet(BANK)
        few = bank.sample(6000, random_state=0).drop(columns=["y"], errors="ignore")
        jobs = few.groupby("job")
        sets["bank by job"] = {str(job): part.drop(columns="job") for job, part in jobs}
        sets["bank at random"] = at_random(few, 5)
    return sets


def at_random(frame: pd.DataFrame, n_sites: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Rows at sites drawn for them."""
    site = np.random.default_rng(seed).integers(n_sites, size=len(frame))
    return {f"site{i}": frame[site == i] for i in range(n_sites)}


def by_class(frame: pd.DataFrame, y: np.ndarray) -> dict[str, pd.DataFrame]:
    """Sites that see few classes: the hardest case for whoever looks for differences."""
    site = y % 3 if len(set(y.tolist())) > 2 else y
    return {f"site{i}": frame[site == i] for i in sorted(set(site.tolist()))}


def drawn() -> dict[str, dict[str, pd.DataFrame]]:
    """Tables of many distributions, also of sites that truly differ."""
    draw: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
        "normal": lambda r, s: r.normal(10, 2, s),
        "wide normal": lambda r, s: r.normal(0, 1e6, s),
        "tight normal": lambda r, s: r.normal(1e6, 1, s),
        "lognormal": lambda r, s: r.lognormal(1, 1, s),
        "wide lognormal": lambda r, s: r.lognormal(3, 2, s),
        "exponential": lambda r, s: r.exponential(30, s),
        "Student t with 3": lambda r, s: r.standard_t(3, s),
        "Cauchy": lambda r, s: r.standard_cauchy(s),
        "Pareto": lambda r, s: r.pareto(1.2, s),
        "uniform": lambda r, s: r.uniform(0, 1, s),
        "Poisson": lambda r, s: r.poisson(40, s).astype(float),
        "negative binomial": lambda r, s: r.negative_binomial(1, 0.02, s).astype(float),
        "0 and 1": lambda r, s: r.integers(2, size=s).astype(float),
        "rare 1": lambda r, s: (r.random(s) < 0.05).astype(float),
        "amounts with zeros": lambda r, s: np.where(r.random(s) < 0.4, 0, r.lognormal(5, 1, s)),
        "cut at the top": lambda r, s: r.normal(80, 15, s).clip(None, 95),
        "rounded": lambda r, s: r.normal(120, 15, s).round(-1),
    }
    sets = {}
    for k, (name, make) in enumerate(draw.items()):
        rng = np.random.default_rng(100 + k)
        frame = pd.DataFrame(make(rng, (240, 6)), columns=[f"m{j}" for j in range(6)])
        sets[name] = at_random(frame, 3, k)
    for k in range(3):
        rng = np.random.default_rng(200 + k)
        means = rng.uniform(20, 200, (4, 6))
        kinds = {f"site{i}": rng.choice(4, 90, p=rng.dirichlet([0.4] * 4)) for i in range(4)}
        sets[f"sites that differ {k}"] = {
            site: pd.DataFrame(means[kind] + rng.normal(0, 6, (90, 6))).rename(columns="m{}".format)
            for site, kind in kinds.items()
        }
    return sets

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

from reproduction import datasets as papers
from reproduction.results import REFERENCE

Cells = dict[str, dict[str, list[str]]]
"""What is written, by site and column."""
Make = Callable[[str, int], str]
"""What writes a cell, of its site or of what is there, and its row."""
SITES = ("north", "south", "west")
N = 60
BANK = REFERENCE / "bank_marketing.parquet"


@dataclass(frozen=True)
class Trap:
    """Files with one trap, and what must happen to a column of them."""

    name: str
    files: Mapping[str, bytes]
    expected: str
    """Is "read", "left out", "warned", "asked" or "refused"."""
    column: str = ""
    words: str = ""
    """What the line about it holds."""
    values: Sequence[Any] | None = None
    """What a column that is read holds at the first site; None where nothing."""
    options: Mapping[str, Any] = field(default_factory=dict)


def base(seed: int = 8, n: int = N) -> Cells:
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
    return pd.DataFrame(columns).to_csv(index=False, sep=sep, lineterminator="\n")


def trap(name: str, cells: Cells, expected: str, column: str, words: str = "", **more: Any) -> Trap:
    files = {f"{site}.csv": csv(columns).encode() for site, columns in cells.items()}
    return Trap(name, files, expected, column, words, **more)


def with_column(cells: Cells, name: str, make: Make) -> Cells:
    """The same with one more column."""
    return {
        site: {name: [make(site, i) for i in range(len(columns["age"]))], **columns}
        for site, columns in cells.items()
    }


def changed(cells: Cells, column: str, site: str, make: Make) -> Cells:
    """The same with the cells of a column made anew, at a site or at all ("*")."""
    new = {where: dict(columns) for where, columns in cells.items()}
    for where in SITES if site == "*" else [site]:
        new[where][column] = [make(cell, i) for i, cell in enumerate(cells[where][column])]
    return new


def added(name: str, column: str, make: Make, expected: str, words: str = "", **more: Any) -> Trap:
    """A trap in one more column."""
    return trap(name, with_column(base(), column, make), expected, column, words, **more)


def altered(
    name: str, column: str, site: str, make: Make, words: str, expected: str = "warned"
) -> Trap:
    """A trap in a column that is there."""
    return trap(name, changed(base(), column, site, make), expected, column, words)


def typed(wrong: Mapping[int, str]) -> Make:
    """What writes these cells into their rows."""
    return lambda cell, i: wrong.get(i, cell)


def every(n: int, value: str) -> Make:
    """What writes a value into each n-th row."""
    return typed(dict.fromkeys(range(0, N, n), value))


def numbers(cells: Cells, column: str, missing: str = "") -> list[float | None]:
    """What the first site has measured."""
    return [None if cell == missing else float(cell) for cell in cells["north"][column]]


def sentinels() -> Iterator[Trap]:
    for column, value, n in [
        ("age", "-999", 12), ("age", "999", 12), ("sbp", "9999", 20), ("sbp", "-9999", 5),
        ("bmi", "-99", 15), ("bmi", "99.0", 12), ("bmi", "888", 10), ("sbp", "-999.0", 3),
        ("age", "777", 20), ("bmi", "99999", 25), ("sbp", "1500", 10), ("age", "-500", 12),
    ]:  # fmt: skip
        words = f"at west: {float(value):.0f} ("
        yield altered(f"sentinel {value} in {column}", column, "west", every(n, value), words)
    two = typed({i: ("-999", "-888")[i % 10] for i in range(N) if i % 10 < 2})
    yield altered("two sentinels", "age", "south", two, "-999 (10.0%) and -888 (10.0%)")
    yield altered("a sentinel at all sites", "sbp", "*", every(9, "-999"), "-999")
    years = with_column(base(), "birth_year", lambda s, i: str(1935 + 7 * i % 60))
    years = changed(years, "birth_year", "north", every(12, "9999"))
    yield trap("a year 9999", years, "warned", "birth_year", "9999")
    cells = changed(base(), "age", "north", every(9, "-999"))
    ages, named = numbers(cells, "age", "-999"), {"missing_values": [-999]}
    yield trap("a sentinel that is named", cells, "read", "age", values=ages, options=named)
    for sign in ("-", "?", "n/a", "NULL", "None", "#N/A"):
        cells = changed(base(), "sbp", "north", every(8, sign))
        yield trap(f"{sign} in numbers", cells, "read", "sbp", values=numbers(cells, "sbp", sign))
    for sign in ("-", " ? "):
        cells = changed(base(), "sex", "north", every(8, sign))
        texts = [None if cell == sign else cell for cell in cells["north"]["sex"]]
        yield trap(f"{sign!r} in texts", cells, "read", "sex", values=texts)
    yield from zeros()


def zeros() -> Iterator[Trap]:
    words = "say --set 'missing_values=[\"bmi:0\"]'"
    yield altered("zeros for nothing", "bmi", "south", every(9, "0"), words)
    cells = with_column(base(), "visits", lambda s, i: str(i * 7 % 4))
    cells = changed(cells, "bmi", "*", every(9, "0"))
    named = {"missing_values": ["bmi:0"]}
    for whose, column, gap in [("that are named", "bmi", "0"), ("as others have", "visits", "")]:
        values = numbers(cells, column, gap)
        yield trap(f"zeros {whose}", cells, "read", column, values=values, options=named)
    shifts = [-(i + 0.5) if i % 2 else i + 0.5 for i in range(N)]
    printed = [str(shift).replace("-", "\u2212") for shift in shifts]
    yield added("a minus of print", "shift", lambda s, i: printed[i], "read", values=shifts)


def units() -> Iterator[Trap]:
    cases: list[tuple[str, float, str, float, float]] = [
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
        rng, cells = np.random.default_rng(k), base(k)
        for site in SITES:
            values = rng.normal(mean, deviation, N) * (factor if site == "west" else 1)
            cells[site][name] = [f"{x:.5g}" for x in values]
        yield trap(f"{name} times {factor:.4g}", cells, "warned", name, words)
    celsius = np.random.default_rng(50).normal(37, 0.7, (3, N))
    celsius[1] = celsius[1] * 1.8 + 32
    warm = {site: [f"{x:.1f}" for x in row] for site, row in zip(SITES, celsius, strict=True)}
    yield added("Fahrenheit", "temperature", lambda s, i: warm[s][i], "warned", "Fahrenheit")
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
            drawn = rng.normal(np.array(means)[rng.choice(3, N, p=share)], deviation).tolist()
            values = map(written, drawn) if site == "south" else drawn
            cells[site][name] = [f"{x:.5g}" for x in values]
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
    names = {"early": "alku", "middle": "keski", "late": "late"}
    makes: list[tuple[str, str, Make, str]] = [
        ("answers from 0", "answer", lambda c, i: str(int(c) - 1), "it holds 0, 1, 2, 3 and 4"),
        ("answers reversed", "answer", lambda c, i: str(6 - int(c)), "as if reversed"),
        ("some texts in another language", "stage", lambda c, i: names[c], "others call 'middle'"),
    ]
    for name, column, make, words in makes:
        yield trap(name, changed(cells, column, "west", make), "warned", column, words)


def no_features() -> Iterator[Trap]:
    number = {site: str(i) for i, site in enumerate(SITES)}
    ref = np.random.default_rng(324).permutation(9000)[: 3 * N] + 1000
    yield from [
        added("the site's name", "hospital", lambda s, i: s, "warned", "where rows are from"),
        added("the site's number", "island", lambda s, i: number[s], "warned",
              "where rows are from"),
        added("one number", "unit", lambda s, i: "7", "warned", "in all rows and says nothing"),
        added("a target by its name", "species", lambda s, i: "abc"[i % 3], "warned",
              "as its name says"),
        added("keys at random", "ref", lambda s, i: str(ref[i + N * int(number[s])]), "warned",
              "as if drawn at random"),
    ]  # fmt: skip
    cells = base(325)
    for columns in cells.values():
        columns["bmi2"] = list(columns["bmi"])
        amounts = pd.DataFrame(columns)[["age", "bmi", "sbp"]].astype(float)
        columns["all"] = [f"{x:.1f}" for x in amounts.sum(axis=1)]
    yield trap("a copy", cells, "warned", "bmi2", "say the same")
    yield trap("a sum", cells, "warned", "all", "is the sum of 'age', 'bmi' and 'sbp'")
    cells, rng = base(326), np.random.default_rng(326)
    for columns in cells.values():
        kind = rng.integers(2, size=N)
        columns["ward"] = [("A", "B")[x] for x in kind]
        for name in ("age", "bmi", "sbp"):
            columns[name] = [f"{x:.1f}" for x in np.array(columns[name], float) + 90 * kind]
    yield trap("a target that the clusters tell", cells, "warned", "ward", "clusters of the other")
    cells = base(327)
    cells["west"] = {name: [*column, *column[:9]] for name, column in cells["west"].items()}
    yield trap("rows twice", cells, "warned", "", "9 of 69 rows repeat an earlier one")
    cells = base(327)
    for name, column in cells["west"].items():
        column[:9] = cells["south"][name][-9:]
    yield trap("persons at two sites", cells, "warned", "", "have 9 rows in common")
    cells = base(328)
    cells["west"] = cells["south"]
    yield trap("a file twice", cells, "warned", "", "have the same rows")


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
    words = """seem to be one each; say --set 'codes.kind={Aa = "AA", aa = "AA", aA = "AA"}'"""
    yield trap("two texts of one spelling", genes, "warned", "kind", words)
    blanks = planted(("Yes", "No"), ("Yes ", " No"), 31)
    texts = [cell.strip() for cell in blanks["north"]["kind"]]
    yield trap("blanks around", blanks, "read", "kind", values=texts)
    all_of_it, yes_no = "--categories auto,kind takes all of it as text", '{0 = "no", 1 = "yes"}'
    asks = "if they mean the same, say which is which by codes.kind of a study file"
    others: list[tuple[str, Sequence[str], Sequence[str], str, str]] = [
        ("another language", ("surgery", "ward", "clinic"), ("kirurgia", "osasto", "klinikka"),
         "warned", "which the others have"),
        ("codes for words", ("F", "M"), ("1", "2"), "refused", asks),
        ("booleans for words", ("F", "M"), ("true", "false"), "refused", asks),
        ("booleans beside words", ("yes", "no"), ("true", "false"), "refused",
         f"--set 'codes.kind={yes_no}'; {all_of_it}"),
        ("a number for a word", ("4", "front", "rear"), ("4", "4"), "refused", all_of_it),
        ("a word for a number", ("4", "6", "rotary"), ("4", "6"), "refused",
         "--categories auto,kind where all are names"),
    ]  # fmt: skip
    for name, most, other, expected, words in others:
        cells = planted(most, other, 35)
        yield trap(name, cells, expected, "kind", words)
        if most[0] == "4":
            yield trap(f"{name}, named", cells, "read", "kind", values=cells["north"]["kind"],
                       options={"categories": "auto,kind"})  # fmt: skip


def planted(there: Sequence[str], west: Sequence[str], seed: int) -> Cells:
    """Texts of a column, which are others at one site."""
    rng, cells = np.random.default_rng(seed), base(seed)
    for site in SITES:
        texts = west if site == "west" else there
        cells[site]["kind"] = rng.choice(list(texts), N).tolist()
    return cells


def keys() -> Iterator[Trap]:
    rng = np.random.default_rng(7)
    order = {site: rng.permutation(N) for site in SITES}
    long = {site: rng.integers(10**8, 10**9, N) for site in SITES}
    bar = {site: rng.integers(10**12, 10**13, N) for site in SITES}
    wide = {site: rng.permutation(np.arange(3, 90_000, 37))[:N] for site in SITES}
    start = {"north": 1000, "south": 3000, "west": 5000}
    codes = ["250", "401", "585", "780"]
    left_out: list[tuple[str, Make, str]] = [
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
        ("diag_code", lambda s, i: codes[i % 4], "name is that of a code"),
        ("icd", lambda s, i: codes[i % 4], "name is that of a code"),
        ("version", lambda s, i: f"{i % 7:03d}", "zeros in front"),
    ]
    for name, make, words in left_out:
        yield added(f"key {name}", name, make, "left out", words)
    asked: list[tuple[str, Make, str]] = [
        ("ward", lambda s, i: str(1 + i * 7 % 5), "--categories"),
        ("grade", lambda s, i: str(i * 5 % 4), "--categories"),
        ("region", lambda s, i: str(11 + i % 3), "--categories"),
        ("diagnosis", lambda s, i: codes[i * 3 % 4], "--categories"),
        ("answer", lambda s, i: "1239"[i % 4], "--categories"),
        ("amount", lambda s, i: str(wide[s][i]), "--exclude amount"),
    ]
    for name, make, words in asked:
        yield added(f"code {name}", name, make, "asked", words)
    texts = [codes[i % 3] for i in range(N)]
    yield added("a code that is named", "diag_code", lambda s, i: texts[i], "read", values=texts,
                options={"categories": "diag_code"})  # fmt: skip


def dates() -> Iterator[Trap]:
    day = np.datetime64("2019-03-04")
    days = [str(day + 11 * i) for i in range(N)]
    parts = [text.split("-") for text in days]
    english = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905
    german = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
    dotted = [f"{d}.{m}.{y}" for y, m, d in parts]
    written: dict[str, list[str]] = {
        "ISO": days,
        "ISO with time": [f"{text}T08:30:00" for text in days],
        "ISO with blank and time": [f"{text} 08:30" for text in days],
        "ISO with zone": [f"{text}T08:30:00+02:00" for text in days],
        "German": dotted,
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
        "with signs of gaps": ["NULL" if i % 7 == 0 else text for i, text in enumerate(dotted)],
    }
    for how, texts in written.items():
        cells = {site: {"admitted": texts, **columns} for site, columns in base().items()}
        yield trap(f"dates: {how}", cells, "left out", "admitted", "dates")
        if how in ("ISO", "German", "YYYYMMDD", "with names"):
            yield trap(f"dates that are read: {how}", cells, "read", "admitted",
                       values=[float(11 * i + 3) for i in range(N)],
                       options={"dates": {"admitted": "since:2019-03-01"}})  # fmt: skip
    yield added("dates: day or month", "admitted", lambda s, i: f"0{1 + i % 9}/0{1 + i % 7}/2020",
                "refused", "may begin with the day or with the month",
                options={"dates": {"admitted": "month"}})  # fmt: skip
    forms = {"north": days, "south": dotted, "west": dotted}
    yield added("dates in two forms", "admitted", lambda s, i: forms[s][i], "left out", "dates")
    yield added("1900-01-01", "born", lambda s, i: days[i] if i % 9 else "1900-01-01", "warned",
                "the others are", options={"dates": {"born": "since"}})  # fmt: skip


def writings() -> Iterator[Trap]:
    texts = [("Köln", "Málaga")[i % 2] for i in range(N)]
    named = with_column(base(), "Größe", lambda s, i: f"{170 + i % 20}.5")
    written = {site: csv({"Ort": texts, **columns}) for site, columns in named.items()}
    for encoding in ("utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"):
        files = {f"{site}.csv": text.encode(encoding) for site, text in written.items()}
        yield Trap(f"encoding {encoding}", files, "read", "Ort", values=texts)
    packed = {f"{s}.csv.gz": gzip.compress(text.encode("cp1252")) for s, text in written.items()}
    yield Trap("encoding in gzip", packed, "read", "Ort", values=texts)
    cells = base()
    values = numbers(cells, "sbp")
    commas = {
        site: {
            name: [cell.replace(".", ",") for cell in column] for name, column in columns.items()
        }
        for site, columns in cells.items()
    }
    for what, sep in (("semicolons", ";"), ("tabs", "\t"), ("bars", "|"), ("quotes", ",")):
        files = {f"{site}.csv": csv(columns, sep).encode() for site, columns in commas.items()}
        yield Trap(f"decimal commas with {what}", files, "read", "sbp", values=values)
    one = {f"{site}.csv": csv(cells[site]).encode() for site in SITES}
    one["north.csv"] = csv(commas["north"], ";").encode()
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
        ("€ 12", lambda i: f"€ {i}.50", ALONE),
        ("12kg/m²", lambda i: f"{i}.5kg/m²", ALONE),
        ("20 digits", lambda i: "18446744073709551616" if i == 7 else f"{i}.5",
         "has more digits than a number"),
    ]  # fmt: skip
    for what, write, words in grouped:
        cells = [write(i) for i in range(N)]
        yield added(f"numbers as {what}", "dose", lambda s, i: cells[i], "refused", words)  # noqa: B023
    yield added("numbers as 1e3", "dose", lambda s, i: f"{i + 1}.5e3", "read",
                values=[(i + 1.5) * 1e3 for i in range(N)])  # fmt: skip


def typings() -> Iterator[Trap]:
    cases = [
        ("sbp", {7: "13800"}), ("age", {3: "5500"}), ("bmi", {9: "2650"}), ("sbp", {4: "1.38"}),
        ("age", {5: "0.55"}), ("sbp", {11: "14000"}), ("bmi", {2: "0.26"}), ("sbp", {8: "-138000"}),
        ("bmi", {1: "26500"}),
    ]  # fmt: skip
    for column, wrong in cases:
        [cell] = wrong.values()
        value = f"{float(cell):.6g}"
        yield altered(f"typing {value} in {column}", column, "south", typed(wrong), value)


def shapes() -> Iterator[Trap]:
    files = {f"{site}.csv": csv(columns).encode() for site, columns in base().items()}
    west, rows = files["west.csv"], files["west.csv"].partition(b"\n")[2]
    header = b"age,bmi,sbp,sex\n"
    contents = [
        ("an empty file", b"", "west.csv is empty"),
        ("a header alone", header, "has a header but no rows"),
        ("a name twice", b"age,age,bmi,sbp,sex\n1,2,3,4,F\n", "two columns of this name"),
        ("the header again", west + west, "in any column"),
        ("no header", rows, "seems to hold values"),
        ("a line of units", header + b"years,kg/m2,mmHg,\n" + rows, "in any column"),
        ("blanks between columns", west.replace(b",", b"   "), "separated by blanks"),
    ]
    kinds = {
        "a workbook": b"PK\x03\x04", "an old workbook": b"\xd0\xcf\x11\xe0\xa1",
        "packed": gzip.compress(west), "Parquet": b"PAR1\x15", "a page": b"\n<html>",
        "SQLite": b"SQLite format 3\x00", "JSON": b'{"age": 5}', "JSON rows": b'[{"age": 5}]',
    }  # fmt: skip
    words = "is called CSV and seems to be"
    contents += [(f"{name} called CSV", content, words) for name, content in kinds.items()]
    for name, content, words in contents:
        yield Trap(name, files | {"west.csv": content}, "refused", "", words)
    values = numbers(base(), "age")
    one = files | {"west.csv": header + b"50,25,140,F\n"}
    yield Trap("one row", one, "read", "age", values=values)
    north = files["north.csv"]
    for name, content, words in [
        ("blank lines at the end", north + b"\n\n", ""),
        ("lines of Windows", north.replace(b"\n", b"\r\n"), ""),
        ("blanks around a name", north.replace(b"age,", b" age ,", 1), ""),
        ("a name in capitals", north.replace(b"age,", b"Age,", 1), "taken for 'age'"),
    ]:
        yield Trap(name, files | {"north.csv": content}, "read", "age", words, values)
    words = (
        "the columns 'Age', 'AGE' and 'age' are not joined, as a site has two of them; rename one"
    )
    both = files | {"north.csv": north.replace(b"age,bmi", b"Age,AGE", 1)}
    yield Trap("a name in two spellings", both, "warned", "AGE", words)
    yield from columns()
    yield from sheets()


def columns() -> Iterator[Trap]:
    pains = ["none", "mild", "severe"]
    pairs = np.random.default_rng(62).integers([100, 60], [180, 100], (N, 2)) // 5 * 5
    yield from [
        added("one text", "unit", lambda s, i: "mmHg", "left out", "the same text"),
        added("no value", "note", lambda s, i: "", "left out", "no value"),
        added("no value at a site", "dose", lambda s, i: "" if s == "west" else f"{i * 1.5}",
              "left out", "no value at west"),
        added("free text", "note", lambda s, i: f"seen by {s} {i // 2}", "left out",
              "more than 20"),
        added("none among texts", "pain", lambda s, i: pains[i % 3], "read",
              values=[pains[i % 3] for i in range(N)]),
        added("True and False", "smoker", lambda s, i: str(i % 3 == 0), "read",
              values=[float(i % 3 == 0) for i in range(N)]),
        added("hardly a value", "crp", lambda s, i: f"{i % 7 + i / 10}" if i % 20 == 3 else "",
              "warned", "has a value in 9 of 180 rows only"),
        added("two numbers in a cell", "bp", lambda s, i: f"{pairs[i, 0]}/{pairs[i, 1]}",
              "left out", "make two columns of them"),
        altered("one number at a site", "bmi", "west", lambda c, i: "25.0",
                "60 of 60 values are 25"),
        altered("words for numbers", "bmi", "west", lambda c, i: ("low", "high")[i % 2],
                "--exclude bmi or --set lenient=true", "refused"),
    ]  # fmt: skip
    cells = base()
    cells["west"]["sbp (mmHg)"] = cells["west"].pop("sbp")
    words = "--set 'sites.west.rename.\"sbp (mmHg)\"=sbp'"
    yield trap("a unit in a name", cells, "left out", "sbp", words)
    cells = base()
    cells["west"]["extra"] = [f"{i * 0.5}" for i in range(N)]
    yield trap("a column of one site", cells, "left out", "extra", "only west has it")
    cells = base()
    for name in ("age", "bmi", "sbp"):
        cells["west"][name][:7] = [""] * 7
    yield trap("rows half empty", cells, "warned", "", "7 of 60 rows lack more than half")
    cells, rng = base(88, n=200), np.random.default_rng(88)
    for each in cells.values():
        lower = 0.6 * np.array(each["sbp"], float) + rng.normal(0, 4, 200)
        each["dbp"] = [f"{x:.1f}" for x in lower]
    cells["west"]["dbp"].sort(key=float)
    yield trap("a column sorted alone", cells, "warned", "dbp", "sorted or moved alone")


def workbook(**sheets: pd.DataFrame) -> bytes:
    written = io.BytesIO()
    with pd.ExcelWriter(written) as book:
        for title, frame in sheets.items():
            frame.to_excel(book, sheet_name=title, index=False)
    return written.getvalue()


def sheets() -> Iterator[Trap]:
    def of_sheets(name: str, column: str, cells: Any, *expected: Any) -> Trap:
        """Sheets with a column of these cells."""
        files = {}
        for site, columns in base().items():
            frame = pd.DataFrame(columns).astype(dict.fromkeys(("age", "bmi", "sbp"), float))
            files[f"{site}.xlsx"] = workbook(Sheet1=frame.assign(**{column: cells}))
        return Trap(name, files, *expected)

    ages = numbers(base(), "age")
    days, areas = pd.date_range("2020-01-01", periods=N), [f"0{1000 + 13 * i}" for i in range(N)]
    doubled = [f"=A{i + 2}*2" for i in range(N)]
    sign = [-999.0 if i % 9 == 0 else 130 + i for i in range(N)]
    where, zeros = "cell E2 of sheet 'Sheet1'", "zeros in front"
    yield from [
        of_sheets("a sheet", "age", ages, "read", "age", "", ages),
        of_sheets("dates of a sheet", "admitted", days, "left out", "admitted", "dates"),
        of_sheets("numbers of a sheet as text", "area", areas, "left out", "area", zeros),
        of_sheets("formulas without values", "twice", doubled, "refused", "", where),
        of_sheets("a sentinel of a sheet", "sbp", sign, "warned", "sbp", "-999"),
    ]
    table = pd.DataFrame({"age": [31.0, 47.5], "bmi": [22.5, 30.1]})
    both = {"north.xlsx": workbook(May=table, June=table)}
    yield Trap("a table on each of two sheets", both, "refused", "", "on each of the sheets 'May'")


def traps() -> list[Trap]:
    """All traps."""
    makers = (
        sentinels, units, compared, no_features, spellings, keys, dates, writings, typings, shapes,
    )  # fmt: skip
    return [each for make in makers for each in make()]


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
    split: dict[str, papers.SplitRows] = {
        "sixteen clusters": papers.plane16(),
        "another k everywhere": papers.variable_k(),
        "two clouds in 2": papers.g2(2, 30, per_cluster=200),
        "two clouds in 32": papers.g2(32, 50, per_cluster=200),
        "Triebe": papers.triebe()[0],
        "pentagon": papers.pentagon(),
        **{f"FFCM {case}": papers.ffcm_case(case) for case in papers.FFCM_CASES},
    }
    sets = {
        name: {
            site: pd.DataFrame(X).rename(columns="x{}".format)
            for site, (X, _) in rows.sites.items()
        }
        for name, rows in split.items()
    }
    if BANK.exists():
        few = pd.read_parquet(BANK).sample(6000, random_state=0)
        few = few.drop(columns=["y"], errors="ignore")
        sets["bank by job"] = {
            str(job): part.drop(columns="job") for job, part in few.groupby("job")
        }
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

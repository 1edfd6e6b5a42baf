"""The log of what left a site: what is done to its lines is seen, and named by file and line."""

import json
import multiprocessing
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcluster.core.files import write_durably
from fedcluster.errors import InputError
from fedcluster_app.trust import audit_log
from fedcluster_app.trust.audit_log import AuditLog, Head, parts_of, read_log, verify


def saying(**content: object) -> Callable[[Head], dict]:
    """An entry of the log."""
    return lambda head: content


def written(path: Path, n: int = 6, largest: int = 1 << 20) -> AuditLog:
    """A log with a first line and n more."""
    log = AuditLog(path, "north", largest)
    for i in range(n):
        log.append(saying(round=i, question=f"{i}"))
    return log


def filled(path: Path, n: int, largest: int = 500) -> AuditLog:
    """A log of full files: what is told of a permit, and n lines of which each fills one."""
    log = AuditLog(path, "north", largest)
    log.append(saying(permits={"a": {"used": n}}))
    for _ in range(n):
        log.append(saying(filler="x" * 200))
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def again(lines: list[bytes]) -> list[bytes]:
    """The chain that somebody makes who knows how: own hash and previous of every line."""
    made, previous = list[bytes](), ""
    for number, raw in enumerate(lines, 1):
        made.append(rehashed(raw, line=number, previous=previous))
        previous = json.loads(made[-1])["hash"]
    return made


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def put(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines))


def test_the_chain_by_hand(path: Path) -> None:
    """A line's hash is that of all that stands before it; the next line names it."""
    written(path, 2)
    lines = [re.findall(rb'(.*),"hash":"([0-9a-f]{64})"}\n', line)[0] for line in lines_of(path)]
    assert [sha256(content).hexdigest().encode() for content, _ in lines] == [h for _, h in lines]
    parsed = [json.loads(line) for line in lines_of(path)]
    hashes = [line["hash"] for line in parsed]
    assert [line["previous"] for line in parsed] == ["", *hashes[:-1]]
    assert (parsed[0]["line"], parsed[0]["site"]) == (1, "north")
    end = json.loads(path.with_suffix(".head").read_text())
    assert end == {"part": 1, "line": 3, "hash": hashes[-1]}
    assert [line.get("round") for line in read_log(path)] == [None, 0, 1]
    head, known = verify(path)
    assert (head.line, head.part, head.site, known) == (3, 1, "north", None)
    assert [verify(path, each)[1] for each in (*hashes, "0" * 64)] == [1, 2, 3, None]


def test_a_hash_that_left_confirms_no_guess_of_its_line(path: Path) -> None:
    """A coordinator that knows all of a line but a small number tries each, with every hash."""
    log = written(path, 20, largest=2000)  # lines of a beginning are hashed, too
    told = {json.loads(line)["hash"] for part in (*parts_of(path), path) for line in lines_of(part)}
    salts = set()
    for part in (*parts_of(path), path):
        for raw in lines_of(part):
            known = json.loads(raw)
            salts.add(known.pop("salt"))
            del known["hash"]
            body = json.dumps(known, separators=(",", ":"))[:-1].encode()
            assert sha256(body).hexdigest() not in told
    assert len(parts_of(path)) > 1
    assert len(salts) == len(told) == log.append(saying()).line - 1
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in salts)  # 128 bits


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "changed": (lambda x: [*x[:3], forged(x[3]), *x[4:]], r"audit.jsonl, line 4: was changed"),
    "changed with a hash made again": (
        lambda x: [*x[:3], rehashed(x[3], round=9), *x[4:]],
        r"line 5: does not follow from the line before",
    ),
    "removed": (lambda x: [*x[:3], *x[4:]], "line 4: does not follow"),
    "removed at the start": (lambda x: x[1:], "line 1: does not follow"),
    "swapped": (lambda x: [*x[:2], x[3], x[2], *x[4:]], "line 3: does not follow"),
    "put in": (lambda x: [*x[:3], x[2], *x[3:]], "line 4: does not follow"),
    "cut off": (lambda x: x[:-2], "lines were cut off: it ends with line 5 .* tells of line 7"),
    "all cut off": (lambda x: [], "is gone, and audit.head tells of it"),
    "cut off and written anew": (
        lambda x: [*x[:-2], *again([*x[:-2], *x[:2]])[-2:]],
        "line 7 of the log differs from what audit.head tells of",
    ),
    "half a line": (lambda x: [*x, x[-1][:-9]], "line 8: is half a line, left by a crash"),
    "without its last sign": (lambda x: [*x[:-1], x[-1][:-1]], "cut off: it ends with line 6"),
    "an empty line": (lambda x: [*x[:3], b"\n", *x[3:]], "line 4: was changed"),
    "no JSON": (lambda x: [*x, chained(b"{]")], "line 8: is not a line of such a log"),
    "a list": (lambda x: [*x, chained(b"[[1]")], "line 8: (is not a line|was changed)"),
    "a line without its number": (lambda x: [*x, chained(b'{"time":"9"')], "line 8: is not a line"),
}


def forged(line: bytes) -> bytes:
    return line.replace(b'"round":2', b'"round":9')


def rehashed(raw: bytes, **changes: object) -> bytes:
    line = json.loads(raw) | changes
    del line["hash"]
    return chained(json.dumps(line, separators=(",", ":"))[:-1].encode())


def chained(body: bytes) -> bytes:
    return body + b',"hash":"' + sha256(body).hexdigest().encode() + b'"}\n'


@pytest.mark.parametrize(("change", "reason"), TAMPERED.values(), ids=TAMPERED)
def test_what_was_done_to_a_log_is_named_and_nothing_is_added_to_it(change, reason, path):
    """The site does not start, and so nothing leaves; half a line that was whole is one cut off."""
    written(path)
    put(path, change(lines_of(path)))
    with pytest.raises(InputError, match=reason):
        verify(path)
    before = path.read_bytes()
    for _ in range(2 * ("half a line" not in reason)):  # which is set aside
        with pytest.raises(InputError):
            AuditLog(path, "north").append(saying())
        assert path.read_bytes().startswith(before[:-300])


@given(place=st.integers(0), bit=st.integers(0, 7))
def test_any_bit_that_is_turned_is_seen(place, bit, tmp_path):
    folder = tmp_path / f"{place}-{bit}"[:50]
    folder.mkdir(exist_ok=True)
    path = folder / "audit.jsonl"
    if not path.exists():
        written(path, 3, 500)
    file = [*parts_of(path), path][place % (1 + len(parts_of(path)))]
    content = file.read_bytes()
    turned = bytearray(content)
    turned[place % len(content)] ^= 1 << bit
    file.write_bytes(turned)
    with pytest.raises(InputError, match="audit"):
        verify(path)
    file.write_bytes(content)
    verify(path)


def test_a_chain_made_anew_with_its_head_is_seen_by_who_kept_a_hash_only(path: Path) -> None:
    """What a chain cannot show, and what a copy of a head shows."""
    written(path)
    kept = verify(path)[0].hash
    put(path, again([*map(forged, lines_of(path))]))
    end = {key: json.loads(lines_of(path)[-1])[key] for key in ("line", "hash")}
    path.with_suffix(".head").write_text(json.dumps({"part": 1, **end}))
    head, known = verify(path, kept)
    assert head.line == 7  # all is in order,
    assert known is None  # but it is not the log that was known


def test_a_log_or_a_head_that_is_gone_or_damaged_is_named(path: Path) -> None:
    written(path)
    head = path.with_suffix(".head")
    whole = path.read_bytes()
    for file, reason in (
        (path, r"audit.jsonl is gone, and audit.head tells of it"),
        (head, r"audit.head is gone: nothing tells whether lines"),
    ):
        path.write_bytes(whole)
        file.unlink()
        for use in (verify, lambda path: AuditLog(path, "north").append(saying())):
            with pytest.raises(InputError, match=reason):
                use(path)
    for content in ("", "[]", '{"line": "x", "hash": 1}'):
        head.write_text(content)
        with pytest.raises(InputError, match=r"audit.head is damaged"):
            verify(path)


@pytest.mark.parametrize("parts", [2, 0])
@pytest.mark.parametrize(
    "done", ["gone", "gone with its head", "another", "another that is longer", "an older copy"]
)
def test_a_log_that_goes_or_changes_under_a_program_is_not_continued(done, parts, path) -> None:
    """Not even where head and chain are in order: the program remembers what it wrote."""
    head = path.with_suffix(".head")
    log = filled(path, 6, 1200) if parts else written(path)
    assert len(parts_of(path)) == parts
    log.append(saying())
    older = {each: each.read_bytes() for each in (path, head)}
    log.append(saying())
    path.unlink()
    if done != "gone":
        head.unlink()
    if done.startswith("another"):
        for each in parts_of(path):
            each.unlink()
        written(path, 20 if "longer" in done else 1)
    if done == "an older copy":
        for each, content in older.items():
            each.write_bytes(content)
    left = {each: each.read_bytes() for each in path.parent.iterdir() if each.suffix != ".lock"}
    for _ in range(2):
        with pytest.raises(InputError, match=r"gone|cut off|not the log that was written"):
            log.append(saying())
    now = {each: each.read_bytes() for each in path.parent.iterdir() if each.suffix != ".lock"}
    assert now == left


def test_a_last_line_that_is_made_anew_in_its_place_is_not_continued(path: Path) -> None:
    log = written(path)
    *before, last = lines_of(path)
    head = path.with_suffix(".head").read_bytes()
    put(path, [*before, rehashed(last, question="x")])
    with pytest.raises(InputError, match="not the log that was written here"):
        log.append(saying())
    assert lines_of(path)[:-1] == before
    assert path.with_suffix(".head").read_bytes() == head


def test_a_full_file_is_renamed_and_the_next_one_goes_on_with_the_chain(path: Path) -> None:
    for n in (3, 4):
        filled(path, n)  # as of two programs, one after the other
    parts = parts_of(path)
    assert len(parts) > 3
    assert max(each.stat().st_size for each in parts) < 500 + 400
    head, _ = verify(path)
    assert (head.part, head.permits) == (len(parts) + 1, {"a": {"used": 4}})
    assert sum("filler" in line for line in read_log(path)) == 7
    assert AuditLog(path, "north").append(saying()).permits == {"a": {"used": 4}}
    shutil.copy(parts[1], parts[2])
    with pytest.raises(InputError, match=r"audit-0003.jsonl, line 1: .* files before it were"):
        verify(path)


def test_the_oldest_files_are_removed_and_the_next_one_says_so(path, monkeypatch):
    """A chain without them is whole; one from which more was removed is not."""
    monkeypatch.setattr(AuditLog, "kept", 2)
    filled(path, 4)
    last = filled(path, 3).append(saying())
    head, known = verify(path, last.hash)
    older = parts_of(path)
    assert (known, len(older), head.oldest) == (last.line, 2, head.part - 2)
    assert older[0].name == f"audit-{head.oldest:04}.jsonl"
    assert head.permits == {"a": {"used": 3}}
    older[0].unlink()
    with pytest.raises(InputError, match=f"{older[1].name}, line 1: files before it were removed"):
        verify(path)


@pytest.mark.parametrize("lost", [0, 1, -2])
def test_a_file_that_is_missing_is_named_by_the_next_one(lost, path):
    filled(path, 6)
    parts = [*parts_of(path), path]
    parts[lost].unlink()
    with pytest.raises(InputError, match=f"{parts[lost + 1].name}, line 1"):
        verify(path)


def test_a_crash_while_a_file_is_renamed_loses_nothing(path: Path) -> None:
    written(path)
    end = path.with_suffix(".head").read_text()
    path.rename(path.with_name("audit-0001.jsonl"))
    head = AuditLog(path, "north").append(saying())
    assert (head.line, head.part) == (9, 2)
    verify(path)
    put(path, [lines_of(path)[0][:40]])  # the first line of the next file, half written
    path.with_suffix(".head").write_text(end)
    assert AuditLog(path, "north").append(saying()).part == 2
    verify(path)


def test_cutting_the_newest_file_after_a_renaming_is_seen(path: Path) -> None:
    filled(path, 3)
    path.unlink()
    with pytest.raises(InputError, match="lines were cut off"):
        AuditLog(path, "north").append(saying())


@pytest.mark.parametrize("kept", [1, 30, -2])
def test_half_a_line_of_a_crash_is_set_aside_and_recorded(kept, path):
    written(path)
    whole, half = path.read_bytes(), b'{"line":8,"previous":"0","time":"2026'[:kept]
    path.write_bytes(whole + half)
    AuditLog(path, "north").append(saying(round=99))
    *_, repaired, last = read_log(path)
    assert (repaired["event"], repaired["bytes"], last["round"]) == ("repaired", len(half), 99)
    assert repaired["sha256"] == sha256(half).hexdigest()
    assert path.with_suffix(".torn").read_bytes() == half + b"\n"
    assert path.read_bytes().startswith(whole)
    verify(path)


def test_half_a_first_line_is_set_aside(path: Path) -> None:
    path.write_bytes(b'{"line":1')
    AuditLog(path, "north").append(saying())
    assert [line.get("event") for line in read_log(path)] == ["begun", "repaired", None]
    verify(path)


def test_a_line_that_no_head_tells_of_yet_is_kept(path: Path) -> None:
    """A crash between a line and its head."""
    log = written(path)
    head = path.with_suffix(".head").read_bytes()
    log.append(saying(round=6))
    path.with_suffix(".head").write_bytes(head)
    assert verify(path)[0].line == 8
    assert AuditLog(path, "north").append(lambda _: {}).line == 9


def test_a_disk_that_fills_in_the_middle_of_a_line_breaks_nothing(path, monkeypatch):
    log = written(path)
    real = write_durably

    def full(path: Path, content: bytes) -> None:
        real(path, content[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_log, "write_durably", full)
    for _ in range(2):
        with pytest.raises(InputError, match="No space left"):
            log.append(saying(round=6))
    monkeypatch.setattr(audit_log, "write_durably", real)
    log.append(saying(round=8))
    assert [line.get("round") for line in read_log(path)][-2:] == [None, 8]
    verify(path)


def append_many(path: Path, name: str) -> None:
    log = AuditLog(path, "north", 2_000)
    for i in range(15):
        log.append(saying(by=name, i=i, permits={name: {"used": i + 1}}))


def test_two_processes_write_one_chain(path: Path) -> None:
    """Files are renamed under both of them."""
    pytest.importorskip("fcntl")
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=append_many, args=(path, name)) for name in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    head, _ = verify(path)
    assert head.permits == {"a": {"used": 15}, "b": {"used": 15}}
    for name in "ab":
        assert [line["i"] for line in read_log(path) if line.get("by") == name] == [*range(15)]
    assert len(parts_of(path)) > 2


def test_a_copy_can_be_verified_where_nothing_can_be_written(path: Path) -> None:
    written(path)
    path.with_suffix(".lock").unlink()
    path.parent.chmod(0o500)
    try:
        assert verify(path)[0].line == 7
    finally:
        path.parent.chmod(0o700)


def test_the_latest_time_does_not_go_back(path, monkeypatch):
    log = written(path, 0)
    late = log.append(saying(time="2099-01-01T00:00:00.000+00:00"))
    assert log.append(saying()).latest == late.latest == "2099-01-01T00:00:00.000+00:00"
    assert AuditLog(path, "north").append(saying()).latest == late.latest

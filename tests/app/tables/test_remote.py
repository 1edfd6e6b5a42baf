"""Files elsewhere: fetched once, named as they are there, and nothing secret is shown."""

import gzip
import io
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typed import run

from fedcluster.errors import InputError
from fedcluster.frames.rows import FileSource
from fedcluster_app.cli._reading import named_sources, read_sites
from fedcluster_app.tables.remote import fetched

ROWS = "key;age\nk1;1,5\nk2;2,5\nk3;90,25\nk4;91,5\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    """The address of a server on the loopback interface, and what it was asked."""
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = "north" in self.path
            body = ROWS.encode()
            body = gzip.compress(body) if ".gz" in self.path else body
            self.send_response(200 if found else 403)
            self.end_headers()
            self.wfile.write(body if found else b"")

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}", asked
        httpd.shutdown()
        thread.join()


def test_a_file_of_a_web_server_is_fetched_once_and_named_after_its_path(server):
    address, asked = server
    given = [f"{address}/d/north.csv?token=s3cr3t", f"south={address}/north.csv.gz"]
    how = "fit -k 2 --append --id-column key --out out --set sites.north.decimal=,"
    ran = run(how, *given)
    assert ran.exit_code == 0, ran.stderr
    assert sorted(path.name for path in Path("out/labels").iterdir()) == ["north.csv", "south.csv"]
    assert asked == ["/d/north.csv?token=s3cr3t", "/north.csv.gz"]
    assert "s3cr3t" not in ran.stdout + ran.stderr + Path("out/history.json").read_text()
    assert "s3cr3t" not in Path("out/study.toml").read_text()


def test_an_address_of_a_store_is_read_by_arrow(tmp_path):
    Path("a b.csv").write_text("x\n1\n2\n")
    [(site, source)] = named_sources([f"it=file://{tmp_path}/a b.csv".replace(" ", "%20")]).items()
    assert site == "it"
    assert isinstance(source, FileSource)
    assert source.path.name == "a b.csv"
    assert read_sites({site: source})["it"].data.X.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/other.csv?sig=s3cr3t", "/other.csv cannot be fetched: the server answers 403; check"),
        ("/?sig=s3cr3t", "/ names no file"),
    ],
)
def test_what_cannot_be_fetched_is_one_line_without_secrets(server, path, line):
    address, _ = server
    with pytest.raises(InputError) as said:
        named_sources([f"{address}{path}"])
    assert line in str(said.value)
    assert "s3cr3t" not in str(said.value)


def test_nobody_there_is_one_line():
    with pytest.raises(
        InputError, match=r"http://127\.0\.0\.1/a\.csv cannot be fetched: \w+Error; "
    ):
        fetched("http://me:s3cr3t@127.0.0.1:1/a.csv?sig=s3cr3t")
    with pytest.raises(InputError, match=r"^decimal of a file is a key"):
        named_sources(["https://me:s3cr3t@x/a.csv:decimal=;"])


def test_other_stores_are_read_by_fsspec(monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    def opened(self, path, mode="rb", **options):
        if "secret" in path:
            raise LookupError("of a library of its own, s3cr3t")
        return io.BytesIO(ROWS.encode())

    shelf = type("Shelf", (fsspec.AbstractFileSystem,), {"protocol": "sftp", "_open": opened})
    fsspec.register_implementation("sftp", shelf, clobber=True)
    given = ["sftp://me@x.example/d/north.csv"]
    [(site, source)] = named_sources(given).items()
    assert isinstance(source, FileSource)
    assert (site, source.path.name, source.path.read_text()) == ("north", "north.csv", ROWS)
    with pytest.raises(InputError, match=r"^sftp://x.example/secret.csv .* fetched: LookupError;"):
        fetched("sftp://me:s3cr3t@x.example/secret.csv")

    def lacking(address, mode):
        raise ImportError("SFTPFileSystem requires 'paramiko' to be installed\nand more")

    monkeypatch.setattr(fsspec, "open", lacking)
    with pytest.raises(InputError, match=r"/b.csv cannot be fetched: SFTP.* 'paramiko' to be ins"):
        fetched("sftp://x.example/b.csv")


def test_without_fsspec_one_line_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError) as said:
        fetched("sftp://me:s3cr3t@x.example/a.csv?b=s3cr3t")
    needed = 'that needs pip install "fedcluster[fsspec]"'
    assert str(said.value) == f"sftp://x.example/a.csv cannot be fetched: {needed}"


def test_copies_go_when_the_process_ends(tmp_path):
    Path("a.csv").write_text("x\n1\n")
    code = f"from fedcluster_app.tables.remote import fetched; print(fetched('file://{tmp_path}/a.csv'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    copy = Path(ran.stdout.strip())
    assert copy.name == "a.csv"
    assert not copy.exists()
    assert not copy.parent.parent.exists()

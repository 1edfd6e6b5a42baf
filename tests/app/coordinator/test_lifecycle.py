"""A federation that changes: sites, keys and certificates in its folder, without a network."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import ssl
import stat
import threading
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typed
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from fedcluster.errors import InputError
from fedcluster_app.coordinator import lifecycle
from fedcluster_app.coordinator import lifecycle as expiry
from fedcluster_app.coordinator.certificates import (
    Authority,
    accepted_keys,
    former_keys,
    key_digest,
    read_public_key,
    site_key,
)
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.lifecycle import RevokedSites
from fedcluster_app.coordinator.operators import operators_log
from fedcluster_app.trust import owned_files as commits
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.trust.owned_files import is_running, running
from fedcluster_app.trust.permits import public_text
from fedcluster_app.wire.exchange import Reply, RetryingTransport

HOST = "cluster.example.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create(tmp_path / "trial", ["north", "south"], f"{HOST}:8443")
    return tmp_path / "trial"


def invoke(name: str, folder: Path, *arguments: object) -> tuple[int, str]:
    return typed.invoke("federation", name, folder, *arguments)


def content(folder: Path) -> dict[str, bytes]:
    """All files but locks, and what a command that was killed had not decided."""
    aside = {commits.LOCK, commits.DRAFT}
    files = [path for path in folder.rglob("*") if path.is_file() and not {*path.parts} & aside]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def keys(folder: Path) -> dict[str, list[str]]:
    accepted = accepted_keys(folder, Federation.load(folder).sites)
    return {site: [key_digest(key) for key in own] for site, own in accepted.items()}


def digest_at_site(folder: Path, site: str) -> str:
    key = load_ssh_private_key((folder / "sites" / site / "state/key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key_digest(key.public_key())


def made_at_site(folder: Path) -> tuple[Path, str]:
    """A public key that a site has made itself, and its digest."""
    path = folder / "key.pub"
    path.write_bytes(site_key()[1])
    return path, key_digest(read_public_key(path))


def test_a_site_is_added_with_a_folder_like_those_of_the_others(folder: Path) -> None:
    before = content(folder)
    federation = lifecycle.add_sites(folder, ["west", "east"])
    assert federation == Federation.load(folder)
    assert federation.sites == ("east", "north", "south", "west")
    after = content(folder)
    names = {name.replace("sites/north", "sites/west") for name in before if "sites/north" in name}
    assert names <= after.keys()
    assert after["sites/west/state/ca.crt"] == before["certificates/ca.crt"]
    assert after["sites/west/state/coordinator.pub"] == before["sites/north/state/coordinator.pub"]
    assert 'name = "west"' in after["sites/west/site.toml"].decode()
    assert keys(folder)["west"] == [digest_at_site(folder, "west")]
    unchanged = before.keys() - {"federation.toml"}
    assert all(before[name] == after[name] for name in unchanged)


def test_a_site_that_made_its_own_key_gets_none(folder: Path, tmp_path: Path) -> None:
    """A permit key that is elsewhere does not hinder: its public part stays."""
    granter = (folder / "sites/north/state/coordinator.pub").read_bytes()
    (folder / "certificates/permit.key").unlink()
    path, digest = made_at_site(tmp_path)
    lifecycle.add_sites(folder, ["west"], path)
    assert not (folder / "sites/west/state/key").exists()
    assert keys(folder)["west"] == [digest]
    assert (folder / "sites/west/state/coordinator.pub").read_bytes() == granter


def test_a_removed_site_has_no_key_any_more(folder: Path) -> None:
    """Its folder may be in use, as in a trial on one machine, with rows and logs."""
    with (folder / "federation.toml").open("a") as file:
        file.write("\n[rows]\nnorth = 5000\nsouth = 10\n")
    [gone] = keys(folder)["south"]
    federation = lifecycle.remove_site(folder, "south")
    assert (federation.sites, federation.rows) == (("north",), {"north": 5000})
    assert federation == Federation.load(folder)
    left = {name for name in content(folder) if "south" in name}
    assert {str(Path(name).parent) for name in left} == {"sites/south", "sites/south/state"}
    assert former_keys(folder)[gone].why == "removed"
    with pytest.raises(InputError, match="north is the only site"):
        lifecycle.remove_site(folder, "north")
    with pytest.raises(InputError, match="has no site 'south'; it has north"):
        lifecycle.remove_site(folder, "south")


def test_each_change_is_logged_with_who_made_it(folder: Path) -> None:
    [first] = keys(folder)["north"]
    lifecycle.add_sites(folder, ["west"])
    lifecycle.rotate_key(folder, "north")
    new = digest_at_site(folder, "north")
    lifecycle.promote(folder, ["north"])
    lifecycle.revoke(folder, "north")
    lifecycle.remove_site(folder, "west")
    lifecycle.renew(folder)
    lifecycle.renew(folder, new_authority=True)
    _, *lines = read_log(operators_log(folder).path)
    told = [(line["event"], line.get("member"), line.get("keys")) for line in lines]
    assert [event for event, _, _ in told] == [
        "site added", "key rotated", "new key used", "key revoked", "site removed",
        "certificate renewed", "certificate renewed",
    ]  # fmt: skip
    assert told[1:4] == [
        ("key rotated", "north", [first, new]),
        ("new key used", "north", [new]),
        ("key revoked", "north", []),
    ]
    assert {line["by"] for line in lines} == {os.environ.get("SUDO_USER") or getpass.getuser()}


def test_both_keys_count_until_the_new_one_is_used(folder: Path, tmp_path: Path) -> None:
    """A new one that nobody used is replaced by the next."""
    [old] = keys(folder)["north"]
    assert lifecycle.rotate_key(folder, "north") == folder / "sites/north/state/key"
    unused = digest_at_site(folder, "north")
    assert keys(folder)["north"] == [old, unused]
    path, new = made_at_site(tmp_path)
    assert lifecycle.rotate_key(folder, "north", path) is None
    assert keys(folder)["north"] == [old, new]
    assert former_keys(folder)[unused].why == "replaced"
    lifecycle.promote(folder, ["north"])
    assert keys(folder)["north"] == [new]
    assert former_keys(folder)[old].why == "replaced"
    before = content(folder)
    lifecycle.promote(folder, ["north"])
    assert content(folder) == before


def test_a_revoked_site_stays_and_is_let_in_by_a_new_key_only(folder: Path) -> None:
    """What counts is that a key was revoked, not that its file is gone."""
    public = (folder / "keys/north.pub").read_bytes()
    old = folder / "old.pub"
    old.write_bytes(public)
    lifecycle.rotate_key(folder, "north")
    both = keys(folder)["north"]
    lifecycle.revoke(folder, "north")
    assert Federation.load(folder).sites == ("north", "south")
    assert keys(folder)["north"] == []
    assert {former_keys(folder)[digest].why for digest in both} == {"revoked"}
    lifecycle.revoke(folder, "north")  # again is the same
    (folder / "keys/north.pub").write_bytes(public)  # somebody puts it back
    assert keys(folder)["north"] == []
    with pytest.raises(InputError, match="this key of north was revoked on 20"):
        lifecycle.rotate_key(folder, "north", old)
    with pytest.raises(InputError, match="this key of north was revoked on 20"):
        lifecycle.add_sites(folder, ["west"], old)
    lifecycle.rotate_key(folder, "north")
    assert keys(folder)["north"] == [digest_at_site(folder, "north")]


REFUSED = {
    "add-site {} north": "sites names 'north' twice",
    "add-site {} NORTH": "differ in capital letters only",
    "add-site {} ../west": "site name '../west': use letters",
    "add-site {} 'we\nst'": "site name 'we\\nst': use letters",
    "add-site {} a b --public-key {}/keys/north.pub": "name one",
    "add-site {} a --public-key {}/keys/north.pub": "is the key of site north",
    "add-site {} a --public-key {}/none": "none cannot be read: No such file",
    "add-site {} a --public-key {}/certificates/permit.pub": "permit.pub is no public key of a "
    "site: fedcluster site key --new makes one",
    "rotate-key {} west": "has no site 'west'; it has north and south",
    "rotate-key {} ../north --revoke": "has no site '../north'; it has north and south",
    "rotate-key {} north --revoke --public-key {}/keys/north.pub": "gives no new key",
    "remove-site {} west": "has no site 'west'",
    "certificate {} --authority-key {}/none": "none, the key of the auth",
    "certificate {} --authority-key {}/certificates/server.key": "are no authority: the key is "
    "not that of the authority",
    "certificate {} --authority-key {}/federation.toml": "are no authority:",
    "certificate {} --new-authority --authority-key {}/README.md": "README.md exists",
    "certificate {} {}/federation.toml": "federation.toml holds no certificate",
    "certificate {} {}/federation.toml --new-key": "is signed by another authority",
    "certificate {} --ca {}/federation.toml": "name its file, too",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_means_nothing_is_refused_and_changes_nothing(line, folder):
    before = content(folder)
    status, said = typed.invoke("federation " + line.replace("{}", str(folder)))
    assert (status, REFUSED[line] in said) == (2, True), said
    assert said.count("\n") == 1
    assert content(folder) == before


class Killed(BaseException):
    """The machine loses its power."""


def is_added(folder: Path) -> None:
    assert keys(folder)["west"] == [digest_at_site(folder, "west")]
    assert (folder / "sites/west/site.toml").exists()


def is_removed(folder: Path) -> None:
    assert Federation.load(folder).sites == ("north",)
    assert "south" not in keys(folder)


def is_rotated(folder: Path) -> None:
    assert keys(folder)["north"][1] == digest_at_site(folder, "north")


def is_revoked(folder: Path) -> None:
    assert keys(folder)["north"] == []


def is_renewed(folder: Path) -> None:
    key = lifecycle.server_key(Federation.load(folder))
    assert expiry.certificates(folder / expiry.CERTIFICATE)[0].public_key() == key.public_key()


CHANGES = {
    "add": (lambda folder: lifecycle.add_sites(folder, ["west"]), is_added),
    "remove": (lambda folder: lifecycle.remove_site(folder, "south"), is_removed),
    "rotate": (lambda folder: lifecycle.rotate_key(folder, "north"), is_rotated),
    "revoke": (lambda folder: lifecycle.revoke(folder, "north"), is_revoked),
    "renew": (lambda folder: lifecycle.renew(folder, new_authority=True), is_renewed),
}


@pytest.mark.parametrize(("change", "is_done"), CHANGES.values(), ids=CHANGES)
def test_a_command_that_is_killed_has_done_all_or_nothing(change, is_done, folder, monkeypatch):
    """Killed at each step of its writing in turn; whoever opens the folder next finishes it."""
    before, outcomes = content(folder), set()
    for step in range(100):
        with monkeypatch.context() as patch:
            left = kill_at(step, patch)
            try:
                change(folder)
            except Killed:
                pass
            else:
                break
        assert left == [0]
        Federation.load(folder)
        after = content(folder)
        outcomes.add("nothing" if after == before else "all")
        if after != before:
            assert not (folder / commits.DECIDED).exists()
            is_done(folder)
            restore(folder, before)
    else:
        pytest.fail("it never ends")
    assert outcomes == {"nothing", "all"}


def kill_at(step: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Let the step-th change of a file be the last thing that happens."""
    left = [step + 1]

    def counted(call):
        def counting(*arguments, **options):
            left[0] = max(0, left[0] - 1)
            if not left[0]:
                raise Killed
            return call(*arguments, **options)

        return counting

    for place, names in {
        os: ["fsync"],
        shutil: ["rmtree"],
        Path: ["rename", "replace", "unlink"],
    }.items():
        for name in names:
            patch.setattr(place, name, counted(getattr(place, name)))
    return left


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for name in content(folder).keys() - files.keys():
        (folder / name).unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
        (folder / name).chmod(0o600)


def test_two_commands_at_once_both_count(folder: Path) -> None:
    names = [f"site{i}" for i in range(8)]
    commands = [threading.Thread(target=lifecycle.add_sites, args=(folder, [n])) for n in names]
    for command in commands:
        command.start()
    for command in commands:
        command.join()
    assert Federation.load(folder).sites == tuple(sorted(["north", "south", *names]))
    assert all(keys(folder)[n] == [digest_at_site(folder, n)] for n in names)


def test_what_is_new_is_for_its_owner_only(folder: Path) -> None:
    before = os.umask(0)
    create(folder / "inner", ["a"], f"{HOST}:8443")
    lifecycle.add_sites(folder, ["west"])
    lifecycle.rotate_key(folder, "north")
    lifecycle.renew(folder, new_key=True)
    assert os.umask(before) == 0
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_link_in_the_place_of_a_key_is_removed_and_not_followed(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (folder / "sites/south/state/key").rename(elsewhere)
    (folder / "sites/south/state/key").symlink_to(elsewhere)
    lifecycle.rotate_key(folder, "south")
    assert not (folder / "sites/south/state/key").is_symlink()
    assert key_digest(read_public_key(folder / "keys/south.pub")) not in elsewhere.read_text()
    lifecycle.remove_site(folder, "south")
    assert elsewhere.exists()


def test_a_site_that_is_added_again_keeps_what_it_wrote(folder: Path) -> None:
    (folder / "sites/south/site.toml").write_text("mine")
    old = digest_at_site(folder, "south")
    lifecycle.remove_site(folder, "south")
    lifecycle.add_sites(folder, ["south"])
    assert (folder / "sites/south/site.toml").read_text() == "mine"
    assert keys(folder)["south"] == [digest_at_site(folder, "south")] != [old]


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / commits.LOCK).mkdir()
    with pytest.raises(InputError, match=r"\.lock cannot be written: Is a directory"):
        lifecycle.add_sites(folder, ["west"])
    (folder / ".running").mkdir()
    with pytest.raises(InputError, match=r"\.running cannot be written"), running(folder):
        pass


def test_a_damaged_list_of_former_keys_lets_nobody_in(folder: Path) -> None:
    """Not those either that were revoked."""
    lifecycle.revoke(folder, "north")
    (folder / "keys/former.json").write_text("{")
    with pytest.raises(InputError, match=r"former.json is damaged"):
        keys(folder)


def test_two_coordinators_on_one_folder(folder: Path) -> None:
    assert not is_running(folder)
    with running(folder):
        assert is_running(folder)
        said = f"process {os.getpid()}; end it first"
        with pytest.raises(InputError, match=said), running(folder):
            pass
    assert not is_running(folder)


def test_a_renewed_certificate_is_vouched_for_by_the_same_authority(folder: Path) -> None:
    """Sites need nothing new."""
    before = content(folder)
    end = lifecycle.renew(folder, days=30)
    assert timedelta(days=29) < end - datetime.now(UTC) < timedelta(days=31)
    after = content(folder)
    new = {name for name in after if after[name] != before.get(name)}
    assert {name for name in new if not name.startswith("audit.")} == {expiry.CERTIFICATE}
    own, *_ = expiry.certificates(folder / expiry.CERTIFICATE)
    own.verify_directly_issued_by(*expiry.certificates(folder / expiry.AUTHORITY))
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert HOST in names.get_values_for_type(x509.DNSName)


def test_the_authority_s_key_may_be_elsewhere(tmp_path: Path) -> None:
    path, folder = tmp_path / "stick.key", tmp_path / "trial"
    create(folder, ["north"], f"{HOST}:8443", authority_key=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not (folder / expiry.AUTHORITY_KEY).exists()
    with pytest.raises(InputError, match="name it by --authority-key"):
        lifecycle.renew(folder)
    assert lifecycle.renew(folder, authority_key=path) > datetime.now(UTC)
    path.chmod(0o644)
    with pytest.raises(InputError, match="other users of this machine may read"):
        lifecycle.renew(folder, authority_key=path)


def test_after_a_theft_neither_the_old_authority_nor_the_old_key_stays(folder: Path) -> None:
    federation = Federation.load(folder)
    before = lifecycle.server_key(federation).public_key()
    [old] = expiry.certificates(folder / expiry.AUTHORITY)
    status, said = invoke("certificate", folder, "--new-authority")
    assert (status, "Grant permits anew" in said) == (0, True), said
    [now] = expiry.certificates(folder / expiry.AUTHORITY)
    assert now != old
    assert expiry.certificates(folder / "sites/north/state/ca.crt") == [now]
    chain = expiry.certificates(folder / expiry.CERTIFICATE)
    chain[0].verify_directly_issued_by(now)
    assert chain[0].public_key() == lifecycle.server_key(federation).public_key() != before
    assert Authority.read(
        (folder / expiry.AUTHORITY_KEY).read_bytes(), now.public_bytes(Encoding.PEM)
    )


@pytest.mark.parametrize(
    ("days", "said"),
    [(61, ""), (59, "expires on .*, in 5[89] days: fedcluster federation certificate")],
)
def test_a_certificate_s_end_is_spoken_of_60_days_ahead(days: int, said: str, folder: Path) -> None:
    lifecycle.renew(folder, days=days)
    notice = expiry.expiry_notice(Federation.load(folder))
    assert re.search(said, notice) if said else notice == ""
    expiry.check_valid(Federation.load(folder))


def test_an_expired_certificate_is_named_as_expired(folder: Path) -> None:
    key = lifecycle.server_key(Federation.load(folder)).public_key()
    (folder / expiry.CERTIFICATE).write_bytes(signed(key, Authority.make(), days=-1))
    with pytest.raises(InputError, match=r"server.crt expired on 20.*federation certificate"):
        expiry.check_valid(Federation.load(folder))


def signed(key: Any, authority: Authority, host: str = HOST, days: int = 90) -> bytes:
    """A certificate as another program signs it."""
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(key)
        .serial_number(1)
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), True)
        .sign(authority.key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def signed_elsewhere(folder: Path, key: Any = None, **how: Any) -> tuple[Path, Path]:
    """A certificate for a key, by default the federation's, by an authority elsewhere."""
    own, authority = lifecycle.server_key(Federation.load(folder)), Authority.make()
    file, ca = folder.parent / "signed.crt", folder.parent / "organisation.crt"
    file.write_bytes(signed(key or own.public_key(), authority, **how))
    ca.write_bytes(authority.pem)
    return file, ca


def test_a_certificate_of_the_organisation(folder: Path) -> None:
    file, ca = signed_elsewhere(folder)
    assert lifecycle.install(folder, file, ca) > datetime.now(UTC)
    assert (folder / "sites/north/state/ca.crt").read_bytes() == ca.read_bytes()
    expiry.check_valid(Federation.load(folder))
    with pytest.raises(InputError, match=r"fedcluster federation certificate"):
        lifecycle.renew(folder)


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_key_and_certificate_that_the_organisation_hands_over(kind: str, folder: Path) -> None:
    made: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = (
        ec.generate_private_key(ec.SECP256R1())
        if kind == "ec"
        else rsa.generate_private_key(65537, 2048)
    )
    key = folder.parent / "handed.key"
    file, ca = signed_elsewhere(folder, made.public_key())
    pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, said in ((b"none", "handed.key cannot be read"), (pem, "")):
        key.write_bytes(content)
        before = (folder / expiry.CERTIFICATE).read_bytes()
        status, told = invoke("certificate", folder, file, "--ca", ca, "--key", key)
        assert (status, said in told) == (2 if said else 0, True), told
        assert ((folder / expiry.CERTIFICATE).read_bytes() == before) == bool(said)
    assert (folder / expiry.KEY).read_bytes() == pem
    assert stat.S_IMODE((folder / expiry.KEY).stat().st_mode) == 0o600
    assert not (folder / expiry.AUTHORITY_KEY).exists()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        folder / expiry.CERTIFICATE, folder / expiry.KEY
    )
    expiry.check_valid(Federation.load(folder))


def test_a_certificate_of_a_public_authority(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, ca = signed_elsewhere(folder, host="*.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    lifecycle.install(folder, file, None)
    assert Federation.load(folder).authority == ca
    lifecycle.add_sites(folder, ["west"])
    assert not (folder / "sites/west/state/ca.crt").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"host": "other.example.org"}, "is for other.example.org, and sites reach cluster"),
        ({"days": -1}, "expired on .*: ask for another"),
    ],
)
def test_a_certificate_for_another_is_refused(change, reason: str, folder: Path) -> None:
    file, ca = signed_elsewhere(folder, **change)
    with pytest.raises(InputError, match=reason):
        lifecycle.install(folder, file, ca)


def test_a_certificate_of_another_key_or_authority_is_refused(folder: Path) -> None:
    file, ca = signed_elsewhere(folder)
    with pytest.raises(InputError, match="does not vouch for"):
        lifecycle.install(folder, file, folder / "certificates/ca.crt")
    lifecycle.renew(folder, new_key=True)
    with pytest.raises(InputError, match=r"is not for the key in .*certificates/server.key"):
        lifecycle.install(folder, file, ca)


def test_a_site_makes_a_key_that_waits_until_the_coordinator_has_accepted_it(folder):
    site = folder / "sites/north"
    own = (site / "state/key").read_bytes()
    told = json.loads(typed.invoke("site key --new --json", site / "site.toml")[1])
    assert (told["site"], told["waits"]) == ("north", True)
    assert (site / "state/key").read_bytes() == own
    assert stat.S_IMODE((site / "state/key.next").stat().st_mode) == 0o600
    status, said = invoke("rotate-key", folder, "north", "--public-key", site / "state/key.pub")
    assert (status, told["digest"] in said) == (0, True), said
    assert len(keys(folder)["north"]) == 2
    (site / "state/key").unlink()
    again = json.loads(typed.invoke("site key --new --json", site / "site.toml")[1])
    assert not again["waits"]
    assert (site / "state/key").exists()


def test_a_public_key_is_written_as_it_was_read(tmp_path: Path) -> None:
    path, _ = made_at_site(tmp_path)
    assert public_text(read_public_key(path)).encode() == path.read_bytes()


# A site whose key is taken back amid a run

WHY = "its key was revoked"
NORTH, SOUTH = Reply("north", 1, b"!"), Reply("south", 1, b"!")
GONE = Reply("south", 1, None, "it is gone")


class Scripted:
    """Carrier whose replies, and what happens before them, are written down."""

    def __init__(self, *steps: tuple[dict[str, str], list[Reply]]) -> None:
        self.steps, self.sent, self.now = list(steps), list[tuple[str, int]](), 0.0
        self.refused: Mapping[str, str] = {}

    def connected(self) -> Collection[str]:
        return ["north", "south"]

    def send(self, exchange: int, messages: Mapping[str, bytes], _: float) -> Collection[str]:
        self.sent += [(site, exchange) for site in messages]
        return list(messages)

    def receive(self, seconds: float) -> Iterable[Reply]:
        self.now += seconds
        if not self.steps:
            return []
        self.refused, replies = self.steps.pop(0)
        return replies

    def exchange(self, enough: int = 1) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        how: dict[str, Any] = {"clock": lambda: self.now, "revoked": lambda: self.refused}
        exchanges = RetryingTransport(self, 60, recheck=0, **how)
        return exchanges.exchange({"north": b"?", "south": b"?"}, enough)


REFUSED_SITE = {"south": WHY}
NOT_WAITED_FOR: dict[str, tuple[dict[str, str], list[list[Reply]], int, float]] = {
    "before it is asked": (REFUSED_SITE, [[NORTH]], 1, 1),
    "though it is needed": (REFUSED_SITE, [[NORTH], *[[]] * 19], 2, 10),
    "when its answer has come": ({}, [[SOUTH, NORTH]], 1, 1),
    "when its error comes, twice": ({}, [[], [GONE], [GONE], [NORTH]], 1, 2),
}


@pytest.mark.parametrize(
    ("refused", "came", "enough", "seconds"), NOT_WAITED_FOR.values(), ids=NOT_WAITED_FOR
)
def test_a_refused_site_is_sent_nothing_and_not_waited_for(refused, came, enough, seconds) -> None:
    """It would not be let in before somebody gives it a new key; what it has sent is not used."""
    carrier = Scripted(*((REFUSED_SITE, replies) for replies in came))
    carrier.refused = refused
    assert carrier.exchange(enough) == ({"north": b"!"}, REFUSED_SITE)
    assert carrier.now < seconds
    assert carrier.sent[:2] == [("north", 1), *([] if refused else [("south", 1)])]


def test_a_reply_by_the_old_key_is_not_used_after_a_new_one_was_given() -> None:
    """It was asked before; only an answer to what was asked after that counts."""
    old, new = Reply("south", 1, b"old"), Reply("south", 1, b"new")
    carrier = Scripted(({}, [NORTH]), ({"south": WHY}, []), ({}, [old]), ({}, [new]))
    assert carrier.exchange(enough=2) == ({"north": b"!", "south": b"new"}, {})


def test_the_folder_says_who_is_refused(folder: Path) -> None:
    refused = RevokedSites(folder, ["north", "south"])
    assert refused() == {}
    lifecycle.rotate_key(folder, "north")
    lifecycle.promote(folder, ["north"])
    assert refused() == {}
    lifecycle.revoke(folder, "north")
    assert list(refused()) == ["north"]
    assert refused()["north"].startswith("its key was revoked on 20")
    lifecycle.rotate_key(folder, "north")
    assert refused() == {}
    (folder / "keys/former.json").write_text("{")
    assert list(refused()) == ["north", "south"]


def test_a_run_goes_on_with_a_site_that_is_removed(folder: Path) -> None:
    lifecycle.remove_site(folder, "north")
    assert RevokedSites(folder, ["north", "south"])() == {}

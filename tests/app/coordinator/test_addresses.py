"""Addresses of a coordinator: names, numbers of both kinds, and where it listens."""

from __future__ import annotations

import socket
from ipaddress import IPv6Address
from pathlib import Path

import pytest
from cryptography import x509
from federations import LINUX, RunningFederation, federation, read_json, rows_of
from typed import invoke

from fedcluster.errors import InputError
from fedcluster_app.coordinator import certificates, lifecycle
from fedcluster_app.coordinator.certificates import Authority
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.trust.identity import Address

ROWS = rows_of(north=40, south=40, west=40)


@pytest.mark.parametrize(
    ("address", "bind", "host", "listens", "local"),
    [
        ("127.0.0.1:8443", None, "127.0.0.1", "127.0.0.1", "127.0.0.1:8443"),
        ("localhost:8443", None, "localhost", "127.0.0.1", "127.0.0.1:8443"),
        ("[::1]:8443", None, "::1", "::1", "[::1]:8443"),
        ("[0:0:0:0:0:0:0:1]:8443", None, "::1", "::1", "[::1]:8443"),
        ("127.0.0.2:8443", None, "127.0.0.2", "127.0.0.2", "127.0.0.2:8443"),
        ("10.1.2.3:8443", None, "10.1.2.3", "0.0.0.0", "127.0.0.1:8443"),
        ("[2001:db8::5]:8443", None, "2001:db8::5", "::", "[::1]:8443"),
        ("Cluster.example.org:8443", None, "cluster.example.org", "0.0.0.0", "127.0.0.1:8443"),
        ("cluster.example.org:8443", "::", "cluster.example.org", "::", "[::1]:8443"),
        ("b.example.org:8443", "10.1.2.3", "b.example.org", "10.1.2.3", "10.1.2.3:8443"),
        ("klinikum-köln.example:1", None, "xn--klinikum-kln-ejb.example", "0.0.0.0", "127.0.0.1:1"),
        ("straße.example:1", None, "xn--strae-oqa.example", "0.0.0.0", "127.0.0.1:1"),
        ("例え.テスト:1", None, "xn--r8jz45g.xn--zckzah", "0.0.0.0", "127.0.0.1:1"),
        ("my_container:8443", None, "my_container", "0.0.0.0", "127.0.0.1:8443"),
    ],
)
def test_an_address_says_where_the_coordinator_is(address, bind, host, listens, local) -> None:
    place = Address.read(address, bind)
    assert (place.host, place.listens, place.local) == (host, listens, local)
    assert Address.read(str(place), bind) == place
    is_own = bind is not None and bind != "::"
    assert place.names == ((host, str(bind)) if is_own else (host,))


@pytest.mark.parametrize(
    ("address", "bind"),
    [
        *((text, None) for text in ("host", "host:0", ":8443", "host:65536", "host:८", "::1:8443")),
        *((text, None) for text in ("[::1:8443", "a..b:1", "a b:1", "-a:1", "a/b:1", "a@b:1")),
        *((text, None) for text in ("[fe80::1%eth0]:1", "a\n:1", "\u202eköln:1", f"{'a' * 64}:1")),
        ("cluster.example.org:8443", "cluster.example.org"),
        ("cluster.example.org:8443", "[::]"),
    ],
)
def test_what_is_no_address_is_refused(address: str, bind: str | None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--(address|bind) '"):
        Address.read(address, bind)
    how = ["--address", address, *(["--bind", bind] if bind else [])]
    status, said = invoke("federation new --sites a", tmp_path / "f", *how)
    assert (status, said.count("\n")) == (2, 1)
    assert not (tmp_path / "f").exists()


def test_the_certificate_names_the_host_in_ascii_and_where_it_listens(tmp_path: Path) -> None:
    address = "klinikum-köln.example:8443"
    create(tmp_path / "f", ["a"], address, bind="10.1.2.3")
    federation = Federation.load(tmp_path / "f")
    assert (federation.bind, federation.place.local) == ("10.1.2.3", "10.1.2.3:8443")
    [certificate, _] = lifecycle.certificates(tmp_path / "f" / lifecycle.CERTIFICATE)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "xn--klinikum-kln-ejb.example" in names.get_values_for_type(x509.DNSName)
    assert "10.1.2.3" in map(str, names.get_values_for_type(x509.IPAddress))
    site = (tmp_path / "f/sites/a/site.toml").read_text()
    assert 'coordinator = "xn--klinikum-kln-ejb.example:8443"' in site


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.long
@LINUX
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback number")
def test_a_federation_over_ipv6_with_a_certificate_of_a_public_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is for the host only, and sites trust what their machine trusts."""

    def prepare(running: RunningFederation) -> None:
        monkeypatch.setattr(certificates, "AUTHORITY", "public")
        authority, ca = Authority.make(), tmp_path / "authority.crt"
        key = lifecycle.server_key(running.federation).public_key()
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv6Address("::1"))])
        with monkeypatch.context() as patch:
            patch.setattr(certificates, "alternative_names", lambda _hosts: names)
            (tmp_path / "server.crt").write_bytes(authority.sign(["::1"], key))
        ca.write_bytes(authority.pem)
        running.env |= {"SSL_CERT_FILE": str(ca)}
        lifecycle.install(running.folder, tmp_path / "server.crt", None)
        for name in ROWS:
            toml = running.site(name) / "site.toml"
            toml.write_text(toml.read_text().replace('"state/ca.crt"', '"system"'))

    with federation(tmp_path, ROWS, "[::1]", prepare) as running:
        how = ["--algorithm", "kfed", "--scale", "none", "--set", "run.deadline=900"]
        running.run("fit", "-k", 2, *how, "--out", tmp_path / "out").done()
        told = read_json(tmp_path / "out" / "history.json")
        assert {site["name"] for site in told["sites"]} == set(ROWS)

"""Who vouches for a coordinator: an authority of its own, or those that a machine trusts."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from fedcluster.errors import InputError

SYSTEM = "system"
"""What a site file says of the certificate where a public authority vouches for the coordinator."""


def system_store() -> Path:
    """Return the file of the authorities that this machine trusts.

    Raises
    ------
    InputError
        If there is none.
    """
    found = ssl.get_default_verify_paths()
    usual = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
    for path in filter(None, (found.cafile, *usual, "/etc/ssl/cert.pem")):
        if os.access(path, os.R_OK):
            return Path(path)
    raise InputError(
        "this machine has no file of trusted authorities: install the package ca-certificates, or "
        "set SSL_CERT_FILE"
    )

"""Certificates for the tests of TLS: an authority of the test's own, and what it vouches for."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """Files with a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `root` is what a client trusts."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._identity = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(basic, critical=True).add_extension(self._identity, critical=False)
        self.root = folder / f"{name}.crt"
        self.root.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, folder: Path) -> Pair:
        """For a server of that host name, or for a client of that role."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identity)
        hosts = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = _builder(_named(name), self._name, key.public_key())
        builder = builder.add_extension(issuer, critical=False).add_extension(hosts, critical=False)
        made = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        made.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        made.key.touch(0o600)
        plain = serialization.NoEncryption()
        made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

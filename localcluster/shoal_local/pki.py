"""Certificates and keys of one local cluster, written once into its folder and reused when it starts again.

Two authorities: the cluster's own and the front proxy's. `controlplane` names the files in the components' flags; the
node agent takes a serving certificate for its kubelet ports. Nothing here is meant to outlive a local cluster.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


def _name(common_name: str, organization: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Writes with the mode from the first byte on, so that a key is never readable by others."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _private_bytes(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Pki:
    """The files of one cluster's PKI; every method makes its files unless they are there, and returns their paths."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def authority(self, name: str) -> Pair:
        """A self-signed authority: `ca` or `front-proxy-ca`."""
        pair = self._pair(name)
        if pair.key.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"shoal-local-{name}", None)
        builder = self._builder(subject, subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
        return self._store(pair, certificate, key)

    def client(self, name: str, common_name: str, organization: str | None = None, authority: str = "ca") -> Pair:
        """A client certificate; Kubernetes reads the user from the common name and the group from the organization."""
        return self._leaf(name, _name(common_name, organization), authority, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, common_name: str, alternatives: Sequence[str]) -> Pair:
        """A serving certificate for names and addresses."""
        return self._leaf(name, _name(common_name, None), "ca", ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def service_account_keys(self) -> Pair:
        """The pair that signs and checks ServiceAccount tokens (`certificate` is the public key)."""
        pair = Pair(self.folder / "sa.pub", self.folder / "sa.key")
        if not pair.key.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            _write(pair.certificate, public, 0o644)
            _write(pair.key, _private_bytes(key), 0o600)
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )

    def _leaf(
        self, name: str, subject: x509.Name, authority: str, usage: x509.ObjectIdentifier, alternatives: Sequence[str]
    ) -> Pair:
        pair = self._pair(name)
        if pair.key.exists():
            return pair
        signer = self.authority(authority)
        issuer = x509.load_pem_x509_certificate(signer.certificate.read_bytes())
        signing_key = serialization.load_pem_private_key(signer.key.read_bytes(), password=None)
        if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{signer.key} does not hold an elliptic-curve key")
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        )
        if alternatives:
            names = x509.SubjectAlternativeName([_alternative(each) for each in alternatives])
            builder = builder.add_extension(names, critical=False)
        return self._store(pair, builder.sign(signing_key, hashes.SHA256()), key)

    def _store(self, pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        _write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        _write(pair.key, _private_bytes(key), 0o600)
        return pair

"""A fleet's own certificate authority: made once, it signs what machines ask for by an invitation.

A host's certificate lets it answer, a caller's lets it call: a host that was taken over cannot
call another one. The name in a certificate is the machine's id, whatever address is dialled.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.domain.errors import Conflict, NotFound, ValidationFailed
from holdfast.domain.machines import machine_name

Role = Literal["host", "caller"]
CA, CA_KEY, CERTIFICATE, KEY = "ca.pem", "ca-key.pem", "cert.pem", "key.pem"
MACHINE = "machine"  # the id that the certificate was made for
USES = {
    "host": ExtendedKeyUsageOID.SERVER_AUTH,
    "caller": ExtendedKeyUsageOID.CLIENT_AUTH,
}
AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 365
CLOCKS_DIFFER = datetime.timedelta(minutes=5)
REQUEST_BYTES_MAX = 16 * 1024


def make(folder: Path) -> str:
    """Begin a fleet in this folder; its fingerprint. Conflict when it has an authority already."""
    if (folder / CA_KEY).exists() or (folder / CA).exists():
        raise Conflict(f"{folder} has an authority already")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Holdfast fleet")
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - CLOCKS_DIFFER)
        .not_valid_after(_now() + datetime.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write(folder / CA_KEY, _pem_of(key))
    write(folder / CA, made.public_bytes(serialization.Encoding.PEM))
    return fingerprint(folder)


def fingerprint(folder: Path) -> str:
    """What names the authority: whoever joins checks that it is this one."""
    return fingerprint_of((folder / CA).read_bytes())


def fingerprint_of(pem: bytes) -> str:
    """The fingerprint of an authority's certificate."""
    found = x509.load_pem_x509_certificate(pem)
    return hashlib.sha256(found.public_bytes(serialization.Encoding.DER)).hexdigest()


def request(machine_id: str) -> tuple[bytes, bytes]:
    """A new key, which never leaves its machine, and the request to sign it."""
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(_name(machine_id))
    signed = asked.sign(key, hashes.SHA256())
    return _pem_of(key), signed.public_bytes(serialization.Encoding.PEM)


def sign(folder: Path, asked: bytes, machine_id: str, roles: Collection[Role]) -> bytes:
    """A certificate for this request; its id is the invitation's, never the request's."""
    try:
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except FileNotFoundError:
        raise NotFound("the fleet's authority is not on this machine") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey), "made by `make`"
    authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(machine_id))
        .issuer_name(authority.subject)
        .public_key(_checked(asked).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - CLOCKS_DIFFER)
        .not_valid_after(_now() + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USES[role] for role in sorted(roles)]), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(machine_name(machine_id))]), False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def issue(folder: Path, into: Path, machine_id: str, roles: Collection[Role]) -> None:
    """Make key and certificate of a machine here, to be brought to it by other means."""
    key, asked = request(machine_id)
    keep(into, machine_id, key, sign(folder, asked, machine_id, roles), (folder / CA).read_bytes())


def keep(folder: Path, machine_id: str, key: bytes, signed: bytes, ca: bytes) -> None:
    """Put a machine's certificate where its parts look for it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {CA: ca, KEY: key, CERTIFICATE: signed, MACHINE: f"{machine_id}\n".encode()}
    for name, content in files.items():
        write(folder / name, content)


def write(path: Path, content: bytes) -> None:
    """Put a file there whole, for its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.rename(path)


def _checked(asked: bytes) -> x509.CertificateSigningRequest:
    if len(asked) > REQUEST_BYTES_MAX:
        raise ValidationFailed("the request is too long")
    try:
        found = x509.load_pem_x509_csr(asked)
        valid = found.is_signature_valid and isinstance(
            found.public_key(), ec.EllipticCurvePublicKey
        )
    except (ValueError, InvalidSignature):
        valid = False
    if not valid:
        raise ValidationFailed("the request is not one that can be signed")
    return found


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)

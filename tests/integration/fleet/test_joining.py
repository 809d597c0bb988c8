"""A machine joins a fleet by an invitation: once, in time, and only that fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cryptography import x509

from holdfast.domain.machines import machine_name
from holdfast.fleet import authority, invitations
from holdfast.storage.database.opening import open_store
from holdfast.terminal import tls
from tests.support.command_line import run_here
from tests.support.servers.api_server import ApiServer


@pytest.fixture
def first(tmp_path: Path) -> Iterator[ApiServer]:
    """The machine with the authority, whose API answers those who join."""
    home = tmp_path / "first"
    home.mkdir()
    store = open_store(f"sqlite:///{home / 'store.sqlite'}", home)
    server = ApiServer(store, home).start()
    yield server
    server.stop()
    store.close()


def on(machine: Path, *arguments: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", str(machine))
        patch.delenv("HOLDFAST_FLEET_DIR", raising=False)
        return run_here(*arguments)


def invited(first: ApiServer, *options: str) -> str:
    code, out, err = on(first.settings.home, "fleet", "invite", *options)
    assert code == 0, err
    return out.strip()


@pytest.fixture
def begun(first: ApiServer) -> ApiServer:
    code, out, err = on(first.settings.home, "fleet", "init")
    assert code == 0, err
    assert "invite" in out
    return first


def test_a_machine_joins_by_its_invitation_and_both_trust_each_other(
    begun: ApiServer, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    invitation = invited(begun, "--api")
    code, out, err = on(second, "fleet", "join", invitation, "--url", begun.url)
    assert code == 0, err
    assert invitation.split(".")[0] in out
    folder = second / "fleet"
    # Both sides of TLS can be built of it, and nobody else reads the key.
    tls.context(folder, server=True)
    tls.context(folder, server=False)
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}
    assert not (folder / authority.CA_KEY).exists()


def test_an_invitation_works_once(begun: ApiServer, tmp_path: Path) -> None:
    invitation = invited(begun)
    assert on(tmp_path / "second", "fleet", "join", invitation, "--url", begun.url)[0] == 0
    code, _, err = on(tmp_path / "third", "fleet", "join", invitation, "--url", begun.url)
    assert code != 0
    assert "unknown or was used" in err


def test_an_old_invitation_is_refused(begun: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret, _ = invitations.parts(invited(begun))
    later = time.time() + invitations.VALID_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    body = {"secret": secret, "request": authority.request("x")[1].decode()}
    answer = httpx2.post(f"{begun.url}/api/v1/fleet/join", json=body, trust_env=False)
    assert answer.status_code == 401


def test_whoever_answers_for_another_authority_is_not_believed(
    begun: ApiServer, tmp_path: Path
) -> None:
    machine_id, secret, _ = invitations.parts(invited(begun))
    forged = f"{machine_id}.{secret}.{'0' * 64}"
    code, _, err = on(tmp_path / "second", "fleet", "join", forged, "--url", begun.url)
    assert code != 0
    assert "not the one that invited" in err
    assert not (tmp_path / "second" / "fleet").exists()


def test_a_host_that_ran_already_keeps_its_id(begun: ApiServer, tmp_path: Path) -> None:
    second = tmp_path / "second"
    assert on(second, "fleet", "join", invited(begun), "--url", begun.url)[0] == 0
    code, _, err = on(second, "fleet", "join", invited(begun), "--url", begun.url)
    assert code != 0
    assert "--machine" in err
    again = err.split("--machine ")[1].split("`")[0]
    invitation = invited(begun, "--machine", again)
    assert on(second, "fleet", "join", invitation, "--url", begun.url)[0] == 0


def test_the_request_cannot_choose_its_name(begun: ApiServer) -> None:
    machine_id, secret, _ = invitations.parts(invited(begun))
    body = {"secret": secret, "request": authority.request("SOMEBODYELSE")[1].decode()}
    answer = httpx2.post(f"{begun.url}/api/v1/fleet/join", json=body, trust_env=False).json()
    assert answer["machine_id"] == machine_id
    signed = x509.load_pem_x509_certificate(answer["certificate"].encode())
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [machine_name(machine_id)]


def test_a_second_authority_is_not_begun_over_the_first(begun: ApiServer) -> None:
    code, _, err = on(begun.settings.home, "fleet", "init")
    assert code != 0
    assert "has an authority already" in err


def test_a_certificate_for_a_container_is_made_beside_the_authority(
    begun: ApiServer, tmp_path: Path
) -> None:
    code, out, err = on(begun.settings.home, "fleet", "issue", str(tmp_path / "secret"))
    assert code == 0, err
    assert (tmp_path / "secret" / tls.MACHINE).read_text().strip() == out.split()[0]
    tls.context(tmp_path / "secret", server=True)

"""The certificates of a fleet: begun on one machine, joined by the others with an invitation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.output import AsJson, emit

if TYPE_CHECKING:
    from holdfast.fleet.authority import Role
    from holdfast.settings.environment import Settings

app = typer.Typer(no_args_is_help=True)


@app.command("init")
def init(as_json: AsJson = False) -> None:
    """Begin a fleet: make its authority in HOLDFAST_FLEET_DIR, and this machine's certificate."""
    from holdfast.fleet import authority

    settings = _settings()
    folder = settings.fleet_dir
    mark = authority.make(folder)
    machine_id = _machine_id(settings, wanted=None)
    authority.issue(folder, folder, machine_id, ("host", "caller"))
    emit(
        {"folder": str(folder), "fingerprint": mark, "machine_id": machine_id},
        as_json=as_json,
        text=f"The fleet's authority is in {folder}; this machine is {machine_id}.\n"
        "Next: `holdfast fleet invite` here, `holdfast fleet join` on the other machine.",
    )


@app.command("issue")
def issue(
    into: Annotated[Path, typer.Argument(help="A folder for key and certificate.")],
    machine: Annotated[str | None, typer.Option(help="The id of a host that ran already.")] = None,
    caller: Annotated[bool, typer.Option("--api", help="The machine runs an API.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a machine's certificate here, for containers and clusters that get it as a secret."""
    from holdfast.domain.ids import new_id
    from holdfast.fleet import authority

    machine_id = machine or new_id()
    authority.issue(_settings().fleet_dir, into, machine_id, _roles(caller=caller))
    emit({"machine_id": machine_id}, as_json=as_json, text=f"{machine_id} {into}")


@app.command("invite")
def invite(
    machine: Annotated[
        str | None, typer.Option(help="The id of a host that ran already (`holdfast hosts`).")
    ] = None,
    caller: Annotated[
        bool, typer.Option("--api", help="The machine runs an API, which calls hosts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print an invitation for one machine; it works once, within an hour."""
    from holdfast.domain.ids import new_id
    from holdfast.fleet import invitations

    roles = _roles(caller=caller)
    token = invitations.invite(_settings().fleet_dir, machine or new_id(), roles)
    emit({"invitation": token}, as_json=as_json, text=token)


@app.command("join")
def join(
    invitation: Annotated[str, typer.Argument(help="What `holdfast fleet invite` printed.")],
    url: Annotated[str, typer.Option(help="The API beside the fleet's authority.")],
    as_json: AsJson = False,
) -> None:
    """Join a fleet: make a key here, have it signed there, and check who signed."""
    from holdfast.client.client import Client
    from holdfast.domain.errors import Unauthenticated
    from holdfast.fleet import authority, invitations

    settings = _settings()
    wanted, secret, mark = invitations.parts(invitation)
    machine_id = _machine_id(settings, wanted=wanted)
    key, asked = authority.request(machine_id)
    with Client(url, "") as client:
        answer = client.post("/fleet/join", {"secret": secret, "request": asked.decode()})
    if authority.fingerprint_of(answer["ca"].encode()) != mark:
        raise Unauthenticated(f"the authority at {url} is not the one that invited this machine")
    folder = settings.fleet_dir
    signed, ca = answer["certificate"].encode(), answer["ca"].encode()
    authority.keep(folder, machine_id, key, signed, ca)
    emit(
        {"folder": str(folder), "machine_id": machine_id},
        as_json=as_json,
        text=f"This machine joined as {machine_id}; its certificate is in {folder}.",
    )


def _roles(*, caller: bool) -> tuple[Role, ...]:
    return ("caller", "host") if caller else ("host",)


def _settings() -> Settings:
    from holdfast.settings.environment import Settings

    settings = Settings.load()
    settings.make_home()
    return settings


def _machine_id(settings: Settings, *, wanted: str | None) -> str:
    """The id of this machine's host; Conflict when it has another one than the invitation says."""
    from holdfast.domain.errors import Conflict
    from holdfast.terminal import identity

    found = identity.known(Path(settings.terminal_state_dir), first_id=wanted).id
    if wanted not in (None, found):
        raise Conflict(
            f"the host of this machine is {found} already: "
            f"ask for `holdfast fleet invite --machine {found}`"
        )
    return found

"""`holdfast`: runs the product, and drives it from a terminal."""

from __future__ import annotations

import json
import sys

import typer

from holdfast.cli.commands import (
    administration,
    approvals,
    attachment,
    changes,
    checkpoints,
    control,
    fleet,
    history,
    hosts,
    issues,
    library,
    memory,
    operators,
    product,
    projects,
    sessions,
    terminals,
    torture,
)
from holdfast.cli.exit_codes import (
    EXIT_MISCONFIGURED,
    EXIT_REFUSED,
    BadArguments,
    exit_code,
)
from holdfast.cli.help import Sectioned
from holdfast.client.errors import ClientError, Refused, Unreachable
from holdfast.domain.errors import Refusal
from holdfast.settings.environment import SettingsError

app = typer.Typer(
    name="holdfast",
    cls=Sectioned,
    help="A server for AI-agent sessions that hold fast: work goes on whatever dies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (
    product,
    operators,
    projects,
    sessions,
    attachment,
    terminals,
    checkpoints,
    changes,
    approvals,
    control,
    library,
    history,
    administration,
    torture,
):
    module.add_to(app)
app.add_typer(projects.app, name="project", help="Folders that sessions work in.")
app.add_typer(memory.app, name="memory", help="What a project's agents remember.")
app.add_typer(fleet.app, name="fleet", help="Machines that call each other by certificate.")
app.add_typer(hosts.app, name="hosts", help="Machines that sessions work on.")
app.add_typer(issues.app, name="issue", help="Issues of a project, and their todos.")


def main() -> None:
    """Run one command; expected trouble is words and an exit code, not a traceback."""
    try:
        _check_arguments()
        app(standalone_mode=True)
    except ClientError as error:
        _explain(error)
        sys.exit(exit_code(error))
    except Refusal as error:
        typer.echo(f"holdfast: {error.message}", err=True)
        sys.exit(EXIT_REFUSED)
    except SettingsError as error:
        typer.echo(f"holdfast: {error}", err=True)
        sys.exit(EXIT_MISCONFIGURED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _check_arguments() -> None:
    """Bytes that are no text arrive as halves of surrogate pairs, which nothing here can send."""
    if any("\ud800" <= letter <= "\udfff" for argument in sys.argv for letter in argument):
        raise BadArguments("arguments must be UTF-8")


def _explain(error: ClientError) -> None:
    if "--json" in sys.argv and isinstance(error, Refused | Unreachable):
        typer.echo(json.dumps(error.as_json(), ensure_ascii=False), err=True)
        return
    detail = f" ({error.code})" if isinstance(error, Refused) else ""
    typer.echo(f"holdfast: {error}{detail}", err=True)


if __name__ == "__main__":
    main()

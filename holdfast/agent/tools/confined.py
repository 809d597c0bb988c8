"""Files below one folder for tools: trouble is told in words that a model can act on."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.agent.tools.outcome import ToolProblem
from holdfast.folders.access import Rules
from holdfast.folders.confined import FILE_BYTES_MAX, Confined, NotRegular, TooLarge, confined
from holdfast.folders.judging import judge_of

NO_RULES = Rules()


@contextlib.contextmanager
def opened(working_directory: Path, rules: Rules = NO_RULES) -> Iterator[Confined]:
    """The working directory, held by its descriptor, with the rules about what is in it."""
    with explained(str(working_directory), "."), confined(working_directory) as bare:
        judge = judge_of(bare.root, bare.path, rules)
        yield Confined(bare.root, bare.path, judge)


def read(place: Confined, path: str) -> tuple[str, bytes]:
    """The name and all bytes of a regular file of at most 16 MiB."""
    with explained(place.path, path), place.find(checked(path)) as found:
        return printable("/".join(found.path)), place.read(found)


def write(place: Confined, path: str, content: bytes) -> tuple[str, bool]:
    """Replace the file at once or make it, keeping its mode: its name, and whether it is new."""
    with explained(place.path, path), place.find(checked(path)) as found:
        name = printable("/".join(found.path))
        return name, place.write(found, content)


def checked(path: str) -> str:
    """The path, or ToolProblem when no file can be called so."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolProblem("The path holds characters that no file name can have.") from None
    if b"\0" in encoded:
        raise ToolProblem("The path holds a NUL character.")
    return path


def printable(path: str) -> str:
    """The path as valid Unicode; bytes of a name that are not UTF-8 become question marks."""
    return os.fsencode(path).decode("utf-8", errors="replace")


@contextlib.contextmanager
def explained(root: str, path: str) -> Iterator[None]:
    """Trouble with files, as a ToolProblem that names the path."""
    try:
        yield
    except NotRegular as error:
        raise ToolProblem(f"{printable(path)} {error.strerror}.") from error
    except TooLarge as error:
        words = f"is larger than {FILE_BYTES_MAX >> 20} MiB; use the shell to look at it."
        raise ToolProblem(f"{printable(path)} {words}") from error
    except OSError as error:
        if error.errno == errno.EXDEV:
            words = f"{printable(path)} is outside of {root}, which cannot be left."
        else:
            words = f"{printable(path)}: {error.strerror or error}"
        raise ToolProblem(words) from error

"""Cage policies: what a project file may say, and the bubblewrap that follows from it."""

import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.terminal.cages import bubblewrap, finding, landlock
from holdfast.terminal.cages.bubblewrap import Bubblewrap
from holdfast.terminal.cages.confinement import Wanted
from holdfast.terminal.cages.hiding import Hiding
from holdfast.terminal.cages.place import judge, opened_place
from holdfast.terminal.cages.policy import CagePolicy
from holdfast.terminal.errors import BadCage, CageSpawnFailed, CageUnavailable


def line(policy: dict[str, Any], cwd: Path, *hidden: Path) -> list[str]:
    """The command of a cage, never run."""
    parsed = CagePolicy.from_mapping(policy)
    with ExitStack() as cleaning:
        place = cleaning.enter_context(opened_place(cwd, "", hidden=hidden))
        hiding = cleaning.enter_context(closing(Hiding()))
        judge(place)
        wanted = Wanted(policy=parsed, argv=["true"], place=place, hiding=hiding)
        confinement = Bubblewrap("/usr/bin/bwrap").confine(wanted, cleaning)
        assert confinement.status is not None
        assert confinement.gate is not None
        os.close(confinement.status)
        os.close(confinement.gate)
        return confinement.argv


def test_a_whole_policy_is_read() -> None:
    policy = CagePolicy.from_mapping(
        {
            "fs": {"read_write": ["/a"], "read_only": ["/b"], "hidden": ["/c"]},
            "net": "host",
            "env": ["TOKEN"],
            "memory_mb": 512,
            "pids": 64,
            "walltime_s": 1.5,
            "cpu_s": 10,
            "ptrace": True,
        }
    )
    assert policy == CagePolicy(
        fs_read_write=("/a",),
        fs_read_only=("/b",),
        fs_hidden=("/c",),
        net=True,
        env=("TOKEN",),
        memory_mb=512,
        pids=64,
        walltime_s=1.5,
        cpu_s=10,
        ptrace=True,
    )


def test_the_default_has_no_network_and_no_extra_paths() -> None:
    assert CagePolicy.from_mapping({}) == CagePolicy()


@pytest.mark.parametrize(
    "raw",
    [
        {"nett": True},
        {"fs": {"readwrite": []}},
        {"fs": []},
        {"fs": {"read_only": "/etc"}},
        {"net": "maybe"},
        {"net": {"allow": []}},
        {"net": {"allow": ["a b"]}},
        {"net": {"allow": ["host:0"]}},
        {"net": {"allow": ["x"], "private": ["10.0.0.1/8"]}},
        {"net": {"deny": ["x"]}},
        {"env": [1]},
        {"memory_mb": 0},
        {"memory_mb": True},
        {"pids": 1.5},
        {"walltime_s": -1},
        {"walltime_s": "10"},
        {"ptrace": 1},
    ],
)
def test_what_is_not_a_policy_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(BadCage, match="cage"):
        CagePolicy.from_mapping(raw)


def test_the_cage_has_no_network_no_capabilities_and_dies_with_the_host(tmp_path: Path) -> None:
    command = line({}, tmp_path)
    assert "--share-net" not in command
    assert {"--unshare-all", "--unshare-user", "--die-with-parent"} <= set(command)
    assert command[command.index("--cap-drop") + 1] == "ALL"
    assert "--share-net" not in line({"net": True}, tmp_path)
    assert "--share-net" in line({"net": "host"}, tmp_path)


def test_a_deeper_rule_comes_after_the_one_around_it(tmp_path: Path) -> None:
    inner = tmp_path / "secrets" / "workspace"
    inner.mkdir(parents=True)
    command = line({"fs": {"read_only": [str(tmp_path)]}}, inner, tmp_path / "secrets")
    outer, hidden, work = (
        command.index(str(path)) for path in (tmp_path, tmp_path / "secrets", inner)
    )
    assert outer < hidden < work


def test_links_are_followed_before_they_are_bound(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    command = line({"fs": {"read_write": ["link"]}}, tmp_path)
    assert str(tmp_path / "real") in command
    assert str(tmp_path / "link") not in command


def test_secrets_cannot_be_given_to_a_cage(tmp_path: Path) -> None:
    for name in ("home", "work", "home/keys"):
        (tmp_path / name).mkdir()
    (tmp_path / "work/link").symlink_to(tmp_path / "home/keys")
    home = tmp_path / "home"
    for policy, cwd in (
        ({"fs": {"read_only": [str(home / "keys")]}}, tmp_path / "work"),
        ({"fs": {"read_write": ["link"]}}, tmp_path / "work"),
        ({"fs": {"read_write": ["/"]}}, tmp_path / "work"),
        ({"fs": {"read_write": ["missing"]}}, tmp_path / "work"),
        ({}, home),
        ({}, Path("/")),
    ):
        with pytest.raises(CageSpawnFailed):
            line(policy, cwd, home)


def test_only_allowed_names_reach_the_environment() -> None:
    policy = CagePolicy(env=("ALLOWED",))
    ours = {"ALLOWED": "1", "OPENAI_API_KEY": "secret", "PATH": "/bin", "HOME": "/root"}
    inside = bubblewrap.environment(policy, ours, {"EXTRA": "2"})
    assert inside["ALLOWED"] == "1"
    assert inside["EXTRA"] == "2"
    assert inside["HOME"] == bubblewrap.HOME_INSIDE
    assert "OPENAI_API_KEY" not in inside


def test_without_any_cage_the_error_says_why_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finding, "_found", {})
    monkeypatch.setattr(finding, "_missing", {})
    monkeypatch.setattr(finding, "programs", lambda: iter(()))
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(CageUnavailable, match=r"bwrap is missing.*no Landlock.*install bubblewrap"):
        finding.probe()
    monkeypatch.undo()
    assert finding.probe().kind in ("bubblewrap", "landlock"), "what was missing is not remembered"

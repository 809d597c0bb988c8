"""Every mutant of `tests/mutants/` fits the source, and what it proves is marked so."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import coverage_page, mutants

CATALOGUE = mutants.read_catalogue()
REMOVAL = mutants.Mutant("sample", ("K-001",), "sample.py", "limit = 3", "limit = 4", ("t.py::t",))


@pytest.mark.parametrize("area", sorted({mutant.area for mutant in CATALOGUE}))
def test_every_mutant_fits_the_source(area: str) -> None:
    for mutant in (mutant for mutant in CATALOGUE if mutant.area == area):
        source = (mutants.ROOT / mutant.file).read_text(encoding="utf-8")
        try:
            mutant.mutated(source)
        except (SyntaxError, ValueError) as error:
            pytest.fail(f"{mutant}: {error}")


@pytest.mark.parametrize("area", sorted({mutant.area for mutant in CATALOGUE}))
def test_every_mutant_names_tests_that_are_marked_with_its_requirements(area: str) -> None:
    proofs = coverage_page.find_proofs()
    for mutant in (mutant for mutant in CATALOGUE if mutant.area == area):
        named = {
            test.split("[")[0].replace("::", ".").replace(".py.", ".py::") for test in mutant.tests
        }
        for requirement in mutant.requirements:
            assert named & proofs[requirement], f"{mutant}: no test of it is marked {requirement}"


def test_every_requirement_is_proven_or_explained() -> None:
    assert coverage_page.unproven() == set()


def test_a_requirement_without_a_mutant_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [mutant for mutant in CATALOGUE if "H-001" not in mutant.requirements]
    assert coverage_page.unproven(without) == {"H-001"}
    monkeypatch.setattr(mutants, "read_catalogue", lambda: without)
    with pytest.raises(ValueError, match=r"no mutant and no reason: H-001$"):
        coverage_page.render()


def test_no_requirement_has_two_states() -> None:
    proven = {one for mutant in CATALOGUE for one in mutant.requirements}
    assert proven & set(coverage_page.NOT_MET) == set()
    assert proven & set(coverage_page.OTHER_DESIGN) == set()


def test_every_other_design_is_written_down() -> None:
    decisions = mutants.ROOT / "docs" / "decisions"
    for page, _ in coverage_page.OTHER_DESIGN.values():
        assert (decisions / page).is_file(), page


@pytest.mark.parametrize("source", ["nothing of it", "limit = 3; limit = 3"])
def test_an_edit_that_does_not_fit_exactly_once_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="stands"):
        REMOVAL.mutated(source)


def test_a_mutant_is_an_edit_of_one_place() -> None:
    assert REMOVAL.mutated("limit = 3\n") == "limit = 4\n"


def test_a_mutant_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sample.toml").write_text('[[mutant]]\nrequirements = ["K-001"]\nwhy = "no"\n')
    with pytest.raises(ValueError, match="a mutant has"):
        mutants.read_catalogue(tmp_path)

"""How a machine is named in certificates."""

from holdfast.domain.machines import machine_name


def test_a_machine_is_named_by_its_id_in_lower_case() -> None:
    assert machine_name("01ABC") == "01abc.machine.holdfast.internal"

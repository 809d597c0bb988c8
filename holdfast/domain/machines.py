"""How a machine of a fleet is named in certificates: by its id, whatever address is dialled."""

SUFFIX = "machine.holdfast.internal"


def machine_name(machine_id: str) -> str:
    """The DNS name of a machine's certificate."""
    return f"{machine_id.lower()}.{SUFFIX}"

"""The forms in which a file holds sections, by what stands behind their names."""

from __future__ import annotations

RECIPE = "recipe"
DEFLATED = "deflated"
NARROW = ("float16", "bfloat16")
"""Float32 values that 16 bits of these types hold."""

_MARK = "|"


def with_form(name: str, form: str) -> str:
    """The full name of a section in a form."""
    return f"{name}{_MARK}{form}"


def parted(full_name: str) -> tuple[str, str | None]:
    """A section's name and its form, None as it is."""
    name, has_form, form = full_name.partition(_MARK)
    return name, form if has_form else None


def is_narrow(full_name: str) -> bool:
    """Whether a section is stored in 16 bits."""
    return parted(full_name)[1] in NARROW

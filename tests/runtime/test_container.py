"""The artifact's file format: complete or absent, and every changed byte found."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import numpy as np
import pytest

from rammer.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactVersionError,
    ArtifactWriteError,
)
from rammer.runtime import container, narrow
from rammer.runtime.container import Json, open_container, write_container
from tests.support.artifacts import header_of, with_header

META: dict[str, Json] = {"name": "m", "shapes": [[1, 2], []], "flag": True}
SECTIONS = {
    "small": b"abc",
    "empty": b"",
    "large": np.arange(5000, dtype=np.int32).tobytes(),
    "stored in 16 bits": np.arange(2500, dtype=np.float32).tobytes(),
}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "m.rammer"
    write_container(path, META, SECTIONS)
    return path


def test_round_trip(artifact: Path) -> None:
    found = open_container(artifact)
    assert found.meta == META
    assert {name: bytes(section) for name, section in found.sections().items()} == SECTIONS


def test_sections_span_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_PIECE_BYTES", 1000)
    write_container(tmp_path / "m", META, SECTIONS)
    assert {name: bytes(section) for name, section in open_container(tmp_path / "m").sections().items()} == SECTIONS


def test_same_content_gives_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    write_container(tmp_path / "again", META, SECTIONS)
    assert (tmp_path / "again").read_bytes() == artifact.read_bytes()


HALVES = np.arange(1 << 16, dtype=np.uint16)
WIDE = {
    "float16": HALVES[(HALVES & 0x7C00) != 0x7C00].view(np.float16).astype(np.float32),  # all numbers
    "bfloat16": (HALVES.astype(np.uint32) << 16).view(np.float32),  # infinities and every NaN, too
    "neither": np.full(10_000, 0.1, np.float32),
    "one does not fit": np.append(np.zeros(10_000, np.float32), np.float32(0.1)),
    "small": np.zeros(100, np.float32),
}


@pytest.mark.parametrize("kind", WIDE)
def test_values_that_16_bits_hold_are_stored_in_16_bits(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrow, "_PIECE_WORDS", 1000)
    values = WIDE[kind]
    write_container(tmp_path / "m", META, {"before": b"x", "values": values.tobytes()})
    found = open_container(tmp_path / "m").sections()
    assert list(found) == ["before", "values"]
    assert bytes(found["values"]) == values.tobytes()
    stored = values.nbytes // 2 if kind in ("float16", "bfloat16") else values.nbytes
    assert (tmp_path / "m").stat().st_size == 2 * 4096 + -(-stored // 4096) * 4096


@pytest.mark.parametrize("name", ["values|float8", "values|", "values|float16|float16"])
def test_forms_that_are_not_known_are_refused(name: str, tmp_path: Path) -> None:
    write_container(tmp_path / "m", META, {name: b"abc"})
    with pytest.raises(ArtifactCorruptError, match="stored in a form"):
        open_container(tmp_path / "m").sections()


def test_an_odd_number_of_bytes_and_a_name_twice_are_refused(tmp_path: Path) -> None:
    for sections, message in (
        ({"values|float16": b"abc"}, "stored in a form"),
        ({"values|float16": b"abcd", "values": b"x"}, "names a section twice"),
    ):
        write_container(tmp_path / "m", META, sections)
        with pytest.raises(ArtifactCorruptError, match=message):
            open_container(tmp_path / "m").sections()


def test_every_truncation_is_found(artifact: Path) -> None:
    whole = artifact.read_bytes()
    for length in [0, 1, 7, 8, 20, 55, 56, 100, 4095, 4096, 4099, 8192, len(whole) - 1]:
        artifact.write_bytes(whole[:length])
        with pytest.raises(ArtifactCorruptError):
            open_container(artifact).sections()
    artifact.write_bytes(whole + b"\0")
    with pytest.raises(ArtifactCorruptError):
        open_container(artifact).sections()


def test_every_changed_byte_is_found(artifact: Path) -> None:
    whole = bytearray(artifact.read_bytes())
    for position in [*range(400), *range(400, len(whole), 97)]:
        whole[position] ^= 0x20
        artifact.write_bytes(whole)
        with pytest.raises((ArtifactCorruptError, ArtifactVersionError)):
            open_container(artifact).sections()
        whole[position] ^= 0x20


def test_a_checksum_too_few_or_too_many_is_found(artifact: Path) -> None:
    header = header_of(artifact)
    for section in range(len(SECTIONS)):
        for change in (lambda checksums: checksums[:-1], lambda checksums: [*checksums, 0]):
            changed = copy.deepcopy(header)
            entry = changed["sections"][section]
            entry[2] = change(entry[2])
            if changed != header:
                with_header(artifact, json.dumps(changed).encode())
                with pytest.raises(ArtifactCorruptError, match="does not match its checksum"):
                    open_container(artifact).sections()


def test_another_version_says_which(artifact: Path) -> None:
    whole = bytearray(artifact.read_bytes())
    whole[8:12] = (container.FORMAT_VERSION + 1).to_bytes(4, "little")
    artifact.write_bytes(whole)
    with pytest.raises(ArtifactVersionError, match=f"version {container.FORMAT_VERSION + 1}"):
        open_container(artifact).sections()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError):
        open_container(tmp_path / "none.rammer")
    with pytest.raises(ArtifactNotFoundError):
        open_container(tmp_path)


def test_a_failed_write_leaves_what_was_there(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = artifact.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactWriteError, match="No space left"):
        write_container(artifact, META, {"other": b"x"})
    assert artifact.read_bytes() == before
    assert [path.name for path in artifact.parent.iterdir()] == [artifact.name]


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactWriteError, match="cannot write"):
        write_container(tmp_path / "no" / "m.rammer", META, SECTIONS)


def test_threads_that_take_the_smallest_numbers_for_zero_widen_them_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_container(tmp_path / "m", META, {"values": WIDE["float16"].tobytes()})
    monkeypatch.setattr(narrow, "_SMALLEST", np.zeros(1, np.float32))
    assert bytes(open_container(tmp_path / "m").sections()["values"]) == WIDE["float16"].tobytes()


def test_infinities_of_16_bits_are_widened(tmp_path: Path) -> None:
    values = np.append(WIDE["float16"], np.array([-np.inf, np.inf], np.float32))
    write_container(tmp_path / "m", META, {"values": values.tobytes()})
    assert (tmp_path / "m").stat().st_size < values.nbytes
    assert bytes(open_container(tmp_path / "m").sections()["values"]) == values.tobytes()


def test_a_check_that_is_given_up_ends(artifact: Path) -> None:
    with open_container(artifact).check() as check:
        pass
    assert not any(thread.is_alive() for thread in check._crew._threads)

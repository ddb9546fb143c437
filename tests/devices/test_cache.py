"""The bound on compiled code: what was used least recently goes first, and nothing else goes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rammer.devices.cache import Cache, CacheWarning, CodeCache, content_key, in_scratch_folder

BLOB = bytes(100 - 32)  # a checksum of 32 bytes comes before it: 100 bytes on disk
DAY = 86400.0


def keys(count: int) -> list[str]:
    return [content_key(str(i)) for i in range(count)]


def path_of(cache_dir: Path, key: str) -> Path:
    return cache_dir / "rammer-objects" / key[:2] / key[2:]


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * DAY,) * 2)


def filled(cache_dir: Path, count: int) -> list[str]:
    """So many blobs, as other processes put them: the first one was used longest ago."""
    found = keys(count)
    for i, key in enumerate(found):
        Cache(cache_dir / "rammer-objects").put(key, BLOB)
        age(path_of(cache_dir, key), count - i)
    return found


def kept(cache_dir: Path, among: list[str]) -> list[int]:
    return [i for i, key in enumerate(among) if path_of(cache_dir, key).exists()]


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    old = filled(tmp_path, 10)
    cache = CodeCache(tmp_path, 1000)
    cache.put(content_key("new"), BLOB)
    assert kept(tmp_path, old) == [3, 4, 5, 6, 7, 8, 9]  # and the new one: eight tenths
    assert cache.get(content_key("new")) == BLOB


def test_what_is_got_counts_as_used(tmp_path: Path) -> None:
    old = filled(tmp_path, 10)
    cache = CodeCache(tmp_path, 1000)
    assert cache.get(old[0]) == BLOB
    cache.put(content_key("new"), BLOB)
    assert kept(tmp_path, old) == [0, 4, 5, 6, 7, 8, 9]


def test_blobs_are_marked_now_and_then_only(tmp_path: Path) -> None:
    (key,) = filled(tmp_path, 1)
    path = path_of(tmp_path, key)
    age(path, 0)
    before = path.stat().st_mtime_ns
    CodeCache(tmp_path, 1000).get(key)
    assert path.stat().st_mtime_ns == before


def test_damaged_blobs_are_not_marked(tmp_path: Path) -> None:
    (key,) = filled(tmp_path, 1)
    path = path_of(tmp_path, key)
    path.write_bytes(b"damaged")
    age(path, 3)
    before = path.stat().st_mtime_ns
    assert CodeCache(tmp_path, 1000).get(key) is None
    assert path.stat().st_mtime_ns == before


def test_a_process_stays_within_the_bound(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path, 1000)
    for i, key in enumerate(keys(100)):
        cache.put(key, BLOB)
        assert len(kept(tmp_path, keys(100))) <= 10
        assert i < 5 or len(kept(tmp_path, keys(100))) > 5


def test_nobody_looks_at_each_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    sweep = CodeCache._sweep

    def look(self: CodeCache) -> None:
        looks.append(1)
        sweep(self)

    monkeypatch.setattr(CodeCache, "_sweep", look)
    for key in keys(100):
        CodeCache(tmp_path, 10_000).put(key, BLOB)  # a tenth has room for ten
    assert len(looks) == 10


def test_a_bound_of_nothing_keeps_nothing(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path, 0)
    for key in keys(3):
        cache.put(key, BLOB)
    assert kept(tmp_path, keys(3)) == []


def test_what_was_measured_stays(tmp_path: Path) -> None:
    peaks = Cache(tmp_path / "peaks")
    peaks.put(content_key("peaks"), BLOB)
    database = tmp_path / "profile.sqlite"
    database.write_bytes(bytes(5000))
    for path in (database, *(tmp_path / "peaks").rglob("*")):
        age(path, 1000)
    CodeCache(tmp_path, 10).put(content_key("new"), BLOB)
    assert peaks.get(content_key("peaks")) == BLOB
    assert database.exists()


def test_leftovers_of_killed_processes_go(tmp_path: Path) -> None:
    (key,) = filled(tmp_path, 1)
    shard = path_of(tmp_path, key).parent
    for name, days in (("old", 1.5), ("young", 0.5)):
        (tmp_path / f"rammer-work-{name}").mkdir()
        (tmp_path / f"rammer-work-{name}" / "kernel.c").write_bytes(BLOB)
        (shard / f".new-{name}").write_bytes(BLOB)
        for path in (tmp_path / f"rammer-work-{name}", shard / f".new-{name}"):
            age(path, days)
    CodeCache(tmp_path, 1 << 20).put(content_key("new"), BLOB)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rammer-objects", "rammer-work-young"]
    assert [path.name for path in shard.glob(".new-*")] == [".new-young"]
    assert path_of(tmp_path, key).exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (key,) = filled(tmp_path, 1)
    kept_files = [
        tmp_path / "work-2024" / "thesis.tex",
        tmp_path / "objects" / key[:2] / key[2:],
        path_of(tmp_path, key).with_name("notes"),
    ]
    for path in kept_files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(5000))
        age(path, 1000)
        age(path.parent, 1000)
    CodeCache(tmp_path, 10).put(content_key("new"), BLOB)
    assert not path_of(tmp_path, key).exists()
    assert all(path.exists() for path in kept_files)


def test_blobs_that_others_take_away_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = filled(tmp_path, 10)
    unlink = Path.unlink

    def after_another(self: Path, *, missing_ok: bool = False) -> None:
        unlink(self)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", after_another)
    CodeCache(tmp_path, 1000).put(content_key("new"), BLOB)
    assert kept(tmp_path, old) == [3, 4, 5, 6, 7, 8, 9]


def test_a_folder_from_which_nothing_may_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = filled(tmp_path, 10)

    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    CodeCache(tmp_path, 1000).put(content_key("new"), BLOB)
    assert len(kept(tmp_path, old)) == 10


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning):
        CodeCache(tmp_path / "file", 1000).put(content_key("new"), BLOB)


def test_several_processes_and_threads_share_a_bound(tmp_path: Path) -> None:
    program = (
        "import sys; from concurrent.futures import ThreadPoolExecutor; from pathlib import Path\n"
        "from rammer.devices.cache import CodeCache, content_key\n"
        "def work(i):\n"
        "    cache, key = CodeCache(Path(sys.argv[1]), 10_000), content_key(str(i % 300))\n"
        "    cache.put(key, bytes(68))\n"
        "    assert cache.get(key) in (None, bytes(68))\n"
        "with ThreadPoolExecutor(4) as pool: list(pool.map(work, range(600)))\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in started:
        _, log = process.communicate()
        assert process.returncode == 0, log.decode()
    # Each may put a tenth before it looks again, and take away what others have put since it looked.
    assert 20 <= len(kept(tmp_path, keys(300))) <= 200
    assert not list(tmp_path.rglob(".new-*"))


# --- Who may write there ----------------------------------------------------------------------------------------------


def test_folders_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".cache" / "rammer"
    before = os.umask(0)
    try:
        CodeCache(folder, 1000).put(content_key("new"), BLOB)
    finally:
        os.umask(before)
    made = [folder.parent.parent, folder.parent, folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert len(made) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert stat.S_IMODE(path_of(folder, content_key("new")).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_blob_that_others_may_have_planted_is_not_read(tmp_path: Path, mode: int, depth: int) -> None:
    key = content_key("planted")
    Cache(tmp_path / "rammer-objects").put(key, BLOB)
    (tmp_path, tmp_path / "rammer-objects", path_of(tmp_path, key).parent)[depth].chmod(mode)
    cache = CodeCache(tmp_path, 1000)
    with pytest.warns(CacheWarning, match=r"others may write in .* run chmod -R go-w"):
        assert cache.get(key) is None
    cache.put(content_key("new"), BLOB)  # it warns once
    assert not path_of(tmp_path, content_key("new")).exists() or depth == 2


def test_a_folder_among_those_of_others_is_used(tmp_path: Path) -> None:
    """As in /tmp, where nobody can take away or replace what is another's."""
    tmp_path.chmod(0o1777)
    cache = CodeCache(tmp_path, 1000)
    cache.put(content_key("new"), BLOB)
    assert cache.get(content_key("new")) == BLOB


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    (key,) = filled(tmp_path, 1)
    os.chown(tmp_path / "rammer-objects", 12345, -1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert CodeCache(tmp_path, 1000).get(key) is None


def test_nothing_is_compiled_where_others_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert not in_scratch_folder(tmp_path, lambda folder: folder.is_relative_to(tmp_path))
    tmp_path.chmod(0o755)
    assert in_scratch_folder(tmp_path, lambda folder: folder.is_relative_to(tmp_path))

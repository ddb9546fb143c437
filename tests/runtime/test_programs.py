"""Sets of programs: constants once, in memory and in the file, and programs made as they are asked for."""

import threading

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer.errors import ArtifactCorruptError, ArtifactWriteError, InputShapeError
from rammer.pipelines.saved import SET_READERS
from rammer.runtime.programs import Key, ProgramSet, shapes_of
from tests.support.artifacts import rewrite

FEATURES, CLASSES = 256, 128
W = np.random.default_rng(0).standard_normal((FEATURES, CLASSES)).astype(np.float32)
WEIGHT_BYTES = W.nbytes


def build(shapes, entry="", device="cpu", veus=2):
    """Rows through a product; the entry "negative" gives the opposite."""
    ((rows, _),) = shapes
    last = "y = Neg(z)" if entry else "y = Identity(z)"
    text = f"g (float[{rows}, {FEATURES}] x) => (float[{rows}, {CLASSES}] y) {{ z = MatMul(x, w)  {last} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    return rammer.compile(model, device, veus=veus)


def shapes(rows):
    return ((rows, FEATURES),)


def rows_of(count):
    return np.random.default_rng(count).standard_normal((count, FEATURES)).astype(np.float32)


def large_constants(program):
    """The blocks of constants that programs may share, by address."""
    files = program._source.files
    return {np.asarray(memoryview(content)).ctypes.data for name, content in files.items() if "constants/" in name}


@pytest.fixture(scope="module")
def three():
    """Two sizes and another entry; nobody adds to it."""
    programs = ProgramSet()
    for rows, entry in ((8, ""), (4, ""), (4, "negative")):
        programs.add(build(shapes(rows), entry), entry)
    return programs


@pytest.fixture(scope="module")
def saved(three, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "set.rammer"
    three.save(path)
    return path


def check(programs):
    for rows, entry, sign in ((4, "", 1), (8, "", 1), (4, "negative", -1)):
        x = rows_of(rows)
        np.testing.assert_allclose(programs.select(shapes(rows), entry)(x), sign * x @ W, rtol=1e-4, atol=1e-4)


def test_each_program_computes_its_own(three):
    check(three)
    assert list(three.programs) == [Key("", shapes(4)), Key("", shapes(8)), Key("negative", shapes(4))]
    assert [shapes_of(program) for program in three.programs.values()] == [shapes(4), shapes(8), shapes(4)]


def test_constants_are_in_memory_once(three):
    addresses = [large_constants(program) for program in three.programs.values()]
    assert len(addresses[0]) == 1
    assert addresses[0] == addresses[1] == addresses[2]


def test_models_keep_their_results_where_nothing_is_shared(three):
    other = build(shapes(4))
    other.share([])
    np.testing.assert_array_equal(other(rows_of(4)), three.select(shapes(4))(rows_of(4)))


def test_equal_names_with_other_contents_are_not_shared():
    one, other = build(shapes(4)), build(shapes(4))
    (name,) = (name for name in one._source.files if "constants/" in name)
    one._source.files[name] = bytes(WEIGHT_BYTES)  # as a forged file may have it
    other.share([one])
    x = rows_of(4)
    np.testing.assert_allclose(other(x), x @ W, rtol=1e-4, atol=1e-4)


def test_a_file_has_constants_once(three, saved, tmp_path):
    three.select(shapes(4)).save(tmp_path / "one.rammer")
    assert saved.stat().st_size < (tmp_path / "one.rammer").stat().st_size + WEIGHT_BYTES


def test_round_trip(three, saved):
    loaded = rammer.load(saved)
    assert isinstance(loaded, ProgramSet)
    assert list(loaded.programs) == list(three.programs)
    check(loaded)
    addresses = [large_constants(program) for program in loaded.programs.values()]
    assert addresses[0] == addresses[1] == addresses[2]


def test_saving_again_gives_the_same_bytes(saved, tmp_path):
    rammer.load(saved).save(tmp_path / "again.rammer")
    assert (tmp_path / "again.rammer").read_bytes() == saved.read_bytes()


def test_a_kind_has_its_own_reader(three, tmp_path, monkeypatch):
    monkeypatch.setitem(SET_READERS, "rows", lambda programs, about: (len(programs), about))
    three.save(tmp_path / "rows.rammer", kind="rows", about={"buckets": [4, 8]})
    assert rammer.load(tmp_path / "rows.rammer") == (3, {"buckets": [4, 8]})


def test_a_file_has_programs_for_several_numbers_of_units(tmp_path):
    programs = ProgramSet(lambda asked, entry: build(asked, veus=int(entry)))
    for entry in ("1", "2"):
        programs.select(shapes(4), entry)
    programs.save(tmp_path / "counts.rammer")
    loaded, x = rammer.load(tmp_path / "counts.rammer"), rows_of(4)
    for entry in ("1", "2"):
        program = loaded.select(shapes(4), entry)
        assert program.report["device"]["veus"] == int(entry)
        np.testing.assert_allclose(program(x), x @ W, rtol=1e-4, atol=1e-4)


def test_an_unknown_kind_is_refused(saved, tmp_path):
    path = tmp_path / "copy.rammer"
    path.write_bytes(saved.read_bytes())
    with pytest.raises(ArtifactCorruptError, match="of the kind 'columns', which this Rammer does not have"):
        rammer.load(rewrite(path, kind="columns"))


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        (1, "header.meta.programs is not a list"),
        ([{"entry": "", "meta": {}}], r"programs\[0\] has no 'sections'"),
        ([{"entry": "", "meta": {}, "sections": {}}], "header.meta has no 'name'"),
    ],
)
def test_crafted_headers(saved, tmp_path, programs, reason):
    path = tmp_path / "copy.rammer"
    path.write_bytes(saved.read_bytes())
    with pytest.raises(ArtifactCorruptError, match=reason):
        rammer.load(rewrite(path, programs=programs))


def test_a_missing_program_is_built_once():
    built = []

    def slowly(shapes, entry):
        built.append(shapes)
        started.set()
        assert go_on.wait(60)
        return build(shapes, entry, "reference")

    started, go_on = threading.Event(), threading.Event()
    programs = ProgramSet(slowly)
    found = []
    threads = [threading.Thread(target=lambda: found.append(programs.select(shapes(4)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert started.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert built == [shapes(4)]
    assert len(found) == 3
    assert found[0] is found[1] is found[2]


def test_a_program_that_cannot_be_built_is_tried_again():
    answers = [RuntimeError("no room"), build(shapes(4), device="reference")]

    def unreliable(shapes, entry):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    programs = ProgramSet(unreliable)
    with pytest.raises(RuntimeError, match="no room"):
        programs.select(shapes(4))
    assert programs.select(shapes(4)) is programs.select(shapes(4))


def test_the_least_recently_used_program_goes_first():
    programs = ProgramSet(lambda shapes, entry: build(shapes, entry, "reference"), limit=2)
    for rows in (1, 2, 1, 3):
        programs.select(shapes(rows))
    assert [key.shapes for key in programs.programs] == [shapes(1), shapes(3)]
    with pytest.raises(ValueError, match="a limit of 0 programs"):
        ProgramSet(limit=0)


def test_shapes_without_a_program(three):
    with pytest.raises(InputShapeError, match=r"no program for inputs of \[5, 256\]") as caught:
        three.select(shapes(5))
    assert caught.value.hint.startswith("there are programs for [4, 256], [8, 256];")
    with pytest.raises(InputShapeError) as caught:
        three.select(shapes(4), "absent")
    assert caught.value.hint.startswith("there are programs for nothing;")


def test_programs_that_live_in_memory_cannot_be_saved(tmp_path):
    programs = ProgramSet()
    programs.add(build(shapes(4), device="reference"))
    with pytest.raises(ArtifactWriteError, match="reference device cannot be saved"):
        programs.save(tmp_path / "set.rammer")
    assert not list(tmp_path.iterdir())

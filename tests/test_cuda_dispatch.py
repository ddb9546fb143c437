"""The jump from a record to the function of its rKernel. That it compiles, `test_cuda_compile.py` shows."""

import re

from rammer.devices.cuda.emit.dispatch import emit_dispatch


def jumps(text):
    """What each number leads to: a function, or None; and those that are not jumped to by what all lanes have alike."""
    tables = re.findall(r'branchtargets (.*?);\\n"\s+"brx.idx (%\d), (\w+);', text)
    calls = dict(re.findall(r'"(\w+): \{.* call (\w+),', text))
    assert '"done:' in text
    found: list[list[str | None]] = []
    for labels, index, _ in tables:
        assert index == f"%{len(found)}"
        found.append([calls.get(label) for label in labels.split(", ")])
    return found


def test_each_number_leads_to_its_function():
    assert jumps(emit_dispatch({0: "map_a", 1: "map_b", 3: "reduce_c"}, 4)) == [["map_a", "map_b", None, "reduce_c"]]


def test_numbers_behind_the_last_function_lead_nowhere():
    assert jumps(emit_dispatch({1: "map_a"}, 3)) == [[None, "map_a", None]]


def test_where_lanes_come_apart_the_compiler_does_not_learn_that_they_go_together():
    text = emit_dispatch({0: "map_a", 1: "map_b", 2: "map_c"}, 3, apart=[1])
    assert jumps(text) == [["map_a", None, "map_c"], [None, "map_b", None]]
    assert re.search(r"branchtargets kernel0, apart, kernel2;", text)
    assert '"r"(alike), "r"(kernel)' in text


def test_without_functions_there_is_no_jump():
    text = emit_dispatch({}, 2)
    assert "void rammer_execute(uint32_t kernel, const rammer_record *record)" in text
    assert "asm" not in text

"""The jump from a record to the function of its rKernel. That it compiles, `test_cuda_compile.py` shows."""

import re

from rammer.devices.cuda.emit.dispatch import Target, emit_dispatch


def jumps(text):
    """What each number leads to: a function, or None; and those that are not jumped to by what all lanes have alike."""
    tables = re.findall(r'branchtargets (.*?);\\n"\s+"brx.idx (%\d), (\w+);', text)
    calls = dict(re.findall(r'"(\w+): \{.* call (?:\(to\), )?(\w+),', text))
    assert '"done:' in text
    found: list[list[str | None]] = []
    for labels, index, _ in tables:
        assert index == f"%{len(found) + 1}"
        found.append([calls.get(label) for label in labels.split(", ")])
    return found


def test_each_number_leads_to_its_function():
    assert jumps(emit_dispatch([Target("map_a"), Target("map_b"), Target("reduce_c")])) == [
        ["map_a", "map_b", "reduce_c"]
    ]


def test_rkernels_of_a_family_lead_to_its_walk():
    walk = Target("walk_0", walks=True)
    text = emit_dispatch([walk, Target("map_a"), walk])
    assert jumps(text) == [["walk_0", "map_a", "walk_0"]]
    assert text.count("call (to), walk_0, (from)") == 1


def test_only_a_walk_says_where_it_came_to():
    text = emit_dispatch([Target("walk_0", walks=True), Target("map_a")])
    assert "st.param.b32 [from], %0; call (to), walk_0, (from); ld.param.b32 %0, [to]; bra done;" in text
    assert "st.param.b64 [at], %3; call map_a, (at); bra done;" in text
    assert '"+r"(position) : "r"(alike), "r"(kernel), "l"(record)' in text


def test_where_lanes_come_apart_the_compiler_does_not_learn_that_they_go_together():
    apart = Target("walk_1", walks=True, apart=True)
    text = emit_dispatch([Target("map_a"), apart, Target("map_c"), apart])
    assert jumps(text) == [["map_a", None, "map_c", None], [None, "walk_1", None, "walk_1"]]
    assert re.search(r"branchtargets call_map_a, apart, call_map_c, apart;", text)


def test_without_functions_there_is_no_jump():
    text = emit_dispatch([])
    assert "uint32_t rammer_execute(uint32_t kernel, const rammer_record *record, uint32_t position)" in text
    assert "asm" not in text

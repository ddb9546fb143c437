"""Update trees: what is tried in which order, given what gains."""

from rammer.schedule.update_tree import Variable, each, exhaustive, parallel, prefix

A, B, C = (Variable(part=part, name="places", options=options) for part, options in (("a", 3), ("b", 2), ("c", 4)))


def tried(tree, gaining=()):
    """Everything that a tree tries where the pairs of `gaining` gain."""
    found = []
    change = next(tree, None)
    while change is not None:
        found.append({variable.part: option for variable, option in change.items()})
        try:
            change = tree.send({variable: (variable, option) in gaining for variable, option in change.items()})
        except StopIteration:
            break
    return found


def test_a_variable_has_each_other_option_tried():
    assert tried(each(A)) == [{"a": 1}, {"a": 2}]
    assert tried(each(Variable(part="d", name="places", options=1))) == []


def test_every_combination_is_tried():
    expected = [{"a": 0, "b": 1}, {"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 0}, {"a": 2, "b": 1}]
    assert tried(exhaustive([A, B])) == expected


def test_a_prefix_goes_in_order():
    assert tried(prefix([each(B), each(A)])) == [{"b": 1}, {"a": 1}, {"a": 2}]


def test_parts_are_explored_side_by_side():
    """As many trials as the longest child has."""
    assert tried(parallel([each(A), each(B), each(C)])) == [{"a": 1, "b": 1, "c": 1}, {"a": 2, "c": 2}, {"c": 3}]
    assert tried(parallel([])) == []


def test_each_child_learns_what_became_of_its_own():
    told = []

    def child(variable):
        for option in range(1, variable.options):
            told.append((yield {variable: option}))

    tried(parallel([child(A), child(B)]), {(A, 2), (B, 1)})
    assert told == [{A: False}, {B: True}, {A: True}]

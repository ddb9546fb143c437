"""How messages name things."""

from __future__ import annotations

from rammer.ir.task import ROperator, Tensor


def describe_tensor(tensor: Tensor) -> str:
    """A tensor."""
    return f"tensor {tensor.id} '{tensor.name}'"


def describe_operator(operator: ROperator) -> str:
    """An rOperator."""
    return f"rOperator {operator.id} '{operator.name}' ({operator.kind})"


def describe_task(operator: ROperator, index: int) -> str:
    """An rTask."""
    return f"rTask {index} of {describe_operator(operator)}"


def describe_step(program: int, veu: int, step: int) -> str:
    """A place in a schedule."""
    return f"vEU {veu}, step {step} of rProgram {program}"


def sources_of(*operators: ROperator) -> str:
    """The nodes of the user's model that rOperators stand for."""
    return "; ".join(dict.fromkeys(str(source) for operator in operators for source in operator.sources))

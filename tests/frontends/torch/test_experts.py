"""Products of rows with the matrices of their groups, as layers of experts compute them, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch")

from rammer.errors import UnsupportedFeatureError  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Module, check, imported, kinds, normal  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this PyTorch has no grouped products"),
]


def by_library():
    """What the library transformers calls where PyTorch has no grouped product of an element type."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):

        def by_groups(input, weight, offs):
            result = input.new_zeros(input.shape[0], weight.shape[2])
            for group, (start, end) in enumerate(zip([0, *offs.tolist()], offs.tolist(), strict=False)):
                result[start:end] = input[start:end] @ weight[group]
            return result

        schema = "(Tensor input, Tensor weight, Tensor offs) -> Tensor"
        grouped = torch.library.custom_op(
            "transformers::grouped_mm_fallback", by_groups, mutates_args=(), schema=schema
        )
        grouped.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))
    return torch.ops.transformers.grouped_mm_fallback


ENDS = torch.tensor([2, 2, 5, 8], dtype=torch.int32)  # the second group has no rows


@pytest.mark.parametrize("ends", [ENDS, ENDS.long(), torch.tensor([0, 0, 0, 6])])
def test_rows_by_groups(ends):
    check(by_library(), normal(8, 6), normal(4, 6, 5), ends)
    assert kinds(by_library(), normal(8, 6), normal(4, 6, 5), ends)[-1] == "GroupedMatMul"


def test_products_of_bfloat16():
    x, weight = normal(8, 16).bfloat16(), normal(4, 16, 8).bfloat16()
    check(
        lambda x, w: torch._grouped_mm(x, w.transpose(1, 2).contiguous().transpose(1, 2), offs=ENDS),
        x,
        weight,
        tolerance=2e-2,
    )
    check(torch._grouped_mm, x.view(4, 2, 16).repeat(1, 4, 1), weight, tolerance=2e-2)


def test_an_expert_is_chosen_for_each_row():
    class Experts(Module):
        def __init__(self):
            super().__init__()
            self.router = torch.nn.Linear(6, 4)
            self.weight = torch.nn.Parameter(normal(4, 6, 5))

        def forward(self, x):
            gates, chosen = self.router(x).softmax(-1).topk(2)
            order = torch.argsort(chosen.flatten(), stable=True)
            ends = torch.histc(chosen.flatten().float(), bins=4, min=0, max=3).cumsum(0).int()
            rows = by_library()(x[order // 2], self.weight, ends)
            weighted = rows * gates.flatten()[order][:, None]
            return torch.zeros(8, 5).index_add(0, order // 2, weighted)

    torch.manual_seed(0)
    check(Experts(), normal(8, 6))


def test_sums_over_groups_are_refused():
    x, y = normal(16, 8).bfloat16(), normal(8, 16).bfloat16()
    with pytest.raises(UnsupportedFeatureError, match="grouped product"):
        imported(lambda x, y: torch._grouped_mm(x, y, offs=torch.tensor([4, 8], dtype=torch.int32)), x, y)

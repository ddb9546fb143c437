"""What of PyTorch's database of operators Rammer refuses, by the code of the error (`test_op_db.py`)."""

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {
    # There is no converter: what decomposes by iteration, or is rare.
    "R203": """
        _segment_reduce.lengths _segment_reduce.offsets hash_tensor histogramdd igamma
        igammac linalg.cond linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.ldl_factor
        linalg.ldl_factor_ex linalg.ldl_solve linalg.matrix_rank linalg.matrix_rank.hermitian
        linalg.norm.subgradients_at_zero linalg.pinv linalg.pinv.hermitian linalg.pinv.singular linalg.svdvals
        nextafter nn.functional.embedding nn.functional.linear_cross_entropy.chunked
        nn.functional.linear_cross_entropy.chunked_none norm.nuc pca_lowrank pinverse resize_as_ special.airy_ai
        special.zeta svd_lowrank unique_consecutive
    """,
    # Complex results, rectifiers that are drawn, memory beside an argument, degrees of polynomials
    # that are computed, masks that broadcast what they select from.
    "R204": """
        as_strided.partial_views cdouble cfloat complex fft.fft fft.fft2 fft.fftn fft.ifft fft.ifft2 fft.ifftn
        fft.ihfft fft.ihfft2 fft.ihfftn fft.rfft fft.rfft2 fft.rfftn masked_select nn.functional.rrelu polar
        special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
        special.chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he
        special.laguerre_polynomial_l special.legendre_polynomial_p special.shifted_chebyshev_polynomial_t
        special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
        special.shifted_chebyshev_polynomial_w stft view_as_complex
    """,
    # PyTorch cannot capture it.
    "R220": """
        allclose corrcoef cov equal narrow nn.functional.ctc_loss
    """,
    # A choice of Python depends on values.
    "R221": """
        nn.functional.gaussian_nll_loss
    """,
    # It writes to its arguments.
    "R223": """
        _native_batch_norm_legit native_batch_norm nn.functional.batch_norm
    """,
}

NOT_COMPARED = {
    # leave memory as it is
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    # draw random numbers (`test_random_numbers.py`)
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "normal",
    "normal.in_place",
    "normal.number_mean",
    "rand_like",
    "randint_like",
    "randn_like",
    "uniform",
    # run on GPUs, are sparse, or of a type that PyTorch's processor lacks
    "chalf",
    "to_sparse",
    "jiterator_unary",
    "jiterator_binary",
    "jiterator_4inputs_with_extra_args",
    "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs",
}

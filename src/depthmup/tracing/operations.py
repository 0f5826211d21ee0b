"""Names of ATen operations, grouped by what a reader of dataflow needs to know of them."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAME = _names(
    """clone detach alias _to_copy contiguous lift_fresh lift_fresh_copy _unsafe_copy to copy
    positive view_as"""
)
"""The tensor stays what it is, stored differently."""

RESHAPES = _names("view _unsafe_view reshape _reshape_alias")

TRANSPARENT = (
    SAME | RESHAPES | _names("t transpose permute expand unsqueeze squeeze native_dropout dropout")
)
"""What does not change the values of a stream, only where they lie."""

CUTS = _names("select slice split split_with_sizes chunk narrow unbind")
"""A part of a tensor."""

POOLED = _names("avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices constant_pad_nd")
"""A stream that a stage takes over without a matrix: at fewer places, with zeros beside it."""

MAPS = _names(
    """neg exp log sigmoid tanh softplus relu silu gelu abs sqrt rsqrt reciprocal pow square clamp
    sin cos log1p expm1 _softmax softmax"""
)
"""One number in, one number out."""

SCALAR_MAPS = _names("mul add sub rsub div neg exp log sqrt rsqrt reciprocal pow square")
"""Arithmetic by which models compute constants from constants."""

ELEMENTWISE = _names(
    """mul add sub rsub div where lerp addcmul addcdiv maximum minimum pow cat stack complex polar
    _prelu_kernel
    native_layer_norm native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training _native_batch_norm_legit_functional
    _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm native_group_norm
    _fused_rms_norm batch_norm layer_norm rms_norm index_put copy fill masked_fill slice_scatter
    select_scatter"""
)
"""Combine tensors entry by entry; a parameter here is a gain, a bias or an added embedding."""

MATRIX_PRODUCTS = {"mm": 0, "bmm": 0, "_grouped_mm": 0, "addmm": 1, "baddbmm": 1, "matmul": 0}
"""Matrix products, and where the first of their two factors stands among the arguments."""

CONVOLUTIONS = _names("convolution _convolution")

SOFTMAX = _names("softmax _softmax _safe_softmax")

ATTENTION = "_scaled_dot_product"
"""How the names of fused attention begin."""

NONLINEAR = SOFTMAX | _names(
    "relu silu gelu tanh sigmoid elu leaky_relu hardtanh hardswish mish softplus threshold"
)

POSITIVE = _names("relu abs sigmoid softplus gelu silu mish exp square _softmax elu leaky_relu")
"""Their mean over random inputs is positive."""

NORMALIZING = _names(
    """native_layer_norm rsqrt _fused_rms_norm native_group_norm native_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training"""
)

REDUCTIONS = _names("sum mean linalg_vector_norm norm var var_mean amax amin")
"""Several numbers in, one out."""

AFFINE_NORMS = {
    "native_layer_norm": (2, 3),
    "native_batch_norm": (1, 2),
    "_native_batch_norm_legit": (1, 2),
    "_native_batch_norm_legit_no_training": (1, 2),
    "native_group_norm": (1, 2),
    "_fused_rms_norm": (2, 2),
}
"""Norms, and where their gain and their bias stand among the arguments."""

BATCH_NORMS = _names(
    """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
    _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_no_update
    cudnn_batch_norm"""
)
"""In training they take away each channel's mean over the batch."""

LENGTHS = AFFINE_NORMS.keys() | _names("rsqrt linalg_vector_norm norm")
"""What a tensor is divided by where it is normalized, or the norm itself."""

STANDARDIZING = BATCH_NORMS | AFFINE_NORMS.keys() | _names("mean var var_mean std std_mean")
"""What a weight meets first where its entries are brought to mean 0 and variance 1."""

FOURIER = _names("_fft_r2c _fft_c2r _fft_c2c")

KEEPS_AXES = FOURIER | _names(
    "triu tril flip roll constant_pad_nd _conj _conj_physical resolve_conj resolve_neg"
)
"""Every dimension stays the one it is; linear."""

COMPLEX_PAIRS = _names("view_as_complex view_as_real")
"""A last dimension of two, real and imaginary part, ends or begins."""

HOMOGENEOUS = (
    SAME
    | RESHAPES
    | KEEPS_AXES
    | COMPLEX_PAIRS
    | _names(
        """t transpose permute expand repeat unsqueeze squeeze slice split split_with_sizes chunk
        narrow select unbind index index_select gather neg sum mean cumsum
        avg_pool2d _adaptive_avg_pool2d avg_pool1d pixel_shuffle native_dropout
        dropout relu abs leaky_relu max_pool2d_with_indices amax amin repeat_interleave"""
    )
)
"""A * f(x) = f(A * x) in the first argument, for every A > 0."""

LINEAR = HOMOGENEOUS - _names("relu abs leaky_relu max_pool2d_with_indices amax amin")

ADDITIONS = _names("add sub")

SUMS = ADDITIONS | _names("cat stack index_add index_put index_copy scatter_add")
"""Sums and collections of tensors: multiplied when every part is."""

SHAPED = _names(
    """zeros_like new_zeros empty_like new_empty ones_like new_ones full_like new_full rand_like
    randn_like"""
)
"""Of the tensor they are given they take the shape alone."""

RANDOM = _names(
    """randn rand randn_like rand_like normal normal_functional uniform bernoulli exponential
    log_normal cauchy geometric multinomial poisson random randint randint_like randperm"""
)
"""Drawn anew at every call."""

COMPARISONS = _names("ge gt le lt")

DECISIONS = _names("argmin argmax")
"""Places in a tensor: what they are made from has no gradient through them."""

ZEROS = _names("zeros zeros_like new_zeros empty empty_like new_empty")
"""Multiplied by anything, they stay what they are."""

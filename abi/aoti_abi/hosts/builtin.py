"""The built-in host: the toolkit's own C library, and the symbols that it exports for plugins.

The inspector's ``builtin`` host is this list, and a test compares it with the dynamic symbols of the built
library, so it is exact. The library's own control functions (``aoti_shim_*``) are no part of it: no plugin
imports them.

A function is listed only if it does its work. What could only fail (the proxy executor, which runs Python
operators) is left out, so that a plugin that needs it is refused before it is loaded.
"""

from __future__ import annotations

from aoti_abi.codes import DEVICE_TYPES, DTYPES_BY_NAME, LAYOUTS, MEMORY_FORMATS, OTHER_DEVICE_TYPES
from aoti_abi.host_descriptor import HostDescriptor
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import Provides


def _names(prefix: str, words: str) -> frozenset[str]:
    return frozenset(prefix + word for word in words.split())


#: Making, sharing, viewing and deleting tensors.
TENSORS = _names(
    "aoti_torch_",
    """
    create_tensor_from_blob create_tensor_from_blob_v2 empty_strided empty_strided_pinned
    new_uninitialized_tensor new_tensor_handle assign_tensors assign_tensors_out delete_tensor_object
    _reinterpret_tensor as_strided _alloc_from_pool view_dtype
    clone clone_preserve_strides copy_ tensor_copy_ zero_
    """,
)

#: What a plugin asks about a tensor.
METADATA = _names(
    "aoti_torch_",
    """
    get_data_ptr get_dim get_numel get_size get_sizes get_stride get_strides get_storage_offset
    get_storage_size get_storage_numel get_dtype get_layout get_device_type get_device_index
    is_contiguous is_defined
    """,
)

#: The integers that a plugin reads while it is being loaded.
CODES = frozenset(
    f"aoti_torch_{group}_{name}"
    for group, names in (
        ("dtype", (*DTYPES_BY_NAME, "element_size")),
        ("device_type", (*DEVICE_TYPES, *OTHER_DEVICE_TYPES)),
        ("layout", LAYOUTS),
        ("memory_format", MEMORY_FORMATS),
    )
    for name in names
)

#: Scalars in and out of tensors.
SCALARS = _names(
    "aoti_torch_scalar_to_tensor_",
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float32 float64 complex64 complex128",
) | _names(
    "aoti_torch_item_",
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64",
)

#: Grad mode, checks, warnings, debugging.
SURROUNDINGS = _names(
    "aoti_torch_",
    """
    grad_mode_is_enabled grad_mode_set_enabled check warn print_tensor_handle check_inf_and_nan
    """,
)

#: Profiling: accepted, and recorded nowhere.
PROFILING = frozenset({"aoti_record_function_start", "aoti_record_function_end"}) | _names(
    "aoti_torch_",
    "int64_to_ivalue str_to_ivalue strlist_to_ivalue tensor_to_ivalue delete_c10_value_object",
)

#: Devices and streams, through the table of device functions.
DEVICES = _names(
    "aoti_torch_",
    """
    create_device_guard delete_device_guard device_guard_set_index get_current_device_index
    create_cuda_guard delete_cuda_guard cuda_guard_set_index
    create_cuda_stream_guard delete_cuda_stream_guard get_current_cuda_stream
    cuda_caching_allocator_raw_alloc cuda_caching_allocator_raw_delete
    """,
)

#: The part of ``torch/csrc/stable/c/shim.h`` that concerns tensors.
STABLE = _names(
    "torch_",
    """
    from_blob has_storage get_const_data_ptr get_mutable_data_ptr set_current_cuda_stream
    dtype_float8_e8m0fnu dtype_float4_e2m1fn_x2
    exception_get_what exception_get_what_without_backtrace
    """,
)

#: Operators on the CPU.
CPU_OPERATORS = _names(
    "aoti_torch_cpu_",
    """
    mm_out addmm_out bmm_out baddbmm_out convolution _scaled_dot_product_flash_attention_for_cpu
    sort sort_stable topk cumsum cumprod nonzero view_dtype
    _linear_pointwise _linear_pointwise_binary mkldnn__convolution_pointwise
    mkldnn__convolution_pointwise_binary mkldnn__convolution_pointwise_binary_
    """,
)

#: Operators under names without a device: most of them deprecated.
UNNAMED_DEVICE_OPERATORS = _names(
    "aoti_torch_", "mm_out addmm_out bmm_out _mm_plus_mm_out convolution nonzero"
)

#: Functions of one and of two vectors, with the precision suffix that inductor's vector headers ask for.
_SLEEF_TENTHS = """
    acos acosh asin asinh atan atanh atan2 cos cosh erf exp exp2 expm1 lgamma log log10 log1p log2 pow
    sin sinh tan tanh
"""
_SLEEF_FUNCTIONS = (
    *((name, "_u10") for name in _SLEEF_TENTHS.split()),
    ("erfc", "_u15"),
    ("hypot", "_u05"),
    ("copysign", ""),
    ("fmod", ""),
    ("nextafter", ""),
)
_SLEEF_VECTORS = {
    "x86_64": ("f4", "d2", "f8", "d4", "f16", "d8"),
    "aarch64": ("f4", "d2"),
}
#: AVX-512 and AVX2 code takes a quicker sine and cosine in single precision.
_SLEEF_QUICK = {"x86_64": _names("Sleef_", "sinf8_u35 sinf16_u35 cosf8_u35 cosf16_u35")}
#: Vector mathematics, by machine (as in ``os.uname().machine``).
SLEEF: dict[str, frozenset[str]] = {
    machine: frozenset(
        f"Sleef_{name}{vector}{suffix}" for vector in vectors for name, suffix in _SLEEF_FUNCTIONS
    )
    | _SLEEF_QUICK.get(machine, frozenset())
    for machine, vectors in _SLEEF_VECTORS.items()
}

#: What every build of the built-in host provides, without the vector mathematics.
COMMON_SHIMS: frozenset[str] = frozenset().union(
    TENSORS,
    METADATA,
    CODES,
    SCALARS,
    SURROUNDINGS,
    PROFILING,
    DEVICES,
    STABLE,
    CPU_OPERATORS,
    UNNAMED_DEVICE_OPERATORS,
)


def builtin_shims(machine: str) -> frozenset[str]:
    """Return the symbols that the built-in host provides on a machine.

    Args:
        machine: ``x86_64``, ``aarch64``, ...: where there is no vector mathematics, the common ones remain.
    """
    return COMMON_SHIMS | SLEEF.get(machine, frozenset())


def _shims(machine: str, _version: str | None) -> Provides:
    return builtin_shims(machine).__contains__


HOST = HostDescriptor(
    name="builtin",
    title="the built-in host",
    shims=_shims,
    audited=("builtin",),
    drops_libtorch=True,
    clears_executable_stack=True,
    last_error=("aoti_shim_last_error", "aoti_shim_clear_error"),
    libraries={"cpu": ("libaoti_shim.so",)},
)

"""ExecuTorch's CUDA backend as a host: the shims over its SlimTensor, by ExecuTorch's release.

A plugin compiled with ``link_libtorch=False`` and ExecuTorch's options needs no other.
"""

from __future__ import annotations

from aoti_abi.host_descriptor import HostDescriptor
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import Provides

#: The releases that have the CUDA backend, oldest first.
RELEASES: tuple[str, ...] = ("1.1", "1.2", "1.3", "1.4", "1.5")

#: Every shim that the slim library of any release exports.
SLIM_SHIMS: frozenset[str] = frozenset(
    (
        "aoti_torch__reinterpret_tensor",
        "aoti_torch_assign_tensors_out",
        "aoti_torch_check",
        "aoti_torch_clone",
        "aoti_torch_clone_preserve_strides",
        "aoti_torch_copy_",
        "aoti_torch_create_cuda_guard",
        "aoti_torch_create_cuda_stream_guard",
        "aoti_torch_create_tensor_from_blob",
        "aoti_torch_create_tensor_from_blob_v2",
        "aoti_torch_cuda__weight_int4pack_mm",
        "aoti_torch_cuda_guard_set_index",
        "aoti_torch_cuda_int4_plain_mm",
        "aoti_torch_cuda_int5_plain_mm",
        "aoti_torch_cuda_int6_plain_mm",
        "aoti_torch_cuda_int8_plain_mm",
        "aoti_torch_cuda_rand",
        "aoti_torch_cuda_randint_low_out",
        "aoti_torch_cuda_sort_stable",
        "aoti_torch_delete_cuda_guard",
        "aoti_torch_delete_cuda_stream_guard",
        "aoti_torch_delete_tensor_object",
        "aoti_torch_device_type_cpu",
        "aoti_torch_device_type_cuda",
        "aoti_torch_dtype_bfloat16",
        "aoti_torch_dtype_bool",
        "aoti_torch_dtype_float16",
        "aoti_torch_dtype_float32",
        "aoti_torch_dtype_int16",
        "aoti_torch_dtype_int32",
        "aoti_torch_dtype_int64",
        "aoti_torch_dtype_int8",
        "aoti_torch_dtype_uint8",
        "aoti_torch_empty_strided",
        "aoti_torch_get_current_cuda_stream",
        "aoti_torch_get_data_ptr",
        "aoti_torch_get_device_index",
        "aoti_torch_get_device_type",
        "aoti_torch_get_dim",
        "aoti_torch_get_dtype",
        "aoti_torch_get_numel",
        "aoti_torch_get_sizes",
        "aoti_torch_get_storage_offset",
        "aoti_torch_get_storage_size",
        "aoti_torch_get_strides",
        "aoti_torch_grad_mode_is_enabled",
        "aoti_torch_grad_mode_set_enabled",
        "aoti_torch_item_bool",
        "aoti_torch_layout_strided",
        "aoti_torch_new_tensor_handle",
        "aoti_torch_warn",
    )
)


def slim_shims(_release: str) -> frozenset[str]:
    """Return the shims of one release (``"1.5"``)."""
    return SLIM_SHIMS


def _shims(_machine: str, version: str | None) -> Provides:
    return slim_shims(version or RELEASES[-1]).__contains__


HOST = HostDescriptor(
    name="executorch",
    title="ExecuTorch",
    shims=_shims,
    versions=RELEASES,
    default_version=RELEASES[-1],
    audited=("executorch",),
)

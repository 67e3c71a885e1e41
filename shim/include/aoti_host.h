/* What a plugin calls: the part of PyTorch's C shim that the built-in host implements.
 *
 * Signatures as PyTorch declares them (torch/csrc/inductor/aoti_torch/c/shim.h, shim_deprecated.h and
 * generated/c_shim_*.h; unchanged since PyTorch 2.4). A handle is a pointer to a struct of the host.
 */
#ifndef AOTI_HOST_H
#define AOTI_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t AOTITorchError;
typedef struct AtenTensorOpaque *AtenTensorHandle;
typedef struct AtenRecordFunctionOpaque *AtenRecordFunctionHandle;
typedef struct IValueMapOpaque *IValueMapHandle;
typedef struct C10IValueOpaque *C10IValueHandle;
typedef struct DeviceGuardOpaque *DeviceGuardHandle;
typedef struct CUDAGuardOpaque *CUDAGuardHandle;
typedef struct CUDAStreamGuardOpaque *CUDAStreamGuardHandle;

/* c10::complex<float> and c10::complex<double>, passed as two floats or doubles. */
struct aoti_complex64 {
    _Alignas(8) float real;
    float imag;
};
struct aoti_complex128 {
    _Alignas(16) double real;
    double imag;
};

#pragma GCC visibility push(default)

/* --- any device ---------------------------------------------------------------------------------------- */

AOTITorchError aoti_record_function_end(AtenRecordFunctionHandle guard);
AOTITorchError aoti_record_function_start(const char *name, IValueMapHandle kwargs, const C10IValueHandle *inputs, const uint64_t n_inputs, AtenRecordFunctionHandle *guard);
AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch__mm_plus_mm_out(AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle c, AtenTensorHandle d);
AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int64_t storage_offset, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1, AtenTensorHandle mat2, float beta, float alpha);
AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t *sizes_ptr, const int64_t *strides_ptr, AtenTensorHandle *ret);
AOTITorchError aoti_torch_assign_tensors(AtenTensorHandle src, AtenTensorHandle dst);
AOTITorchError aoti_torch_assign_tensors_out(AtenTensorHandle src, AtenTensorHandle *ret_dst);
AOTITorchError aoti_torch_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
void aoti_torch_check(bool cond, const char *func, const char *file, uint32_t line, const char *msg);
AOTITorchError aoti_torch_check_inf_and_nan(const char *tensor_name, AtenTensorHandle tensor);
AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle *ret);
AOTITorchError aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle *ret);
AOTITorchError aoti_torch_convolution(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, const int64_t *stride_ptr, int64_t stride_size, const int64_t *padding_ptr, int64_t padding_size, const int64_t *dilation_ptr, int64_t dilation_size, int transposed, const int64_t *output_padding_ptr, int64_t output_padding_size, int64_t groups, AtenTensorHandle *ret);
AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle src, int32_t non_blocking);
AOTITorchError aoti_torch_create_device_guard(int32_t device_index, DeviceGuardHandle *ret_guard);
AOTITorchError aoti_torch_create_tensor_from_blob(void *data, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *ret);
AOTITorchError aoti_torch_create_tensor_from_blob_v2(void *data, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *ret, int32_t layout, const uint8_t *opaque_metadata, int64_t opaque_metadata_size);
AOTITorchError aoti_torch_delete_c10_value_object(C10IValueHandle handle);
AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle guard);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
AOTITorchError aoti_torch_device_guard_set_index(DeviceGuardHandle guard, int32_t device_index);
int32_t aoti_torch_device_type_cpu(void);
int32_t aoti_torch_device_type_cuda(void);
int32_t aoti_torch_device_type_meta(void);
int32_t aoti_torch_device_type_mps(void);
int32_t aoti_torch_device_type_privateuse1(void);
int32_t aoti_torch_device_type_xpu(void);
int32_t aoti_torch_dtype_bfloat16(void);
int32_t aoti_torch_dtype_bool(void);
int32_t aoti_torch_dtype_complex128(void);
int32_t aoti_torch_dtype_complex32(void);
int32_t aoti_torch_dtype_complex64(void);
size_t aoti_torch_dtype_element_size(int32_t dtype);
int32_t aoti_torch_dtype_float16(void);
int32_t aoti_torch_dtype_float32(void);
int32_t aoti_torch_dtype_float4_e2m1fn_x2(void);
int32_t aoti_torch_dtype_float64(void);
int32_t aoti_torch_dtype_float8_e4m3fn(void);
int32_t aoti_torch_dtype_float8_e4m3fnuz(void);
int32_t aoti_torch_dtype_float8_e5m2(void);
int32_t aoti_torch_dtype_float8_e5m2fnuz(void);
int32_t aoti_torch_dtype_float8_e8m0fnu(void);
int32_t aoti_torch_dtype_int16(void);
int32_t aoti_torch_dtype_int32(void);
int32_t aoti_torch_dtype_int64(void);
int32_t aoti_torch_dtype_int8(void);
int32_t aoti_torch_dtype_uint16(void);
int32_t aoti_torch_dtype_uint32(void);
int32_t aoti_torch_dtype_uint64(void);
int32_t aoti_torch_dtype_uint8(void);
AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_empty_strided_pinned(int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_get_current_device_index(int32_t *ret_device_index);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void **ret_data_ptr);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t *ret_device_index);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t *ret_device_type);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t *ret_dim);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t *ret_dtype);
AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t *ret_layout);
AOTITorchError aoti_torch_get_numel(AtenTensorHandle tensor, int64_t *ret_numel);
AOTITorchError aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t *ret_size);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t **ret_sizes);
AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t *ret_numel);
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t *ret_storage_offset);
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t *ret_size);
AOTITorchError aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t *ret_stride);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t **ret_strides);
bool aoti_torch_grad_mode_is_enabled(void);
void aoti_torch_grad_mode_set_enabled(bool enabled);
AOTITorchError aoti_torch_int64_to_ivalue(int64_t val, C10IValueHandle *ivalue);
AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool *ret_is_contiguous);
AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool *ret_is_defined);
AOTITorchError aoti_torch_item_bfloat16(AtenTensorHandle tensor, uint16_t *ret_value);
AOTITorchError aoti_torch_item_bool(AtenTensorHandle tensor, bool *ret_value);
AOTITorchError aoti_torch_item_complex64(AtenTensorHandle tensor, struct aoti_complex64 *ret_value);
AOTITorchError aoti_torch_item_float16(AtenTensorHandle tensor, uint16_t *ret_value);
AOTITorchError aoti_torch_item_float32(AtenTensorHandle tensor, float *ret_value);
AOTITorchError aoti_torch_item_float64(AtenTensorHandle tensor, double *ret_value);
AOTITorchError aoti_torch_item_int16(AtenTensorHandle tensor, int16_t *ret_value);
AOTITorchError aoti_torch_item_int32(AtenTensorHandle tensor, int32_t *ret_value);
AOTITorchError aoti_torch_item_int64(AtenTensorHandle tensor, int64_t *ret_value);
AOTITorchError aoti_torch_item_int8(AtenTensorHandle tensor, int8_t *ret_value);
AOTITorchError aoti_torch_item_uint16(AtenTensorHandle tensor, uint16_t *ret_value);
AOTITorchError aoti_torch_item_uint32(AtenTensorHandle tensor, uint32_t *ret_value);
AOTITorchError aoti_torch_item_uint64(AtenTensorHandle tensor, uint64_t *ret_value);
AOTITorchError aoti_torch_item_uint8(AtenTensorHandle tensor, uint8_t *ret_value);
int32_t aoti_torch_layout__mkldnn(void);
int32_t aoti_torch_layout_jagged(void);
int32_t aoti_torch_layout_sparse_bsc(void);
int32_t aoti_torch_layout_sparse_bsr(void);
int32_t aoti_torch_layout_sparse_coo(void);
int32_t aoti_torch_layout_sparse_csc(void);
int32_t aoti_torch_layout_sparse_csr(void);
int32_t aoti_torch_layout_strided(void);
int32_t aoti_torch_memory_format_channels_last(void);
int32_t aoti_torch_memory_format_channels_last_3d(void);
int32_t aoti_torch_memory_format_contiguous_format(void);
int32_t aoti_torch_memory_format_preserve_format(void);
AOTITorchError aoti_torch_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle orig_handle, AtenTensorHandle *new_handle);
AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle *ret);
AOTITorchError aoti_torch_nonzero(AtenTensorHandle self, AtenTensorHandle *out);
void aoti_torch_print_tensor_handle(AtenTensorHandle self, const char *msg);
AOTITorchError aoti_torch_scalar_to_tensor_bool(bool value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_complex128(struct aoti_complex128 value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_complex64(struct aoti_complex64 value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_float32(float value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_float64(double value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int16(int16_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int32(int32_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int64(int64_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int8(int8_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_uint16(uint16_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_uint32(uint32_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_uint64(uint64_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_uint8(uint8_t value, AtenTensorHandle *ret_new_tensor);
AOTITorchError aoti_torch_str_to_ivalue(const char *val, C10IValueHandle *ivalue);
AOTITorchError aoti_torch_strlist_to_ivalue(const char **val, int64_t len, C10IValueHandle *ivalue);
AOTITorchError aoti_torch_tensor_copy_(AtenTensorHandle src, AtenTensorHandle dst);
AOTITorchError aoti_torch_tensor_to_ivalue(AtenTensorHandle val, C10IValueHandle *ivalue);
AOTITorchError aoti_torch_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret);
void aoti_torch_warn(const char *func, const char *file, uint32_t line, const char *msg);
AOTITorchError aoti_torch_zero_(AtenTensorHandle self);
int32_t torch_dtype_float4_e2m1fn_x2(void);
int32_t torch_dtype_float8_e8m0fnu(void);
const char *torch_exception_get_what(void);
const char *torch_exception_get_what_without_backtrace(void);
AOTITorchError torch_from_blob(void *data, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr, int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *ret, int32_t layout, const uint8_t *opaque_metadata, int64_t opaque_metadata_size, void (*deleter)(void *data, void *ctx), void *deleter_ctx);
AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void **ret_data_ptr);
AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **ret_data_ptr);
AOTITorchError torch_has_storage(AtenTensorHandle tensor, bool *ret_has_storage);

/* --- CUDA: devices and streams -------------------------------------------------------------------------- */

AOTITorchError aoti_torch_create_cuda_guard(int32_t device_index, CUDAGuardHandle *ret_guard);
AOTITorchError aoti_torch_create_cuda_stream_guard(void *stream, int32_t device_index, CUDAStreamGuardHandle *ret_guard);
AOTITorchError aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t nbytes, void **ret_ptr);
AOTITorchError aoti_torch_cuda_caching_allocator_raw_delete(void *ptr);
AOTITorchError aoti_torch_cuda_guard_set_index(CUDAGuardHandle guard, int32_t device_index);
AOTITorchError aoti_torch_delete_cuda_guard(CUDAGuardHandle guard);
AOTITorchError aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardHandle guard);
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void **ret_stream);
AOTITorchError torch_set_current_cuda_stream(void *stream, int32_t device_index);

/* --- operators on the CPU ------------------------------------------------------------------------------- */

AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const char *attr, const double **scalars, int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu__linear_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle *B, const char *attr, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p, int32_t is_causal, AtenTensorHandle *attn_mask, double *scale, AtenTensorHandle *ret0, AtenTensorHandle *ret1);
AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1, AtenTensorHandle mat2, double beta, double alpha);
AOTITorchError aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle batch1, AtenTensorHandle batch2, double beta, double alpha);
AOTITorchError aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
AOTITorchError aoti_torch_cpu_convolution(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle *bias, const int64_t *stride, int64_t stride_len_, const int64_t *padding, int64_t padding_len_, const int64_t *dilation, int64_t dilation_len_, int32_t transposed, const int64_t *output_padding, int64_t output_padding_len_, int64_t groups, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *attr, const double **scalars, int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle *ret0);
AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int64_t dim, int32_t descending, AtenTensorHandle *ret0, AtenTensorHandle *ret1);
AOTITorchError aoti_torch_cpu_sort_stable(AtenTensorHandle self, int32_t *stable, int64_t dim, int32_t descending, AtenTensorHandle *ret0, AtenTensorHandle *ret1);
AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest, int32_t sorted, AtenTensorHandle *ret0, AtenTensorHandle *ret1);
AOTITorchError aoti_torch_cpu_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret0);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif

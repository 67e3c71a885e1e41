/* The integers that a plugin asks for while it is being loaded: element types, devices, layouts, formats.
 * Values of c10's ScalarType, DeviceType, Layout and MemoryFormat; none changed since PyTorch 2.2. */
#include "internal.h"

struct dtype_facts {
    const char *name;
    uint8_t itemsize;
    bool floating, complex, integral;
};

static const struct dtype_facts facts[] = {
    [DTYPE_UINT8] = {"uint8", 1, .integral = true},
    [DTYPE_INT8] = {"int8", 1, .integral = true},
    [DTYPE_INT16] = {"int16", 2, .integral = true},
    [DTYPE_INT32] = {"int32", 4, .integral = true},
    [DTYPE_INT64] = {"int64", 8, .integral = true},
    [DTYPE_FLOAT16] = {"float16", 2, .floating = true},
    [DTYPE_FLOAT32] = {"float32", 4, .floating = true},
    [DTYPE_FLOAT64] = {"float64", 8, .floating = true},
    [DTYPE_COMPLEX32] = {"complex32", 4, .complex = true},
    [DTYPE_COMPLEX64] = {"complex64", 8, .complex = true},
    [DTYPE_COMPLEX128] = {"complex128", 16, .complex = true},
    [DTYPE_BOOL] = {"bool", 1, .integral = true},
    [DTYPE_BFLOAT16] = {"bfloat16", 2, .floating = true},
    [DTYPE_FLOAT8_E5M2] = {"float8_e5m2", 1, .floating = true},
    [DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1, .floating = true},
    [DTYPE_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1, .floating = true},
    [DTYPE_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1, .floating = true},
    [DTYPE_UINT16] = {"uint16", 2, .integral = true},
    [DTYPE_UINT32] = {"uint32", 4, .integral = true},
    [DTYPE_UINT64] = {"uint64", 8, .integral = true},
    [DTYPE_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1, .floating = true},
    [DTYPE_FLOAT4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1, .floating = true},
};

static const struct dtype_facts *find(int32_t dtype) {
    static const struct dtype_facts unknown = {"an unknown element type", 0, false, false, false};
    bool known = dtype >= 0 && (size_t)dtype < sizeof facts / sizeof *facts && facts[dtype].name != NULL;
    return known ? &facts[dtype] : &unknown;
}

size_t dtype_itemsize(int32_t dtype) { return find(dtype)->itemsize; }
const char *dtype_text(int32_t dtype) { return find(dtype)->name; }
bool dtype_is_floating(int32_t dtype) { return find(dtype)->floating; }
bool dtype_is_complex(int32_t dtype) { return find(dtype)->complex; }
bool dtype_is_integral(int32_t dtype) { return find(dtype)->integral; }

size_t aoti_torch_dtype_element_size(int32_t dtype) {
    size_t size = dtype_itemsize(dtype);
    if (size == 0) {
        shim_set_error(AOTI_NOT_SUPPORTED, __func__, "element type code %d is not known", (int)dtype);
    }
    return size;
}

int32_t aoti_torch_dtype_uint8(void) { return DTYPE_UINT8; }
int32_t aoti_torch_dtype_int8(void) { return DTYPE_INT8; }
int32_t aoti_torch_dtype_int16(void) { return DTYPE_INT16; }
int32_t aoti_torch_dtype_int32(void) { return DTYPE_INT32; }
int32_t aoti_torch_dtype_int64(void) { return DTYPE_INT64; }
int32_t aoti_torch_dtype_uint16(void) { return DTYPE_UINT16; }
int32_t aoti_torch_dtype_uint32(void) { return DTYPE_UINT32; }
int32_t aoti_torch_dtype_uint64(void) { return DTYPE_UINT64; }
int32_t aoti_torch_dtype_bool(void) { return DTYPE_BOOL; }
int32_t aoti_torch_dtype_float16(void) { return DTYPE_FLOAT16; }
int32_t aoti_torch_dtype_bfloat16(void) { return DTYPE_BFLOAT16; }
int32_t aoti_torch_dtype_float32(void) { return DTYPE_FLOAT32; }
int32_t aoti_torch_dtype_float64(void) { return DTYPE_FLOAT64; }
int32_t aoti_torch_dtype_complex32(void) { return DTYPE_COMPLEX32; }
int32_t aoti_torch_dtype_complex64(void) { return DTYPE_COMPLEX64; }
int32_t aoti_torch_dtype_complex128(void) { return DTYPE_COMPLEX128; }
int32_t aoti_torch_dtype_float8_e5m2(void) { return DTYPE_FLOAT8_E5M2; }
int32_t aoti_torch_dtype_float8_e4m3fn(void) { return DTYPE_FLOAT8_E4M3FN; }
int32_t aoti_torch_dtype_float8_e5m2fnuz(void) { return DTYPE_FLOAT8_E5M2FNUZ; }
int32_t aoti_torch_dtype_float8_e4m3fnuz(void) { return DTYPE_FLOAT8_E4M3FNUZ; }
int32_t aoti_torch_dtype_float8_e8m0fnu(void) { return DTYPE_FLOAT8_E8M0FNU; }
int32_t aoti_torch_dtype_float4_e2m1fn_x2(void) { return DTYPE_FLOAT4_E2M1FN_X2; }
int32_t torch_dtype_float8_e8m0fnu(void) { return DTYPE_FLOAT8_E8M0FNU; }
int32_t torch_dtype_float4_e2m1fn_x2(void) { return DTYPE_FLOAT4_E2M1FN_X2; }

int32_t aoti_torch_device_type_cpu(void) { return DEVICE_CPU; }
int32_t aoti_torch_device_type_cuda(void) { return DEVICE_CUDA; }
int32_t aoti_torch_device_type_xpu(void) { return 12; }
int32_t aoti_torch_device_type_mps(void) { return 13; }
int32_t aoti_torch_device_type_meta(void) { return 14; }
int32_t aoti_torch_device_type_privateuse1(void) { return 20; }

int32_t aoti_torch_layout_strided(void) { return 0; }
int32_t aoti_torch_layout_sparse_coo(void) { return 1; }
int32_t aoti_torch_layout_sparse_csr(void) { return 2; }
int32_t aoti_torch_layout__mkldnn(void) { return 3; }
int32_t aoti_torch_layout_sparse_csc(void) { return 4; }
int32_t aoti_torch_layout_sparse_bsr(void) { return 5; }
int32_t aoti_torch_layout_sparse_bsc(void) { return 6; }
int32_t aoti_torch_layout_jagged(void) { return 7; }

int32_t aoti_torch_memory_format_contiguous_format(void) { return 0; }
int32_t aoti_torch_memory_format_preserve_format(void) { return 1; }
int32_t aoti_torch_memory_format_channels_last(void) { return 2; }
int32_t aoti_torch_memory_format_channels_last_3d(void) { return 3; }

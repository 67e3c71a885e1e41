/* What element types are: the facts of codes.c, for any integer that a caller may pass. */
#include "internal.h"

static const struct dtype_facts *find(int32_t dtype) {
    static const struct dtype_facts unknown = {"an unknown element type", 0, false, false, false};
    bool known = dtype >= 0 && dtype < DTYPE_CODES && dtype_facts[dtype].name != NULL;
    return known ? &dtype_facts[dtype] : &unknown;
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

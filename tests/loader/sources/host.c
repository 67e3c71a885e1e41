/* A host in C for the tests of the "process" kind: the shims that they ask for, and an operator new. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

API int news;
API int32_t aoti_torch_delete_tensor_object(void *tensor) {
    (void)tensor;
    return 0;
}
API int32_t aoti_torch_device_type_cpu(void) { return 0; }
#ifdef WITH_NEW
API void *_Znwm(size_t size) {
    news++;
    return malloc(size);
}
#endif

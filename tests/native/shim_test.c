/* The built-in host from C, for AddressSanitizer and UndefinedBehaviorSanitizer: every group of functions,
 * well used and misused, from several threads. Prints what failed; the exit status is how many did. */
#include <aoti_host.h>
#include <aoti_shim.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Too large a request is an error code here, not the end. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static _Atomic int failures;
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            const char *text;                                                                      \
            aoti_shim_last_error(&text);                                                           \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __func__, __LINE__, #condition, text); \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == 0)
#define REFUSED(call) CHECK((call) != 0)

enum { FLOAT32 = 6, INT64 = 4, INT32 = 3, BOOL = 11, BFLOAT16 = 15, FLOAT16 = 5, FLOAT64 = 7, COMPLEX64 = 9 };

static AtenTensorHandle empty(int64_t ndim, const int64_t *sizes, int32_t dtype) {
    AtenTensorHandle tensor = NULL;
    OK(aoti_torch_empty_strided(ndim, sizes, NULL, dtype, 0, -1, &tensor));
    return tensor;
}

static void *data(AtenTensorHandle tensor) {
    void *pointer = NULL;
    OK(aoti_torch_get_data_ptr(tensor, &pointer));
    return pointer;
}

static AtenTensorHandle counting(int64_t rows, int64_t columns) {
    AtenTensorHandle tensor = empty(2, (int64_t[]){rows, columns}, FLOAT32);
    float *values = data(tensor);
    for (int64_t i = 0; i < rows * columns; i++) {
        values[i] = (float)i;
    }
    return tensor;
}

static void free_all(int count, AtenTensorHandle *tensors) {
    for (int i = 0; i < count; i++) {
        OK(aoti_torch_delete_tensor_object(tensors[i]));
    }
}

static void tensors(void) {
    AtenTensorHandle base = counting(3, 4), view, copy, kept, shared, assigned = empty(0, NULL, BOOL), none;
    OK(aoti_torch__reinterpret_tensor(base, 2, (int64_t[]){4, 3}, (int64_t[]){1, 4}, 0, &view));
    OK(aoti_torch_clone(view, &copy));
    OK(aoti_torch_clone_preserve_strides(view, &kept));
    OK(aoti_torch_assign_tensors_out(view, &shared));
    OK(aoti_torch_assign_tensors(view, assigned));
    OK(aoti_torch_new_uninitialized_tensor(&none));
    OK(aoti_torch_assign_tensors(none, assigned));
    OK(aoti_torch_assign_tensors(shared, none));
    CHECK(data(none) == data(base));
    CHECK(((float *)data(copy))[1] == ((float *)data(view))[1]);
    REFUSED(aoti_torch__reinterpret_tensor(base, 2, (int64_t[]){4, 4}, (int64_t[]){1, 4}, 0, &view));
    REFUSED(aoti_torch__reinterpret_tensor(base, 1, (int64_t[]){1}, (int64_t[]){1}, INT64_MAX, &view));
    REFUSED(
        aoti_torch__reinterpret_tensor(base, 1, (int64_t[]){INT64_MAX}, (int64_t[]){INT64_MAX}, 3, &view));
    REFUSED(aoti_torch_empty_strided(1, (int64_t[]){INT64_MAX / 4}, NULL, FLOAT32, 0, 0, &view));
    REFUSED(aoti_torch_empty_strided(3, NULL, NULL, FLOAT32, 0, 0, &view));
    OK(aoti_torch_zero_(view));
    free_all(7, (AtenTensorHandle[]){base, view, copy, kept, shared, assigned, none});
}

static void copies(void) {
    static const int32_t dtypes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 27, 28, 29};
    AtenTensorHandle source = counting(1, 300);
    float *values = data(source);
    values[0] = NAN;
    values[1] = INFINITY;
    values[2] = -1e30f;
    values[3] = 1e30f;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        AtenTensorHandle middle = empty(2, (int64_t[]){2, 300}, dtypes[i]),
                         back = empty(2, (int64_t[]){2, 300}, FLOAT64);
        OK(aoti_torch_copy_(middle, source, 0));
        OK(aoti_torch_copy_(back, middle, 0));
        for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes; j++) {
            AtenTensorHandle other = empty(2, (int64_t[]){2, 300}, dtypes[j]);
            OK(aoti_torch_copy_(other, middle, 0));
            free_all(1, &other);
        }
        bool boolean;
        AtenTensorHandle one;
        OK(aoti_torch__reinterpret_tensor(middle, 0, NULL, NULL, 5, &one));
        OK(aoti_torch_item_bool(one, &boolean));
        CHECK(boolean);
        free_all(3, (AtenTensorHandle[]){middle, back, one});
    }
    int64_t integer;
    for (int i = 0; i < 4; i++) {
        AtenTensorHandle one;
        OK(aoti_torch__reinterpret_tensor(source, 0, NULL, NULL, i, &one));
        REFUSED(aoti_torch_item_int64(one, &integer));
        free_all(1, &one);
    }
    free_all(1, &source);
}

static void operators(void) {
    AtenTensorHandle a = counting(5, 7), b = counting(7, 3), c = counting(5, 3), bias = counting(1, 3),
                     out[2];
    OK(aoti_torch_cpu_mm_out(c, a, b));
    CHECK(((float *)data(c))[0] == 273);
    OK(aoti_torch_cpu_addmm_out(c, bias, a, b, 1, 2));
    CHECK(((float *)data(c))[1] == 1 + 2 * 294);
    REFUSED(aoti_torch_cpu_mm_out(c, b, a));
    OK(aoti_torch_cpu_sort_stable(a, NULL, 0, 1, &out[0], &out[1]));
    CHECK(((int64_t *)data(out[1]))[0] == 4);
    free_all(2, out);
    OK(aoti_torch_cpu_topk(a, 2, 1, 1, 1, &out[0], &out[1]));
    CHECK(((float *)data(out[0]))[0] == 6);
    free_all(2, out);
    OK(aoti_torch_cpu_cumsum(a, 0, NULL, &out[0]));
    OK(aoti_torch_cpu_nonzero(a, &out[1]));
    CHECK(((float *)data(out[0]))[7] == 7);
    CHECK(((int64_t *)data(out[1]))[0] == 0 && ((int64_t *)data(out[1]))[34] == 1);
    free_all(2, out);
    AtenTensorHandle image = empty(4, (int64_t[]){2, 4, 6, 5}, FLOAT32),
                     weight = empty(4, (int64_t[]){6, 2, 3, 2}, FLOAT32);
    OK(aoti_torch_zero_(image));
    OK(aoti_torch_zero_(weight));
    const int64_t one = 1, two = 2, none = 0;
    OK(aoti_torch_cpu_convolution(image, weight, NULL, &two, 1, &one, 1, &one, 1, 0, &none, 1, 2, &out[0]));
    REFUSED(
        aoti_torch_cpu_convolution(image, weight, NULL, &none, 1, &one, 1, &one, 1, 0, &none, 1, 2, &out[1]));
    free_all(1, out);
    AtenTensorHandle back = empty(4, (int64_t[]){4, 3, 3, 2}, FLOAT32);
    OK(aoti_torch_zero_(back));
    OK(aoti_torch_cpu_convolution(image, back, NULL, &two, 1, &one, 1, &one, 1, 1, &one, 1, 2, &out[0]));
    free_all(1, out);
    OK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(image, image, image, 0, 1, NULL, NULL,
                                                                  &out[0], &out[1]));
    free_all(2, out);
    free_all(7, (AtenTensorHandle[]){a, b, c, bias, image, weight, back});
}

static void *everything(void *shared) {
    for (int i = 0; i < 3; i++) {
        tensors();
        copies();
        operators();
        AtenTensorHandle mine;
        OK(aoti_torch_new_tensor_handle(shared, &mine));
        free_all(1, &mine);
        REFUSED(aoti_torch_delete_tensor_object(NULL));
        REFUSED(aoti_torch_get_dtype(NULL, NULL));
    }
    return NULL;
}

int main(void) {
    AtenTensorHandle shared = counting(2, 2);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, everything, shared) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    free_all(1, &shared);
    struct aoti_shim_stats stats;
    aoti_shim_get_stats(&stats);
    CHECK(stats.tensors == 0 && stats.storages == 0 && stats.owned_bytes == 0);
    printf("%d failed\n", failures);
    return failures;
}

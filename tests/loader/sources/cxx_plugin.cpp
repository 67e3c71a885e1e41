// A plugin in C++: it uses the C++ runtime, has a unique symbol and a thread_local object with a destructor.
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#define API extern "C" __attribute__((visibility("default")))
#define C(name) API int32_t AOTInductorModelContainer##name

template <typename T>
struct Shared {
    static int value;  // an STB_GNU_UNIQUE symbol where g++ makes them
};
template <typename T>
int Shared<T>::value = 0;

static int *destroyed;

struct Words {
    std::string text;
    ~Words() {
        if (destroyed) {
            ++*destroyed;
        }
    }
};
static thread_local Words last_error;

API void count_destroyed(int *counter) { destroyed = counter; }
API void use_thread_local() { last_error.text = "touched, by a string that is too long to be stored inside"; }
API int next_value() { return ++Shared<int>::value; }
API void *where_terminate_is() { return reinterpret_cast<void *>(&std::terminate); }
API void *make() { return ::operator new(8); }

C(CreateWithDevice)(void **container, size_t models, const char *device, const char *folder) {
    try {
        std::ostringstream words;
        words << "Invalid device: " << device;
        if (std::strcmp(device, "cpu") != 0) {
            throw std::runtime_error(words.str());
        }
        *container = new int(7);
        return 0;
    } catch (const std::exception &error) {
        last_error.text = error.what();
        return 1;
    }
}
C(Delete)(void *container) {
    delete static_cast<int *>(container);
    return 0;
}
C(GetNumInputs)(void *, size_t *count) {
    *count = 0;
    return 0;
}
C(GetNumOutputs)(void *, size_t *count) {
    *count = 0;
    return 0;
}
C(Run)(void *, void **, size_t, void **, size_t, void *, void *) {
    std::cerr << "";
    return 0;
}
API int32_t AOTInductorGetLastError(const char **text) {
    *text = last_error.text.c_str();
    return 0;
}

/* A plugin in C whose behaviour is chosen by macros. Its container is a counter. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define C(name) API int32_t AOTInductorModelContainer##name

#ifndef TAG
#define TAG 1
#endif

typedef struct {
    const char *name;
    void *handle;
} Entry;

static __thread const char *last_error = "";
static int containers;

#ifdef NEEDS
/* NEEDS(X) names the functions that a host must define. */
#define X(name) extern int32_t name(void);
NEEDS
#undef X
#endif

API int tag(void) { return TAG; }

API void touch_host(void) {
#ifdef NEEDS
#define X(name) name();
    NEEDS
#undef X
#endif
}

#ifndef NO_CREATE
C(CreateWithDevice)(void **container, size_t models, const char *device, const char *folder) {
    (void)models;
    (void)folder;
#ifdef CREATE_CRASHES
    raise(SIGSEGV);
#elif defined(CREATE_ABORTS)
    fputs("terminate called\n", stderr);
    abort();
#elif defined(CREATE_HANGS)
    for (;;) {
        pause();
    }
#elif defined(CREATE_EXITS)
    exit(3);
#elif defined(CREATE_PRINTS)
    puts("{\"outcome\": \"loads\"}");
    fflush(stdout);
#endif
    if (strcmp(device, "cpu") != 0) {
        last_error = "Invalid device";
        return 1;
    }
    *container = malloc(1);
    containers++;
    return 0;
}
#endif

C(Delete)(void *container) {
    free(container);
    containers--;
    return 0;
}

C(GetNumInputs)(void *container, size_t *count) {
    *count = 2;
    return 0;
}
C(GetNumOutputs)(void *container, size_t *count) {
    *count = 1;
    return 0;
}

#ifndef NO_RUN
C(Run)(void *c, void **in, size_t n, void **out, size_t m, void *stream, void *proxy) { return 0; }
#endif

#ifdef NAMES
C(GetInputName)(void *c, size_t i, const char **name) {
    *name = i ? "y" : "x";
    return 0;
}
C(GetOutputName)(void *c, size_t i, const char **name) {
    *name = NAMES;
    return 0;
}
#endif

API int32_t AOTInductorGetLastError(const char **text) {
    *text = last_error;
    return 0;
}

/* Never to be called: it would take the argument for a C++ map. */
C(ExtractConstantsMap)(void *c, void *map, _Bool inactive) { abort(); }

#ifdef ENTRIES
enum { OK, EMPTY, NULL_ARRAY, NULL_NAME, NULL_HANDLE, ERROR, HUGE, DUPLICATE, NOT_UTF8, WILD };
C(ExtractConstantsMapEntries)(void *c, const Entry **entries, size_t *count, _Bool inactive) {
    static Entry array[2] = {{"a.weight", (void *)16}, {"a.bias", (void *)32}};
    last_error = "";
    *entries = array;
    *count = 2;
    switch (ENTRIES) {
        case EMPTY:
            *entries = NULL;
            *count = 0;
            break;
        case NULL_ARRAY: *entries = NULL; break;
        case NULL_NAME: array[1].name = NULL; break;
        case NULL_HANDLE: array[1].handle = NULL; break;
        case ERROR: last_error = "the map is on holiday"; return 1;
        case HUGE: *count = (size_t)-1; break;
        case DUPLICATE: array[1].name = array[0].name; break;
        case NOT_UTF8: array[0].name = "\xff\xfe"; break;
        case WILD: *entries = (const Entry *)0x10; break;
    }
    return 0;
}
#endif

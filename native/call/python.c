/* Built-in functions for Python over prepared calls, without Python.h. */
#include "call.h"

struct python python;

EXPORT void aoti_call_set_python(const struct python *functions) { python = *functions; }

/* Methods for PyCFunction_New, whose `self` is a capsule over the prepared call: a foreign call through
 * ctypes costs several times what a small model's bookkeeping does. The GIL is released while they run. */
#define METHOD(name, type, function)                             \
    static void *name(void *self, void *unused) {                \
        (void)unused;                                            \
        type *prepared = python.capsule_get_pointer(self, NULL); \
        void *state = python.save_thread();                      \
        int status = function(prepared);                         \
        python.restore_thread(state);                            \
        return python.long_from_long(status);                    \
    }
METHOD(run_method, struct call, aoti_call_run)
METHOD(run_bound_method, struct bound, aoti_call_run_bound)

/* Something that is given back when the last Python object that needs it is gone. A capsule's destructor runs
 * when its memory is freed; __del__ methods in a reference cycle run in any order, while others of the cycle
 * may still use what they hold. The context of the capsule is the function that gives it back. */
static void give_back(void *capsule) {
    if (python.is_finalizing()) {
        return; /* threads may still run, and the system frees it all */
    }
    void (*function)(void *) = (void (*)(void *))python.capsule_get_context(capsule);
    function(python.capsule_get_pointer(capsule, NULL));
}

/* Takes what is in the slot, and empties it. NULL, with Python's error set and the slot as it was: there is no
 * memory. What the function returns, if anything, is not looked at. */
EXPORT void *aoti_call_own(void **slot, void (*function)(void *)) {
    void *capsule = python.capsule_new(*slot, NULL, give_back);
    if (capsule != NULL) {
        python.capsule_set_context(capsule, (void *)function);
        *slot = NULL;
    }
    return capsule;
}

struct method_definition { /* PyMethodDef, part of Python's stable ABI */
    const char *name;
    void *(*function)(void *, void *);
    int flags;
    const char *documentation;
};
enum { NO_ARGUMENTS = 4 /* METH_NOARGS */ };
static struct method_definition methods[] = {
    {"run", run_method, NO_ARGUMENTS, NULL},
    {"run_bound", run_bound_method, NO_ARGUMENTS, NULL},
};
/* 0: `self` holds a struct call; 1: a struct bound. */
EXPORT void *aoti_call_method(int which) { return &methods[which != 0]; }

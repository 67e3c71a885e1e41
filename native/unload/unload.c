/* Destructors of thread_local objects, kept where the loader can reach them: libaoti_unload.so.
 *
 * A C++ library registers the destructor of each thread_local object with __cxa_thread_atexit. The C library
 * then keeps that library mapped until the thread ends, which for the main thread means for good. The loader
 * points that one import of a plugin's private copy at cxa_thread_atexit below (the same string of the
 * plugin's table, two characters on), or, if the plugin carries its own C++ runtime, the import by which that
 * runtime does it. Destructors still run when their thread ends; when the plugin is closed,
 * those of the closing thread run at once, and the rest are counted, so that nothing is unmapped under them.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

struct entry {
    struct entry *next;
    void (*destroy)(void *);
    void *object;
    uintptr_t library;
    pthread_t thread;
    int running; /* its destructor is being called: code of the library is still on the stack */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int has_key;
static struct entry *entries; /* of all threads, the newest first */

/* Marks and returns the calling thread's newest entry of a library in [begin, end). */
static struct entry *take(uintptr_t begin, uintptr_t end) {
    pthread_t self = pthread_self();
    struct entry *entry;
    pthread_mutex_lock(&lock);
    for (entry = entries; entry != NULL; entry = entry->next) {
        if (!entry->running && pthread_equal(entry->thread, self) && entry->library >= begin &&
            entry->library < end) {
            entry->running = 1;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return entry;
}

static void drop(struct entry *entry) {
    struct entry **place = &entries;
    pthread_mutex_lock(&lock);
    while (*place != entry) {
        place = &(*place)->next;
    }
    *place = entry->next;
    pthread_mutex_unlock(&lock);
    free(entry);
}

static void run(uintptr_t begin, uintptr_t end) {
    struct entry *entry;
    /* The lock is free while a destructor runs: it may register another one. */
    while ((entry = take(begin, end)) != NULL) {
        entry->destroy(entry->object);
        drop(entry);
    }
}

static void at_thread_exit(void *unused) {
    (void)unused;
    run(0, UINTPTR_MAX);
}

static void make_key(void) { has_key = pthread_key_create(&key, at_thread_exit) == 0; }

/* As __cxa_thread_atexit of the Itanium C++ ABI; `library` is an address in the caller's library. */
EXPORT int cxa_thread_atexit(void (*destroy)(void *), void *object, void *library);
int cxa_thread_atexit(void (*destroy)(void *), void *object, void *library) {
    struct entry *entry;
    pthread_once(&once, make_key);
    /* Any value but NULL makes the key's destructor run for this thread. */
    if (!has_key || pthread_setspecific(key, &key) != 0 || (entry = malloc(sizeof *entry)) == NULL) {
        return -1;
    }
    entry->destroy = destroy;
    entry->object = object;
    entry->library = (uintptr_t)library;
    entry->thread = pthread_self();
    entry->running = 0;
    pthread_mutex_lock(&lock);
    entry->next = entries;
    entries = entry;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* As the C library's __cxa_thread_atexit_impl, which a C++ runtime inside a plugin calls. */
EXPORT int cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library);
int cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library) {
    return cxa_thread_atexit(destroy, object, library);
}

/* Runs the calling thread's destructors of the library that is mapped in [begin, end). Returns how many other
 * threads' objects of it are left: 0 means that it may be unmapped. */
EXPORT size_t aoti_unload_run_destructors(const void *begin, const void *end);
size_t aoti_unload_run_destructors(const void *begin, const void *end) {
    size_t left = 0;
    run((uintptr_t)begin, (uintptr_t)end);
    pthread_mutex_lock(&lock);
    for (struct entry *entry = entries; entry != NULL; entry = entry->next) {
        left += entry->library >= (uintptr_t)begin && entry->library < (uintptr_t)end;
    }
    pthread_mutex_unlock(&lock);
    return left;
}

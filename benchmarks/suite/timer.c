/* Times calls of an emitted kernel: compiled with -DARGS='void*,void*,...', -DPASS='p[0],...' and
 * -DENTRY= the function, `kernel` or `kernel_prepacked`. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

int ENTRY(ARGS);
typedef int (*call_t)(ARGS);

/* Called through a pointer the compiler cannot see through, like the kernel. */
__attribute__((noinline)) static int nothing(ARGS) {
    __asm__ volatile("" ::: "memory");
    return 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_calls(call_t volatile call, void **p, int64_t calls, int *failed) {
    double start = seconds();
    for (int64_t i = 0; i < calls; i++) *failed |= call(PASS);
    return (seconds() - start) / (double)calls;
}

/* secs[r]: seconds a call in round r, without what an empty call costs. Returns the kernel's error. */
int tw_time(void **p, int64_t calls, int64_t rounds, double *secs) {
    int failed = 0;
    double empty = 1.0;
    for (int i = 0; i < 5; i++) {
        double once = time_calls(nothing, p, calls, &failed);
        if (once < empty) empty = once;
    }
    for (int64_t r = 0; r < rounds && !failed; r++) {
        double once = time_calls(ENTRY, p, calls, &failed) - empty;
        secs[r] = once > 1e-9 ? once : 1e-9;
    }
    return failed;
}

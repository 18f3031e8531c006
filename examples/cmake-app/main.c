/* Multiplies two matrices, takes the softmax of each row, and checks both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gemm.h"
#include "soften.h"

enum { M = 96, N = 80, K = 64 };
static float a[M * K], b[K * N], c[M * N], d[M * N];

/* Room for the largest workspace; a kernel without one takes NULL. */
static void *workspace(size_t bytes) {
    return bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
}

int main(void) {
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * N; i++) b[i] = (float)(i % 5 - 2) / 8;

    if (!gemm_supported() || !soften_supported()) {
        puts("these kernels were made for another CPU");
        return 2;
    }
    void *room = workspace(gemm_workspace_bytes());
    void *more = workspace(soften_workspace_bytes());
    if (gemm(a, b, c, room) != 0 || soften(c, d, more) != 0) return 1;

    for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int j = 0; j < N; j++) {
            float exact = 0;
            for (int k = 0; k < K; k++) exact += a[i * K + k] * b[k * N + j];
            if (c[i * N + j] != exact) return printf("C[%d][%d] is wrong\n", i, j), 1;
            sum += d[i * N + j];
        }
        if (fabs(sum - 1) > 1e-5) return printf("row %d sums up to %g\n", i, sum), 1;
    }
    printf("%d numbers, all right; run by the code for %s\n", M * N, gemm_variant());
    free(room);
    free(more);
    return 0;
}

/* Multiplies two matrices with an emitted kernel and checks it; build.sh makes everything. */
#include <stdio.h>
#include <stdlib.h>

#include "gemm.h"

enum { M = 96, N = 80, K = 64 };
static float a[M * K], b[K * N], c[M * N];

int main(void) {
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * N; i++) b[i] = (float)(i % 5 - 2);

    /* aligned_alloc wants a multiple of the alignment; a kernel without a workspace takes NULL. */
    size_t bytes = (gemm_workspace_bytes() + 63) / 64 * 64;
    void *workspace = bytes ? aligned_alloc(64, bytes) : NULL;
    if ((bytes && !workspace) || gemm(a, b, c, workspace) != 0) return 1;

    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            if (c[i * N + j] != sum) return printf("C[%d][%d] is wrong\n", i, j), 1;
        }
    printf("%d numbers, all right; workspace of %zu bytes\n", M * N, bytes);
    free(workspace);
    return 0;
}

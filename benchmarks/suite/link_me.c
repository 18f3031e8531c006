/* Links an emitted matrix product (100 x 70 x 50) and checks every number of it. */
#include <stdio.h>
#include <stdlib.h>
#include "gemm.h"

enum { M = 100, N = 70, K = 50 };
static float a[M * K], b[K * N], c[M * N];

int main(void) {
    for (int i = 0; i < M * K || i < K * N; i++) a[i % (M * K)] = b[i % (K * N)] = i % 13 - 6;
    size_t bytes = (gemm_workspace_bytes() + 63) / 64 * 64;
    void *workspace = bytes ? aligned_alloc(64, bytes) : NULL;
    if (gemm(a, b, c, workspace) != 0) return 2;
    int wrong = 0; /* whole numbers below 2^24: exact in any order */
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            wrong += c[i * N + j] != sum;
        }
    printf("%d of %d numbers are wrong\n", wrong, M * N);
    return wrong != 0;
}

#!/bin/sh
# The same way for computations written in index notation: nothing of this is in a library.
# docs/workload.md has the grammar. Needs `tilewright` on the PATH; TRIALS=64 searches longer.
set -eu
trials=${TRIALS:-16}

# Squared distances of 256 points to 300 others, 64 coordinates each.
tilewright tune --trials "$trials" \
    --expr 'D[i,j] += (A[i,k] - B[j,k]) * (A[i,k] - B[j,k])' \
    --tensor 'A=f32[256,64]' --tensor 'B=f32[300,64]'

# A 3 x 3 convolution of stride 2; reads outside the picture are zero, sizes are inferred.
tilewright tune --trials "$trials" \
    --expr 'Y[h,w,o] += X[2*h+r-1, 2*w+s-1, c] * W[r,s,c,o]' \
    --tensor 'X=f32[56,56,32]' --tensor 'W=f32[3,3,32,64]'

# Softmax of each row, then its product with V: statements build on each other.
tilewright tune --trials "$trials" \
    --expr 'm[i] max= S[i,j]; e[i,j] = exp(S[i,j] - m[i]); t[i] += e[i,j];
            O[i,d] += e[i,j] / t[i] * V[j,d]' \
    --tensor 'S=f32[128,200]' --tensor 'V=f32[200,64]'

#!/bin/sh
# From nothing to a linked program: pins two kernels, packs what they need into one file, and builds
# main.c from that file. Only the first two steps need `tilewright`; the build needs CMake and cc.
set -eu
cd "$(dirname "$0")"
build=${1:-build}

# Kernels that are tuned already are pinned to their records; the others to the schedule chosen
# without measuring, until `tilewright tune` and `tilewright lock --upgrade`.
tilewright lock gemm=matmul:M=96,N=80,K=64 soften=softmax_mn:M=96,N=80 --min-grade default
tilewright export kernels.zip --bundle tilewright.lock.json
cmake -B "$build" -DTilewright_DIR="$(tilewright cmake-dir)" -DTilewright_BUNDLE=kernels.zip
cmake --build "$build"
"$build/app"

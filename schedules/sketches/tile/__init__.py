"""Register tiling with packing: matrix products, convolutions and similar reductions."""

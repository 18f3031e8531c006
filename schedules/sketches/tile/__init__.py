"""The tile sketch: register tiles with packing, for matrix products, convolutions and similar
reductions."""

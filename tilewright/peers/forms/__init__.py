"""Recognise in a stage what libraries have functions for: products, convolutions, pooling."""

"""Recognises stages that libraries have functions for: products, convolutions, pooling."""

"""Tiles of registers with packing: products, convolutions and their like."""

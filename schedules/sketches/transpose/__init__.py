"""Blocks transposed in registers, copied or summed."""

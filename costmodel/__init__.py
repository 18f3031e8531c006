"""Predicted run times of candidates: analytic prior, features, learned models."""

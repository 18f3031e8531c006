"""How good is a candidate, before running it: analytic prior, features, learned residual."""

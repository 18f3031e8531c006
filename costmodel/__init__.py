"""Cost models: estimates of a candidate's run time without running it. Contains the analytic prior,
the features, and the models that learn from measurements."""

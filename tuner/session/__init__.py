"""The tuning session: it proposes, measures and stores candidates until a stopping rule ends it,
and reports the result."""

"""Where plans really run: one executor for each domain, of local processes or of an engine."""

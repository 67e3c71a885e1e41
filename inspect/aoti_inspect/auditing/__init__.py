"""The audit: facts, verdicts and rules put together, for one file or many."""

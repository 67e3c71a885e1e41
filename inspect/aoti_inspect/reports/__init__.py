"""Reports: one audit, in one format each."""

"""Rules: what can be wrong with a plugin, one generator function each."""

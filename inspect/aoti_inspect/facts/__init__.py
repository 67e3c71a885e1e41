"""Facts: what can be read from a plugin, and what follows from it for a target."""

"""Load AOTInductor plugins."""

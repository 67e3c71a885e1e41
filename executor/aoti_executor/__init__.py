"""Drive loaded AOTInductor plugins."""

"""Hosts: whatever provides ``aoti_torch_*``, as tables or as real files."""

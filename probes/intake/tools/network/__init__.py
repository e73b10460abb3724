"""Tools that tell of adapters, interfaces, switches and fabrics."""

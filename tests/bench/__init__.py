"""How fast the diagnosis is, beside the tools that people have: `make bench` measures both in one run."""

"""The only writer. One function is one transaction; one module per noun."""

from incidents.services.sweeping import sweep

__all__ = ["sweep"]

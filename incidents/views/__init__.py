"""Pages. A view asks a query or calls a service, and renders; one module per noun."""

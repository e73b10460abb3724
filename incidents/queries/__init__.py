"""Reading for pages and sockets. Nothing here writes; one module per noun."""

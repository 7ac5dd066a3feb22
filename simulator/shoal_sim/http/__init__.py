"""The engine's HTTP surface: a plain ASGI application, so that headers and framing are exactly what is written here."""

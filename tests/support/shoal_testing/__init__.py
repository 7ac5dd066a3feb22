"""Helpers and fixtures shared by the tests; one module a part."""

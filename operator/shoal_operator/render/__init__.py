"""Manifests from resolved values: fresh dictionaries on every call, equal for equal input."""

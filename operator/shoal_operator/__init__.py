"""The operator: observes, decides, applies and reports."""

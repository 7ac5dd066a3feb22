"""The only place that imports kopf: turns watch events into keys of the work queue."""

"""Changes of state as JSON lines on stderr: constant text plus fields, never a prompt, a key or a header. A leaf."""

import logging
import sys
import time
from typing import Any

import orjson

_LOGGER = logging.getLogger("shoal_router")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # One line per request to kube-apiserver is no change of state.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def info(message: str, **fields: object) -> None:
    _LOGGER.info(message, extra={"fields": fields})


def warning(message: str, **fields: object) -> None:
    _LOGGER.warning(message, extra={"fields": fields})

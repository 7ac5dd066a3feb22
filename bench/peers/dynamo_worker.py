"""A light engine for ai-dynamo's frontend, whose engines are workers on its own request plane, not HTTP servers.

    python dynamo_worker.py    # in the environment of bench/peers/dynamo.txt; started by shoal_bench.peers.dynamo

Takes requests as the client wrote them (the frontend neither tokenizes nor renders), reads `max_tokens` and, as
milliseconds between two tokens, `seed`, and yields chunks of a chat completion. Beside the package, since its imports
are none of ours.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvloop
from dynamo.llm import ModelInput, ModelType, WorkerType, register_model
from dynamo.runtime import DistributedRuntime

CREATED = 1_700_000_000


async def generate(request: dict[str, Any], context: object = None) -> AsyncIterator[dict[str, Any]]:
    tokens = int(request.get("max_tokens") or 1)
    gap_s = (request.get("seed") or 0) / 1000
    for left in range(tokens - 1, -1, -1):
        if gap_s:
            await asyncio.sleep(gap_s)
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": " token"},
            "finish_reason": None if left else "length",
        }
        yield {
            "id": "bench",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": request["model"],
            "choices": [choice],
        }


async def serve(model: str) -> None:
    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    endpoint = runtime.endpoint("bench.backend.generate")
    await register_model(
        ModelInput.Text,
        ModelType.Chat,
        endpoint,
        model,
        model,
        worker_type=WorkerType.Aggregated,
        skip_model_assets=True,
    )
    await endpoint.serve_endpoint(generate)


if __name__ == "__main__":
    if "DYN_FILE_KV" not in os.environ:
        sys.exit("DYN_FILE_KV must name the folder in which workers and frontend find each other")
    uvloop.run(serve(sys.argv[1]))

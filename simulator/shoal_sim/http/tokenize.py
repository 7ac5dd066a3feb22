"""POST /v1/tokenize and /tokenize, /v1/detokenize and /detokenize: ids of texts and of rendered chats, and back."""

from typing import Any

from shoal_sim import chat_template
from shoal_sim.http import bodies, errors
from shoal_sim.http.asgi import Exchange
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import ids_of, text_of


async def tokenize(runtime: Runtime, exchange: Exchange) -> None:
    data = await exchange.body()
    bodies.require_json_type(exchange.headers.get("content-type"))
    body = bodies.parse_object(data)
    if body.get("stream"):
        message = "OpenAIServingTokenize does not support streaming requests"
        raise errors.flat(message, "NotImplementedError", 501)
    tokens: list[Any]
    count: int | list[int]
    if body.get("messages") is not None:
        bodies.check_messages(body)
        tokens = ids_of(chat_template.render(body))
        count = len(tokens)
    elif isinstance(body.get("prompt"), list):
        tokens = [ids_of(text.encode()) for text in bodies.strings(body, "prompt")]
        count = [len(ids) for ids in tokens]
    else:
        prompt = bodies.string(body, "prompt")
        if prompt is None:
            raise errors.missing("prompt", body)
        tokens = ids_of(prompt.encode("utf-8", "surrogatepass"))
        count = len(tokens)
    await runtime.engine.read(count if isinstance(count, int) else sum(count), True, exchange.received_s)
    answer = {"tokens": tokens, "count": count, "max_model_len": runtime.settings.profile.context_length}
    await exchange.reply_json(answer)


async def detokenize(runtime: Runtime, exchange: Exchange) -> None:
    data = await exchange.body()
    bodies.require_json_type(exchange.headers.get("content-type"))
    body = bodies.parse_object(data)
    tokens = body.get("tokens")
    if isinstance(tokens, list) and tokens and all(isinstance(item, list) for item in tokens):
        await exchange.reply_json({"text": [text_of(item) for item in tokens]})
    else:
        await exchange.reply_json({"text": text_of(bodies.integers(body, "tokens"))})

"""Raw stacks cut down: one name for a function, compiled or not; machinery gone; libraries one frame."""

import pytest

from shoal_bench.hotpath import frames, run

MODULES = frozenset({"server.connection", "upstream.connection", "dispatch.exchange", "index.prompt", "index.request"})
LIBRARY = "shoal_router__mypyc.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CPyDef_server___connection___Connection____read_head", "server.connection:Connection._read_head"),
        ("CPyDef_exchange___Exchange___on_body", "dispatch.exchange:Exchange.on_body"),
        ("CPyDef_exchange___Exchange_____init__", "dispatch.exchange:Exchange.__init__"),
        ("CPyDef_exchange_____mypyc__Exchange_setup", "dispatch.exchange:Exchange"),
        ("CPyDef_exchange___Exchange", "dispatch.exchange:Exchange"),
        ("CPyDef_prompt____utf8", "index.prompt:_utf8"),
        ("CPyDef_request___read", "index.request:read"),
        ("exchange___Exchange_dealloc", "freeing Exchange"),
        ("CPyDef_exchange___Exchange_clear", "freeing Exchange"),
        ("CPyDict_GetItem", "mypyc:CPyDict_GetItem"),
        ("CPyPy_exchange___Exchange___on_body", None),
        ("CPyDef_nowhere___Thing___run", None),
    ],
)
def test_compiled_names(name: str, expected: str | None) -> None:
    assert frames.label(f"{name} ({LIBRARY})", MODULES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Connection._read_head (shoal_router/server/connection.py:190)", "server.connection:Connection._read_head"),
        ("main (shoal_router/__main__.py:28)", None),
        ("Runner.run (asyncio/runners.py:118)", None),
        ("_run_code (<frozen runpy>:88)", None),
        ("Random.choice (random.py:370)", "python:Random.choice"),
        ("write (libc.so.6)", "kernel write"),
        ("write (loop.c:1234)", "uvloop"),
        ("write (libc-2.31.so)", "kernel write"),
        ("epoll_pwait (libc.so.6)", "kernel epoll"),
        ("llhttp__internal__run (llhttp.c:5)", "llhttp"),
        ("0x7ffb5691c2e9 (orjson/orjson.cpython-311-x86_64-linux-gnu.so)", "orjson"),
        ("feed_data (httptools/parser/parser.cpython-311-x86_64-linux-gnu.so)", "llhttp"),
        ("gc_collect_main (libpython3.11.so.1.0)", frames.COLLECTOR),
        ("Py_DECREF (object.h:537)", None),
        ("no file at all", None),
    ],
)
def test_other_names(text: str, expected: str | None) -> None:
    assert frames.label(text, MODULES) == expected


def test_stacks_that_differ_in_machinery_are_one() -> None:
    head = "_run_code (<frozen runpy>:88);uv_run (core.c:464);uv__io_poll (linux.c:1546)"
    lines = [
        f"{head};CPyPy_exchange___Exchange___on_body ({LIBRARY});CPyDef_exchange___Exchange___on_body ({LIBRARY}) 3",
        f"{head};Exchange.on_body (shoal_router/dispatch/exchange.py:272) 2",
        "",
        f"{head};Exchange.on_body (shoal_router/dispatch/exchange.py:275);Py_DECREF (object.h:1) 1",
    ]
    assert frames.fold(lines, MODULES) == {("uvloop", "dispatch.exchange:Exchange.on_body"): 6}


def test_recursion_of_one_function_is_one_frame() -> None:
    line = "f (shoal_router/index/prompt.py:1);f (shoal_router/index/prompt.py:1) 4"
    assert frames.fold([line], MODULES) == {("index.prompt:f",): 4}


@pytest.mark.parametrize("line", ["no count at the end", "12"])
def test_what_is_no_stack_is_an_error(line: str) -> None:
    with pytest.raises(frames.UnreadableError):
        frames.fold([line], MODULES)


def test_modules_of_this_router() -> None:
    found = run.router_modules()
    assert {"server.connection", "dispatch.exchange", "model", "__main__"} <= found
    assert not any(name.endswith("__init__") for name in found)

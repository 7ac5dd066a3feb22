"""Requests of bench-router: sizes, and what repeats and what does not."""

import json

import pytest

from shoal_bench.router import bodies, wrk


def body(template: bodies.Template, number: int) -> bytes:
    return template.request("127.0.0.1:1", number).partition(b"\r\n\r\n")[2]


def test_small_chat_is_about_200_bytes() -> None:
    assert all(180 <= one.body_bytes <= 260 for one in bodies.small())


def test_long_prompts_are_350_kilobytes() -> None:
    assert all(abs(one.body_bytes - bodies.LONG_BYTES) < 0.02 * bodies.LONG_BYTES for one in bodies.long())


@pytest.mark.parametrize("template", [*bodies.small(), bodies.long()[0], bodies.paced(5, 20)])
def test_request_is_http_with_a_json_body_of_the_length_it_says(template: bodies.Template) -> None:
    head, _, content = template.request("127.0.0.1:1", 42).partition(b"\r\n\r\n")

    assert f"Content-Length: {len(content)}".encode() in head
    assert json.loads(content)["messages"]
    assert b"00000042" in content


def test_two_turns_of_a_session_share_all_but_the_last_message() -> None:
    one, other = (json.loads(body(bodies.long()[0], number))["messages"] for number in (1, 2))

    assert one[:-1] == other[:-1]
    assert one[-1] != other[-1]
    assert len(json.dumps(one[-1])) == pytest.approx(bodies.NEW_BYTES, rel=0.1)


def test_sessions_share_nothing_but_the_model() -> None:
    starts = {body(one, 1)[:200] for one in bodies.long()}

    assert len(starts) == bodies.SESSIONS


def test_long_stream_asks_for_its_tokens() -> None:
    asked = json.loads(body(bodies.long(stream_tokens=8)[0], 1))

    assert asked["stream"] is True
    assert asked["max_tokens"] == 8


WRK = """Running 3s test @ http://127.0.0.1:1/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.86ms    0.70ms  12.18ms   80.00%
  50000 requests in 2.50s, 14.00MB read
{more}Requests/sec:  20000.00
"""


def test_wrk_report_without_errors() -> None:
    result = wrk.parse(WRK.format(more=""))

    assert (result.requests, result.seconds, result.errors) == (50000, 2.5, "")
    assert result.rps == 20000


def test_wrk_report_with_errors_names_them() -> None:
    more = "  Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 7\n"

    assert "read 3" in wrk.parse(WRK.format(more=more)).errors
    assert "responses: 7" in wrk.parse(WRK.format(more=more)).errors


def test_wrk_report_without_figures_is_an_error() -> None:
    with pytest.raises(wrk.WrkError, match="no figures"):
        wrk.parse("unable to connect")

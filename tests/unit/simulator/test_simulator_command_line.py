"""SGLang's command line as the simulator reads it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shoal_sim.flags import CommandLineError, parse
from shoal_sim.settings import Settings, resolve

MODEL = ["--model-path", "/models/tiny-llama"]
SHIM = Path(__file__).resolve().parents[3] / "simulator" / "sglang_shim"
OPERATOR_LIKE = shlex.split("""
--model-path /models/Kimi-K2 --served-model-name kimi --host 0.0.0.0 --port 30000 --tp-size 8
--page-size 64 --max-running-requests 256 --max-queued-requests 64 --enable-metrics --enable-cache-report
--context-length 256k --kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.85 --chunked-prefill-size 16384
--trust-remote-code --reasoning-parser kimi_k2 --tool-call-parser kimi_k2 --load-publish-endpoint auto
--kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557"}' --cuda-graph-max-bs-decode 256
--speculative-algorithm EAGLE3 --speculative-draft-model-path /models/draft --speculative-num-steps 3
--speculative-eagle-topk 1 --speculative-num-draft-tokens 4
""")


def settings(*argv: str, **env: str) -> Settings:
    return resolve(parse([*MODEL, *argv]), env)


def test_a_full_command_line_acts() -> None:
    got = resolve(parse(OPERATOR_LIKE), {"SHOAL_SIM_GPU": "b200", "SHOAL_SIM_SPEEDUP": "20"})
    assert got.profile.name == "kimi-k2.5-b200"
    assert (got.host, got.port, got.served_model_name, got.speedup) == ("0.0.0.0", 30000, "kimi", 20.0)
    assert (got.policy.max_running, got.policy.max_queued, got.policy.chunk_tokens) == (256, 64, 16384)
    assert got.context_length == 256 * 1024
    assert got.speculation is not None
    assert got.speculation.draft_tokens == 4
    assert got.server_args["reasoning_parser"] == "kimi_k2"


def test_spellings_and_joined_values() -> None:
    line = parse(["--model=/m", "--tensor-parallel-size=4", "--tp", "8", "--enable-hicache", "--no-enable-lora"])
    fields = line.fields
    assert (fields["model_path"], fields["tp_size"]) == ("/m", 8)
    assert fields["enable_hierarchical_cache"] is True
    assert fields["enable_lora"] is False
    assert line.given == {"model_path", "tp_size", "enable_hierarchical_cache", "enable_lora"}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--page-siz", "64"], "unrecognized arguments: --page-siz"),
        (["stray"], "unrecognized arguments: stray"),
        (["--page-size"], "argument --page-size: expected one argument"),
        (["--page-size", "--enable-metrics"], "argument --page-size: expected one argument"),
        (["--port", "many"], "argument --port: invalid int value: 'many'"),
        (["--enable-metrics=yes"], "ignored explicit argument"),
        (["--cuda-graph-bs-decode"], "expected at least one argument"),
        (["--no-enable-metrics"], "unrecognized arguments"),
        (["--profile", "abacus"], "invalid choice: 'abacus'"),
        (["--speedup", "0"], "must be positive"),
        (["--speedup", "fast"], "invalid float value"),
        (["--chunked-prefill-size", "100", "--page-size", "64"], "chunked_prefill_size"),
        (["--served-model-name", "a:b"], "colon"),
        (["--context-length", "lots"], "--context-length"),
        (["--max-total-tokens", "64", "--page-size", "64"], "Not enough memory"),
        (["--enable-priority-scheduling", "--schedule-policy", "lpm"], "priority scheduling"),
        (["--disaggregation-mode", "prefill"], "--disaggregation-mode"),
    ],
)
def test_what_is_wrong_is_said(argv: list[str], says: str) -> None:
    with pytest.raises(CommandLineError) as caught:
        settings(*argv)
    assert says in str(caught.value)


def test_what_is_not_simulated_is_named() -> None:
    assert settings("--kv-events-config", "{}", "--enable-metrics").without_effect == ("kv_events_config",)


def test_a_model_is_needed() -> None:
    with pytest.raises(CommandLineError, match="--model-path"):
        parse(["--port", "1"])


def test_defaults_of_the_engine() -> None:
    got = settings()
    assert (got.host, got.port, got.served_model_name) == ("127.0.0.1", 30000, "/models/tiny-llama")
    assert got.policy.max_running == 2048
    assert (got.cache_report, got.metrics, got.keep_alive_s, got.generating_health) == (False, False, 5, True)


def test_speculation_sets_a_low_limit_of_running_requests() -> None:
    assert settings("--speculative-algorithm", "NEXTN").policy.max_running == 48
    assert settings("--speculative-algorithm", "NEXTN", "--max-running-requests", "200").policy.max_running == 200


def test_pool_is_whole_pages_and_never_more_than_asked() -> None:
    got = settings("--max-total-tokens", "17000", "--page-size", "64", "--context-length", "16384")
    assert (got.kv_tokens, got.capacity_pages, got.input_tokens_max) == (16960, 265, 16378)


def test_environment_gives_what_flags_leave_open() -> None:
    env = {
        "SHOAL_SIM_PROFILE": "llama-8b-h200",
        "SHOAL_SIM_LOAD_SECONDS": "7",
        "SGLANG_TIMEOUT_KEEP_ALIVE": "300",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    }
    got = settings(**env)
    assert (got.profile.name, got.load_s, got.keep_alive_s, got.generating_health) == ("llama-8b-h200", 7, 300, False)
    assert settings("--profile", "tiny", "--load-seconds", "0", **env).load_s == 0


def test_shim_refuses_as_argparse_does() -> None:
    command = [sys.executable, "-m", "sglang.launch_server", *MODEL, "--bogus"]
    env = {"PYTHONPATH": f"{SHIM}:{SHIM.parent}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("launch_server.py: error: unrecognized arguments: --bogus\n")

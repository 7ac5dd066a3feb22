"""Command lines: golden files by case, and each rule about what may stand in `engine.args`."""

import argparse
import pathlib

import pytest

from shoal_operator.sglang import accept, flags, launch
from shoal_testing import services
from shoal_testing.golden import Golden

TABLE = flags.table("0.5.23")
assert TABLE is not None


@pytest.mark.parametrize("case", services.CASES)
def test_argv_is_the_golden_one(golden: Golden, case: str) -> None:
    service = services.service(case)
    for profile in service.profiles:
        started = launch.render_launch(service, profile)
        environment = "".join(f"{name}={value}\n" for name, value in started.env)
        golden.check(f"argv/{case}-{profile.gpu.lower()}.txt", "".join(f"{one}\n" for one in started.argv))
        golden.check(f"argv/{case}-{profile.gpu.lower()}.env", environment)


def test_golden_argv_have_no_strangers() -> None:
    folder = pathlib.Path(__file__).resolve().parents[2] / "golden" / "argv"
    want = {f"{case}-{profile.gpu.lower()}" for case in services.CASES for profile in services.service(case).profiles}
    assert {file.stem for file in folder.iterdir()} == want


def _parser() -> argparse.ArgumentParser:
    """A parser like SGLang's own, from the flag table, without abbreviations."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    types = {"int": int, "float": float}
    assert TABLE is not None
    for flag in {id(one): one for one in TABLE.flags.values()}.values():
        name = f"--{flag.name}"
        if flag.kind == "bare":
            parser.add_argument(name, action="store_true")
        elif flag.kind == "negatable":
            parser.add_argument(name, action=argparse.BooleanOptionalAction)
        else:
            nargs = {"list": "+", "optional": "?"}.get(flag.kind)
            parser.add_argument(name, type=types.get(flag.type, str), nargs=nargs, choices=flag.choices or None)
    return parser


@pytest.mark.parametrize("case", [case for case in services.CASES if case != "s3-unchecked"])
def test_argv_parses_by_the_table(case: str) -> None:
    service = services.service(case)
    for profile in service.profiles:
        parsed = _parser().parse_args(list(launch.render_launch(service, profile).argv))
        assert parsed.served_model_name == service.served_name
        assert parsed.tp_size == profile.parallelism.tensor


@pytest.mark.parametrize("case", services.CASES)
def test_explicit_flags_are_always_there(case: str) -> None:
    service = services.service(case)
    for profile in service.profiles:
        argv = launch.render_launch(service, profile).argv
        for flag in ("served-model-name", "max-running-requests", "max-queued-requests", "page-size", "host", "port"):
            assert argv.count(f"--{flag}") == 1
        assert {"--enable-metrics", "--enable-cache-report"} <= set(argv)
        assert argv[argv.index("--host") + 1] == "$(POD_IP)"
        assert argv[argv.index("--port") + 1] == "30000"


REFUSED = {
    "abbreviation": ({"mem-frac": 0.9}, "abbreviation of --mem-fraction-static"),
    "unknown": ({"atention-backend": "fa3"}, "did you mean --attention-backend"),
    "deprecated": ({"disable-cuda-graph": True}, "use --cuda-graph-backend-decode disabled"),
    "owned": ({"host": "0.0.0.0"}, "belongs to the operator"),
    "owned by alias": ({"tensor-parallel-size": 4}, "--tp-size belongs to the operator"),
    "owned with underscores": ({"page_size": 32}, "--page-size belongs to the operator"),
    "twice": ({"dcp-size": 2, "decode-context-parallel-size": 2}, "same flag"),
    "choice": ({"schedule-policy": "fair"}, "it can be"),
    "type": ({"watchdog-timeout": "soon"}, "takes a number"),
    "bare with value": ({"trust-remote-code": "yes"}, "takes no value"),
    "value missing": ({"schedule-policy": True}, "needs a value"),
    "list for one": ({"schedule-policy": ["lpm", "fcfs"]}, "not a list"),
    "json": ({"default-chat-template-kwargs": "{"}, "takes JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_args_are_refused_with_the_fix(case: str) -> None:
    args, want = REFUSED[case]
    found = accept.accept(services.service("quickstart", engine={"args": args}))
    assert [problem.reason for problem in found.refusals] == ["EngineArgsInvalid"]
    assert want in found.refusals[0].message


def test_profile_args_are_checked_and_win() -> None:
    hardware = [{"gpu": "B200", "gpusPerReplica": 1, "args": {"schedule-policy": "lpm", "trust-remote-code": False}}]
    engine = {"args": {"schedule-policy": "fcfs", "trust-remote-code": True}}
    service = services.service("quickstart", hardware=hardware, engine=engine)
    argv = launch.render_launch(service, service.profiles[0]).argv
    assert argv.count("--schedule-policy") == 1
    assert argv[argv.index("--schedule-policy") + 1] == "lpm"
    assert "--trust-remote-code" not in argv

    wrong = [{"gpu": "B200", "gpusPerReplica": 1, "args": {"port": 1}}]
    found = accept.accept(services.service("quickstart", hardware=wrong))
    assert found.refusals[0].field == "spec.hardware[B200].args[port]"


def test_version_without_table_is_refused_with_the_list() -> None:
    found = accept.accept(services.service("quickstart", engine={"version": "0.4.1"}))
    assert found.refusals[0].reason == "EngineVersionUnsupported"
    assert "0.5.23" in found.refusals[0].message


def test_unchecked_passes_args_verbatim() -> None:
    service = services.service("s3-unchecked")
    assert accept.accept(service).accepted
    argv = launch.render_launch(service, service.profiles[0]).argv
    assert argv[-3:] == ("--brand-new-flag", "3", "--switch")


def test_negatable_flag_has_its_no_form() -> None:
    service = services.service("quickstart", engine={"args": {"enable-tf32-matmul": False}})
    assert "--no-enable-tf32-matmul" in launch.render_launch(service, service.profiles[0]).argv


def test_list_flag_takes_several_values() -> None:
    service = services.service("quickstart", engine={"args": {"cuda-graph-bs-decode": [1, 2, 4]}})
    argv = launch.render_launch(service, service.profiles[0]).argv
    at = argv.index("--cuda-graph-bs-decode")
    assert argv[at : at + 4] == ("--cuda-graph-bs-decode", "1", "2", "4")
    assert accept.accept(service).accepted


def test_own_environment_wins() -> None:
    service = services.service("kimi-dflash-attention-data")
    env = dict(launch.render_launch(service, service.profiles[0]).env)
    assert env["HF_HOME"] == "/hf"
    assert env["SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"] == "0"


def test_table_reads_every_line() -> None:
    assert TABLE is not None
    assert len({flag.name for flag in TABLE.flags.values()}) > 500
    assert TABLE.flags["model"].name == "model-path"
    assert {flag.kind for flag in TABLE.flags.values()} <= {"value", "list", "optional", "bare", "negatable"}
    assert flags.table("0.5.22") is None

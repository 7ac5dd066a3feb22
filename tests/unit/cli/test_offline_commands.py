"""`plan` and `fit` on files: the operator's own answers, and refusals that name file, object and field."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from shoal_cli import manifests, plan

POOL = {
    "apiVersion": "shoal.dev/v1alpha1",
    "kind": "GPUPool",
    "metadata": {"name": "b200"},
    "spec": {
        "gpu": "B200", "architecture": "sm100", "memory": "180Gi", "nodeSelector": {"gpu": "b200"}, "gpusPerNode": 8,
    },
}  # fmt: skip
SERVICE = {
    "apiVersion": "shoal.dev/v1alpha1",
    "kind": "ModelService",
    "metadata": {"name": "kimi"},
    "spec": {
        "model": {
            "source": "hf://nvidia/Kimi-K2-Instruct-0905-NVFP4", "servedName": "kimi", "quantization": "nvfp4",
            "contextLength": 131072,
        },
        "hardware": [{"gpu": "B200", "gpusPerReplica": 8}],
        "replicas": 2,
    },
}  # fmt: skip
OTHER = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shoal"}}


def write(folder: Path, *documents: object) -> Path:
    (folder / "all.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def changed(**spec: object) -> dict[str, object]:
    return {**SERVICE, "spec": {**SERVICE["spec"], **spec}}  # type: ignore[dict-item]


def test_plan_prints_the_command_line_and_the_steps(tmp_path: Path) -> None:
    done = CliRunner().invoke(plan.plan, ["-f", str(write(tmp_path, OTHER, POOL, SERVICE))])
    assert done.exit_code == 0, done.output
    assert "python3 -m sglang.launch_server" in done.output
    assert "--tp-size 8" in done.output
    assert done.output.count("create replica") == 2


def test_plan_says_that_prompts_go_whole(tmp_path: Path) -> None:
    files = write(tmp_path, POOL, changed(routing={"slicing": "Off"}))
    assert "slicing Off" in CliRunner().invoke(plan.plan, ["-f", str(files)]).output


def test_plan_prints_manifests(tmp_path: Path) -> None:
    done = CliRunner().invoke(plan.plan, ["-o", "yaml", "-f", str(write(tmp_path, POOL, SERVICE))])
    kinds = [document["kind"] for document in yaml.safe_load_all(done.output)]
    assert kinds.count("StatefulSet") == 2


def test_fit_tells_the_kv_cache(tmp_path: Path) -> None:
    done = CliRunner().invoke(plan.fit, ["-f", str(write(tmp_path, POOL, SERVICE))])
    assert done.exit_code == 0, done.output
    assert "8 x B200: fits" in done.output


@pytest.mark.parametrize("command", [plan.plan, plan.fit], ids=["plan", "fit"])
@pytest.mark.parametrize(
    ("documents", "want"),
    [
        pytest.param([SERVICE], "GPUPoolMissing", id="no pool"),
        pytest.param([POOL, changed(hardware=[{"gpu": "B200", "gpusPerReplica": 2}])], "DoesNotFit", id="too large"),
        pytest.param([POOL, changed(engine={"args": {"nonsense": 1}})], "EngineArgsInvalid", id="unknown flag"),
    ],
)
def test_what_the_operator_refuses_is_refused(
    tmp_path: Path, command: object, documents: list[object], want: str
) -> None:
    done = CliRunner().invoke(command, ["-f", str(write(tmp_path, *documents))])  # type: ignore[arg-type]
    assert done.exit_code == 1
    assert want in done.output


@pytest.mark.parametrize(
    ("documents", "want"),
    [
        pytest.param([changed(nonsense=1)], r"ModelService kimi: spec\.nonsense", id="unknown field"),
        pytest.param(
            [changed(routing={"slicing": "On"})], r"spec\.routing\.slicing: .*'Auto' or 'Off'$", id="no such word"
        ),
        pytest.param([changed(routing={"slicing": False})], r'spec\.routing\.slicing: .*write "Off"', id="a bare Off"),
        pytest.param([{**POOL, "spec": {"gpu": "B200"}}], r"GPUPool b200: .*memory", id="missing field"),
    ],
)
def test_invalid_object_is_named(tmp_path: Path, documents: list[object], want: str) -> None:
    with pytest.raises(manifests.ManifestError, match=want):
        manifests.read((write(tmp_path, *documents),))


def test_text_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    done = CliRunner().invoke(plan.plan, ["-f", str(tmp_path / "a.yaml")])
    assert done.exit_code == 1
    assert "a.yaml" in done.output


def test_files_without_a_model_service_are_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(plan.plan, ["-f", str(write(tmp_path, POOL))])
    assert done.exit_code == 1
    assert "no ModelService" in done.output

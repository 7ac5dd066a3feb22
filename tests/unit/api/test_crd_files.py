"""`shoal crds`: the committed files are the models', drift is told by file, and the schemas are structural."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from shoal_api import crd, modelservice, structural

CHECKOUT = Path(__file__).parents[3]
KINDS = {kind.kind: kind for kind in crd.KINDS}


def _nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from _nodes(schema[part], f"{path}[]")


def test_committed_files_are_the_models() -> None:
    assert crd.drift(CHECKOUT) == []


def test_check_names_the_files_that_differ(tmp_path: Path) -> None:
    crd.write(tmp_path)
    for kind in crd.KINDS:
        page = tmp_path / "docs" / "kinds" / f"{kind.kind.lower()}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text((CHECKOUT / "docs" / "kinds" / page.name).read_text())
    assert crd.drift(tmp_path) == []
    edited, stale = tmp_path / "crds" / "routers.yaml", tmp_path / "charts" / "shoal" / "crds" / "old.yaml"
    edited.write_text(edited.read_text().replace("maximum: 100", "maximum: 1000"))
    stale.write_text("")
    (tmp_path / "docs" / "kinds" / "gpupool.md").unlink()
    assert crd.drift(tmp_path) == [
        "crds/routers.yaml: differs from the models",
        "charts/shoal/crds/old.yaml: no kind has this file",
        "docs/kinds/gpupool.md: missing",
    ]
    assert crd.write(tmp_path) == [edited]


def test_printed_stream_holds_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--out", "-"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["spec"]["names"]["kind"] for one in printed] == list(KINDS)


def test_files_are_written_where_told(tmp_path: Path) -> None:
    assert crd.main(["--out", str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(kind.file for kind in crd.KINDS)


def test_hash_follows_the_schema() -> None:
    kind = KINDS["Router"]
    before = crd.definition_of(kind)
    assert before == crd.definition_of(kind)
    other = crd.definition_of(KINDS["DraftModel"])
    assert before["metadata"]["annotations"] != other["metadata"]["annotations"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_field_is_described_and_typed(kind: crd.Kind) -> None:
    for path, node in _nodes(crd.schema_of(kind), ""):
        assert "$ref" not in node
        assert "title" not in node
        typed = node.get("type") or node.get("x-kubernetes-int-or-string")
        assert typed or node.get("x-kubernetes-preserve-unknown-fields"), path
        if not path.endswith("[]") and path not in ("", ".apiVersion", ".kind", ".metadata"):
            assert node.get("description"), path


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_everything_is_bounded(kind: crd.Kind) -> None:
    """CEL's cost budget and etcd's object size both need bounds of all that users write."""
    for path, node in _nodes(crd.schema_of(kind)["properties"]["spec"], ".spec"):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "integer":
            assert "maximum" in node, path


def test_status_has_no_defaults() -> None:
    for kind in crd.KINDS:
        assert not [path for path, node in _nodes(crd.schema_of(kind)["properties"]["status"], "") if "default" in node]


def test_a_choice_of_two_types_is_refused() -> None:
    class Odd(modelservice.meta.SpecModel):
        either: int | str | None = None

    with pytest.raises(TypeError, match="null or one thing"):
        structural.of_model(Odd)


def test_unknown_field_is_refused_by_the_model_too() -> None:
    with pytest.raises(ValidationError, match="replica\n"):
        modelservice.ModelServiceSpec.model_validate({"replica": 2})

"""Every manifest of examples/ and part of one in docs/kinds: taken by the real kube-apiserver, and by the operator.

`shoal plan` runs the operator's own resolve, checks and rendering, so an example that would be refused fails here.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from shoal_cli.plan import plan
from shoal_testing import objects
from shoal_testing.apiserver import Tool

pytestmark = pytest.mark.apiserver

CHECKOUT = Path(__file__).parents[2]
FOLDERS = sorted({path.parent for path in (CHECKOUT / "examples").rglob("*.yaml")})
PAGES = sorted((CHECKOUT / "docs" / "kinds").glob("*.md"))
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _parts() -> list[Any]:
    """Blocks that show a part of a ModelService's spec; whole manifests are the documents' own test's business."""
    texts = (block for page in PAGES for block in BLOCK.findall(page.read_text()))
    return [yaml.safe_load(text) for text in texts if "apiVersion" not in text]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_example_is_taken(kinds_kubectl: Tool, folder: Path) -> None:
    done = kinds_kubectl("apply", "--dry-run=server", "--validate=strict", "-f", folder)
    assert done.stderr == ""
    assert done.stdout.splitlines()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_operator_would_accept_the_example(folder: Path) -> None:
    done = CliRunner().invoke(plan, ["-f", str(folder)])
    assert done.exit_code == 0, done.output
    assert "sglang.launch_server" in done.output
    assert "warning" not in done.output.lower()


@pytest.mark.parametrize("part", _parts(), ids=lambda part: ",".join(part))
def test_part_of_a_spec_is_taken(kinds_api: objects.Api, part: objects.Object) -> None:
    document = objects.patched(objects.smallest("ModelService"), {"spec": part})
    answer = kinds_api.create(document, dry_run=True)
    assert answer.is_success, answer.text


def test_examples_leave_the_namespace_to_kubectl() -> None:
    """They are applied with `-n`, beside the Router that serves them."""
    for path in (CHECKOUT / "examples").rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            assert "namespace" not in document["metadata"], path

"""DraftModel: how one target model is decoded speculatively.

The operator renders it into SGLang's speculative flags of every ModelService that names it.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from shoal_api import meta
from shoal_api.modelservice import SOURCE_PATTERN


class DraftTarget(meta.SpecModel):
    """The model that the draft was made for."""

    source: str = Field(max_length=1024, pattern=SOURCE_PATTERN)
    """Source of the target, as the ModelService has it."""
    revision: str | None = Field(default=None, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """Revision of the target; absent: any."""


class DraftConfig(meta.SpecModel):
    """Depth of the speculation; what is left out is the engine's own choice."""

    steps: int | None = Field(default=None, ge=1, le=64)
    """Draft steps."""
    topk: int | None = Field(default=None, ge=1, le=64)
    """Branches a step."""
    draft_tokens: int | None = Field(default=None, ge=1, le=256)
    """Tokens verified at once."""
    block_size: int | None = Field(default=None, ge=1, le=256)
    """Tokens of one DFLASH block."""


class Compatibility(meta.SpecModel):
    """What the draft is known to run with."""

    engine_versions: tuple[Annotated[str, StringConstraints(max_length=32)], ...] = Field(
        default=(), max_length=32, json_schema_extra=meta.SET_EXTRA
    )
    """Engine versions; empty: any."""


class DraftModelSpec(meta.SpecModel):
    """What is wanted."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.algorithm in ['NEXTN', 'NGRAM'] || has(self.source)",
            "EAGLE3, DFLASH and STANDALONE need source",
            "FieldValueRequired",
            ".source",
        ),
        meta.Rule(
            "!(self.algorithm in ['NEXTN', 'NGRAM']) || !has(self.source)",
            "NEXTN and NGRAM load no draft: leave source out",
            "FieldValueForbidden",
            ".source",
        ),
        meta.Rule(
            "!has(self.revision) || (has(self.source) && self.source.startsWith('hf://'))",
            "revision is for hf:// sources only",
            "FieldValueForbidden",
            ".revision",
        ),
        meta.Rule(
            "self.algorithm == 'DFLASH' || !has(self.config.blockSize)",
            "blockSize is for DFLASH only",
            "FieldValueForbidden",
            ".config.blockSize",
        ),
        meta.Rule(
            "self.algorithm != 'DFLASH' || "
            "!(has(self.config.steps) || has(self.config.topk) || has(self.config.draftTokens))",
            "DFLASH takes blockSize, not steps, topk or draftTokens",
            "FieldValueForbidden",
        ),
        meta.Rule(
            "self.algorithm != 'NGRAM' || !(has(self.config.steps) || has(self.config.topk))",
            "NGRAM takes draftTokens, not steps or topk",
            "FieldValueForbidden",
        ),
        meta.Rule(
            "self.algorithm in ['DFLASH', 'NGRAM'] || (has(self.config.steps) == has(self.config.topk) && "
            "has(self.config.topk) == has(self.config.draftTokens))",
            "steps, topk and draftTokens are given together or not at all",
        ),
        meta.Rule(
            "!has(self.config.topk) || self.config.topk != 1 || !has(self.config.steps) || "
            "!has(self.config.draftTokens) || self.config.draftTokens == self.config.steps + 1",
            "topk 1 verifies a chain: draftTokens must be steps + 1",
        ),
    )

    target: DraftTarget
    """The model that the draft was made for."""
    algorithm: Literal["EAGLE3", "DFLASH", "NEXTN", "STANDALONE", "NGRAM"]
    """How drafts are made: a draft model (EAGLE3, DFLASH, STANDALONE), the target's own extra layer (NEXTN), or text
    seen before (NGRAM)."""
    source: str | None = Field(default=None, max_length=1024, pattern=SOURCE_PATTERN)
    """Where the draft's weights are."""
    revision: str | None = Field(default=None, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """Revision of a `hf://` source."""
    config: DraftConfig = DraftConfig()
    """Depth of the speculation."""
    compatibility: Compatibility = Compatibility()
    """What the draft is known to run with."""


class DraftModelStatus(meta.StatusModel):
    """What the operator found."""

    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that this status is about."""
    services: tuple[Annotated[str, StringConstraints(max_length=63)], ...] = Field(
        default=(), max_length=1000, json_schema_extra=meta.SET_EXTRA
    )
    """ModelServices that use it."""
    conditions: tuple[meta.Condition, ...] = Field(default=(), max_length=16, json_schema_extra=meta.CONDITIONS_EXTRA)
    """Accepted, with its reason."""


class DraftModel(meta.StatusModel):
    """How one target model is decoded speculatively."""

    api_version: Literal["shoal.dev/v1alpha1"] = "shoal.dev/v1alpha1"
    kind: Literal["DraftModel"] = "DraftModel"
    metadata: meta.ObjectMeta
    spec: DraftModelSpec
    """What is wanted."""
    status: DraftModelStatus = DraftModelStatus()
    """What the operator found."""

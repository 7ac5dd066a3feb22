"""Which function brings which kind in order."""

from collections.abc import Mapping
from typing import Final

from shoal_operator.kube import resources
from shoal_operator.reconcile import draftmodel, gpupool
from shoal_operator.reconcile.context import Reconcile

BY_KIND: Final[Mapping[str, Reconcile]] = {
    resources.GPU_POOLS.kind: gpupool.reconcile,
    resources.DRAFT_MODELS.kind: draftmodel.reconcile,
}

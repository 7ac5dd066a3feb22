"""Which function brings which kind in order."""

from collections.abc import Mapping
from typing import Final

from shoal_operator.kube import resources
from shoal_operator.reconcile import draftmodel, gpupool, modelservice, router
from shoal_operator.reconcile.context import Reconcile

BY_KIND: Final[Mapping[str, Reconcile]] = {
    resources.MODEL_SERVICES.kind: modelservice.reconcile,
    resources.ROUTERS.kind: router.reconcile,
    resources.GPU_POOLS.kind: gpupool.reconcile,
    resources.DRAFT_MODELS.kind: draftmodel.reconcile,
}

"""The table of lowerings: every overload of aten, and of prims, that the wire format has words for by itself."""

from collections.abc import Mapping
from typing import Any

from fuseplan_client.torch.aten.activations import ACTIVATIONS
from fuseplan_client.torch.aten.attention import ATTENTION
from fuseplan_client.torch.aten.call import Lowering
from fuseplan_client.torch.aten.constants import CONSTANTS
from fuseplan_client.torch.aten.foreach import foreach_table
from fuseplan_client.torch.aten.indexing import INDEXING
from fuseplan_client.torch.aten.losses import LOSSES
from fuseplan_client.torch.aten.normalization import NORMALIZATION
from fuseplan_client.torch.aten.padding import PADDING
from fuseplan_client.torch.aten.pointwise import POINTWISE
from fuseplan_client.torch.aten.pooling import POOLING
from fuseplan_client.torch.aten.products import PRODUCTS
from fuseplan_client.torch.aten.random import RANDOM
from fuseplan_client.torch.aten.reductions import REDUCTIONS
from fuseplan_client.torch.aten.scattering import SCATTERING
from fuseplan_client.torch.aten.selection import SELECTION
from fuseplan_client.torch.aten.views import VIEWS

TOPICS: tuple[Mapping[Any, Lowering], ...] = (
    POINTWISE, SELECTION, CONSTANTS, VIEWS, PADDING, REDUCTIONS, PRODUCTS, INDEXING, SCATTERING, NORMALIZATION,
    ACTIVATIONS, LOSSES, POOLING, ATTENTION, RANDOM,
)  # fmt: skip
_SINGLE: Mapping[Any, Lowering] = {target: lowering for topic in TOPICS for target, lowering in topic.items()}
LOWERINGS: Mapping[Any, Lowering] = {**_SINGLE, **foreach_table(_SINGLE)}

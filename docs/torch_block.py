"""A block of a transformer by `torch.compile(backend="fuseplan")`: PyTorch's own ops until there are plans, then these.

    make torch                              # this, with all that it needs
    python docs/torch_block.py [SECONDS]    # of search for each graph; 20 by default

Without a server's address in FUSEPLAN_SERVER, it starts a server of its own, which ends with it.
"""

import sys
import time

import torch
from fuseplan_client import explain
from torch import Tensor, nn
from torch.nn import functional as F

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0


class Block(nn.Module):
    """Attention and two layers behind it, each behind a norm and beside a residual."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind()).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm_2(x))


block, x = Block().eval(), torch.randn(8, 64, 256)
with torch.no_grad():
    fast = torch.compile(block, backend="fuseplan", options={"seconds": SECONDS})
    start = time.perf_counter()
    found = fast(x)  # nobody waits for a plan: this call ran PyTorch's ops
    print(f"first call: {time.perf_counter() - start:.1f} s, most of it to trace the block")
    torch.testing.assert_close(found, block(x))
    print(explain(block, [x], seconds=SECONDS))
    for _ in range(20):
        found = fast(x)  # where the plan came meanwhile: judged on these calls, then used
    torch.testing.assert_close(found, block(x), rtol=1e-3, atol=1e-4)

"""A training loop by plans, the optimizer's step, too: `python docs/torch_training.py [SECONDS] [STEPS]`.

The loop never waits: steps run PyTorch's ops until plans are there, and go on with whatever is faster.
"""

import sys
import time

import torch
from torch.nn import functional as F

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 10)
)
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
fast = torch.compile(model, backend="fuseplan", options={"seconds": SECONDS})
update = torch.compile(optimizer.step, backend="fuseplan", options={"seconds": SECONDS})
inputs = torch.randn(4096, 64)
labels = (inputs @ torch.randn(64, 10)).argmax(-1)

since = time.perf_counter()
for step in range(STEPS):
    rows = torch.randint(0, len(inputs), (256,))
    loss = F.cross_entropy(fast(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    update()
    if (step + 1) % max(1, STEPS // 10) == 0:
        took, since = time.perf_counter() - since, time.perf_counter()
        print(f"step {step + 1}: loss {loss.item():.3f}, {1e3 * took / max(1, STEPS // 10):.2f} ms a step")

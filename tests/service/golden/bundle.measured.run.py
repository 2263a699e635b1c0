"""Runs the plan in this folder: python run.py [INPUTS.safetensors]; without a file, on random inputs."""

import sys
from pathlib import Path

from fuseplan_client import load

plan = load(Path(__file__).resolve().parent)
print(plan.verified)
inputs = plan.read_inputs(sys.argv[1]) if len(sys.argv) > 1 else plan.random_inputs()
outputs = plan(*inputs)
for (name, array), spec in zip(outputs.items(), plan.plan.outputs, strict=True):
    print(f"{name!r}: {spec.dtype}{list(array.shape)}")

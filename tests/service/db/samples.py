"""Small graphs, plans and measurements to put into a database."""

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

from fusion_ir.records import Ceilings, Device, Measurement, Plan, Search, Status, Step, TensorSpec
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey
from tuning_db.store import Store


def sha(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


@dataclass(frozen=True)
class Samples:
    """Small plans, told apart by `n`."""

    device: Device = field(
        default_factory=lambda: Device(
            target="cpu",
            name="Test CPU",
            arch="x86-64",
            features=("avx2", "fma"),
            units=2,
            vector_bytes=32,
            cache_bytes=1 << 20,
            memory_bytes=1 << 30,
            toolchain="g++ 12",
            driver="",
        )
    )
    names: ClassVar[Names] = Names(("x",), ("y",))
    ceilings: ClassVar[Ceilings] = Ceilings(
        copy_gbps=((0, 10.0),), read_gbps=((0, 12.0),), launch_us=1.5, fma_gflops=100.0
    )

    def graph(self, n: int = 0, op: str = "exp") -> str:
        vector = f"f32[{n + 1}]"
        lines = (f"in0: {vector} align 16", f"%0 = in0: {vector}", f"%1 = {op}(%0): {vector}", "out0: %1")
        return "\n".join(("fuseplan.graph 1", *lines, ""))

    def graph_key(self, n: int = 0, op: str = "exp") -> str:
        return sha(self.graph(n, op))

    def request(self, n: int = 0, op: str = "exp", **changed: object) -> RequestKey:
        return RequestKey(**{"graph_key": self.graph_key(n, op), "device_key": self.device.class_key} | changed)  # pyright: ignore

    def binary(self, n: int = 0) -> bytes:
        return b"\x7fELF" + bytes(range(256)) * 8 + n.to_bytes(4, "little")

    def source(self, n: int = 0) -> str:
        return f"void k{n}() {{}}\n"

    def plan(self, n: int = 0, *, op: str = "exp", family: str = "pointwise", binary: int | None = None) -> Plan:
        made = n if binary is None else binary
        step = Step(
            family=family,
            schedule=f"{family}{{vec=8}}",
            binary=sha(self.binary(made)),
            entry="k",
            reads=(),
            writes=(),
            time_us=1.25 + n,
            bound_us=0.5,
            bytes=32,
            operations=4.0,
            nodes=(1,),
            segment_key=sha("segment"),
            source=sha(self.source(made)),
        )
        return Plan(
            graph_key=self.graph_key(n, op),
            numerics="reassociate",
            device=self.device,
            inputs=(),
            outputs=(TensorSpec(shape=(n + 1,), dtype="f32", strides=(1,), alignment_bytes=16),),
            buffers=(),
            steps=(step,),
            time_us=1.25 + n,
            spread=0.01,
            unfused_us=2.5,
            lower_bound_us=0.1 + 0.2,
            search_gap=None,
            copy_us=0.7,
            max_rel_error=0.0,
            search=Search(seconds=1.0, candidates=3, measured=2, complete=True),
            version="0.1.0",
        )

    def put(
        self, store: Store, n: int = 0, *, op: str = "exp", family: str = "pointwise", binary: int | None = None
    ) -> str:
        """Stores graph and plan `n` as measured; returns the plan's key."""
        store.graphs.put(self.graph_key(n, op), self.graph(n, op), self.names)
        made = n if binary is None else binary
        binaries, sources = {sha(self.binary(made)): self.binary(made)}, {sha(self.source(made)): self.source(made)}
        plan = self.plan(n, op=op, family=family, binary=binary)
        return store.plans.put(self.request(n, op), plan, "measured", binaries, sources)

    def measurement(self, schedule: str, *samples_us: float, **changed: object) -> Measurement:
        values: dict[str, object] = {
            "segment_key": sha("segment"),
            "device_key": self.device.class_key,
            "family": "pointwise",
            "schedule": schedule,
            "status": Status.ok,
            "samples_us": samples_us,
            "max_rel_error": 1e-7,
            "compile_seconds": 0.25,
            "binary": sha(self.binary()),
        }
        return Measurement(**values | changed)  # pyright: ignore[reportArgumentType]

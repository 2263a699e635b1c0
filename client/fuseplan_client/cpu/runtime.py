"""Running a plan on the CPU on tensors of NumPy's, PyTorch's, or of whoever has DLPack: guards, outputs, constants."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fuseplan_client.bundle import Bundle, BundleError
from fuseplan_client.cpu.executor import process_executor
from fuseplan_client.cpu.program import CpuProgram, Known, Table, way_of
from fuseplan_client.cpu.tensors import empty, host_view
from fuseplan_client.fill import CARRIERS, random_values, read_values
from fuseplan_client.guards import GuardError, check
from fuseplan_client.outputs import Outputs
from fuseplan_client.plan import Tensor
from fuseplan_client.tensors import View, as_planned, version

Tensors = Sequence[Any] | Mapping[str, Any]  # in order, or by name


class CpuPlan:
    """A plan on this machine's CPU. Any number of threads may call it at the same time.

    Temporaries are one allocation for each thread, shared by all plans. The prologue, which computes all that depends
    on constants alone, runs at the first call, and again where a constant is another tensor or has another version: the
    one that the caller states (`versions`), or else PyTorch's own count of in-place writes. A caller that writes to
    NumPy arrays in place says so: by a version, or by `constants_changed`.

    threads: at most so many, those that the plan was timed with by default. They are OpenMP's where `use_openmp` was
    called for the process's executor and it has them, else the executor's own.
    """

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        """Loads the plan. Raises BundleError, MachineError, ObjectError."""
        if bundle.executor is None:
            raise BundleError(
                "the bundle holds no executor, which runs plans for CPUs: write it again with this version"
            )
        self.key, self.plan, self.names, self.verified = bundle.key, bundle.plan, bundle.names, bundle.verified
        self.executor = process_executor(*bundle.executor)
        self.threads = threads or self.plan.threads
        self._program = CpuProgram(self.plan, bundle.binaries, self.executor)
        self._aliases = dict(self.plan.aliases)

    def __call__(self, /, *inputs: Any, versions: Mapping[int | str, Any] = {}, **named: Any) -> Outputs:
        """Outputs of the plan as new NumPy arrays, in order and by name; an output that is an input as it stands is the
        caller's tensor. Inputs: in order, by name, or as one dict, which takes any names. Raises GuardError,
        TypeError."""
        given, outputs = self.names.arguments(inputs, named), self.empty_outputs()
        self.run(given, outputs, versions=versions)
        return Outputs((self._result(i, given, outputs) for i in range(len(outputs))), self.names.outputs)

    def run(self, inputs: Tensors, outputs: Tensors, *, versions: Mapping[int | str, Any] = {}) -> None:
        """Computes into `outputs`. An output that is another tensor as it stands is not written; None will do for it.
        Raises GuardError, TypeError, StackError."""
        table, known, held = self._checked(inputs, outputs, versions)
        self._program.run(table, self.threads, way_of(self.executor), known, held)

    def prepare(self, inputs: Tensors, *, versions: Mapping[int | str, Any] = {}) -> None:
        """Runs the prologue, unless its results for these constants are there, and nothing else. Raises GuardError."""
        table, known, held = self._checked(inputs, None, versions)
        self._program.prepare(table, self.threads, way_of(self.executor), known, held)

    def constants_changed(self) -> None:
        """Has the prologue run again at the next call: constants may have other values than at the last one."""
        self._program.forget()

    def empty_outputs(self) -> list[Any]:
        """Memory for the outputs as NumPy arrays, laid out as the plan writes them; None for those that are other
        tensors. Types that NumPy lacks come as unsigned integers of their width."""
        return [None if i in self._aliases else empty(spec) for i, spec in enumerate(self.plan.outputs)]

    def random_inputs(self, seed: int = 0) -> list[Any]:
        """Inputs to try the plan on, laid out as the plan reads them (see `fill.random_values`)."""
        generator = np.random.default_rng(seed)
        return [_filled(spec, random_values(spec, generator)) for spec in self.plan.inputs]

    def read_inputs(self, file: Path | str) -> list[Any]:
        """Inputs from a safetensors file, whose tensors have the names of the inputs, laid out as the plan reads them.
        Raises InputsError, OSError."""
        values = read_values(file, self.names.inputs, self.plan.inputs)
        return [_filled(spec, flat) for spec, flat in zip(self.plan.inputs, values, strict=True)]

    @property
    def prologue_runs(self) -> int:
        """How often the prologue ran."""
        return self._program.prologue_runs

    def _checked(
        self, inputs: Tensors, outputs: Tensors | None, versions: Mapping[int | str, Any]
    ) -> tuple[Table, Known, Sequence[Any]]:
        """This thread's table with all addresses filled in, what the constants are, and the constants."""
        given, specs = self.names.given(inputs), self.plan.outputs
        read = [as_planned(host_view(x), spec) for x, spec in zip_longest(given, self.plan.inputs[: len(given)])]
        written: list[View | None] = [None] * len(specs)
        if outputs is not None:
            wanted = self.names.written(outputs, self._aliases)
            written = [
                None
                if i in self._aliases
                else as_planned(host_view(x, written=True), specs[i] if i < len(specs) else None)
                for i, x in enumerate(wanted)
            ]
        check(self.plan, read, written, 0, self.names.label)
        table = self._program.table()
        for i, found in enumerate((*read, *written)):
            table.addresses[i] = found.address if found is not None else 0
        stated = self.names.positions(versions)
        for i in stated:
            if not 0 <= i < len(read) or self.plan.inputs[i].constant is None:
                raise GuardError(f"in{i} is no constant of the plan: it has no version")
        constants = self.plan.constants
        known = tuple((read[i].address, stated.get(i, version(given[i]))) for i in constants)
        return table, known, [given[i] for i in constants]

    def _result(self, i: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        ref = self._aliases.get(i)
        if ref is None:
            return outputs[i]
        return inputs[ref.index] if ref.place == "in" else self._result(ref.index, inputs, outputs)


def _filled(spec: Tensor, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Memory of a tensor with these values from its first element to behind its last."""
    array = empty(spec)
    if spec.span:
        whole = np.lib.stride_tricks.as_strided(array, (spec.span,), (array.itemsize,))
        whole[...] = flat.astype(CARRIERS[spec.dtype], copy=False)
    return array

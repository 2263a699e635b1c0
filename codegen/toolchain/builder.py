"""Kernels to binaries: many per file, files in parallel, nothing compiled twice."""

import json
import os
import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from codegen.kernel import Kernel
from codegen.libraries import is_call
from codegen.limits import Limits
from codegen.object_cache import ObjectCache
from codegen.occupancy import Occupancy
from codegen.slot import Slot
from codegen.toolchain.compiler import Binary, Compiler, Failure, OutOfTime
from codegen.toolchain.patience import Patience
from fusion_ir.records import CompileReport

Result = Binary | Failure


class Builder:
    """Compiles for one device through the object cache, in at most `jobs` children at a time. occupancy: told of
    each."""

    def __init__(
        self,
        compiler: Compiler,
        cache: ObjectCache,
        limits: Limits,
        jobs: int | None = None,
        occupancy: Occupancy | None = None,
    ) -> None:
        self.compiler, self.cache, self.limits = compiler, cache, limits
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.occupancy = occupancy or Occupancy(self.jobs)
        self.patience = Patience(limits.compile_seconds)
        self._background = ThreadPoolExecutor(1, "compile-ahead")
        self._ahead: Future[list[Result]] | None = None
        self._idle: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._slots = [compiler.slot() for _ in range(self.jobs)]
        for slot in self._slots:
            self._idle.put(slot)

    def compile(self, kernels: Sequence[Kernel], *, alone: bool = False, optional: bool = False) -> list[Result]:
        """A binary or a failure for each kernel, in order; a library call is its own binary. alone: each in a file of
        its own, so that whoever gets the binary gets nothing else; otherwise up to `limits.kernels_per_file` share one.
        optional: raises OutOfTime where no time is left to begin with one of them. Raises SlotError, CacheError."""
        if self._ahead:
            self._ahead.result()
            self._ahead = None
        return self._compile(kernels, alone, optional)

    def start(self, kernels: Sequence[Kernel]) -> None:
        """Compiles in the background what `compile`, which waits for that, will be asked for next."""
        if self._ahead is None and kernels:
            self._ahead = self._background.submit(self._compile, kernels, False)

    def _compile(self, kernels: Sequence[Kernel], alone: bool, optional: bool = False) -> list[Result]:
        done: dict[str, Result] = {}
        missing: dict[str, Kernel] = {}
        keys = [self._key(k, alone) for k in kernels]
        for key, kernel in zip(keys, kernels, strict=True):
            if key not in done and key not in missing:
                found = self._recall(key, kernel)
                if found:
                    done[key] = found
                elif is_call(kernel.libraries):
                    done[key] = self._described(key, kernel)
                else:
                    missing[key] = kernel
        batches = self._batches(missing, 1 if alone else self.limits.kernels_per_file)
        done.update(self._compile_all(batches, optional))
        again = [[key] for batch in batches if len(batch) > 1 for key in batch if isinstance(done[key], Failure)]
        done.update(self._compile_all([{key: missing[key] for key in batch} for batch in again], optional))
        return [done[key] for key in keys]

    def close(self) -> None:
        """Ends the children."""
        self._background.shutdown(cancel_futures=True)
        for slot in self._slots:
            slot.close()

    def _batches(self, missing: dict[str, Kernel], most: int) -> list[dict[str, Kernel]]:
        """Files of about equal numbers of kernels, one per child at least; equal entries never meet in one file, nor do
        kernels that need different libraries."""
        size = max(1, min(most, -(-len(missing) // self.jobs)))
        batches: list[dict[str, Kernel]] = []
        for key, kernel in missing.items():
            for batch in batches:
                if len(batch) < size and all(
                    k.entry != kernel.entry and k.libraries == kernel.libraries for k in batch.values()
                ):
                    batch[key] = kernel
                    break
            else:
                batches.append({key: kernel})
        return batches

    def _compile_all(self, batches: Sequence[dict[str, Kernel]], optional: bool) -> dict[str, Result]:
        if not batches:
            return {}
        with ThreadPoolExecutor(min(self.jobs, len(batches))) as threads:
            results = threads.map(partial(self._compile_one, optional=optional), batches)
            return {key: result for part in results for key, result in part.items()}

    def _compile_one(self, batch: dict[str, Kernel], optional: bool) -> dict[str, Result]:
        if optional and self.patience.is_over():
            raise OutOfTime(f"{len(batch)} kernels are not compiled")
        kernels = list(batch.values())
        slot = self._idle.get()
        start = time.monotonic()
        try:
            unit = self.compiler.unit(kernels)
            with self.occupancy.working():
                built = self.compiler.compile(
                    slot, unit, [k.entry for k in kernels], self.limits.compile_seconds, kernels[0].libraries,
                    self.patience.seconds(len(unit)),
                )  # fmt: skip
        finally:
            self._idle.put(slot)
        seconds = (time.monotonic() - start) / len(kernels)
        if isinstance(built, Failure):
            return {key: Failure(built.status, built.detail, seconds) for key in batch}
        self.patience.note(len(unit), time.monotonic() - start)
        data, reports = built
        sha = self.cache.put(data)
        results: dict[str, Result] = {}
        for key, kernel in batch.items():
            report = reports.get(kernel.entry)
            self.cache.remember(key, json.dumps({"binary": sha, "report": report and report.model_dump()}))
            results[key] = Binary(sha, kernel.entry, self._source(kernel), seconds, report)
        return results

    def _key(self, kernel: Kernel, alone: bool) -> str:
        return "\n".join(
            ("binary", "alone" if alone else "shared", self.compiler.identity(), kernel.entry, kernel.source)
        )

    def _recall(self, key: str, kernel: Kernel) -> Binary | None:
        text = self.cache.recall(key)
        if text is None:
            return None
        known = json.loads(text)
        if self.cache.path(known["binary"]) is None:
            return None
        report = CompileReport.model_validate(known["report"]) if known["report"] else None
        return Binary(known["binary"], kernel.entry, self._source(kernel), 0.0, report)

    def _described(self, key: str, kernel: Kernel) -> Binary:
        """A call of a library is what its source says: there is nothing to compile."""
        sha = self.cache.put(kernel.source.encode())
        self.cache.remember(key, json.dumps({"binary": sha, "report": None}))
        return Binary(sha, kernel.entry, sha)

    def _source(self, kernel: Kernel) -> str:
        text = kernel.source if is_call(kernel.libraries) else self.compiler.unit([kernel])
        return self.cache.put(text.encode())

"""Kernels to binaries: many per file, files in parallel, nothing compiled twice."""

import json
import os
import queue
import threading
import time
from collections.abc import Container, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from codegen.hardware.libraries import is_call
from codegen.kernel import Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import Slot
from codegen.timing.core_use import CoreUse
from codegen.toolchain.compile_patience import Patience
from codegen.toolchain.compiler import Binary, Compiler, Failure, OutOfTime
from fusion_ir.records import CompileReport, Status

Result = Binary | Failure

GIVEN_UP = "failed in a file with others, and there was no time to compile it alone"


class Builder:
    """Compiles for one device through the object cache, in at most `jobs` children at a time. occupancy: is told when
    each child works."""

    def __init__(
        self,
        compiler: Compiler,
        cache: ObjectCache,
        limits: Limits,
        jobs: int | None = None,
        occupancy: CoreUse | None = None,
    ) -> None:
        self.compiler, self.cache, self.limits = compiler, cache, limits
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.occupancy = occupancy or CoreUse(self.jobs)
        self.patience = Patience(limits.compile_seconds)
        self._threads = ThreadPoolExecutor(self.jobs, "compile")
        self._ahead: dict[str, Future[dict[str, Result]]] = {}  # begun by `_start`, or waiting for a child
        self._idle: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._slots = [compiler.slot() for _ in range(self.jobs)]
        for slot in self._slots:
            self._idle.put(slot)
        self._may_run = threading.Event()
        self._may_run.set()
        self._running = 0
        self._lock = threading.Lock()
        self._paused_s = 0.0

    def compile(
        self,
        kernels: Sequence[Kernel],
        *,
        alone: bool = False,
        optional: bool = False,
        quickly: bool = False,
        late: bool = True,
        then: Sequence[Kernel] = (),
    ) -> list[Result]:
        """A binary or a failure for each kernel, in order; a library call is its own binary. alone: each in a file of
        its own, so that whoever gets the binary gets nothing else; otherwise up to `limits.kernels_per_file` share one.
        optional: raises OutOfTime where no time is left to begin with one of them. quickly: spends less of a compiler's
        time, on kernels that may take longer to run. late: whether kernels that failed in a file with others are
        compiled alone even where no time is left; otherwise they are given up. then: kernels that `compile` will be
        asked for next; children that have nothing else to do begin with them. Raises SlotError, CacheError."""
        keys = [self._wanted_key(k, alone, quickly) for k in kernels]
        ahead = self._begun(keys)
        done, missing = self._sorted(keys, kernels, ahead)
        batches = self._batches(missing, 1 if alone else self.limits.kernels_per_file)
        submitted = self._submitted(batches, optional, quickly)
        self._start(then, missing)
        for future in dict.fromkeys(ahead.values()):
            with suppress(OutOfTime):
                done.update(self._results([future]))
        done.update(self._results(submitted))
        # What failed beside others, or was begun ahead and given up: another file may have made it since.
        made, missing = self._sorted(keys, kernels, done)
        done.update(made)
        if missing and not late and self.patience.is_over():
            done.update(dict.fromkeys(missing, Failure(Status.compile_timeout, GIVEN_UP)))
        else:
            done.update(self._results(self._submitted(self._batches(missing, 1), optional, quickly)))
        return [done[key] for key in keys]

    def admit(self, kernels: Sequence[Kernel], *, alone: bool = False) -> None:
        """Raises OutOfTime where `compile` would have to begin with one of these, optional ones, and no time is
        left."""
        if self.patience.is_over():
            _, missing = self._sorted([self._key(k, alone) for k in kernels], kernels, self._ahead)
            if missing:
                raise OutOfTime(f"{len(missing)} kernels are not compiled")

    def _start(self, kernels: Sequence[Kernel], beside: Mapping[str, Kernel]) -> None:
        """Begins to compile kernels that may be asked for next, except those that are compiled anyway (`beside`). Files
        that are not asked for next and that no child has begun are forgotten."""
        keys = [self._key(k, alone=False) for k in kernels]
        _, missing = self._sorted(keys, kernels, {*self._ahead, *beside})
        batches = self._batches(missing, self.limits.kernels_per_file)
        for batch, future in zip(batches, self._submitted(batches, optional=True), strict=True):
            self._ahead.update(dict.fromkeys(batch, future))

    @contextmanager
    def paused(self) -> Generator[None]:
        """For the block, compilers stand still: those at work are stopped, and none begins."""
        began = time.monotonic()
        try:
            self._may_run.clear()
            for slot in self._slots:
                slot.pause()
            with self.occupancy.working(-self._running):
                yield
        finally:
            self._paused_s += time.monotonic() - began
            self._go_on()

    def _go_on(self) -> None:
        for slot in self._slots:
            slot.resume()
        self._may_run.set()

    def close(self) -> None:
        """Ends the children, whatever they are at."""
        for slot in self._slots:
            slot.abort()
        self._go_on()
        self._threads.shutdown(cancel_futures=True)
        for slot in self._slots:
            slot.close()

    def _sorted(
        self, keys: Sequence[str], kernels: Sequence[Kernel], ahead: Container[str]
    ) -> tuple[dict[str, Result], dict[str, Kernel]]:
        """Results that need no compiler, and kernels that have to be compiled; both by key, without keys in `ahead`."""
        done: dict[str, Result] = {}
        missing: dict[str, Kernel] = {}
        for key, kernel in zip(keys, kernels, strict=True):
            if key in ahead or key in done or key in missing:
                continue
            found = self._recall(key, kernel)
            if found:
                done[key] = found
            elif is_call(kernel.libraries):
                done[key] = self._described(key, kernel)
            else:
                missing[key] = kernel
        return done, missing

    def _begun(self, keys: Container[str]) -> dict[str, Future[dict[str, Result]]]:
        """Futures of the files begun ahead that hold these keys. Other files that no child has begun are
        forgotten."""
        found = {key: future for key, future in self._ahead.items() if key in keys}
        wanted = set(found.values())
        for future in self._ahead.values():
            if future not in wanted:
                future.cancel()
        self._ahead = {k: f for k, f in self._ahead.items() if k not in found and not f.done()}
        return found

    def _submitted(
        self, batches: Sequence[dict[str, Kernel]], optional: bool, quickly: bool = False
    ) -> list[Future[dict[str, Result]]]:
        return [self._threads.submit(self._compile_one, batch, optional, quickly) for batch in batches]

    def _results(self, futures: Sequence[Future[dict[str, Result]]]) -> dict[str, Result]:
        """Results of files by key, once all files are through. Kernels that failed in a file with others are left out,
        since one of the others may be at fault. Raises OutOfTime."""
        done: dict[str, Result] = {}
        try:
            wait(futures)
        finally:
            for future in futures:
                future.cancel()
        for future in futures:
            batch = future.result()
            done.update({k: r for k, r in batch.items() if isinstance(r, Binary) or len(batch) == 1})
        return done

    def _batches(self, missing: dict[str, Kernel], most: int) -> list[dict[str, Kernel]]:
        """Files of about equal length, one per child at least, with at most so many kernels each; equal entries never
        meet in one file, nor do kernels that need different libraries. Those that take longest come first."""
        files = max(min(self.jobs, len(missing)), -(-len(missing) // max(most, 1)))
        batches: list[dict[str, Kernel]] = []
        lengths: list[int] = []
        for key, kernel in sorted(missing.items(), key=lambda item: -len(item[1].source)):
            fitting = [i for i, batch in enumerate(batches) if len(batch) < most and _may_share(kernel, batch)]
            if fitting and len(batches) >= files:
                shortest = min(fitting, key=lambda i: lengths[i])
                batches[shortest][key] = kernel
                lengths[shortest] += len(kernel.source)
            else:
                batches.append({key: kernel})
                lengths.append(len(kernel.source))
        return [batch for _, batch in sorted(zip(lengths, batches, strict=True), key=lambda entry: -entry[0])]

    def _compile_one(self, batch: dict[str, Kernel], optional: bool, quickly: bool) -> dict[str, Result]:
        if optional and self.patience.is_over():
            raise OutOfTime(f"{len(batch)} kernels are not compiled")
        kernels = list(batch.values())
        slot = self._idle.get()
        try:
            unit = self.compiler.unit(kernels)
            self._may_run.wait()
            start = time.monotonic() - self._paused_s
            with self._counted(), self.occupancy.working():
                built = self.compiler.compile(
                    slot, unit, [k.entry for k in kernels], self.limits.compile_seconds, kernels[0].libraries,
                    self.patience.seconds(len(unit), len(kernels)), quickly,
                )  # fmt: skip
        finally:
            self._idle.put(slot)
        seconds = time.monotonic() - self._paused_s - start
        if isinstance(built, Failure):
            return {key: Failure(built.status, built.detail, seconds / len(kernels)) for key in batch}
        self.patience.note(len(unit), seconds)
        data, reports = built
        sha = self.cache.put(data)
        results: dict[str, Result] = {}
        for key, kernel in batch.items():
            report = reports.get(kernel.entry)
            known = {"binary": sha, "report": report and report.model_dump(), "quickly": quickly}
            self.cache.remember(key, json.dumps(known))
            results[key] = Binary(sha, kernel.entry, self._source(kernel), seconds / len(kernels), report, quickly)
        return results

    @contextmanager
    def _counted(self) -> Generator[None]:
        """For the block, one more compiler is at work."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _key(self, kernel: Kernel, alone: bool, quickly: bool = False) -> str:
        kind = f"{'alone' if alone else 'shared'}{' quickly' if quickly else ''}"
        return "\n".join(("binary", kind, self.compiler.identity(), kernel.entry, kernel.source))

    def _wanted_key(self, kernel: Kernel, alone: bool, quickly: bool) -> str:
        """The key of a kernel, which with `quickly` need not run fast: that of the usual binary where it is in the
        cache, else that of the binary compiled quickly."""
        usual = self._key(kernel, alone)
        return self._key(kernel, alone, quickly=True) if quickly and not self._recall(usual, kernel) else usual

    def _recall(self, key: str, kernel: Kernel) -> Binary | None:
        text = self.cache.recall(key)
        if text is None:
            return None
        known = json.loads(text)
        if self.cache.path(known["binary"]) is None:
            return None
        report = CompileReport.model_validate(known["report"]) if known["report"] else None
        return Binary(known["binary"], kernel.entry, self._source(kernel), 0.0, report, known.get("quickly", False))

    def _described(self, key: str, kernel: Kernel) -> Binary:
        """A call of a library is what its source says: there is nothing to compile."""
        sha = self.cache.put(kernel.source.encode())
        self.cache.remember(key, json.dumps({"binary": sha, "report": None}))
        return Binary(sha, kernel.entry, sha)

    def _source(self, kernel: Kernel) -> str:
        text = kernel.source if is_call(kernel.libraries) else self.compiler.unit([kernel])
        return self.cache.put(text.encode())


def _may_share(kernel: Kernel, batch: Mapping[str, Kernel]) -> bool:
    """Whether a kernel may be in one file with these."""
    return all(k.entry != kernel.entry and k.libraries == kernel.libraries for k in batch.values())

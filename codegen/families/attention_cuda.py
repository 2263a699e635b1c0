"""Family `attention` on CUDA: strips of rows of 16-bit products, in registers from the first product to the last.

Rows of up to some thousand columns; nothing of their size is stored that is no output. By mma.sync, from sm_80 on.
"""

from codegen.attention.masked_blocks import blanks_text
from codegen.attention.row_blocks import (
    RowBlocks,
    cut_functor,
    element_type,
    lines_made,
    multiplied_phases,
    reduce_call,
    strips_of,
)
from codegen.attention.schedule import (
    AttentionSchedule,
    fault,
    first_schedules,
    grid,
    has_schedules,
    schedule_choices,
    shared_bytes,
)
from codegen.families.kernel_function import INDEX_LIMIT, kernel_function
from codegen.hardware.architectures import capability
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.code_length import too_much
from codegen.schedule import Choices, parse_schedule
from codegen.tiled.code_length import MOST_OF_ELEMENT
from codegen.tiled.epilogue import check_epilogue, epilogue
from codegen.tiled.operand import operand_functor
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

HEADER = "attention_sm80.cuh"


def fits(segment: Graph, device: Device) -> Reject | None:
    """Why the family refuses a segment by its ops and shapes."""
    if capability(device.arch) < 80:
        return Reject("takes instructions of sm_80 and later")
    if reject := too_much(segment, MOST_OF_ELEMENT):
        return reject
    phases = multiplied_phases(segment)
    return phases if isinstance(phases, Reject) else None


def lowered(segment: Graph, device: Device) -> Reject | None:
    """Why no schedule can compute a segment that `fits`."""
    found = strips_of(segment)
    if isinstance(found, Reject):
        return found
    if max(spec.span for spec in (*segment.inputs, *segment.outputs)) >= INDEX_LIMIT:
        return Reject(f"a tensor has {INDEX_LIMIT} elements or more")
    try:
        if found.second:
            check_epilogue(segment, found.second)
    except EmitError as error:
        return Reject(str(error))
    if has_schedules(found, device):
        return None
    return Reject(fault(AttentionSchedule(16, 8, 1, 2, 1, 1), found, device))


def space(segment: Graph, device: Device) -> tuple[str, ...]:
    """See `Family`."""
    return tuple(map(str, first_schedules(_accepted(segment), device)))


def choices(_segment: Graph, _device: Device) -> Choices:
    """See `Family`."""
    return schedule_choices()


def emit(segment: Graph, schedule: str, device: Device) -> Kernel:
    """See `Family`."""
    s = parse_schedule(schedule, AttentionSchedule)
    strips = _accepted(segment)
    if problem := fault(s, strips, device):
        raise EmitError(problem)
    batches, rows, columns = strips.problem.extents
    element, results = element_type(strips.phases.product.args[0]), len(strips.phases.steps)
    left, right = operand_functor(strips.left, "Left", device), operand_functor(strips.right, "Right", device)
    *reduced_cuts, last_cut = strips.lowered_cuts
    steps = [cut_functor(segment, cut, f"Phase{i}", "float", results, device) for i, cut in enumerate(reduced_cuts)]
    last = cut_functor(segment, last_cut, "Last", element if strips.second else None, results, device)
    functors, width = [left, right, *steps, last], 0
    reduced = [reduce_call(step, i, f) for i, (step, f) in enumerate(zip(strips.phases.steps, steps, strict=True))]
    calls = [
        f"strip.multiply({lines_made(strips.left, left)}, {lines_made(strips.right, right)});",
        *reduced,
        f"strip.store({last.made});",
    ]
    if strips.second and strips.values:
        width = strips.second.extent("column")
        values = operand_functor(strips.values, "Values", device)
        behind = epilogue(segment, strips.second, device)
        functors += [values, behind]
        calls[1:1] = [f"const auto values = {lines_made(strips.values, values)};", "strip.prepare(values);"]
        calls[-1] = f"strip.multiply_again({last.made}, values, {behind.made});"
    if s.turns > 1:
        turns = [
            f"const auto left = {lines_made(strips.left, left)};",
            f"const auto right = {lines_made(strips.right, right)};",
            "strip.keep(right);",
            f"VEC_ROLLED for (int turn = 0; turn < {s.turns} && strip.begin(turn); turn++) {{",
        ]
        calls = [*turns, *(f"  {call}" for call in ("strip.multiply(left, right);", *calls[1:])), "}"]
    blanks = blanks_text(strips)
    numbers = (element, "Product", width, s.rows // 16, s.warps, s.groups, s.stages, s.turns, results)
    lines = [
        *(f.text for f in functors),
        *([blanks] if blanks else []),
        "  SHARED_MEMORY(shared);",
        f"  using Product = Extents<{batches}, {rows}, {columns}, {strips.problem.depth}>;",
        f"  Strip<{', '.join(map(str, numbers))}, {'Blanks' if blanks else 'NoBlanks'}> strip(shared);",
        *(f"  {call}" for call in calls),
    ]
    reach = max(f.reach for f in functors)
    entry, source = kernel_function(segment, "\n".join(lines), "cuda", threads=s.threads, blocks=s.blocks, reach=reach)
    launch = Launch((grid(s, strips), 1, 1), (s.threads, 1, 1), shared_bytes(s, strips))
    accesses = tuple(dict.fromkeys(a for f in functors for a in f.accesses))
    return Kernel(entry, source, "cuda", s.FAMILY, str(s), launch, accesses, headers=(HEADER,))


def _accepted(segment: Graph) -> RowBlocks:
    found = strips_of(segment)
    if isinstance(found, Reject):
        raise EmitError(found.reason)
    return found

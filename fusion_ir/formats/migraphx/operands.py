"""Arguments of a MIGraphX module, told apart into data and buffers, and types of names that it does not define."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.core.limits import LIMITS, check_count
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.migraphx.lines import Instruction, Module, Word
from fusion_ir.formats.migraphx.ops import BUFFERS, row_of
from fusion_ir.formats.migraphx.row import Known, bind
from fusion_ir.formats.migraphx.types import MIGRAPHX_DTYPES
from fusion_ir.formats.migraphx.views import VIEWS
from fusion_ir.formats.side_file import SideFile

Modules = Mapping[str, Module]


def is_parameter(instruction: Instruction) -> bool:
    return instruction.op.text.startswith("@param:")


def is_literal(instruction: Instruction) -> bool:
    return instruction.op.text in ("@literal", "hip::hip_copy_literal")


def is_buffer(instruction: Instruction) -> bool:
    """Whether the result is memory, or nothing at all."""
    return instruction.op.text in BUFFERS or instruction.op.text.startswith("check_context::")


def data_arguments(instruction: Instruction) -> tuple[Word, ...]:
    """The arguments that the instruction reads as data."""
    op = instruction.op.text
    if is_buffer(instruction):
        return ()
    if op.startswith("gpu::"):
        return instruction.arguments[:-1]
    return instruction.arguments[:1] if op.startswith("hip::copy") else instruction.arguments


def written_argument(instruction: Instruction) -> Word | None:
    """The argument that the result is written to."""
    if is_buffer(instruction) or len(data_arguments(instruction)) == len(instruction.arguments):
        return None
    return instruction.arguments[-1]


def parameters_of(module: Module) -> tuple[Instruction, ...]:
    """The parameters of a pointwise module in the order of its operands: by name. Raises FormatError.

    Releases differ in whether x10 stands before x2.
    """
    found = [i for i in module.instructions if is_parameter(i)]
    by_name = sorted(found, key=lambda i: i.name.text)
    if by_name != sorted(found, key=lambda i: (len(i.name.text), i.name.text)):
        names = [i.name.text for i in by_name]
        raise FormatError(module.place, f"the order of the parameters {names} is not clear from their names")
    return tuple(by_name)


@dataclass(frozen=True)
class Operands:
    """Names of one module.

    definitions: the instruction of every name that the text defines.
    readers:     for every name the instructions that read it as data, each once, in order.
    known:       for every name without definition its type, as far as its uses and the side file determine it.
    """

    definitions: Mapping[str, Instruction]
    readers: Mapping[str, Sequence[Instruction]]
    known: Mapping[str, Known]


def find_operands(module: Module, modules: Modules, beside: SideFile) -> Operands:
    """The names of `module`; `beside` states types of names that the text does not define.

    Raises FormatError for names defined twice, and for buffers that hold data which others read.
    """
    definitions: dict[str, Instruction] = {}
    readers: defaultdict[str, list[Instruction]] = defaultdict(list)
    for instruction in module.instructions:
        name = instruction.name
        if name.text in definitions:
            before = definitions[name.text].name.place.partition(":")[0]
            raise FormatError(name.place, f"{excerpt(name.text)} is defined twice, first at line {before}")
        definitions[name.text] = instruction
        for argument in {a.text: a for a in data_arguments(instruction)}:
            readers[argument].append(instruction)
    for instruction in module.instructions:
        _check_buffer(instruction, definitions, readers)
    missing = [name for name in readers if name not in definitions]
    check_count(module.place, "names that are not defined", len(missing), LIMITS.inputs)
    known = {n: Known(beside.shapes.get(n), beside.dtypes.get(n), beside.strides.get(n)) for n in missing}
    _determine(known, readers, definitions, modules)
    return Operands(definitions, readers, known)


def _check_buffer(
    instruction: Instruction, definitions: Mapping[str, Instruction], readers: Mapping[str, Sequence[Instruction]]
) -> None:
    """Raises FormatError where the argument that an instruction writes over holds data, unless this instruction alone
    reads it and it is neither a view nor a literal."""
    argument = written_argument(instruction)
    if argument is None:
        return
    definition = definitions.get(argument.text)
    if definition is not None and is_buffer(definition):
        return
    others = [i for i in readers.get(argument.text, ()) if i is not instruction]
    shared = definition is not None and (definition.op.text in VIEWS or is_literal(definition))
    if others or shared:
        held = "the value that line " + others[0].name.place.partition(":")[0] + " reads" if others else (
            f"the result of {definition.op.text}" if definition is not None else "a value")  # fmt: skip
        raise FormatError(argument.place, f"the last argument of {instruction.op.text} is the buffer that it writes "
                          f"to, but {argument.text} holds {held}")  # fmt: skip


def _determine(
    known: dict[str, Known],
    readers: Mapping[str, Sequence[Instruction]],
    definitions: Mapping[str, Instruction],
    modules: Modules,
) -> None:
    """Fills `known` from the instructions that read undefined names, again where another one became known."""
    waiting = deque({id(i): i for name in known for i in readers[name]}.values())
    queued = {id(i) for i in waiting}
    open_names = {
        id(i): {a.text for a in data_arguments(i) if a.text in known and not known[a.text].complete} for i in waiting
    }
    while waiting:
        instruction = waiting.popleft()
        queued.discard(id(instruction))
        for name, found in _told(instruction, known, definitions, modules).items():
            before = known[name]
            merged = Known(
                found.sizes if before.sizes is None else before.sizes,
                found.dtype if before.dtype is None else before.dtype,
                found.strides if before.strides is None and before.sizes in (None, found.sizes) else before.strides,
            )
            if merged == before:
                continue
            known[name] = merged
            for reader in readers[name]:
                if merged.complete:
                    open_names[id(reader)].discard(name)
                # Nothing follows for one operand while two are open, so that long lists are looked at twice at most.
                if len(open_names[id(reader)]) == 1 and id(reader) not in queued and reader is not instruction:
                    queued.add(id(reader))
                    waiting.append(reader)


def _told(
    instruction: Instruction, known: Mapping[str, Known], definitions: Mapping[str, Instruction], modules: Modules
) -> dict[str, Known]:
    """The types of the instruction's undefined operands, by name, as far as the instruction determines them."""
    arguments = data_arguments(instruction)
    result = _printed(instruction)
    if instruction.op.text == "pointwise" and len(instruction.modules) == 1:
        module = modules.get(instruction.modules[0].text)
        parameters = parameters_of(module) if module is not None else ()
        found: Sequence[Known] = [Known(result.sizes, _printed(p).dtype) for p in parameters]
    else:
        row = row_of(instruction.op.text)
        if row is None:
            return {}
        operands = [_printed(definitions[a.text]) if a.text in definitions else known[a.text] for a in arguments]
        found = row.missing(result, operands, bind(instruction, row))
    told: dict[str, Known] = {}
    for argument, item in zip(arguments, found, strict=False):
        if argument.text in known:
            told.setdefault(argument.text, item)
    return told


def _printed(instruction: Instruction) -> Known:
    """The printed type; its dtype None where it is not one of ours, which is an error only where it is read."""
    stated = instruction.type
    if stated is None:
        return Known()
    ours = MIGRAPHX_DTYPES.get(stated.name)
    strides = stated.strides if len(stated.strides) == len(stated.sizes) else None
    return Known(stated.sizes, DTYPES[ours] if ours is not None else None, strides)

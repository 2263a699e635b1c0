"""Moves: how many elements a load or a store of a CPU's machine code has at once, whatever its address is aligned to.

    f16, 64 lanes, registers of 64 bytes -> 16 elements: narrow elements have a register of their compute type's lanes
    f32, 3 lanes left, no masked moves   -> 2 elements and 1

This restates codegen/include/vec_memory_cpu.h and its neighbours, pattern by pattern: change one with the other.
"""

from codegen.lowering.access import Pattern

# Lanes and bytes of an element: VEC_MASKED_MOVES.
MASKED_MOVES = frozenset({(16, 1), (8, 2), (16, 2), (4, 4), (8, 4), (16, 4), (2, 8), (4, 8), (8, 8)})
MASKED_BYTES = 64  # of a register, where moves can be masked
# VEC_WIDE_MASKED_MOVES: of registers of 32 bytes, where the number of lanes is known at run time alone.
WIDE_MASKED_MOVES = frozenset({(8, 4), (4, 8)})
WIDE_MASKED_BYTES = 32


def register_lanes(itemsize: int, register_bytes: int) -> int:
    """REGISTER<T>: lanes of a register, of 4 bytes each, or 8 for elements of 8 bytes."""
    return register_bytes // max(itemsize, 4)


def moved(
    found: Pattern,
    vector: int,
    itemsize: int,
    register_bytes: int,
    *,
    paired: bool = False,
    left: int = 0,
    stored: bool = False,
) -> set[int]:
    """Numbers of elements that single moves of a vector of `vector` lanes have. paired: lanes of bf16 come apart as
    vec_pairs_cpu.h says. left: number of the first lanes that are there, 0 for all. stored: a store, not a load."""
    register = min(vector, register_lanes(itemsize, register_bytes))
    if found.kind == "tile":
        return {min(found.step, register)}
    if found.kind == "repeat":
        return {max(register // found.step, 1)}
    if found.kind != "vector":
        return {1}
    if left:
        return moved_first(left, register, itemsize, register_bytes, stored=stored)
    return {register_bytes // itemsize if paired and vector * itemsize >= register_bytes else register}


def moved_first(left: int, register: int, itemsize: int, register_bytes: int, *, stored: bool = False) -> set[int]:
    """Numbers of elements that single moves of the first `left` lanes have: a register's, by a mask; else a register's
    and, for the last one, powers of two (5 of 8 lanes: 4 and 1); the latter are stored lane by lane."""
    if register_bytes == MASKED_BYTES and (register, itemsize) in MASKED_MOVES:
        return {register}
    parts = {1 << bit for bit in range(register.bit_length()) if left % register >> bit & 1}
    return ({1} if stored and parts else parts) | ({register} if left >= register else set())


def streamed(vector: int, itemsize: int, register_bytes: int) -> set[int]:
    """Elements at once past the caches, where an address is that of whole registers; none where vectors are shorter."""
    return {register_bytes // itemsize} if vector * itemsize % register_bytes == 0 else set()


def moved_across(along: int, lanes: int, itemsize: int, register_bytes: int, *, cut: bool) -> set[int]:
    """Elements at once of a tile of vec_transpose_cpu.h, which moves blocks of as many rows as a register has lanes.
    cut: the last tile is shorter."""
    block = register_lanes(itemsize, register_bytes)
    whole = not cut and along % block == 0 and lanes % block == 0
    masked = {MASKED_BYTES: MASKED_MOVES, WIDE_MASKED_BYTES: WIDE_MASKED_MOVES}.get(register_bytes, ())
    if whole or (block, itemsize) in masked:
        return {block}
    return {block, 1} if along >= block else {1}

"""Python modules around an nvFuser definition: what is found in them, what is computed, and that nothing is run."""

from pathlib import Path

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.errors import FormatError
from fusion_ir.formats import read
from fusion_ir.formats.nvfuser.reader import read_nvfuser
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make_input
from tests.unit.formats.test_nvfuser import definition, result

_t = make_input(0, InputSpec(shape_of((4, 8)), f32, (8, 1)))
_x = make_input(1, InputSpec(shape_of((4, 8)), f32, (8, 1)))

PLAIN = """
def fusion(fd):
    x = fd.define_tensor(shape=[4096, 512], contiguity=[True, True], dtype=DataType.BFloat16)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    sq = fd.ops.mul(xf, xf)
    ms = fd.ops.sum(sq, dims=[1], keepdim=True)
    ms = fd.ops.add(fd.ops.mul(ms, 1 / 512), 1e-6)
    y = fd.ops.mul(xf, fd.ops.rsqrt(ms))
    fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))
"""

# The same definition, as it stands in programs.
MODULES: dict[str, str] = {
    "a function with constants before it": '''
"""RMS norm."""
import math
import os
from pathlib import Path

import torch
from nvfuser_direct import DataType, FusionDefinition

N, D = 4096, 512
EPS: float = 1e-6
SHAPE = (N, D)
DTYPE = DataType.BFloat16
print(os.environ.get("HOME"), Path.cwd())


def helper(a, b):
    return a + b


def fusion(fd: FusionDefinition) -> None:
    """The definition."""
    x = fd.define_tensor(shape=SHAPE, contiguity=[True] * len(SHAPE), dtype=DTYPE)
    xf = fd.ops.cast(x, dtype=DataType.Float)
    sq = xf * xf
    ms = fd.ops.sum(sq, dims=[len(SHAPE) - 1], keepdim=True)
    inverse = 1 / SHAPE[-1]
    ms = ms * inverse + EPS
    y = xf * fd.ops.rsqrt(ms)
    fd.add_output(fd.ops.cast(y, dtype=DTYPE))
    return


if __name__ == "__main__":
    with FusionDefinition() as fd:
        fusion(fd)
    print(fd.execute([torch.randn(*SHAPE, dtype=torch.bfloat16, device="cuda")]))
''',
    "a with statement in main": """
import torch
import nvfuser_direct as nvfuser
from nvfuser_direct import DataType

HIDDEN = 2 ** 9
HIDDEN_AGAIN = HIDDEN

def main(rows=4096, eps=1e-6):
    torch.manual_seed(0)
    shape = [rows, HIDDEN_AGAIN]
    inputs = [torch.randn(shape, device="cuda")]
    with nvfuser.FusionDefinition() as fd:
        x = fd.define_tensor(shape=shape, contiguity=[True, True], dtype=DataType.BFloat16)
        xf = fd.ops.cast(x, dtype=DataType.Float)
        ms = fd.ops.sum(xf * xf, dims=[1], keepdim=True)
        ms = fd.ops.add(ms * (1 / HIDDEN), eps)
        fd.add_output(fd.ops.cast(xf * fd.ops.rsqrt(ms), dtype=DataType.BFloat16))
    out = fd.execute(inputs)
    assert len(out) == 1

if __name__ == "__main__":
    main()
""",
    "a class": """
import pytest

class Norm:
    rows = 4096
    columns: int = rows // 8

    def __init__(self, device):
        self.device = device

    def definition(self, fd):
        x = fd.define_tensor(shape=[self.rows, Norm.columns], contiguity=[True, True], dtype=DataType.BFloat16)
        xf = fd.ops.cast(x, dtype=DataType.Float)
        ms = fd.ops.sum(fd.ops.mul(xf, xf), dims=[1], keepdim=True)
        ms = fd.ops.add(fd.ops.mul(ms, 1 / self.columns), 1e-6)
        y = fd.ops.mul(xf, fd.ops.rsqrt(ms))
        fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))

@pytest.mark.skip
def test_norm():
    assert Norm("cuda")
""",
    "a definition within a test": """
@pytest.mark.parametrize("dtype", [torch.float])
def test_norm(dtype):
    N = 4096
    D = max(256, min(512, 1024))

    def fusion_func(fd: FusionDefinition):
        x = fd.define_tensor(shape=[N, D], contiguity=[True, True], dtype=DataType.BFloat16)
        xf = fd.ops.cast(x, dtype=DataType.Float)
        ms = fd.ops.sum(xf * xf, dims=[1], keepdim=True)
        ms = fd.ops.add(fd.ops.mul(ms, 1 / D), 1e-6)
        y = fd.ops.mul(xf, fd.ops.rsqrt(ms))
        fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))

    with FusionDefinition() as fd:
        fusion_func(fd)
""",
}


@pytest.mark.parametrize("case", MODULES)
def test_the_definition_in_a_module(case: str) -> None:
    assert graph_key(read(MODULES[case]).graph) == graph_key(read_nvfuser(PLAIN).graph)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("T1 = T0 ** 2", build.square(_t)),
        ("T1 = T0 @ fd.ops.permute(X, dims=[1, 0])", build.matmul(_t, build.permute(_x, [1, 0]))),
        ("T1 = T0 < X", build.lt(_t, _x)),
        ("T1 = fd.ops.where(T0 >= 0, T0, -T0)", build.where(build.ge(_t, 0), _t, build.neg(_t))),
        ("T1 = ~(T0 == X)", build.bitwise_not(build.eq(_t, _x))),
        ("T1 = (T0 > 0) & (X != 0)", build.bitwise_and(build.gt(_t, 0), build.ne(_x, 0))),
        ("T1 = T0 * 2 ** 3", build.mul(_t, 8)),
    ],
)
def test_operators(line: str, expected: Node) -> None:
    assert result(line) is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("n = 3", "T1 = fd.ops.mul(T0, n)"), 3),
        (("n: int = 3", "n += 2", "T1 = fd.ops.mul(T0, n)"), 5),
        (("a, (b, c) = 1, (2, 3)", "T1 = fd.ops.mul(T0, a + b * c)"), 7),
        (("a = b = 4", "T1 = fd.ops.mul(T0, a - -b)"), 8),
        (("s = (2, 4, 8)", "T1 = fd.ops.mul(T0, s[-1] // s[0])"), 4),
        (("s = [1] * 3 + [2]", "T1 = fd.ops.mul(T0, len(s) + sum(s))"), 9),
        (("s = (2, 4, 8)[1:]", "T1 = fd.ops.mul(T0, s[0])"), 4),
        (("s = [*(2, 3), 4]", "T1 = fd.ops.mul(T0, math.prod(s))"), 24),
        (("T1 = fd.ops.mul(T0, 1 / math.sqrt(64))",), 0.125),
        (("T1 = fd.ops.mul(T0, 4 ** -0.5)",), 0.5),
        (("T1 = fd.ops.mul(T0, math.pi)",), 3.141592653589793),
        (("T1 = fd.ops.mul(T0, int(2.5) + abs(-3) + max(1, 2))",), 7),
    ],
)
def test_constants(lines: tuple[str, ...], expected: float) -> None:
    assert result(*lines) is build.mul(_t, expected)


def test_a_name_is_what_was_last_assigned_to_it() -> None:
    lines = ("n = 2", "T1 = fd.ops.mul(T0, n)", "n = 3", "T1 = fd.ops.mul(T1, n)")
    assert result(*lines) is build.mul(build.mul(_t, 2), 3)
    assert result("T1 = 2", "T1 = fd.ops.mul(T0, T1)") is build.mul(_t, 2)
    assert result("A = T0", "T0 = X", "T1 = fd.ops.sub(A, T0)") is build.sub(_t, _x)
    module = "N = 2\nwith FusionDefinition() as fd:\n  x = fd.define_tensor(shape=[N], dtype=DataType.Float)\n"
    assert read(f"{module}  fd.add_output(x)\nN = 3\n").graph.inputs[0].sizes == (2,)
    branch = module.replace("\n", "\n    ")
    text = f"N = 1\nif True:\n    {branch}  fd.add_output(x)\nN = 3\n"
    assert read(text).graph.inputs[0].sizes == (2,)


HEAD = """with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[{}], dtype=DataType.Float)
    fd.add_output(x)
"""


@pytest.mark.parametrize(
    ("before", "used", "message"),
    [
        ("N = input()\n", "N", "3:33: 'N' has no value that can be read: a call of 'input' is assigned to it"),
        ("from config import N\n", "N", "3:33: 'N' has no value that can be read: it is imported in line 1"),
        ("N = 4 if True else 5\n", "N", "3:33: 'N' has no value .*: a choice is assigned to it in line 1"),
        ("M = 1\nif M:\n  N = 4\n", "N", "5:33: 'N' has no value .*: it is assigned in a branch or a loop in line 3"),
        ("N = 1 / 0\n", "N", "3:33: 'N' has no value .*: it is assigned in line 1, where .*division by zero"),
        ("N = 10 ** 400\n", "N", "3:33: 'N' has no value .*: it is assigned in line 1, where the integer does not fit"),
        ("A, *N = range(4)\n", "N", "3:33: 'N' has no value .*: a call of 'range' is assigned to it in line 1"),
        ("A = input()\nN = A + 1\n", "N", "4:33: 'N' has no value .*: it is assigned in line 2, where 'A' has no"),
        ("cfg = load()\n", "cfg.n", "3:33: 'cfg.n' has no value that can be read: of cfg, a call of 'load'"),
        ("", "N", "2:33: 'N' is not defined before this line"),
        ("for N in (1, 2):\n  pass\n", "N", "4:33: 'N' has no value .*: a loop gives it its values|4:33: 'N' has"),
        ("", "len(4)", "2:33: a call of 'len' is not allowed here"),
        ("S = (1, 2)\n", "S[2]", "3:33: index 2 is out of range for 2 values"),
        ("S = [1] * 10 ** 9\n", "S[0]", "3:33: 'S' has no value .*: .* the list has more than 4,096 items"),
    ],
)
def test_what_has_no_value(before: str, used: str, message: str) -> None:
    with pytest.raises(FormatError, match=f"^({message})"):
        read_nvfuser(before + HEAD.format(used))


def test_a_name_that_a_function_sees_with_two_values() -> None:
    text = "N = 4\ndef f(fd):\n    x = fd.define_tensor(shape=[N], dtype=DataType.Float)\nN = 5\n"
    with pytest.raises(FormatError, match=r"^3:33: 'N' has no value .*: it is assigned in line 1 and again in line 4"):
        read_nvfuser(text)


def test_a_parameter_without_a_default() -> None:
    text = "def f(fd, n, m=4):\n    x = fd.define_tensor(shape=[{}], dtype=DataType.Float)\n    fd.add_output(x)\n"
    assert read_nvfuser(text.format("m")).graph.inputs[0].sizes == (4,)
    with pytest.raises(FormatError, match=r"^2:33: 'n' has no value that can be read: it is a parameter of line 1"):
        read_nvfuser(text.format("n"))


def test_two_definitions() -> None:
    text = "N = 4\n" + HEAD.format("N") + HEAD.format("2")
    with pytest.raises(FormatError, match=r"^5:1: lines 2 and 5 begin a definition each, expected one"):
        read_nvfuser(text)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("T1 = torch.exp(T0)", r"a call of 'torch.exp' .*: write fd\.ops\.exp\(T0\)$"),
        ("T1 = fd.ops.neg(torch.nn.functional.silu(T0))", r".* write fd\.ops\.silu\(T0\)$"),
        ("T1 = T0.sum(dim=1)", r"a call of 'T0.sum' .*: write fd\.ops\.sum\(T0, dim=1\)$"),
        ("T1 = fd.ops.neg(T0).exp()", r"a call .*: write fd\.ops\.exp\(fd\.ops\.neg\(T0\)\)$"),
        ("T1 = abs(T0)", r"a call of 'abs' .*: write fd\.ops\.abs\(T0\)$"),
        ("T1 = T0.float()", r"a call of 'T0.float' .*: write fd\.ops\.cast\(T0, dtype=DataType\.Float\)$"),
        ("T1 = T7", r"'T7' is not defined before this line"),
        ("T1 = torch.nn.functional.swish(T0)", r".*did you mean 'silu'\?$"),
        ("T1 = torch.multiply(T0, X)", r".*did you mean 'mul'\?$"),
        ("T1 = T0 // X", r".* write fd\.ops\.floor\(fd\.ops\.truediv\(T0, X\)\)$"),
        ("T1 = not T0", r".* write fd\.ops\.logical_not\(T0\)$"),
        ("T1 = T0 and X", r".* write fd\.ops\.logical_and\(T0, X\)$"),
        ("T1 = fd.ops.neg(T0 or X)", r".* write fd\.ops\.logical_or\(T0, X\)$"),
        ("T1 = 0 < T0 < 1", r".* write fd\.ops\.lt\(0, T0\) and so on, joined by fd\.ops\.logical_and$"),
        ("T1 = T0[:, 1]", r".* write fd\.ops\.slice\(T0, start_indices=\[\.\.\.\], end_indices=\[\.\.\.\]\)$"),
        ("T1 = +T0", r".*expected T0 alone$"),
        ("T1 = T0 is X", r"a comparison is not allowed here"),
        ("T1 = fd.ops.cast(T0, dtype=torch.bfloat16)", r"unknown 'torch.bfloat16', .*did you mean 'DataType.BFloat16'"),
        ("T1 = fd.ops.swish(T0)", r"unknown op 'swish'; did you mean 'silu'"),
        ("T1 = fd.ops.sum(T0, axis=1)", r"fd.ops.sum has no argument 'axis', .*did you mean 'dims' or 'dim'"),
    ],
)
def test_what_to_write_instead(line: str, advice: str) -> None:
    with pytest.raises(FormatError, match=rf"^4:\d+: {advice}"):
        read_nvfuser(definition(line))


def test_sizes_that_are_only_known_to_the_sender() -> None:
    text = """
def fusion(fd):
    x = fd.define_tensor(shape=[-1, -1, 64], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[64], contiguity=True, dtype=DataType.BFloat16)
    b = fd.define_tensor(symbolic_sizes=[-1], contiguous=[True], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.mul(fd.ops.mul(x, w), b))
"""
    with pytest.raises(FormatError, match=r"^3:32: axis 0 of x has a symbolic extent \(-1\)") as caught:
        read_nvfuser(text)
    told = '{"inputs": {"x": {"shape": [128, 128, 64]}, "b": {"shape": [128]}}}, with your sizes for 128'
    assert caught.value.reason.endswith(f"state the sizes beside the text (--shapes FILE), as in {told}")
    named = read_nvfuser(text, {"x": [2, 3, 64], "b": [64]})
    assert [spec.sizes for spec in named.graph.inputs] == [(2, 3, 64), (64,), (64,)]


def test_without_dtype_a_tensor_is_float() -> None:
    """nvFuser's default."""
    given = read_nvfuser(definition("T1 = fd.define_tensor(shape=[4, 8], contiguity=True)")).graph.inputs[2]
    assert (given.dtype, given.strides) == (f32, (8, 1))


def test_without_contiguity_a_tensor_is_taken_as_dense_and_it_is_said() -> None:
    """nvFuser's default is contiguity False: any strides."""
    line = "T1 = fd.define_tensor(shape=[4, 8]{}, dtype=DataType.Float)"
    assert read_nvfuser(definition(line.format(""))).notes == (
        "without contiguity nvFuser takes a tensor of any strides: T1 taken as dense",
    )
    assert read_nvfuser(definition(line.format(""))).graph.inputs[2].strides == (8, 1)
    assert read_nvfuser(definition(line.format(", contiguity=[True, True]"))).notes == ()
    assert read_nvfuser(definition(line.format(", strides=[8, 1]").replace("shape", "sizes"))).notes == ()
    assert read_nvfuser(definition(line.format("")), strides={"T1": [16, 1]}).notes == ()
    with pytest.raises(FormatError, match=r'as in {"inputs": {"T1": {"strides": \[8, 1\]}}}; or contiguity=True'):
        read_nvfuser(definition(line.format(", contiguity=False")))


def test_nothing_of_a_module_is_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    touch = f"open({str(canary)!r}, 'w')"
    text = f"""
N = {touch}
class A(metaclass=lambda *a: {touch}):
    M = {touch}
    def __init_subclass__(cls): {touch}
@({touch})
def helper(a={touch}): {touch}
def fusion(fd, other={touch}):
    assert {touch}
    x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Float)
    fd.add_output(x)
{touch}
"""
    assert read_nvfuser(text).graph.inputs[0].dtype == f32
    assert not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"a{i} = [{f'a{i - 1}, ' * 8}]\n" if i else "a0 = [1]\n" for i in range(200)),
        "a0 = input()\n" + "".join(f"a{i + 1} = a{i} + 1\n" for i in range(5000)),
        "".join(f"a{i} = a{i - 1} * a{i - 1}\n" if i else "a0 = 2\n" for i in range(200)),
        "".join(f"a{i} = a{i - 1} + a{i - 1}\n" if i else "a0 = [1]\n" for i in range(200)),
        "".join(f"def f{i}(a): 0\n" for i in range(4000)) + "".join(f"c{i}=1\n" for i in range(4000)),
        "class A:\n" + "".join(f" c{i}=1\n" for i in range(4000)) + "".join(f" def f{i}(a): 0\n" for i in range(4000)),
        "".join(f"{' ' * i}if a{i}:\n" for i in range(90)) + "".join(f"{' ' * 90}c{i}=1\n" for i in range(500)),
    ],
    ids=["lists of lists", "reasons", "squares", "doubled lists", "functions", "methods", "branches"],
)
def test_what_would_grow(text: str) -> None:
    """Each is a few kilobytes that would make a list, a number or a table of names beyond all bounds."""
    assert read_nvfuser(text + HEAD.format("4")).graph.inputs[0].sizes == (4,)

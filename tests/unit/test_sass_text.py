"""The reader of a disassembler's text (SASS) that the tests of machine code use."""

from collections import Counter

from tests.support.sass import parse_sass

TEXT = """
	.section	.text.k_a,"ax",@progbits
.text.k_a:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0060*/                   LDG.E.128.CONSTANT R4, desc[UR4][R4.64+0x10] ;
        /*0070*/              @!P0 LDG.E.U16 R2, [R8.64] ;
        /*0080*/              @UP1 LDGSTS.E.BYPASS.128 [R3], [R6.64] ;
        /*0090*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*00a0*/                   LDSM.16.M88.4 R8, [R20] ;
        /*00b0*/                   STS.64 [R1], R2 ;
        /*00c0*/                   STL [R1+0x4], R9 ;
        /*00d0*/               @P0 STG.E.64 desc[UR4][R2.64], R4 ;
.L_x_0:
        /*00e0*/                   BRA `(.L_x_0);
.text.k_b:
        /*0000*/                   EXIT ;
"""


def test_instructions_are_counted_by_kind_and_width() -> None:
    kernels = parse_sass(TEXT)
    assert list(kernels) == ["k_a", "k_b"]
    a = kernels["k_a"]
    assert a.global_loads == Counter({16: 2, 2: 1})
    assert a.global_stores == Counter({8: 1})
    assert a.shared_stores == Counter({8: 1})
    assert not a.shared_loads
    assert (a.local, a.count("HMMA"), a.count("LDSM"), a.count("HGMMA", "UTMALDG")) == (1, 1, 1, 0)
    assert kernels["k_b"].instructions == (("EXIT", ""),)

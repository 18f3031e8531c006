"""Planted edits that change the object file but not what it computes, each with the reason.

The list is written by hand: verification passed these, and someone looked.
"""

from __future__ import annotations

from dataclasses import dataclass

ANY = "any base"


@dataclass(frozen=True)
class Equivalent:
    """Edits of `operator` in `base` (or `ANY`) whose description begins with `edit`."""

    base: str
    operator: str
    edit: str
    reason: str


_ORDER = "a sum, a maximum or a copy does not depend on the order of these two loops"
_COPY_GOES_ON = "the next part of the copy, or the next buffer, is written over it afterwards"
_ROUNDED = "it falls into what rounds the buffer up to whole cache lines"
_GUARDED = "nothing in the additional iteration passes its guards"
_UNUSED_ROW = "the row is in a register of its own that nothing reads"
_LANES_SUMMED = "the lanes hold parts of one sum or maximum, combined afterwards in any case"
_AGAIN = "what is done again gives the same again: only time is lost"
_PASS_THROUGH = "the lanes the mask leaves out are not stored, or are selected away"
_SAME_IN_ALL_LANES = "all lanes are given the same value"
_NOTHING_IN_COMMON = "the one writes nothing that the other reads or writes"
_NEVER_AT_ITS_EDGE = "what is left over here is never at the edge of the test"
_NEVER_WRITTEN = "it reads registers nobody wrote, and LLVM takes for them what is right elsewhere"
_NOT_STORED = "what is computed beyond the edge is not stored"

EQUIVALENTS: tuple[Equivalent, ...] = (
    # Whatever the kernel
    Equivalent(
        ANY,
        "integer_operation",
        "%t = sext i32 %t to i64 => %t = zext",
        "the number of a thread and the size of a team are not negative",
    ),
    Equivalent(
        ANY,
        "clamp",
        "%x = call i64 @llvm.smax.i64(i64 %x, i64 -",
        "lane numbers are subtracted from it: below zero no lane holds, however far",
    ),
    # Loops and statements
    Equivalent("matmul_packed", "swap_loops", "s0.r0i, s0.d0ii swapped", _ORDER),
    Equivalent("matmul_parallel", "swap_loops", "s0.d0io, s0.d1io swapped", _ORDER),
    Equivalent("matmul_nt_private", "swap_loops", "s0.r0i, s0.d0ii swapped", _ORDER),
    Equivalent("matmul_i8", "swap_loops", "s0.d0io, s0.d1io swapped", _ORDER),
    Equivalent("matmul_tn_f64", "swap_loops", "s0.r0i, s0.d0ii swapped", _ORDER),
    Equivalent("conv_epilogue", "swap_loops", "s0.r2i.t, s0.3o.t swapped", _ORDER),
    Equivalent("conv_strided", "swap_loops", "s1.d2o, s1.d2io swapped", _ORDER),
    Equivalent("conv_strided", "swap_loops", "s0.r0, s0.r1 swapped", _ORDER),
    Equivalent("depthwise", "swap_loops", "s0.pack0.1, s0.pack0.2io swapped", _ORDER),
    Equivalent("gemv", "swap_loops", "s0.r0o, s0.wide.1o swapped", _ORDER),
    Equivalent("softmax", "swap_loops", "s2.r0o, s2.wide.1o swapped", _ORDER),
    Equivalent("layernorm", "swap_loops", "s0.r0o, s0.wide.1o swapped", _ORDER),
    Equivalent("add_relu", "swap_loops", "s0.d0fioo, s0.d0fioi swapped", _ORDER),
    Equivalent("max_pool", "swap_loops", "s0.pack0.1, s0.pack0.2 swapped", _ORDER),
    Equivalent("matmul_even", "swap_loops", "s0.pack0.1o, s0.pack0.0 swapped", _ORDER),
    Equivalent("gemv_split_sum", "swap_loops", "s0.d0, s0.r0i swapped", _ORDER),
    Equivalent("matmul_bounded", "swap_loops", "s0.d1o, s0.r0o swapped", _ORDER),
    Equivalent(
        "norm",
        "swap_statements",
        "for s0.wide.1, for s0.wide.1.t swapped",
        "the whole vectors and the tail of a row are added to the same sum",
    ),
    Equivalent(
        "colsum",
        "swap_statements",
        "for s0.d0o, alloc s0.pack0.t swapped",
        "the columns of whole vectors and those of the tail have nothing in common",
    ),
    Equivalent("matmul_nt_private", "sink_statement", "for s0.d0io into s0.d1io.t", _AGAIN),
    Equivalent("matmul_tn_f64", "sink_statement", "for s0.pack0.1o into s0.d1io", _AGAIN),
    Equivalent("matmul_even", "sink_statement", "for s0.rows0.0 into s0.d1io", _AGAIN),
    Equivalent("layernorm", "sink_statement", "s3[0] into s4.d1oo", _AGAIN),
    Equivalent("gemv_split_sum", "sink_statement", "for s0.r0o into s0.d0.rf", _AGAIN),
    Equivalent("softmax", "update_twice", "s0.wide.acc", "a maximum with the same value again"),
    Equivalent("max_pool", "update_twice", "s0.acc", "a maximum with the same value again"),
    # One iteration more
    Equivalent("matmul_parallel", "one_iteration_more", "s0.rows0.1i: 8 -> 9", _COPY_GOES_ON),
    Equivalent("matmul_nt_private", "one_iteration_more", "s0.pack0.0ii: 8 -> 9", _COPY_GOES_ON),
    Equivalent("matmul_i8", "one_iteration_more", "s0.d0ii.init: 3 -> 4", _UNUSED_ROW),
    Equivalent("matmul_even", "one_iteration_more", "s0.d0ii.init: 3 -> 4", _UNUSED_ROW),
    Equivalent(
        "matmul_tn_f64",
        "one_iteration_more",
        "s0.d0ii.out: 3 -> 4",
        "the row belongs to the next tile, or the tail, which writes it afterwards",
    ),
    Equivalent(
        "conv_epilogue",
        "one_iteration_more",
        "s0.r1.t: 3 -> 4",
        "the one more term of the tail is a weight times padding, which is zero",
    ),
    Equivalent("add_relu", "one_iteration_more", "s0.d0fo: 11 -> 12", _GUARDED),
    Equivalent("matmul_bounded", "one_iteration_more", "s0.d0o: 3 -> 4", _GUARDED),
    Equivalent("matmul_bounded", "compare_predicate", "%c = icmp slt i64 %i, 5", _GUARDED),
    Equivalent("matmul_packed", "loop_limit", "%c = icmp slt i64 %i, 6 =>", _COPY_GOES_ON),
    Equivalent("matmul_nt_private", "loop_limit", "%c = icmp slt i64 %i, 2 =>", _COPY_GOES_ON),
    Equivalent("matmul_nt_private", "compare_predicate", "%c = icmp slt i64 %i, 2", _COPY_GOES_ON),
    Equivalent("matmul_i8", "loop_limit", "%c = icmp slt i64 %i, 2 =>", _COPY_GOES_ON),
    # Buffers
    Equivalent(
        "matmul_bf16",
        "shrink_buffer",
        "s0.pack0.t: (1, 19, 8) -> (1, 19, 7)",
        "only five of the eight columns are used: the others of a row may be the next row's",
    ),
    Equivalent(
        "conv_epilogue",
        "shrink_buffer",
        "s0.rows0: (1, 3, 14, 5) -> (1, 3, 13, 5)",
        "the last column of the copy is not read, and each row is written before the next",
    ),
    Equivalent(
        "layernorm",
        "overlap_buffers",
        "%w = getelementptr i8, ptr %workspace, i64 192",
        "the sum that lies there was used up when the mean was taken",
    ),
    Equivalent(
        "matmul_i8",
        "other_tensor",
        "s0.acc[s0.d0ii, s0.d1iii]: s0.rows0 -> i0",
        "the one is a copy of the other; the rows past its end are not stored",
    ),
    Equivalent(
        "matmul_even",
        "change_constant",
        "s0.rows0[",
        "rows past the end of the input: what is computed from them is not stored",
    ),
    *(
        Equivalent(base, "past_the_end", edit, _COPY_GOES_ON)
        for base, edit in (
            ("matmul_packed", "store <8 x float> %l"),
            ("matmul_parallel", "store <8 x float> %l"),
            ("matmul_nt_private", "store <8 x float> %l"),
            ("conv_epilogue", "store <8 x float> %l"),
            ("depthwise", "store <8 x float> %l"),
        )
    ),
    *(
        Equivalent(base, "past_the_end", edit, _ROUNDED)
        for base, edit in (
            ("matmul_tn_f64", "store <4 x double> %l"),
            ("colsum", "store <8 x float> %l"),
            ("softmax", "store float %r, ptr %private"),
            ("layernorm", "store float %r, ptr %workspace"),
            ("norm", "store float %r, ptr %private"),
        )
    ),
    Equivalent(
        "softmax",
        "drop_mask",
        "call void @llvm.masked.store.v8f32.p0(<8 x float> %v, ptr align 32",
        _ROUNDED,
    ),
    *(
        Equivalent(
            base,
            "offset",
            "%t = add i64 %t, 0 =>",
            "the parts of all threads move by one byte together and stay apart",
        )
        for base in ("gemv", "norm")
    ),
    Equivalent(
        "gemv_split_sum",
        "offset",
        "%t = add i64 %t, 320 =>",
        "where a thread's own part would begin: none has one",
    ),
    Equivalent(
        "gemv",
        "drop_store",
        "store ptr %workspace",
        "the address of the shared part of the workspace is handed on and not used",
    ),
    # Lanes
    Equivalent(
        "matmul_nt_private", "reverse_lanes", "s0.acc.t[0, s0.d1iii.init.t]", _SAME_IN_ALL_LANES
    ),
    Equivalent(
        "matmul_i8",
        "reverse_lanes",
        "s0.acc.t[s0.d0ii.init.t, s0.d1iii.init.t]",
        _SAME_IN_ALL_LANES,
    ),
    Equivalent(
        "matmul_even", "reverse_lanes", "s0.acc[s0.d0ii.init, s0.d1iii.init]", _SAME_IN_ALL_LANES
    ),
    Equivalent("gemv", "reverse_lanes", "s0.wide.acc[0, s0.wide.1i + 8*s0.wide.1o]", _LANES_SUMMED),
    Equivalent(
        "softmax", "reverse_lanes", "s0.wide.acc[0, s0.wide.1i + 8*s0.wide.1o]", _LANES_SUMMED
    ),
    Equivalent(
        "softmax",
        "rescale_write",
        "s2.wide.acc[0, s2.wide.1i.t + 8*s2.wide.1o.t]: writes dim 1: 1*s2.wide.1i.t -> 0",
        _LANES_SUMMED,
    ),
    Equivalent(
        "layernorm",
        "rescale_write",
        "s2.wide.acc[0, s2.wide.1i.t + 8*s2.wide.1o.t]: writes dim 1: 1*s2.wide.1i.t -> 0",
        _LANES_SUMMED,
    ),
    *(
        Equivalent(base, "shuffle", "%h = shufflevector", _LANES_SUMMED)
        for base in ("gemv", "softmax", "norm")
    ),
    *(
        Equivalent(base, "float_constant", "%l = call <", _PASS_THROUGH)
        for base in ("matmul_tn_f64", "layernorm", "add_relu", "max_pool")
    ),
    Equivalent(
        "softmax",
        "compare_predicate",
        "%m = icmp sge <8 x i32> %x",
        "the rests are 28, 12 and -4 lanes: the test is never at its edge",
    ),
    Equivalent(
        "add_relu",
        "lane_numbers",
        "%x = add <8 x i32> %x, <i32 0,",
        "the rests of this half of a tile are never at the edge of the test",
    ),
    Equivalent(
        "matmul_even",
        "compare_predicate",
        "%c = icmp sge i64 %x, 0",
        "the rests are 13 less multiples of three: none is zero",
    ),
    Equivalent(
        "matmul_even",
        "division",
        "%t = udiv i64 %t, %t",
        "3 * thread / team and its remainder are the same for one thread and for two",
    ),
    # Registers transposed as blocks, phases, padding left out, merged loops, constants prepacked,
    # operands that pass by, streamed outputs
    Equivalent(
        "matmul_nt_private", "swap_dims_read", "s0[16, 16*s0.d0of + s0.d1iii.out.t", _NEVER_WRITTEN
    ),
    *(
        Equivalent(base, "swap_loops", edit, _ORDER)
        for base, edit in (
            ("conv_skipped", "s0.r0.t.t1, s0.r2i.t.t1 swapped"),
            ("depthwise_skipped", "s0.d2io.t, s0.d3io.t swapped"),
            ("phases", "s0.pack0.2, s0.pack0.3o swapped"),
            ("own_transpose", "s0.d0o, s0.d1io swapped"),
            ("turned_panels", "s0.r0i, s0.d0ii swapped"),
            ("transposed", "s0.d0.ti.out, s0.d1.ti.outoi swapped"),
            ("packed_ahead", "s0.r0i, s0.d0ii swapped"),
            ("conv_packed_ahead", "s0.r0, s0.r2ii swapped"),
            ("dots", "s0.r0o, s0.wide.0 swapped"),
            ("passing", "s0.d0ii, s0.d1iio swapped"),
            ("streamed", "s0.d0foo, s0.d0foi swapped"),
        )
    ),
    *(
        Equivalent(base, "sink_statement", edit, _AGAIN)
        for base, edit in (
            ("depthwise_skipped", "for s0.d2io.t into s0.d3io.t.t"),
            ("own_transpose", "for s0.pack0.0o into s0.d0o"),
            ("transposed", "alloc s0.i0.block6 into s0.d0.ti.t.out"),
            ("packed_ahead", "for s0.d0io into s0.d0io.t"),
            ("conv_packed_ahead", "for s0.d3io into s0.d3io.t"),
        )
    ),
    *(
        Equivalent(base, "swap_statements", edit, _NOTHING_IN_COMMON)
        for base, edit in (
            ("depthwise_skipped", "for s0.d3io, for s0.d2io.t swapped"),
            ("turned_panels", "for s0.pack0.1o, alloc s0.pack0.block.t swapped"),
        )
    ),
    Equivalent(
        "passing",
        "swap_statements",
        "i1[s0.r0i, 16*s0.d1io + 1104*s0.d1o + 16], for s0.d0ii swapped",
        "a hint may be given a little later",
    ),
    *(
        Equivalent(base, "past_the_end", edit, _COPY_GOES_ON)
        for base, edit in (
            ("softmax_merged", "store <8 x float> %v, ptr %p, align 4"),
            ("turned_panels", "store <8 x float> %t, ptr %p, align 32"),
            ("passing", "store <8 x float> %r, ptr %p, align 4"),
            ("streamed", "store <8 x float> %v, ptr %p, align 4"),
        )
    ),
    *(
        Equivalent(base, "float_constant", "%l = call <", _PASS_THROUGH)
        for base in ("depthwise_skipped", "phases", "turned_panels")
    ),
    *(
        Equivalent(base, "change_constant", edit, _NOT_STORED)
        for base, edit in (
            ("turned_panels", "s0.pack0.block[s0.pack0.block.0, s0.pack0.block.1]: 0 -> 1"),
            ("conv_packed_ahead", "s0.acc.t[0, s0.d1ii.t, s0.d2ii.t, s0.d3iii.t]: 0 -> 1"),
        )
    ),
    Equivalent(
        "streamed",
        "change_constant",
        "s0[s0.d0foo//32, s0.d0fi + 8*s0.d0foi + 32*(s0.d0foo%32)]: 0.0 -> -0.0",
        "the maximum with a zero of the other sign is an equal number",
    ),
    *(
        Equivalent(base, "reverse_lanes", edit, _SAME_IN_ALL_LANES)
        for base, edit in (
            ("own_transpose", "s0.acc[0, s0.d1iii.init]"),
            ("turned_panels", "s0.acc[s0.d0ii.init, s0.d1iii.init]"),
        )
    ),
    *(
        Equivalent(base, "shuffle", "%h = shufflevector", _LANES_SUMMED)
        for base in ("softmax_merged", "dots")
    ),
    Equivalent(
        "softmax_merged",
        "overlap_buffers",
        "%w = getelementptr i8, ptr %workspace, i64 320",
        "the maximum that lies there was used up when the sum is stored",
    ),
    Equivalent(
        "softmax_merged",
        "integer_operation",
        "%v = lshr <8 x i32> %v, splat (i32 1)",
        "the bits of a positive float: the first one is clear",
    ),
    Equivalent(
        "depthwise_skipped",
        "drop_mask",
        "call void @llvm.masked.store.v8f32.p0(<8 x float> %r, ptr align 4 %p",
        "the pixel it runs into is the next tile's, which is written afterwards",
    ),
    *(
        Equivalent("passing", operator, edit, "the next row is written over it, or " + _ROUNDED)
        for operator, edit in (
            ("drop_cond", "s0.rows0[s0.rows0.0, s0.rows0.1i + 8*s0.rows0.1o]: guard"),
            ("drop_mask", "call void @llvm.masked.store.v8f32.p0(<8 x float> %l, ptr align 8 %p"),
        )
    ),
    Equivalent(
        "phases",
        "one_iteration_more",
        "s0.d3iii.out: 8 -> 9",
        "the channel is the next tile's, which is written afterwards",
    ),
    Equivalent("turned_panels", "one_iteration_more", "s0.d0ii: 4 -> 5", _UNUSED_ROW),
    Equivalent("transposed", "one_iteration_more", "s0.d1ii: 8 -> 9", _COPY_GOES_ON),
    Equivalent("packed_ahead", "one_iteration_more", "s0.d0ii.out: 4 -> 5", _NEVER_WRITTEN),
    Equivalent("conv_packed_ahead", "one_iteration_more", "s0.d1ii.out.t: 2 -> 3", _NEVER_WRITTEN),
    Equivalent("turned_panels", "loop_limit", "%c = icmp slt i64 %i, 3 =>", _GUARDED),
    Equivalent("transposed", "compare_predicate", "%c = icmp slt i64 %i, 2", _COPY_GOES_ON),
    Equivalent("own_transpose", "compare_predicate", "%c = icmp sge i64 %x, 0", _NEVER_AT_ITS_EDGE),
    Equivalent("turned_panels", "lane_numbers", "%x = add <8 x i32> %x, <i32 0,", _NOT_STORED),
    Equivalent(
        "packed_ahead", "lane_numbers", "%x = add <8 x i32> %x, <i32 0,", _NEVER_AT_ITS_EDGE
    ),
    Equivalent("packed_ahead", "stride", "%x = mul i64 %i, -4", _NEVER_AT_ITS_EDGE),
    Equivalent(
        "packed_ahead",
        "division",
        "%t = udiv i64 %t, %t",
        "3 * thread / team and its remainder are the same for one thread and for two",
    ),
    Equivalent(
        "transposed",
        "align_lie",
        "%l = load <5 x float>",
        "five floats are read with instructions that ask for no alignment",
    ),
)


def why_equivalent(base: str, operator: str, edit: str) -> str | None:
    """Why this edit is harmless, None if nobody said so."""
    for known in EQUIVALENTS:
        if known.operator == operator and known.base in (ANY, base) and edit.startswith(known.edit):
            return known.reason
    return None

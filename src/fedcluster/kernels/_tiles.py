"""Inner loops in vector instructions: transpose rows, score centres, add rows, multiply matrices.

numba vectorises single loops, but cannot keep a matrix of sums in registers over a loop, or
transpose one there, and does not know that reading past a row's end is allowed. So the functions of
this module write LLVM code on vectors, which LLVM translates for any machine. All lanes do the same
and sums run over the columns in order: the result for a row does not depend on its position.

Three layouts of a sweep: a *block* of ``block_rows(X)`` rows lies transposed, as an array (columns,
rows), so that a vector holds one column of several rows; *packed* centres lie in tiles, as an array
(tiles, d, TILE_CENTERS), one number after the other as they are read; and arrays with one entry per
column (the shift, centres and sums) are padded to whole vectors.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from fedcluster.core import Rows
from fedcluster.kernels.runtime import inlined

# Sums in registers are vectors of rows times centres: 24 of 32 registers, or 12 of 16.
HAS_AVX512 = binding.get_host_cpu_features().get("avx512f", False)
VECTOR_BYTES, TILE_CENTERS = (64, 8) if HAS_AVX512 else (32, 4)
TILE_VECTORS, ROW_TILES = 3, 4
PRODUCT_ROWS, PRODUCT_VECTORS = (12, 2) if HAS_AVX512 else (6, 2)
PRODUCT_COLUMNS = PRODUCT_VECTORS * VECTOR_BYTES // 8
ADD_LANES, LARGEST_ANCHOR = 8, 1e38

INT32, INT64, DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()


@inlined
def lanes(X: Rows) -> int:
    """Return how many numbers of X's type fit into one vector."""
    return VECTOR_BYTES // X.itemsize


@inlined
def block_rows(X: Rows) -> int:
    """Return how many rows of X's type form one block."""
    return TILE_VECTORS * lanes(X)


@intrinsic
def aligned_zeros(_typing_context: object, dtype: types.Type, shape: types.BaseTuple) -> object:
    """Return zeros aligned to cache lines, so that no vector lies in two.

    numba compiles several functions of its own for each way to make an array; this is none.
    """
    kind = types.Array(dtype.dtype, len(shape), "C")

    def generate(
        context: BaseContext, builder: ir.IRBuilder, _: Signature, args: list[Any]
    ) -> ir.Value:
        lengths = [
            context.cast(builder, length, each, types.intp)
            for length, each in zip(cgutils.unpack_tuple(builder, args[1]), shape, strict=True)
        ]
        array, strides = context.make_array(kind)(context, builder), list[ir.Value]()
        itemsize = size = INT64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        for length in reversed(lengths):
            strides.insert(0, size)
            size = builder.mul(size, length)
        # alignment in bytes: one cache line
        meminfo = context.nrt.meminfo_alloc_aligned(builder, size, 64)
        data = context.nrt.meminfo_data(builder, meminfo)
        cgutils.memset(builder, data, size, 0)
        data = builder.bitcast(data, array.data.type)
        populate_array(array, data, lengths, strides, itemsize, meminfo)
        return array._getvalue()  # noqa: SLF001

    return kind(dtype, shape), generate


class Array(NamedTuple):
    """A C array in generated code: the pointer to its first number, and its shape."""

    data: ir.Value
    shape: list[ir.Value]


def intrinsic_of(returns: types.Type, lanes: int = 0) -> Callable[[Callable[..., Any]], Any]:
    """Turn a function that writes code into one that compiled code can call.

    The writer is called with a ``Code`` and the arguments: an array as an ``Array``, a tuple as a
    list, an integer with 64 bits. Its return value is the result.

    Parameters
    ----------
    returns : numba.types.Type
        The type of the result.
    lanes : int, optional
        The number of lanes of a vector; by default as many as fit of the first argument's type.
    """

    def decorate(write: Callable[..., ir.Value | None]) -> Any:
        @wraps(write)  # wraps gives the signature that numba needs to bind arguments
        def definition(typing_context: object, *args: types.Type) -> object:
            def generate(
                context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[Any]
            ) -> ir.Value:
                code = Code(context, builder, signature.args[0].dtype, lanes)
                result = write(code, *map(code.argument, signature.args, args))
                return context.get_dummy_value() if result is None else result

            return returns(*args), generate

        return intrinsic(definition)

    return decorate


@intrinsic_of(types.void)
def score_block(
    code: "Code",
    block: Array,
    X: Array,
    first: ir.Value,
    packed: list[Array],
    lowest: Array,
    nearest: Array,
    second: list[Array],
) -> None:
    """Write the nearest centres and the lowest scores of a block of rows, starting at ``first``.

    Also write the second lowest scores if ``second`` is a tuple of an array of infinity, not an
    empty one. One intrinsic for all of it, as numba takes long to inline functions.
    """
    builder, lanes, (columns, rows) = code.builder, INT64(code.lanes), block.shape
    shift, tiles, half_norms, *_ = packed
    over_rows = cgutils.for_range_slice(builder, INT64(0), rows, lanes)
    over_columns = cgutils.for_range_slice(builder, INT64(0), columns, lanes)
    with over_rows as (r, _), over_columns as (f, _):
        _transpose_tile(code, block, r, X, builder.add(first, r), f, shift)
    for v in range(TILE_VECTORS):
        code.store(code.spread(code.vector.element(math.inf)), lowest, INT64(v * code.lanes))
        code.store(code.spread(INT32(0)), nearest, INT64(v * code.lanes))
    with cgutils.for_range(builder, tiles.shape[0]) as loop:
        _score_tile(code, block, tiles, half_norms, loop.index, lowest, nearest, second)


def _transpose_tile(
    code: "Code", block: Array, r: ir.Value, X: Array, i: ir.Value, f: ir.Value, shift: Array
) -> None:
    """Write the rows of one tile, less the shift, into a transposed block.

    ``block[f + c, r + l] = X[i + l, f + c] - shift[f + c]`` for lanes l and columns c; both run up
    to the number of lanes. Reads run past the last column into the next row, so X must have one
    more row. Rows of float64 are rounded if the block is of float32.
    """
    builder, number = code.builder, X.data.type.pointee
    shifts = code.load(shift, f, number)
    rows = []
    for lane in range(code.lanes):
        row = code.load(X, code.position(X, builder.add(i, INT64(lane)), f), number)
        row = builder.fsub(row, shifts)
        rows.append(row if row.type == code.vector else builder.fptrunc(row, code.vector))
    for column, values in enumerate(_transposed(builder, rows)):
        code.store(values, block, code.position(block, builder.add(f, INT64(column)), r))


def _score_tile(
    code: "Code",
    block: Array,
    tiles: Array,
    half_norms: Array,
    tile: ir.Value,
    lowest: Array,
    nearest: Array,
    second: list[Array],
) -> None:
    """Score a block of rows with one tile of centres: 1/2 ||c||^2 - x.c.

    Lowers ``lowest[r]`` and sets ``nearest[r]`` if a centre's score is lower.
    """
    builder = code.builder
    products, first = _products(code, block, tiles, tile), builder.mul(tile, INT64(TILE_CENTERS))
    for v in range(TILE_VECTORS):
        place = INT64(v * code.lanes)
        low, label = code.load(lowest, place), code.load(nearest, place, INT32)
        others = [code.load(array, place) for array in second]
        for c in range(TILE_CENTERS):
            center = builder.add(first, INT64(c))
            half_norm = code.spread(code.number(half_norms, center))
            score = builder.fsub(half_norm, products[c][v])
            is_less = builder.fcmp_ordered("<", score, low)
            higher = builder.select(is_less, low, score)
            others = [code.lesser(higher, other) for other in others]
            low = builder.select(is_less, score, low)
            label = builder.select(is_less, code.spread(builder.trunc(center, INT32)), label)
        code.store(low, lowest, place)
        code.store(label, nearest, place)
        for array, other in zip(second, others, strict=True):
            code.store(other, array, place)


@intrinsic_of(types.void, lanes=TILE_CENTERS)
def score_row(
    code: "Code",
    tiles: Array,
    tile: ir.Value,
    half_norms: Array,
    X: Array,
    i: ir.Value,
    shift: Array,
    scores: Array,
) -> None:
    """Write a row's scores for a few tiles, with the same bits as ``score_block``."""
    builder, last = code.builder, code.builder.sub(tiles.shape[0], INT64(1))
    numbers = [builder.add(tile, INT64(v)) for v in range(ROW_TILES)]
    numbers = [builder.select(builder.icmp_signed("<", t, last), t, last) for t in numbers]

    def difference(_: int, column: ir.Value) -> ir.Value:
        x = code.number(X, code.position(X, i, column))
        return builder.fsub(x, code.number(shift, column))

    def centers(column: ir.Value) -> list[ir.Value]:
        return [code.load(tiles, code.position(tiles, t, column, INT64(0))) for t in numbers]

    [products] = _sums(code, (1, ROW_TILES), tiles.shape[1], difference, centers)
    for t, product in zip(numbers, products, strict=True):
        place = builder.mul(t, INT64(TILE_CENTERS))
        code.store(builder.fsub(code.load(half_norms, place), product), scores, place)


@intrinsic_of(types.void)
def squared_distances(code: "Code", block: Array, points: Array, squared: Array) -> None:
    """Write the squared distances of a block of rows to a tile of points.

    All are of float64: the block an array (d, rows), the points (d, TILE_CENTERS), the distances
    (TILE_CENTERS, rows).
    """
    places = [INT64(v * code.lanes) for v in range(TILE_VECTORS)]

    def rows(column: ir.Value) -> list[ir.Value]:
        return [code.load(block, code.position(block, column, place)) for place in places]

    def point(c: int, column: ir.Value) -> ir.Value:
        return code.number(points, code.position(points, column, INT64(c)))

    shape = TILE_CENTERS, TILE_VECTORS
    sums = _sums(code, shape, block.shape[0], point, rows, of_squares=True)
    for c, line in enumerate(sums):
        for place, values in zip(places, line, strict=True):
            code.store(values, squared, code.position(squared, INT64(c), place))


def _products(code: "Code", block: Array, tiles: Array, tile: ir.Value) -> list[list[ir.Value]]:
    """Write code for x.c for each centre of a tile and, in vectors, each row of a block."""

    def rows(column: ir.Value) -> list[ir.Value]:
        places = [code.position(block, column, INT64(v * code.lanes)) for v in range(TILE_VECTORS)]
        return [code.load(block, place) for place in places]

    def center(c: int, column: ir.Value) -> ir.Value:
        return code.number(tiles, code.position(tiles, tile, column, INT64(c)))

    return _sums(code, (TILE_CENTERS, TILE_VECTORS), tiles.shape[1], center, rows)


def _sums(
    code: "Code",
    shape: tuple[int, int],
    count: ir.Value,
    number: Callable[[int, ir.Value], ir.Value],
    vectors: Callable[[ir.Value], list[ir.Value]],
    *,
    of_squares: bool = False,
) -> list[list[ir.Value]]:
    """Write code for sums of ``number(i, l) * vectors(l)[v]`` over l < count, for i, v < shape.

    Or of the squares of ``vectors(l)[v] - number(i, l)``.
    """
    builder, zero = code.builder, ir.Constant(code.vector, [0.0] * code.lanes)
    height, width = map(range, shape)
    places = [[cgutils.alloca_once_value(builder, zero) for _ in width] for _ in height]
    # LLVM keeps each of these variables in a register
    with cgutils.for_range(builder, count) as loop:
        these = vectors(loop.index)
        for i, line in enumerate(places):
            factor = code.spread(number(i, loop.index))
            for vector, place in zip(these, line, strict=True):
                pair = (builder.fsub(vector, factor),) * 2 if of_squares else (vector, factor)
                builder.store(code.multiply_add(*pair, builder.load(place)), place)
    return [[builder.load(place) for place in line] for line in places]


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square: swap the off-diagonal quarters of squares of 2, 4, 8, ... rows."""
    rows, count = list(rows), len(rows)
    half = 1
    while half < count:
        # lanes of a pair of rows: 0 ... count - 1 of the first row, count ... of the second
        firsts = [count + lane - half if lane & half else lane for lane in range(count)]
        seconds = [count + lane if lane & half else lane + half for lane in range(count)]
        for i in range(count):
            if not i & half:
                pair = rows[i], rows[i + half]
                for j, order in ((i, firsts), (i + half, seconds)):
                    mask = ir.Constant(ir.VectorType(INT32, count), order)
                    rows[j] = builder.shuffle_vector(*pair, mask)
        half *= 2
    return rows


@intrinsic_of(types.float64, lanes=ADD_LANES)
def add(
    code: "Code",
    X: Array,
    sample_weight: Array,
    i: ir.Value,
    j: ir.Value,
    packed: list[Array],
    parts: list[Array],
) -> ir.Value:
    """Add row i to the sums of centre j and return its squared distance, ||x - c||^2.

    All is in float64: w (x - g), with g the anchor of c (c rounded to float32), is added to the
    residuals, and w (x - c)^2 to the errors, an array (k, ADD_LANES), whose rows add up to
    w ||x - c||^2. Reads run past the last column into the next row, so X must have one more row; it
    is not added.
    """
    builder = code.builder
    (*_, centers), (residuals, weights, counts, errors, added) = packed, parts
    w = cgutils.alloca_once_value(builder, DOUBLE(1.0))
    with builder.if_then(builder.icmp_signed("!=", sample_weight.shape[0], INT64(0))):
        builder.store(code.number(sample_weight, i), w)
    one = builder.load(w)
    is_counted = builder.zext(builder.fcmp_ordered(">", one, DOUBLE(0.0)), INT64)
    tallies = (weights, builder.fadd, one), (counts, builder.add, is_counted)
    for array, plus, more in (*tallies, (added, builder.add, INT64(1))):
        place = builder.gep(array.data, [j])
        builder.store(plus(builder.load(place), more), place)
    weight, total = code.spread(one), cgutils.alloca_once_value(builder, code.zeros(DOUBLE))
    sums = partial(_add_columns, code, (X, centers), (i, j), total, (weight, residuals))
    _over_columns(code, X.shape[1], sums)
    squares, place = builder.load(total), code.position(errors, j, INT64(0))
    error = code.multiply_add(weight, squares, code.load(errors, place, DOUBLE))
    code.store(error, errors, place)
    return code.sum(squares)


@intrinsic_of(types.float64, lanes=ADD_LANES)
def measure(code: "Code", X: Array, i: ir.Value, j: ir.Value, packed: list[Array]) -> ir.Value:
    """Return the squared distance ||x - c||^2 of row i to centre j, with the bits of `add`."""
    total = cgutils.alloca_once_value(code.builder, code.zeros(DOUBLE))
    add_to = partial(_add_columns, code, (X, packed[-1]), (i, j), total, None)
    _over_columns(code, X.shape[1], add_to)
    return code.sum(code.builder.load(total))


def _over_columns(code: "Code", d: ir.Value, add_to: Callable[..., None]) -> None:
    """Write code that adds whole vectors of columns, and the last ones, if any."""
    builder, whole = code.builder, code.builder.and_(d, INT64(-ADD_LANES))
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(ADD_LANES)) as (f, _):
        add_to(f)
    with builder.if_then(builder.icmp_signed("<", whole, d)):
        counting = ir.Constant(ir.VectorType(INT64, ADD_LANES), list(range(ADD_LANES)))
        add_to(whole, builder.icmp_signed("<", counting, code.spread(builder.sub(d, whole))))


def _add_columns(
    code: "Code",
    arrays: tuple[Array, Array],
    pair: tuple[ir.Value, ir.Value],
    total: ir.Value,
    weighted: tuple[ir.Value, Array] | None,
    f: ir.Value,
    is_column: ir.Value | None = None,
) -> None:
    """Add a vector of columns of row i, squared, to the total and, weighted, to the residuals."""
    (X, centers), (i, j), builder = arrays, pair, code.builder
    x = code.to_double(code.load(X, code.position(X, i, f)))
    place = code.position(centers, j, f)
    c = code.load(centers, place, DOUBLE)

    def less(point: ir.Value) -> ir.Value:
        difference = builder.fsub(x, point)
        if is_column is None:
            return difference
        return builder.select(is_column, difference, code.zeros(DOUBLE))

    if weighted:
        weight, residuals = weighted
        residual = code.load(residuals, place, DOUBLE)
        sum_ = code.multiply_add(weight, less(code.anchor(c)), residual)
        code.store(sum_, residuals, place)
    difference = less(c)
    builder.store(code.multiply_add(difference, difference, builder.load(total)), total)


@intrinsic_of(types.void, lanes=4)
def add_squares(
    code: "Code",
    X: Array,
    pair: list[ir.Value],
    reference: Array,
    weight: ir.Value,
    sums: Array,
) -> None:
    """Add w x and w (x - c)^2 to the two halves of a line of sums (l, 2 d).

    The pair (i, j) selects the row x, and the line of the sums and of the reference points c. All
    is in float64, and each column has the bits of adding it alone.
    """
    builder, (i, j), d = code.builder, pair, X.shape[1]
    row, center = builder.mul(i, d), builder.mul(j, d)
    places = builder.add(center, center), builder.add(builder.add(center, center), d)

    def add_at(f: ir.Value, code: "Code") -> None:
        x = code.to_double(code.load(X, builder.add(row, f), X.data.type.pointee))
        off = builder.fsub(x, code.load(reference, builder.add(center, f), DOUBLE))
        for value, place in zip((x, builder.fmul(off, off)), places, strict=True):
            value, at = builder.fmul(value, code.spread(weight)), builder.add(place, f)
            code.store(builder.fadd(code.load(sums, at, DOUBLE), value), sums, at)

    whole = builder.and_(d, INT64(-code.lanes))
    with cgutils.for_range_slice(builder, INT64(0), whole, INT64(code.lanes)) as (f, _):
        add_at(f, code)
    with cgutils.for_range_slice(builder, whole, d, INT64(1)) as (f, _):
        add_at(f, Code(code.context, builder, code.dtype, 1))


@intrinsic_of(types.void)
def add_product(
    code: "Code", A: Array, i: ir.Value, first: ir.Value, B: Array, j: ir.Value, out: Array
) -> None:
    """Add A B to a tile of an array, with B's rows matching A's columns from ``first`` on.

    ``out[i + a, j + b] += sum of A[i + a, first + l] B[l, j + b]`` over l < len(B), in float64,
    for a < PRODUCT_ROWS and b < PRODUCT_COLUMNS.
    """
    builder = code.builder
    lines = [builder.add(i, INT64(a)) for a in range(PRODUCT_ROWS)]
    columns = [builder.add(j, INT64(v * code.lanes)) for v in range(PRODUCT_VECTORS)]
    sums = _sums(
        code,
        (PRODUCT_ROWS, PRODUCT_VECTORS),
        B.shape[0],
        lambda a, row: code.number(A, code.position(A, lines[a], builder.add(first, row))),
        lambda row: [code.load(B, code.position(B, row, column)) for column in columns],
    )
    for line, totals in zip(lines, sums, strict=True):
        for column, total in zip(columns, totals, strict=True):
            place = code.position(out, line, column)
            code.store(builder.fadd(code.load(out, place), total), out, place)


@intrinsic_of(types.boolean, lanes=ADD_LANES)
def exceeds_steps(
    code: "Code", lines: Array, i: ir.Value, cut: Array, j: ir.Value, margin: ir.Value
) -> ir.Value:
    """Return whether a number of line i exceeds its step in line j times a margin, or is NaN.

    Lines are of float64 and of whole vectors; ``cut[0]`` has the steps, which are at least 0.
    """
    builder = code.builder

    def is_above(f: ir.Value) -> ir.Value:
        steps = code.load(cut, code.position(cut, INT64(0), j, f))
        x, most = (
            code.load(lines, code.position(lines, i, f)),
            builder.fmul(steps, code.spread(margin)),
        )
        below = builder.fcmp_unordered("<", x, builder.fneg(most))
        return builder.or_(below, builder.fcmp_unordered(">", x, most))

    return _is_any(code, lines.shape[1], is_above)


@intrinsic_of(types.boolean, lanes=ADD_LANES)
def cut_line(
    code: "Code",
    lines: Array,
    i: ir.Value,
    cut: Array,
    j: ir.Value,
    level: ir.Value,
    scale: ir.Value,
) -> ir.Value:
    """Move the digits of line i above its steps times ``scale`` to ``cut[level]``, line j.

    Return whether any digits are left in it.
    """
    builder = code.builder

    def is_left(f: ir.Value) -> ir.Value:
        here, there = code.position(lines, i, f), code.position(cut, level, j, f)
        x, steps = code.load(lines, here), code.load(cut, code.position(cut, INT64(0), j, f))
        steps = builder.fmul(steps, code.spread(scale))
        high = builder.fsub(builder.fadd(steps, x), steps)
        rest = builder.fsub(x, high)
        code.store(builder.fadd(code.load(cut, there), high), cut, there)
        code.store(rest, lines, here)
        return builder.fcmp_unordered("!=", rest, code.zeros(DOUBLE))

    return _is_any(code, lines.shape[1], is_left)


def _is_any(code: "Code", width: ir.Value, test: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Write code for whether a test of the vector at a column is true of any number of a line."""
    builder, bits = code.builder, ir.IntType(code.lanes)
    found = cgutils.alloca_once_value(builder, bits(0))
    with cgutils.for_range_slice(builder, INT64(0), width, INT64(code.lanes)) as (f, _):
        each = builder.bitcast(test(f), bits)
        builder.store(builder.or_(builder.load(found), each), found)
    return builder.icmp_unsigned("!=", builder.load(found), bits(0))


@intrinsic_of(types.void, lanes=ADD_LANES)
def take_line(
    code: "Code",
    anchors: Array,
    parts: list[Array],
    j: ir.Value,
    d: ir.Value,
    lines: Array,
    i: ir.Value,
) -> None:
    """Write the sums of centre j over d columns, its error and its weight to line i."""
    builder, (sums, weights, _, errors, _), error = code.builder, parts, DOUBLE(0.0)
    weight = code.number(weights, j)
    with cgutils.for_range_slice(builder, INT64(0), sums.shape[1], INT64(ADD_LANES)) as (f, _):
        place = code.position(sums, j, f)
        more = builder.fmul(code.spread(weight), code.load(anchors, place))
        code.store(builder.fadd(code.load(sums, place), more), lines, code.position(lines, i, f))
    each = code.load(errors, code.position(errors, j, INT64(0)))
    for lane in range(ADD_LANES):
        error = builder.fadd(error, builder.extract_element(each, INT32(lane)))
    for place, number in ((d, error), (builder.add(d, INT64(1)), weight)):
        builder.store(number, builder.gep(lines.data, [code.position(lines, i, place)]))


@intrinsic_of(types.void, lanes=ADD_LANES)
def clear_line(code: "Code", sums: Array, j: ir.Value) -> None:
    """Set a line of float64 and of whole vectors to 0, by stores as wide as later loads."""
    width = sums.shape[1]
    with cgutils.for_range_slice(code.builder, INT64(0), width, INT64(ADD_LANES)) as (f, _):
        code.store(code.zeros(DOUBLE), sums, code.position(sums, j, f))


@intrinsic_of(types.void)
def write_distances(
    code: "Code",
    products: Array,
    r: ir.Value,
    norms: Array,
    center_norms: Array,
    j: ir.Value,
    squared: Array,
    smallest: Array,
) -> None:
    """Write |z|^2 - 2 z.c + |c|^2 for a vector of rows and one tile of products, transposed.

    ``squared[j + c, r + l] = norms[r + l] - 2 products[r + l, c] + center_norms[j + c]`` for
    c < PRODUCT_COLUMNS. Lowers ``smallest[r + l]`` to the least of them.
    """
    builder = code.builder
    rows = [builder.add(r, INT64(lane)) for lane in range(code.lanes)]
    lengths, least = code.load(norms, r), code.load(smallest, r)
    for first in range(0, PRODUCT_COLUMNS, code.lanes):
        places = [code.position(products, row, INT64(first)) for row in rows]
        columns = _transposed(builder, [code.load(products, place) for place in places])
        for c, column in enumerate(columns, first):
            center = builder.add(j, INT64(c))
            twice = builder.fadd(column, column)
            norm = code.spread(code.number(center_norms, center))
            distances = builder.fsub(builder.fadd(lengths, norm), twice)
            code.store(distances, squared, code.position(squared, center, r))
            least = code.lesser(distances, least)
    code.store(least, smallest, r)


class Code:
    """Writer of LLVM code on vectors of numbers.

    Parameters
    ----------
    context, builder
        As numba gives them to an intrinsic.
    dtype : numba.types.Type
        The type of the numbers.
    lanes : int
        The number of lanes of a vector; 0 for as many as fit.
    """

    def __init__(
        self, context: BaseContext, builder: ir.IRBuilder, dtype: types.Type, lanes: int
    ) -> None:
        self.context, self.builder, self.dtype = context, builder, dtype
        self.lanes = lanes or VECTOR_BYTES * 8 // dtype.bitwidth
        self.vector = ir.VectorType(context.get_data_type(dtype), self.lanes)

    def argument(self, kind: types.Type, value: ir.Value) -> Any:
        """Return an argument in the form that a writer expects."""
        if isinstance(kind, types.BaseTuple):
            return list(map(self.argument, kind, cgutils.unpack_tuple(self.builder, value)))
        if isinstance(kind, types.Array):
            array = self.context.make_array(kind)(self.context, self.builder, value)
            return Array(array.data, cgutils.unpack_tuple(self.builder, array.shape, kind.ndim))
        if isinstance(kind, types.Integer):
            return self.context.cast(self.builder, value, kind, types.int64)
        return value

    def position(self, array: Array, *indices: ir.Value) -> ir.Value:
        """Return the offset of an element of an array, in numbers."""
        position, *others = indices
        for length, index in zip(array.shape[1:], others, strict=True):
            position = self.builder.add(self.builder.mul(position, length), index)
        return position

    def number(self, array: Array, position: ir.Value) -> ir.Value:
        """Return the number at a position."""
        return self.builder.load(self.builder.gep(array.data, [position]))

    def load(self, array: Array, position: ir.Value, number: ir.Type | None = None) -> ir.Value:
        """Return the vector that starts at a position, of the type of the rows by default."""
        place, size = self._place(array, position, number or self.vector.element)
        vector = self.builder.load(place)
        vector.align = size
        return vector

    def store(self, vector: ir.Value, array: Array, position: ir.Value) -> None:
        """Write a vector to a position."""
        place, size = self._place(array, position, vector.type.element)
        self.builder.store(vector, place).align = size

    def _place(self, array: Array, position: ir.Value, number: ir.Type) -> tuple[ir.Value, int]:
        """Return the address of a vector, and the size in bytes of one of its numbers."""
        pointer = self.builder.gep(array.data, [position])
        place = self.builder.bitcast(pointer, ir.VectorType(number, self.lanes).as_pointer())
        return place, 8 if number == DOUBLE else 4

    def spread(self, number: ir.Value) -> ir.Value:
        """Return a vector with the number in every lane."""
        vector = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        zeros = ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        one = self.builder.insert_element(vector, number, INT32(0))
        return self.builder.shuffle_vector(one, vector, zeros)

    def anchor(self, c: ir.Value) -> ir.Value:
        """Return numbers of float64 rounded to float32, but for those that overflow there."""
        builder, most = self.builder, [self.spread(DOUBLE(s * LARGEST_ANCHOR)) for s in (1, -1)]
        signs = zip(("<", ">"), most, strict=True)
        fits = builder.and_(*(builder.fcmp_ordered(sign, c, limit) for sign, limit in signs))
        rounded = builder.fptrunc(c, ir.VectorType(ir.FloatType(), self.lanes))
        return builder.select(fits, builder.fpext(rounded, c.type), c)

    def zeros(self, number: ir.Type) -> ir.Value:
        """Return a vector of zeros."""
        return ir.Constant(ir.VectorType(number, self.lanes), [0.0] * self.lanes)

    def lesser(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the smaller number in every lane; b if they do not compare."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def sum(self, vector: ir.Value) -> ir.Value:
        """Return the sum of a vector, halving it repeatedly."""
        half = self.lanes // 2
        while half:
            order = [(lane + half) % self.lanes for lane in range(self.lanes)]
            mask = ir.Constant(ir.VectorType(INT32, self.lanes), order)
            others = self.builder.shuffle_vector(vector, vector, mask)
            vector, half = self.builder.fadd(vector, others), half // 2
        return self.builder.extract_element(vector, INT32(0))

    def to_double(self, vector: ir.Value) -> ir.Value:
        """Return the same numbers in float64."""
        kind = ir.VectorType(DOUBLE, self.lanes)
        return vector if vector.type == kind else self.builder.fpext(vector, kind)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Return a b + c, rounded once if the machine can."""
        bits = 64 if a.type.element == DOUBLE else 32
        kind, name = ir.FunctionType(a.type, [a.type] * 3), f"llvm.fmuladd.v{self.lanes}f{bits}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

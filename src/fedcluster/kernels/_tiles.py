"""Inner loops in vector instructions: transpose rows, score centres, add rows, multiply matrices.

numba makes vector instructions of one loop, but keeps no matrix of sums in registers over a loop,
nor transposes one there, nor knows that a row's end may be overrun. So the functions of this
module write LLVM code on vectors, which LLVM translates for any machine. Every lane does the same
and sums run over the columns in order: what is computed of a row does not depend on where it lies.

Three layouts of a sweep: a *block* of ``block_rows(X)`` rows lies transposed, as an array (columns,
rows), so that a vector holds one column of several rows; *packed* centres lie in tiles, as an array
(tiles, d, TILE_CENTERS), one number after the other as they are read; and all that has columns
only, the shift, centres and sums, is filled up to whole vectors.
"""

from collections.abc import Callable

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, register_jitable

from fedcluster.kernels._rows import Rows

Intrinsic = tuple[Signature, Callable[..., ir.Value]]

# Sums in registers are vectors of rows times centres: 24 of 32 registers, or 12 of 16.
HAS_AVX512 = binding.get_host_cpu_features().get("avx512f", False)
VECTOR_BYTES, TILE_CENTERS = (64, 8) if HAS_AVX512 else (32, 4)
TILE_VECTORS = 3
PRODUCT_ROWS, PRODUCT_VECTORS = (12, 2) if HAS_AVX512 else (6, 2)
PRODUCT_COLUMNS = PRODUCT_VECTORS * VECTOR_BYTES // 8
ADD_LANES = 8

INT32, INT64, DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()


@register_jitable
def lanes(X: Rows) -> int:
    """How many numbers of this type one vector holds."""
    return VECTOR_BYTES // X.itemsize


@register_jitable
def block_rows(X: Rows) -> int:
    """How many rows of this type one block holds."""
    return TILE_VECTORS * lanes(X)


@intrinsic
def transpose_tile(
    typing_context: object,
    X: types.Array,
    i: types.Integer,
    f: types.Integer,
    shift: types.Array,
    block: types.Array,
    r: types.Integer,
) -> Intrinsic:
    """Write rows, less the shift, into a block: as many as there are lanes, as many columns.

    ``block[f + c, r + l] = X[i + l, f + c] - shift[f + c]`` for lanes l and columns c. What lies
    beyond the last column is the next row: X must have one.
    """

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        code = _Code(context, builder, signature, args)
        X, i, f, shift, block, r = code.values
        shifts = code.load(shift, f)
        rows = [
            builder.fsub(code.load(X, code.position(0, builder.add(i, INT64(lane)), f)), shifts)
            for lane in range(code.lanes)
        ]
        for column, values in enumerate(_transposed(builder, rows)):
            code.store(values, block, code.position(4, builder.add(f, INT64(column)), r))
        return context.get_dummy_value()

    return types.void(X, i, f, shift, block, r), generate


@intrinsic
def score_tile(
    typing_context: object,
    block: types.Array,
    packed: types.Array,
    half_norms: types.Array,
    tile: types.Integer,
    lowest: types.Array,
    nearest: types.Array,
) -> Intrinsic:
    """Score a block of rows with one tile of centres: 1/2 ||c||^2 - x.c.

    Lowers ``lowest[r]`` and sets ``nearest[r]`` where a centre's score is less.
    """

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        _score_tile(_Code(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(block, packed, half_norms, tile, lowest, nearest), generate


@intrinsic
def score_tile_for_two(
    typing_context: object,
    block: types.Array,
    packed: types.Array,
    half_norms: types.Array,
    tile: types.Integer,
    lowest: types.Array,
    nearest: types.Array,
    second: types.Array,
) -> Intrinsic:
    """``score_tile``; and ``second[r]`` becomes the lowest score of the other centres."""

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        _score_tile(_Code(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(block, packed, half_norms, tile, lowest, nearest, second), generate


def _score_tile(code: "_Code") -> None:
    """Lower scores by those of a tile, and second lowest ones where there is room for them."""
    builder, products = code.builder, _products(code)
    _, _, half_norms, tile, lowest, nearest, *second = code.values
    first = builder.mul(tile, INT64(TILE_CENTERS))
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


def _products(code: "_Code") -> list[list[ir.Value]]:
    """x.c for each centre of a tile, and in vectors for each row of a block; the rows vary last."""
    block, packed, _, tile, *_ = code.values

    def rows(column: ir.Value) -> list[ir.Value]:
        places = [code.position(0, column, INT64(v * code.lanes)) for v in range(TILE_VECTORS)]
        return [code.load(block, place) for place in places]

    def center(c: int, column: ir.Value) -> ir.Value:
        return code.number(packed, code.position(1, tile, column, INT64(c)))

    return _sums(code, (TILE_CENTERS, TILE_VECTORS), code.shapes[1][1], center, rows)


def _sums(
    code: "_Code",
    shape: tuple[int, int],
    count: ir.Value,
    number: Callable[[int, ir.Value], ir.Value],
    vectors: Callable[[ir.Value], list[ir.Value]],
) -> list[list[ir.Value]]:
    """Sums of ``number(i, l)`` times ``vectors(l)[v]`` over l < count, for i, v < shape."""
    builder, zero = code.builder, ir.Constant(code.vector, [0.0] * code.lanes)
    height, width = map(range, shape)
    places = [[cgutils.alloca_once_value(builder, zero) for _ in width] for _ in height]
    with cgutils.for_range(builder, count) as loop:  # LLVM turns each place into a register
        these = vectors(loop.index)
        for i, line in enumerate(places):
            factor = code.spread(number(i, loop.index))
            for vector, place in zip(these, line, strict=True):
                builder.store(code.multiply_add(vector, factor, builder.load(place)), place)
    return [[builder.load(place) for place in line] for line in places]


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square: swap the off-diagonal quarters of squares of 2, 4, 8, ... rows."""
    rows, count = list(rows), len(rows)
    half = 1
    while half < count:
        # of a pair of rows: 0 ... count - 1 are the first one's lanes, count ... the second one's
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


@intrinsic
def add_row(
    typing_context: object,
    X: types.Array,
    i: types.Integer,
    centers: types.Array,
    anchors: types.Array,
    j: types.Integer,
    weight: types.Float,
    residuals: types.Array,
    errors: types.Array,
) -> Intrinsic:
    """Add w (x - g) to the residuals of c, w (x - c)^2 to its errors, and return ||x - c||^2.

    All in float64; g is the anchor of c. The errors are an array (k, ADD_LANES), whose rows add
    up to w ||x - c||^2.
    Beyond the last column lies the next row: X must have one, and it is not added.
    """

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        code = _Code(context, builder, signature, args, lanes=ADD_LANES)
        X, i, centers, anchors, j, weight, residuals, errors = code.values
        d = code.shapes[0][1]
        zero = ir.Constant(ir.VectorType(DOUBLE, ADD_LANES), [0.0] * ADD_LANES)
        counting = ir.Constant(ir.VectorType(INT64, ADD_LANES), list(range(ADD_LANES)))
        weight = code.spread(weight)
        total = cgutils.alloca_once_value(builder, zero)
        with cgutils.for_range_slice(builder, INT64(0), d, INT64(ADD_LANES)) as (f, _):
            x = code.to_double(code.load(X, code.position(0, i, f)))
            place = code.position(2, j, f)
            c, g = code.load(centers, place, DOUBLE), code.load(anchors, place, DOUBLE)
            is_column = builder.icmp_signed("<", counting, code.spread(builder.sub(d, f)))
            difference = builder.select(is_column, builder.fsub(x, c), zero)
            to_anchor = builder.select(is_column, builder.fsub(x, g), zero)
            residual = code.load(residuals, place, DOUBLE)
            code.store(code.multiply_add(weight, to_anchor, residual), residuals, place)
            builder.store(code.multiply_add(difference, difference, builder.load(total)), total)
        squares, place = builder.load(total), code.position(7, j, INT64(0))
        error = code.multiply_add(weight, squares, code.load(errors, place, DOUBLE))
        code.store(error, errors, place)
        return code.sum(squares)

    return types.float64(X, i, centers, anchors, j, weight, residuals, errors), generate


@intrinsic
def add_product(
    typing_context: object,
    A: types.Array,
    i: types.Integer,
    first: types.Integer,
    B: types.Array,
    j: types.Integer,
    out: types.Array,
) -> Intrinsic:
    """Add A B to a tile of an array, with as many of A's columns from the first as B has rows.

    ``out[i + a, j + b] += sum of A[i + a, first + l] B[l, j + b]`` over l < len(B), in float64,
    for a < PRODUCT_ROWS and b < PRODUCT_COLUMNS.
    """

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        code = _Code(context, builder, signature, args)
        A, i, first, B, j, out = code.values
        lines = [builder.add(i, INT64(a)) for a in range(PRODUCT_ROWS)]
        columns = [builder.add(j, INT64(v * code.lanes)) for v in range(PRODUCT_VECTORS)]
        sums = _sums(
            code,
            (PRODUCT_ROWS, PRODUCT_VECTORS),
            code.shapes[3][0],
            lambda a, row: code.number(A, code.position(0, lines[a], builder.add(first, row))),
            lambda row: [code.load(B, code.position(3, row, column)) for column in columns],
        )
        for line, totals in zip(lines, sums, strict=True):
            for column, total in zip(columns, totals, strict=True):
                place = code.position(5, line, column)
                code.store(builder.fadd(code.load(out, place), total), out, place)
        return context.get_dummy_value()

    return types.void(A, i, first, B, j, out), generate


class _Code:
    """Writes the code of one intrinsic: the values of its arguments, and vectors of numbers.

    Attributes
    ----------
    values : list of llvmlite.ir.Value
        The arguments: an array's pointer to its first number, a whole number as 64 bits.
    shapes : list of lists of llvmlite.ir.Value
        The shapes of those that are arrays.
    """

    def __init__(
        self,
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        args: list[ir.Value],
        lanes: int = 0,
    ) -> None:
        self.builder = builder
        dtype = signature.args[0].dtype
        self.lanes = lanes or VECTOR_BYTES * 8 // dtype.bitwidth
        self.vector = ir.VectorType(context.get_data_type(dtype), self.lanes)
        self.values, self.shapes = [], []
        for kind, value in zip(signature.args, args, strict=True):
            shape = []
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value)
                value, shape = array.data, cgutils.unpack_tuple(builder, array.shape, kind.ndim)
            elif isinstance(kind, types.Integer):
                value = context.cast(builder, value, kind, types.int64)
            self.values.append(value)
            self.shapes.append(shape)

    def position(self, argument: int, *indices: ir.Value) -> ir.Value:
        """How many numbers lie before an element of a C array."""
        position, *others = indices
        for length, index in zip(self.shapes[argument][1:], others, strict=True):
            position = self.builder.add(self.builder.mul(position, length), index)
        return position

    def number(self, array: ir.Value, position: ir.Value) -> ir.Value:
        """The number at a position."""
        return self.builder.load(self.builder.gep(array, [position]))

    def load(self, array: ir.Value, position: ir.Value, number: ir.Type | None = None) -> ir.Value:
        """The vector that starts at a position, of the type of the rows if of no other."""
        place, size = self._place(array, position, number or self.vector.element)
        vector = self.builder.load(place)
        vector.align = size
        return vector

    def store(self, vector: ir.Value, array: ir.Value, position: ir.Value) -> None:
        """Write a vector to a position."""
        place, size = self._place(array, position, vector.type.element)
        self.builder.store(vector, place).align = size

    def _place(self, array: ir.Value, position: ir.Value, number: ir.Type) -> tuple[ir.Value, int]:
        """Where a vector lies, and the bytes of one of its numbers."""
        pointer = self.builder.gep(array, [position])
        place = self.builder.bitcast(pointer, ir.VectorType(number, self.lanes).as_pointer())
        return place, 8 if number == DOUBLE else 4

    def spread(self, number: ir.Value) -> ir.Value:
        """A vector of one number in every lane."""
        vector = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        zeros = ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        one = self.builder.insert_element(vector, number, INT32(0))
        return self.builder.shuffle_vector(one, vector, zeros)

    def lesser(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The lesser of two numbers in every lane; b if they do not compare."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def sum(self, vector: ir.Value) -> ir.Value:
        """The sum of a vector's numbers: one half of it plus the other half, and again."""
        half = self.lanes // 2
        while half:
            order = [(lane + half) % self.lanes for lane in range(self.lanes)]
            mask = ir.Constant(ir.VectorType(INT32, self.lanes), order)
            others = self.builder.shuffle_vector(vector, vector, mask)
            vector, half = self.builder.fadd(vector, others), half // 2
        return self.builder.extract_element(vector, INT32(0))

    def to_double(self, vector: ir.Value) -> ir.Value:
        """The same numbers in float64."""
        kind = ir.VectorType(DOUBLE, self.lanes)
        return vector if vector.type == kind else self.builder.fpext(vector, kind)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """A b + c, rounded once where the machine can."""
        bits = 64 if a.type.element == DOUBLE else 32
        kind, name = ir.FunctionType(a.type, [a.type] * 3), f"llvm.fmuladd.v{self.lanes}f{bits}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

"""The inner loops of a sweep, in vector instructions: transpose rows, score centres, add rows.

numba makes vector instructions of one loop, but keeps no matrix of sums in registers over a loop,
nor transposes one there, nor knows that a row's end may be overrun. So the functions of this
module write LLVM code on vectors, which LLVM translates for any machine. Every lane does the same
and sums run over the columns in order: what is computed of a row does not depend on where it lies.

Three layouts: a *block* of ``block_rows(X)`` rows lies transposed, as an array (columns, rows), so
that a vector holds one column of several rows; *packed* centres lie in tiles, as an array
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

from fedcluster.kernels.rows import Rows

__all__ = [
    "ADD_LANES",
    "TILE_CENTERS",
    "add_row",
    "block_rows",
    "lanes",
    "score_tile",
    "score_tile_for_two",
    "transpose_tile",
]

Intrinsic = tuple[Signature, Callable[..., ir.Value]]

# Sums in registers are vectors of rows times centres: 24 of 32 registers, or 12 of 16.
HAS_AVX512 = binding.get_host_cpu_features().get("avx512f", False)
VECTOR_BYTES, TILE_CENTERS = (64, 8) if HAS_AVX512 else (32, 4)
TILE_VECTORS = 3
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
            half_norm = code.spread(builder.load(builder.gep(half_norms, [center])))
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
    builder, (block, packed, _, tile, *_) = code.builder, code.values
    zero = ir.Constant(code.vector, [0.0] * code.lanes)
    places = [
        [cgutils.alloca_once_value(builder, zero) for _ in range(TILE_VECTORS)]
        for _ in range(TILE_CENTERS)
    ]  # LLVM turns each into a register
    with cgutils.for_range(builder, code.shapes[1][1]) as loop:
        xs = [
            code.load(block, code.position(0, loop.index, INT64(v * code.lanes)))
            for v in range(TILE_VECTORS)
        ]
        for c in range(TILE_CENTERS):
            position = code.position(1, tile, loop.index, INT64(c))
            center = code.spread(builder.load(builder.gep(packed, [position])))
            for x, place in zip(xs, places[c], strict=True):
                builder.store(code.multiply_add(x, center, builder.load(place)), place)
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

"""Powers of many numbers in vectors; those of the C library are computed one by one.

    x = 2^e z                     log2 x = e + log2 z,   1 / sqrt 2 <= z < sqrt 2
    s = (z - 1) / (z + 1)         log2 z = 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...)
    p log2 x = n + f              x^p = 2^n 2^f,   |f| <= 1 / 2,   2^f = 1 + f ln 2 + ...

A small power has a large logarithm, whose last digits count, so that each logarithm is a sum of
two numbers, ``high + low``, with 64 digits or more. These need each operation as it is written.
"""

from decimal import Decimal
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedcluster.core import Floats
from fedcluster.kernels.runtime import inlined, inner_as_written

LN2 = Decimal(2).ln()
_EXACT = [2 / LN2 / (2 * i + 1) for i in range(12)]
LOG = tuple(map(float, _EXACT))
LOG_LOW = tuple(float(exact - Decimal(near)) for exact, near in zip(_EXACT, LOG, strict=True))
EXP = tuple(float(LN2**i / factorial(i)) for i in range(14))

SMALLEST_NORMAL, SCALE, LOWEST = 2.0**-1022, 54, -1021.0  # smaller numbers have fewer digits
TO_WHOLE, ROUND = 2.0**52, 1.5 * 2**52  # plus a smaller whole number: it is in the last bits
BIAS = TO_WHOLE + 1023
PLACES, ONE, SIGN_AND_EXPONENT, TO_ROOT = map(
    np.uint64, (52, 0x3FF << 52, 0xFFF << 52, (0x3FF << 52) - 0x3FE6A09E667F3BCD)
)
WHOLE_BITS = np.float64(TO_WHOLE).view(np.uint64)


@intrinsic
def fused(typing_context: object, a: types.Type, b: types.Type, c: types.Type) -> object:
    """Return a b + c, rounded once."""

    def generate(context: object, builder: ir.IRBuilder, signature: object, args: Any) -> ir.Value:
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * 3)
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f64"), args
        )

    return types.float64(types.float64, types.float64, types.float64), generate


@inner_as_written
def write_powers(bases: Floats, p: float, powers: Floats) -> None:
    """Write x^p for the first numbers x: 0 <= x <= 1 and p > 0, or 1 <= x and p < 0.

    They are exact but for 1.25 units in the last place, and 0 below 2^-1021.
    """
    for i in range(len(powers)):
        x = bases[i]
        high, low = _log2(x)
        y = p * high
        f_low = fused(p, high, -y) + p * low
        y = max(y, -1100.0)
        n = (y + ROUND) - ROUND
        exponent = np.float64(y + ROUND).view(np.uint64) << PLACES
        scale = np.uint64(exponent + ONE).view(np.float64)
        power = _exp2((y - n) + f_low) * scale if n >= LOWEST else 0.0
        powers[i] = power if x > 0.0 else x  # 0, or no number


@inlined
def _log2(x: float) -> tuple[float, float]:
    """Return the logarithm of a positive number in two parts."""
    scaled = x * 2.0**SCALE if x < SMALLEST_NORMAL else x
    bits = np.float64(scaled).view(np.uint64)
    exponent = np.uint64(((bits + TO_ROOT) >> PLACES) | WHOLE_BITS).view(np.float64)
    e = exponent - (BIAS + SCALE if x < SMALLEST_NORMAL else BIAS)
    z = np.uint64(bits - ((bits + TO_ROOT) & SIGN_AND_EXPONENT) + ONE).view(np.float64)
    a, b = z - 1.0, z + 1.0
    b_low, inverse = z - (b - 1.0), 1.0 / b
    s = a * inverse
    s_low = inverse * fused(-s, b_low, fused(-s, b, a))
    q = s * s
    q_low = fused(s, s, -q) + 2.0 * s * s_low
    cube = s * q
    cube_low = fused(s, q, -cube) + fused(s, q_low, s_low * q)
    rest = q * _log_series(q)
    factor = LOG[1] + rest
    factor_low = (rest - (factor - LOG[1])) + LOG_LOW[1]
    second = cube * factor
    second_low = fused(cube, factor, -second) + fused(cube, factor_low, cube_low * factor)
    first = LOG[0] * s
    first_low = fused(LOG[0], s, -first) + fused(LOG[0], s_low, LOG_LOW[0] * s)
    log = first + second
    high = e + log
    return high, ((e - high) + log) + ((first - log) + second + (second_low + first_low))


@inlined
def _log_series(q: float) -> float:
    """Return the factor of s^5 in the logarithm, from even and odd terms at the same time."""
    r = q * q
    odd = fused(r, fused(r, fused(r, fused(r, LOG[11], LOG[9]), LOG[7]), LOG[5]), LOG[3])
    even = fused(r, fused(r, fused(r, fused(r, LOG[10], LOG[8]), LOG[6]), LOG[4]), LOG[2])
    return fused(q, odd, even)


@inlined
def _exp2(f: float) -> float:
    """Return 2^f."""
    r = f * f
    even = fused(r, fused(r, fused(r, EXP[12], EXP[10]), EXP[8]), EXP[6])
    even = fused(r, fused(r, even, EXP[4]), EXP[2])
    odd = fused(r, fused(r, fused(r, EXP[13], EXP[11]), EXP[9]), EXP[7])
    odd = fused(r, fused(r, fused(r, odd, EXP[5]), EXP[3]), EXP[1])
    return fused(f, fused(f, even, odd), 1.0)

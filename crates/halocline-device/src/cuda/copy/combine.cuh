// Combines elements: each target with its sources, one after the other, by one thread.

#if defined(HALOCLINE_COMBINES) || !defined(__CUDACC__)

// Operations and types of elements, as on the host.
constexpr u32 SUM = 1, PRODUCT = 2, MIN = 3, MAX = 4, AND = 5, OR = 6, XOR = 7;
enum Type : u32 { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, BOOL, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128, BYTES };

// Loads and stores of numbers, which may lie at any address.
template <typename T> __device__ __forceinline__ T load_number(u64 from, bool aligned) {
  if (aligned) return __ldcg((const T *)from);
  T value;
  for (u32 byte = 0; byte < sizeof(T); byte++) ((u8 *)&value)[byte] = __ldcg((const u8 *)(from + byte));
  return value;
}
template <typename T> __device__ __forceinline__ void store_number(u64 to, T value, bool aligned) {
  if (aligned) {
    *(T *)to = value;
    return;
  }
  for (u32 byte = 0; byte < sizeof(T); byte++) ((u8 *)to)[byte] = ((const u8 *)&value)[byte];
}

// Integers wrap: sums and products are those of `U`, an unsigned type of 32 bits or more.
template <typename T, typename U> struct Integer {
  typedef T Value;
  static __device__ __forceinline__ T load(u64 from, bool aligned) { return load_number<T>(from, aligned); }
  static __device__ __forceinline__ void store(u64 to, T value, bool aligned) { store_number<T>(to, value, aligned); }
  static __device__ __forceinline__ T combined(u32 op, T a, T b) {
    switch (op) {
    case SUM: return (T)((U)a + (U)b);
    case PRODUCT: return (T)((U)a * (U)b);
    case MIN: return b < a ? b : a;
    case MAX: return b > a ? b : a;
    case AND: return (T)(a & b);
    case OR: return (T)(a | b);
    case XOR: return (T)(a ^ b);
    default: return b;
    }
  }
};

// One bit, whatever byte says that it is set.
struct Truth : Integer<u8, u32> {
  static __device__ __forceinline__ u8 combined(u32 op, u8 a, u8 b) {
    switch (op) {
    case SUM:
    case XOR: return (a != 0) != (b != 0);
    case MAX:
    case OR: return a != 0 || b != 0;
    case PRODUCT:
    case MIN:
    case AND: return a != 0 && b != 0;
    default: return b;
    }
  }
};

// Rounded one by one: a product and a sum are never one operation.
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }

template <typename T> struct Real {
  typedef T Value;
  static __device__ __forceinline__ T load(u64 from, bool aligned) { return load_number<T>(from, aligned); }
  static __device__ __forceinline__ void store(u64 to, T value, bool aligned) { store_number<T>(to, value, aligned); }
  static __device__ __forceinline__ T combined(u32 op, T a, T b) {
    switch (op) {
    case SUM: return add(a, b);
    case PRODUCT: return multiply(a, b);
    // Where one is NaN, the comparisons are false, and the sum is NaN.
    case MIN: return b < a ? b : b >= a ? a : add(a, b);
    case MAX: return b > a ? b : b <= a ? a : add(a, b);
    default: return b;
    }
  }
};

template <typename T> struct Pair { T re, im; };
template <typename T> struct Complex {
  typedef Pair<T> Value;
  static __device__ __forceinline__ Value load(u64 from, bool aligned) {
    return {load_number<T>(from, aligned), load_number<T>(from + sizeof(T), aligned)};
  }
  static __device__ __forceinline__ void store(u64 to, Value value, bool aligned) {
    store_number<T>(to, value.re, aligned);
    store_number<T>(to + sizeof(T), value.im, aligned);
  }
  static __device__ __forceinline__ Value combined(u32 op, Value a, Value b) {
    switch (op) {
    case SUM: return {add(a.re, b.re), add(a.im, b.im)};
    case PRODUCT: return {add(multiply(a.re, b.re), -multiply(a.im, b.im)), add(multiply(a.re, b.im), multiply(a.im, b.re))};
    default: return b;
    }
  }
};

// Places of a unit: the element of the lists, and the step.
struct Unit { u32 at, step; };

__device__ __forceinline__ Unit unit_of(const Gather &gather, u32 unit) {
  const u32 outer = divide(unit, gather.multiplier, gather.shift), inner = unit - outer * gather.inner;
  if (gather.steps_inside) return {outer, inner};
  return {inner, outer};
}

template <typename LISTED> __device__ __forceinline__ u64 place(const LISTED &listed, Unit unit) {
  return listed.first + (i64)__ldg(listed.numbers + unit.at) * listed.stride + (i64)unit.step * listed.step;
}

// Combines units, `AT_ONCE` of each thread at a time, with `OF_ONCE` of their sources at a time: so many loads are in flight.
template <typename E, bool SUMS, u32 AT_ONCE, u32 OF_ONCE>
__device__ __forceinline__ void combine_some(const Gather &gather, u32 first, u32 units) {
  typedef typename E::Value Value;
  const u32 op = SUMS ? SUM : gather.op;
  const bool aligned = gather.aligned != 0;
#pragma unroll 1
  for (u32 base = 0; base < units; base += THREADS * AT_ONCE) {
    Unit unit[AT_ONCE];
    Value values[AT_ONCE] = {};
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      // The last threads combine the last unit again, and store nothing.
      if (base + at * THREADS >= units) continue;
      unit[at] = unit_of(gather, first + min(base + at * THREADS + threadIdx.x, units - 1));
      if (gather.sources != 0) values[at] = E::load(place(gather.target, unit[at]), aligned);
    }
#pragma unroll 1
    for (u32 begin = 0; begin < gather.sources; begin += OF_ONCE) {
      Value from[OF_ONCE][AT_ONCE];
#pragma unroll
      for (u32 of = 0; of < OF_ONCE; of++) {
        if (begin + of >= gather.sources) continue;
        const Listed source = gather.source[begin + of];
#pragma unroll
        for (u32 at = 0; at < AT_ONCE; at++) {
          if (base + at * THREADS < units) from[of][at] = E::load(place(source, unit[at]), aligned);
        }
      }
#pragma unroll
      for (u32 of = 0; of < OF_ONCE; of++) {
#pragma unroll
        for (u32 at = 0; at < AT_ONCE; at++) {
          if (begin + of < gather.sources && base + at * THREADS < units) values[at] = E::combined(op, values[at], from[of][at]);
        }
      }
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS + threadIdx.x < units) E::store(place(gather.target, unit[at]), values[at], aligned);
    }
  }
}

// Edges and corners have few units with many sources. More loads in flight exceed the registers; sums, which are the most, need fewer.
template <typename E> __device__ __forceinline__ void combine_units(const Gather &gather, u32 first, u32 units) {
  constexpr u32 LOADS = sizeof(typename E::Value) > 8 ? 2 : 4;
  if (gather.op != SUM) return combine_some<E, false, 2, 1>(gather, first, units);
  if (units <= THREADS) return combine_some<E, true, 1, LOADS>(gather, first, units);
  combine_some<E, true, LOADS, 1>(gather, first, units);
}

// Elements of any other size, which are replaced or cleared alone.
__device__ __forceinline__ void replace_units(const Gather &gather, u32 first, u32 units) {
  for (u32 at = threadIdx.x; at < units; at += THREADS) {
    const Unit unit = unit_of(gather, first + at);
    const u64 to = place(gather.target, unit);
    const u64 from = gather.sources != 0 ? place(gather.source[gather.sources - 1], unit) : 0;
    for (u32 byte = 0; byte < gather.bytes; byte++) *(u8 *)(to + byte) = from != 0 ? __ldcg((const u8 *)(from + byte)) : 0;
  }
}

// Called by all threads of a block, or by all threads of each warp. Not inlined: each kernel would have several copies of all types.
__device__ __noinline__ void combine_item(const Item &item) {
  const Gather &gather = (const Gather &)item.region;
  switch (gather.type) {
  case INT8: return combine_units<Integer<signed char, u32>>(gather, item.first, item.units);
  case UINT8: return combine_units<Integer<u8, u32>>(gather, item.first, item.units);
  case INT16: return combine_units<Integer<short, u32>>(gather, item.first, item.units);
  case UINT16: return combine_units<Integer<unsigned short, u32>>(gather, item.first, item.units);
  case INT32: return combine_units<Integer<int, u32>>(gather, item.first, item.units);
  case UINT32: return combine_units<Integer<u32, u32>>(gather, item.first, item.units);
  case INT64: return combine_units<Integer<i64, u64>>(gather, item.first, item.units);
  case UINT64: return combine_units<Integer<u64, u64>>(gather, item.first, item.units);
  case BOOL: return combine_units<Truth>(gather, item.first, item.units);
  case FLOAT32: return combine_units<Real<float>>(gather, item.first, item.units);
  case FLOAT64: return combine_units<Real<double>>(gather, item.first, item.units);
  case COMPLEX64: return combine_units<Complex<float>>(gather, item.first, item.units);
  case COMPLEX128: return combine_units<Complex<double>>(gather, item.first, item.units);
  default: return replace_units(gather, item.first, item.units);
  }
}

#endif

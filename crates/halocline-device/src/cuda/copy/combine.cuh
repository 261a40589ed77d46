// Combines elements: each target with its sources, one after the other, by one thread.

#if defined(HALOCLINE_COMBINES) || !defined(__CUDACC__)

// Operations and types of elements, as on the host.
constexpr u32 SUM = 1, PRODUCT = 2, MIN = 3, MAX = 4, AND = 5, OR = 6, XOR = 7, REPLACE = 8;
enum Type : u32 { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, BOOL, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128, BYTES };

// The types that are compiled, a bit for each.
#ifdef __CUDACC__
constexpr u32 TYPES = HALOCLINE_COMBINES;
#else
constexpr u32 TYPES = ~0u;
#endif

// How the elements of a unit are accessed.
enum Access : u8 {
  BYTES_ALONE, // one element, byte by byte: it may lie at any address
  NUMBERS,     // one element, number by number
  WIDE,        // the elements of 16 bytes at once
};

// Loads and stores of numbers.
template <bool ALIGNED, typename T> __device__ __forceinline__ T load_number(u64 from) {
  if constexpr (ALIGNED) {
    return __ldcg((const T *)from);
  } else {
    T value;
    for (u32 byte = 0; byte < sizeof(T); byte++) ((u8 *)&value)[byte] = __ldcg((const u8 *)(from + byte));
    return value;
  }
}
template <bool ALIGNED, typename T> __device__ __forceinline__ void store_number(u64 to, T value) {
  if constexpr (ALIGNED) {
    *(T *)to = value;
  } else {
    for (u32 byte = 0; byte < sizeof(T); byte++) ((u8 *)to)[byte] = ((const u8 *)&value)[byte];
  }
}

// Integers wrap: sums and products are those of `U`, an unsigned type of 32 bits or more.
template <typename T, typename U> struct Integer {
  typedef T Value;
  template <bool ALIGNED> static __device__ __forceinline__ T load(u64 from) { return load_number<ALIGNED, T>(from); }
  template <bool ALIGNED> static __device__ __forceinline__ void store(u64 to, T value) { store_number<ALIGNED>(to, value); }
  template <u32 OP> static __device__ __forceinline__ T combined(T a, T b) {
    if constexpr (OP == SUM) return (T)((U)a + (U)b);
    if constexpr (OP == PRODUCT) return (T)((U)a * (U)b);
    if constexpr (OP == MIN) return b < a ? b : a;
    if constexpr (OP == MAX) return b > a ? b : a;
    if constexpr (OP == AND) return (T)(a & b);
    if constexpr (OP == OR) return (T)(a | b);
    if constexpr (OP == XOR) return (T)(a ^ b);
    return b;
  }
};

// One bit, whatever byte says that it is set.
struct Truth : Integer<u8, u32> {
  template <u32 OP> static __device__ __forceinline__ u8 combined(u8 a, u8 b) {
    if constexpr (OP == SUM || OP == XOR) return (a != 0) != (b != 0);
    if constexpr (OP == MAX || OP == OR) return a != 0 || b != 0;
    if constexpr (OP == PRODUCT || OP == MIN || OP == AND) return a != 0 && b != 0;
    return b;
  }
};

// Rounded one by one: a product and a sum are never one operation.
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }

template <typename T> struct Real {
  typedef T Value;
  template <bool ALIGNED> static __device__ __forceinline__ T load(u64 from) { return load_number<ALIGNED, T>(from); }
  template <bool ALIGNED> static __device__ __forceinline__ void store(u64 to, T value) { store_number<ALIGNED>(to, value); }
  template <u32 OP> static __device__ __forceinline__ T combined(T a, T b) {
    if constexpr (OP == SUM) return add(a, b);
    if constexpr (OP == PRODUCT) return multiply(a, b);
    // Where one is NaN, the comparisons are false, and the sum is NaN.
    if constexpr (OP == MIN) return b < a ? b : b >= a ? a : add(a, b);
    if constexpr (OP == MAX) return b > a ? b : b <= a ? a : add(a, b);
    return b;
  }
};

template <typename T> struct Pair { T re, im; };
template <typename T> struct Complex {
  typedef Pair<T> Value;
  template <bool ALIGNED> static __device__ __forceinline__ Value load(u64 from) {
    return {load_number<ALIGNED, T>(from), load_number<ALIGNED, T>(from + sizeof(T))};
  }
  template <bool ALIGNED> static __device__ __forceinline__ void store(u64 to, Value value) {
    store_number<ALIGNED>(to, value.re);
    store_number<ALIGNED>(to + sizeof(T), value.im);
  }
  template <u32 OP> static __device__ __forceinline__ Value combined(Value a, Value b) {
    if constexpr (OP == SUM) return {add(a.re, b.re), add(a.im, b.im)};
    if constexpr (OP == PRODUCT) return {add(multiply(a.re, b.re), -multiply(a.im, b.im)), add(multiply(a.re, b.im), multiply(a.im, b.re))};
    return b;
  }
};

// The elements of a unit.
template <typename E, Access ACCESS> struct Elements {
  typedef typename E::Value Value;
  static constexpr u32 COUNT = ACCESS == WIDE ? 16 / sizeof(Value) : 1;
  Value of[COUNT];

  static __device__ __forceinline__ Elements load(u64 from) {
    Elements elements;
    if constexpr (ACCESS == WIDE) {
      const uint4 words = __ldcg((const uint4 *)from);
      memcpy(elements.of, &words, sizeof words);
    } else {
      elements.of[0] = E::template load<ACCESS == NUMBERS>(from);
    }
    return elements;
  }
  // Changes sign bits, given for 8 bytes. Elements of one byte have none.
  __device__ __forceinline__ void change(u64 signs) {
    if constexpr (sizeof of >= 4) {
      u32 words[sizeof of / 4];
      memcpy(words, of, sizeof of);
#pragma unroll
      for (u32 word = 0; word < sizeof of / 4; word++) words[word] ^= (u32)(word % 2 == 0 ? signs : signs >> 32);
      memcpy(of, words, sizeof of);
    } else if constexpr (sizeof of == 2) {
      of[0] = (Value)(of[0] ^ (u16)signs);
    }
  }
  __device__ __forceinline__ void store(u64 to) const {
    if constexpr (ACCESS == WIDE) {
      uint4 words;
      memcpy(&words, of, sizeof words);
      *(uint4 *)to = words;
    } else {
      E::template store<ACCESS == NUMBERS>(to, of[0]);
    }
  }
};

// The index of a unit in each loop.
struct Unit { u32 index[LOOPS]; };

__device__ __forceinline__ Unit unit_of(const Gather &gather, u32 unit) {
  Unit found;
#pragma unroll
  for (u32 loop = 0; loop + 1 < LOOPS; loop++) {
    const u32 rest = divide(unit, gather.multiplier[loop], gather.shift[loop]);
    found.index[loop] = unit - rest * gather.count[loop];
    unit = rest;
  }
  found.index[LOOPS - 1] = unit;
  return found;
}

// The address of a unit.
__device__ __forceinline__ u64 place(const Gather &gather, const Listed &listed, const Unit &unit) {
  u32 inner = unit.index[0], outer = unit.index[LOOPS - 1];
  if (gather.list == INNERMOST) inner = __ldg(listed.numbers + inner);
  if (gather.list == OUTERMOST) outer = __ldg(listed.numbers + outer);
  u64 at = listed.first + (i64)inner * listed.step[0] + (i64)outer * listed.step[LOOPS - 1];
#pragma unroll
  for (u32 loop = 1; loop + 1 < LOOPS; loop++) at += (i64)unit.index[loop] * listed.step[loop];
  return at;
}

// One of the sources, read 16 bytes at a time.
__device__ __forceinline__ Listed source_of(const Gather &gather, u32 number) {
  Listed listed;
  uint4 words[sizeof listed / sizeof(uint4)];
#pragma unroll
  for (u32 word = 0; word < sizeof words / sizeof(uint4); word++) words[word] = __ldg((const uint4 *)(gather.source + number) + word);
  memcpy(&listed, words, sizeof words);
  return listed;
}

// Combines values with others.
template <typename E, Access ACCESS, u32 OP> __device__ __forceinline__ void combine_by(Elements<E, ACCESS> &values, const Elements<E, ACCESS> &others) {
#pragma unroll
  for (u32 at = 0; at < Elements<E, ACCESS>::COUNT; at++) values.of[at] = E::template combined<OP>(values.of[at], others.of[at]);
}
template <typename E, Access ACCESS>
__device__ __forceinline__ void combine(u32 op, Elements<E, ACCESS> &values, const Elements<E, ACCESS> &others) {
  switch (op) {
  case SUM: return combine_by<E, ACCESS, SUM>(values, others);
  case PRODUCT: return combine_by<E, ACCESS, PRODUCT>(values, others);
  case MIN: return combine_by<E, ACCESS, MIN>(values, others);
  case MAX: return combine_by<E, ACCESS, MAX>(values, others);
  case AND: return combine_by<E, ACCESS, AND>(values, others);
  case OR: return combine_by<E, ACCESS, OR>(values, others);
  case XOR: return combine_by<E, ACCESS, XOR>(values, others);
  default: return combine_by<E, ACCESS, REPLACE>(values, others);
  }
}

// What the sources are combined with. A target that is replaced is not read: it may lie in memory of the host.
template <typename E, Access ACCESS> __device__ __forceinline__ Elements<E, ACCESS> target_of(const Gather &gather, u64 to) {
  if (gather.op == REPLACE) return {};
  return Elements<E, ACCESS>::load(to);
}

// Combines units of a single source, as most cells have: one of each thread at a time, so that many threads have registers.
template <typename E, Access ACCESS> __device__ __forceinline__ void combine_one(const Gather &gather, u32 first, u32 units) {
  const Listed source = source_of(gather, 0);
#pragma unroll 1
  for (u32 at = threadIdx.x; at < units; at += THREADS) {
    const Unit unit = unit_of(gather, first + at);
    const u64 to = place(gather, gather.target, unit), from = place(gather, source, unit);
    Elements<E, ACCESS> values = target_of<E, ACCESS>(gather, to), others = Elements<E, ACCESS>::load(from);
    others.change(source.signs);
    combine(gather.op, values, others);
    values.store(to);
    if (source.is_cleared != 0) Elements<E, ACCESS>{}.store(from);
  }
}

// Combines units of several sources, so many of them at a time: their loads are in flight together.
template <typename E, Access ACCESS, u32 AT_ONCE> __device__ __forceinline__ void combine_several(const Gather &gather, u32 first, u32 units) {
  typedef Elements<E, ACCESS> Values;
#pragma unroll 1
  for (u32 at = threadIdx.x; at < units; at += THREADS) {
    const Unit unit = unit_of(gather, first + at);
    const u64 to = place(gather, gather.target, unit);
    Values values = target_of<E, ACCESS>(gather, to);
    bool clears = false;
#pragma unroll 1
    for (u32 begin = 0; begin < gather.sources; begin += AT_ONCE) {
      Values from[AT_ONCE] = {};
#pragma unroll
      for (u32 of = 0; of < AT_ONCE; of++) {
        if (begin + of >= gather.sources) continue;
        const Listed source = source_of(gather, begin + of);
        clears |= source.is_cleared != 0;
        from[of] = Values::load(place(gather, source, unit));
        from[of].change(source.signs);
      }
#pragma unroll
      for (u32 of = 0; of < AT_ONCE; of++) {
        if (begin + of < gather.sources) combine(gather.op, values, from[of]);
      }
    }
    values.store(to);
    if (!clears) continue;
    // Now that all is read: a store to bytes that a load is still fetching takes four times as long.
#pragma unroll 1
    for (u32 number = 0; number < gather.sources; number++) {
      const Listed source = source_of(gather, number);
      if (source.is_cleared != 0) Values{}.store(place(gather, source, unit));
    }
  }
}

template <typename E, Access ACCESS> __device__ __forceinline__ void combine_as(const Gather &gather, u32 first, u32 units) {
  if (gather.sources == 1) return combine_one<E, ACCESS>(gather, first, units);
  combine_several<E, ACCESS, 4>(gather, first, units);
}

// Each type has registers of its own: not inlined.
template <Type TYPE, typename E> __device__ __noinline__ void combine_units(const Gather &gather, u32 first, u32 units) {
  if constexpr ((TYPES >> TYPE & 1) == 0) return;
  else switch (gather.access) {
  case BYTES_ALONE: return combine_as<E, BYTES_ALONE>(gather, first, units);
  case NUMBERS: return combine_as<E, NUMBERS>(gather, first, units);
  default:
    // Narrower elements are never combined 16 bytes at a time: the operations would take longer than the accesses.
    if constexpr (sizeof(typename E::Value) >= 4) return combine_as<E, WIDE>(gather, first, units);
  }
}

// Elements of any other size, which are replaced alone.
__device__ __forceinline__ void replace_units(const Gather &gather, u32 first, u32 units) {
  for (u32 at = threadIdx.x; at < units; at += THREADS) {
    const Unit unit = unit_of(gather, first + at);
    const u64 to = place(gather, gather.target, unit);
    for (u32 number = 0; number < gather.sources; number++) {
      const Listed source = source_of(gather, number);
      const u64 from = place(gather, source, unit);
      const bool is_last = number + 1 == gather.sources;
      for (u32 byte = 0; byte < gather.bytes; byte++) {
        if (is_last) *(u8 *)(to + byte) = __ldcg((const u8 *)(from + byte));
        if (source.is_cleared != 0) *(u8 *)(from + byte) = 0;
      }
    }
  }
}

// Called by all threads of a block, or by all threads of each warp. Not inlined: each kernel would have several copies of all types.
__device__ __noinline__ void combine_item(const Item &item) {
  const Gather &gather = (const Gather &)item.region;
  switch (gather.type) {
  case INT8: return combine_units<INT8, Integer<signed char, u32>>(gather, item.first, item.units);
  case UINT8: return combine_units<UINT8, Integer<u8, u32>>(gather, item.first, item.units);
  case INT16: return combine_units<INT16, Integer<short, u32>>(gather, item.first, item.units);
  case UINT16: return combine_units<UINT16, Integer<unsigned short, u32>>(gather, item.first, item.units);
  case INT32: return combine_units<INT32, Integer<int, u32>>(gather, item.first, item.units);
  case UINT32: return combine_units<UINT32, Integer<u32, u32>>(gather, item.first, item.units);
  case INT64: return combine_units<INT64, Integer<i64, u64>>(gather, item.first, item.units);
  case UINT64: return combine_units<UINT64, Integer<u64, u64>>(gather, item.first, item.units);
  case BOOL: return combine_units<BOOL, Truth>(gather, item.first, item.units);
  case FLOAT32: return combine_units<FLOAT32, Real<float>>(gather, item.first, item.units);
  case FLOAT64: return combine_units<FLOAT64, Real<double>>(gather, item.first, item.units);
  case COMPLEX64: return combine_units<COMPLEX64, Complex<float>>(gather, item.first, item.units);
  case COMPLEX128: return combine_units<COMPLEX128, Complex<double>>(gather, item.first, item.units);
  default: return replace_units(gather, item.first, item.units);
  }
}

#endif

// Copies units into and out of LL slots.

__device__ __forceinline__ void to_words(u32 value, u64 flag, u64 (&words)[1]) { words[0] = flag << 32 | value; }
__device__ __forceinline__ void to_words(uint2 value, u64 flag, u64 (&words)[2]) {
  words[0] = flag << 32 | value.x;
  words[1] = flag << 32 | value.y;
}

// Whether all words carry the epoch; if so, extracts their data.
__device__ __forceinline__ bool from_words(const u64 (&words)[1], u32 flag, u32 &value) {
  value = (u32)words[0];
  return (u32)(words[0] >> 32) == flag;
}
__device__ __forceinline__ bool from_words(const u64 (&words)[2], u32 flag, uint2 &value) {
  value = make_uint2((u32)words[0], (u32)words[1]);
  return (u32)(words[0] >> 32) == flag && (u32)(words[1] >> 32) == flag;
}

constexpr u32 SLOT_AT_ONCE = 2; // accesses in flight per thread

// Copies units into a slot.
template <typename UNIT, bool CELLS, bool GATED>
__device__ __forceinline__ bool write_slot(const Table &table, const Item &item, u64 epoch, Shared &shared) {
#pragma unroll 1
  for (u32 base = 0; base < item.units; base += THREADS * SLOT_AT_ONCE) {
    u64 to[SLOT_AT_ONCE];
    UNIT values[SLOT_AT_ONCE];
#pragma unroll
    for (u32 at = 0; at < SLOT_AT_ONCE; at++) {
      if (base + at * THREADS < item.units) {
        const u32 unit = min(base + at * THREADS + threadIdx.x, item.units - 1);
        u64 from;
        locate<CELLS, false, WRITTEN, sizeof(UNIT)>(item.region, item.first + unit, from, to[at]);
        values[at] = __ldcg((const UNIT *)from);
      }
    }
    if (GATED && base == 0 && item.early && !may_store<SLOTS>(table, item, epoch, shared)) return false;
#pragma unroll
    for (u32 at = 0; at < SLOT_AT_ONCE; at++) {
      if (base + at * THREADS + threadIdx.x < item.units) {
        u64 words[sizeof(UNIT) / 4];
        to_words(values[at], (u32)epoch, words);
        store_words(to[at], words);
      }
    }
  }
  return true;
}

// Copies units out of a slot. Returns false if the guard is set before all words have arrived.
template <typename UNIT, bool CELLS> __device__ __forceinline__ bool read_slot(const Table &table, const Item &item, u64 epoch) {
#pragma unroll 1
  for (u32 base = 0; base < item.units; base += THREADS * SLOT_AT_ONCE) {
    u64 from[SLOT_AT_ONCE], to[SLOT_AT_ONCE];
    UNIT values[SLOT_AT_ONCE];
#pragma unroll
    for (u32 at = 0; at < SLOT_AT_ONCE; at++) {
      if (base + at * THREADS < item.units) {
        const u32 unit = min(base + at * THREADS + threadIdx.x, item.units - 1);
        locate<CELLS, false, AWAITED, sizeof(UNIT)>(item.region, item.first + unit, from[at], to[at]);
      }
    }
    for (u32 looks = 0;; looks++) {
      bool there = true;
#pragma unroll
      for (u32 at = 0; at < SLOT_AT_ONCE; at++) {
        if (base + at * THREADS < item.units) {
          u64 words[sizeof(UNIT) / 4];
          load_words(from[at], words);
          there &= from_words(words, (u32)epoch, values[at]);
        }
      }
      if (__all_sync(~0u, there)) break;
      if (looks % LANES == LANES - 1 && !__all_sync(~0u, is_well(table))) return false;
      pause(looks);
    }
#pragma unroll
    for (u32 at = 0; at < SLOT_AT_ONCE; at++) {
      if (!CELLS && item.region.signs != 0) values[at] = with_signs(values[at], item.region.signs, to[at]);
      if (base + at * THREADS + threadIdx.x < item.units) *(UNIT *)to[at] = values[at];
    }
  }
  return true;
}

// Copies units of 1 to 16 bytes between fields.

// n / divisor, for n below 2^31.
__device__ __forceinline__ u32 divide(u32 n, u32 multiplier, u32 shift) { return (__umulhi(multiplier, n) + n) >> shift; }

constexpr u32 LINE = 8; // units of 16 bytes per line

// The part of a 16-byte unit that is stored: all of it, or one of these. Encoded in the lowest bits of the
// target address.
constexpr u32 FIRST = 1, LAST = 2, NOTHING = 3;

// Addresses of a unit, and the part of it that is stored. `SLOT`: kind of slot of the region, whose units
// have that many bytes.
template <bool CELLS, bool LONG, u8 SLOT = 0, u32 BYTES = 0>
__device__ __forceinline__ void locate(const Region &region, u32 unit, u64 &source, u64 &target) {
  u32 rest = divide(unit, region.multiplier[0], region.shift[0]);
  u32 within = unit - rest * region.count[0];
  source = region.source;
  target = region.target;
#pragma unroll
  for (u32 loop = 1; loop <= LOOPS; loop++) {
    if (loop < region.loops) {
      u32 step = rest;
      if (loop + 1 < region.loops) {
        rest = divide(step, region.multiplier[loop & 3], region.shift[loop & 3]);
        step -= rest * region.count[loop & 3];
      }
      i64 from = step, to = step;
      if (CELLS && loop == region.cell_loop) {
        const uint2 cell = __ldg(region.cells + step);
        from = cell.x;
        to = cell.y;
      }
      source += from * region.source_step[loop - 1];
      target += to * region.target_step[loop - 1];
    }
  }
  u32 stored = 0;
  if (LONG && region.ends != 0) {
    const u32 ends = region.ends, spare = ends >> 4, last = region.count[0] - spare - 1;
    // Makes warps store whole lines: partial lines cost as much on their way to a peer.
    if (spare != 0) within -= (u32)target / sizeof(uint4) % LINE;
    if (within > last) stored = NOTHING; // also the spare units before the first one
    else if (within == 0 && (ends & 3) != 0) stored = FIRST;
    else if (within == last && (ends & 12) != 0) stored = LAST;
    within = min(within, last);
  }
  if constexpr (SLOT != 0) {
    source += (u64)within * (SLOT == AWAITED ? 2 * BYTES : BYTES);
    target += (u64)within * (SLOT == WRITTEN ? 2 * BYTES : BYTES);
    return;
  }
  source += (u64)within << region.log_unit;
  target += ((u64)within << region.log_unit) + stored;
}

// The offset to add to an address of the table.
__device__ __forceinline__ u64 added(u64 address, const Bases *bases, const Shared &shared) {
  if ((i64)address >= 0) return 0;
  const u32 number = address >> NUMBER & ANNOUNCED;
  return number == ANNOUNCED ? shared.announced : bases->added[number];
}

template <typename UNIT> __device__ __forceinline__ void store_unit(const Region &, u64 target, UNIT value) { *(UNIT *)target = value; }

// The ends of a block may be partial units, in words of 4 bytes.
template <> __device__ __forceinline__ void store_unit(const Region &region, u64 target, uint4 value) {
  const u32 stored = target & 3;
  if (stored == 0) {
    *(uint4 *)target = value;
    return;
  }
  target -= stored;
  const u32 out = stored == FIRST ? region.ends & 3 : region.ends >> 2 & 3;
  if (stored == FIRST) {
    if (out == 1) *(u32 *)(target + 4) = value.y;
    if (out <= 2) *(uint2 *)(target + 8) = make_uint2(value.z, value.w);
    else *(u32 *)(target + 12) = value.w;
  } else if (stored == LAST) {
    if (out <= 2) *(uint2 *)target = make_uint2(value.x, value.y);
    else *(u32 *)target = value.x;
    if (out == 1) *(u32 *)(target + 8) = value.z;
  }
}

// Changes the sign bits of a unit that is stored at a target.
template <typename UNIT> __device__ __forceinline__ UNIT with_signs(UNIT value, u64 signs, u64 target) {
  return value ^ (UNIT)(signs >> (target & 7) * 8);
}
template <> __device__ __forceinline__ uint2 with_signs(uint2 value, u64 signs, u64) {
  return make_uint2(value.x ^ (u32)signs, value.y ^ (u32)(signs >> 32));
}
// The lowest bits of the target say which part of it is stored.
template <> __device__ __forceinline__ uint4 with_signs(uint4 value, u64 signs, u64) {
  const u32 low = (u32)signs, high = (u32)(signs >> 32);
  return make_uint4(value.x ^ low, value.y ^ high, value.z ^ low, value.w ^ high);
}

// Called by all threads of a block, each for its own units. Warps need not arrive together, except where an
// early item (a block's first one) waits. `GATED`: loads as much as possible, then waits. Returns whether
// the block may copy.
template <typename UNIT, bool CELLS, bool GATED, Kind KIND>
__device__ __forceinline__ bool move_units(const Table &table, const Item &item, const Bases *bases, u64 epoch, Shared &shared) {
  constexpr u32 AT_ONCE = GATED ? 2 : 4; // accesses in flight per thread; more exceed the registers while waiting
  const Region &region = item.region;
  const u64 source_added = KIND == BASED ? added(region.source, bases, shared) : 0;
#pragma unroll 1
  for (u32 base = 0; base < item.units; base += THREADS * AT_ONCE) {
    u64 from[AT_ONCE], to[AT_ONCE];
    UNIT values[AT_ONCE];
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS < item.units) {
        // The last threads of an item read its last unit again, and store nothing.
        const u32 unit = min(base + at * THREADS + threadIdx.x, item.units - 1);
        locate<CELLS, !CELLS && sizeof(UNIT) == sizeof(uint4)>(region, item.first + unit, from[at], to[at]);
        from[at] += source_added;
        if (!CELLS) values[at] = __ldcg((const UNIT *)from[at]);
      }
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (CELLS && base + at * THREADS < item.units) values[at] = __ldcg((const UNIT *)from[at]);
    }
    if (GATED && base == 0 && item.early && !may_store<KIND>(table, item, epoch, shared)) return false;
    const u64 target_added = KIND == BASED ? added(region.target, bases, shared) : 0;
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      const u64 target = to[at] + target_added;
      if (!CELLS && region.signs != 0) values[at] = with_signs(values[at], region.signs, target);
      if (base + at * THREADS + threadIdx.x < item.units) store_unit(region, target, values[at]);
    }
  }
  return true;
}

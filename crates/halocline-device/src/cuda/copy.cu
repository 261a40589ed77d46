// Executes a copy table in one launch. `table.rs` makes the table and says what its fields mean; the structures here
// are its structures.
//
// A table is cut into items, about as many accesses each. A block of threads does one item after another:
//
//   block 0, if there are parts that copy nothing: they wait and raise, a part a thread;
//   then carriers: blocks of one part that waits or raises; together they do its items, and the last one raises;
//   then a block for each item of parts that do neither.
//
// Carriers of parts that wait are few enough to run all at once.
//
// Ordering: source data may become visible while the kernel runs (after a wait), so that it is never read through the
// non-coherent path. Whoever polls fences after a word was reached, and a barrier passes that on to its block; at the end
// of a carrier a barrier and a fence of one thread, then a count, pass the block's stores on to whoever counts last, who
// fences and raises (fences are cumulative). What earlier work of the stream wrote was made visible when it ended.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of the host");

constexpr u32 THREADS = 256;
constexpr u32 LANES = 32;
constexpr u32 LOOPS = 4;

// A nest of loops around contiguous units of 1, 2, 4, 8 or 16 bytes. Loop 0 goes over the units of a block, loop 4 is
// the outermost. A unit's number, below 2^31, counts them in that order.
struct __align__(16) Region {
  u64 source, target;
  i64 source_step[LOOPS], target_step[LOOPS]; // bytes, of loops 1 to 4
  u32 count[LOOPS];                           // of loops 0 to 3
  u32 multiplier[LOOPS];                      // for divisions by them
  u8 shift[LOOPS];
  u8 log_unit;                                // 2^log_unit bytes a unit
  u8 loops;                                   // number of loops, loop 0 counted
  u8 cell_loop;                               // which loop goes over listed cells; 0: none
  u8 unused;
  const uint2 *cells;                         // their numbers in source and target
};

struct __align__(16) Item {
  u32 region, first, units, unused;
};

// Those that copy nothing come first, then those with carriers.
struct Part {
  u32 item, items, wait, waits, raise, raises;
  u32 block, blocks; // its carriers
};

struct Wait {
  const u64 *word;
  u64 lag;
};

struct Table {
  const Item *items;
  const Region *regions;
  const Part *parts;
  const u32 *carriers; // the part of each
  const Wait *waits;
  u64 *const *raises;
  const u64 *guard;
  u64 *done;        // for each part: carriers that are through, and above bit 32 those that copied nothing because of the guard
  u32 bare;         // parts that copy nothing
  u32 carrier_count;
  u32 item;         // the first of those without carriers
  u32 part_count;
};

static_assert(sizeof(Region) == 128 && sizeof(Item) == 16 && sizeof(Part) == 32 && sizeof(Wait) == 16, "as on the host");

__device__ __forceinline__ u64 load_word(const u64 *word) {
  u64 value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void store_word(u64 *word, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// n / divisor, for n below 2^31.
__device__ __forceinline__ u32 divide(u32 n, u32 multiplier, u32 shift) { return (__umulhi(multiplier, n) + n) >> shift; }

// Offsets of a unit from the region's begin.
template <bool CELLS> __device__ __forceinline__ void locate(const Region &region, u32 unit, i64 &source, i64 &target) {
  u32 rest = divide(unit, region.multiplier[0], region.shift[0]);
  source = target = (i64)(unit - rest * region.count[0]) << region.log_unit;
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
}

template <typename UNIT, u32 AT_ONCE, bool CELLS>
__device__ __forceinline__ void move_units(const Region &region, u32 first, u32 units) {
  const char *const source = (const char *)region.source;
  char *const target = (char *)region.target;
  for (u32 base = 0; base < units; base += THREADS * AT_ONCE) {
    i64 from[AT_ONCE], to[AT_ONCE];
    UNIT values[AT_ONCE];
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS < units) {
        // The last threads of an item read its last unit again, and write nothing.
        const u32 unit = min(base + at * THREADS + threadIdx.x, units - 1);
        locate<CELLS>(region, first + unit, from[at], to[at]);
      }
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS < units) values[at] = __ldcg((const UNIT *)(source + from[at]));
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS + threadIdx.x < units) *(UNIT *)(target + to[at]) = values[at];
    }
  }
}

template <bool CELLS> __device__ __forceinline__ void move_item(const Region &region, u32 first, u32 units) {
  switch (region.log_unit) {
  case 0: move_units<u8, 4, CELLS>(region, first, units); break;
  case 1: move_units<unsigned short, 4, CELLS>(region, first, units); break;
  case 2: move_units<u32, 4, CELLS>(region, first, units); break;
  case 3: move_units<uint2, 4, CELLS>(region, first, units); break;
  default: move_units<uint4, 4, CELLS>(region, first, units); break;
  }
}

// Whether a word is no more than so many epochs behind. Words compare cyclically; the epoch waited for is at least 0.
__device__ __forceinline__ bool is_reached(const Wait wait, u64 epoch) {
  const u64 least = epoch > wait.lag ? epoch - wait.lag : 0;
  return (i64)(load_word(wait.word) - least) >= 0;
}

// Looks often at first, then leaves the multiprocessor to others in between.
__device__ __forceinline__ void pause(u32 looks) {
  if (looks > 64) __nanosleep(100);
}

__device__ __forceinline__ bool is_well(const Table &table) { return table.guard == nullptr || load_word(table.guard) == 0; }

__device__ __forceinline__ void raise(const Table &table, const Part &part, u64 epoch) {
  for (u32 at = 0; at < part.raises; at++) store_word(table.raises[part.raise + at], epoch);
}

// The items from one on, every so many, by all threads of a block, once all that a part waits for is reached. Returns whether it may.
__device__ __forceinline__ bool do_items(const Table &table, const Part &part, u64 epoch, u32 first, u32 end, u32 step) {
  __shared__ Region regions[2];
  __shared__ u32 good;
  for (u32 at = first, turn = 0; at < end; at += step, turn ^= 1) {
    const Item item = table.items[at];
    Region &region = regions[turn];
    const u32 lane = threadIdx.x % LANES;
    // The second warp loads, a word of 4 bytes a thread; whoever still reads the other region has passed the last barrier.
    // Meanwhile the first one waits.
    if (threadIdx.x / LANES == 1) ((u32 *)&region)[lane] = ((const u32 *)(table.regions + item.region))[lane];
    if (threadIdx.x / LANES == 0 && at == first) {
      for (u32 wait = lane; wait < part.waits; wait += LANES) {
        for (u32 looks = 0; !is_reached(table.waits[part.wait + wait], epoch); looks++) pause(looks);
      }
      if (part.waits != 0) fence_system();
      __syncwarp();
      if (lane == 0) good = is_well(table);
    }
    __syncthreads();
    if (!good) return false;
    if (region.cell_loop) move_item<true>(region, item.first, item.units);
    else move_item<false>(region, item.first, item.units);
  }
  return true;
}

// Parts that copy nothing, by one block: a part a thread, and none keeps another waiting.
__device__ void do_bare(const Table &table, u64 epoch) {
  for (u32 first = 0; first < table.bare; first += THREADS * LANES) {
    u32 open = 0; // a bit for each part of this thread
    for (u32 nth = 0; nth < LANES; nth++) {
      if (first + nth * THREADS + threadIdx.x < table.bare) open |= 1u << nth;
    }
    for (u32 looks = 0; open; looks++) {
      pause(looks);
      for (u32 rest = open; rest; rest &= rest - 1) {
        const u32 nth = __ffs(rest) - 1;
        const Part part = table.parts[first + nth * THREADS + threadIdx.x];
        bool reached = true;
        for (u32 at = 0; at < part.waits && reached; at++) reached = is_reached(table.waits[part.wait + at], epoch);
        if (!reached) continue;
        open &= ~(1u << nth);
        if (part.waits != 0) fence_system();
        if (part.raises != 0 && is_well(table)) raise(table, part, epoch);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) halocline_copy(const __grid_constant__ Table table, u64 epoch) {
  u32 block = blockIdx.x;
  if (table.bare != 0) {
    if (block == 0) return do_bare(table, epoch);
    block--;
  }
  if (block >= table.carrier_count) {
    const u32 item = table.item + block - table.carrier_count;
    const Part none = {};
    do_items(table, none, epoch, item, item + 1, 1);
    return;
  }
  const u32 number = table.carriers[block];
  const Part part = table.parts[number];
  const bool good = do_items(table, part, epoch, part.item + block - part.block, part.item + part.items, part.blocks);
  if (part.raises == 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  fence_system();
  bool all_good = good;
  if (part.blocks != 1) {
    const u64 mine = good ? 1 : 1 | 1ull << 32;
    const u64 done = atomicAdd(table.done + number, mine) + mine;
    if ((u32)done != part.blocks) return;
    table.done[number] = 0;
    fence_system();
    all_good = done >> 32 == 0;
  }
  if (all_good) raise(table, part, epoch);
}

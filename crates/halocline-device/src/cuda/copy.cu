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
  u32 blocks; // carriers
  u32 early;  // its sources may be read before its waits
};

// What a carrier begins with. The items after it come every so many as the part has carriers.
struct __align__(16) Carrier {
  Item first;
  u32 part, item, unused[2];
};

struct Wait {
  const u64 *word;
  u64 lag;
};

constexpr u32 AT_ONCE = 4; // accesses of a thread that are under way
constexpr u32 RAISES = 6;

struct Table {
  u64 *first[RAISES]; // words that parts raise that neither wait nor copy, as many as there is room for
  const Item *items;
  const Region *regions;
  const Part *parts;
  const Carrier *carriers;
  const Wait *waits;
  u64 *const *raises;
  const u64 *guard;
  u64 *done;        // for each part: carriers that are through, and above bit 32 those that copied nothing because of the guard
  u32 bare;         // parts that copy nothing
  u32 carrier_count;
  u32 item;         // the first of those without carriers
  u32 part_count;
  u32 first_count;
  u32 unused;
};

static_assert(sizeof(Region) == 128 && sizeof(Item) == 16 && sizeof(Part) == 32 && sizeof(Carrier) == 32 && sizeof(Wait) == 16 && sizeof(Table) == 136, "as on the host");

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

// How far a word is beyond what is awaited; words compare cyclically, and the epoch waited for is at least 0.
__device__ __forceinline__ i64 beyond(const Wait wait, u64 epoch) {
  const u64 least = epoch > wait.lag ? epoch - wait.lag : 0;
  return (i64)(load_word(wait.word) - least);
}

// Further than any epoch: whoever wrote that has set the guard before.
constexpr i64 POISON = 1ll << 60;

// Looks often at first, then leaves the multiprocessor to others in between.
__device__ __forceinline__ void pause(u32 looks) {
  if (looks > 64) __nanosleep(100);
}

__device__ __forceinline__ bool is_well(const Table &table) { return table.guard == nullptr || load_word(table.guard) == 0; }

__device__ __forceinline__ void raise(const Table &table, const Part &part, u64 epoch) {
  for (u32 at = 0; at < part.raises; at++) store_word(table.raises[part.raise + at], epoch);
}

// What a block does before its first store: the first warp waits for all that a part waits for. Says whether the part may copy: the
// guard is looked at meanwhile, since what ends a wait after it was set is poison.
__device__ __noinline__ bool may_store(const Table &table, const Part *part, u64 epoch, u32 &good) {
  if (threadIdx.x < LANES) {
    bool well = is_well(table);
    const u32 waits = part == nullptr ? 0 : part->waits;
    for (u32 at = threadIdx.x; at < waits; at += LANES) {
      const Wait wait = table.waits[part->wait + at];
      i64 far = beyond(wait, epoch);
      for (u32 looks = 0; far < 0; looks++) {
        pause(looks);
        far = beyond(wait, epoch);
      }
      well &= far < POISON || table.guard == nullptr;
    }
    if (waits != 0) fence_system();
    well = __all_sync(~0u, well);
    if (threadIdx.x == 0) good = well;
  }
  __syncthreads();
  return good;
}

struct Gate {
  const Part *part;
  u64 epoch;
  bool is_open;
};

// Returns whether it may.
template <typename UNIT, bool CELLS>
__device__ __forceinline__ bool move_units(const Table &table, const Region &region, const Item item, Gate &gate, u32 &good) {
  const char *const source = (const char *)region.source;
  char *const target = (char *)region.target;
  for (u32 base = 0; base < item.units; base += THREADS * AT_ONCE) {
    i64 from[AT_ONCE], to[AT_ONCE];
    UNIT values[AT_ONCE];
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS < item.units) {
        // The last threads of an item read its last unit again, and write nothing.
        const u32 unit = min(base + at * THREADS + threadIdx.x, item.units - 1);
        locate<CELLS>(region, item.first + unit, from[at], to[at]);
      }
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS < item.units) values[at] = __ldcg((const UNIT *)(source + from[at]));
    }
    if (!gate.is_open) {
      if (!may_store(table, gate.part, gate.epoch, good)) return false;
      gate.is_open = true;
    }
#pragma unroll
    for (u32 at = 0; at < AT_ONCE; at++) {
      if (base + at * THREADS + threadIdx.x < item.units) *(UNIT *)(target + to[at]) = values[at];
    }
  }
  return true;
}

template <bool CELLS>
__device__ __forceinline__ bool move_item(const Table &table, const Region &region, const Item item, Gate &gate, u32 &good) {
  switch (region.log_unit) {
  case 0: return move_units<u8, CELLS>(table, region, item, gate, good);
  case 1: return move_units<unsigned short, CELLS>(table, region, item, gate, good);
  case 2: return move_units<u32, CELLS>(table, region, item, gate, good);
  case 3: return move_units<uint2, CELLS>(table, region, item, gate, good);
  default: return move_units<uint4, CELLS>(table, region, item, gate, good);
  }
}

// An item, and those that follow every so many, by all threads of a block, once all that the part waits for is reached. Returns
// whether it may.
__device__ __forceinline__ bool do_items(const Table &table, const Part *part, u64 epoch, Item item, u32 next, u32 end, u32 step) {
  __shared__ Region regions[2];
  __shared__ u32 good;
  Gate gate = {part, epoch, false};
  for (u32 turn = 0;; turn ^= 1) {
    Region &region = regions[turn];
    // A word of 4 bytes a thread; whoever still reads the other region has passed the last barrier.
    if (threadIdx.x < LANES) ((u32 *)&region)[threadIdx.x] = ((const u32 *)(table.regions + item.region))[threadIdx.x];
    if (gate.is_open || part == nullptr || part->early) {
      __syncthreads();
    } else {
      if (!may_store(table, part, epoch, good)) return false;
      gate.is_open = true;
    }
    if (!(region.cell_loop ? move_item<true>(table, region, item, gate, good) : move_item<false>(table, region, item, gate, good))) {
      return false;
    }
    if (next >= end) return true;
    item = table.items[next];
    next += step;
  }
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
        bool reached = true, well = true;
        for (u32 at = 0; at < part.waits && reached; at++) {
          const i64 far = beyond(table.waits[part.wait + at], epoch);
          reached = far >= 0;
          well &= far < POISON || table.guard == nullptr;
        }
        if (!reached) continue;
        open &= ~(1u << nth);
        if (part.waits != 0) fence_system();
        if (part.raises != 0 && well && is_well(table)) raise(table, part, epoch);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) halocline_copy(const __grid_constant__ Table table, u64 epoch) {
  u32 block = blockIdx.x;
  if (table.bare != 0 || table.first_count != 0) {
    if (block == 0) {
      // Nothing of this launch is passed on with these words, and what was before it is visible.
      if (threadIdx.x < table.first_count && is_well(table)) store_word(table.first[threadIdx.x], epoch);
      return do_bare(table, epoch);
    }
    block--;
  }
  const bool carries = block < table.carrier_count;
  Carrier carrier = {};
  if (carries) carrier = table.carriers[block];
  else carrier.first = table.items[table.item + block - table.carrier_count];
  const Part *const part = carries ? table.parts + carrier.part : nullptr;
  u64 *word = nullptr;
  u32 end = 0, step = 0;
  if (carries) {
    end = part->item + part->items;
    step = part->blocks;
    // Early, as it takes a while.
    if (threadIdx.x == 0 && part->raises != 0) word = table.raises[part->raise];
  }
  const bool good = do_items(table, part, epoch, carrier.first, carrier.item, end, step);
  if (!carries || part->raises == 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  fence_system();
  bool all_good = good;
  if (part->blocks != 1) {
    const u64 mine = good ? 1 : 1 | 1ull << 32;
    const u64 done = atomicAdd(table.done + carrier.part, mine) + mine;
    if ((u32)done != part->blocks) return;
    table.done[carrier.part] = 0;
    fence_system();
    all_good = done >> 32 == 0;
  }
  if (!all_good) return;
  store_word(word, epoch);
  for (u32 at = 1; at < part->raises; at++) store_word(table.raises[part->raise + at], epoch);
}

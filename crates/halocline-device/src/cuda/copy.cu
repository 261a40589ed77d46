// Executes a copy table in one launch. `table.rs` makes the table and says what its fields mean; the structures here
// are its structures.
//
// A table is cut into items, about as many accesses each. A block of threads does one item at a time.
//
// Ordering: source data may become visible while the kernel runs (after a wait), so that it is never read through the
// non-coherent path. Whoever polls fences after a word was reached, and a barrier passes that on to its block; at the end
// of an item a barrier and a fence of one thread, then a count, pass the block's stores on to whoever counts last, who
// fences and raises (fences are cumulative).

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
  u32 region, first, units, part;
};

struct Part {
  u32 item, items, wait, waits, raise, raises;
};

struct Wait {
  const u64 *word;
  u64 lag;
};

struct Table {
  const Item *items;
  const Region *regions;
  const Part *parts;
  const Wait *waits;
  u64 *const *raises;
  const u64 *guard;
  u64 *done;    // for each part: items done, and above bit 32 items left out because of the guard
  u32 *tickets; // for each part: items taken
  u32 *left;    // blocks that have nothing more to do
  u32 part_count;
  u32 item_count;
};

static_assert(sizeof(Region) == 128 && sizeof(Item) == 16 && sizeof(Part) == 24 && sizeof(Wait) == 16, "as on the host");

__device__ __forceinline__ u64 load_word(const u64 *word) {
  u64 value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void store_word(u64 *word, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ u32 load_ticket(const u32 *word) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

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

// One item by all threads of a block.
__device__ __forceinline__ void do_item(const Table &table, const Item item, u64 epoch, Region &region, u32 &good) {
  const bool copies = item.units != 0;
  // A word a thread: a region is 32 words of 4 bytes.
  if (threadIdx.x < LANES && copies) ((u32 *)&region)[threadIdx.x] = ((const u32 *)(table.regions + item.region))[threadIdx.x];
  if (threadIdx.x == 0) good = table.guard == nullptr || load_word(table.guard) == 0;
  __syncthreads();
  if (copies && good) {
    if (region.cell_loop) move_item<true>(region, item.first, item.units);
    else move_item<false>(region, item.first, item.units);
  }
  const Part part = table.parts[item.part];
  if (part.raises == 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  fence_system();
  bool all_good = good;
  if (part.items != 1) {
    const u64 mine = good ? 1 : 1 | 1ull << 32;
    const u64 done = atomicAdd(table.done + item.part, mine) + mine;
    if ((u32)done != part.items) return;
    table.done[item.part] = 0;
    fence_system();
    all_good = done >> 32 == 0;
  }
  if (all_good) {
    for (u32 at = 0; at < part.raises; at++) store_word(table.raises[part.raise + at], epoch);
  }
}

// A table none of whose parts wait: item and block have one number.
extern "C" __global__ void __launch_bounds__(THREADS, 4) halocline_copy(const __grid_constant__ Table table, u64 epoch) {
  __shared__ Region region;
  __shared__ u32 good;
  do_item(table, table.items[blockIdx.x], epoch, region, good);
}

// Whether all that a part waits for is reached. The epoch waited for is at least 0; words compare cyclically.
__device__ __forceinline__ bool is_reached(const Table &table, const Part &part, u64 epoch) {
  for (u32 at = part.wait; at < part.wait + part.waits; at++) {
    const Wait wait = table.waits[at];
    const u64 least = epoch > wait.lag ? epoch - wait.lag : 0;
    if ((i64)(load_word(wait.word) - least) < 0) return false;
  }
  return true;
}

// The first warp takes an item of a part that waits for nothing more, whichever; while there is none, it looks again.
// False if all items are taken. So whichever blocks run, be it one, they do all that can be done, and none waits with
// an item in its hands. `empty` and `ready` remember what was seen of the parts 32 * bit + lane.
__device__ bool take_item(const Table &table, u64 epoch, u32 &empty, u32 &ready, Item &item) {
  const u32 lane = (threadIdx.x + blockIdx.x) % LANES; // blocks begin with different parts
  for (u32 pause = 32;; pause = min(2 * pause, 256u)) {
    bool any_open = false;
    for (u32 begin = 0, bit = 1; begin < table.part_count; begin += LANES, bit <<= 1) { // bit becomes 0 after 32 rounds
      const u32 at = begin + lane;
      bool open = at < table.part_count && !(empty & bit);
      bool can = false;
      Part part = {};
      if (open) {
        part = table.parts[at];
        open = load_ticket(table.tickets + at) < part.items;
        if (!open) empty |= bit;
        else can = (ready & bit) || is_reached(table, part, epoch);
        if (can) ready |= bit;
      }
      any_open |= __any_sync(~0u, open);
      u32 candidates = __ballot_sync(~0u, can);
      while (candidates) {
        const u32 chosen = __ffs(candidates) - 1;
        u32 number = ~0u;
        if (threadIdx.x == chosen) {
          const u32 ticket = atomicAdd(table.tickets + at, 1);
          if (ticket < part.items) number = part.item + ticket;
          else empty |= bit;
          fence_system(); // it has seen the words
        }
        number = __shfl_sync(~0u, number, chosen);
        if (number != ~0u) {
          item = table.items[number];
          return true;
        }
        candidates &= candidates - 1;
      }
    }
    if (!any_open) return false;
    __nanosleep(pause);
  }
}

// A table with parts that wait.
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_waiting(const __grid_constant__ Table table, u64 epoch) {
  __shared__ Region region;
  __shared__ Item item;
  __shared__ u32 good, more;
  u32 empty = 0, ready = 0;
  for (;;) {
    __syncthreads();
    if (threadIdx.x < LANES) {
      Item taken = {};
      const bool any = take_item(table, epoch, empty, ready, taken);
      if (threadIdx.x == 0) {
        item = taken;
        more = any;
      }
    }
    __syncthreads();
    if (!more) break;
    do_item(table, item, epoch, region, good);
  }
  if (threadIdx.x != 0) return;
  // The last to leave, when nobody looks at tickets any more, makes the table ready for another launch.
  if (atomicInc(table.left, gridDim.x - 1) == gridDim.x - 1) {
    for (u32 at = 0; at < table.part_count; at++) table.tickets[at] = 0;
  }
}

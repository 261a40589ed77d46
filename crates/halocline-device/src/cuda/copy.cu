// Executes a copy table in one launch. `table.rs` builds the table and documents its fields; the structures
// here mirror its structures.
//
// A table consists of items of similar numbers of accesses. A block of threads executes one item after
// another; after the first item, each of its warps proceeds independently:
//
//   block 0, if there are parts without copies: they wait and raise flags, one part per thread;
//   then carriers: blocks of one part that waits or raises flags; together they execute its items, and the
//   last one raises;
//   then one block for each item of the other parts.
//
// A table may have one work for even epochs and another for odd ones. If both have the same shape, the arrays of the second lie at one
// distance behind those of the first, and one launch serves either.
//
// The epoch of a launch is an argument, or the next one of a counter in device memory. Each block of a counted launch reads the counter when it
// begins and adds to it when it ends. The sum of all additions is one epoch, so that the number of whole epochs stays the same as long as a
// block has not ended.
//
// The carriers of waiting parts are few enough to be resident all at once. An item contains everything that
// its block needs: each dependent memory access costs a block about as long as the copying.
//
// Memory ordering: source data may become visible while the kernel runs (after a wait), so it is never read
// through the non-coherent path. A polling thread acquires, and a barrier extends that to its block. At the
// end of a carrier, a barrier and a fence of one thread, followed by a count, publish the block's stores to
// the thread that counts last. That thread fences and raises the flags (fences are cumulative). Stores of
// earlier stream work became visible when that ended.
//
// A table with bases counts some addresses from bases that each launch gives, or from one that the receiver announces: their upper bits
// name the base. A part with an announcement reads it once its waits are over. If the receiver expects another message, the part copies
// nothing and says so. Blocks of such a table may execute several parts, one after the other.
//
// LL slots and bases have kernels of their own, so that other tables do not pay for them. Each 8-byte word holds 4
// bytes of a message in its lower half, and the lower half of the epoch in its upper half. A word is stored
// and loaded atomically, so no other ordering is needed. A warp polls the words of its units until all
// carry the epoch, and checks the guard now and then.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of the host");

constexpr u32 THREADS = 512;
constexpr u32 LANES = 32;
constexpr u32 LOOPS = 4;

// A nest of loops around contiguous units of 1, 2, 4, 8 or 16 bytes. Loop 0 iterates over the units of a
// block, loop 4 is the outermost. Units are numbered in that order, below 2^31.
struct __align__(16) Region {
  u64 source, target;
  i64 source_step[LOOPS], target_step[LOOPS]; // bytes, of loops 1 to 4
  u32 count[LOOPS];                           // of loops 0 to 3
  u32 multiplier[LOOPS];                      // for divisions by them
  u8 shift[LOOPS];
  u8 log_unit;                                // units have 2^log_unit bytes; or a code of slots, below
  u8 loops;                                   // number of loops, including loop 0
  u8 cell_loop;                               // the loop over listed cells; 0: none
  u8 ends;                                    // for 16-byte units: 4-byte words left out of a block's first unit, plus 4 times those of its last
                                              // unit, plus 16 times its spare units, which align the others with target lines
  const uint2 *cells;                         // cell numbers in source and target
};

// Codes for units of 4 or 8 bytes that are written to, or read from, a slot, where they have twice the
// size.
constexpr u8 WRITTEN = 5, AWAITED = 7;

struct Wait {
  const u64 *word;
  u64 lag;
};

// Where the receiver announces the base of the message and what it expects, and what this side sends.
struct Announced {
  const u64 *words;
  u64 sent;
  u64 *differs; // becomes the address of `words` if the two differ
  u64 unused;
};

// Units of one region and, for a block's first item, the flags to wait for and to raise.
struct __align__(16) Item {
  Region region;
  u32 first, units;
  u32 next;  // next item of the block, or 0
  u32 part;  // index of its counter
  Wait awaited;
  u32 wait, waits; // the first of them is `awaited`
  u32 raise, raises; // the first of them is `raised`
  u32 blocks; // that execute the part; 0: it neither waits nor raises
  u32 early;  // its sources may be read before its waits
  u64 *raised;
  const Announced *announced; // or null
  u64 then; // the first item of the part that the block executes next, or 0
};

// A part without copies.
struct Part {
  u32 wait, waits, raise, raises;
};

constexpr u32 RAISES = 8;

struct Table {
  u64 *first[RAISES]; // flags raised by parts that neither wait nor copy, up to the capacity
  const Item *items;  // first items of the blocks, then the others
  const Part *parts;
  const Wait *waits;
  u64 *const *raises;
  const u64 *guard;
  u64 *done; // for each part with carriers: number finished, and from bit 32 number that copied nothing because of the guard
  u32 bare;  // parts without copies
  u32 first_count;
  u32 tied; // number of counters
  u32 odd;  // distance of the arrays for odd epochs from those for even epochs, in units of 16 bytes; 0: they are the same
};

// What a launch adds to addresses, by the number of their base.
constexpr u32 BASES = 64;
struct Bases {
  u64 added[BASES];
};

static_assert(sizeof(Region) == 128 && sizeof(Item) == 208 && sizeof(Part) == 16, "as on the host");
static_assert(sizeof(Wait) == 16 && sizeof(Announced) == 32 && sizeof(Table) == 128, "as on the host");

// What a kernel can do beside plain copies.
enum Kind { PLAIN, SLOTS, BASED };

#ifdef __CUDACC__ // Otherwise a test runs this on the CPU, with its own definitions.
__device__ __forceinline__ u64 load_word(const u64 *word) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void store_word(u64 *word, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// One or two words of a slot; each is accessed atomically.
__device__ __forceinline__ void load_words(u64 from, u64 (&words)[1]) {
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(words[0]) : "l"(from) : "memory");
}
__device__ __forceinline__ void load_words(u64 from, u64 (&words)[2]) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(words[0]), "=l"(words[1]) : "l"(from) : "memory");
}
__device__ __forceinline__ void store_words(u64 to, const u64 (&words)[1]) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(words[0]) : "memory");
}
__device__ __forceinline__ void store_words(u64 to, const u64 (&words)[2]) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(words[0]), "l"(words[1]) : "memory");
}
#endif

// An array of the table, for an epoch.
template <typename T> __device__ __forceinline__ T *of_epoch(T *even, const Table &table, u64 epoch) {
  return (T *)((u64)even + ((epoch & 1) != 0 ? (u64)table.odd * 16 : 0));
}

// Counters of epochs: the epochs that are over, and below them what the blocks of the current launch have added.
constexpr u32 BLOCKS = 20;

__device__ __forceinline__ u64 next_epoch(const u64 *counter) { return (load_word(counter) >> BLOCKS) + 1; }

// A block has ended: called by one of its threads behind a barrier.
__device__ __forceinline__ void count_block(u64 *counter) {
  atomicAdd(counter, blockIdx.x == 0 ? (1ull << BLOCKS) - (gridDim.x - 1) : 1ull);
}

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

// How far a flag is beyond the awaited epoch. The comparison is cyclic; the awaited epoch is at least 0.
__device__ __forceinline__ i64 beyond(const Wait wait, u64 epoch) {
  const u64 least = epoch > wait.lag ? epoch - wait.lag : 0;
  return (i64)(load_word(wait.word) - least);
}

// Beyond any epoch: the writer of poison has set the guard before.
constexpr i64 POISON = 1ll << 60;

// Polls often at first, then yields the multiprocessor between polls.
__device__ __forceinline__ void pause(u32 looks) {
  if (looks > 64) __nanosleep(100);
}

__device__ __forceinline__ bool is_well(const Table &table) { return table.guard == nullptr || load_word(table.guard) == 0; }

// Loads an item, 4 bytes per thread.
constexpr u32 WORDS = sizeof(Item) / 4;
constexpr u32 WARPS = THREADS / LANES;

// Items in shared memory: the first one of the block, for even and for odd epochs, then one for each warp.
constexpr u32 HEADS = 2, ITEMS = HEADS + WARPS;

// Addresses of bases have the highest bit, and from bit 48 on the number of their base: one that the launch gives, or `ANNOUNCED`.
constexpr u32 NUMBER = 48, ANNOUNCED = 127;
constexpr u64 ANNOUNCED_BASE = (1ull << 15 | ANNOUNCED) << NUMBER | 1ull << (NUMBER - 1);

// What the threads of a block share.
struct Shared {
  Item items[ITEMS];
  u64 epoch;
  u64 announced; // what to add to addresses in the message
  u32 well, good;
};

// Whether the receiver expects what this side sends; if so, learns where.
__device__ __forceinline__ bool is_expected(const Announced &announced, Shared &shared) {
  if (load_word(announced.words + 1) != announced.sent) {
    store_word(announced.differs, (u64)announced.words);
    return false;
  }
  shared.announced = load_word(announced.words) - ANNOUNCED_BASE;
  return true;
}

// Waits before a block's first store: its first warp polls all flags of the part. Returns whether the part
// may copy. Checks the guard now and then: if it is set, the wait ends.
template <Kind KIND> __device__ __forceinline__ bool may_store(const Table &table, const Item &item, u64 epoch, Shared &shared) {
  if (threadIdx.x < LANES) {
    bool well = is_well(table);
    for (u32 at = threadIdx.x; at < item.waits; at += LANES) {
      const Wait wait = at == 0 ? item.awaited : of_epoch(table.waits, table, epoch)[item.wait + at];
      i64 far = beyond(wait, epoch);
      for (u32 looks = 0; far < 0 && well; looks++) {
        pause(looks);
        far = beyond(wait, epoch);
        if (looks % LANES == LANES - 1) well = is_well(table);
      }
      well &= far < POISON || table.guard == nullptr;
    }
    well = __all_sync(~0u, well);
    if (threadIdx.x == 0) {
      if (KIND == BASED && well && item.announced != nullptr) well = is_expected(*item.announced, shared);
      shared.good = well;
    }
  }
  __syncthreads();
  return shared.good;
}

// What to add to an address of the table.
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
      if (base + at * THREADS + threadIdx.x < item.units) store_unit(region, to[at] + target_added, values[at]);
    }
  }
  return true;
}

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
      if (base + at * THREADS + threadIdx.x < item.units) *(UNIT *)to[at] = values[at];
    }
  }
  return true;
}

template <bool CELLS, bool GATED, Kind KIND>
__device__ __forceinline__ bool move_as(const Table &table, const Item &item, const Bases *bases, u64 epoch, Shared &shared) {
  if constexpr (KIND == SLOTS) {
    switch (item.region.log_unit) {
    case WRITTEN: return write_slot<u32, CELLS, GATED>(table, item, epoch, shared);
    case WRITTEN + 1: return write_slot<uint2, CELLS, GATED>(table, item, epoch, shared);
    case AWAITED: return read_slot<u32, CELLS>(table, item, epoch);
    case AWAITED + 1: return read_slot<uint2, CELLS>(table, item, epoch);
    }
  }
  switch (item.region.log_unit) {
  case 0: return move_units<u8, CELLS, GATED, KIND>(table, item, bases, epoch, shared);
  case 1: return move_units<unsigned short, CELLS, GATED, KIND>(table, item, bases, epoch, shared);
  case 2: return move_units<u32, CELLS, GATED, KIND>(table, item, bases, epoch, shared);
  case 3: return move_units<uint2, CELLS, GATED, KIND>(table, item, bases, epoch, shared);
  default: return move_units<uint4, CELLS, GATED, KIND>(table, item, bases, epoch, shared);
  }
}

template <bool GATED, Kind KIND>
__device__ __forceinline__ bool move_item(const Table &table, const Item &item, const Bases *bases, u64 epoch, Shared &shared) {
  if (item.region.cell_loop) return move_as<true, GATED, KIND>(table, item, bases, epoch, shared);
  return move_as<false, GATED, KIND>(table, item, bases, epoch, shared);
}

// Parts without copies, in one block: one part per thread; no part delays another.
__device__ void do_bare(const Table &table, u64 epoch) {
  for (u32 first = 0; first < table.bare; first += THREADS * LANES) {
    u32 open = 0; // one bit for each part of this thread
    for (u32 nth = 0; nth < LANES; nth++) {
      if (first + nth * THREADS + threadIdx.x < table.bare) open |= 1u << nth;
    }
    for (u32 looks = 0; open; looks++) {
      pause(looks);
      if (looks % LANES == LANES - 1 && !is_well(table)) return;
      for (u32 rest = open; rest; rest &= rest - 1) {
        const u32 nth = __ffs(rest) - 1;
        const Part part = of_epoch(table.parts, table, epoch)[first + nth * THREADS + threadIdx.x];
        bool reached = true, well = true;
        for (u32 at = 0; at < part.waits && reached; at++) {
          const i64 far = beyond(of_epoch(table.waits, table, epoch)[part.wait + at], epoch);
          reached = far >= 0;
          well &= far < POISON || table.guard == nullptr;
        }
        if (!reached) continue;
        open &= ~(1u << nth);
        if (part.raises == 0 || !well || !is_well(table)) continue;
        fence_system();
        for (u32 at = 0; at < part.raises; at++) store_word(of_epoch(table.raises, table, epoch)[part.raise + at], epoch);
      }
    }
  }
}

__device__ __forceinline__ u32 word_of(const Item *items, u32 item, u32 word) { return ((const u32 *)(items + item))[word]; }

// Executes the items of a block in order; the first one is loaded. Each warp executes the others
// independently, so that some load while others store. Returns whether it may copy.
template <Kind KIND>
__device__ __forceinline__ bool carry(const Table &table, const Bases *bases, u32 first, u64 epoch, Shared &shared) {
  static_assert(WORDS > LANES && WORDS <= 2 * LANES, "two words a thread");
  const u32 lane = threadIdx.x % LANES;
  Item(&items)[ITEMS] = shared.items;
  const Item *const all = of_epoch(table.items, table, epoch);
  for (u32 at = first;;) {
    const u32 next = items[at].next;
    u32 ahead[2] = {};
    if (next != 0) {
      ahead[0] = word_of(all, next, lane);
      if (lane < WORDS - LANES) ahead[1] = word_of(all, next, LANES + lane);
    }
    if (!move_item<true, KIND>(table, items[at], bases, epoch, shared)) return false;
    if (next == 0) return true;
    at = HEADS + threadIdx.x / LANES;
    __syncwarp();
    u32 *const words = (u32 *)&items[at];
    words[lane] = ahead[0];
    if (lane < WORDS - LANES) words[LANES + lane] = ahead[1];
    __syncwarp();
  }
}

// Executes a block's part, whose first item is loaded; the last block of the part sets its flags.
template <Kind KIND>
__device__ __forceinline__ void execute(const Table &table, const Bases *bases, u32 first, u64 epoch, Shared &shared) {
  const Item &head = shared.items[first];
  bool may = shared.well;
  const bool is_gated = head.waits != 0 || (KIND == BASED && head.announced != nullptr);
  if (may && is_gated && !head.early) may = may_store<KIND>(table, head, epoch, shared);
  if (may && head.next == 0 && !head.early) {
    const bool all = move_item<false, KIND>(table, head, bases, epoch, shared);
    if constexpr (KIND == SLOTS) may = all;
  } else if (may) {
    may = carry<KIND>(table, bases, first, epoch, shared);
  }
  if (head.raises == 0) return;
  if constexpr (KIND == SLOTS) may = __syncthreads_and(may);
  else __syncthreads();
  if (threadIdx.x != 0) return;
  fence_system();
  if (head.blocks != 1) {
    const u64 mine = may ? 1 : 1 | 1ull << 32;
    const u64 done = atomicAdd(table.done + head.part, mine) + mine;
    if ((u32)done != head.blocks) return;
    table.done[head.part] = 0;
    fence_system();
    may = done >> 32 == 0;
  }
  if (!may) return;
  store_word(head.raised, epoch);
  for (u32 at = 1; at < head.raises; at++) store_word(of_epoch(table.raises, table, epoch)[head.raise + at], epoch);
}

// `COUNTED`: the epoch is the next one of a counter, whose address is `given`.
template <Kind KIND, bool COUNTED>
__device__ __forceinline__ void copy(const Table &table, const Bases *bases, u64 given, Shared &shared) {
  u32 block = blockIdx.x;
  u64 epoch = given;
  if (table.bare != 0 || table.first_count != 0) {
    if (block == 0) {
      if constexpr (COUNTED) {
        if (threadIdx.x == 0) shared.epoch = next_epoch((const u64 *)given);
        __syncthreads();
        epoch = shared.epoch;
      }
      // These flags publish nothing of this launch; earlier work is visible already.
      if (threadIdx.x < table.first_count && is_well(table)) store_word(table.first[threadIdx.x], epoch);
      return do_bare(table, epoch);
    }
    block--;
  }
  // While the counter is read, the items for even and for odd epochs are.
  u32 first = 0;
  if constexpr (COUNTED) {
    const u32 words = table.odd != 0 ? HEADS * WORDS : WORDS;
    for (u32 word = threadIdx.x; word < words; word += THREADS) {
      const u32 odd = word / WORDS;
      ((u32 *)&shared.items[odd])[word - odd * WORDS] = word_of(of_epoch(table.items, table, odd), block, word - odd * WORDS);
    }
    if (threadIdx.x == THREADS - 1) shared.epoch = next_epoch((const u64 *)given);
    if (threadIdx.x == THREADS - 2) shared.well = is_well(table);
  } else {
    if (threadIdx.x < WORDS) ((u32 *)&shared.items[0])[threadIdx.x] = word_of(of_epoch(table.items, table, epoch), block, threadIdx.x);
    if (threadIdx.x == WORDS) shared.well = is_well(table);
  }
  __syncthreads();
  if constexpr (COUNTED) {
    epoch = shared.epoch;
    if (table.odd != 0) first = epoch & 1;
  }
  if constexpr (KIND != BASED) return execute<KIND>(table, bases, first, epoch, shared);
  for (;;) {
    const u64 then = shared.items[first].then;
    execute<KIND>(table, bases, first, epoch, shared);
    if (then == 0) return;
    // All warps are done with the items.
    __syncthreads();
    if (threadIdx.x < WORDS) ((u32 *)&shared.items[first])[threadIdx.x] = word_of(of_epoch(table.items, table, epoch), then, threadIdx.x);
    if (threadIdx.x == WORDS) shared.well = is_well(table);
    __syncthreads();
  }
}

// Tables with bases have a compilation of their own (`HALOCLINE_BASED`): most programs have none.
#ifndef HALOCLINE_BASED
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy(const __grid_constant__ Table table, u64 epoch) {
  __shared__ Shared shared;
  copy<PLAIN, false>(table, nullptr, epoch, shared);
}

// The kernel for tables with parts that write or read slots.
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_ll(const __grid_constant__ Table table, u64 epoch) {
  __shared__ Shared shared;
  copy<SLOTS, false>(table, nullptr, epoch, shared);
}

// The same for the next epoch of a counter.
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_counted(const __grid_constant__ Table table, u64 *counter) {
  __shared__ Shared shared;
  copy<PLAIN, true>(table, nullptr, (u64)counter, shared);
  __syncthreads();
  if (threadIdx.x == 0) count_block(counter);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_ll_counted(const __grid_constant__ Table table, u64 *counter) {
  __shared__ Shared shared;
  copy<SLOTS, true>(table, nullptr, (u64)counter, shared);
  __syncthreads();
  if (threadIdx.x == 0) count_block(counter);
}
#endif

#if defined(HALOCLINE_BASED) || !defined(__CUDACC__)
extern "C" __global__ void __launch_bounds__(THREADS, 2)
halocline_copy_based(const __grid_constant__ Table table, u64 epoch, const __grid_constant__ Bases bases) {
  __shared__ Shared shared;
  copy<BASED, false>(table, &bases, epoch, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
halocline_copy_based_counted(const __grid_constant__ Table table, u64 *counter, const __grid_constant__ Bases bases) {
  __shared__ Shared shared;
  copy<BASED, true>(table, &bases, (u64)counter, shared);
  __syncthreads();
  if (threadIdx.x == 0) count_block(counter);
}
#endif

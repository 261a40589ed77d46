// Waits for flags, and what the threads of a block share.

// How far a flag is beyond the awaited epoch. The comparison is cyclic; the awaited epoch is at least 0.
__device__ __forceinline__ i64 beyond(const Wait wait, u64 epoch) {
  const u64 least = epoch > wait.lag ? epoch - wait.lag : 0;
  return (i64)(load_flag(wait.flag) - least);
}

// Beyond any epoch: the writer of poison has set the guard before.
constexpr i64 POISON = 1ll << 60;

// Polls often at first, then yields the multiprocessor between polls.
__device__ __forceinline__ void pause(u32 looks) {
  if (looks > 64) __nanosleep(100);
}

__device__ __forceinline__ bool is_well(const Table &table) { return table.guard == nullptr || load_flag(table.guard) == 0; }

// Loads an item, 4 bytes per thread.
constexpr u32 WORDS = sizeof(Item) / 4;
constexpr u32 WARPS = THREADS / LANES;

// Items in shared memory: the first one of the block, for even and for odd epochs, then one for each warp.
constexpr u32 HEADS = 2, ITEMS = HEADS + WARPS;

// Addresses of bases have the highest bit, and from bit 48 on the number of their base: one that the launch gives, or `ANNOUNCED`.
constexpr u32 NUMBER = 48, ANNOUNCED = 127;
constexpr u64 ANNOUNCED_BASE = (1ull << 15 | ANNOUNCED) << NUMBER | 1ull << (NUMBER - 1);

// Shared memory of the threads of a block.
struct Shared {
  Item items[ITEMS];
  u64 epoch;
  u64 announced; // what to add to addresses in the message
  u32 well, good;
};

// Whether the receiver expects what this side sends; if so, learns where.
__device__ __forceinline__ bool is_expected(const Announced &announced, Shared &shared) {
  if (load_flag(announced.words + 1) != announced.sent) {
    store_flag(announced.differs, (u64)announced.words);
    return false;
  }
  shared.announced = load_flag(announced.words) - ANNOUNCED_BASE;
  return true;
}

// Waits before a block's first store: its first warp polls all flags of the part. Returns whether the part
// may copy. Checks the guard now and then: if it is set, the wait ends.
template <Kind KIND> __device__ __forceinline__ bool may_store(const Table &table, const Item &item, u64 epoch, Shared &shared) {
  if (threadIdx.x < LANES) {
    bool well = is_well(table);
    for (u32 at = threadIdx.x; at < item.waits; at += LANES) {
      const Wait wait = at == 0 ? item.awaited : of_epoch(table.waits, table, epoch)[item.wait + at];
      i64 ahead = beyond(wait, epoch);
      for (u32 looks = 0; ahead < 0 && well; looks++) {
        pause(looks);
        ahead = beyond(wait, epoch);
        if (looks % LANES == LANES - 1) well = is_well(table);
      }
      well &= ahead < POISON || table.guard == nullptr;
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

// The work of a block, and the kernels.

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
#if defined(HALOCLINE_COMBINES) || !defined(__CUDACC__)
  if constexpr (KIND == COMBINING) {
    combine_item(item);
    return true;
  }
#endif
  if constexpr (KIND != COMBINING) {
    if (item.region.cell_loop) return move_as<true, GATED, KIND>(table, item, bases, epoch, shared);
    return move_as<false, GATED, KIND>(table, item, bases, epoch, shared);
  }
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
          const i64 ahead = beyond(of_epoch(table.waits, table, epoch)[part.wait + at], epoch);
          reached = ahead >= 0;
          well &= ahead < POISON || table.guard == nullptr;
        }
        if (!reached) continue;
        open &= ~(1u << nth);
        if (part.raises == 0 || !well || !is_well(table)) continue;
        fence_system();
        for (u32 at = 0; at < part.raises; at++) store_flag(of_epoch(table.raises, table, epoch)[part.raise + at], epoch);
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
  store_flag(head.raised, epoch);
  for (u32 at = 1; at < head.raises; at++) store_flag(of_epoch(table.raises, table, epoch)[head.raise + at], epoch);
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
      if (threadIdx.x < table.first_count && is_well(table)) store_flag(table.first[threadIdx.x], epoch);
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

// The same for the next epoch of a counter. The lowest bit of its address: a later launch counts the epoch.
template <Kind KIND> __device__ __forceinline__ void copy_counted(const Table &table, const Bases *bases, u64 counter, Shared &shared) {
  copy<KIND, true>(table, bases, counter & ~1ull, shared);
  __syncthreads();
  if (threadIdx.x == 0 && (counter & 1) == 0) count_block((u64 *)counter);
}

// Tables with bases and those that combine, which copy nothing, have compilations of their own: most programs have none.
#if !defined(HALOCLINE_BASED) && !defined(HALOCLINE_COMBINES)
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
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_counted(const __grid_constant__ Table table, u64 counter) {
  __shared__ Shared shared;
  copy_counted<PLAIN>(table, nullptr, counter, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_copy_ll_counted(const __grid_constant__ Table table, u64 counter) {
  __shared__ Shared shared;
  copy_counted<SLOTS>(table, nullptr, counter, shared);
}
#endif

#if defined(HALOCLINE_BASED) || !defined(__CUDACC__)
extern "C" __global__ void __launch_bounds__(THREADS, 2)
halocline_copy_based(const __grid_constant__ Table table, u64 epoch, const __grid_constant__ Bases bases) {
  __shared__ Shared shared;
  copy<BASED, false>(table, &bases, epoch, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
halocline_copy_based_counted(const __grid_constant__ Table table, u64 counter, const __grid_constant__ Bases bases) {
  __shared__ Shared shared;
  copy_counted<BASED>(table, &bases, counter, shared);
}
#endif

#if defined(HALOCLINE_COMBINES) || !defined(__CUDACC__)
extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_combine(const __grid_constant__ Table table, u64 epoch) {
  __shared__ Shared shared;
  copy<COMBINING, false>(table, nullptr, epoch, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) halocline_combine_counted(const __grid_constant__ Table table, u64 counter) {
  __shared__ Shared shared;
  copy_counted<COMBINING>(table, nullptr, counter, shared);
}
#endif

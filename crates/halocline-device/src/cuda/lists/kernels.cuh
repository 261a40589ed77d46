// The kernels: count, scan, place.

// Shared memory of a block that counts.
struct Tally {
  u32 of[WARPS][BINS];
  u32 ranks[BINS];
  u64 bits[WARPS][2];
};

__device__ __forceinline__ void load_ranks(const Split &split, u32 (&ranks)[BINS]) {
  for (u32 at = threadIdx.x; at < split.bins; at += THREADS) ranks[at] = split.ranks[at];
}

template <class Job> __device__ __forceinline__ void count(const Split &split, Tally &tally) {
  typedef typename Job::KeyType Key;
  if (Job::is_idle(split)) return;
  const u32 thread = threadIdx.x, lane = thread % LANES, warp = thread / LANES;
  const u64 keys = Job::source(split);
  for (u32 at = thread; at < WARPS * BINS; at += THREADS) tally.of[at / BINS][at % BINS] = 0;
  load_ranks(split, tally.ranks);
  __syncthreads();
  const Part part(split);
  for (u64 at = part.first; at < part.end; at++) {
    const Tile<Key> tile(keys, split.count, at);
#pragma unroll
    for (u32 row = 0; row < ITEMS; row++) {
      const u32 bin = tile.at(row) < split.count ? Job::bin(split, tally.ranks, keys, tile.keys[row], tile.at(row)) : NONE;
      const u32 peers = peers_of(bin, split.bits);
      if (peers != 0 && (peers & ((1u << lane) - 1)) == 0) tally.of[warp][bin] += __popc(peers);
      __syncwarp();
    }
  }
  __syncthreads();
  for (u32 bin = thread; bin < split.bins; bin += THREADS) {
    u64 sum = 0;
    for (u32 other = 0; other < WARPS; other++) sum += tally.of[other][bin];
    words(split.counts)[(u64)bin * split.parts + blockIdx.x] = sum;
  }
}

// The bits that some keys have and those that some lack.
template <typename Key> __device__ __forceinline__ void find_bits(const Split &split, Tally &tally) {
  u64 set = 0, unset = 0;
  const Part part(split);
  for (u64 at = part.first; at < part.end; at++) {
    const Tile<Key> tile(split.keys, split.count, at);
#pragma unroll
    for (u32 row = 0; row < ITEMS; row++) {
      const bool is_there = tile.at(row) < split.count;
      set |= is_there ? (u64)tile.keys[row] : 0;
      unset |= is_there ? ~(u64)tile.keys[row] : 0;
    }
  }
  for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
    set |= __shfl_down_sync(ALL, set, distance);
    unset |= __shfl_down_sync(ALL, unset, distance);
  }
  u64(&bits)[2] = tally.bits[threadIdx.x / LANES];
  if (threadIdx.x % LANES == 0) bits[0] = set, bits[1] = unset;
  __syncthreads();
  if (threadIdx.x > 1) return;
  u64 all = 0;
  for (u32 warp = 0; warp < WARPS; warp++) all |= tally.bits[warp][threadIdx.x];
  atomicOr(words(split.words) + SET + threadIdx.x, all);
}

// Shared memory of a block that scans.
struct Sums {
  u64 of[WARPS];
  u64 total;
};

__device__ __forceinline__ void scan(const Split &split, Sums &sums) {
  u64 *const counts = words(split.counts) + (u64)blockIdx.x * split.parts;
  u64 carried = 0;
  for (u32 first = 0; first < split.parts; first += THREADS) {
    const u32 at = first + threadIdx.x;
    const u64 own = at < split.parts ? counts[at] : 0, before = sum_before(own, sums.of);
    if (at < split.parts) counts[at] = carried + before;
    if (threadIdx.x == THREADS - 1) sums.total = before + own;
    __syncthreads();
    carried += sums.total;
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  words(split.totals)[blockIdx.x] = carried;
  const u64 bad = words(split.words)[BAD];
  if (blockIdx.x != 0 || split.key_bytes == 0 || bad == 0) return;
  words(split.words)[BAD_OWNER] = split.key_bytes == 8 ? load<u64>(split.keys, ~bad) : load<u32>(split.keys, ~bad);
}

// Shared memory of a block that places.
template <typename Item> struct Placed {
  Item items[TILE];         // by bins
  u64 shift[BINS];          // from an item's place here to that in the target
  u64 sums[WARPS];
  u32 begin[BINS];          // of the bins here
  u32 ranks[BINS];
  u32 kept;                 // items that are in a bin
  u16 before[WARPS][BINS];  // items of a bin that earlier rows of the warp have; then: that earlier warps have
};

// The bin of each of a thread's items, and in bits 16 and up how many items of its warp precede it there.
template <class Job>
__device__ __forceinline__ void rank_items(const Split &split, u64 keys, const Tile<typename Job::KeyType> &tile, u32 (&where)[ITEMS],
                                           Placed<typename Job::Item> &shared) {
  const u32 lane = threadIdx.x % LANES;
  u16(&before)[BINS] = shared.before[threadIdx.x / LANES];
#pragma unroll
  for (u32 row = 0; row < ITEMS; row++) {
    const u32 bin = tile.at(row) < split.count ? Job::bin(split, shared.ranks, keys, tile.keys[row], tile.at(row)) : NONE;
    const u32 peers = peers_of(bin, split.bits), lower = peers & ((1u << lane) - 1);
    const u32 earlier = bin == NONE ? 0 : before[bin];
    __syncwarp();
    if (bin != NONE && lower == 0) before[bin] = (u16)(earlier + __popc(peers));
    __syncwarp();
    where[row] = bin == NONE ? NONE : bin | (earlier + __popc(lower)) << 16;
  }
}

// Sorts a tile by bins. `next` is the place of the next item of bin `threadIdx.x`.
template <class Job>
__device__ __forceinline__ void gather(const Split &split, u64 keys, u64 at, u64 &next, Placed<typename Job::Item> &shared) {
  const u32 thread = threadIdx.x, warp = thread / LANES;
  for (u32 entry = thread; entry < WARPS * BINS; entry += THREADS) shared.before[entry / BINS][entry % BINS] = 0;
  const Tile<typename Job::KeyType> tile(keys, split.count, at);
  u32 where[ITEMS];
  __syncthreads();
  rank_items<Job>(split, keys, tile, where, shared);
  __syncthreads();
  u32 own = 0;
  if (thread < split.bins) {
    for (u32 other = 0; other < WARPS; other++) {
      const u32 of_warp = shared.before[other][thread];
      shared.before[other][thread] = (u16)own;
      own += of_warp;
    }
  }
  const u32 begin = sum_before(own, shared.sums);
  if (thread < split.bins) {
    shared.begin[thread] = begin;
    shared.shift[thread] = next - begin;
    next += own;
  }
  if (thread == THREADS - 1) shared.kept = begin + own;
  __syncthreads();
#pragma unroll
  for (u32 row = 0; row < ITEMS; row++) {
    if (where[row] == NONE) continue;
    const u32 bin = where[row] & 0xffff, place = shared.begin[bin] + shared.before[warp][bin] + (where[row] >> 16);
    shared.items[place] = Job::item(tile.keys[row], (u32)(tile.at(row) - at * TILE), bin);
  }
  __syncthreads();
}

template <class Job> __device__ __forceinline__ void place(const Split &split, Placed<typename Job::Item> &shared) {
  if (Job::is_idle(split)) return;
  const u32 thread = threadIdx.x;
  const u64 keys = Job::source(split), target = Job::target(split);
  load_ranks(split, shared.ranks);
  const u64 total = thread < split.bins ? words(split.totals)[thread] : 0;
  const u64 begin = *words(split.start) + sum_before(total, shared.sums);
  u64 next = thread < split.bins ? begin + words(split.counts)[(u64)thread * split.parts + blockIdx.x] : 0;
  if (blockIdx.x == 0 && thread == THREADS - 1) words(split.start)[1] = begin + total;
  const Part part(split);
  for (u64 at = part.first; at < part.end; at++) {
    gather<Job>(split, keys, at, next, shared);
    for (u32 place = thread; place < shared.kept; place += THREADS) {
      const typename Job::Item item = shared.items[place];
      Job::store(split, target, shared.shift[Job::bin_of(split, item)] + place, item, at);
    }
  }
}

// Shared memory of a block that flags.
struct Flags {
  u32 ranks[BINS];
  u64 sums[WARPS];
};

constexpr u32 MASK = 32; // items of a word of masks

// Counts the items that are in the one bin, and stores a bit for each.
template <class Job> __device__ __forceinline__ void flag(const Split &split, Flags &shared) {
  typedef typename Job::KeyType Key;
  const u32 lane = threadIdx.x % LANES;
  const u64 keys = Job::source(split);
  load_ranks(split, shared.ranks);
  __syncthreads();
  u64 kept = 0;
  const Part part(split);
  for (u64 at = part.first; at < part.end; at++) {
    const Tile<Key> tile(keys, split.count, at);
    u32 mine = 0;
#pragma unroll
    for (u32 row = 0; row < ITEMS; row++) {
      const bool is_there = tile.at(row) < split.count;
      const u32 mask = __ballot_sync(ALL, is_there && Job::bin(split, shared.ranks, keys, tile.keys[row], tile.at(row)) == 0);
      if (lane == row) mine = mask;
    }
    if (lane < ITEMS) ((u32 *)split.masks)[(tile.first - lane) / MASK + lane] = mine;
    kept += __popc(mine);
  }
  const u64 before = sum_before(kept, shared.sums);
  if (threadIdx.x == THREADS - 1) words(split.counts)[blockIdx.x] = before + kept;
}

// Stores the items whose bits are set. Each thread has one word of masks.
template <class Job> __device__ __forceinline__ void keep(const Split &split, Sums &sums) {
  const u32 thread = threadIdx.x, lane = thread % LANES, lower = (1u << lane) - 1;
  const u64 keys = Job::source(split), target = Job::target(split);
  u64 next = *words(split.start) + words(split.counts)[blockIdx.x];
  const Part part(split);
  const u64 end = part.end * (TILE / MASK);
  for (u64 first = part.first * (TILE / MASK); first < end; first += THREADS) {
    const u32 mask = first + thread < end ? load<u32>(split.masks, first + thread) : 0, own = __popc(mask);
    const u32 before = sum_before(own, sums.of);
    if (thread == THREADS - 1) sums.total = before + own;
    for (u32 word = 0; word < LANES; word++) {
      const u32 bits = __shfl_sync(ALL, mask, word), place = __shfl_sync(ALL, before, word);
      const u64 at = (first + (thread - lane) + word) * MASK + lane;
      if (bits >> lane & 1) Job::keep(split, keys, target, next + place + __popc(bits & lower), at);
    }
    __syncthreads();
    next += sums.total;
    __syncthreads();
  }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 2)

#define SPLITS(name, Job, Key)                                                   \
  KERNEL halocline_count_##name(const __grid_constant__ Split split) {           \
    __shared__ Tally tally;                                                      \
    count<Job<Key>>(split, tally);                                               \
  }                                                                              \
  KERNEL halocline_place_##name(const __grid_constant__ Split split) {           \
    __shared__ Placed<Job<Key>::Item> shared;                                    \
    place<Job<Key>>(split, shared);                                              \
  }

#define SELECTS(name, Job, Key)                                                  \
  KERNEL halocline_flag_##name(const __grid_constant__ Split split) {            \
    __shared__ Flags shared;                                                     \
    flag<Job<Key>>(split, shared);                                               \
  }                                                                              \
  KERNEL halocline_keep_##name(const __grid_constant__ Split split) {            \
    __shared__ Sums sums;                                                        \
    keep<Job<Key>>(split, sums);                                                 \
  }

SPLITS(owned_4, Owned, u32)
SPLITS(owned_8, Owned, u64)
SPLITS(sorted_4, Sorted, u32)
SPLITS(sorted_8, Sorted, u64)
SELECTS(owned_4, Owned, u32)
SELECTS(owned_8, Owned, u64)
SELECTS(first_4, First, u32)
SELECTS(first_8, First, u64)

KERNEL halocline_bits_4(const __grid_constant__ Split split) {
  __shared__ Tally tally;
  find_bits<u32>(split, tally);
}

KERNEL halocline_bits_8(const __grid_constant__ Split split) {
  __shared__ Tally tally;
  find_bits<u64>(split, tally);
}

KERNEL halocline_scan(const __grid_constant__ Split split) {
  __shared__ Sums sums;
  scan(split, sums);
}

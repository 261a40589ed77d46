// What a pass reads, the bins of its items, and what it stores.

// The positions of the cells that each of some ranks owns.
template <typename Key> struct Owned {
  typedef Key KeyType;
  typedef u32 Item; // the position in the tile; from bit 16 on the bin
  __device__ static bool is_idle(const Split &) { return false; }
  __device__ static u64 source(const Split &split) { return split.keys; }

  __device__ static u32 bin(const Split &split, const u32 (&ranks)[BINS], u64, Key owner, u64 at) {
    if (owner >= split.size) {
      atomicMax(words(split.words) + BAD, ~at);
      return NONE;
    }
    const u32 rank = (u32)owner;
    if (split.chosen == OTHERS) return rank != ranks[0] ? 0 : NONE;
    if (split.chosen == RANGE) {
      const u32 bin = rank - ranks[0];
      return bin < split.bins ? bin : NONE;
    }
    u32 low = 0, high = split.bins;
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (ranks[middle] < rank) low = middle + 1;
      else high = middle;
    }
    return low < split.bins && ranks[low] == rank ? low : NONE;
  }

  __device__ static Item item(Key, u32 at, u32 bin) { return at | bin << 16; }
  __device__ static u32 bin_of(const Split &, Item item) { return item >> 16; }
  __device__ static u64 target(const Split &split) { return split.target; }
  __device__ static void store(const Split &split, u64 target, u64 place, Item item, u64 tile) {
    keep(split, 0, target, place, tile * TILE + (item & 0xffff));
  }
  __device__ static void keep(const Split &split, u64, u64 target, u64 place, u64 at) {
    if (place >= split.capacity) return;
    if (split.index_bytes == 8) ((u64 *)target)[place] = at;
    else ((u32 *)target)[place] = (u32)at;
  }
};

// The bits in which keys differ, and the passes of a sort that have to do something.
__device__ __forceinline__ u64 differing(const Split &split) { return words(split.words)[SET] & words(split.words)[UNSET]; }
__device__ __forceinline__ bool is_needed(u64 differing, u32 pass) { return (differing >> DIGIT * pass & (BINS - 1)) != 0; }

// Where the keys are before a pass, and where that stores them.
__device__ __forceinline__ u32 passes_before(const Split &split) {
  const u64 bits = differing(split);
  u32 passes = 0;
  for (u32 pass = 0; pass < split.pass; pass++) passes += is_needed(bits, pass);
  return passes;
}
__device__ __forceinline__ u64 sorted_before(const Split &split) {
  const u32 passes = passes_before(split);
  return passes == 0 ? split.keys : split.buffers[(passes - 1) % 2];
}

// One pass of a radix sort. A digit that all keys share needs none.
template <typename Key> struct Sorted {
  typedef Key KeyType;
  typedef Key Item;
  __device__ static bool is_idle(const Split &split) { return !is_needed(differing(split), split.pass); }
  __device__ static u64 source(const Split &split) { return sorted_before(split); }

  __device__ static u32 digit(const Split &split, Key key) { return (u32)(((u64)key ^ split.flip) >> DIGIT * split.pass) & (BINS - 1); }
  __device__ static u32 bin(const Split &split, const u32 (&)[BINS], u64, Key key, u64) { return digit(split, key); }
  __device__ static Item item(Key key, u32, u32) { return key; }
  __device__ static u32 bin_of(const Split &split, Item key) { return digit(split, key); }
  __device__ static u64 target(const Split &split) { return split.buffers[passes_before(split) % 2]; }
  __device__ static void store(const Split &, u64 target, u64 place, Item key, u64) { ((Key *)target)[place] = key; }
};

// The first of each run of equal keys.
template <typename Key> struct First {
  typedef Key KeyType;
  __device__ static bool is_idle(const Split &) { return false; }
  __device__ static u64 source(const Split &split) { return sorted_before(split); }
  __device__ static u32 bin(const Split &, const u32 (&)[BINS], u64 keys, Key key, u64 at) {
    return at == 0 || load<Key>(keys, at - 1) != key ? 0 : NONE;
  }
  __device__ static u64 target(const Split &split) { return split.target; }
  __device__ static void keep(const Split &split, u64 keys, u64 target, u64 place, u64 at) {
    if (place < split.capacity) ((Key *)target)[place] = load<Key>(keys, at);
  }
};

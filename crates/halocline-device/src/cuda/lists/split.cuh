// Index lists: the argument of the kernels, and what the threads of a block share.
//
// One pass splits the items of an array into bins and keeps their order within each bin, in three kernels (reduce, scan, scatter;
// Merrill and Grimshaw, "Parallel Scan for Stream Architectures", 2009, and "High Performance and Scalable Radix Sorting", 2011):
//
//   count   each block counts the items of its part of the array in each bin
//   scan    each block turns the counts of one bin into the places of the parts within that bin
//   place   each block sorts its part by bins in shared memory, one tile at a time, and stores it
//
// If there is one bin, `flag` stands for `count`, and stores a bit for each item that is in the bin; `keep` reads these bits for `place`, so that
// the array is read once.
//
// The lists of owners are one pass for each 256 ranks. Sorted ids are a pass for each digit (a radix sort from the lowest digit up), and one
// that keeps the first of equal ids.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;

constexpr u32 LANES = 32, ALL = ~0u;
constexpr u32 THREADS = 512;
constexpr u32 DIGIT = 8; // bits of a radix sort's digit
constexpr u32 ITEMS = 8; // of a thread in a tile
constexpr u32 WARPS = THREADS / LANES, TILE = THREADS * ITEMS, BINS = 1 << DIGIT;
constexpr u32 NONE = ~0u; // an item that is in no bin

// How ranks are chosen: those listed, as many as there are bins from `ranks[0]` on, all but `ranks[0]`.
enum Chosen : u32 { LISTED, RANGE, OTHERS };

// The argument of a launch. `lists/pass.rs` has the same.
struct Split {
  u64 keys;       // the given array
  u64 count;      // its elements
  u64 buffers[2]; // for keys between the passes of a sort
  u64 target;     // the result
  u64 capacity;   // elements that fit there
  u64 counts;     // of each bin in each part: `parts` words for each bin
  u64 totals;     // of each bin
  u64 masks;      // of items that are kept, for passes with one bin: a bit for each item
  u64 start;      // where the first bin begins in the target; the next word is for the next pass
  u64 words;      // results for the host
  u64 size;       // owners are below it
  u64 flip;       // bits that turn the order of keys into that of unsigned numbers
  u32 parts;
  u32 bins;
  u32 bits;       // that tell the bins apart
  u32 pass;       // of a sort
  u32 key_bytes;
  u32 index_bytes;
  u32 chosen;     // how ranks are chosen
  u32 unused;
  u32 ranks[BINS]; // ascending
};

// Words for the host: the complement of the first position whose owner is no rank (0: there is none), that owner, the counts.
enum Word : u32 { BAD, BAD_OWNER, COUNTS };
// Of a sort, behind the count: the bits that some keys have, and those that some lack.
enum SortWord : u32 { SET = COUNTS + 1, UNSET };

__device__ __forceinline__ u64 *words(u64 address) { return (u64 *)address; }

template <typename T> __device__ __forceinline__ T load(u64 array, u64 at) { return ((const T *)array)[at]; }

// The lanes of a warp whose items are in the same bin; 0 if the item is in none.
__device__ __forceinline__ u32 peers_of(u32 bin, u32 bits) {
  u32 peers = __ballot_sync(ALL, bin != NONE);
  for (u32 bit = 0; bit < bits; bit++) {
    const u32 mine = bin >> bit & 1, with = __ballot_sync(ALL, mine);
    peers &= mine ? with : ~with;
  }
  return bin == NONE ? 0 : peers;
}

// The sum of the values of the threads before this one. Barriers separate it from what the block does before and afterwards.
template <typename T> __device__ __forceinline__ T sum_before(T value, u64 (&sums)[WARPS]) {
  const u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  T sum = value;
  for (u32 distance = 1; distance < LANES; distance *= 2) {
    const T other = __shfl_up_sync(ALL, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == LANES - 1) sums[warp] = sum;
  __syncthreads();
  T before = sum - value;
  for (u32 other = 0; other < warp; other++) before += (T)sums[other];
  __syncthreads();
  return before;
}

// The tiles of a block's part.
struct Part {
  u64 first, end;
  __device__ __forceinline__ explicit Part(const Split &split) {
    const u64 tiles = (split.count + TILE - 1) / TILE, each = (tiles + split.parts - 1) / split.parts;
    first = blockIdx.x * each;
    end = first + each < tiles ? first + each : tiles;
  }
};

// A thread's items of a tile: those of a warp follow one another, row by row.
template <typename Key> struct Tile {
  u64 first;
  Key keys[ITEMS];
  __device__ __forceinline__ Tile(u64 array, u64 count, u64 tile)
      : first(tile * TILE + threadIdx.x / LANES * (LANES * ITEMS) + threadIdx.x % LANES) {
#pragma unroll
    for (u32 row = 0; row < ITEMS; row++) keys[row] = at(row) < count ? load<Key>(array, at(row)) : (Key)0;
  }
  __device__ __forceinline__ u64 at(u32 row) const { return first + row * LANES; }
};

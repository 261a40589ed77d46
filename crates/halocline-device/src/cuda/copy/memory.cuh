// Accesses to flags, slots and counters of epochs.

#ifdef __CUDACC__ // Otherwise a test runs this on the CPU, with its own definitions.
__device__ __forceinline__ u64 load_flag(const u64 *flag) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void store_flag(u64 *flag, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
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

__device__ __forceinline__ u64 next_epoch(const u64 *counter) { return (load_flag(counter) >> BLOCKS) + 1; }

// A block has ended: called by one of its threads behind a barrier.
__device__ __forceinline__ void count_block(u64 *counter) {
  atomicAdd(counter, blockIdx.x == 0 ? (1ull << BLOCKS) - (gridDim.x - 1) : 1ull);
}

// Definitions that the GPU compiler has and a host compiler lacks; prepended to the copy kernels for `machine.cc`.

struct Index { unsigned x, y, z; };
extern Index threadIdx, blockIdx, gridDim;

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

#define __global__
#define __device__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// One copy for all blocks, whose contents are swapped with the running block.
#define __shared__ static __attribute__((section("shared_memory")))

// Functions of `machine.cc`; each yields to other fibers.
extern "C" {
void __syncthreads();
void __syncwarp();
int __all_sync(unsigned mask, int predicate);
void __nanosleep(unsigned);
unsigned long long atomicAdd(unsigned long long *word, unsigned long long value);
unsigned long long load_flag(const unsigned long long *flag);
void store_flag(unsigned long long *flag, unsigned long long value);
void fence_system();
int __syncthreads_and(int predicate);
unsigned long long load_slot(unsigned long long from);
void store_slot(unsigned long long to, unsigned long long word);
unsigned any_of_two();
}

// Each word of a slot is accessed atomically; two words have no order.
static inline void load_words(unsigned long long from, unsigned long long (&words)[1]) { words[0] = load_slot(from); }
static inline void load_words(unsigned long long from, unsigned long long (&words)[2]) {
  const unsigned first = any_of_two();
  words[first] = load_slot(from + 8 * first);
  words[1 - first] = load_slot(from + 8 * (1 - first));
}
static inline void store_words(unsigned long long to, const unsigned long long (&words)[1]) { store_slot(to, words[0]); }
static inline void store_words(unsigned long long to, const unsigned long long (&words)[2]) {
  const unsigned first = any_of_two();
  store_slot(to + 8 * first, words[first]);
  store_slot(to + 8 * (1 - first), words[1 - first]);
}

#define memcpy __builtin_memcpy
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <typename T> static inline T __ldcg(const T *from) { return *from; }
template <typename T> static inline T __ldg(const T *from) { return *from; }

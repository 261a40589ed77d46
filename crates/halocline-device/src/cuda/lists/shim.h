// Definitions that the GPU compiler has and a host compiler lacks; prepended to the kernels for `machine.cc`.

struct Index { unsigned x, y, z; };
extern Index threadIdx, blockIdx, gridDim;

#define __global__
#define __device__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One copy for all blocks, whose contents are swapped with the running block.
#define __shared__ static __attribute__((section("shared_memory")))

// Functions of `machine.cc`; each yields to other fibers.
extern "C" {
void __syncthreads();
void __syncwarp();
unsigned __ballot_sync(unsigned mask, int predicate);
unsigned long shuffle(unsigned long value, int distance);
unsigned long long atomicMax(unsigned long long *word, unsigned long long value);
unsigned long long atomicOr(unsigned long long *word, unsigned long long value);
}

template <typename T> static inline T __shfl_sync(unsigned, T value, unsigned lane) { return (T)shuffle(value, (int)lane - (int)(threadIdx.x % 32)); }
template <typename T> static inline T __shfl_up_sync(unsigned, T value, unsigned distance) { return (T)shuffle(value, -(int)distance); }
template <typename T> static inline T __shfl_down_sync(unsigned, T value, unsigned distance) { return (T)shuffle(value, (int)distance); }
static inline unsigned __popc(unsigned bits) { return (unsigned)__builtin_popcount(bits); }

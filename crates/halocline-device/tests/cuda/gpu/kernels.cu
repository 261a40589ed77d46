// Kernels of the tests on GPUs.

typedef unsigned long long u64;

extern "C" __global__ void fill(u64 *words, u64 count, u64 value) {
  for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) words[at] = value + at;
}

// Counts wrong words, in a word of pinned memory.
extern "C" __global__ void check(const u64 *words, u64 count, u64 value, u64 *wrong) {
  for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
    if (words[at] != value + at) atomicAdd_system(wrong, 1);
  }
}

extern "C" __global__ void empty() {}

extern "C" __global__ void delay(u64 nanoseconds) {
  u64 begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

extern "C" __global__ void fault() { *(volatile int *)64 = 1; }

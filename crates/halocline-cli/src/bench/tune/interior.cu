// Work beside an exchange, bound by arithmetic or by memory. `interior.rs` launches it.

typedef unsigned long long u64;

struct Work {
  const double2 *x;
  double2 *y;
  u64 count;
};

// Keeps its multiprocessors at arithmetic for so many rounds, and touches no memory.
extern "C" __global__ void arithmetic(const __grid_constant__ Work work) {
  double sum = threadIdx.x, other = blockIdx.x;
  for (u64 round = 0; round < work.count; round++) {
    sum = sum * 0.999 + 1e-3;
    other = other * 0.998 + 1e-3;
  }
  if (sum + other == -1) work.y->x = 1;
}

// y = x / 2 + y, of so many elements.
extern "C" __global__ void memory(const __grid_constant__ Work work) {
  for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < work.count; at += (u64)gridDim.x * blockDim.x) {
    work.y[at].x += 0.5 * work.x[at].x;
    work.y[at].y += 0.5 * work.x[at].y;
  }
}

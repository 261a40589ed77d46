// Kernels of the suite on GPUs: they fill and check fields in device memory.

typedef unsigned long long u64;
typedef long long i64;

constexpr int AXES = 3;

// Where the cells of an array lie, and which of the global grid they are; `Shape` of `device_fixtures.rs`.
struct Shape {
  u64 base, axes;
  u64 extents[AXES], low[AXES], owned[AXES];
  i64 first[AXES], global[AXES];
  u64 periodic, number;
  const u64 *ids;
};

// What was found wrong: how many cells, and the first of them.
struct Wrong {
  u64 count, step, field, cell, address, found, expected;
};

__device__ u64 mix(u64 value) {
  u64 z = value + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ u64 value(u64 step, u64 field, u64 cell) { return mix(step ^ mix(field ^ mix(cell))); }

// The global number of a cell of the array, whether it lies in the grid, and whether it is owned.
__device__ u64 locate(const Shape &shape, u64 cell, bool &is_there, bool &is_owned) {
  u64 rest = cell, scale = 1, id = 0;
  is_there = is_owned = true;
  for (int axis = (int)shape.axes - 1; axis >= 0; axis--) {
    const i64 at = (i64)(rest % shape.extents[axis]) - (i64)shape.low[axis];
    rest /= shape.extents[axis];
    i64 global = axis == 0 && shape.ids != nullptr ? (i64)shape.ids[at] : shape.first[axis] + at;
    is_there &= (shape.periodic >> axis & 1) || (global >= 0 && global < shape.global[axis]);
    global %= shape.global[axis];
    if (global < 0) global += shape.global[axis];
    id += scale * (u64)global;
    scale *= (u64)shape.global[axis];
    is_owned &= at >= 0 && at < (i64)shape.owned[axis];
  }
  return id;
}

__device__ u64 cells(const Shape &shape) {
  u64 count = 1;
  for (u64 axis = 0; axis < shape.axes; axis++) count *= shape.extents[axis];
  return count;
}

extern "C" __global__ void produce(const __grid_constant__ Shape shape, u64 step) {
  bool is_there, is_owned;
  const u64 count = cells(shape);
  for (u64 cell = blockIdx.x * (u64)blockDim.x + threadIdx.x; cell < count; cell += (u64)gridDim.x * blockDim.x) {
    const u64 id = locate(shape, cell, is_there, is_owned);
    if (is_owned) ((u64 *)shape.base)[cell] = value(step, shape.number, id);
  }
}

extern "C" __global__ void consume(const __grid_constant__ Shape shape, u64 step, Wrong *wrong) {
  bool is_there, is_owned;
  const u64 count = cells(shape);
  for (u64 cell = blockIdx.x * (u64)blockDim.x + threadIdx.x; cell < count; cell += (u64)gridDim.x * blockDim.x) {
    const u64 id = locate(shape, cell, is_there, is_owned);
    if (!is_there) continue;
    const u64 found = __ldcg((const u64 *)shape.base + cell), expected = value(step, shape.number, id);
    if (found == expected || atomicAdd_system(&wrong->count, 1) != 0) continue;
    wrong->step = step;
    wrong->field = shape.number;
    wrong->cell = id;
    wrong->address = shape.base + 8 * cell;
    wrong->found = found;
    wrong->expected = expected;
  }
}

// Reads the owned cells and does nothing with them.
extern "C" __global__ void interior(const __grid_constant__ Shape shape, u64 *nowhere) {
  bool is_there, is_owned;
  const u64 count = cells(shape);
  u64 sum = 0;
  for (u64 cell = blockIdx.x * (u64)blockDim.x + threadIdx.x; cell < count; cell += (u64)gridDim.x * blockDim.x) {
    locate(shape, cell, is_there, is_owned);
    if (is_owned) sum ^= ((const u64 *)shape.base)[cell];
  }
  if (sum == 0x5eed5eed5eed5eedull) *nowhere = sum;
}

extern "C" __global__ void delay(u64 nanoseconds) {
  u64 begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

extern "C" __global__ void empty() {}

extern "C" __global__ void fault() { *(volatile int *)64 = 1; }

// y = a x + y: as many bytes as it has.
extern "C" __global__ void triad(const double2 *x, double2 *y, u64 count) {
  for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
    y[at].x += 0.5 * x[at].x;
    y[at].y += 0.5 * x[at].y;
  }
}

// Keeps its multiprocessors at arithmetic for so many rounds, and touches no memory.
extern "C" __global__ void compute(u64 rounds, u64 *nowhere) {
  double sum = threadIdx.x, other = blockIdx.x;
  for (u64 round = 0; round < rounds; round++) {
    sum = sum * 0.999 + 1e-3;
    other = other * 0.998 + 1e-3;
  }
  if (sum + other == -1) *nowhere = 1;
}

// Copies words of 16 bytes, and the rest as words of 8: all that storing to a peer takes.
extern "C" __global__ void stores(const ulonglong2 *from, ulonglong2 *to, u64 bytes) {
  const u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x, count = bytes / 16;
  constexpr u64 AT_ONCE = 4;
  for (u64 first = thread; first < count; first += AT_ONCE * threads) {
    ulonglong2 values[AT_ONCE];
#pragma unroll
    for (u64 at = 0; at < AT_ONCE; at++) if (first + at * threads < count) values[at] = from[first + at * threads];
#pragma unroll
    for (u64 at = 0; at < AT_ONCE; at++) if (first + at * threads < count) to[first + at * threads] = values[at];
  }
  if (thread == 0 && bytes % 16 != 0) ((u64 *)to)[2 * count] = ((const u64 *)from)[2 * count];
}

// A heat step with the interface that DaCe generates (2.0): a state with scratch memory, two streams that a caller can set, and an event
// that orders them. `gpu/program` compiles it; `heat.json` is its manifest. The arithmetic is rounded as the host's, operation by operation.
#include <cuda_runtime.h>

namespace {

constexpr int STREAMS = 2;
constexpr int THREADS = 128;

// One row a block in y: next = t + dt * (the sum of the four neighbours - 4 t).
__global__ void step(const double *__restrict__ t, double *__restrict__ next, int first, int m, double dt) {
  const int i = first + blockIdx.y, j = 1 + blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= m - 1) return;
  const double *cell = t + (long long)i * m + j;
  const double sum = __dadd_rn(__dadd_rn(cell[-m], cell[m]), __dadd_rn(cell[-1], cell[1]));
  const double change = __dmul_rn(dt, __dsub_rn(sum, __dmul_rn(4.0, cell[0])));
  next[(long long)i * m + j] = __dadd_rn(cell[0], change);
}

__global__ void take(double *__restrict__ t, const double *__restrict__ next, int m) {
  const int i = 1 + blockIdx.y, j = 1 + blockIdx.x * blockDim.x + threadIdx.x;
  if (j < m - 1) t[(long long)i * m + j] = next[(long long)i * m + j];
}

}  // namespace

struct heat_state_t {
  cudaStream_t internal[STREAMS], streams[STREAMS];
  cudaEvent_t events[2];
  double *next;
  int error;
};

static void check(heat_state_t *state, cudaError_t result) {
  if (state->error == 0) state->error = (int)result;
}

static void launch_rows(heat_state_t *state, const double *t, int first, int rows, int m, double dt, cudaStream_t stream) {
  if (rows <= 0) return;
  const dim3 blocks((m - 2 + THREADS - 1) / THREADS, rows);
  step<<<blocks, THREADS, 0, stream>>>(t, state->next, first, m, dt);
  check(state, cudaPeekAtLastError());
}

extern "C" {

heat_state_t *__dace_init_heat(int m, int n) {
  heat_state_t *state = new heat_state_t();
  check(state, cudaMalloc((void **)&state->next, sizeof(double) * n * m));
  for (int i = 0; i < STREAMS; i++) {
    check(state, cudaStreamCreateWithFlags(&state->internal[i], cudaStreamNonBlocking));
    state->streams[i] = state->internal[i];
    check(state, cudaEventCreateWithFlags(&state->events[i], cudaEventDisableTiming));
  }
  if (state->error == 0) return state;
  delete state;
  return nullptr;
}

// The halves of the rows on two streams; then the result on the first one.
void __program_heat(heat_state_t *state, double *t, int m, int n, double dt) {
  const int rows = n - 2, half = rows / 2;
  launch_rows(state, t, 1, half, m, dt, state->streams[0]);
  launch_rows(state, t, 1 + half, rows - half, m, dt, state->streams[1]);
  check(state, cudaEventRecord(state->events[0], state->streams[1]));
  check(state, cudaStreamWaitEvent(state->streams[0], state->events[0], 0));
  const dim3 blocks((m - 2 + THREADS - 1) / THREADS, rows);
  take<<<blocks, THREADS, 0, state->streams[0]>>>(t, state->next, m);
  check(state, cudaPeekAtLastError());
}

int __dace_exit_heat(heat_state_t *state) {
  int error = (int)cudaFree(state->next);
  for (int i = 0; i < STREAMS; i++) {
    cudaStreamDestroy(state->internal[i]);
    cudaEventDestroy(state->events[i]);
  }
  delete state;
  return error;
}

int __dace_gpu_last_error(heat_state_t *state) {
  const int error = state->error;
  state->error = 0;
  return error;
}

bool __dace_gpu_set_stream(heat_state_t *state, int streamid, cudaStream_t stream) {
  if (streamid < 0 || streamid >= STREAMS) return false;
  state->streams[streamid] = stream;
  return true;
}

void __dace_gpu_set_all_streams(heat_state_t *state, cudaStream_t stream) {
  for (int i = 0; i < STREAMS; i++) state->streams[i] = stream;
}

}  // extern "C"

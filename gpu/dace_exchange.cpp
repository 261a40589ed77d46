// The program of examples/dace/heat.py on GPUs: its tasklets exchange halos on the stream of its kernels. Compares the result with that of the
// host, bit by bit, and prints what a step costs. gpu/program compiles it with the code that DaCe generates; each rank uses the first GPU that
// it sees.
//
//     ./dace-exchange [CALLS]                        so many calls of the program make 200 steps; 1 by default
//     halocline launch -n 2 -- ./dace-exchange
#include <cuda_runtime.h>
#include <halocline.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace hc = halocline;

struct heat_state_t;
extern "C" {
heat_state_t *__dace_init_heat(std::int64_t NX, std::int64_t NY);
int __dace_exit_heat(heat_state_t *state);
void __dace_gpu_set_all_streams(heat_state_t *state, cudaStream_t stream);
void __program_heat(heat_state_t *state, double *t, double *u, std::int64_t NX, std::int64_t NY, std::uint64_t halo, int steps);
}

constexpr std::size_t NX = 96, NY = 80, CELLS = NX * NY;
constexpr int STEPS = 200;

static void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

static double initial(std::size_t x, std::size_t y) { return (x / 8 + y / 8) % 2 == 0 ? 1.0 : 0.0; }

// The whole periodic grid after all steps.
static std::vector<double> alone() {
  std::vector<double> t(CELLS), u(CELLS);
  for (std::size_t at = 0; at < CELLS; at++) t[at] = initial(at / NY, at % NY);
  for (int step = 0; step < STEPS; step++) {
    for (std::size_t x = 0; x < NX; x++) {
      for (std::size_t y = 0; y < NY; y++) {
        const double here = t[x * NY + y], north = t[(x + NX - 1) % NX * NY + y], south = t[(x + 1) % NX * NY + y];
        const double west = t[x * NY + (y + NY - 1) % NY], east = t[x * NY + (y + 1) % NY];
        u[x * NY + y] = here + 0.2 * ((north + south) + (west + east) - 4.0 * here);
      }
    }
    t.swap(u);
  }
  return t;
}

static bool run(int calls) {
  const hc::comm comm = hc::comm::init();
  const hc::pattern pattern =
      hc::regular_grid({NX, NY}).periodic({true, true}).decompose(comm.size()).pattern(comm, 1);
  const hc::domain domain = pattern.domain();
  const auto shape = domain.shape<2>();
  const auto corner = pattern.global<2>({1, 1});
  const std::size_t bytes = shape[0] * shape[1] * sizeof(double);
  std::vector<double> values(shape[0] * shape[1], -1.0);
  for (std::size_t i = 1; i + 1 < shape[0]; i++) {
    for (std::size_t j = 1; j + 1 < shape[1]; j++) {
      const auto x = static_cast<std::size_t>(corner[0]) + i - 1, y = static_cast<std::size_t>(corner[1]) + j - 1;
      values[i * shape[1] + j] = initial(x, y);
    }
  }

  double *t, *u;
  cudaStream_t stream;
  check(cudaSetDevice(0));
  check(cudaMalloc(&t, bytes));
  check(cudaMalloc(&u, bytes));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaMemcpyAsync(t, values.data(), bytes, cudaMemcpyHostToDevice, stream));
  const hc::layout layout(HALOCLINE_F64, {shape[0], shape[1]});
  const hc::halo_exchange halo(comm, {{pattern, hc::field::create_cuda(0, t, layout)}}, hc::bind_options().deadline(60));

  const auto extents = std::array<std::int64_t, 2>{static_cast<std::int64_t>(shape[0]), static_cast<std::int64_t>(shape[1])};
  heat_state_t *const state = __dace_init_heat(extents[0], extents[1]);
  if (state == nullptr) throw std::runtime_error("DaCe's program has no state");
  __dace_gpu_set_all_streams(state, stream);
  const auto begin = std::chrono::steady_clock::now();
  double host = 0;
  for (int call = 0; call < calls; call++) {
    const auto start = std::chrono::steady_clock::now();
    __program_heat(state, t, u, extents[0], extents[1], halo.get().id, STEPS / calls);
    host += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    check(cudaStreamSynchronize(stream));
  }
  const double all = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  check(cudaMemcpy(values.data(), t, bytes, cudaMemcpyDeviceToHost));
  __dace_exit_heat(state);

  const hc::field result = hc::field::create(values.data(), layout);
  const hc::field whole = hc::gather_to(pattern, 0, result);
  comm.barrier();
  if (!whole) return true;
  const auto *found = static_cast<const double *>(whole.base());
  const bool is_equal = std::vector<double>(found, found + CELLS) == alone();
  std::printf("tasklets of DaCe: %d steps on %zu ranks, %s the host; %.1f us a step, %.1f us of the host\n", STEPS, comm.size(),
              is_equal ? "equal to" : "DIFFERENT from", all / STEPS, host / STEPS);
  return is_equal;
}

int main(int argc, char **argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 1;
  if (calls < 1 || STEPS % calls != 0) {
    std::fprintf(stderr, "usage: dace-exchange [CALLS]   (a divisor of %d)\n", STEPS);
    return 2;
  }
  try {
    return run(calls) ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

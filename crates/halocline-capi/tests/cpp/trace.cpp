// Traces: `trace FOLDER RANKS` writes FOLDER/trace.json with five exchanges of each rank.
#include <halocline.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace hc = halocline;

static void run(const hc::comm &comm, const std::string &folder) {
  const auto pattern = hc::regular_grid({8}).periodic({true}).decompose(comm.size()).pattern(comm, 1);
  const hc::array<double, 1> t(comm, pattern.domain().shape<1>());
  const hc::halo_exchange halo(comm, {{pattern, t}}, hc::bind_options().name("traced"));
  const hc::trace trace(comm, folder + "/trace.json");
  for (int exchange = 0; exchange < 5; exchange++) halo.exchange_and_wait();
  trace.end();
  // Destroyed without its end: no file.
  { const hc::trace dropped(comm, folder + "/dropped.json"); }
  comm.barrier();
  if (std::ifstream(folder + "/dropped.json").good()) std::exit(1);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  std::vector<std::thread> threads;
  for (hc::comm &comm : hc::comm::threads(static_cast<std::size_t>(std::atoi(argv[2])))) {
    threads.emplace_back([comm = std::move(comm), folder = std::string(argv[1])] { run(comm, folder); });
  }
  for (std::thread &thread : threads) thread.join();
  return 0;
}

// Starts `run` on every rank: as a process, or as threads if the program is given their number. Prints "ok RANKS TRANSPORT" on rank 0.
#ifndef RANKS_HPP
#define RANKS_HPP

#include "check.hpp"

#include <thread>

static void run(const hc::comm &comm);

static void run_rank(hc::comm comm) {
  try {
    run(comm);
    if (comm.rank() == 0) std::printf("ok %zu %s\n", comm.size(), comm.transport().c_str());
  } catch (const hc::error &error) {
    std::fprintf(stderr, "%s: %s\n", hc::status_name(error.status()).c_str(), error.what());
    std::exit(1);
  }
}

static void run_ranks(int argc, char **argv) {
  if (argc == 1) return run_rank(hc::comm::init());
  std::vector<std::thread> threads;
  for (hc::comm &comm : hc::comm::threads(static_cast<std::size_t>(std::atoi(argv[1])))) {
    threads.emplace_back(run_rank, std::move(comm));
  }
  for (std::thread &thread : threads) thread.join();
}

// Programs with a `main` of their own define HAS_MAIN.
#ifndef HAS_MAIN
int main(int argc, char **argv) {
  run_ranks(argc, argv);
  return 0;
}
#endif

#endif

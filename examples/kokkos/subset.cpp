// Finds the elements that each rank owns by a scan on the device, and compares the lists with those of a loop on the host.
//
//     ./subset
//     halocline launch -n 4 -- ./subset
//     mpirun -n 4 ./subset
#include "elements.hpp"

#include <cstdio>

namespace hc = halocline;

// The same on the host.
static std::vector<std::size_t> find_alone(const elements &local, std::size_t owner) {
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at < local.count; at++) {
    if ((local.first + at) / local.block == owner) found.push_back(at);
  }
  return found;
}

static bool run() {
  const hc::comm comm = hc::comm::init();
  const elements local(comm.rank(), comm.size());
  const Kokkos::View<int *> owners = owners_of(local);

  std::uint64_t wrong = 0, listed = 0, owned = 0;
  for (std::size_t rank = 0; rank < comm.size(); rank++) {
    const auto list = hc::kokkos::find(space(), owners, static_cast<int>(rank));
    const auto found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), list);
    const std::vector<std::size_t> wanted = find_alone(local, rank);
    wrong += !(found.size() == wanted.size() && std::equal(wanted.begin(), wanted.end(), found.data()));
    listed += found.size();
    if (rank == comm.rank()) owned = found.size();
  }
  // Each element is in one list of this rank, and one rank owns it.
  wrong += listed != local.count;
  owned = comm.all_reduce(owned, hc::reduce::sum);
  wrong = comm.all_reduce(wrong, hc::reduce::sum) + (owned != ELEMENTS);
  if (comm.rank() == 0) {
    std::printf("subset: %llu elements owned by %zu ranks, lists %s those of the host\n", static_cast<unsigned long long>(owned),
                comm.size(), wrong == 0 ? "equal to" : "DIFFERENT from");
  }
  return wrong == 0;
}

int main(int argc, char **argv) {
  const Kokkos::ScopeGuard guard(argc, argv);
  try {
    return run() ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Sums the values of all copies of an element at its owner: packs a message for each owner on the device, and sends it. Then a bound
// exchange gives the sums back to the copies, without messages of the program. Compares with sums of one rank.
//
//     ./pack
//     halocline launch -n 4 -- ./pack
//     mpirun -n 4 ./pack
#include "elements.hpp"

#include <cstdio>

namespace hc = halocline;
using values_view = Kokkos::View<double *>;
using ids_view = Kokkos::View<std::size_t *>;

// The part of a copy of an element.
KOKKOS_INLINE_FUNCTION double part(std::size_t id, std::size_t rank) { return static_cast<double>(id) + 1000.0 * static_cast<double>(rank); }

// The elements of `all` at the indices of a list.
template <class View>
static View pack(const View &all, const ids_view &list) {
  View message("message", list.extent(0));
  Kokkos::parallel_for("pack", list.extent(0), KOKKOS_LAMBDA(std::size_t at) { message(at) = all(list(at)); });
  return message;
}

// What this rank sends to an owner: the ids of elements, and their parts.
struct message {
  std::size_t owner;
  ids_view ids;
  values_view parts;
};

// Adds the parts of all copies to the elements of their owners.
static void sum_at_owners(const hc::comm &comm, const elements &local, const ids_view &ids, const Kokkos::View<int *> &owners,
                          const values_view &values) {
  const hc::kokkos::stream<values_view> stream;
  std::vector<message> messages;
  std::vector<std::size_t> destinations;
  for (std::size_t owner = 0; owner < comm.size(); owner++) {
    const ids_view list = hc::kokkos::find(space(), owners, static_cast<int>(owner));
    if (owner != comm.rank() && list.size() > 0) {
      messages.push_back({owner, pack(ids, list), pack(values, list)});
      destinations.push_back(owner);
    }
  }
  const auto exchange = hc::sparse_alltoall::discover(comm, destinations, stream.resource());
  for (const message &message : messages) {
    exchange.insert(message.owner, stream.packet_of("ids", message.ids));
    exchange.insert(message.owner, stream.packet_of("parts", message.parts));
  }
  exchange.finish_and_wait();
  const std::size_t first = local.first;
  for (const std::size_t source : exchange.sources()) {
    const std::vector<hc::received> packets = exchange.extract(source);
    const auto came = stream.payload_of<std::size_t>(packets.at(0));
    const auto parts = stream.payload_of<double>(packets.at(1));
    Kokkos::parallel_for("add", came.size(), KOKKOS_LAMBDA(std::size_t at) { values(came(at) - first) += parts(at); });
    // The packets are freed at the end of the turn.
    Kokkos::fence();
  }
}

static bool run() {
  const hc::comm comm = hc::comm::init();
  const elements local(comm.rank(), comm.size());
  const ids_view ids = ids_of(local);
  const Kokkos::View<int *> owners = owners_of(local);
  const hc::pattern pattern = hc::kokkos::pattern_of(comm, ids, owners);
  const hc::kokkos::array<values_view> field(comm, {local.count});
  const values_view values = field.view();
  const std::size_t rank = comm.rank();
  Kokkos::parallel_for("fill", local.count, KOKKOS_LAMBDA(std::size_t at) { values(at) = part(ids(at), rank); });

  sum_at_owners(comm, local, ids, owners, values);
  const hc::halo_exchange halo(comm, {{pattern, field}}, hc::bind_options().name("sums"));
  const hc::kokkos::stream<values_view> stream;
  stream.schedule_wait(stream.schedule_exchange(halo));

  const auto found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < local.count; at++) {
    double wanted = 0;
    for (std::size_t other = 0; other < comm.size(); other++) {
      if (elements(other, comm.size()).has(local.first + at)) wanted += part(local.first + at, other);
    }
    wrong += found(at) != wanted;
  }
  wrong = comm.all_reduce(wrong, hc::reduce::sum);
  if (rank == 0) {
    std::printf("pack: sums of %zu elements on %zu ranks, %s one rank\n", ELEMENTS, comm.size(),
                wrong == 0 ? "equal to" : "DIFFERENT from");
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

// Elements of a distributed simulation, for the examples. Each is owned by one rank; other ranks have copies.
#ifndef ELEMENTS_HPP
#define ELEMENTS_HPP

#include <halocline_kokkos.hpp>

#include <algorithm>

using space = Kokkos::DefaultExecutionSpace;

constexpr std::size_t ELEMENTS = 1000, COPIES = 150;

// What a rank has of them: a block of its own, and copies of up to COPIES elements on each side of it.
struct elements {
  std::size_t ranks, block, first, count;

  elements(std::size_t rank, std::size_t ranks) : ranks(ranks), block((ELEMENTS + ranks - 1) / ranks) {
    const std::size_t begin = std::min(ELEMENTS, rank * block), end = std::min(ELEMENTS, begin + block);
    first = begin - std::min(begin, COPIES);
    count = std::min(ELEMENTS, end + COPIES) - first;
  }
  bool has(std::size_t id) const { return id >= first && id < first + count; }
};

// The global id of each local element.
inline Kokkos::View<std::size_t *> ids_of(const elements &local) {
  Kokkos::View<std::size_t *> ids("ids", local.count);
  const std::size_t first = local.first;
  Kokkos::parallel_for("ids", local.count, KOKKOS_LAMBDA(std::size_t at) { ids(at) = first + at; });
  return ids;
}

// The rank that owns each local element.
inline Kokkos::View<int *> owners_of(const elements &local) {
  Kokkos::View<int *> owners("owners", local.count);
  const std::size_t first = local.first, block = local.block;
  Kokkos::parallel_for("owners", local.count,
                       KOKKOS_LAMBDA(std::size_t at) { owners(at) = static_cast<int>((first + at) / block); });
  return owners;
}

#endif

// Index lists. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_INDEX_LISTS_HPP
#define HALOCLINE_CPP_INDEX_LISTS_HPP

#include "exchange.hpp"
#include "field.hpp"

namespace halocline {

// Makes index lists of fields of one dimension: the cells that ranks own, unique ids. Fields of a GPU need a stream.
class index_lists : public owner<halocline_index_lists, halocline_index_lists_free> {
 public:
  index_lists() : owner() {
    halocline_index_lists handle;
    check(halocline_index_lists_create(&handle));
    static_cast<owner &>(*this) = owner(handle);
  }

  // Stores the positions of the cells that each of `ranks` owns in `indices`, rank after rank. `size`: the number of ranks.
  void owned(const field &owners, std::size_t size, const std::vector<std::size_t> &ranks, const field &indices,
             const stream *order = nullptr) const {
    check(halocline_index_lists_owned(get(), owners.get(), size, ranks.data(), ranks.size(), indices.get(), of(order)));
  }
  // Stores the ids that occur in `ids` in `unique`, each once, in ascending order.
  void unique(const field &ids, const field &unique, const stream *order = nullptr) const {
    check(halocline_index_lists_unique(get(), ids.get(), unique.get(), of(order)));
  }
  // The elements of each part of the last list. Waits until the list is made.
  std::vector<std::size_t> counts() const {
    return detail::stored<std::size_t>([&](std::size_t *counts, std::size_t capacity, std::size_t *count) {
      return halocline_index_lists_counts(get(), counts, capacity, count);
    });
  }

  // The pattern of one unstructured domain of each rank, from its ids and owners. Collective.
  static pattern pattern_of(const comm &comm, std::uint64_t number, const field &ids, const field &owners,
                            const stream *order = nullptr) {
    halocline_pattern handle;
    check(halocline_pattern_of_owners(comm.get(), number, ids.get(), owners.get(), of(order), &handle));
    return pattern(handle);
  }

 private:
  static halocline_stream of(const stream *order) noexcept { return order == nullptr ? halocline_stream{0} : order->get(); }
};

}  // namespace halocline

#endif

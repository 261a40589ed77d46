// The sparse all-to-all. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_SPARSE_HPP
#define HALOCLINE_CPP_SPARSE_HPP

#include "packet.hpp"

namespace halocline {

// A sparse all-to-all in progress.
class sparse_alltoall : public owner<halocline_sparse, halocline_sparse_free> {
 public:
  using owner::owner;

  // The ranks that send to this one are known. Collective.
  sparse_alltoall(const comm &comm, const std::vector<std::size_t> &sources, const std::vector<std::size_t> &destinations,
                  const resource &memory = {})
      : owner() {
    static constexpr std::size_t none = 0;
    create(comm, sources.empty() ? &none : sources.data(), sources.size(), destinations, memory);
  }
  // They are discovered. Collective.
  static sparse_alltoall discover(const comm &comm, const std::vector<std::size_t> &destinations,
                                  const resource &memory = {}) {
    sparse_alltoall made;
    made.create(comm, nullptr, 0, destinations, memory);
    return made;
  }

  void insert(std::size_t destination, const packet &packet) const {
    detail::send(&packet, nullptr, [&](const halocline_packet *sent, const halocline_packet *) {
      return halocline_sparse_insert(get(), destination, sent);
    });
  }
  // This rank inserts no more packets. Never blocks.
  void finish() const { check(halocline_sparse_finish(get())); }
  // Blocks until all packets are here and those of this rank were sent. After `finish`.
  void wait() const { check(halocline_sparse_wait(get())); }
  // Both, and faster.
  void finish_and_wait() const { check(halocline_sparse_finish_and_wait(get())); }
  bool is_complete() const {
    std::int32_t complete;
    check(halocline_sparse_is_complete(get(), &complete));
    return complete != 0;
  }
  // Calls `done(status, message)` once, when the operation is complete or has failed. As `round::on_completion`.
  template <typename Done>
  void on_completion(Done &&done) const {
    detail::on_completion(std::forward<Done>(done), [&](halocline_done call, void *context) {
      return halocline_sparse_on_completion(get(), call, context);
    });
  }

  std::vector<std::size_t> sources() const {
    return detail::stored<std::size_t>([&](std::size_t *sources, std::size_t capacity, std::size_t *count) {
      return halocline_sparse_sources(get(), sources, capacity, count);
    });
  }
  std::vector<std::size_t> destinations() const {
    return detail::stored<std::size_t>([&](std::size_t *destinations, std::size_t capacity, std::size_t *count) {
      return halocline_sparse_destinations(get(), destinations, capacity, count);
    });
  }
  // What this rank has sent and received so far.
  halocline_packet_statistics statistics() const {
    halocline_packet_statistics found = HALOCLINE_PACKET_STATISTICS_INIT;
    check(halocline_sparse_statistics(get(), &found));
    return found;
  }
  // The packets of a source; they are given once.
  std::vector<received> extract(std::size_t source) const {
    const auto handles =
        detail::stored<halocline_received>([&](halocline_received *packets, std::size_t capacity, std::size_t *count) {
          return halocline_sparse_extract(get(), source, packets, capacity, count);
        });
    return std::vector<received>(handles.begin(), handles.end());
  }

 private:
  void create(const comm &comm, const std::size_t *sources, std::size_t count,
              const std::vector<std::size_t> &destinations, const resource &memory) {
    halocline_sparse handle;
    check(halocline_sparse_create(comm.get(), sources, count, destinations.data(), destinations.size(), memory.get(),
                                  &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
};

}  // namespace halocline

#endif

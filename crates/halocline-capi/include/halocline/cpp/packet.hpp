// Packets between neighbours, and the sparse all-to-all. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_PACKET_HPP
#define HALOCLINE_CPP_PACKET_HPP

#include "field.hpp"

namespace halocline {

// A packet to send: metadata, and a payload that has to stay until the operation is complete.
struct packet {
  std::string metadata;
  span<const char> payload;
  bool has_payload = false;
  // For a payload in GPU memory: HALOCLINE_CUDA, the number of the GPU, and the stream whose earlier work writes the payload.
  std::int32_t space = HALOCLINE_HOST, device = 0;
  halocline_stream stream = {0};

  explicit packet(std::string text) : metadata(std::move(text)) {}
  template <typename T>
  packet(std::string text, span<const T> elements)
      : metadata(std::move(text)),
        payload(reinterpret_cast<const char *>(elements.data()), elements.size() * sizeof(T)),
        has_payload(true) {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
  }

  // For calls of the C interface; valid while this lives.
  halocline_packet get() const noexcept {
    halocline_packet sent = HALOCLINE_PACKET_INIT;
    sent.metadata = metadata.data();
    sent.metadata_bytes = metadata.size();
    sent.payload = payload.data();
    sent.payload_bytes = payload.size();
    sent.has_payload = has_payload;
    sent.space = space;
    sent.device = device;
    sent.stream = stream;
    return sent;
  }
};

// A packet that came.
class received : public owner<halocline_received, halocline_packet_free> {
 public:
  using owner::owner;

  halocline_contents contents() const {
    halocline_contents found = HALOCLINE_CONTENTS_INIT;
    check(halocline_packet_describe(get(), &found));
    return found;
  }
  std::string metadata() const {
    const halocline_contents found = contents();
    return {static_cast<const char *>(found.metadata), found.metadata_bytes};
  }
  bool has_payload() const { return contents().has_payload != 0; }
  // The payload, in memory of the resource. Valid while this lives.
  template <typename T>
  span<const T> payload() const {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
    const halocline_contents found = contents();
    return {static_cast<const T *>(found.payload), found.payload_bytes / sizeof(T)};
  }
};

// Where received payloads lie; an empty one stands for memory of the host.
using resource = owner<halocline_resource, halocline_resource_free>;

// What came from both sides; empty where nothing came.
struct from_sides {
  received left, right;
};

// A round in flight.
class round : public owner<halocline_round, halocline_round_free> {
 public:
  using owner::owner;

  from_sides wait() const {
    halocline_received left, right;
    check(halocline_round_wait(get(), &left, &right));
    return {received(left), received(right)};
  }
  bool is_complete() const {
    std::int32_t complete;
    check(halocline_round_is_complete(get(), &complete));
    return complete != 0;
  }
};

// The neighbours of a rank on a line or a ring.
class neighbors : public owner<halocline_neighbors, halocline_neighbors_free> {
 public:
  using owner::owner;

  static neighbors line(const comm &comm, const resource &memory = {}) { return create(comm, 0, memory); }
  static neighbors ring(const comm &comm, const resource &memory = {}) { return create(comm, 1, memory); }

  // Starts a round: a packet for each side, or null.
  round start(std::uint32_t id, const packet *left, const packet *right) const {
    halocline_round handle;
    const halocline_packet packets[2] = {of_c(left), of_c(right)};
    check(halocline_neighbors_start(get(), id, left ? &packets[0] : nullptr, right ? &packets[1] : nullptr, &handle));
    return round(handle);
  }
  from_sides exchange(std::uint32_t id, const packet *left, const packet *right) const {
    halocline_received from_left, from_right;
    const halocline_packet packets[2] = {of_c(left), of_c(right)};
    check(halocline_neighbors_exchange(get(), id, left ? &packets[0] : nullptr, right ? &packets[1] : nullptr, &from_left,
                                       &from_right));
    return {received(from_left), received(from_right)};
  }

 private:
  static neighbors create(const comm &comm, std::int32_t ring, const resource &memory) {
    halocline_neighbors handle;
    check(halocline_neighbors_create(comm.get(), ring, memory.get(), &handle));
    return neighbors(handle);
  }
  static halocline_packet of_c(const packet *packet) noexcept {
    return packet ? packet->get() : halocline_packet HALOCLINE_PACKET_INIT;
  }
};

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
    const halocline_packet given = packet.get();
    check(halocline_sparse_insert(get(), destination, &given));
  }
  void finish_and_wait() const { check(halocline_sparse_finish_and_wait(get())); }
  std::vector<std::size_t> sources() const {
    return detail::stored<std::size_t>([&](std::size_t *sources, std::size_t capacity, std::size_t *count) {
      return halocline_sparse_sources(get(), sources, capacity, count);
    });
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

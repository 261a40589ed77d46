// Packets, the memory of received payloads, and what runs when an operation is complete. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_PACKET_HPP
#define HALOCLINE_CPP_PACKET_HPP

#include "field.hpp"

namespace halocline {

// A packet to send: metadata, and a payload that has to stay until the operation is complete, unless `keep` owns it.
struct packet {
  std::string metadata;
  span<const char> payload;
  bool has_payload = false;
  // For a payload in GPU memory: HALOCLINE_CUDA, the number of the GPU, and the stream whose earlier work writes the payload.
  std::int32_t space = HALOCLINE_HOST, device = 0;
  halocline_stream stream = {0};
  // Held by each call that sends the packet, until the library does not read the payload any more. Its last owner may be a thread of
  // the library; its destructor must not call the library.
  std::shared_ptr<void> keep = nullptr;

  explicit packet(std::string text) : metadata(std::move(text)) {}
  template <typename T>
  packet(std::string text, span<const T> elements, std::shared_ptr<void> kept = nullptr)
      : metadata(std::move(text)),
        payload(reinterpret_cast<const char *>(elements.data()), elements.size() * sizeof(T)),
        has_payload(true),
        keep(std::move(kept)) {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
  }

  // For calls of the C interface; valid while this lives. It does not hold `keep`.
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

namespace detail {

// A packet for one call of the C interface, which takes its payload's owner; null for no packet.
class sent_packet {
 public:
  explicit sent_packet(const packet *packet) : is_given_(packet != nullptr), sent_ HALOCLINE_PACKET_INIT {
    if (!is_given_) return;
    sent_ = packet->get();
    if (packet->keep) {
      keep_ = std::make_unique<std::shared_ptr<void>>(packet->keep);
      sent_.release = [](void *context) { delete static_cast<std::shared_ptr<void> *>(context); };
      sent_.context = keep_.get();
    }
  }
  const halocline_packet *get() const noexcept { return is_given_ ? &sent_ : nullptr; }
  // After the call. The library has taken the owner, also if the call failed, unless it did not look at the packet.
  void taken(halocline_status status) noexcept {
    if (status != HALOCLINE_ERROR_FORKED && status != HALOCLINE_ERROR_CALLBACK) (void)keep_.release();
  }

 private:
  bool is_given_;
  halocline_packet sent_;
  std::unique_ptr<std::shared_ptr<void>> keep_;
};

// Calls `call` with packets for both sides, or null.
template <typename Call>
void send(const packet *left, const packet *right, Call call) {
  sent_packet packets[2] = {sent_packet(left), sent_packet(right)};
  const halocline_status status = call(packets[0].get(), packets[1].get());
  for (sent_packet &packet : packets) packet.taken(status);
  check(status);
}

// The one call of a function on the heap. An exception that leaves the function ends the program, as in a thread.
template <typename Done>
void call_and_free(void *context, halocline_status status, const char *message) noexcept {
  const std::unique_ptr<Done> done(static_cast<Done *>(context));
  (*done)(status, message);
}

// Passes a function to an `on_completion` of the C interface, which `call` calls.
template <typename Done, typename Call>
void on_completion(Done &&done, Call call) {
  using held = std::decay_t<Done>;
  static_assert(std::is_invocable<held &, halocline_status, const char *>::value,
                "the function takes a halocline_status and a message");
  auto kept = std::make_unique<held>(std::forward<Done>(done));
  const halocline_status status = call(&call_and_free<held>, static_cast<void *>(kept.get()));
  // A call that is refused never calls the function. After any other one it frees itself, and may have done so already. After a bug of the
  // library it may still be called, so it is not freed here.
  if (status == HALOCLINE_OK || status == HALOCLINE_ERROR_INTERNAL) (void)kept.release();
  check(status);
}

}  // namespace detail

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
    if (found.payload_bytes % sizeof(T) != 0) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the payload ends within an element; its sender uses another type");
    }
    return {static_cast<const T *>(found.payload), found.payload_bytes / sizeof(T)};
  }
  // Makes later work of the stream run after the payload is there. Needed for payloads in GPU memory.
  void order(const stream &stream) const { check(halocline_packet_order(get(), stream.get())); }
};

namespace detail {

// The allocator of the C interface that calls a pool, which it holds.
template <typename Pool>
halocline_allocator allocator_of(std::shared_ptr<Pool> *held) noexcept {
  halocline_allocator allocator = HALOCLINE_ALLOCATOR_INIT;
  allocator.allocate = [](void *pool, std::size_t bytes) noexcept -> void * {
    try {
      return (*static_cast<std::shared_ptr<Pool> *>(pool))->allocate(bytes);
    } catch (...) {
      return nullptr;
    }
  };
  // An exception of `deallocate` ends the program, as one of a destructor.
  allocator.deallocate = [](void *pool, void *memory, std::size_t bytes) noexcept {
    (*static_cast<std::shared_ptr<Pool> *>(pool))->deallocate(memory, bytes);
  };
  allocator.release = [](void *pool) noexcept { delete static_cast<std::shared_ptr<Pool> *>(pool); };
  allocator.context = held;
  return allocator;
}

}  // namespace detail

// Where received payloads lie. Operations take an empty one for memory of the host.
class resource : public owner<halocline_resource, halocline_resource_free> {
 public:
  using owner::owner;

  // Memory of the host that as many ranks as possible access directly.
  static resource host(const comm &comm) {
    halocline_resource handle;
    check(halocline_resource_host(comm.get(), &handle));
    return resource(handle);
  }
  // Memory of the host that a GPU accesses directly.
  static resource pinned(const comm &comm, int device) {
    halocline_resource handle;
    check(halocline_resource_pinned(comm.get(), device, &handle));
    return resource(handle);
  }
  // Memory of a GPU.
  static resource cuda(int device) {
    halocline_resource handle;
    check(halocline_resource_cuda(device, &handle));
    return resource(handle);
  }
  // Memory of a pool of the program: of the host, or with a number that of a GPU. `allocate(bytes)` returns memory, or throws or returns null
  // if there is none, and the text of the exception is lost; `deallocate(memory, bytes)` takes it back, as for std::pmr::memory_resource. Any threads call them, several at once;
  // they must not call the library, and should not wait. A GPU is current meanwhile, and its memory is written after the work that `stream`
  // has when `allocate` returns. The pool is destroyed where no object of the library can be freed: it must own none, such as a stream.
  template <typename Pool>
  static resource of(std::shared_ptr<Pool> pool, std::optional<int> device = std::nullopt, halocline_stream stream = {0}) {
    if (!pool) throw error(HALOCLINE_ERROR_ARGUMENT, "the pool is null");
    auto held = std::make_unique<std::shared_ptr<Pool>>(std::move(pool));
    halocline_allocator allocator = detail::allocator_of(held.get());
    allocator.space = device ? HALOCLINE_CUDA : HALOCLINE_HOST;
    allocator.device = device.value_or(0);
    allocator.stream = stream;
    halocline_resource handle;
    check(halocline_resource_allocator(&allocator, &handle));
    (void)held.release();
    return resource(handle);
  }
  // At most `bytes` bytes of this one at once. On a shortage a receiver waits `patience` seconds for packets to be freed; then it takes
  // memory of `spill`, or fails if that is empty.
  resource limited(std::size_t bytes, double patience, const resource &spill = {}) const {
    halocline_resource handle;
    check(halocline_resource_limited(get(), bytes, patience, spill.get(), &handle));
    return resource(handle);
  }

  // Frees the idle memory that a resource of the library keeps for later payloads.
  void trim() const { check(halocline_resource_trim(get())); }
  // What it has allocated.
  halocline_resource_statistics statistics() const {
    halocline_resource_statistics found = HALOCLINE_RESOURCE_STATISTICS_INIT;
    check(halocline_resource_describe(get(), &found));
    return found;
  }
};

}  // namespace halocline

#endif

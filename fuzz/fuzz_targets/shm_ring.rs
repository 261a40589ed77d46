#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("shm_ring"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::shm_ring, bytes);
});
